//! Why a program cannot be loaded.

use mm::Errno;
use units::ArchId;

/// What kind of trouble a [`LoadError`] is, for the exit status.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LoadErrorKind {
    /// The bytes are no program that can run here (sysexits 65).
    NotRunnable,
    /// The program is fine, but needs more memory than the machine has (sysexits 75).
    Limit,
    /// The command line is at fault (usage).
    Usage,
}

/// Why a program cannot be loaded: one sentence, without the path.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LoadError {
    /// No bytes at all.
    #[error("the file is empty; give an ELF64 program")]
    Empty,
    /// The magic number is missing.
    #[error("this is not an ELF file but {looks_like}; give a static ELF64 program")]
    NotElf {
        /// What it seems to be.
        looks_like: &'static str,
    },
    /// It ends before what its headers promise.
    #[error("the ELF file is truncated: {what} ends at byte {need}, but the file has {have}")]
    Truncated {
        /// Which part.
        what: &'static str,
        /// Where that part ends.
        need: u64,
        /// Bytes in the file.
        have: u64,
    },
    /// 32-bit.
    #[error(
        "this is a 32-bit ELF file; only 64-bit programs run here, so build it for x86-64 or AArch64"
    )]
    Elf32,
    /// Big-endian.
    #[error("this is a big-endian ELF file; only little-endian programs run here")]
    BigEndian,
    /// Neither architecture.
    #[error(
        "the program is for ELF machine {machine}; only x86-64 (62) and AArch64 (183) run here"
    )]
    WrongMachine {
        /// `e_machine`.
        machine: u16,
    },
    /// The machine was built for the other architecture.
    #[error("the program is for {program}, but the machine is {machine}")]
    WrongArch {
        /// Of the program.
        program: ArchId,
        /// Of the machine.
        machine: ArchId,
    },
    /// Not `ET_EXEC` or `ET_DYN`.
    #[error("the ELF file is {what}, not a program; link it first")]
    NotProgram {
        /// What it is.
        what: &'static str,
    },
    /// `PT_INTERP`.
    #[error("the program is dynamically linked (it asks for {interpreter}); link it with -static")]
    Dynamic {
        /// Path in `PT_INTERP`.
        interpreter: String,
    },
    /// No `PT_LOAD`.
    #[error("the ELF file has no loadable segment")]
    NoSegments,
    /// A header contradicts itself.
    #[error("program header {index} is malformed: {why}")]
    BadSegment {
        /// Its index.
        index: usize,
        /// What is wrong.
        why: &'static str,
    },
    /// Outside user space.
    #[error("program header {index} ends at {end:#x}, beyond the user address space")]
    BeyondAddressSpace {
        /// Its index.
        index: usize,
        /// `p_vaddr + p_memsz`, saturated.
        end: u64,
    },
    /// Larger than RAM and swap.
    #[error(
        "the program's segments need {need} bytes, but RAM and swap have {have}; give more with --mem"
    )]
    BeyondRam {
        /// Sum of `p_memsz`.
        need: u64,
        /// RAM and swap.
        have: u64,
    },
    /// argv and envp do not fit.
    #[error("arguments and environment take {bytes} bytes, more than the {limit} that fit")]
    ArgumentsTooLong {
        /// Their size.
        bytes: u64,
        /// What fits.
        limit: u64,
    },
    /// A string holds a NUL.
    #[error("an argument or environment string contains a NUL byte")]
    NulInArguments,
    /// `mm` refused while `what` was set up.
    #[error("out of memory while setting up {what} (errno {}); give more with --mem", errno.0)]
    Memory {
        /// What was being set up.
        what: &'static str,
        /// What `mm` said.
        errno: Errno,
    },
}

impl LoadError {
    /// What kind of trouble it is.
    pub fn kind(&self) -> LoadErrorKind {
        match self {
            LoadError::BeyondRam { .. } | LoadError::Memory { .. } => LoadErrorKind::Limit,
            LoadError::ArgumentsTooLong { .. } | LoadError::NulInArguments => LoadErrorKind::Usage,
            _ => LoadErrorKind::NotRunnable,
        }
    }
}
