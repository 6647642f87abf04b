//! Reclaim: LRU lists, `shrink_folio_list()`, MADV_PAGEOUT's and memory pressure's way to it.
//!
//! Source: Linux mm/vmscan.c, mm/swap.c.

use crate::folio::Folio;
use crate::rmap::{self, Ttu};
use crate::{Mm, huge_memory};
use arch::{Platform, SwapApi};
use events::{Event, Op};
use phys::PageFlags;
use std::collections::VecDeque;
use units::{Order, PMD_ORDER, Pfn, PhysAddr};

/// An LRU list: frames of folios, oldest first, as links in `struct page`.
#[derive(Clone, Copy, Debug, Default)]
struct List {
    /// Newest, as a frame number plus one.
    head: u32,
    /// Oldest, as a frame number plus one.
    tail: u32,
    folios: u64,
}

/// The LRU lists of anonymous memory.
#[derive(Debug, Default)]
pub(crate) struct Lru {
    active: List,
    inactive: List,
}

/// Folios freed at a time (`PAGEVEC_SIZE`, a folio batch).
const FOLIO_BATCH: usize = 31;
/// Folios isolated at a time under pressure (`SWAP_CLUSTER_MAX`).
const SWAP_CLUSTER_MAX: usize = 32;

impl<P: Platform> Mm<P> {
    fn lru_list(&mut self, active: bool) -> &mut List {
        if active { &mut self.lru.active } else { &mut self.lru.inactive }
    }

    /// `folio_add_lru()`.
    pub(crate) fn folio_add_lru(&mut self, folio: Folio) {
        let active = self.folio_test(folio, PageFlags::ACTIVE);
        let link = folio.pfn.get() as u32 + 1;
        let list = self.lru_list(active);
        let old = list.head;
        list.head = link;
        list.folios += 1;
        if old == 0 {
            list.tail = link;
        }
        let page = self.pt.pages.page_mut(folio.pfn);
        page.flags.insert(PageFlags::LRU);
        (page.next, page.prev) = (old, 0);
        if old != 0 {
            self.pt.pages.page_mut(Pfn::new(u64::from(old) - 1)).prev = link;
        }
    }

    /// `lruvec_del_folio()`.
    pub(crate) fn lru_del_folio(&mut self, folio: Folio) {
        let active = self.folio_test(folio, PageFlags::ACTIVE);
        let page = self.pt.pages.page_mut(folio.pfn);
        page.flags.remove(PageFlags::LRU);
        let (next, prev) = (page.next, page.prev);
        (page.next, page.prev) = (0, 0);
        match prev {
            0 => self.lru_list(active).head = next,
            _ => self.pt.pages.page_mut(Pfn::new(u64::from(prev) - 1)).next = next,
        }
        match next {
            0 => self.lru_list(active).tail = prev,
            _ => self.pt.pages.page_mut(Pfn::new(u64::from(next) - 1)).prev = prev,
        }
        self.lru_list(active).folios -= 1;
    }

    /// `folio_isolate_lru()`: off its list, with a reference.
    pub(crate) fn folio_isolate_lru(&mut self, folio: Folio) -> bool {
        self.fentry(Event::FnFolioIsolateLru);
        if !self.folio_test(folio, PageFlags::LRU) {
            return false;
        }
        self.folio_ref_add(folio, 1);
        self.lru_del_folio(folio);
        true
    }

    /// `folio_putback_lru()`.
    fn folio_putback_lru(&mut self, folio: Folio) {
        self.folio_add_lru(folio);
        self.folio_put_refs(folio, 1);
    }

    /// `folio_deactivate()`.
    pub(crate) fn folio_deactivate(&mut self, folio: Folio) {
        if self.folio_test(folio, PageFlags::LRU | PageFlags::ACTIVE) {
            self.lru_del_folio(folio);
            self.folio_clear(folio, PageFlags::ACTIVE);
            self.folio_add_lru(folio);
        }
    }

    /// `folio_mark_accessed()`: the first access marks a folio, the second activates it.
    pub(crate) fn folio_mark_accessed(&mut self, folio: Folio) {
        if !self.folio_test(folio, PageFlags::REFERENCED) {
            self.folio_set(folio, PageFlags::REFERENCED);
            return;
        }
        if self.folio_test(folio, PageFlags::LRU) && !self.folio_test(folio, PageFlags::ACTIVE) {
            self.lru_del_folio(folio);
            self.folio_set(folio, PageFlags::ACTIVE);
            self.folio_clear(folio, PageFlags::REFERENCED);
            self.folio_add_lru(folio);
        }
    }

