//! Reverse mapping: from a folio to the entries that map it, and taking them away.
//!
//! Source: Linux mm/rmap.c.

use crate::folio::Folio;
use crate::huge_memory::{Freeze, Mapping};
use crate::page_vma_mapped::{Mapped, PageVmaMappedWalk, Pvmw};
use crate::pte_batch::Fpb;
use crate::vma::{VmFlags, Vma, VmaId};
use crate::{Mm, huge_memory, ksm};
use arch::{FlushRange, LeafOnly, Platform, Pmdp, Pte, Ptep, SwapApi, Teardown};
use events::{Event, Op};
use phys::PageFlags;
use units::{NrPages, PMD_SIZE, Pfn, Reach, VirtAddr};

/// An anon_vma: who may map the anonymous pages that were created under it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct AnonVmaId(u32);

/// VMAs attached to each anon_vma.
#[derive(Debug, Default)]
pub(crate) struct AnonVmas {
    vmas: Vec<Vec<VmaId>>,
    /// The oldest ancestor of each, across forks: whoever may map one may map the root's.
    roots: Vec<AnonVmaId>,
}

bitflags::bitflags! {
    /// `enum ttu_flags`.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub(crate) struct Ttu: u8 {
        /// TTU_BATCH_FLUSH: flushes may be put off.
        const BATCH_FLUSH = 1;
        /// TTU_SPLIT_HUGE_PMD: PMD leaves become PTEs first.
        const SPLIT_HUGE_PMD = 2;
        /// TTU_SYNC: rely on the page-table lock.
        const SYNC = 4;
        /// TTU_IGNORE_MLOCK.
        const IGNORE_MLOCK = 8;
    }
}

/// How a mapping entry is accounted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Exclusive {
    /// `RMAP_EXCLUSIVE`.
    Yes,
    /// Possibly shared.
    No,
}

/// The unmapping of one folio from one VMA stopped early.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Aborted;

impl<P: Platform> Mm<P> {
    /// `anon_vma_prepare()`: the VMA gets an anon_vma if it has none.
    pub(crate) fn anon_vma_prepare(&mut self, id: VmaId) -> AnonVmaId {
        if let Some(anon_vma) = self.vma(id).anon_vma {
            return anon_vma;
        }
        let new = AnonVmaId(u32::try_from(self.anon_vmas.vmas.len()).expect("anon_vmas are few"));
        self.anon_vmas.vmas.push(Vec::new());
        self.anon_vmas.roots.push(new);
        self.vmas[id.index()].anon_vma = Some(new);
        self.link_anon_vma(id, new);
        new
    }

    fn link_anon_vma(&mut self, id: VmaId, anon_vma: AnonVmaId) {
        self.anon_chains[id.index()].push(anon_vma);
        self.anon_vmas.vmas[anon_vma.0 as usize].push(id);
    }

    /// `anon_vma_clone()`: `to` may map whatever `from` may.
    pub(crate) fn clone_anon_vmas(&mut self, from: VmaId, to: VmaId) {
        for anon_vma in self.anon_chains[from.index()].clone() {
            if !self.anon_chains[to.index()].contains(&anon_vma) {
                self.link_anon_vma(to, anon_vma);
            }
        }
    }

    /// `anon_vma_fork()`: the child's VMA may map what the parent's may, and gets an anon_vma
    /// of its own for new pages.
    pub(crate) fn anon_vma_fork(&mut self, parent: VmaId, child: VmaId) {
        self.clone_anon_vmas(parent, child);
        self.vmas[child.index()].anon_vma = None;
        let own = self.anon_vma_prepare(child);
        if let Some(of_parent) = self.vma(parent).anon_vma {
            self.anon_vmas.roots[own.0 as usize] = self.anon_vmas.roots[of_parent.0 as usize];
        }
    }

    /// The anon_vma under which a page can be found by everyone who may share it with the VMA: a
    /// page that is not exclusive may be mapped by relatives.
    pub(crate) fn anon_vma_root(&mut self, id: VmaId) -> AnonVmaId {
        let own = self.anon_vma_prepare(id);
        self.anon_vmas.roots[own.0 as usize]
    }

