//! Swap: slots in clusters, the swap cache, and where contents survive.
//!
//! One synchronous device, as zram is: a page is written when it is paged out and read when a
//! fault wants it, zero-filled ones leave only a bit. Source: Linux mm/swapfile.c,
//! mm/swap_state.c, mm/page_io.c.
//
// FIDELITY: swap-sync one synchronous device with LZ4 contents; no readahead, zswap or async I/O

use crate::Mm;
use crate::errno::Errno;
use crate::folio::Folio;
use arch::{Platform, Softleaf, SwapApi};
use events::Event;
use phys::PageFlags;
use units::{NrPages, Order, Pfn};

/// Slots of a cluster (`SWAPFILE_CLUSTER`): those of a PMD-sized folio.
const CLUSTER: u64 = 512;

/// What the device holds for a slot.
#[derive(Clone, Debug, Default)]
enum Content {
    /// Nothing yet.
    #[default]
    None,
    /// Zeroes (`zeromap`).
    Zero,
    /// A compressed page.
    Lz4(Box<[u8]>),
}

#[derive(Clone, Debug, Default)]
struct Slot {
    /// PTEs (or a folio being swapped in) that refer to the slot.
    count: u16,
    /// The page in the swap cache, as a frame number plus one.
    cached: u32,
    /// Never handed out (`SWAP_MAP_BAD`).
    bad: bool,
    content: Content,
}

impl Slot {
    fn is_free(&self) -> bool {
        self.count == 0 && self.cached == 0 && !self.bad
    }
}

/// A cluster in use.
#[derive(Debug)]
struct Cluster {
    slots: Vec<Slot>,
    used: u64,
    /// What is allocated from it, until it is empty again.
    order: Order,
}

/// Which clusters an order turns to when its own is used up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Prefer {
    /// Empty ones (until 6.17).
    Free,
    /// Partly used ones of the same order.
    Nonfull,
}

/// The swap device.
#[derive(Debug)]
pub(crate) struct Swap {
    clusters: Vec<Option<Box<Cluster>>>,
    slots: u64,
    used: u64,
    /// Cluster that each order allocates from, and where in it (`percpu_cluster`).
    next: [Option<u64>; 10],
    /// 6.12: slots the per-CPU cache still holds.
    slot_cache: u64,
}

impl Swap {
    /// A device of `pages` slots. The first holds the header, so that no entry is all zeroes.
    pub(crate) fn new(pages: u64) -> Self {
        let clusters = pages.div_ceil(CLUSTER);
        let mut swap = Swap {
            clusters: (0..clusters).map(|_| None).collect(),
            slots: pages,
            used: 0,
            next: [None; 10],
            slot_cache: 0,
        };
        if pages > 0 {
            swap.take(0, Order::ZERO, 1);
            swap.slot(0).bad = true;
        }
        swap
    }

    /// Slots that can be used.
    pub(crate) fn total(&self) -> u64 {
        self.slots.saturating_sub(1)
    }

    pub(crate) fn free(&self) -> u64 {
        self.slots - self.used
    }

    fn slot(&mut self, offset: u64) -> &mut Slot {
        let cluster = self.clusters[(offset / CLUSTER) as usize].as_mut();
        &mut cluster.expect("the slot is in use").slots[(offset % CLUSTER) as usize]
    }

    fn peek(&self, offset: u64) -> Option<&Slot> {
        let cluster = self.clusters.get((offset / CLUSTER) as usize)?.as_ref()?;
        cluster.slots.get((offset % CLUSTER) as usize)
    }

    /// References to a slot; 0 for one that does not exist.
    pub(crate) fn count(&self, offset: u64) -> u16 {
        self.peek(offset).map_or(0, |slot| slot.count)
    }

    /// The cached page of a slot.
    pub(crate) fn cached(&self, offset: u64) -> Option<Pfn> {
        let cached = self.peek(offset)?.cached;
        (cached != 0).then(|| Pfn::new(u64::from(cached) - 1))
    }

    /// `cluster_alloc_swap_entry()`: free, naturally aligned slots for a folio of `order`, first
    /// in the order's own cluster. Says whether it had to look for another cluster.
    fn alloc(&mut self, order: Order, prefer: Prefer) -> Option<(u64, bool)> {
        let n = order.pages();
        if self.free() < n {
            return None;
        }
        let own = usize::from(order.get());
        if let Some(at) = self.next[own]
            && self.is_usable(at / CLUSTER, order)
            && let Some(offset) = self.scan_cluster(at, n)
        {
            self.next[own] = Some(offset + n).filter(|next| !next.is_multiple_of(CLUSTER));
            return Some((offset, false));
        }
        let offset = self.other_cluster(order, prefer)?;
        self.next[own] = Some(offset + n).filter(|next| !next.is_multiple_of(CLUSTER));
        Some((offset, true))
    }

