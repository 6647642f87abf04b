//! Guest RAM: one lazily backed host mapping, read and written in little-endian words, and the
//! metadata of its frames (`struct page`).
//!
//! [`Ram`] is nothing but bytes at [`PhysAddr`]s, [`MemMap`] nothing but fields by frame; who owns a frame is `mm`'s business, what a
//! descriptor in it means is `arch`'s. Frames that the guest never touched cost no host memory,
//! so that 64 GiB of guest RAM are free until they are used. Both guests are little-endian.
//!
//! An address outside RAM is a bug of the caller (the walkers check output addresses first) and
//! panics; no guest input reaches these functions unchecked.

#![expect(clippy::cast_possible_truncation, reason = "hosts are 64-bit, asserted below")]

mod memmap;

pub use memmap::{MemMap, Page, PageFlags, Section};

use memmap2::{Advice, MmapMut, MmapOptions};
use std::io;
use units::{PAGE_SIZE, Pfn, PhysAddr};

const PAGE: usize = PAGE_SIZE as usize;
const _: () = assert!(usize::BITS == 64);

/// Emulated RAM, from physical address 0 up.
pub struct Ram {
    bytes: MmapMut,
}

impl std::fmt::Debug for Ram {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Ram").field("bytes", &self.bytes.len()).finish()
    }
}

macro_rules! words {
    ($($load:ident $store:ident $ty:ty;)*) => {$(
        #[doc = concat!("Loads a `", stringify!($ty), "`, at any alignment.")]
        #[inline(always)]
        pub fn $load(&self, at: PhysAddr) -> $ty {
            const N: usize = size_of::<$ty>();
            let start = at.get() as usize;
            let bytes: [u8; N] = self.bytes[start..][..N].try_into().expect("N bytes");
            <$ty>::from_le_bytes(bytes)
        }

        #[doc = concat!("Stores a `", stringify!($ty), "`, at any alignment.")]
        #[inline(always)]
        pub fn $store(&mut self, at: PhysAddr, value: $ty) {
            const N: usize = size_of::<$ty>();
            let start = at.get() as usize;
            self.bytes[start..][..N].copy_from_slice(&value.to_le_bytes());
        }
    )*};
}

impl Ram {
    /// Maps `bytes` of zeroed RAM, rounded down to whole pages.
    ///
    /// # Errors
    /// If the host refuses the mapping, or fewer than one page was asked for.
    pub fn new(bytes: u64) -> io::Result<Ram> {
        let len = usize::try_from(bytes).map_err(io::Error::other)? / PAGE * PAGE;
        if len == 0 {
            return Err(io::Error::other("guest RAM must be at least one page"));
        }
        let bytes = MmapOptions::new().len(len).no_reserve_swap().map_anon()?;
        // Fewer host faults and shorter host walks; a host that declines is only slower.
        let _ = bytes.advise(Advice::HugePage);
        Ok(Ram { bytes })
    }

    /// Bytes of RAM.
    #[inline]
    pub fn len(&self) -> u64 {
        self.bytes.len() as u64
    }

    /// Whether there is no RAM; never, see [`Ram::new`].
    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// Frames of RAM.
    #[inline]
    pub fn frames(&self) -> u64 {
        self.len() / PAGE_SIZE
    }

    words! {
        load_u8 store_u8 u8;
        load_u16 store_u16 u16;
        load_u32 store_u32 u32;
        load_u64 store_u64 u64;
        load_u128 store_u128 u128;
    }

    /// `len` bytes from `at` on.
    #[inline]
    pub fn slice(&self, at: PhysAddr, len: usize) -> &[u8] {
        &self.bytes[at.get() as usize..][..len]
    }

    /// `len` bytes from `at` on, to write.
    #[inline]
    pub fn slice_mut(&mut self, at: PhysAddr, len: usize) -> &mut [u8] {
        &mut self.bytes[at.get() as usize..][..len]
    }

    /// The bytes of one frame.
    #[inline]
    pub fn frame(&self, pfn: Pfn) -> &[u8] {
        self.slice(pfn.addr(), PAGE)
    }

    /// The bytes of one frame, to write.
    #[inline]
    pub fn frame_mut(&mut self, pfn: Pfn) -> &mut [u8] {
        self.slice_mut(pfn.addr(), PAGE)
    }

    /// Clears `frames` frames from `pfn` on.
    pub fn zero_frames(&mut self, pfn: Pfn, frames: u64) {
        self.slice_mut(pfn.addr(), frames as usize * PAGE).fill(0);
    }

    /// Copies one frame.
    pub fn copy_frame(&mut self, to: Pfn, from: Pfn) {
        let from = from.addr().get() as usize;
        self.bytes.copy_within(from..from + PAGE, to.addr().get() as usize);
    }

    /// Copies `len` bytes between physical addresses; the ranges may overlap.
    #[inline]
    pub fn copy(&mut self, to: PhysAddr, from: PhysAddr, len: usize) {
        let from = from.get() as usize;
        self.bytes.copy_within(from..from + len, to.get() as usize);
    }

    /// Whether all `frames` frames from `pfn` on hold zeroes only.
    pub fn is_zero(&self, pfn: Pfn, frames: u64) -> bool {
        let (words, rest) = self.slice(pfn.addr(), frames as usize * PAGE).as_chunks::<64>();
        debug_assert!(rest.is_empty(), "frames are multiples of 64 bytes");
        words.iter().all(|w| *w == [0; 64])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_little_endian_and_unaligned() -> io::Result<()> {
        let mut ram = Ram::new(2 * PAGE_SIZE)?;
        ram.store_u64(PhysAddr::new(4093), 0x1122_3344_5566_7788);
        assert_eq!(ram.load_u8(PhysAddr::new(4093)), 0x88);
        assert_eq!(ram.load_u32(PhysAddr::new(4097)), 0x1122_3344);
        assert!(!ram.is_zero(Pfn::new(1), 1));
        ram.copy_frame(Pfn::new(0), Pfn::new(1));
        assert_eq!(ram.load_u32(PhysAddr::new(1)), 0x1122_3344);
        ram.zero_frames(Pfn::new(0), 2);
        assert!(ram.is_zero(Pfn::new(0), 2));
        Ok(())
    }

    #[test]
    fn much_ram_costs_nothing_until_touched() -> io::Result<()> {
        let mut ram = Ram::new(64 << 30)?;
        ram.store_u8(PhysAddr::new((64 << 30) - 1), 7);
        assert_eq!(ram.load_u8(PhysAddr::new((64 << 30) - 1)), 7);
        Ok(())
    }

    #[test]
    fn no_ram_is_refused() {
        assert!(Ram::new(4095).is_err());
    }

    #[test]
    #[should_panic(expected = "out of range")]
    fn beyond_the_end_panics() {
        let ram = Ram::new(PAGE_SIZE).expect("one page");
        let _ = ram.load_u64(PhysAddr::new(PAGE_SIZE));
    }
}
