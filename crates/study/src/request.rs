//! What to run.

use crate::{Guest, Override, ThpSetting, status};
use events::TraceLimits;
use report::Failure;
use std::fs;
use units::ArchId;

/// An executable file.
#[derive(Clone)]
pub struct Program {
    /// The path or `@name` as given.
    pub path: String,
    /// The ELF file.
    pub bytes: Vec<u8>,
}

impl std::fmt::Debug for Program {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Program({}, {} bytes)", self.path, self.bytes.len())
    }
}

impl Program {
    /// Reads a file, or takes the build for `arch` of the guest `@name`.
    ///
    /// # Errors
    /// 66 for a file that cannot be read, 2 for a guest that does not exist.
    pub fn open(path: &str, arch: ArchId) -> Result<Program, Failure> {
        let bytes = match path.strip_prefix('@') {
            Some(name) => guest(name, arch)?,
            None => fs::read(path).map_err(|error| Failure {
                message: format!("cannot read the program {path}: {error}; give the path of an ELF file or a built-in guest such as @pageout"),
                status: status::NO_INPUT,
            })?,
        };
        Ok(Program { path: path.to_owned(), bytes })
    }
}

fn guest(name: &str, arch: ArchId) -> Result<Vec<u8>, Failure> {
    let known =
        || Guest::all().iter().map(|g| format!("@{}", g.name)).collect::<Vec<_>>().join(", ");
    let usage = |message| Failure { message, status: status::USAGE };
    let Some(guest) = Guest::find(name) else {
        return Err(usage(format!("unknown guest `@{name}`; known: {}", known())));
    };
    match guest.elf(arch) {
        Some(elf) => Ok(elf.to_vec()),
        None => Err(usage(format!(
            "the guest `@{name}` has no build for {arch}; choose another --arch"
        ))),
    }
}

/// One run, in the words of the command line.
#[derive(Clone, Debug)]
pub struct RunRequest {
    /// The architecture that the program must be for; else whatever its header says.
    pub arch: Option<ArchId>,
    /// `PRESET[(+|-)PATCH]…`.
    pub kernel: String,
    /// Machine preset; else the default of the architecture.
    pub machine: Option<String>,
    /// CPUs; else as many as the preset has by itself.
    pub cpus: Option<u16>,
    /// Guest RAM.
    pub mem_bytes: u64,
    /// Swap space.
    pub swap_bytes: u64,
    /// Folio sizes.
    pub thp: Vec<ThpSetting>,
    /// Fields of the kernel and of the machine that differ from the preset.
    pub set: Vec<Override>,
    /// What is written to pseudo-files before the program starts: path and text.
    pub write: Vec<(String, String)>,
    /// The user and the group that the program runs as.
    pub uid: u32,
    /// `NAME=VALUE`.
    pub env: Vec<String>,
    /// Arguments, the program's name first.
    pub argv: Vec<String>,
    /// Seed of everything random.
    pub seed: u64,
    /// Whether the oracles watch.
    pub check: bool,
    /// How instructions are executed.
    pub engine: machine::Engine,
    /// When to give up.
    pub max_instructions: Option<u64>,
    /// How much of what happens when is written down, if anything.
    pub trace: Option<TraceLimits>,
    /// What to run.
    pub program: Program,
}

impl RunRequest {
    /// Guest RAM when nothing is said.
    pub const MEM_BYTES: u64 = 1 << 30;
    /// Swap space when nothing is said.
    pub const SWAP_BYTES: u64 = 1 << 30;

    /// `program` with the defaults of everything else.
    pub fn new(program: Program, argv: Vec<String>) -> RunRequest {
        RunRequest {
            arch: None,
            kernel: machine::KernelConfig::DEFAULT.to_owned(),
            machine: None,
            cpus: None,
            mem_bytes: RunRequest::MEM_BYTES,
            swap_bytes: RunRequest::SWAP_BYTES,
            thp: Vec::new(),
            set: Vec::new(),
            write: Vec::new(),
            uid: 0,
            env: Vec::new(),
            argv,
            seed: 0,
            check: false,
            engine: machine::Engine::default(),
            max_instructions: None,
            trace: None,
            program,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_that_cannot_be_had_say_why() {
        let err = Program::open("@pagein", ArchId::Arm64).expect_err("unknown");
        assert_eq!(err.status, status::USAGE);
        assert!(err.message.contains("@pageout"), "{}", err.message);
        let err = Program::open("/nowhere/at/all", ArchId::Arm64).expect_err("missing");
        assert_eq!(err.status, status::NO_INPUT);
        assert!(err.message.contains("/nowhere/at/all"), "{}", err.message);
        assert!(Program::open("@pageout", ArchId::X86_64).is_ok());
    }
}