    /// For `validate()`: whether a walk from the folio would come to `va` of the VMA.
    pub(crate) fn rmap_finds(&self, folio: Folio, page: Pfn, id: VmaId, va: VirtAddr) -> bool {
        if self.folio_test_ksm(folio) {
            // A fork is not found once ksmd has dropped the item that it descends from.
            return true;
        }
        let head = self.pt.pages.page(folio.pfn);
        let index = head.index + folio.index_of(page);
        self.anon_vmas.vmas[head.mapping as usize].contains(&id)
            && self.vma(id).address_of(index) == Some(va)
    }

    /// VMAs that may map pages created under the anon_vma.
    pub(crate) fn anon_vma_members(&self, anon_vma: AnonVmaId) -> &[VmaId] {
        &self.anon_vmas.vmas[anon_vma.0 as usize]
    }

    /// `unlink_anon_vmas()`.
    pub(crate) fn unlink_anon_vmas(&mut self, id: VmaId) {
        for anon_vma in std::mem::take(&mut self.anon_chains[id.index()]) {
            self.anon_vmas.vmas[anon_vma.0 as usize].retain(|&v| v != id);
        }
    }

    /// VMAs that may map the folio, with the address of its first page there (`rmap_walk_anon`).
    fn rmap_walk(&self, folio: Folio) -> Vec<(VmaId, VirtAddr)> {
        let head = self.pt.pages.page(folio.pfn);
        if !head.flags.contains(PageFlags::ANON) {
            return Vec::new();
        }
        if self.folio_test_ksm(folio) {
            return ksm::rmap_walk_ksm(self, folio);
        }
        let pages = folio.nr_pages().get();
        self.anon_vmas.vmas[head.mapping as usize]
            .iter()
            .filter_map(|&id| {
                let vma = self.vma(id);
                // The first page of the folio that the VMA covers decides the address.
                let first = (head.index..head.index + pages).find_map(|i| vma.address_of(i))?;
                Some((id, first))
            })
            .collect()
    }

    /// `folio_add_new_anon_rmap()`: a fresh folio, mapped whole by PTEs from `at` on or by a
    /// PMD leaf.
    pub(crate) fn folio_add_new_anon_rmap(&mut self, folio: Folio, id: VmaId, at: VirtAddr) {
        self.fentry(Event::FnFolioAddNewAnonRmap);
        let anon_vma = self.anon_vma_prepare(id);
        let index = self.vma(id).pgoff_of(at);
        let droppable = self.vma(id).flags.contains(VmFlags::DROPPABLE);
        let head = self.pt.pages.page_mut(folio.pfn);
        head.flags.insert(PageFlags::ANON | PageFlags::UPTODATE);
        head.flags.set(PageFlags::SWAPBACKED, !droppable);
        head.mapping = anon_vma.0;
        head.index = index;
        if folio.is_pmd_mappable() {
            head.entire_mapcount = 1;
            head.large_mapcount = 1;
            head.flags.insert(PageFlags::ANON_EXCLUSIVE);
        } else {
            let n = folio.nr_pages().get();
            for i in 0..n {
                let page = self.pt.pages.page_mut(folio.pfn.add(i));
                page.mapcount = 1;
                page.flags.insert(PageFlags::ANON_EXCLUSIVE);
            }
            if folio.is_large() {
                let head = self.pt.pages.page_mut(folio.pfn);
                head.large_mapcount = n as u32;
                head.nr_pages_mapped = n as u32;
            }
        }
        if let Some(stats) = self.thp.stats(folio.order) {
            stats.nr_anon += 1;
        }
    }

    /// `folio_add_anon_rmap_ptes()`: PTEs map `nr` pages from `page` on, of a folio that is
    /// anonymous already.
    pub(crate) fn folio_add_anon_rmap_ptes(
        &mut self,
        folio: Folio,
        page: Pfn,
        nr: NrPages,
        exclusive: Exclusive,
    ) {
        self.fentry(Event::FnFolioAddAnonRmapPtes);
        self.pt.count(Event::FnFolioAddAnonRmapPtesPages, nr.get());
        self.add_mapcounts(folio, page, nr);
        if exclusive == Exclusive::Yes {
            for i in 0..nr.get() {
                self.set_page_anon_exclusive(page.add(i));
            }
        }
    }

