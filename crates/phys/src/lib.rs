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

mod lines;
mod memmap;

pub use lines::{LINE_SIZE, Lines};
pub use memmap::{MemMap, Page, PageFlags, Section};

use memmap2::{Advice, MmapMut, MmapOptions};
use std::io;
use units::{PAGE_SIZE, Pfn, PhysAddr};

const PAGE: usize = PAGE_SIZE as usize;
const _: () = assert!(usize::BITS == 64);

/// Emulated RAM, from physical address 0 up.
pub struct Ram {
    bytes: MmapMut,
    watch: Watch,
}

/// Frames whose next write is reported: those that hold decoded guest code.
#[derive(Debug)]
struct Watch {
    /// One bit per frame.
    frames: Vec<u64>,
    /// First watched byte.
    low: u64,
    /// Bytes from there to the end of the last watched frame; 0 while none is watched.
    span: u64,
    written: Vec<Pfn>,
}

impl Watch {
    #[cold]
    #[inline(never)]
    fn note(&mut self, at: u64, len: u64) {
        let last = at.saturating_add(len.max(1) - 1) / PAGE_SIZE;
        for frame in at / PAGE_SIZE..=last {
            let Some(word) = self.frames.get_mut(frame as usize / 64) else { return };
            let bit = 1 << (frame % 64);
            if *word & bit != 0 {
                *word &= !bit;
                self.written.push(Pfn::new(frame));
            }
        }
    }
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
            self.note_write(at, N as u64);
            self.bytes[start..][..N].copy_from_slice(&value.to_le_bytes());
        }
    )*};
}

/// RAM as native code reaches it: where the bytes are, and which writes it must leave to [`Ram`].
///
/// Valid until the `Ram` it came from is used through its methods again, or dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct RamWindow {
    /// Host address of physical address 0; the bytes up to [`Ram::len`] follow.
    pub base: usize,
    /// No frame at `at` is watched if `at - watch_low`, wrapping, is at least `watch_span`. Multiples of a page, both.
    pub watch_low: u64,
    /// See `watch_low`.
    pub watch_span: u64,
    /// Host address of the watched frames, one bit each, in 64-bit words from frame 0 up; all of RAM's.
    pub watch_bits: usize,
}

impl RamWindow {
    /// No RAM.
    pub const NONE: RamWindow = RamWindow { base: 0, watch_low: 0, watch_span: 0, watch_bits: 0 };
}

impl Ram {
    /// RAM for native code. Writing through it is as writing through `self`, but for watched frames.
    #[inline]
    pub fn window(&mut self) -> RamWindow {
        let Watch { low, span, .. } = self.watch;
        RamWindow {
            base: self.bytes.as_mut_ptr().expose_provenance(),
            watch_low: low,
            watch_span: span,
            watch_bits: self.watch.frames.as_ptr().expose_provenance(),
        }
    }

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
        let frames = vec![0; (len / PAGE).div_ceil(64)];
        let watch = Watch { frames, low: 0, span: 0, written: Vec::new() };
        Ok(Ram { bytes, watch })
    }

    /// Reports the next write to the frame, by whatever path, in [`Ram::take_written`].
    pub fn watch(&mut self, pfn: Pfn) {
        let Some(word) = self.watch.frames.get_mut(pfn.get() as usize / 64) else { return };
        *word |= 1 << (pfn.get() % 64);
        let at = pfn.addr().get();
        let end = at + PAGE_SIZE;
        if self.watch.span == 0 {
            (self.watch.low, self.watch.span) = (at, PAGE_SIZE);
        } else {
            let low = self.watch.low.min(at);
            self.watch.span = (self.watch.low + self.watch.span).max(end) - low;
            self.watch.low = low;
        }
    }

    /// Whether a watched frame was written since they were last taken.
    #[inline(always)]
    pub fn has_written(&self) -> bool {
        !self.watch.written.is_empty()
    }

    /// A watched frame that was written; it is not watched any more.
    pub fn take_written(&mut self) -> Option<Pfn> {
        self.watch.written.pop()
    }

    /// A write to `len` bytes from `at` on is about to happen.
    #[inline(always)]
    fn note_write(&mut self, at: PhysAddr, len: u64) {
        let offset = at.get().wrapping_add(len).wrapping_sub(self.watch.low);
        if offset < self.watch.span.wrapping_add(len) {
            self.watch.note(at.get(), len);
        }
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
        self.note_write(at, len as u64);
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
        self.note_write(to.addr(), PAGE_SIZE);
        let from = from.addr().get() as usize;
        self.bytes.copy_within(from..from + PAGE, to.addr().get() as usize);
    }

    /// Copies `len` bytes between physical addresses; the ranges may overlap.
    #[inline]
    pub fn copy(&mut self, to: PhysAddr, from: PhysAddr, len: usize) {
        self.note_write(to, len as u64);
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
    fn a_write_to_a_watched_frame_is_reported_once() -> io::Result<()> {
        let mut ram = Ram::new(16 * PAGE_SIZE)?;
        ram.watch(Pfn::new(5));
        ram.watch(Pfn::new(7));
        ram.store_u64(PhysAddr::new(4 * PAGE_SIZE), 1);
        ram.store_u8(PhysAddr::new(6 * PAGE_SIZE), 1);
        assert!(!ram.has_written());
        ram.store_u64(PhysAddr::new(5 * PAGE_SIZE - 1), 1);
        assert_eq!(ram.take_written(), Some(Pfn::new(5)));
        ram.store_u64(PhysAddr::new(5 * PAGE_SIZE), 1);
        assert!(!ram.has_written());
        ram.zero_frames(Pfn::new(6), 2);
        assert_eq!((ram.take_written(), ram.take_written()), (Some(Pfn::new(7)), None));
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
