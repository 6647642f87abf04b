//! The pools: one per size, filled and emptied by the administrator.

use super::{ResvId, ResvMap};
use crate::Mm;
use crate::errno::Errno;
use crate::folio::Folio;
use arch::{HugeSize, Platform};
use phys::PageFlags;
use units::{Order, Pfn};

/// A pool (`struct hstate`).
#[derive(Debug)]
pub(super) struct Hstate {
    size: HugeSize,
    /// Pages that nobody uses; the last one is taken first.
    free: Vec<Pfn>,
    /// Pages in the pool, used or free.
    nr: u64,
    /// Pages that mappings were promised and have not touched yet. A pinned page whose mapping
    /// went first can make it negative for a while, as in Linux.
    pub(super) resv: i64,
    /// Pages beyond what the administrator asked for.
    surplus: u64,
    overcommit: u64,
}

/// What /proc and /sys show of a pool, in pages of its size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HugePool {
    /// The size of its pages.
    pub size: HugeSize,
    /// `nr_hugepages` and those beyond it.
    pub total: u64,
    /// `free_hugepages`
    pub free: u64,
    /// `resv_hugepages`
    pub reserved: u64,
    /// `surplus_hugepages`
    pub surplus: u64,
    /// `nr_overcommit_hugepages`
    pub overcommit: u64,
}

/// All pools, and the reservations of private mappings.
#[derive(Debug)]
pub(crate) struct Hugetlb {
    states: Vec<Hstate>,
    resv_maps: Vec<Option<ResvMap>>,
}

impl Hstate {
    /// `available_huge_pages()`: free and promised to nobody.
    fn available(&self) -> i64 {
        self.nr_free() - self.resv
    }
    fn nr_free(&self) -> i64 {
        (self.free.len() as u64).cast_signed()
    }
    /// `persistent_huge_pages()`.
    fn persistent(&self) -> u64 {
        self.nr - self.surplus
    }
    /// `hstate_is_gigantic()`.
    fn is_gigantic(&self) -> bool {
        self.size.order() > Order::MAX
    }
}

impl Hugetlb {
    pub(crate) fn new(sizes: &[HugeSize]) -> Hugetlb {
        let states = sizes.iter().map(|&size| Hstate {
            size,
            free: Vec::new(),
            nr: 0,
            resv: 0,
            surplus: 0,
            overcommit: 0,
        });
        Hugetlb { states: states.collect(), resv_maps: Vec::new() }
    }

    fn find(&self, size: HugeSize) -> usize {
        let found = self.states.iter().position(|h| h.size == size);
        found.expect("only sizes of the architecture are mapped")
    }
    fn state(&self, size: HugeSize) -> &Hstate {
        &self.states[self.find(size)]
    }
    pub(super) fn state_mut(&mut self, size: HugeSize) -> &mut Hstate {
        let at = self.find(size);
        &mut self.states[at]
    }

    pub(super) fn add_resv_map(&mut self, map: ResvMap) -> ResvId {
        let free = self.resv_maps.iter().position(Option::is_none);
        let at = free.unwrap_or(self.resv_maps.len());
        if at == self.resv_maps.len() {
            self.resv_maps.push(None);
        }
        self.resv_maps[at] = Some(map);
        ResvId(u32::try_from(at).expect("mappings are few"))
    }
    pub(super) fn remove_resv_map(&mut self, id: ResvId) {
        self.resv_maps[id.0 as usize] = None;
    }
    pub(super) fn resv_map(&self, id: ResvId) -> &ResvMap {
        self.resv_maps[id.0 as usize].as_ref().expect("a VMA refers to it")
    }
    pub(super) fn resv_map_mut(&mut self, id: ResvId) -> &mut ResvMap {
        self.resv_maps[id.0 as usize].as_mut().expect("a VMA refers to it")
    }
}

impl<P: Platform> Mm<P> {
    /// The pools, by size, ascending.
    pub fn huge_pools(&self) -> impl Iterator<Item = HugePool> {
        self.hugetlb.states.iter().map(|h| HugePool {
            size: h.size,
            total: h.nr,
            free: h.free.len() as u64,
            reserved: h.resv.cast_unsigned(),
            surplus: h.surplus,
            overcommit: h.overcommit,
        })
    }

