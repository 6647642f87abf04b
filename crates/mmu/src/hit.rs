//! The hit path as data: what one translation that hits the fast cache reads and writes, with fixed places.
//!
//! [`CpuTlb::translate`](crate::CpuTlb::translate) is the definition. Native code may do the same by
//! itself, on the [`HitTables`] of a [`HitPath`], and must then do exactly this:
//!
//! 1. `page` = bits 12 up to [`HitShape::va_bits`] of the address; `i` = [`fast_index`]`(page)`.
//! 2. The entry is `fast[kind][i]`, [`ENTRY_BYTES`] long. Its tag, at its start, must equal
//!    `page | generation`; else it is no hit, nothing has happened, and `translate` must be called.
//! 3. `clock` goes up by one, and where [`HitShape::stamps`] says so the new value is stored in `stamps[way]`,
//!    `way` being the low 12 bits of the entry's second word.
//! 4. The rest of that word is the physical page. It is a page of RAM, all of it: walks refuse output
//!    addresses beyond [`Controls::ram_bytes`](crate::Controls::ram_bytes), and [`CpuTlb::hit_path`](crate::CpuTlb::hit_path) refuses a smaller RAM.
//! 5. The byte of physical address `pa` is at host address `ram.base + pa`. Before a write,
//!    [`RamWindow`] says whether the frame is watched; if so, the write must be made through [`Ram`](phys::Ram).
//!
//! An access that crosses a page boundary is not one translation and has no place here.

use crate::geometry::L1_WAYS_MAX;
use phys::RamWindow;
use std::mem::offset_of;
use units::PAGE_SIZE;

/// Entries of the fast cache for each kind of access.
pub const FAST_ENTRIES: usize = 256;
pub(crate) const WAYS: usize = L1_WAYS_MAX as usize;
/// Bits of an entry's second word that are the way.
pub(crate) const WAY_MASK: u64 = PAGE_SIZE - 1;
const _: () = assert!(WAYS as u64 == PAGE_SIZE, "a way fits where an address has its page offset");

/// A translation that is ready to use.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub(crate) struct Fast {
    /// Generation and page number.
    pub(crate) tag: u64,
    /// Physical address of the page, and in the low bits the first-level way.
    pub(crate) page_way: u64,
}

impl Fast {
    /// No generation is this large.
    pub(crate) const EMPTY: Fast = Fast { tag: u64::MAX, page_way: 0 };
}

/// Multiplier of [`fast_index`].
pub const INDEX_FACTOR: u32 = 0x0101_0100;
/// Shift of [`fast_index`].
pub const INDEX_SHIFT: u32 = 24;

/// Where in the fast cache a page belongs: the sum of its three low bytes, so that streams a power of two apart do not meet
/// in one entry, and neighbours do not either. One multiplication, as native code computes it at every access.
#[inline(always)]
#[expect(clippy::cast_possible_truncation, reason = "the low 24 bits of the page number decide")]
pub const fn fast_index(page: u64) -> usize {
    ((page as u32).wrapping_mul(INDEX_FACTOR) >> INDEX_SHIFT) as usize
}

/// What a hit reads and writes.
#[derive(Debug)]
#[repr(C)]
pub struct HitTables {
    pub(crate) generation: u64,
    /// Count of translations; the order of last use.
    pub(crate) clock: u64,
    /// RAM, as of the last [`CpuTlb::hit_path`](crate::CpuTlb::hit_path).
    pub(crate) ram: RamWindow,
    /// By kind of access.
    pub(crate) fast: [[Fast; FAST_ENTRIES]; 3],
    /// Clock at the last use, by first-level way.
    pub(crate) stamps: [u64; WAYS],
}

impl HitTables {
    pub(crate) const fn new() -> HitTables {
        HitTables {
            generation: 0,
            clock: 0,
            ram: RamWindow::NONE,
            fast: [[Fast::EMPTY; FAST_ENTRIES]; 3],
            stamps: [0; WAYS],
        }
    }
}

/// Byte offset of the generation in [`HitTables`].
pub const GENERATION_AT: usize = offset_of!(HitTables, generation);
/// Byte offset of the clock.
pub const CLOCK_AT: usize = offset_of!(HitTables, clock);
/// Byte offset of the [`RamWindow`].
pub const RAM_AT: usize = offset_of!(HitTables, ram);
/// Byte offset of the stamps, 64 bits each.
pub const STAMPS_AT: usize = offset_of!(HitTables, stamps);
/// Bytes of a fast entry: the tag, then page and way.
pub const ENTRY_BYTES: usize = size_of::<Fast>();
/// Byte offset of the fast cache for loads.
pub const READ_AT: usize = offset_of!(HitTables, fast);
/// Byte offset of the fast cache for stores.
pub const WRITE_AT: usize = READ_AT + FAST_ENTRIES * ENTRY_BYTES;

const _: () = assert!(offset_of!(Fast, tag) == 0 && offset_of!(Fast, page_way) == 8);
const _: () = assert!(ENTRY_BYTES == 16);
const _: () = assert!(crate::Access::Read as usize == 0 && crate::Access::Write as usize == 1);

/// Whether hits leave stamps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stamps {
    /// They do: the exact model stands behind the cache.
    Kept,
    /// There is no model.
    None,
}

/// What the hit path is like, by the types of the TLB.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HitShape {
    /// Whether hits leave stamps.
    pub stamps: Stamps,
    /// Bits of an address that take part in translation, counted from bit 0.
    pub va_bits: u32,
}

/// The tables of one CPU, borrowed with the RAM that they lead to. Only [`CpuTlb::hit_path`](crate::CpuTlb::hit_path) makes it,
/// so that the tables and their window fit each other.
#[derive(Debug)]
pub struct HitPath<'a>(&'a mut HitTables);

impl<'a> HitPath<'a> {
    pub(crate) fn new(tables: &'a mut HitTables) -> Self {
        HitPath(tables)
    }
    /// The tables; valid, and nobody else's, for as long as the borrow lasts.
    pub fn tables(self) -> *mut HitTables {
        self.0
    }
    /// Count of translations so far.
    pub fn clock(&self) -> u64 {
        self.0.clock
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn neighbouring_pages_share_no_entry() {
        for first in [0u64, 0x7fff, 0x12_3456, 0x5_5555_0000] {
            let mut seen = [0u32; FAST_ENTRIES];
            (first..first + 255).for_each(|page| seen[fast_index(page)] += 1);
            let shared = seen.iter().filter(|&&n| n > 1).count();
            assert!(shared <= 2, "{shared} entries hold two of 255 pages from {first:#x} on");
        }
    }

    #[test]
    fn streams_a_power_of_two_apart_do_not_meet() {
        for apart in (0..24).map(|n| 1u64 << n) {
            assert_ne!(fast_index(0x400), fast_index(0x400 + apart), "{apart:#x} pages apart");
        }
    }
}
