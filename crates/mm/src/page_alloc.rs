//! The page allocator: buddy blocks of order 0 to 10, and larger ranges of free memory for huge
//! pages.
//!
//! RAM that was never handed out lies above `fresh` and costs no metadata. Free blocks are
//! chained through `struct page`. Source: Linux mm/page_alloc.c.
//
// FIDELITY: no-pcp no per-CPU page lists, migrate types or zones; frame numbers differ from Linux

use crate::Mm;
use crate::folio::Folio;
use arch::Platform;
use events::Event;
use phys::PageFlags;
use units::{Order, Pfn};

const ORDERS: usize = Order::MAX.get() as usize + 1;

/// Free memory.
#[derive(Debug)]
pub(crate) struct Buddy {
    /// First block of each order, as a frame number plus one.
    heads: [u32; ORDERS],
    /// Frames from here on were never handed out.
    fresh: Pfn,
    /// First frame after RAM.
    end: Pfn,
    free: u64,
}

impl Buddy {
    pub(crate) fn new(first: Pfn, end: Pfn) -> Self {
        Buddy { heads: [0; ORDERS], fresh: first, end, free: end.frames_since(first) }
    }

    /// Free pages.
    pub(crate) fn free_pages(&self) -> u64 {
        self.free
    }
}

impl<P: Platform> Mm<P> {
    /// `alloc_pages()`: a naturally aligned block, or `None` when memory has run out. Its pages
    /// have no flags but ALLOCATED (and DIRTIED, if the frame may hold something).
    pub(crate) fn alloc_block(&mut self, order: Order) -> Option<Pfn> {
        let pfn = self.rmqueue(order)?;
        self.pt.count(Event::PageAlloc, 1);
        self.pt.count(Event::PageAllocPages, order.pages());
        self.buddy.free -= order.pages();
        Some(pfn)
    }

    fn rmqueue(&mut self, order: Order) -> Option<Pfn> {
        for have in order.get()..=Order::MAX.get() {
            let head = self.buddy.heads[usize::from(have)];
            if head != 0 {
                let pfn = Pfn::new(u64::from(head) - 1);
                self.del_from_free_list(pfn, have);
                self.expand(pfn, have, order.get());
                return Some(pfn);
            }
        }
        self.rmqueue_fresh(order).or_else(|| self.alloc_contig_pages(order))
    }

    /// A range above the largest block that consists of free blocks.
    /// Source: Linux mm/page_alloc.c `alloc_contig_pages()`.
    fn alloc_contig_pages(&mut self, order: Order) -> Option<Pfn> {
        if order <= Order::MAX {
            return None;
        }
        let step = order.pages();
        let last = self.buddy.fresh.get() / step;
        let first = (0..last).map(|i| Pfn::new(i * step)).find(|&at| self.is_free(at, order))?;
        let mut at = first;
        while at < first.add(step) {
            let have = self.pt.pages.page(at).order;
            self.del_from_free_list(at, have.get());
            at = at.add(have.pages());
        }
        Some(first)
    }

    /// Whether an aligned range consists of free blocks.
    fn is_free(&self, first: Pfn, order: Order) -> bool {
        let mut at = first;
        while at < first.add(order.pages()) {
            let page = self.pt.pages.page(at);
            if !page.flags.contains(PageFlags::BUDDY) {
                return false;
            }
            at = at.add(page.order.pages());
        }
        true
    }

    /// Takes the block from memory that was never used, giving what alignment skips to the free
    /// lists.
    fn rmqueue_fresh(&mut self, order: Order) -> Option<Pfn> {
        loop {
            let fresh = self.buddy.fresh;
            if fresh.is_aligned(order) {
                if fresh.get() + order.pages() > self.buddy.end.get() {
                    return None;
                }
                self.buddy.fresh = fresh.add(order.pages());
                return Some(fresh);
            }
            let skip = u8::try_from(fresh.get().trailing_zeros()).unwrap_or(0);
            let skip = skip.min(Order::MAX.get());
            if fresh.get() + (1 << skip) > self.buddy.end.get() {
                return None;
            }
            self.buddy.fresh = fresh.add(1 << skip);
            self.add_to_free_list(fresh, skip);
        }
    }

    /// Splits a block of order `have` down to `want`, freeing the upper halves.
    fn expand(&mut self, pfn: Pfn, have: u8, want: u8) {
        for half in (want..have).rev() {
            self.add_to_free_list(pfn.add(1 << half), half);
        }
    }

    /// Gives a block back; one above the largest order in parts.
    pub(crate) fn free_block(&mut self, pfn: Pfn, order: Order) {
        self.pt.count(Event::PageFree, 1);
        self.pt.count(Event::PageFreePages, order.pages());
        self.buddy.free += order.pages();
        let part = order.min(Order::MAX);
        for i in (0..order.pages()).step_by(part.pages() as usize) {
            self.free_one_page(pfn.add(i), part);
        }
    }