    /// `folio_mark_lazyfree()`: may be dropped without being written anywhere.
    pub(crate) fn folio_mark_lazyfree(&mut self, folio: Folio) {
        let lazyfreeable = self.folio_test(folio, PageFlags::ANON | PageFlags::SWAPBACKED)
            && !self.folio_test(folio, PageFlags::SWAPCACHE);
        if !lazyfreeable || !self.folio_test(folio, PageFlags::LRU) {
            return;
        }
        self.lru_del_folio(folio);
        self.folio_clear(folio, PageFlags::ACTIVE | PageFlags::REFERENCED | PageFlags::SWAPBACKED);
        self.folio_add_lru(folio);
        self.vmstat.pglazyfree += folio.nr_pages().get();
    }

    /// MADV_PAGEOUT's collection of one folio.
    pub(crate) fn isolate_for_reclaim(&mut self, folio: Folio, list: &mut Vec<Folio>) {
        if self.folio_isolate_lru(folio) {
            list.push(folio);
        }
    }
}

/// Source: Linux mm/vmscan.c `reclaim_pages()`.
pub(crate) fn reclaim_pages<P: Platform>(mm: &mut Mm<P>, list: Vec<Folio>) -> u64 {
    let mm = &mut *mm.enter(Op::ReclaimPages);
    if list.is_empty() {
        return 0;
    }
    mm.fentry(Event::FnReclaimFolioList);
    let (freed, left) = shrink_folio_list(mm, list, References::Ignore);
    for folio in left {
        mm.folio_putback_lru(folio);
    }
    freed
}

/// Whether recently used folios are spared (`ignore_references`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum References {
    Ignore,
    Respect,
}

/// What is to be done with a folio that is not reclaimed now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Verdict {
    /// `keep_locked`: back to its list.
    Keep,
    /// `activate_locked`: to the active list.
    Activate,
    /// Free: no mapping, no swap cache, one reference.
    Free,
    /// Split into pages, which follow in the list.
    Requeue,
}

/// Reclaims the folios of `list`; returns pages freed and the folios that stay.
/// Source: Linux mm/vmscan.c `shrink_folio_list()`.
fn shrink_folio_list<P: Platform>(
    mm: &mut Mm<P>,
    list: Vec<Folio>,
    references: References,
) -> (u64, Vec<Folio>) {
    let mm = &mut *mm.enter(Op::ShrinkFolioList);
    let mut queue = VecDeque::from(list);
    let mut left = Vec::new();
    let mut batch: Vec<Folio> = Vec::with_capacity(FOLIO_BATCH);
    let mut freed = 0;
    while let Some(folio) = queue.pop_front() {
        mm.vmstat.pgscan_anon += folio.nr_pages().get();
        if !mm.folio_trylock(folio) {
            left.push(folio);
            continue;
        }
        match shrink_folio(mm, folio, references, &mut queue) {
            Verdict::Free => {
                mm.folio_unlock(folio);
                freed += folio.nr_pages().get();
                mm.vmstat.pgsteal_anon += folio.nr_pages().get();
                batch.push(folio);
                if batch.len() == FOLIO_BATCH {
                    mm.try_to_unmap_flush();
                    free_batch(mm, &mut batch);
                }
            }
            Verdict::Keep => {
                mm.folio_unlock(folio);
                left.push(folio);
            }
            Verdict::Activate => {
                activate(mm, folio);
                left.push(folio);
            }
            Verdict::Requeue => {}
        }
    }
    mm.try_to_unmap_flush();
    free_batch(mm, &mut batch);
    (freed, left)
}

fn free_batch<P: Platform>(mm: &mut Mm<P>, batch: &mut Vec<Folio>) {
    for folio in batch.drain(..) {
        mm.folio_put_refs(folio, 1);
    }
}

fn activate<P: Platform>(mm: &mut Mm<P>, folio: Folio) {
    if mm.folio_test(folio, PageFlags::SWAPCACHE) && !mm.folio_test(folio, PageFlags::MLOCKED) {
        mm.folio_free_swap(folio);
    }
    mm.folio_set(folio, PageFlags::ACTIVE);
    mm.folio_unlock(folio);
}

