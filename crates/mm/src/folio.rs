//! Folios: one or 2^order pages that live and die together.
//!
//! The counted accessors of `struct page`: a change of a reference count or mapcount is an event
//! here and nowhere else. Source: Linux include/linux/mm.h, page-flags.h, page_ref.h.

use crate::Mm;
use arch::Platform;
use events::Event;
use phys::PageFlags;
use units::{NrPages, Order, Pfn};

/// A folio, by its first frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Folio {
    /// First frame.
    pub pfn: Pfn,
    /// log2 of its pages.
    pub order: Order,
}

impl Folio {
    /// Pages in it.
    pub fn nr_pages(self) -> NrPages {
        self.order.nr_pages()
    }
    /// Whether it has more than one page (`folio_test_large`).
    pub fn is_large(self) -> bool {
        self.order > Order::ZERO
    }
    /// Whether a PMD can map it (`folio_test_pmd_mappable`).
    pub fn is_pmd_mappable(self) -> bool {
        self.order >= Order::PMD
    }
    /// Whether `pfn` is one of its pages.
    pub fn contains(self, pfn: Pfn) -> bool {
        self.pfn <= pfn && pfn.get() < self.pfn.get() + self.order.pages()
    }
    /// Position of `pfn` in it.
    pub fn index_of(self, pfn: Pfn) -> u64 {
        pfn.frames_since(self.pfn)
    }
}

impl<P: Platform> Mm<P> {
    /// `page_folio()`.
    #[inline]
    pub fn page_folio(&self, pfn: Pfn) -> Folio {
        Folio { pfn: self.pt.pages.folio_head(pfn), order: self.pt.pages.folio_order(pfn) }
    }

    /// Whether the folio has all of `flags`.
    #[inline]
    pub fn folio_test(&self, folio: Folio, flags: PageFlags) -> bool {
        self.pt.pages.page(folio.pfn).flags.contains(flags)
    }

    #[inline]
    pub(crate) fn folio_set(&mut self, folio: Folio, flags: PageFlags) {
        self.pt.pages.page_mut(folio.pfn).flags.insert(flags);
    }

    #[inline]
    pub(crate) fn folio_clear(&mut self, folio: Folio, flags: PageFlags) {
        self.pt.pages.page_mut(folio.pfn).flags.remove(flags);
    }

    /// `folio_ref_count()`.
    #[inline]
    pub fn folio_ref_count(&self, folio: Folio) -> u32 {
        self.pt.pages.page(folio.pfn).refcount
    }

    /// `folio_ref_add()`: one atomic for any `nr`.
    #[inline]
    pub(crate) fn folio_ref_add(&mut self, folio: Folio, nr: u64) {
        self.pt.count(Event::FolioRefRmw, 1);
        self.pt.pages.page_mut(folio.pfn).refcount += nr as u32;
    }

    /// `folio_put_refs()`: frees the folio with its last reference.
    pub(crate) fn folio_put_refs(&mut self, folio: Folio, nr: u64) {
        self.pt.count(Event::FolioRefRmw, 1);
        let page = self.pt.pages.page_mut(folio.pfn);
        assert!(u64::from(page.refcount) >= nr, "{folio:?} loses more references than it has");
        page.refcount -= nr as u32;
        if page.refcount == 0 {
            self.folio_free(folio);
        }
    }

    /// Raises the pin count of a large folio.
    #[inline]
    pub(crate) fn folio_pincount_add(&mut self, folio: Folio, nr: u64) {
        debug_assert!(folio.is_large());
        self.pt.count(Event::FolioPincountRmw, 1);
        self.pt.pages.page_mut(folio.pfn).pincount += nr as u32;
    }

    /// Lowers the pin count of a large folio.
    pub(crate) fn folio_pincount_sub(&mut self, folio: Folio, nr: u64) {
        self.pt.count(Event::FolioPincountRmw, 1);
        let page = self.pt.pages.page_mut(folio.pfn);
        assert!(u64::from(page.pincount) >= nr, "{folio:?} loses more pins than it has");
        page.pincount -= nr as u32;
    }

    /// `folio_mapcount()`: how many entries map pages of the folio.
    #[inline]
    pub fn folio_mapcount(&self, folio: Folio) -> u64 {
        let head = self.pt.pages.page(folio.pfn);
        if folio.is_large() { u64::from(head.large_mapcount) } else { u64::from(head.mapcount) }
    }

    /// `folio_mapped()`.
    pub fn folio_mapped(&self, folio: Folio) -> bool {
        self.folio_mapcount(folio) > 0
    }

    /// `folio_likely_mapped_shared()`: more entries map the folio than it has pages, or its
    /// first page is mapped twice.
    pub(crate) fn folio_maybe_mapped_shared(&self, folio: Folio) -> bool {
        let head = self.pt.pages.page(folio.pfn);
        if !folio.is_large() {
            return head.mapcount > 1;
        }
        if head.entire_mapcount > 0 {
            return self.folio_mapcount(folio) > 1;
        }
        self.folio_mapcount(folio) > folio.nr_pages().get() || head.mapcount > 1
    }

    /// `folio_maybe_dma_pinned()`.
    pub(crate) fn folio_maybe_dma_pinned(&self, folio: Folio) -> bool {
        let head = self.pt.pages.page(folio.pfn);
        if folio.is_large() { head.pincount > 0 } else { head.refcount >= GUP_PIN_COUNTING_BIAS }
    }

    /// `PageAnonExclusive()`.
    #[inline]
    pub fn page_anon_exclusive(&self, pfn: Pfn) -> bool {
        let flags = self.pt.pages.page(pfn).flags;
        if flags.contains(PageFlags::HUGETLB) {
            // Kept for the whole folio, on its head.
            return self.folio_test(self.page_folio(pfn), PageFlags::ANON_EXCLUSIVE);
        }
        flags.contains(PageFlags::ANON_EXCLUSIVE)
    }

    #[inline]
    pub(crate) fn set_page_anon_exclusive(&mut self, pfn: Pfn) {
        self.pt.pages.page_mut(pfn).flags.insert(PageFlags::ANON_EXCLUSIVE);
    }

    #[inline]
    pub(crate) fn clear_page_anon_exclusive(&mut self, pfn: Pfn) {
        self.pt.count(Event::AnonExclusiveClear, 1);
        self.pt.pages.page_mut(pfn).flags.remove(PageFlags::ANON_EXCLUSIVE);
    }

    /// `folio_trylock()`: kernel operations are atomic here, so it only fails for a folio that
    /// the same operation has locked.
    pub(crate) fn folio_trylock(&mut self, folio: Folio) -> bool {
        if self.folio_test(folio, PageFlags::LOCKED) {
            return false;
        }
        self.pt.count(Event::FolioLock, 1);
        self.folio_set(folio, PageFlags::LOCKED);
        true
    }

    pub(crate) fn folio_unlock(&mut self, folio: Folio) {
        debug_assert!(self.folio_test(folio, PageFlags::LOCKED));
        self.folio_clear(folio, PageFlags::LOCKED);
    }

    /// `vm_normal_folio()` for a present, non-special entry; the zero pages and frames outside
    /// RAM have none.
    #[inline]
    pub(crate) fn vm_normal_folio(&self, pte: arch::Pte<P::Arch>) -> Option<Folio> {
        (!pte.is_special()).then(|| self.page_folio(pte.pfn()))
    }
}

/// References that a pin of a small folio counts for.
pub(crate) const GUP_PIN_COUNTING_BIAS: u32 = 1 << 10;