    /// `folio_add_file_rmap_ptes()` and the mapcount half of every other form.
    pub(crate) fn add_mapcounts(&mut self, folio: Folio, page: Pfn, nr: NrPages) {
        if folio.is_large() {
            self.pt.count(Event::LargeMapcountLock, 1);
            let mut first_mapped = 0;
            for i in 0..nr.get() {
                let page = self.pt.pages.page_mut(page.add(i));
                first_mapped += u32::from(page.mapcount == 0);
                page.mapcount += 1;
            }
            let head = self.pt.pages.page_mut(folio.pfn);
            head.large_mapcount += nr.get() as u32;
            head.nr_pages_mapped += first_mapped;
        } else {
            self.pt.pages.page_mut(folio.pfn).mapcount += 1;
        }
        self.pt.count(Event::MapcountRmw, nr.get());
    }

    /// `folio_remove_rmap_ptes()`: PTEs of `nr` pages from `page` on are gone. A large folio
    /// that stays partly mapped is queued for a split.
    pub(crate) fn folio_remove_rmap_ptes(&mut self, folio: Folio, page: Pfn, nr: NrPages) {
        self.fentry(Event::FnFolioRemoveRmapPtes);
        self.pt.count(Event::FnFolioRemoveRmapPtesPages, nr.get());
        self.pt.count(Event::MapcountRmw, nr.get());
        if !folio.is_large() {
            self.pt.pages.page_mut(folio.pfn).mapcount -= 1;
            return;
        }
        self.pt.count(Event::LargeMapcountLock, 1);
        let mut last_mapped = 0;
        for i in 0..nr.get() {
            let page = self.pt.pages.page_mut(page.add(i));
            page.mapcount -= 1;
            last_mapped += u32::from(page.mapcount == 0);
        }
        let head = self.pt.pages.page_mut(folio.pfn);
        head.large_mapcount -= nr.get() as u32;
        head.nr_pages_mapped -= last_mapped;
        let anon = head.flags.contains(PageFlags::ANON);
        let partial = last_mapped > 0 && head.nr_pages_mapped > 0 && head.entire_mapcount == 0;
        if anon && partial && !head.flags.contains(PageFlags::PARTIALLY_MAPPED) {
            huge_memory::deferred_split_folio(self, folio, Mapping::Partial);
        }
    }

    /// `folio_remove_rmap_pmd()`.
    pub(crate) fn folio_remove_rmap_pmd(&mut self, folio: Folio) {
        self.fentry(Event::FnFolioRemoveRmapPmd);
        self.pt.count(Event::MapcountRmw, 1);
        self.pt.count(Event::LargeMapcountLock, 1);
        let head = self.pt.pages.page_mut(folio.pfn);
        head.entire_mapcount -= 1;
        head.large_mapcount -= 1;
        let partial = head.entire_mapcount == 0
            && head.nr_pages_mapped > 0
            && u64::from(head.nr_pages_mapped) < folio.nr_pages().get();
        let known = head.flags.contains(PageFlags::PARTIALLY_MAPPED);
        if head.flags.contains(PageFlags::ANON) && partial && !known {
            huge_memory::deferred_split_folio(self, folio, Mapping::Partial);
        }
    }

    /// `folio_try_share_anon_rmap_ptes()`: the pages stop being exclusive, unless GUP may have
    /// pinned them. The PTEs were cleared before, so that GUP-fast sees either the empty PTE or
    /// the missing flag.
    ///
    /// # Errors
    /// [`Aborted`] if the folio may be pinned.
    pub(crate) fn folio_try_share_anon_rmap_ptes(
        &mut self,
        folio: Folio,
        page: Pfn,
        nr: NrPages,
    ) -> Result<(), Aborted> {
        if self.pt.kernel.swap_api == SwapApi::Cluster && nr == NrPages::ONE {
            self.fentry(Event::FnUnderFolioTryShareAnonRmap);
        }
        self.pt.count(Event::AnonExclusiveBarrier, 1);
        if self.folio_maybe_dma_pinned(folio) {
            return Err(Aborted);
        }
        for i in 0..nr.get() {
            self.clear_page_anon_exclusive(page.add(i));
        }
        self.pt.count(Event::AnonExclusiveBarrier, 1);
        Ok(())
    }