fn shrink_folio<P: Platform>(
    mm: &mut Mm<P>,
    folio: Folio,
    references: References,
    queue: &mut VecDeque<Folio>,
) -> Verdict {
    if references == References::Respect && folio_check_references(mm, folio) {
        return Verdict::Activate;
    }
    let anon_swapbacked = mm.folio_test(folio, PageFlags::ANON | PageFlags::SWAPBACKED);
    if anon_swapbacked && !mm.folio_test(folio, PageFlags::SWAPCACHE) {
        if mm.folio_maybe_dma_pinned(folio) {
            return Verdict::Keep;
        }
        if let Some(verdict) = get_swap(mm, folio, queue) {
            return verdict;
        }
    }
    if mm.folio_mapped(folio) {
        let mut flags = Ttu::BATCH_FLUSH;
        if folio.is_pmd_mappable() {
            flags |= Ttu::SPLIT_HUGE_PMD;
        }
        if folio.is_large() {
            flags |= Ttu::SYNC;
        }
        rmap::try_to_unmap(mm, folio, flags);
        if mm.folio_mapped(folio) {
            return Verdict::Activate;
        }
    }
    if mm.folio_maybe_dma_pinned(folio) {
        return Verdict::Activate;
    }
    if mm.folio_test(folio, PageFlags::DIRTY) && mm.folio_test(folio, PageFlags::SWAPCACHE) {
        mm.try_to_unmap_flush_dirty();
        if !pageout(mm, folio) {
            return Verdict::Keep;
        }
    }
    remove_mapping(mm, folio)
}

/// Gives the folio a place in swap; `Some` if that settles its fate.
fn get_swap<P: Platform>(
    mm: &mut Mm<P>,
    folio: Folio,
    queue: &mut VecDeque<Folio>,
) -> Option<Verdict> {
    if folio.is_large() {
        let expected = 1 + mm.folio_mapcount(folio);
        if u64::from(mm.folio_ref_count(folio)) != expected {
            return Some(Verdict::Activate);
        }
        if mm.folio_test(folio, PageFlags::PARTIALLY_MAPPED) {
            return Some(split_to_list(mm, folio, queue));
        }
    }
    if mm.folio_alloc_swap(folio).is_ok() {
        return None;
    }
    if !folio.is_large() {
        return Some(Verdict::Activate);
    }
    if folio.is_pmd_mappable() {
        mm.vmstat.thp_swpout_fallback += 1;
    }
    if let Some(stats) = mm.thp.stats(folio.order) {
        stats.swpout_fallback += 1;
    }
    Some(split_to_list(mm, folio, queue))
}

/// `split_folio_to_list()`: the pages come next in the list. Those that nothing maps are gone.
fn split_to_list<P: Platform>(
    mm: &mut Mm<P>,
    folio: Folio,
    queue: &mut VecDeque<Folio>,
) -> Verdict {
    if !huge_memory::split_folio(mm, folio) {
        return Verdict::Activate;
    }
    let first = Folio { pfn: folio.pfn, order: Order::ZERO };
    mm.folio_unlock(first);
    for i in (1..folio.nr_pages().get()).rev() {
        let page = Folio { pfn: folio.pfn.add(i), order: Order::ZERO };
        if mm.folio_ref_count(page) > 0 && mm.folio_mapped(page) {
            mm.take_for_reclaim(page);
            queue.push_front(page);
        }
    }
    queue.push_front(first);
    Verdict::Requeue
}

impl<P: Platform> Mm<P> {
    /// A page of a folio that was just split, isolated like the folio was.
    fn take_for_reclaim(&mut self, page: Folio) {
        self.folio_ref_add(page, 1);
        if self.folio_test(page, PageFlags::LRU) {
            self.lru_del_folio(page);
        }
    }
}

/// `folio_check_references()`: whether the folio was used and should stay.
fn folio_check_references<P: Platform>(mm: &mut Mm<P>, folio: Folio) -> bool {
    mm.fentry(Event::FnFolioCheckReferences);
    rmap::folio_referenced(mm, folio) > 0
}

/// Source: Linux mm/vmscan.c `pageout()`.
fn pageout<P: Platform>(mm: &mut Mm<P>, folio: Folio) -> bool {
    mm.fentry(Event::FnPageout);
    // is_page_cache_freeable(): nobody but the swap cache and the isolation.
    if u64::from(mm.folio_ref_count(folio)) != 1 + folio.nr_pages().get() {
        return false;
    }
    mm.folio_clear(folio, PageFlags::DIRTY);
    mm.swap_writeout(folio);
    true
}

