//! The vDSO: the functions that a kernel lends to every program, and the data that they read.
//!
//! The image is a shared object of one page, put together here: program headers, dynamic section,
//! symbols with their version, hash table, code. Its functions look at the first word of the data
//! page before it, as Linux's do to learn which clock to read, and make the system call. Source:
//! Linux arch/x86/entry/vdso/vma.c, arch/arm64/kernel/vdso.c, lib/vdso/gettimeofday.c, lib/vdso/datastore.c;
//! the object's form: System V gABI, "Dynamic Linking".
// FIDELITY: vdso — its functions always end in the system call, as Linux's do where user code
// cannot read the clock; `getrandom` is missing.

use crate::kernel::Kernel;
use arch::{Arch, KernelConfig, MmId, Platform};
use mm::{Backing, Errno, FileId, MapFlags, VmProt};
use units::{ArchId, PAGE_SIZE, VirtAddr};

/// How many pages each part has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Layout {
    /// `[vvar]`: the data; only its first page exists.
    vvar: u64,
    /// `[vvar_vclock]`: clocks of hypervisors; none exists.
    vclock: u64,
    /// `[vdso]`
    vdso: u64,
}

impl Layout {
    fn of(arch: ArchId, kernel: &KernelConfig) -> Layout {
        match (arch, kernel.vdso_generic_data) {
            (ArchId::X86_64, false) => Layout { vvar: 4, vclock: 0, vdso: 2 },
            (ArchId::X86_64, true) => Layout { vvar: 4, vclock: 2, vdso: 2 },
            (ArchId::Arm64, false) => Layout { vvar: 2, vclock: 0, vdso: 1 },
            (ArchId::Arm64, true) => Layout { vvar: 4, vclock: 0, vdso: 2 },
        }
    }
}

/// Where the parts are that others ask for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Vdso {
    /// The ELF header, for `AT_SYSINFO_EHDR`.
    pub(crate) ehdr: VirtAddr,
    /// The return from signal handlers; zero where the guest brings its own.
    pub(crate) sigreturn: VirtAddr,
}

/// The parts, which all processes share.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Parts {
    vvar: FileId,
    vclock: FileId,
    vdso: FileId,
}

impl<P: Platform> Kernel<P> {
    /// Maps data and code into a new address space.
    /// Source: Linux `arch_setup_additional_pages()`.
    pub(crate) fn map_vdso(&mut self, mm: MmId) -> Result<Vdso, Errno> {
        let layout = Layout::of(P::Arch::ID, &self.mm.pt.kernel);
        let data = (layout.vvar + layout.vclock) * PAGE_SIZE;
        let len = data + layout.vdso * PAGE_SIZE;
        let image = Image::new(P::Arch::ID, data);
        let any = MapFlags::PRIVATE | MapFlags::ANONYMOUS | MapFlags::NORESERVE;
        let none = VmProt::empty();
        let at = self.mm.mmap(mm, VirtAddr::ZERO, len, none, any, Backing::Anonymous)?;
        let ehdr = at.wrapping_add(data);
        let sigreturn = image.sigreturn.map_or(VirtAddr::ZERO, |offset| ehdr.wrapping_add(offset));
        let clock_mode_none = vec![0; usize::try_from(PAGE_SIZE).unwrap_or_default()];
        let read = VmProt::READ;
        let Parts { vvar, vclock, vdso } = *self.vdso.get_or_insert_with(|| Parts {
            vvar: self.mm.pfn_mapping_create("[vvar]", clock_mode_none),
            vclock: self.mm.pfn_mapping_create("[vvar_vclock]", Vec::new()),
            vdso: self.mm.special_mapping_create("[vdso]", image.bytes),
        });
        let mut start = at;
        for (file, pages, prot) in [
            (vvar, layout.vvar, read),
            (vclock, layout.vclock, read),
            (vdso, layout.vdso, read | VmProt::EXEC),
        ] {
            let len = pages * PAGE_SIZE;
            if len == 0 {
                continue;
            }
            let backing = Backing::File { file, offset: 0 };
            self.mm.mmap(mm, start, len, prot, MapFlags::PRIVATE | MapFlags::FIXED, backing)?;
            start = start.wrapping_add(len);
        }
        Ok(Vdso { ehdr, sigreturn })
    }
}

/// A function that makes a system call.
#[derive(Clone, Copy, Debug)]
struct Function {
    name: &'static str,
    syscall: u32,
    /// Whether it looks at the data page first.
    reads_clock: bool,
}

const fn clock(name: &'static str, syscall: u32) -> Function {
    Function { name, syscall, reads_clock: true }
}

const X86_64: &[Function] = &[
    clock("__vdso_clock_gettime", 228),
    clock("__vdso_gettimeofday", 96),
    clock("__vdso_time", 201),
    clock("__vdso_clock_getres", 229),
    Function { name: "__vdso_getcpu", syscall: 309, reads_clock: false },
];

