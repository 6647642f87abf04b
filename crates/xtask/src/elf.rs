//! What we promise about the layout of a guest: checked on every build.
//!
//! Source: System V ABI, "Program Header".

use anyhow::{Context, Result, bail, ensure};

const PAGE: u64 = 4096;
const PT_LOAD: u64 = 1;
const PT_NOTE: u64 = 4;
const PT_GNU_STACK: u64 = 0x6474_e551;
const PF_X: u64 = 1;
const PF_W: u64 = 2;

/// Checks that segments are page-aligned, share no page, and are never both writable and
/// executable; that the stack is not executable; and that there are no notes (build ids).
pub(crate) fn check_layout(elf: &[u8]) -> Result<()> {
    ensure!(elf.starts_with(b"\x7fELF\x02\x01"), "not a little-endian ELF64 file");
    let (at, size, nr) = (field(elf, 32, 8)?, field(elf, 54, 2)?, field(elf, 56, 2)?);
    let (mut page_free, mut loads_nr, mut stack_seen) = (0, 0, false);
    for i in 0..nr {
        let header = at + i * size;
        let (kind, flags) = (field(elf, header, 4)?, field(elf, header + 4, 4)?);
        let (va, len) = (field(elf, header + 16, 8)?, field(elf, header + 40, 8)?);
        match kind {
            PT_LOAD => {
                ensure!(flags & (PF_W | PF_X) != PF_W | PF_X, "segment {i} is writable code");
                ensure!(va / PAGE >= page_free, "segment {i} shares a page with another");
                page_free = (va + len).div_ceil(PAGE);
                loads_nr += 1;
            }
            PT_GNU_STACK => {
                ensure!(flags & PF_X == 0, "the stack is executable");
                stack_seen = true;
            }
            PT_NOTE => bail!("there is a note, so the file may not be reproducible"),
            _ => {}
        }
    }
    ensure!(loads_nr >= 2, "code and data are in one segment");
    ensure!(stack_seen, "no PT_GNU_STACK: Linux would make the stack executable");
    Ok(())
}

/// A little-endian number of `len` bytes at `at`.
fn field(elf: &[u8], at: u64, len: usize) -> Result<u64> {
    let start = usize::try_from(at)?;
    let bytes = elf.get(start..start + len).context("the file ends within its headers")?;
    Ok(bytes.iter().rev().fold(0, |sum, byte| sum << 8 | u64::from(*byte)))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An ELF with the given program headers: (type, flags, address, size).
    fn elf(headers: &[(u32, u32, u64, u64)]) -> Vec<u8> {
        let mut file = vec![0; 64];
        file[..6].copy_from_slice(b"\x7fELF\x02\x01");
        file[32] = 64;
        file[54] = 56;
        file[56] = u8::try_from(headers.len()).expect("few headers");
        for (kind, flags, va, len) in headers {
            let mut header = [0; 56];
            header[..4].copy_from_slice(&kind.to_le_bytes());
            header[4..8].copy_from_slice(&flags.to_le_bytes());
            header[16..24].copy_from_slice(&va.to_le_bytes());
            header[40..48].copy_from_slice(&len.to_le_bytes());
            file.extend_from_slice(&header);
        }
        file
    }

    const STACK: (u32, u32, u64, u64) = (0x6474_e551, 6, 0, 0);

    #[test]
    fn separate_code_and_data_pass() {
        let file = elf(&[(1, 4, 0x40_0000, 0x10), (1, 5, 0x40_1000, 0x1000), STACK]);
        check_layout(&file).expect("a good layout");
    }

    #[test]
    fn bad_layouts_are_refused() {
        let text = (1, 5, 0x40_1000, 0x1001);
        for (file, reason) in [
            (elf(&[text, (1, 6, 0x40_2800, 8), STACK]), "shares a page"),
            (elf(&[text, (1, 7, 0x40_8000, 8), STACK]), "writable code"),
            (elf(&[text, (1, 6, 0x40_8000, 8)]), "PT_GNU_STACK"),
            (elf(&[text, STACK]), "one segment"),
            (elf(&[text, (4, 4, 0, 8), STACK]), "note"),
            (b"\x7fELF\x02\x01".to_vec(), "within its headers"),
            (b"#!/bin/sh".to_vec(), "not a little-endian"),
        ] {
            let error = check_layout(&file).expect_err(reason);
            assert!(error.to_string().contains(reason), "{error} is not about: {reason}");
        }
    }
}