/// Takes the folio out of the swap cache, if nobody else holds it.
/// Source: Linux mm/vmscan.c `__remove_mapping()`.
fn remove_mapping<P: Platform>(mm: &mut Mm<P>, folio: Folio) -> Verdict {
    let cached = mm.folio_test(folio, PageFlags::SWAPCACHE);
    let n = if cached { folio.nr_pages().get() } else { 0 };
    if !cached {
        // A lazyfree folio that was discarded: only the isolation is left.
        return match mm.folio_ref_count(folio) {
            1 => {
                mm.vmstat.pglazyfreed += folio.nr_pages().get();
                Verdict::Free
            }
            _ => Verdict::Keep,
        };
    }
    if mm.pt.kernel.swap_api == SwapApi::Cluster {
        mm.fentry(Event::FnFolioFreeSwap);
    }
    mm.fentry(Event::FnUnderRemoveMapping);
    if u64::from(mm.folio_ref_count(folio)) != 1 + n || mm.folio_test(folio, PageFlags::DIRTY) {
        return Verdict::Keep;
    }
    mm.pt.pages.page_mut(folio.pfn).refcount = 1;
    mm.swap_cache_remove(folio);
    if mm.pt.kernel.swap_api == SwapApi::SlotCache {
        mm.fentry(Event::FnPutSwapFolio);
    }
    Verdict::Free
}

// ---- memory pressure

/// Frees memory for an allocation that failed. Returns pages freed.
/// Source: Linux mm/vmscan.c `try_to_free_pages()`.
//
// FIDELITY: direct-reclaim no kswapd, watermarks or priorities: reclaim starts when memory is out
pub(crate) fn try_to_free_pages<P: Platform>(mm: &mut Mm<P>) -> u64 {
    let mut freed = huge_memory::deferred_split_scan(mm);
    let folios = mm.lru.active.folios + mm.lru.inactive.folios;
    let mut scanned = 0;
    while freed < SWAP_CLUSTER_MAX as u64 && scanned < 2 * folios {
        if mm.lru.inactive.folios <= mm.lru.active.folios {
            shrink_active_list(mm);
        }
        let list = isolate_lru_folios(mm);
        if list.is_empty() {
            break;
        }
        scanned += list.len() as u64;
        let (n, left) = shrink_folio_list(mm, list, References::Respect);
        freed += n;
        for folio in left {
            mm.folio_putback_lru(folio);
        }
    }
    freed
}

fn shrink_active_list<P: Platform>(mm: &mut Mm<P>) {
    for _ in 0..SWAP_CLUSTER_MAX {
        let tail = mm.lru.active.tail;
        if tail == 0 {
            return;
        }
        let folio = mm.page_folio(Pfn::new(u64::from(tail) - 1));
        mm.lru_del_folio(folio);
        mm.folio_clear(folio, PageFlags::ACTIVE);
        mm.folio_add_lru(folio);
    }
}

fn isolate_lru_folios<P: Platform>(mm: &mut Mm<P>) -> Vec<Folio> {
    let mut list = Vec::new();
    while list.len() < SWAP_CLUSTER_MAX {
        let tail = mm.lru.inactive.tail;
        if tail == 0 {
            break;
        }
        let folio = mm.page_folio(Pfn::new(u64::from(tail) - 1));
        mm.folio_ref_add(folio, 1);
        mm.lru_del_folio(folio);
        list.push(folio);
    }
    list
}

impl<P: Platform> Mm<P> {
    /// A folio, reclaiming if memory has run out.
    pub(crate) fn folio_alloc_reclaiming(&mut self, order: Order) -> Option<Folio> {
        debug_assert!(order < PMD_ORDER, "large folios fall back instead of reclaiming");
        loop {
            if let Some(folio) = self.folio_alloc(order) {
                return Some(folio);
            }
            if try_to_free_pages(self) == 0 {
                return None;
            }
        }
    }

    /// A page table, reclaiming if memory has run out.
    pub(crate) fn alloc_table_reclaiming(&mut self) -> Option<PhysAddr> {
        loop {
            if let Some(table) = self.alloc_table() {
                return Some(table);
            }
            if try_to_free_pages(self) == 0 {
                return None;
            }
        }
    }
}