    /// `cluster_is_usable()`: whether the cluster is empty or of that order.
    fn is_usable(&self, cluster: u64, order: Order) -> bool {
        self.clusters[cluster as usize].as_ref().is_none_or(|c| c.order == order)
    }

    /// Slots in a cluster that is empty, or of the same order; single slots may come from any.
    fn other_cluster(&self, order: Order, prefer: Prefer) -> Option<u64> {
        let all = || (0..).zip(&self.clusters);
        let scan = |cluster: u64| self.scan_cluster(cluster * CLUSTER, order.pages());
        let free = || all().filter(|(_, c)| c.is_none()).find_map(|(i, _)| scan(i));
        let nonfull = || {
            let same = |c: &Cluster| c.order == order;
            all().filter(|(_, c)| c.as_deref().is_some_and(same)).find_map(|(i, _)| scan(i))
        };
        let first = match prefer {
            Prefer::Free => free().or_else(nonfull),
            Prefer::Nonfull => nonfull().or_else(free),
        };
        let steal = || all().find_map(|(i, _)| scan(i));
        first.or_else(|| if order == Order::ZERO { steal() } else { None })
    }

    fn scan_cluster(&self, from: u64, n: u64) -> Option<u64> {
        let end = ((from / CLUSTER + 1) * CLUSTER).min(self.slots);
        let cluster = self.clusters.get((from / CLUSTER) as usize)?;
        let mut offset = from.next_multiple_of(n);
        while offset + n <= end {
            let free = match cluster {
                None => true,
                Some(c) if c.used + n > CLUSTER => return None,
                Some(c) => {
                    let at = (offset % CLUSTER) as usize;
                    c.slots[at..at + n as usize].iter().all(Slot::is_free)
                }
            };
            if free {
                return Some(offset);
            }
            offset += n;
        }
        None
    }

    fn take(&mut self, offset: u64, order: Order, n: u64) {
        self.used += n;
        let cluster = self.clusters[(offset / CLUSTER) as usize].get_or_insert_with(|| {
            let slots = vec![Slot::default(); CLUSTER as usize];
            Box::new(Cluster { slots, used: 0, order })
        });
        cluster.used += n;
    }

    fn release_if_free(&mut self, offset: u64) {
        let slot = self.slot(offset);
        if !slot.is_free() {
            return;
        }
        slot.content = Content::None;
        self.used -= 1;
        let cluster = &mut self.clusters[(offset / CLUSTER) as usize];
        if let Some(c) = cluster {
            c.used -= 1;
            if c.used == 0 {
                *cluster = None;
            }
        }
    }
}

impl<P: Platform> Mm<P> {
    /// Where the folio is in the swap cache.
    pub(crate) fn folio_swap(&self, folio: Folio) -> Softleaf {
        Softleaf::swap(0, self.pt.pages.page(folio.pfn).private)
    }

    /// The swap slot of one page of a folio in the swap cache (`page_swap_entry`).
    pub(crate) fn page_swap_entry(&self, folio: Folio, page: Pfn) -> Softleaf {
        self.folio_swap(folio).advance(folio.index_of(page))
    }

    /// `folio_alloc_swap()` (6.12: `add_to_swap()`): slots for the folio, and into the swap
    /// cache with it.
    ///
    /// # Errors
    /// ENOSPC if no contiguous slots are free.
    pub(crate) fn folio_alloc_swap(&mut self, folio: Folio) -> Result<(), Errno> {
        self.fentry_since(Event::FnAddToSwap, Event::FnFolioAllocSwap);
        if self.pt.kernel.swap_api == SwapApi::SlotCache {
            self.fentry(Event::FnFolioAllocSwap);
            self.refill_slot_cache(folio);
        } else {
            self.fentry(Event::FnSwapAllocFast);
        }
        let prefer = match self.pt.kernel.swap_api {
            SwapApi::SlotCache => Prefer::Free,
            SwapApi::Cluster => Prefer::Nonfull,
        };
        let Some((offset, searched)) = self.swap.alloc(folio.order, prefer) else {
            return Err(Errno::ENOSPC);
        };
        if searched && self.pt.kernel.swap_api == SwapApi::Cluster {
            self.fentry(Event::FnSwapAllocSlow);
        }
        let n = folio.nr_pages().get();
        self.swap.take(offset, folio.order, n);
        for i in 0..n {
            self.swap.slot(offset + i).cached = (folio.pfn.get() + i) as u32 + 1;
        }
        self.folio_ref_add(folio, n);
        self.pt.pages.page_mut(folio.pfn).private = offset;
        self.folio_set(folio, PageFlags::SWAPCACHE);
        self.folio_set(folio, PageFlags::DIRTY);
        Ok(())
    }

