//! `struct page`: what the kernel knows about each frame, in sections that exist once used.
//!
//! Plain fields without rules: `mm` gives them meaning (and counts the atomic ones), `arch` only
//! asks whether a folio spans a contiguous block. Linux's counterpart is the sparse mem_map;
//! where Linux shares words between uses, so does [`Page::private`].

use crate::Lines;
use std::cell::Cell;
use units::{Order, Pfn};

bitflags::bitflags! {
    /// `page->flags`.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
    pub struct PageFlags: u32 {
        /// Handed out by the page allocator.
        const ALLOCATED = 1 << 0;
        /// A free buddy block starts here.
        const BUDDY = 1 << 1;
        /// First page of a folio of order ≥ 1.
        const HEAD = 1 << 2;
        /// Later page of a folio of order ≥ 1.
        const TAIL = 1 << 3;
        /// `PG_locked`.
        const LOCKED = 1 << 4;
        /// `PG_referenced`.
        const REFERENCED = 1 << 5;
        /// `PG_uptodate`.
        const UPTODATE = 1 << 6;
        /// `PG_dirty`.
        const DIRTY = 1 << 7;
        /// `PG_lru`: on an LRU list, not isolated.
        const LRU = 1 << 8;
        /// `PG_active`.
        const ACTIVE = 1 << 9;
        /// `PG_workingset`.
        const WORKINGSET = 1 << 10;
        /// `PG_swapbacked`: anonymous and not lazyfree, or shmem.
        const SWAPBACKED = 1 << 11;
        /// `PG_swapcache`.
        const SWAPCACHE = 1 << 12;
        /// `PG_unevictable`.
        const UNEVICTABLE = 1 << 13;
        /// `PG_mlocked`.
        const MLOCKED = 1 << 14;
        /// `PG_anon_exclusive`, per page.
        const ANON_EXCLUSIVE = 1 << 15;
        /// `folio->mapping` says anonymous.
        const ANON = 1 << 16;
        /// On the deferred split queue.
        const DEFERRED_SPLIT = 1 << 17;
        /// `PG_writeback`.
        const WRITEBACK = 1 << 18;
        /// `PG_reclaim`.
        const RECLAIM = 1 << 19;
        /// A page table.
        const TABLE = 1 << 20;
        /// `PG_hwpoison`.
        const HWPOISON = 1 << 21;
        /// The frame may hold something else than zeroes: it was handed out before.
        const DIRTIED = 1 << 22;
        /// hugetlb folio; on each of its pages.
        const HUGETLB = 1 << 23;
        /// KSM page.
        const KSM = 1 << 24;
        /// Partially mapped large folio (`PG_partially_mapped`).
        const PARTIALLY_MAPPED = 1 << 25;
        /// Reserved: never allocated, never freed (zero page).
        const RESERVED = 1 << 26;
        /// A hugetlb folio that was promised to a mapping (`hugetlb_restore_reserve`).
        const RESTORE_RESERVE = 1 << 27;
    }
}

/// Metadata of one frame. All zero for a frame that was never used.
#[derive(Clone, Copy, Debug, Default)]
pub struct Page {
    /// `page->flags`.
    pub flags: PageFlags,
    /// Order of the folio that the page belongs to (head and tails), or of the free block.
    pub order: Order,
    /// `_refcount`, on the head.
    pub refcount: u32,
    /// PTEs that map this page: `_mapcount + 1`.
    pub mapcount: u32,
    /// `_large_mapcount + 1`, on the head.
    pub large_mapcount: u32,
    /// PMDs that map the folio: `_entire_mapcount + 1`, on the head.
    pub entire_mapcount: u32,
    /// `_nr_pages_mapped`, on the head.
    pub nr_pages_mapped: u32,
    /// `_pincount`, on the head of a large folio.
    pub pincount: u32,
    /// `folio->mapping`: index of the anon_vma or address space, as `flags` says.
    pub mapping: u32,
    /// `lru.next`, as a frame number plus one; 0 ends a list.
    pub next: u32,
    /// `lru.prev`, as a frame number plus one; 0 ends a list.
    pub prev: u32,
    /// `folio->index`: page offset in the mapping.
    pub index: u64,
    /// `page->private`: the swap entry of a page in the swap cache.
    pub private: u64,
}

const _: () = assert!(size_of::<Page>() <= 64);

/// log2 of the frames in a section: 128 MiB, as SPARSEMEM has it on both architectures.
const SECTION_SHIFT: u32 = 15;
const SECTION_FRAMES: usize = 1 << SECTION_SHIFT;

/// The metadata of one section; absent while no frame of it was used.
pub type Section = Option<Box<[Page]>>;