    /// The pool of a size, if the architecture has it.
    pub fn huge_pool(&self, size: HugeSize) -> Option<HugePool> {
        self.huge_pools().find(|pool| pool.size == size)
    }

    /// Frames of the free pages of all pools.
    pub(crate) fn free_huge_frames(&self) -> impl Iterator<Item = Pfn> {
        self.hugetlb.states.iter().flat_map(|h| h.free.iter().copied())
    }

    /// Writes `nr_overcommit_hugepages`: how many pages beyond the pool mappings may take from
    /// the page allocator.
    ///
    /// # Errors
    /// EINVAL for a size that the page allocator does not have.
    pub fn set_nr_overcommit_hugepages(&mut self, size: HugeSize, nr: u64) -> Result<(), Errno> {
        let h = self.hugetlb.state_mut(size);
        if h.is_gigantic() {
            return Err(Errno::EINVAL);
        }
        h.overcommit = nr;
        Ok(())
    }

    /// Writes `nr_hugepages`: the pool grows as far as memory goes, or gives back what is free
    /// and not promised; pages in use beyond `count` become surplus.
    /// Source: Linux mm/hugetlb.c `set_max_huge_pages()`.
    pub fn set_nr_hugepages(&mut self, size: HugeSize, count: u64) {
        let h = self.hugetlb.state_mut(size);
        let adopt = count.saturating_sub(h.persistent()).min(h.surplus);
        h.surplus -= adopt;
        while self.hugetlb.state(size).persistent() < count {
            let Some(folio) = self.alloc_fresh_hugetlb_folio(size) else { return };
            let h = self.hugetlb.state_mut(size);
            h.nr += 1;
            h.free.push(folio.pfn);
        }
        let h = self.hugetlb.state(size);
        let used = h.resv + h.nr.cast_signed() - h.nr_free();
        let least = used.max(0).cast_unsigned().max(count);
        while self.hugetlb.state(size).persistent() > least && self.remove_pool_page(size) {}
        let h = self.hugetlb.state_mut(size);
        h.surplus += h.persistent().saturating_sub(count);
    }

    /// Gives a free page of the pool back to the page allocator.
    fn remove_pool_page(&mut self, size: HugeSize) -> bool {
        let h = self.hugetlb.state_mut(size);
        let Some(pfn) = h.free.pop() else { return false };
        h.nr -= 1;
        self.dissolve(Folio { pfn, order: size.order() });
        true
    }

    /// A page from the page allocator, free and without a reference.
    fn alloc_fresh_hugetlb_folio(&mut self, size: HugeSize) -> Option<Folio> {
        let folio = self.folio_alloc(size.order())?;
        let mut dirtied = false;
        for i in 0..folio.nr_pages().get() {
            let page = self.pt.pages.page_mut(folio.pfn.add(i));
            dirtied |= page.flags.contains(PageFlags::DIRTIED);
            page.flags.insert(PageFlags::HUGETLB);
        }
        if dirtied {
            self.folio_set(folio, PageFlags::DIRTIED);
        }
        self.pt.pages.page_mut(folio.pfn).refcount = 0;
        Some(folio)
    }

    /// `alloc_surplus_hugetlb_folio()`: a page beyond the pool, if overcommit allows it.
    fn alloc_surplus_hugetlb_folio(&mut self, size: HugeSize) -> Option<Folio> {
        let h = self.hugetlb.state(size);
        if h.is_gigantic() || h.surplus >= h.overcommit {
            return None;
        }
        let folio = self.alloc_fresh_hugetlb_folio(size)?;
        let h = self.hugetlb.state_mut(size);
        h.nr += 1;
        h.surplus += 1;
        Some(folio)
    }

    /// The pages of a huge page are ordinary memory again.
    fn dissolve(&mut self, folio: Folio) {
        for i in 0..folio.nr_pages().get() {
            let page = self.pt.pages.page_mut(folio.pfn.add(i));
            *page = phys::Page { flags: PageFlags::DIRTIED, ..Default::default() };
        }
        self.free_block(folio.pfn, folio.order);
    }

