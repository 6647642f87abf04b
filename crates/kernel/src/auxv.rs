//! The stack that a new program finds: strings, auxiliary vector, pointers.
//!
//! Source: Linux fs/exec.c `setup_arg_pages()`, fs/binfmt_elf.c `create_elf_tables()`; the order
//! of the vector is Linux's.

#![deny(clippy::unwrap_used, clippy::indexing_slicing)]

use units::{ArchId, VirtAddr};

/// Values of the auxiliary vector that are not computed from the strings.
#[derive(Clone, Debug)]
pub(crate) struct Values {
    pub(crate) arch: ArchId,
    pub(crate) sysinfo_ehdr: VirtAddr,
    pub(crate) hwcap: u64,
    pub(crate) hwcap2: u64,
    pub(crate) min_sigstack: u64,
    pub(crate) phdr: VirtAddr,
    pub(crate) phnum: u64,
    pub(crate) entry: VirtAddr,
    pub(crate) random: [u8; 16],
}

/// The bytes of a new stack, from `sp` up to its top.
#[derive(Clone, Debug)]
pub(crate) struct StackImage {
    pub(crate) sp: VirtAddr,
    pub(crate) bytes: Vec<u8>,
    /// Address of the first argument string.
    pub(crate) arg_start: VirtAddr,
}

/// A stack being filled downwards.
struct Filler {
    at: u64,
    /// Blocks in the order in which they were pushed: each lies below the one before.
    blocks: Vec<Vec<u8>>,
}

impl Filler {
    fn push(&mut self, block: Vec<u8>) -> u64 {
        self.at = self.at.wrapping_sub(block.len() as u64);
        self.blocks.push(block);
        self.at
    }
    fn push_string(&mut self, string: &[u8]) -> u64 {
        let mut block = string.to_vec();
        block.push(0);
        self.push(block)
    }
    fn align_to(&mut self, align: u64) {
        let pad = self.at % align;
        self.push(vec![0; usize::try_from(pad).unwrap_or_default()]);
    }
}

/// Bytes that strings and pointers will take, near enough for a limit.
pub(crate) fn size_of_strings(argv: &[Vec<u8>], envp: &[Vec<u8>]) -> u64 {
    argv.iter().chain(envp).map(|s| s.len() as u64 + 9).sum()
}

/// Lays out the stack below `top`.
pub(crate) fn build(
    top: VirtAddr,
    path: &[u8],
    argv: &[Vec<u8>],
    envp: &[Vec<u8>],
    values: &Values,
) -> StackImage {
    let mut stack = Filler { at: top.get(), blocks: Vec::new() };
    stack.push(vec![0; 8]);
    let execfn = stack.push_string(path);
    let env: Vec<u64> = envp.iter().rev().map(|s| stack.push_string(s)).collect();
    let arg: Vec<u64> = argv.iter().rev().map(|s| stack.push_string(s)).collect();
    let arg_start = stack.at;
    stack.align_to(16);
    let platform = stack.push_string(crate::abi::machine_name(values.arch).as_bytes());
    let random = stack.push(values.random.to_vec());
    stack.align_to(16);

    let mut words = vec![argv.len() as u64];
    words.extend(arg.iter().rev());
    words.push(0);
    words.extend(env.iter().rev());
    words.push(0);
    for (tag, value) in entries(values, execfn, platform, random) {
        words.extend([tag, value]);
    }
    if words.len() % 2 != 0 {
        stack.push(vec![0; 8]);
    }
    let sp = stack.push(words.iter().flat_map(|w| w.to_le_bytes()).collect());
    let bytes = stack.blocks.into_iter().rev().flatten().collect();
    StackImage { sp: VirtAddr::new(sp), bytes, arg_start: VirtAddr::new(arg_start) }
}

fn entries(v: &Values, execfn: u64, platform: u64, random: u64) -> Vec<(u64, u64)> {
    vec![
        (33, v.sysinfo_ehdr.get()), // AT_SYSINFO_EHDR
        (51, v.min_sigstack),       // AT_MINSIGSTKSZ
        (16, v.hwcap),              // AT_HWCAP
        (6, units::PAGE_SIZE),      // AT_PAGESZ
        (17, crate::abi::USER_HZ),  // AT_CLKTCK
        (3, v.phdr.get()),          // AT_PHDR
        (4, crate::elf::PHENT),     // AT_PHENT
        (5, v.phnum),               // AT_PHNUM
        (7, 0),                     // AT_BASE: no interpreter
        (8, 0),                     // AT_FLAGS
        (9, v.entry.get()),         // AT_ENTRY
        (11, 0),                    // AT_UID
        (12, 0),                    // AT_EUID
        (13, 0),                    // AT_GID
        (14, 0),                    // AT_EGID
        (23, 0),                    // AT_SECURE
        (25, random),               // AT_RANDOM
        (26, v.hwcap2),             // AT_HWCAP2
        (31, execfn),               // AT_EXECFN
        (15, platform),             // AT_PLATFORM
        (0, 0),                     // AT_NULL
    ]
}

#[cfg(test)]
#[expect(clippy::indexing_slicing, clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;

    fn word(image: &StackImage, at: u64) -> u64 {
        let offset = usize::try_from(at - image.sp.get()).unwrap();
        u64::from_le_bytes(image.bytes[offset..offset + 8].try_into().unwrap())
    }

    fn string(image: &StackImage, at: u64) -> String {
        let offset = usize::try_from(at - image.sp.get()).unwrap();
        let bytes = image.bytes[offset..].iter().copied().take_while(|&b| b != 0).collect();
        String::from_utf8(bytes).unwrap()
    }

    #[test]
    fn a_program_finds_its_arguments_where_the_abi_says() {
        let values = Values {
            arch: ArchId::Arm64,
            sysinfo_ehdr: VirtAddr::new(0xffff_f7ff_f000),
            hwcap: 3,
            hwcap2: 0,
            min_sigstack: 5120,
            phdr: VirtAddr::new(0x40_0040),
            phnum: 6,
            entry: VirtAddr::new(0x40_1234),
            random: [7; 16],
        };
        let top = VirtAddr::new(0x1_0000_0000_0000);
        let argv = [b"prog".to_vec(), b"256".to_vec()];
        let envp = [b"A=b".to_vec()];
        for argv in [&argv[..], &argv[..1]] {
            let image = build(top, b"/bin/prog", argv, &envp, &values);
            let sp = image.sp.get();
            assert_eq!(sp % 16, 0);
            assert_eq!(sp + image.bytes.len() as u64, top.get());
            let argc = argv.len() as u64;
            assert_eq!(word(&image, sp), argc);
            assert_eq!(string(&image, word(&image, sp + 8)), "prog");
            assert_eq!(image.arg_start.get(), word(&image, sp + 8));
            assert_eq!(word(&image, sp + 8 + 8 * argc), 0);
            assert_eq!(string(&image, word(&image, sp + 16 + 8 * argc)), "A=b");
            let mut at = sp + 32 + 8 * argc;
            let mut vector = std::collections::BTreeMap::new();
            while word(&image, at) != 0 {
                vector.insert(word(&image, at), word(&image, at + 8));
                at += 16;
            }
            assert_eq!((vector[&6], vector[&9], vector[&5]), (4096, 0x40_1234, 6));
            assert_eq!(string(&image, vector[&15]), "aarch64");
            assert_eq!(string(&image, vector[&31]), "/bin/prog");
            assert_eq!(string(&image, vector[&25]).len(), 16 + "aarch64".len());
        }
    }
}