/// Metadata of every frame of RAM.
#[derive(Debug)]
pub struct MemMap {
    sections: Vec<Section>,
    frames: u64,
    lines: Lines,
    /// Of the lines fetched, those within a folio.
    within: Cell<u64>,
}

static UNUSED: Page = Page {
    flags: PageFlags::empty(),
    order: Order::ZERO,
    refcount: 0,
    mapcount: 0,
    large_mapcount: 0,
    entire_mapcount: 0,
    nr_pages_mapped: 0,
    pincount: 0,
    mapping: 0,
    next: 0,
    prev: 0,
    index: 0,
    private: 0,
};

impl MemMap {
    /// Metadata for `frames` frames, none of them used.
    pub fn new(frames: u64) -> Self {
        let sections = (frames as usize).div_ceil(SECTION_FRAMES);
        MemMap {
            sections: (0..sections).map(|_| None).collect(),
            frames,
            lines: Lines::default(),
            within: Cell::new(0),
        }
    }

    /// How many frames are described.
    pub fn frames(&self) -> u64 {
        self.frames
    }

    /// Whether `pfn` is RAM (`pfn_valid`).
    #[inline]
    pub fn is_valid(&self, pfn: Pfn) -> bool {
        pfn.get() < self.frames
    }

    /// The metadata of `pfn`.
    ///
    /// # Panics
    /// If `pfn` is no RAM.
    #[inline]
    pub fn page(&self, pfn: Pfn) -> &Page {
        match &self.sections[pfn.get() as usize >> SECTION_SHIFT] {
            Some(section) => {
                let page = &section[pfn.get() as usize & (SECTION_FRAMES - 1)];
                self.touch(pfn, page.flags);
                page
            }
            None => &UNUSED,
        }
    }

    /// The metadata of `pfn`, to change.
    ///
    /// # Panics
    /// If `pfn` is no RAM.
    #[inline]
    pub fn page_mut(&mut self, pfn: Pfn) -> &mut Page {
        self.page(pfn);
        let section = &mut self.sections[pfn.get() as usize >> SECTION_SHIFT];
        let pages = section.get_or_insert_with(new_section);
        &mut pages[pfn.get() as usize & (SECTION_FRAMES - 1)]
    }

    /// Cache lines that were fetched since the last call (a `struct page` is one): to a page on its own or the first of a
    /// folio, which may be anywhere; and to a later page of a folio, beside its neighbours.
    #[inline(always)]
    pub fn take_lines(&self) -> (u64, u64) {
        let within = self.within.take();
        (self.lines.take() - within, within)
    }

    #[inline(always)]
    fn touch(&self, pfn: Pfn, flags: PageFlags) {
        if self.lines.touch(pfn.get()) && flags.contains(PageFlags::TAIL) {
            self.within.set(self.within.get() + 1);
        }
    }

    /// First page of the folio that `pfn` belongs to.
    #[inline]
    pub fn folio_head(&self, pfn: Pfn) -> Pfn {
        let page = self.page(pfn);
        if page.flags.contains(PageFlags::TAIL) {
            Pfn::new(pfn.get() & !(page.order.pages() - 1))
        } else {
            pfn
        }
    }

    /// Order of the folio that `pfn` belongs to.
    #[inline]
    pub fn folio_order(&self, pfn: Pfn) -> Order {
        let page = self.page(pfn);
        if page.flags.intersects(PageFlags::HEAD.union(PageFlags::TAIL)) {
            page.order
        } else {
            Order::ZERO
        }
    }
}

#[cold]
fn new_section() -> Box<[Page]> {
    vec![UNUSED; SECTION_FRAMES].into_boxed_slice()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unused_sections_take_no_memory() {
        let mut map = MemMap::new(16 << 20);
        assert_eq!(map.page(Pfn::new(12_345_678)).refcount, 0);
        map.page_mut(Pfn::new(12_345_678)).refcount = 3;
        assert_eq!(map.page(Pfn::new(12_345_678)).refcount, 3);
        assert_eq!(map.sections.iter().flatten().count(), 1);
    }

    #[test]
    fn tails_lead_to_their_head() {
        let mut map = MemMap::new(64);
        let order = Order::new(4).expect("order");
        for i in 0..16 {
            let page = map.page_mut(Pfn::new(32 + i));
            page.order = order;
            page.flags = if i == 0 { PageFlags::HEAD } else { PageFlags::TAIL };
        }
        assert_eq!(map.folio_head(Pfn::new(41)), Pfn::new(32));
        assert_eq!(map.folio_order(Pfn::new(41)), order);
        assert_eq!(map.folio_head(Pfn::new(5)), Pfn::new(5));
    }
}