    /// `set_tlb_ubc_flush_pending()`: `nr` PTEs from `at` on were cleared, and the flush may wait
    /// for `try_to_unmap_flush()`.
    pub(crate) fn set_tlb_ubc_flush_pending(&mut self, at: Ptep, pte: Pte<P::Arch>, nr: NrPages) {
        self.fentry(Event::FnSetTlbUbcFlushPending);
        if self.pt.kernel.swap_api == SwapApi::Cluster {
            self.pt.count(Event::FnSetTlbUbcFlushPendingPages, nr.get());
        }
        if !pte.is_accessible() {
            return;
        }
        self.pt.tlbbatch_add_pending(at.mm, at.va, nr);
        self.ubc.flush_required = true;
        self.ubc.writable |= pte.is_dirty();
        self.pt.count(Event::TlbFlushBatchedInc, 1);
        self.mm_mut(at.mm).tlb_batch_pending += 1;
    }

    /// `should_defer_flush()`.
    pub(crate) fn should_defer_flush(&self, mm: arch::MmId, flags: Ttu) -> bool {
        flags.contains(Ttu::BATCH_FLUSH) && self.pt.tlbbatch_should_defer(mm)
    }

    /// `try_to_unmap_flush()`: the deferred flushes happen now.
    pub(crate) fn try_to_unmap_flush(&mut self) {
        let mm = &mut *self.enter(Op::TryToUnmapFlush);
        if !mm.ubc.flush_required {
            return;
        }
        mm.pt.tlbbatch_flush();
        mm.ubc = Ubc::default();
    }

    /// `try_to_unmap_flush_dirty()`: before I/O, a page must not be written through a stale
    /// entry any more.
    pub(crate) fn try_to_unmap_flush_dirty(&mut self) {
        let mm = &mut *self.enter(Op::TryToUnmapFlushDirty);
        if mm.ubc.writable {
            mm.try_to_unmap_flush();
        }
    }

    /// `flush_tlb_batched_pending()`: who is about to rely on the page tables of `mm` must not
    /// race with flushes that reclaim put off.
    pub(crate) fn flush_tlb_batched_pending(&mut self, id: arch::MmId) {
        let mm = &mut *self.enter(Op::FlushTlbBatchedPending);
        let ms = mm.mm_struct(id);
        let pending = ms.tlb_batch_pending;
        if pending == ms.tlb_batch_flushed {
            return;
        }
        if mm.pt.kernel.swap_api == SwapApi::SlotCache {
            mm.fentry(Event::FnArchFlushTlbBatchedPending);
        }
        mm.pt.flush_tlb_mm(id);
        mm.mm_mut(id).tlb_batch_flushed = pending;
    }
}

/// Unmaps whose flush the running task has put off (`struct tlbflush_unmap_batch`).
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Ubc {
    flush_required: bool,
    writable: bool,
}

/// Replaces every entry that maps `folio` by a swap entry or nothing.
/// Source: Linux mm/rmap.c `try_to_unmap()`.
pub(crate) fn try_to_unmap<P: Platform>(mm: &mut Mm<P>, folio: Folio, flags: Ttu) {
    mm.fentry(Event::FnTryToUnmap);
    for (id, address) in mm.rmap_walk(folio) {
        if try_to_unmap_one(mm, folio, id, address, flags).is_err() {
            break;
        }
        if !mm.folio_mapped(folio) {
            break;
        }
    }
}

