//! Loading a program: its segments, stack and heap in a new address space.
//!
//! Addresses are those of Linux with address-space randomisation off (`setarch -R`). Source:
//! Linux fs/binfmt_elf.c `load_elf_binary()`, `elf_load()`, fs/exec.c `setup_arg_pages()`.

use crate::auxv;
use crate::counts::CountsByScope;
use crate::elf::{Image, ImageKind, Segment};
use crate::kernel::Kernel;
use crate::load_error::LoadError;
use crate::task::{MmLayout, TaskId};
use crate::vfs::absolute;
use arch::{Arch, MmId, Platform};
use events::Sink;
use mm::{Backing, Errno, FileId, MapFlags, VmProt};
use units::{ArchId, PAGE_SIZE, VirtAddr};

/// A program to run, and what it is told.
#[derive(Clone, Debug)]
pub struct Program<'a> {
    /// What it is called, for `AT_EXECFN` and `/proc`.
    pub path: &'a str,
    /// The ELF file.
    pub elf: &'a [u8],
    /// Its arguments, `argv[0]` first.
    pub argv: &'a [Vec<u8>],
    /// Its environment, `NAME=value`.
    pub envp: &'a [Vec<u8>],
}

/// A program that was loaded: all registers but these are zero.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Loaded {
    /// Its first thread.
    pub task: TaskId,
    /// Where it starts.
    pub pc: VirtAddr,
    /// Its stack.
    pub sp: VirtAddr,
}

/// Soft limit of the stack, and how far it may grow.
pub(crate) const STACK_LIMIT: u64 = 8 << 20;
/// What is mapped of the stack from the start: a page, and 128 KiB more.
const STACK_MAPPED: u64 = PAGE_SIZE + (128 << 10);
/// Longest single argument (`MAX_ARG_STRLEN`).
const ARG_LEN_MAX: u64 = 128 << 10;
/// All arguments and pointers to them: a quarter of the stack.
const ARGS_MAX: u64 = STACK_LIMIT / 4;
const ANON_FIXED: MapFlags = MapFlags::PRIVATE.union(MapFlags::ANONYMOUS).union(MapFlags::FIXED);

/// Where Linux puts what may be anywhere (`ELF_ET_DYN_BASE`); the heap of a static PIE.
fn dyn_base(arch: ArchId) -> VirtAddr {
    VirtAddr::new(match arch {
        ArchId::X86_64 => 0x5555_5555_4000,
        ArchId::Arm64 => 0xaaaa_aaaa_a000,
    })
}

pub(crate) fn task_size(arch: ArchId) -> VirtAddr {
    match arch {
        ArchId::X86_64 => arch::X86_64::TASK_SIZE,
        ArchId::Arm64 => arch::Arm64::TASK_SIZE,
    }
}

fn memory(what: &'static str) -> impl Fn(Errno) -> LoadError {
    move |errno| LoadError::Memory { what, errno }
}

/// An address space with a program in it.
pub(crate) struct Mapped {
    pub(crate) mm: MmId,
    pub(crate) pc: VirtAddr,
    pub(crate) sp: VirtAddr,
    pub(crate) layout: MmLayout,
}