    /// 6.12 keeps 64 single slots per CPU; larger folios go to the clusters directly.
    fn refill_slot_cache(&mut self, folio: Folio) {
        if folio.is_large() {
            self.fentry(Event::FnGetSwapPages);
        } else if self.swap.slot_cache == 0 {
            self.fentry(Event::FnGetSwapPages);
            self.swap.slot_cache = 63;
        } else {
            self.swap.slot_cache -= 1;
        }
    }

    /// `folio_dup_swap()`: one more reference to the slots of `nr` pages from `page` on.
    pub(crate) fn folio_dup_swap(&mut self, folio: Folio, page: Pfn, nr: NrPages) {
        if self.pt.kernel.swap_api == SwapApi::SlotCache {
            self.fentry(Event::FnSwapDuplicate);
            self.fentry(Event::FnUnderSwapDuplicate);
            self.pt.count(Event::FnUnderSwapDuplicatePages, nr.get());
        } else {
            self.fentry(Event::FnFolioDupSwap);
            self.fentry(Event::FnSwapDupEntriesCluster);
            self.pt.count(Event::FnSwapDupEntriesClusterPages, nr.get());
        }
        let entry = self.page_swap_entry(folio, page);
        self.swap_dup_entries(entry, nr);
    }

    /// `swap_dup_entries_cluster()`.
    pub(crate) fn swap_dup_entries(&mut self, entry: Softleaf, nr: NrPages) {
        self.pt.count(Event::SwapClusterLock, 1);
        self.pt.count(Event::SwapCountInc, nr.get());
        for i in 0..nr.get() {
            self.swap.slot(entry.offset + i).count += 1;
        }
    }

    /// `folio_put_swap()`: drops what [`Mm::folio_dup_swap`] took, in a failure or at swap-in.
    pub(crate) fn folio_put_swap(&mut self, folio: Folio, page: Pfn, nr: NrPages) {
        if self.pt.kernel.swap_api == SwapApi::SlotCache {
            self.fentry(Event::FnSwapFreeNr);
            self.pt.count(Event::FnSwapFreeNrPages, nr.get());
        } else {
            self.fentry(Event::FnFolioPutSwap);
            self.fentry(Event::FnSwapPutEntriesCluster);
            self.pt.count(Event::FnSwapPutEntriesClusterPages, nr.get());
        }
        let entry = self.page_swap_entry(folio, page);
        self.swap_put_entries(entry, nr);
    }

    /// One call of `swap_put_entries_cluster()` per cluster that the slots lie in.
    fn swap_put_entries_by_cluster(&mut self, entry: Softleaf, nr: NrPages) {
        if self.pt.kernel.swap_api == SwapApi::SlotCache {
            return self.swap_put_entries(entry, nr);
        }
        let mut done = 0;
        while done < nr.get() {
            let here = entry.advance(done);
            let run = (CLUSTER - here.offset % CLUSTER).min(nr.get() - done);
            self.fentry(Event::FnSwapPutEntriesCluster);
            self.pt.count(Event::FnSwapPutEntriesClusterPages, run);
            self.swap_put_entries(here, NrPages::new(run));
            done += run;
        }
    }

    fn swap_put_entries(&mut self, entry: Softleaf, nr: NrPages) {
        self.pt.count(Event::SwapClusterLock, 1);
        for i in 0..nr.get() {
            self.swap.slot(entry.offset + i).count -= 1;
            self.swap.release_if_free(entry.offset + i);
        }
    }