    /// `__free_one_page()`: back on a free list, merging buddies.
    fn free_one_page(&mut self, pfn: Pfn, order: Order) {
        let (mut pfn, mut order) = (pfn.get(), order.get());
        while order < Order::MAX.get() {
            let buddy = Pfn::new(pfn ^ (1 << order));
            let page = self.pt.pages.is_valid(buddy).then(|| self.pt.pages.page(buddy));
            let merges =
                page.is_some_and(|p| p.flags.contains(PageFlags::BUDDY) && p.order.get() == order);
            if !merges {
                break;
            }
            self.del_from_free_list(buddy, order);
            pfn &= buddy.get();
            order += 1;
        }
        self.add_to_free_list(Pfn::new(pfn), order);
    }

    fn add_to_free_list(&mut self, pfn: Pfn, order: u8) {
        let next = self.buddy.heads[usize::from(order)];
        let page = self.pt.pages.page_mut(pfn);
        page.flags.insert(PageFlags::BUDDY);
        page.order = Order::new(order).expect("buddy orders are small");
        page.next = next;
        page.prev = 0;
        let link = pfn.get() as u32 + 1;
        if next != 0 {
            self.pt.pages.page_mut(Pfn::new(u64::from(next) - 1)).prev = link;
        }
        self.buddy.heads[usize::from(order)] = link;
    }

    fn del_from_free_list(&mut self, pfn: Pfn, order: u8) {
        let page = self.pt.pages.page_mut(pfn);
        page.flags.remove(PageFlags::BUDDY);
        page.order = Order::ZERO;
        let (prev, next) = (page.prev, page.next);
        (page.prev, page.next) = (0, 0);
        match prev {
            0 => self.buddy.heads[usize::from(order)] = next,
            _ => self.pt.pages.page_mut(Pfn::new(u64::from(prev) - 1)).next = next,
        }
        if next != 0 {
            self.pt.pages.page_mut(Pfn::new(u64::from(next) - 1)).prev = prev;
        }
    }

    /// `folio_alloc()`: a folio with one reference and undefined contents.
    pub(crate) fn folio_alloc(&mut self, order: Order) -> Option<Folio> {
        let pfn = self.alloc_block(order)?;
        let n = order.pages();
        for i in 0..n {
            let page = self.pt.pages.page_mut(pfn.add(i));
            let dirtied = page.flags & PageFlags::DIRTIED;
            *page =
                phys::Page { order, flags: dirtied | PageFlags::ALLOCATED, ..Default::default() };
            if n > 1 {
                page.flags.insert(if i == 0 { PageFlags::HEAD } else { PageFlags::TAIL });
            }
        }
        self.pt.pages.page_mut(pfn).refcount = 1;
        Some(Folio { pfn, order })
    }

    /// `free_unref_folio()`: the last reference is gone.
    pub(crate) fn folio_free(&mut self, folio: Folio) {
        if self.folio_test(folio, PageFlags::HUGETLB) {
            return self.free_huge_folio(folio);
        }
        if self.folio_test(folio, PageFlags::LRU) {
            self.lru_del_folio(folio);
        }
        self.deferred_split_unqueue(folio);
        for i in 0..folio.order.pages() {
            let page = self.pt.pages.page_mut(folio.pfn.add(i));
            debug_assert_eq!(page.mapcount, 0, "a mapped page is freed");
            *page = phys::Page { flags: PageFlags::DIRTIED, ..Default::default() };
        }
        self.free_block(folio.pfn, folio.order);
    }

    /// `folio_zero_user()`: clears the folio. Frames that nobody had before are clear already;
    /// the event counts what Linux would do.
    pub(crate) fn folio_zero(&mut self, folio: Folio) {
        self.pt.count(Event::PageZero, folio.order.pages());
        for i in 0..folio.order.pages() {
            let pfn = folio.pfn.add(i);
            if self.pt.pages.page(pfn).flags.contains(PageFlags::DIRTIED) {
                self.pt.ram.zero_frames(pfn, 1);
            }
        }
    }

    /// A zeroed page for a page table; `None` when memory has run out.
    pub(crate) fn alloc_table(&mut self) -> Option<units::PhysAddr> {
        let folio = self.folio_alloc(Order::ZERO)?;
        if self.pt.pages.page(folio.pfn).flags.contains(PageFlags::DIRTIED) {
            self.pt.ram.zero_frames(folio.pfn, 1);
        }
        self.folio_set(folio, PageFlags::TABLE);
        Some(folio.pfn.addr())
    }

    /// Gives a page table back.
    pub(crate) fn free_table(&mut self, table: units::PhysAddr) {
        let folio = Folio { pfn: table.pfn(), order: Order::ZERO };
        self.folio_clear(folio, PageFlags::TABLE);
        self.folio_put_refs(folio, 1);
    }
}