    /// Promises `pages` more, from the pool or, as far as overcommit goes, from the page
    /// allocator. Source: `hugetlb_acct_memory()`, `gather_surplus_pages()`.
    ///
    /// # Errors
    /// ENOMEM.
    pub(super) fn hugetlb_acct_memory(&mut self, size: HugeSize, pages: u64) -> Result<(), Errno> {
        let h = self.hugetlb.state(size);
        let pages = i64::try_from(pages).map_err(|_| Errno::ENOMEM)?;
        let needed = h.resv.saturating_add(pages).saturating_sub(h.nr_free());
        let mut got = Vec::new();
        for _ in 0..needed {
            match self.alloc_surplus_hugetlb_folio(size) {
                Some(folio) => got.push(folio),
                None => {
                    for folio in got {
                        let h = self.hugetlb.state_mut(size);
                        h.nr -= 1;
                        h.surplus -= 1;
                        self.dissolve(folio);
                    }
                    return Err(Errno::ENOMEM);
                }
            }
        }
        let h = self.hugetlb.state_mut(size);
        h.resv += pages;
        h.free.extend(got.into_iter().map(|folio| folio.pfn));
        Ok(())
    }

    /// Takes promises back, and gives surplus pages that backed them to the page allocator.
    /// Source: `return_unused_surplus_pages()`.
    pub(super) fn return_unused_surplus_pages(&mut self, size: HugeSize, unused: u64) {
        let h = self.hugetlb.state_mut(size);
        h.resv -= unused.cast_signed();
        for _ in 0..unused.min(h.surplus) {
            if !self.remove_pool_page(size) {
                return;
            }
            self.hugetlb.state_mut(size).surplus -= 1;
        }
    }

    /// A page of the pool: one that was promised, or one that is promised to nobody, or one
    /// beyond the pool. It has one reference.
    pub(super) fn dequeue_hugetlb_folio(
        &mut self,
        size: HugeSize,
        promised: bool,
    ) -> Option<Folio> {
        let h = self.hugetlb.state_mut(size);
        let taken = match promised || h.available() > 0 {
            true => h.free.pop(),
            false => None,
        };
        let folio = match taken {
            Some(pfn) => Folio { pfn, order: size.order() },
            None => self.alloc_surplus_hugetlb_folio(size)?,
        };
        self.pt.pages.page_mut(folio.pfn).refcount = 1;
        Some(folio)
    }

    /// The last reference to a huge page is gone: back to the pool, or, as long as there are
    /// surplus pages, to the page allocator. Source: `free_huge_folio()`.
    pub(crate) fn free_huge_folio(&mut self, folio: Folio) {
        let size = HugeSize::of_order(folio.order).expect("only huge pages come from pools");
        let head = self.pt.pages.page_mut(folio.pfn);
        debug_assert_eq!((head.entire_mapcount, head.pincount), (0, 0), "a used page is freed");
        let restore = head.flags.contains(PageFlags::RESTORE_RESERVE);
        let kept = PageFlags::ALLOCATED | PageFlags::HEAD | PageFlags::HUGETLB;
        let flags = kept | PageFlags::DIRTIED;
        *head = phys::Page { flags, order: folio.order, ..Default::default() };
        let h = self.hugetlb.state_mut(size);
        h.resv += i64::from(restore);
        if h.surplus == 0 {
            h.free.push(folio.pfn);
            return;
        }
        h.surplus -= 1;
        h.nr -= 1;
        self.dissolve(folio);
    }

    /// Clears a huge page (`folio_zero_user()`).
    pub(super) fn hugetlb_zero(&mut self, folio: Folio) {
        let pages = folio.nr_pages().get();
        self.pt.count(events::Event::PageZero, pages);
        if self.folio_test(folio, PageFlags::DIRTIED) {
            self.pt.ram.zero_frames(folio.pfn, pages);
        }
        self.folio_set(folio, PageFlags::DIRTIED);
    }

    /// Promises of a pool, as VMAs and files tell them; for `validate()`.
    pub(crate) fn promised_huge_pages(&self, size: HugeSize) -> u64 {
        let private: u64 = self
            .mms
            .iter()
            .flat_map(|ms| ms.tree.values())
            .map(|&id| self.vma(id))
            .filter(|vma| vma.huge == Some(size))
            .filter_map(|vma| {
                let (from, to) = vma.huge_range(size);
                let used = self.hugetlb.resv_map(vma.resv?).consumed.range(from..to).count();
                Some(to - from - used as u64)
            })
            .sum();
        private + self.promised_by_files(size)
    }
}
