//! Frame numbers, page numbers, counts of pages, orders and reaches.

use crate::{PAGE_SHIFT, PAGE_SIZE, PhysAddr, VirtAddr};
use std::fmt;

/// A physical frame number (`pfn` in Linux).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
#[repr(transparent)]
pub struct Pfn(u64);

impl Pfn {
    /// Wraps a frame number.
    #[inline]
    pub const fn new(raw: u64) -> Self {
        Pfn(raw)
    }
    /// The raw frame number.
    #[inline]
    pub const fn get(self) -> u64 {
        self.0
    }
    /// First byte of the frame.
    #[inline]
    pub const fn addr(self) -> PhysAddr {
        PhysAddr::new(self.0 << PAGE_SHIFT)
    }
    /// The frame `n` frames further.
    #[inline]
    pub const fn add(self, n: u64) -> Self {
        Pfn(self.0 + n)
    }
    /// Frames from `start` to `self`.
    ///
    /// # Panics
    /// If `start` lies after `self`.
    #[inline]
    pub const fn frames_since(self, start: Pfn) -> u64 {
        assert!(self.0 >= start.0);
        self.0 - start.0
    }
    /// Whether a naturally aligned block of `order` could start here.
    #[inline]
    pub const fn is_aligned(self, order: Order) -> bool {
        self.0 & (order.pages() - 1) == 0
    }
}

impl fmt::Debug for Pfn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Pfn({:#x})", self.0)
    }
}

/// A virtual page number.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
#[repr(transparent)]
pub struct Vpn(u64);

impl Vpn {
    /// Wraps a page number.
    #[inline]
    pub const fn new(raw: u64) -> Self {
        Vpn(raw)
    }
    /// The raw page number.
    #[inline]
    pub const fn get(self) -> u64 {
        self.0
    }
    /// First byte of the page.
    #[inline]
    pub const fn addr(self) -> VirtAddr {
        VirtAddr::new(self.0 << PAGE_SHIFT)
    }
    /// The page `n` pages further.
    #[inline]
    pub const fn add(self, n: u64) -> Self {
        Vpn(self.0 + n)
    }
}

impl fmt::Debug for Vpn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Vpn({:#x})", self.0)
    }
}

/// A number of base pages.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Debug)]
#[repr(transparent)]
pub struct NrPages(u64);

impl NrPages {
    /// One page.
    pub const ONE: NrPages = NrPages(1);

    /// Wraps a count.
    #[inline]
    pub const fn new(n: u64) -> Self {
        NrPages(n)
    }
    /// The count.
    #[inline]
    pub const fn get(self) -> u64 {
        self.0
    }
    /// Bytes in that many pages.
    #[inline]
    pub const fn bytes(self) -> u64 {
        self.0 << PAGE_SHIFT
    }
    /// Pages needed to hold `bytes`.
    #[inline]
    pub const fn covering(bytes: u64) -> Self {
        NrPages(bytes.div_ceil(PAGE_SIZE))
    }
}

/// log2 of a number of base pages: the size of a folio or of a buddy block.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Debug)]
#[repr(transparent)]
pub struct Order(u8);

impl Order {
    /// A single page.
    pub const ZERO: Order = Order(0);
    /// 2 MiB: the order of a PMD leaf.
    pub const PMD: Order = Order(9);
    /// The largest block the page allocator hands out: 4 MiB (`MAX_PAGE_ORDER`).
    pub const MAX: Order = Order(10);

    /// Wraps an order up to 1 GiB (18), the largest leaf of either architecture.
    #[inline]
    pub const fn new(order: u8) -> Option<Self> {
        if order <= 18 { Some(Order(order)) } else { None }
    }
    /// The exponent.
    #[inline]
    pub const fn get(self) -> u8 {
        self.0
    }
    /// Base pages in a block of this order.
    #[inline]
    pub const fn pages(self) -> u64 {
        1 << self.0
    }
    /// Base pages in a block of this order, typed.
    #[inline]
    pub const fn nr_pages(self) -> NrPages {
        NrPages(1 << self.0)
    }
    /// Bytes in a block of this order.
    #[inline]
    pub const fn bytes(self) -> u64 {
        PAGE_SIZE << self.0
    }
    /// Size in kB, as the names of `hugepages-<kB>kB` have it.
    #[inline]
    pub const fn kib(self) -> u64 {
        4 << self.0
    }
}

/// The size of what one translation covers: a page, a contiguous block, a large leaf.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(transparent)]
pub struct Reach(u8);

impl Reach {
    /// A 4 KiB page.
    pub const K4: Reach = Reach(12);
    /// A 16 KiB coalesced group (AMD PTE coalescing).
    pub const K16: Reach = Reach(14);
    /// An arm64 contiguous block of 16 pages.
    pub const K64: Reach = Reach(16);
    /// A PMD leaf.
    pub const M2: Reach = Reach(21);
    /// An arm64 contiguous block of 16 PMD leaves.
    pub const M32: Reach = Reach(25);
    /// A PUD leaf.
    pub const G1: Reach = Reach(30);

    /// A reach of `2^shift` bytes, from one page up to 1 GiB.
    #[inline]
    pub const fn from_shift(shift: u8) -> Option<Reach> {
        if shift >= 12 && shift <= 30 { Some(Reach(shift)) } else { None }
    }
    /// log2 of the bytes covered.
    #[inline]
    pub const fn shift(self) -> u32 {
        self.0 as u32
    }
    /// Bytes covered.
    #[inline]
    pub const fn bytes(self) -> u64 {
        1 << self.0
    }
    /// Base pages covered.
    #[inline]
    pub const fn pages(self) -> u64 {
        1 << (self.0 - 12)
    }
}

impl fmt::Debug for Reach {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Reach({self})")
    }
}

impl fmt::Display for Reach {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            30.. => write!(f, "{}G", 1u64 << (self.0 - 30)),
            20.. => write!(f, "{}M", 1u64 << (self.0 - 20)),
            _ => write!(f, "{}K", 1u64 << (self.0 - 10)),
        }
    }
}

/// An address-space tag: ASID on arm64, PCID on x86-64.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Debug)]
#[repr(transparent)]
pub struct Asid(u16);

impl Asid {
    /// Wraps a raw tag.
    #[inline]
    pub const fn new(raw: u16) -> Self {
        Asid(raw)
    }
    /// The raw tag.
    #[inline]
    pub const fn get(self) -> u16 {
        self.0
    }
}

/// Index of a virtual CPU.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Debug)]
#[repr(transparent)]
pub struct CpuId(u16);

impl CpuId {
    /// Wraps an index.
    #[inline]
    pub const fn new(raw: u16) -> Self {
        CpuId(raw)
    }
    /// The index, for per-CPU arrays.
    #[inline]
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

const _: () = assert!(Order::PMD.bytes() == crate::PMD_SIZE);
const _: () = assert!(Reach::M2.bytes() == crate::PMD_SIZE && Reach::K64.pages() == 16);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn orders_and_reaches_agree() {
        assert_eq!(Order::new(4).map(Order::bytes), Some(Reach::K64.bytes()));
        assert_eq!(Order::new(19), None);
        assert_eq!(Reach::from_shift(11), None);
        assert_eq!(Reach::K64.to_string(), "64K");
        assert_eq!(Reach::M32.to_string(), "32M");
    }

    #[test]
    fn covering_rounds_up() {
        assert_eq!(NrPages::covering(1), NrPages::ONE);
        assert_eq!(NrPages::covering(8192).get(), 2);
    }
}
