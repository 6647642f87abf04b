//! ELF64 programs: what their headers say, checked, before anything is mapped.
//!
//! Source: ELF gABI ("Object Files", "Program Loading"); Linux fs/binfmt_elf.c
//! `load_elf_binary()` for what is refused.

#![deny(clippy::unwrap_used, clippy::indexing_slicing, clippy::arithmetic_side_effects)]

use crate::load_error::LoadError;
use mm::VmProt;
use object::Endianness;
use object::elf;
use object::read::elf::{FileHeader, ProgramHeader};
use units::{ArchId, PAGE_SIZE, VirtAddr};

/// How the program may be placed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ImageKind {
    /// `ET_EXEC`: at its own addresses.
    Fixed,
    /// `ET_DYN` without interpreter: anywhere.
    StaticPie,
}

/// One `PT_LOAD`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Segment {
    /// Where its bytes start in the file.
    pub offset: u64,
    /// Where they go (before relocation).
    pub vaddr: VirtAddr,
    /// Bytes in the file.
    pub filesz: u64,
    /// Bytes in memory; those beyond `filesz` are zero.
    pub memsz: u64,
    /// Protection.
    pub prot: VmProt,
    /// Alignment asked for, at least a page.
    pub align: u64,
}

impl Segment {
    /// First address after the segment.
    pub fn end(&self) -> VirtAddr {
        self.vaddr.wrapping_add(self.memsz)
    }
}

/// A program that can be loaded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Image {
    /// Architecture.
    pub arch: ArchId,
    /// How it may be placed.
    pub kind: ImageKind,
    /// First instruction (before relocation).
    pub entry: VirtAddr,
    /// Address of the program headers in memory (before relocation); zero if not loaded.
    pub phdr: VirtAddr,
    /// How many program headers there are.
    pub phnum: u16,
    /// Loadable segments, ascending, not overlapping.
    pub segments: Vec<Segment>,
    /// Whether the stack is executable (`PT_GNU_STACK`).
    pub exec_stack: bool,
}

/// Size of one program header.
pub(crate) const PHENT: u64 = 56;
const EHDR: u64 = 64;

impl Image {
    /// Reads the headers of `bytes`.
    ///
    /// # Errors
    /// [`LoadError`] for anything that Linux or this loader would not run.
    pub fn parse(bytes: &[u8], task_size: fn(ArchId) -> VirtAddr) -> Result<Image, LoadError> {
        check_ident(bytes)?;
        let have = bytes.len() as u64;
        let truncated = |what, need| LoadError::Truncated { what, need, have };
        let header = elf::FileHeader64::<Endianness>::parse(bytes)
            .map_err(|_| truncated("the ELF header", EHDR))?;
        let le = Endianness::Little;
        let arch = match header.e_machine(le) {
            elf::EM_X86_64 => ArchId::X86_64,
            elf::EM_AARCH64 => ArchId::Arm64,
            machine => return Err(LoadError::WrongMachine { machine: machine.0 }),
        };
        let kind = image_kind(header.e_type(le))?;
        let phnum = header.e_phnum(le);
        let table_end = header.e_phoff(le).saturating_add(u64::from(phnum).saturating_mul(PHENT));
        let headers = header
            .program_headers(le, bytes)
            .map_err(|_| truncated("the program header table", table_end))?;
        let mut image = Image {
            arch,
            kind,
            entry: VirtAddr::new(header.e_entry(le)),
            phdr: VirtAddr::ZERO,
            phnum,
            segments: Vec::new(),
            exec_stack: false,
        };
        for (index, ph) in headers.iter().enumerate() {
            match ph.p_type(le) {
                elf::PT_INTERP => return Err(dynamic(ph, bytes)),
                elf::PT_GNU_STACK => {
                    image.exec_stack = protection(ph.p_flags(le)).contains(VmProt::EXEC)
                }
                elf::PT_LOAD => image.push(index, ph, have, task_size(arch))?,
                _ => {}
            }
        }
        if image.segments.is_empty() {
            return Err(LoadError::NoSegments);
        }
        image.phdr = image.address_of(header.e_phoff(le));
        Ok(image)
    }

    /// Where the byte at `offset` of the file is in memory; zero if it is not.
    fn address_of(&self, offset: u64) -> VirtAddr {
        let holds =
            |s: &&Segment| offset.checked_sub(s.offset).is_some_and(|inside| inside < s.filesz);
        match self.segments.iter().find(holds) {
            Some(s) => s.vaddr.wrapping_add(offset.wrapping_sub(s.offset)),
            None => VirtAddr::ZERO,
        }
    }