/// Unmaps `folio` from one VMA, one batch of PTEs at a time.
/// Source: Linux mm/rmap.c `try_to_unmap_one()`.
pub(crate) fn try_to_unmap_one<P: Platform>(
    mm: &mut Mm<P>,
    folio: Folio,
    id: VmaId,
    address: VirtAddr,
    mut flags: Ttu,
) -> Result<(), Aborted> {
    let mm = &mut *mm.enter(Op::TryToUnmapOne);
    let vma = *mm.vma(id);
    let mode = if flags.contains(Ttu::SYNC) { Pvmw::Sync } else { Pvmw::Racy };
    let mut walk = PageVmaMappedWalk::new(folio, &vma, address, mode);
    while let Some(mapped) = walk.next(mm) {
        if vma.flags.contains(VmFlags::LOCKED) && !flags.contains(Ttu::IGNORE_MLOCK) {
            return Err(Aborted);
        }
        let at = match mapped {
            Mapped::Pte(at) => at,
            Mapped::Pmd(pmdp) => {
                if mm.pt.kernel.lazyfree_pmd_discard
                    && !vma.flags.contains(VmFlags::DROPPABLE)
                    && huge_memory::unmap_huge_pmd_locked(mm, folio, pmdp)?
                {
                    return Ok(());
                }
                if !flags.contains(Ttu::SPLIT_HUGE_PMD) {
                    return Err(Aborted);
                }
                huge_memory::split_huge_pmd_locked(mm, id, pmdp, Freeze::No);
                flags.remove(Ttu::SPLIT_HUGE_PMD);
                walk.restart();
                continue;
            }
        };
        let pte = mm.pt.ptep_get(at);
        debug_assert!(pte.is_present() && folio.contains(pte.pfn()));
        let nr = folio_unmap_pte_batch(mm, folio, &vma, at, pte);
        let pte = ttu_clear_ptes(mm, at, nr, flags);
        if pte.is_dirty() {
            mm.folio_set(folio, PageFlags::DIRTY);
        }
        cond_install_uffd_wp_ptes(mm, folio, at, nr);
        mm.update_hiwater_rss(vma.mm);
        if mm.folio_test(folio, PageFlags::ANON) {
            if mm.folio_test(folio, PageFlags::SWAPBACKED) {
                ttu_anon_swapbacked_folio(mm, folio, at, pte, nr)?;
            } else {
                ttu_anon_lazyfree_folio(mm, folio, &vma, at, pte, nr)?;
            }
        } else {
            mm.add_rss_file(vma.mm, folio, -nr_i64(nr));
            mm.folio_remove_rmap_ptes(folio, pte.pfn(), nr);
            mm.folio_put_refs(folio, nr.get());
        }
        // Without batches there is no such shortcut: the walk finds its end by itself.
        let batches = mm.pt.kernel.lazyfree_unmap_batched || nr > NrPages::ONE;
        if batches && nr == folio.nr_pages() {
            break;
        }
        walk.advance(nr);
    }
    Ok(())
}

fn nr_i64(nr: NrPages) -> i64 {
    i64::try_from(nr.get()).expect("a batch is at most a page table")
}

/// Clears `nr` PTEs and flushes them, now or later.
fn ttu_clear_ptes<P: Platform>(mm: &mut Mm<P>, at: Ptep, nr: NrPages, flags: Ttu) -> Pte<P::Arch> {
    if mm.should_defer_flush(at.mm, flags) {
        let pte = mm.ttu_get_and_clear(at, nr);
        mm.set_tlb_ubc_flush_pending(at, pte, nr);
        return pte;
    }
    if mm.pt.kernel.swap_api == SwapApi::SlotCache && nr == NrPages::ONE {
        return mm.pt.ptep_clear_flush(at);
    }
    let pte = mm.ttu_get_and_clear(at, nr);
    let end = at.va.wrapping_add(nr.bytes());
    let range = FlushRange { start: at.va, end, stride: Reach::K4, leaf_only: LeafOnly::No };
    mm.pt.flush_tlb_range(at.mm, range);
    pte
}