const ARM64_SIGRETURN: &str = "__kernel_rt_sigreturn";
const ARM64: &[Function] = &[
    clock("__kernel_clock_gettime", 113),
    clock("__kernel_gettimeofday", 169),
    clock("__kernel_clock_getres", 114),
    Function { name: ARM64_SIGRETURN, syscall: 139, reads_clock: false },
];

impl Function {
    /// Its code; the data page is `data` bytes before where it starts.
    fn code(self, arch: ArchId, data: u64) -> Vec<u8> {
        let Function { syscall, reads_clock, .. } = self;
        let data = i32::try_from(data).unwrap_or_default();
        match arch {
            ArchId::X86_64 => {
                const LOAD_BYTES: i32 = 6;
                let mut code = Vec::new();
                if reads_clock {
                    // mov eax, [rip + …]
                    code.extend([0x8b, 0x05]);
                    code.extend(data.wrapping_add(LOAD_BYTES).wrapping_neg().to_le_bytes());
                }
                // mov eax, nr; syscall; ret
                code.push(0xb8);
                code.extend(syscall.to_le_bytes());
                code.extend([0x0f, 0x05, 0xc3]);
                code
            }
            ArchId::Arm64 => {
                let mut words = Vec::new();
                if reads_clock {
                    let back = data.wrapping_neg().cast_unsigned();
                    // adr x9, …; ldr w9, [x9]
                    words.push(0x1000_0009 | (back & 3) << 29 | (back >> 2 & 0x7_ffff) << 5);
                    words.push(0xb940_0129);
                }
                // mov x8, nr; svc #0; ret
                words.extend([0xd280_0008 | syscall << 5, 0xd400_0001, 0xd65f_03c0]);
                words.into_iter().flat_map(u32::to_le_bytes).collect()
            }
        }
    }
}

/// A vDSO image.
#[derive(Clone, Debug)]
struct Image {
    bytes: Vec<u8>,
    /// Offset of the return from signal handlers.
    sigreturn: Option<u64>,
}

const CODE_AT: u64 = 0x800;
const CODE_STRIDE: u64 = 32;
const EHDR_BYTES: u64 = 64;
const PHDR_BYTES: u64 = 56;
const SYM_BYTES: u64 = 24;
/// Of the functions; 1 is the object's own name.
const VERSION: u16 = 2;
const EM_X86_64: u16 = 62;
const EM_AARCH64: u16 = 183;

/// Names, each once, with a zero byte after it.
#[derive(Debug)]
struct Strings(Vec<u8>);

impl Strings {
    fn add(&mut self, name: &str) -> u32 {
        let at = u32::try_from(self.0.len()).unwrap_or_default();
        self.0.extend(name.as_bytes());
        self.0.push(0);
        at
    }
}

/// System V gABI, "Hash Table".
fn elf_hash(name: &str) -> u32 {
    name.bytes().fold(0u32, |hash, byte| {
        let hash = (hash << 4).wrapping_add(u32::from(byte));
        let high = hash & 0xf000_0000;
        (hash ^ (high >> 24)) & !high
    })
}

/// Bytes being put together, little-endian.
#[derive(Debug, Default)]
struct Bytes(Vec<u8>);

impl Bytes {
    fn zeroes(len: u64) -> Bytes {
        Bytes(vec![0; usize::try_from(len).unwrap_or_default()])
    }
    fn u16s(&mut self, values: &[u16]) {
        self.0.extend(values.iter().flat_map(|v| v.to_le_bytes()));
    }
    fn u32s(&mut self, values: &[u32]) {
        self.0.extend(values.iter().flat_map(|v| v.to_le_bytes()));
    }
    fn u64s(&mut self, values: &[u64]) {
        self.0.extend(values.iter().flat_map(|v| v.to_le_bytes()));
    }
    fn align(&mut self) -> u64 {
        self.0.resize(self.0.len().next_multiple_of(8), 0);
        self.0.len() as u64
    }
}