impl<P: Platform> Kernel<P>
where
    P::Sink: CountsByScope,
{
    /// Loads a program as a new process with the console as its standard files. The first one
    /// that is loaded is the one whose end is the end of the run.
    ///
    /// # Errors
    /// [`LoadError`]: the program cannot run here.
    pub fn load(&mut self, program: &Program<'_>) -> Result<Loaded, LoadError> {
        self.mm.pt.count_lines();
        self.mm.pt.sink.begin("execve");
        let mapped = self.map_program(program);
        self.mm.pt.count_lines();
        self.mm.pt.sink.end();
        let Mapped { mm, pc, sp, layout } = mapped?;
        let task = self.spawn_process(program, mm, layout);
        Ok(Loaded { task, pc, sp })
    }

    fn map_program(&mut self, program: &Program<'_>) -> Result<Mapped, LoadError> {
        check_arguments(program)?;
        let image = Image::parse(program.elf, task_size)?;
        if image.arch != P::Arch::ID {
            let (program, machine) = (image.arch, P::Arch::ID);
            return Err(LoadError::WrongArch { program, machine });
        }
        self.check_memory(&image)?;
        let mm = self.mm.mm_alloc().map_err(memory("its address space"))?;
        self.load_into(mm, program, &image).inspect_err(|_| self.mm.mmput(mm))
    }

    fn check_memory(&self, image: &Image) -> Result<(), LoadError> {
        let need = image.segments.iter().fold(0u64, |sum, s| sum.saturating_add(s.memsz));
        let info = self.mm.meminfo();
        let have = info.total.saturating_add(info.swap_total).saturating_mul(PAGE_SIZE);
        if need > have { Err(LoadError::BeyondRam { need, have }) } else { Ok(()) }
    }

    fn load_into(
        &mut self,
        mm: MmId,
        program: &Program<'_>,
        image: &Image,
    ) -> Result<Mapped, LoadError> {
        let stack_top = P::Arch::TASK_SIZE;
        self.map_stack(mm, stack_top, image.exec_stack)?;
        let name = absolute("/", program.path);
        let file = self.mm.file_create(&name, program.elf.to_vec());
        let bias = self.load_bias(mm, image)?;
        let mut brk = VirtAddr::ZERO;
        for segment in &image.segments {
            let segment = Segment { vaddr: segment.vaddr.wrapping_add(bias), ..segment.clone() };
            self.map_segment(mm, file, &segment).map_err(memory("a segment"))?;
            brk = brk.max(segment.end());
        }
        // Its mappings hold it from here on.
        self.mm.file_put(file);
        let vdso = self.map_vdso(mm).map_err(memory("the vDSO"))?;
        let brk_start = match image.kind {
            ImageKind::Fixed => brk.wrapping_add(PAGE_SIZE - 1).align_down(PAGE_SIZE),
            ImageKind::StaticPie => dyn_base(image.arch),
        };
        self.mm.set_brk_start(mm, brk_start);
        let mut random = [0; 16];
        self.rng.fill(&mut random);
        let relocated = |at: VirtAddr| match at {
            VirtAddr::ZERO => at,
            _ => at.wrapping_add(bias),
        };
        let values = auxv::Values {
            arch: image.arch,
            sysinfo_ehdr: vdso.ehdr,
            hwcap: self.options.hwcap,
            hwcap2: self.options.hwcap2,
            min_sigstack: self.options.min_sigstack,
            phdr: relocated(image.phdr),
            phnum: u64::from(image.phnum),
            entry: image.entry.wrapping_add(bias),
            random,
        };
        let path = program.path.as_bytes();
        let stack = auxv::build(stack_top, path, program.argv, program.envp, &values);
        self.mm.copy_to_user(mm, stack.sp, &stack.bytes).map_err(memory("its stack"))?;
        let arg_start = stack.arg_start;
        let sigreturn = vdso.sigreturn;
        let layout = MmLayout { brk_start, stack_top, arg_start, sigreturn };
        Ok(Mapped { mm, pc: values.entry, sp: stack.sp, layout })
    }

    fn map_stack(&mut self, mm: MmId, top: VirtAddr, exec: bool) -> Result<(), LoadError> {
        let mut prot = VmProt::READ | VmProt::WRITE;
        prot.set(VmProt::EXEC, exec);
        let start = VirtAddr::new(top.get() - STACK_MAPPED);
        let flags = ANON_FIXED | MapFlags::GROWSDOWN | MapFlags::STACK;
        self.mm
            .mmap(mm, start, STACK_MAPPED, prot, flags, Backing::Anonymous)
            .map_err(memory("its stack"))?;
        self.mm.mark_stack(mm, start);
        Ok(())
    }

    /// What to add to the program's addresses: where a static PIE finds room for all of it.
    fn load_bias(&mut self, mm: MmId, image: &Image) -> Result<u64, LoadError> {
        if image.kind == ImageKind::Fixed {
            return Ok(0);
        }
        let (Some(first), Some(last)) = (image.segments.first(), image.segments.last()) else {
            return Err(LoadError::NoSegments);
        };
        let align = image.segments.iter().map(|s| s.align).max().unwrap_or(PAGE_SIZE);
        let start = first.vaddr.align_down(align);
        let len = last.end().get() - start.get();
        let flags = MapFlags::PRIVATE | MapFlags::ANONYMOUS | MapFlags::NORESERVE;
        // A larger alignment than a page: reserve enough to find an aligned start within.
        let reserve = len.saturating_add(align - PAGE_SIZE);
        let found = self
            .mm
            .mmap(mm, VirtAddr::ZERO, reserve, VmProt::empty(), flags, Backing::Anonymous)
            .map_err(memory("its segments"))?;
        self.mm.munmap(mm, found, reserve).map_err(memory("its segments"))?;
        let room = found.get() + (align - PAGE_SIZE);
        Ok(VirtAddr::new(room).align_down(align).get().wrapping_sub(start.get()))
    }

    /// Maps the file's part of a segment, clears the rest of its last page, and maps zeroes
    /// after it.
    fn map_segment(&mut self, mm: MmId, file: FileId, segment: &Segment) -> Result<(), Errno> {
        let page_offset = segment.vaddr.page_offset();
        let start = segment.vaddr.align_down(PAGE_SIZE);
        let file_end = segment.vaddr.wrapping_add(segment.filesz);
        let pages_end = file_end.wrapping_add(PAGE_SIZE - 1).align_down(PAGE_SIZE);
        let mut zero_from = start;
        if segment.filesz > 0 {
            let offset = segment.offset - page_offset;
            let flags = MapFlags::PRIVATE | MapFlags::FIXED;
            let len = pages_end.get() - start.get();
            self.mm.mmap(mm, start, len, segment.prot, flags, Backing::File { file, offset })?;
            zero_from = pages_end;
            let tail = pages_end.get() - file_end.get();
            if segment.memsz > segment.filesz && segment.prot.contains(VmProt::WRITE) {
                let zeroes = vec![0; usize::try_from(tail).map_err(|_| Errno::ENOMEM)?];
                self.mm.copy_to_user(mm, file_end, &zeroes)?;
            }
        }
        let end = segment.end().wrapping_add(PAGE_SIZE - 1).align_down(PAGE_SIZE);
        if end > zero_from {
            let len = end.get() - zero_from.get();
            self.mm.mmap(mm, zero_from, len, segment.prot, ANON_FIXED, Backing::Anonymous)?;
        }
        Ok(())
    }
}

fn check_arguments(program: &Program<'_>) -> Result<(), LoadError> {
    let strings = || program.argv.iter().chain(program.envp);
    if strings().any(|s| s.contains(&0)) || program.path.contains('\0') {
        return Err(LoadError::NulInArguments);
    }
    if let Some(long) = strings().map(|s| s.len() as u64).find(|&len| len >= ARG_LEN_MAX) {
        return Err(LoadError::ArgumentsTooLong { bytes: long, limit: ARG_LEN_MAX });
    }
    let bytes = auxv::size_of_strings(program.argv, program.envp);
    let limit = ARGS_MAX;
    if bytes > limit { Err(LoadError::ArgumentsTooLong { bytes, limit }) } else { Ok(()) }
}