/// How many PTEs from `at` on are unmapped together.
/// Source: Linux mm/rmap.c `folio_unmap_pte_batch()`.
fn folio_unmap_pte_batch<P: Platform>(
    mm: &mut Mm<P>,
    folio: Folio,
    vma: &Vma,
    at: Ptep,
    pte: Pte<P::Arch>,
) -> NrPages {
    if mm.pt.kernel.lazyfree_unmap_batched {
        mm.fentry(Event::FnFolioUnmapPteBatch);
    }
    if !folio.is_large() {
        return NrPages::ONE;
    }
    let swapbacked_anon = mm.folio_test(folio, PageFlags::ANON | PageFlags::SWAPBACKED);
    let batched = match swapbacked_anon {
        true => mm.pt.kernel.anon_unmap_batched,
        false => mm.pt.kernel.lazyfree_unmap_batched,
    };
    if !batched {
        return NrPages::ONE;
    }
    let table_end = at.va.align_down(PMD_SIZE).wrapping_add(PMD_SIZE);
    let end = table_end.min(vma.end);
    let max = NrPages::covering(end.bytes_since(at.va));
    mm.folio_pte_batch(folio, at, pte, max, Fpb::RESPECT_WRITE | Fpb::RESPECT_SOFT_DIRTY).nr
}

/// The marker that keeps a uffd write protection of a file page; for anonymous memory it only
/// looks whether the PTE is empty. Source: Linux mm/memory.c `cond_install_uffd_wp_ptes()`.
fn cond_install_uffd_wp_ptes<P: Platform>(mm: &mut Mm<P>, folio: Folio, at: Ptep, nr: NrPages) {
    if !mm.pt.kernel.pte_marker_uffd_wp {
        return;
    }
    if nr > NrPages::ONE
        && mm.folio_test(folio, PageFlags::ANON | PageFlags::SWAPBACKED)
        && !mm.pt.kernel.anon_unmap_marker_check
    {
        return;
    }
    if mm.pt.kernel.swap_api == SwapApi::Cluster {
        mm.fentry(Event::FnCondInstallUffdWpPtes);
        mm.pt.count(Event::FnCondInstallUffdWpPtesPages, nr.get());
    }
    let pte = mm.pt.ptep_get(at);
    debug_assert!(pte.is_none(), "the PTE was just cleared");
}

/// Swap entries for `nr` just-cleared PTEs, one sub-batch of equal PageAnonExclusive after the
/// other. Source: Linux mm/rmap.c `ttu_anon_swapbacked_folio()`, batched by patch
/// `anon-unmap-batch`.
///
/// # Errors
/// [`Aborted`] if a page may be pinned; the PTEs of what was not yet converted are back then.
fn ttu_anon_swapbacked_folio<P: Platform>(
    mm: &mut Mm<P>,
    folio: Folio,
    mut at: Ptep,
    mut pte: Pte<P::Arch>,
    nr: NrPages,
) -> Result<(), Aborted> {
    let mut left = nr.get();
    while left > 0 {
        let page = pte.pfn();
        let sub = page_anon_exclusive_batch(mm, page, NrPages::new(left));
        if ttu_anon_swapbacked_pages(mm, folio, at, pte, sub).is_err() {
            mm.pt.set_ptes(at, pte, NrPages::new(left));
            return Err(Aborted);
        }
        left -= sub.get();
        if left > 0 {
            at = at.add(sub.get());
            pte = pte.advance_pfn(sub.get());
        }
    }
    Ok(())
}

/// How many pages from `page` on agree in PageAnonExclusive.
fn page_anon_exclusive_batch<P: Platform>(mm: &Mm<P>, page: Pfn, max: NrPages) -> NrPages {
    let first = mm.page_anon_exclusive(page);
    let same = (1..max.get()).take_while(|&i| mm.page_anon_exclusive(page.add(i)) == first);
    NrPages::new(1 + same.count() as u64)
}