impl Image {
    /// The image for `arch`, whose data pages start `data` bytes before it.
    fn new(arch: ArchId, data: u64) -> Image {
        let (functions, version, machine) = match arch {
            ArchId::X86_64 => (X86_64, "LINUX_2.6", EM_X86_64),
            ArchId::Arm64 => (ARM64, "LINUX_2.6.39", EM_AARCH64),
        };
        let address = |i: usize| CODE_AT + CODE_STRIDE * i as u64;
        let mut strings = Strings(vec![0]);
        let (mut symbols, mut code) = (Bytes::zeroes(SYM_BYTES), Vec::new());
        for (i, function) in functions.iter().enumerate() {
            let body = function.code(arch, data + address(i));
            symbols.u32s(&[strings.add(function.name)]);
            // STB_GLOBAL, STT_FUNC; in some section.
            symbols.u16s(&[0x12, 1]);
            symbols.u64s(&[address(i), body.len() as u64]);
            code.resize(usize::try_from(CODE_STRIDE).unwrap_or_default() * i, 0);
            code.extend(body);
        }
        let soname = strings.add("linux-vdso.so.1");
        let version_name = strings.add(version);

        let mut out = Bytes::zeroes(EHDR_BYTES + 2 * PHDR_BYTES);
        let symbols_at = out.align();
        out.0.extend(symbols.0);
        let hash_at = out.align();
        let nr = u32::try_from(functions.len()).unwrap_or_default();
        // One bucket: symbol 1, and from each symbol to the next.
        out.u32s(&[1, nr + 1, 1, 0]);
        out.u32s(&(1..=nr).map(|i| if i == nr { 0 } else { i + 1 }).collect::<Vec<_>>());
        let versym_at = out.align();
        out.u16s(&[0]);
        out.u16s(&vec![VERSION; functions.len()]);
        let verdef_at = out.align();
        for (flags, index, name, at, next) in
            [(1, 1, "linux-vdso.so.1", soname, 28), (0, VERSION, version, version_name, 0)]
        {
            out.u16s(&[1, flags, index, 1]);
            out.u32s(&[elf_hash(name), 20, next, at, 0]);
        }
        let strings_at = out.align();
        let strings_len = strings.0.len() as u64;
        out.0.extend(strings.0);
        let dynamic_at = out.align();
        out.u64s(&[
            14,
            u64::from(soname), // DT_SONAME
            4,
            hash_at, // DT_HASH
            5,
            strings_at, // DT_STRTAB
            6,
            symbols_at, // DT_SYMTAB
            10,
            strings_len, // DT_STRSZ
            11,
            SYM_BYTES, // DT_SYMENT
            0x6fff_fff0,
            versym_at, // DT_VERSYM
            0x6fff_fffc,
            verdef_at, // DT_VERDEF
            0x6fff_fffd,
            2, // DT_VERDEFNUM
            0,
            0, // DT_NULL
        ]);
        let dynamic_len = out.0.len() as u64 - dynamic_at;
        debug_assert!(out.0.len() as u64 <= CODE_AT);
        out.0.resize(usize::try_from(CODE_AT).unwrap_or_default(), 0);
        out.0.extend(code);
        let len = out.0.len() as u64;
        let headers = headers(machine, len, (dynamic_at, dynamic_len));
        out.0.splice(..headers.len(), headers);
        let sigreturn = functions.iter().position(|f| f.name == ARM64_SIGRETURN).map(address);
        Image { bytes: out.0, sigreturn }
    }
}

/// ELF header and program headers of a shared object that is all one read-only segment.
fn headers(machine: u16, len: u64, (dynamic_at, dynamic_len): (u64, u64)) -> Vec<u8> {
    let mut out = Bytes(vec![0x7f, b'E', b'L', b'F', 2, 1, 1, 0]);
    out.u64s(&[0]);
    // ET_DYN
    out.u16s(&[3, machine]);
    out.u32s(&[1]);
    out.u64s(&[CODE_AT, EHDR_BYTES, 0]);
    out.u32s(&[0]);
    out.u16s(&[64, 56, 2, 64, 0, 0]);
    // PT_LOAD, R and X; PT_DYNAMIC, R.
    for (kind, flags, at, len, align) in
        [(1, 5, 0, len, PAGE_SIZE), (2, 4, dynamic_at, dynamic_len, 8)]
    {
        out.u32s(&[kind, flags]);
        out.u64s(&[at, at, at, len, len, align]);
    }
    out.0
}

#[cfg(test)]
#[expect(clippy::indexing_slicing, clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;

    fn word(bytes: &[u8], at: u64) -> u32 {
        let at = usize::try_from(at).unwrap();
        u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap())
    }

    #[test]
    fn the_hash_is_that_of_the_gabi() {
        // Computed by glibc's linker for the same names.
        assert_eq!(elf_hash("LINUX_2.6"), 0x03ae_75f6);
        assert_eq!(elf_hash("LINUX_2.6.39"), 0x075f_cb89);
    }

    #[test]
    fn clock_functions_read_the_data_page_before_they_trap() {
        let image = Image::new(ArchId::X86_64, 0x4000);
        let at = u64::from(word(&image.bytes, CODE_AT + 2));
        let target = (CODE_AT + 6).wrapping_add(at).wrapping_sub(1 << 32).cast_signed();
        assert_eq!(target, -0x4000);
        let image = Image::new(ArchId::Arm64, 0x2000);
        let adr = word(&image.bytes, CODE_AT);
        let back = ((adr >> 5 & 0x7_ffff) << 2 | adr >> 29 & 3) | 0xffe0_0000;
        assert_eq!(back.cast_signed(), -(0x2000 + i32::try_from(CODE_AT).unwrap()));
        assert_eq!(image.sigreturn, Some(CODE_AT + 3 * CODE_STRIDE));
        assert!(image.bytes.len() < 4096);
    }
}