    fn push(
        &mut self,
        index: usize,
        ph: &elf::ProgramHeader64<Endianness>,
        have: u64,
        limit: VirtAddr,
    ) -> Result<(), LoadError> {
        let le = Endianness::Little;
        let bad = |why| LoadError::BadSegment { index, why };
        let (offset, vaddr) = (ph.p_offset(le), ph.p_vaddr(le));
        let (filesz, memsz) = (ph.p_filesz(le), ph.p_memsz(le));
        if memsz == 0 {
            return Ok(());
        }
        if filesz > memsz {
            return Err(bad("it has more bytes in the file than in memory"));
        }
        if offset.wrapping_sub(vaddr) & PAGE_MASK != 0 {
            return Err(bad("file offset and address differ within a page"));
        }
        let file_end = offset.saturating_add(filesz);
        if file_end > have {
            return Err(LoadError::Truncated { what: "a segment", need: file_end, have });
        }
        let end = vaddr.saturating_add(memsz);
        if end > limit.get().saturating_sub(PAGE_SIZE) {
            return Err(LoadError::BeyondAddressSpace { index, end });
        }
        if self.segments.last().is_some_and(|last| last.end().get() > vaddr) {
            return Err(bad("it overlaps or precedes the one before"));
        }
        let align = ph.p_align(le).max(PAGE_SIZE);
        if !align.is_power_of_two() {
            return Err(bad("its alignment is no power of two"));
        }
        let prot = protection(ph.p_flags(le));
        let vaddr = VirtAddr::new(vaddr);
        self.segments.push(Segment { offset, vaddr, filesz, memsz, prot, align });
        Ok(())
    }
}

const PAGE_MASK: u64 = PAGE_SIZE - 1;

fn check_ident(bytes: &[u8]) -> Result<(), LoadError> {
    if bytes.is_empty() {
        return Err(LoadError::Empty);
    }
    if !b"\x7fELF".starts_with(bytes.get(..4).unwrap_or(bytes)) {
        return Err(LoadError::NotElf { looks_like: looks_like(bytes) });
    }
    let have = bytes.len() as u64;
    match bytes.get(4).map(|&class| elf::FileClass(class)) {
        Some(elf::ELFCLASS32) => return Err(LoadError::Elf32),
        _ if have < EHDR => {
            return Err(LoadError::Truncated { what: "the ELF header", need: EHDR, have });
        }
        Some(elf::ELFCLASS64) => {}
        _ => return Err(LoadError::NotElf { looks_like: "an ELF header of unknown class" }),
    }
    match bytes.get(5).map(|&data| elf::DataEncoding(data)) {
        Some(elf::ELFDATA2MSB) => Err(LoadError::BigEndian),
        _ => Ok(()),
    }
}

fn looks_like(bytes: &[u8]) -> &'static str {
    let start = bytes.get(..bytes.len().min(512)).unwrap_or_default();
    if start.starts_with(b"#!") {
        return "a script";
    }
    let text = start.iter().all(|b| b.is_ascii_graphic() || b.is_ascii_whitespace());
    if text { "text" } else { "data of another kind" }
}

fn image_kind(e_type: elf::FileType) -> Result<ImageKind, LoadError> {
    match e_type {
        elf::ET_EXEC => Ok(ImageKind::Fixed),
        elf::ET_DYN => Ok(ImageKind::StaticPie),
        elf::ET_REL => Err(LoadError::NotProgram { what: "an object file" }),
        elf::ET_CORE => Err(LoadError::NotProgram { what: "a core dump" }),
        _ => Err(LoadError::NotProgram { what: "of an unknown type" }),
    }
}

fn dynamic(ph: &elf::ProgramHeader64<Endianness>, bytes: &[u8]) -> LoadError {
    let raw = ph.data(Endianness::Little, bytes).unwrap_or_default();
    let raw = raw.split(|&b| b == 0).next().unwrap_or_default();
    let raw = raw.get(..raw.len().min(256)).unwrap_or_default();
    LoadError::Dynamic { interpreter: String::from_utf8_lossy(raw).into_owned() }
}

fn protection(flags: elf::ProgramFlags) -> VmProt {
    let mut prot = VmProt::empty();
    prot.set(VmProt::READ, flags.0 & elf::PF_R.0 != 0);
    prot.set(VmProt::WRITE, flags.0 & elf::PF_W.0 != 0);
    prot.set(VmProt::EXEC, flags.0 & elf::PF_X.0 != 0);
    prot
}

#[cfg(test)]
#[expect(clippy::indexing_slicing, reason = "tests")]
pub(crate) mod tests {
    use super::*;

    fn task_size(_: ArchId) -> VirtAddr {
        VirtAddr::new(0x7fff_ffff_f000)
    }