    /// `free_swap_and_cache_nr()` (`swap_put_entries_direct()`): PTEs that referred to `nr`
    /// slots are gone; pages that only the swap cache still holds go too.
    pub(crate) fn swap_put_entries_direct(&mut self, entry: Softleaf, nr: NrPages) {
        if self.pt.kernel.swap_api == SwapApi::SlotCache {
            self.fentry(Event::FnFreeSwapAndCacheNr);
            self.pt.count(Event::FnFreeSwapAndCacheNrPages, nr.get());
        } else {
            self.fentry(Event::FnSwapPutEntriesDirect);
            self.pt.count(Event::FnSwapPutEntriesDirectPages, nr.get());
        }
        self.swap_put_entries_by_cluster(entry, nr);
        for i in 0..nr.get() {
            let Some(pfn) = self.swap.cached(entry.offset + i) else { continue };
            let folio = self.page_folio(pfn);
            if !self.folio_mapped(folio) {
                self.folio_free_swap(folio);
            }
        }
    }

    /// `folio_free_swap()`: takes the folio out of the swap cache if no entry refers to its
    /// slots any more.
    pub(crate) fn folio_free_swap(&mut self, folio: Folio) -> bool {
        if self.pt.kernel.swap_api == SwapApi::Cluster {
            self.fentry(Event::FnFolioFreeSwap);
        }
        if !self.folio_test(folio, PageFlags::SWAPCACHE)
            || self.folio_test(folio, PageFlags::WRITEBACK)
        {
            return false;
        }
        let first = self.folio_swap(folio).offset;
        if (0..folio.nr_pages().get()).any(|i| self.swap.count(first + i) > 0) {
            return false;
        }
        self.swap_cache_del_folio(folio);
        self.folio_set(folio, PageFlags::DIRTY);
        true
    }

    /// `swap_cache_del_folio()`: out of the swap cache; the slots live on if entries refer to
    /// them.
    pub(crate) fn swap_cache_del_folio(&mut self, folio: Folio) {
        if self.pt.kernel.swap_api == SwapApi::Cluster {
            self.fentry(Event::FnSwapCacheDelFolio);
        }
        self.swap_cache_remove(folio);
        self.folio_put_refs(folio, folio.nr_pages().get());
    }

    /// `__swap_cache_del_folio()`: the same for a folio whose references are frozen.
    pub(crate) fn swap_cache_remove(&mut self, folio: Folio) {
        self.fentry_since(Event::FnUnderDeleteFromSwapCache, Event::FnUnderSwapCacheDelFolio);
        let first = self.folio_swap(folio).offset;
        for i in 0..folio.nr_pages().get() {
            self.swap.slot(first + i).cached = 0;
            self.swap.release_if_free(first + i);
        }
        self.folio_clear(folio, PageFlags::SWAPCACHE);
        self.pt.pages.page_mut(folio.pfn).private = 0;
    }

    /// `swap_cache_add_folio()`: a folio read back from its slots.
    pub(crate) fn swap_cache_add(&mut self, folio: Folio, entry: Softleaf) {
        if self.pt.kernel.swap_api == SwapApi::Cluster {
            self.fentry(Event::FnUnderSwapCacheAlloc);
        } else {
            self.fentry(Event::FnSwapcachePrepare);
        }
        for i in 0..folio.nr_pages().get() {
            self.swap.slot(entry.offset + i).cached = (folio.pfn.get() + i) as u32 + 1;
        }
        self.folio_ref_add(folio, folio.nr_pages().get());
        self.pt.pages.page_mut(folio.pfn).private = entry.offset;
        self.folio_set(folio, PageFlags::SWAPCACHE);
    }

    /// `swap_writeout()` (6.12: `swap_writepage()`): stores the folio in its slots.
    pub(crate) fn swap_writeout(&mut self, folio: Folio) {
        self.fentry_since(Event::FnSwapWritepage, Event::FnSwapWriteout);
        let first = self.folio_swap(folio).offset;
        let n = folio.nr_pages().get();
        self.pt.count(Event::PageScanZero, n);
        if self.pt.ram.is_zero(folio.pfn, n) {
            if self.pt.kernel.swap_api == SwapApi::Cluster {
                self.fentry(Event::FnSwapZeromapFolioSet);
            }
            for i in 0..n {
                self.swap.slot(first + i).content = Content::Zero;
            }
            self.vmstat.swpout_zero += n;
            return;
        }
        if self.pt.kernel.swap_api == SwapApi::Cluster {
            self.fentry(Event::FnUnderSwapWritepage);
        }
        self.pt.count(Event::PageCompress, n);
        for i in 0..n {
            let packed = lz4_flex::block::compress(self.pt.ram.frame(folio.pfn.add(i)));
            self.swap.slot(first + i).content = Content::Lz4(packed.into_boxed_slice());
        }
        self.vmstat.pswpout += n;
        if folio.is_pmd_mappable() {
            self.vmstat.thp_swpout += 1;
        }
        if let Some(stats) = self.thp.stats(folio.order) {
            stats.swpout += 1;
        }
    }