/// One sub-batch: `nr` pages, all exclusive or none.
fn ttu_anon_swapbacked_pages<P: Platform>(
    mm: &mut Mm<P>,
    folio: Folio,
    at: Ptep,
    pte: Pte<P::Arch>,
    nr: NrPages,
) -> Result<(), Aborted> {
    let batched = mm.pt.kernel.anon_unmap_batched && folio.is_large();
    if mm.pt.kernel.swap_api == SwapApi::Cluster && !batched {
        mm.fentry(Event::FnTtuAnonSwapbackedFolio);
    }
    let page = pte.pfn();
    if !mm.folio_test(folio, PageFlags::SWAPCACHE) {
        return Err(Aborted);
    }
    mm.folio_dup_swap(folio, page, nr);
    let exclusive = mm.page_anon_exclusive(page);
    if exclusive && mm.folio_try_share_anon_rmap_ptes(folio, page, nr).is_err() {
        mm.folio_put_swap(folio, page, nr);
        return Err(Aborted);
    }
    mm.add_rss_anon(at.mm, -nr_i64(nr));
    mm.add_rss_swapents(at.mm, nr_i64(nr));
    let mut swp_pte = Pte::from_softleaf(mm.page_swap_entry(folio, page));
    if exclusive {
        swp_pte = swp_pte.swp_mkexclusive();
    }
    if pte.is_soft_dirty() {
        swp_pte = swp_pte.swp_mksoft_dirty();
    }
    if pte.is_uffd_wp() {
        swp_pte = swp_pte.swp_mkuffd_wp();
    }
    if batched {
        mm.pt.set_softleaf_ptes(at, swp_pte, nr);
    } else {
        mm.pt.set_pte_at(at, swp_pte);
    }
    mm.folio_remove_rmap_ptes(folio, page, nr);
    mm.folio_put_refs(folio, nr.get());
    Ok(())
}

/// Discards `nr` just-cleared PTEs of a lazyfree folio, unless it was written again or someone
/// holds it. Source: Linux mm/rmap.c `ttu_anon_lazyfree_folio()`.
///
/// # Errors
/// [`Aborted`], with the PTEs restored.
fn ttu_anon_lazyfree_folio<P: Platform>(
    mm: &mut Mm<P>,
    folio: Folio,
    vma: &Vma,
    at: Ptep,
    pte: Pte<P::Arch>,
    nr: NrPages,
) -> Result<(), Aborted> {
    if mm.pt.kernel.lazyfree_unmap_batched {
        mm.fentry(Event::FnTtuAnonLazyfreeFolio);
    }
    let dirty = mm.folio_test(folio, PageFlags::DIRTY) && !vma.flags.contains(VmFlags::DROPPABLE);
    if dirty {
        mm.folio_set(folio, PageFlags::SWAPBACKED);
        mm.pt.set_ptes(at, pte, nr);
        return Err(Aborted);
    }
    let expected = 1 + mm.folio_mapcount(folio);
    if u64::from(mm.folio_ref_count(folio)) != expected {
        mm.pt.set_ptes(at, pte, nr);
        return Err(Aborted);
    }
    mm.add_rss_anon(vma.mm, -nr_i64(nr));
    mm.folio_remove_rmap_ptes(folio, pte.pfn(), nr);
    mm.folio_put_refs(folio, nr.get());
    Ok(())
}

impl<P: Platform> Mm<P> {
    /// The clearing call of `try_to_unmap_one()`: one PTE in 6.12, `get_and_clear_ptes()` since.
    fn ttu_get_and_clear(&mut self, at: Ptep, nr: NrPages) -> Pte<P::Arch> {
        if self.pt.kernel.lazyfree_unmap_batched || nr > NrPages::ONE {
            self.pt.get_and_clear_full_ptes(at, nr, Teardown::Partial)
        } else {
            self.pt.ptep_get_and_clear(at)
        }
    }

    /// `unmap_huge_pmd_locked()`'s test of a lazyfree folio shared by both forms: nobody but
    /// the mapping and the isolation holds it, and it was not written again.
    pub(crate) fn lazyfree_is_discardable(&self, folio: Folio, pmd_dirty: bool) -> bool {
        let expected = 1 + self.folio_mapcount(folio);
        !pmd_dirty
            && !self.folio_test(folio, PageFlags::DIRTY)
            && u64::from(self.folio_ref_count(folio)) == expected
    }
}

/// `folio_referenced()`: how many VMAs used the folio since the last look; clears the traces.
/// Source: Linux mm/rmap.c.
pub(crate) fn folio_referenced<P: Platform>(mm: &mut Mm<P>, folio: Folio) -> u32 {
    mm.fentry(Event::FnFolioReferenced);
    let mut referenced = 0;
    for (id, address) in mm.rmap_walk(folio) {
        referenced += u32::from(folio_referenced_one(mm, folio, id, address));
    }
    referenced
}