    /// A little program: one header per `(type, flags, offset, vaddr, filesz, memsz)`.
    pub(crate) fn elf(
        machine: u16,
        e_type: u16,
        phs: &[(u32, u32, u64, u64, u64, u64)],
    ) -> Vec<u8> {
        let mut b = vec![0x7f, b'E', b'L', b'F', 2, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0];
        b.extend(e_type.to_le_bytes());
        b.extend(machine.to_le_bytes());
        b.extend(1u32.to_le_bytes());
        b.extend(0x40_1000u64.to_le_bytes());
        b.extend(64u64.to_le_bytes());
        b.extend([0; 12]);
        b.extend(64u16.to_le_bytes());
        b.extend(56u16.to_le_bytes());
        b.extend(u16::try_from(phs.len()).expect("few").to_le_bytes());
        b.extend([64, 0, 0, 0, 0, 0]);
        assert_eq!(b.len(), 64);
        for &(ty, flags, offset, vaddr, filesz, memsz) in phs {
            b.extend(ty.to_le_bytes());
            b.extend(flags.to_le_bytes());
            for word in [offset, vaddr, vaddr, filesz, memsz, 4096] {
                b.extend(word.to_le_bytes());
            }
        }
        b.resize(0x3000, 0x90);
        b
    }

    fn error(bytes: &[u8]) -> LoadError {
        Image::parse(bytes, task_size).expect_err("refused")
    }

    const TEXT: (u32, u32, u64, u64, u64, u64) = (1, 5, 0, 0x40_0000, 0x1800, 0x1800);

    #[test]
    fn a_program_is_read_whole() {
        let data = (1, 6, 0x1f00, 0x40_2f00, 0x100, 0x4000);
        let image = Image::parse(&elf(62, 2, &[TEXT, data]), task_size).expect("a program");
        assert_eq!((image.arch, image.kind), (ArchId::X86_64, ImageKind::Fixed));
        assert_eq!(image.phdr, VirtAddr::new(0x40_0040));
        assert_eq!(image.segments.len(), 2);
        assert_eq!(image.segments[1].end(), VirtAddr::new(0x40_6f00));
        assert_eq!(image.segments[1].prot, VmProt::READ | VmProt::WRITE);
        let image = Image::parse(&elf(183, 3, &[TEXT]), task_size).expect("a program");
        assert_eq!((image.arch, image.kind), (ArchId::Arm64, ImageKind::StaticPie));
    }

    #[test]
    fn what_is_no_program_is_refused_by_name() {
        assert_eq!(error(b""), LoadError::Empty);
        assert_eq!(error(b"hello\n"), LoadError::NotElf { looks_like: "text" });
        assert_eq!(error(b"#!/bin/sh\n"), LoadError::NotElf { looks_like: "a script" });
        assert!(matches!(error(b"\x7fELF"), LoadError::Truncated { .. }));
        let mut elf32 = elf(62, 2, &[TEXT]);
        elf32[4] = 1;
        assert_eq!(error(&elf32), LoadError::Elf32);
        assert_eq!(error(&elf(40, 2, &[TEXT])), LoadError::WrongMachine { machine: 40 });
        assert!(matches!(error(&elf(62, 1, &[TEXT])), LoadError::NotProgram { .. }));
        assert_eq!(error(&elf(62, 2, &[])), LoadError::NoSegments);
    }

    #[test]
    fn segments_that_cannot_be_are_refused() {
        let high = (1, 5, 0, 0x7fff_ffff_e000, 0x1000, 0x1000);
        assert!(matches!(error(&elf(62, 2, &[high])), LoadError::BeyondAddressSpace { .. }));
        let wraps = (1, 5, 0, u64::MAX - 0xfff, 0x1000, 0x1000);
        assert!(matches!(error(&elf(62, 2, &[wraps])), LoadError::BeyondAddressSpace { .. }));
        let long = (1, 5, 0, 0x40_0000, 0x9000, 0x9000);
        assert!(matches!(error(&elf(62, 2, &[long])), LoadError::Truncated { .. }));
        assert!(matches!(error(&elf(62, 2, &[TEXT, TEXT])), LoadError::BadSegment { .. }));
        let skewed = (1, 5, 8, 0x40_0000, 0x100, 0x100);
        assert!(matches!(error(&elf(62, 2, &[skewed])), LoadError::BadSegment { .. }));
    }

    #[test]
    fn a_dynamic_program_names_its_interpreter() {
        let mut bytes = elf(62, 3, &[(3, 4, 0x1000, 0x1000, 6, 6), TEXT]);
        bytes[0x1000..0x1006].copy_from_slice(b"/ld.so");
        assert_eq!(error(&bytes), LoadError::Dynamic { interpreter: "/ld.so".to_owned() });
    }

    #[test]
    fn every_prefix_of_a_program_is_refused_or_loads() {
        let whole = elf(62, 2, &[TEXT]);
        for len in 0..whole.len() {
            let _ = Image::parse(&whole[..len], task_size);
        }
    }
}