    /// `swap_read_folio()`: fills the folio from its slots.
    pub(crate) fn swap_read_folio(&mut self, folio: Folio, entry: Softleaf) {
        self.fentry(Event::FnSwapReadFolio);
        let n = folio.nr_pages().get();
        let mut zeroes = 0;
        for i in 0..n {
            let content = std::mem::take(&mut self.swap.slot(entry.offset + i).content);
            let pfn = folio.pfn.add(i);
            match &content {
                Content::Zero | Content::None => {
                    zeroes += 1;
                    if self.pt.pages.page(pfn).flags.contains(PageFlags::DIRTIED) {
                        self.pt.ram.zero_frames(pfn, 1);
                    }
                }
                Content::Lz4(packed) => {
                    let frame = self.pt.ram.frame_mut(pfn);
                    let got = lz4_flex::block::decompress_into(packed, frame);
                    assert_eq!(got.ok(), Some(frame.len()), "a swapped page decompresses whole");
                }
            }
            self.swap.slot(entry.offset + i).content = content;
        }
        if zeroes == n {
            self.pt.count(Event::PageZero, n);
            self.vmstat.swpin_zero += n;
        } else {
            self.pt.count(Event::PageDecompress, n);
            self.vmstat.pswpin += n;
            if let Some(stats) = self.thp.stats(folio.order) {
                stats.swpin += 1;
            }
        }
        self.folio_set(folio, PageFlags::UPTODATE);
    }

    /// Whether `entry` is a slot that something refers to; anything else in a PTE is corrupt.
    pub(crate) fn swap_entry_is_valid(&self, entry: Softleaf) -> bool {
        entry.ty == 0 && self.swap.count(entry.offset) > 0
    }

    /// `free_folio_and_swap_cache()`: what an mmu_gather does with pages after the flush: a
    /// folio that only the swap cache and this batch hold leaves the cache.
    pub(crate) fn free_page_and_swap_cache(&mut self, page: Pfn, nr: u64) {
        let folio = self.page_folio(page);
        if self.folio_test(folio, PageFlags::SWAPCACHE) && !self.folio_mapped(folio) {
            self.folio_free_swap(folio);
        }
        self.folio_put_refs(folio, nr);
    }
}

impl<P: Platform> Mm<P> {
    /// `swap_duplicate()`: a fork copies one swap entry.
    pub(crate) fn swap_duplicate(&mut self, entry: Softleaf) {
        if self.pt.kernel.swap_api == SwapApi::SlotCache {
            self.fentry(Event::FnSwapDuplicate);
            self.fentry(Event::FnUnderSwapDuplicate);
            self.pt.count(Event::FnUnderSwapDuplicatePages, 1);
        } else {
            self.fentry(Event::FnSwapDupEntriesCluster);
            self.pt.count(Event::FnSwapDupEntriesClusterPages, 1);
        }
        self.swap_dup_entries(entry, NrPages::ONE);
    }

    /// Takes a folio read by a synchronous fault out of the cache that 6.12 never put it in.
    pub(crate) fn swap_cache_detach(&mut self, folio: Folio) {
        let first = self.folio_swap(folio).offset;
        for i in 0..folio.nr_pages().get() {
            self.swap.slot(first + i).cached = 0;
            self.swap.release_if_free(first + i);
        }
        self.folio_clear(folio, PageFlags::SWAPCACHE);
        self.pt.pages.page_mut(folio.pfn).private = 0;
        self.folio_put_refs(folio, folio.nr_pages().get());
    }

    /// Slots that refer to pages, for `validate()`: offset and references.
    pub(crate) fn swap_counts(&self) -> Vec<(u64, u16)> {
        let mut counts = Vec::new();
        for (c, cluster) in self.swap.clusters.iter().enumerate() {
            let Some(cluster) = cluster else { continue };
            for (i, slot) in cluster.slots.iter().enumerate() {
                if slot.count > 0 {
                    counts.push((c as u64 * CLUSTER + i as u64, slot.count));
                }
            }
        }
        counts
    }
}