fn folio_referenced_one<P: Platform>(
    mm: &mut Mm<P>,
    folio: Folio,
    id: VmaId,
    address: VirtAddr,
) -> bool {
    let mm = &mut *mm.enter(Op::FolioReferencedOne);
    let vma = *mm.vma(id);
    let mut walk = PageVmaMappedWalk::new(folio, &vma, address, Pvmw::Racy);
    let mut referenced = false;
    while let Some(mapped) = walk.next(mm) {
        match mapped {
            Mapped::Pmd(pmdp) => referenced |= pmdp_clear_flush_young(mm, pmdp),
            Mapped::Pte(at) => {
                let mut nr = NrPages::ONE;
                if mm.pt.kernel.young_ptes_batched && folio.is_large() {
                    let pte = mm.pt.ptep_get(at);
                    let table_end = at.va.align_down(PMD_SIZE).wrapping_add(PMD_SIZE);
                    let max = NrPages::covering(table_end.min(vma.end).bytes_since(at.va));
                    nr = mm.folio_pte_batch(folio, at, pte, max, Fpb::empty()).nr;
                }
                referenced |= mm.pt.clear_flush_young_ptes(at, nr);
                walk.advance(nr);
            }
        }
    }
    referenced
}

fn pmdp_clear_flush_young<P: Platform>(mm: &mut Mm<P>, pmdp: Pmdp) -> bool {
    let young = mm.pt.pmdp_test_and_clear_young(pmdp);
    if young {
        let end = pmdp.va.wrapping_add(PMD_SIZE);
        let (stride, leaf_only) = (Reach::M2, LeafOnly::No);
        mm.pt.flush_tlb_range(pmdp.mm, FlushRange { start: pmdp.va, end, stride, leaf_only });
    }
    young
}

impl<P: Platform> Mm<P> {
    /// VMAs that may map the folio, with the address of its first page there.
    pub(crate) fn rmap_targets(&self, folio: Folio) -> Vec<(VmaId, VirtAddr)> {
        self.rmap_walk(folio)
    }

    /// `__folio_set_anon()`.
    pub(crate) fn set_anon_mapping(&mut self, folio: Folio, anon_vma: AnonVmaId, index: u64) {
        let head = self.pt.pages.page_mut(folio.pfn);
        head.flags.insert(PageFlags::ANON | PageFlags::SWAPBACKED | PageFlags::UPTODATE);
        head.mapping = anon_vma.0;
        head.index = index;
    }

    /// Whether more than one address space maps the folio (`folio_maybe_mapped_shared`).
    pub(crate) fn folio_mapped_by_many(&self, folio: Folio) -> bool {
        let mut owner = None;
        for (id, address) in self.rmap_walk(folio) {
            let vma = self.vma(id);
            let end = address.wrapping_add(folio.order.bytes()).min(vma.end);
            let maps = self.range_maps_folio(vma.mm, address, end, folio);
            if maps && owner.replace(vma.mm).is_some_and(|other| other != vma.mm) {
                return true;
            }
        }
        false
    }

    fn range_maps_folio(
        &self,
        mm: arch::MmId,
        start: VirtAddr,
        end: VirtAddr,
        folio: Folio,
    ) -> bool {
        let mut va = start;
        while va < end {
            let Some(pmdp) = self.pt.pmd_offset(mm, va) else { return false };
            let pmd = self.pt.pmdp_get(pmdp);
            if pmd.is_leaf() {
                return folio.contains(pmd.pfn());
            }
            if let Some(at) = self.pt.pte_offset(pmdp, va) {
                let pte = Pte::<P::Arch>::from_raw(self.pt.ram.load_u64(at.slot));
                if pte.is_present() && !pte.is_special() && folio.contains(pte.pfn()) {
                    return true;
                }
            }
            va = va.wrapping_add(units::PAGE_SIZE);
        }
        false
    }
}
