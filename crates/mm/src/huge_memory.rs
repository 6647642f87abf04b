//! PMD leaves and large folios: fault, zap, split, discard.
//!
//! Source: Linux mm/huge_memory.c.

use crate::folio::Folio;
use crate::migrate::MigrationOf;
use crate::mmu_gather::{MmuGather, Room};
use crate::rmap::{Aborted, Exclusive};
use crate::task_mmu::vma_soft_dirty_enabled;
use crate::vma::{VmFlags, VmaId};
use crate::{Mm, migrate};
use arch::{
    Arch, FaultAccess, FlushRange, LeafOnly, Platform, Pmd, Pmdp, Pte, PteFormat, Ptep, SwapApi,
    TableLevel, Teardown,
};
use events::{Event, Op};
use phys::PageFlags;
use units::{NrPages, Order, PMD_ORDER, PMD_SIZE, Reach, VirtAddr};

/// What became of a fault at PMD level.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum HugeFault {
    Done,
    /// `VM_FAULT_FALLBACK`: go on with PTEs.
    Fallback,
}

/// Source: Linux mm/huge_memory.c `do_huge_pmd_anonymous_page()`.
pub(crate) fn do_huge_pmd_anonymous_page<P: Platform>(
    mm: &mut Mm<P>,
    id: VmaId,
    pmdp: Pmdp,
    access: FaultAccess,
) -> HugeFault {
    let mm = &mut *mm.enter(Op::DoHugePmdAnonymousPage);
    let vma = *mm.vma(id);
    let prot = P::Arch::vm_get_page_prot(vma.page_prot());
    if access != FaultAccess::Write && mm.thp.use_zero_page {
        let Some(zero) = mm.huge_zero_folio() else { return HugeFault::Fallback };
        mm.lock_ptl();
        deposit_table(mm, pmdp);
        mm.pt.set_pmd_at(pmdp, Pmd::new_leaf(zero.pfn, prot).mkspecial());
        return HugeFault::Done;
    }
    let Some(folio) = mm.folio_alloc(PMD_ORDER) else {
        mm.vmstat.thp_fault_fallback += 1;
        mm.thp.size_mut(PMD_ORDER).stats.anon_fault_fallback += 1;
        return HugeFault::Fallback;
    };
    mm.folio_zero(folio);
    if !deposit_table(mm, pmdp) {
        mm.folio_put_refs(folio, 1);
        return HugeFault::Fallback;
    }
    mm.lock_ptl();
    let mut pmd = Pmd::new_leaf(folio.pfn, prot).mkyoung();
    if vma.flags.contains(VmFlags::WRITE) {
        pmd = pmd.mkdirty().mkwrite();
    }
    mm.folio_add_new_anon_rmap(folio, id, pmdp.va);
    mm.folio_add_lru(folio);
    mm.pt.set_pmd_at(pmdp, pmd);
    mm.add_rss_anon(vma.mm, 512);
    deferred_split_folio(mm, folio, Mapping::Whole);
    mm.vmstat.thp_fault_alloc += 1;
    mm.thp.size_mut(PMD_ORDER).stats.anon_fault_alloc += 1;
    HugeFault::Done
}

/// `pgtable_trans_huge_deposit()`: keeps a page table ready for a split.
fn deposit_table<P: Platform>(mm: &mut Mm<P>, pmdp: Pmdp) -> bool {
    let Some(table) = mm.alloc_table_reclaiming() else { return false };
    mm.mm_mut(pmdp.mm).pgtables += 1;
    mm.deposited.insert((pmdp.mm, pmdp.va), table);
    true
}

fn withdraw_table<P: Platform>(mm: &mut Mm<P>, pmdp: Pmdp) -> units::PhysAddr {
    mm.deposited.remove(&(pmdp.mm, pmdp.va)).expect("a PMD leaf has a deposited table")
}

fn free_deposited<P: Platform>(mm: &mut Mm<P>, pmdp: Pmdp) {
    let table = withdraw_table(mm, pmdp);
    mm.mm_mut(pmdp.mm).pgtables -= 1;
    mm.free_table(table);
}

/// A fault on a present PMD leaf.
pub(crate) fn huge_pmd_fault<P: Platform>(
    mm: &mut Mm<P>,
    id: VmaId,
    pmdp: Pmdp,
    pmd: Pmd<P::Arch>,
    access: FaultAccess,
) -> HugeFault {
    if access != FaultAccess::Read && !pmd.is_write() {
        return do_huge_pmd_wp_page(mm, id, pmdp, pmd, access);
    }
    // huge_pmd_set_accessed()
    mm.lock_ptl();
    let mut entry = pmd.mkyoung();
    if access == FaultAccess::Write {
        entry = entry.mkdirty();
    }
    mm.pt.pmdp_set_access_flags(pmdp, entry, access);
    HugeFault::Done
}

/// Source: Linux mm/huge_memory.c `do_huge_pmd_wp_page()`.
fn do_huge_pmd_wp_page<P: Platform>(
    mm: &mut Mm<P>,
    id: VmaId,
    pmdp: Pmdp,
    pmd: Pmd<P::Arch>,
    access: FaultAccess,
) -> HugeFault {
    let mm = &mut *mm.enter(Op::DoHugePmdWpPage);
    mm.lock_ptl();
    if pmd.is_special() {
        split_huge_pmd(mm, id, pmdp);
        return HugeFault::Fallback;
    }
    let folio = mm.page_folio(pmd.pfn());
    let sole = mm.page_anon_exclusive(folio.pfn)
        || (mm.folio_ref_count(folio) == 1 && !mm.folio_test(folio, PageFlags::SWAPCACHE));
    if sole {
        mm.set_page_anon_exclusive(folio.pfn);
        if access == FaultAccess::Unshare {
            return HugeFault::Done;
        }
        let dirty = pmd.mkyoung().mkdirty();
        let writable = mm.vma(id).flags.contains(VmFlags::WRITE);
        let entry = if writable { dirty.mkwrite() } else { dirty };
        mm.pt.pmdp_set_access_flags(pmdp, entry, FaultAccess::Write);
        return HugeFault::Done;
    }
    split_huge_pmd(mm, id, pmdp);
    HugeFault::Fallback
}

/// Source: Linux mm/huge_memory.c `zap_huge_pmd()`.
pub(crate) fn zap_huge_pmd<P: Platform>(mm: &mut Mm<P>, gather: &mut MmuGather, pmdp: Pmdp) {
    let mm = &mut *mm.enter(Op::ZapHugePmd);
    mm.lock_ptl();
    let pmd = mm.pt.pmdp_huge_get_and_clear(pmdp, gather.teardown);
    gather.remove_pmd_tlb_entry(pmdp.va);
    free_deposited(mm, pmdp);
    if pmd.is_special() {
        return;
    }
    let folio = mm.page_folio(pmd.pfn());
    mm.folio_remove_rmap_pmd(folio);
    mm.add_rss_anon(pmdp.mm, -512);
    if gather.remove_pages(folio.pfn, NrPages::ONE) == Room::Full {
        gather.flush(mm);
    }
}

/// `split_huge_pmd()`: a PMD leaf becomes 512 PTEs of the same pages.
pub(crate) fn split_huge_pmd<P: Platform>(mm: &mut Mm<P>, id: VmaId, pmdp: Pmdp) {
    mm.lock_ptl();
    split_huge_pmd_locked(mm, id, pmdp, Freeze::No);
}

/// What becomes of the pages when a PMD leaf is split.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Freeze {
    /// They stay mapped, by PTEs.
    No,
    /// Migration entries stand in for them, as the folio is about to be split.
    Yes,
}

/// Source: Linux mm/huge_memory.c `__split_huge_pmd_locked()`.
pub(crate) fn split_huge_pmd_locked<P: Platform>(
    mm: &mut Mm<P>,
    id: VmaId,
    pmdp: Pmdp,
    freeze: Freeze,
) {
    let mm = &mut *mm.enter(Op::SplitHugePmdLocked);
    let prot = P::Arch::vm_get_page_prot(mm.vma(id).page_prot());
    mm.vmstat.thp_split_pmd += 1;
    if mm.pt.pmdp_get(pmdp).is_special() {
        split_huge_zero_page_pmd(mm, pmdp, prot);
        return;
    }
    let old = mm.pt.pmdp_invalidate(pmdp);
    let folio = mm.page_folio(old.pfn());
    if old.is_dirty() {
        mm.folio_set(folio, PageFlags::DIRTY);
    }
    let exclusive = mm.page_anon_exclusive(folio.pfn);
    // A page that may be pinned keeps its exclusivity, and stays mapped.
    let freeze = freeze == Freeze::Yes
        && !(exclusive
            && mm.folio_try_share_anon_rmap_ptes(folio, folio.pfn, NrPages::ONE).is_err());
    let table = withdraw_table(mm, pmdp);
    let first = Ptep { slot: table, va: pmdp.va, mm: pmdp.mm };
    if freeze {
        mm.pt.populate_on_stack(TableLevel::Pmd, table);
        fill_with_migration_entries(mm, first, old, exclusive);
    } else {
        mm.folio_ref_add(folio, 511);
        mm.pt.populate_on_stack(TableLevel::Pmd, table);
        let how = if exclusive { Exclusive::Yes } else { Exclusive::No };
        mm.folio_add_anon_rmap_ptes(folio, folio.pfn, NrPages::new(512), how);
        mm.pt.set_ptes(first, pte_of_split(old, prot), NrPages::new(512));
    }
    mm.folio_remove_rmap_pmd(folio);
    if freeze {
        mm.folio_put_refs(folio, 1);
    }
    mm.pt.populate(TableLevel::Pmd, pmdp.slot, table);
}

/// The PTE of the first page, from what the PMD leaf said of all.
fn pte_of_split<A: Arch>(old: Pmd<A>, prot: arch::Prot<A>) -> Pte<A> {
    let mut entry = Pte::new(old.pfn(), prot);
    entry = if old.is_young() { entry.mkyoung() } else { entry.mkold() };
    if old.is_write() {
        entry = entry.mkwrite();
    }
    if old.is_dirty() {
        entry = entry.mkdirty();
    }
    if old.is_soft_dirty() {
        entry = entry.mksoft_dirty();
    }
    if old.is_uffd_wp() {
        entry = entry.mkuffd_wp();
    }
    entry
}

fn fill_with_migration_entries<P: Platform>(
    mm: &mut Mm<P>,
    first: Ptep,
    old: Pmd<P::Arch>,
    exclusive: bool,
) {
    let of = MigrationOf {
        write: old.is_write(),
        exclusive,
        young: old.is_young(),
        dirty: old.is_dirty(),
        soft_dirty: old.is_soft_dirty(),
        uffd_wp: old.is_uffd_wp(),
    };
    for i in 0..512 {
        mm.pt.set_pte_at(first.add(i), of.entry(old.pfn().add(i)));
    }
}

/// Source: Linux mm/huge_memory.c `__split_huge_zero_page_pmd()`.
fn split_huge_zero_page_pmd<P: Platform>(mm: &mut Mm<P>, pmdp: Pmdp, prot: arch::Prot<P::Arch>) {
    mm.pt.pmdp_huge_clear_flush(pmdp);
    let table = withdraw_table(mm, pmdp);
    mm.pt.populate_on_stack(TableLevel::Pmd, table);
    let first = Ptep { slot: table, va: pmdp.va, mm: pmdp.mm };
    for i in 0..512 {
        mm.pt.set_pte_at(first.add(i), Pte::new(mm.zero_page, prot).mkspecial());
    }
    mm.pt.populate(TableLevel::Pmd, pmdp.slot, table);
}

/// Discards a PMD-mapped lazyfree folio whole. Returns whether it did.
/// Source: Linux mm/huge_memory.c `__discard_anon_folio_pmd_locked()`.
///
/// # Errors
/// [`Aborted`] if the folio was written again and stays.
pub(crate) fn unmap_huge_pmd_locked<P: Platform>(
    mm: &mut Mm<P>,
    folio: Folio,
    pmdp: Pmdp,
) -> Result<bool, Aborted> {
    let anon = mm.folio_test(folio, PageFlags::ANON);
    if !anon || mm.folio_test(folio, PageFlags::SWAPBACKED) {
        return Ok(false);
    }
    mm.fentry(Event::FnUnmapHugePmdLocked);
    if mm.folio_test(folio, PageFlags::DIRTY) || mm.pt.pmdp_get(pmdp).is_dirty() {
        mm.folio_set(folio, PageFlags::DIRTY | PageFlags::SWAPBACKED);
        return Err(Aborted);
    }
    let old = mm.pt.pmdp_huge_clear_flush(pmdp);
    if !mm.lazyfree_is_discardable(folio, old.is_dirty()) {
        mm.pt.set_pmd_at(pmdp, old);
        if old.is_dirty() {
            mm.folio_set(folio, PageFlags::DIRTY | PageFlags::SWAPBACKED);
        }
        return Err(Aborted);
    }
    mm.folio_remove_rmap_pmd(folio);
    free_deposited(mm, pmdp);
    mm.add_rss_anon(pmdp.mm, -512);
    mm.folio_put_refs(folio, 1);
    Ok(true)
}

/// MADV_FREE of `[start, end)` of a PMD leaf. Returns whether that is done; otherwise what is
/// under the PMD now is to be looked at.
/// Source: Linux mm/huge_memory.c `madvise_free_huge_pmd()`.
pub(crate) fn madvise_free_huge_pmd<P: Platform>(
    mm: &mut Mm<P>,
    gather: &mut MmuGather,
    pmdp: Pmdp,
    start: VirtAddr,
    end: VirtAddr,
) -> bool {
    mm.fentry(Event::FnMadviseFreeHugePmd);
    mm.lock_ptl();
    let pmd = mm.pt.pmdp_get(pmdp);
    if pmd.is_special() {
        return false;
    }
    let folio = mm.page_folio(pmd.pfn());
    if mm.folio_maybe_mapped_shared(folio) {
        return false;
    }
    if end.bytes_since(start) != PMD_SIZE {
        if mm.folio_trylock(folio) {
            split_locked_folio(mm, folio);
        }
        return false;
    }
    mm.folio_clear(folio, PageFlags::DIRTY);
    if pmd.is_young() || pmd.is_dirty() {
        let old = mm.pt.pmdp_invalidate(pmdp);
        mm.pt.set_pmd_at(pmdp, old.mkold().mkclean());
        gather.remove_pmd_tlb_entry(pmdp.va);
    }
    mm.folio_mark_lazyfree(folio);
    true
}

/// [`split_folio`] of a locked folio, with a reference held; unlocks it. Returns whether it was
/// split.
pub(crate) fn split_locked_folio<P: Platform>(mm: &mut Mm<P>, folio: Folio) -> bool {
    mm.folio_ref_add(folio, 1);
    let split = split_folio(mm, folio);
    let left = if split { Folio { pfn: folio.pfn, order: Order::ZERO } } else { folio };
    mm.folio_unlock(left);
    mm.folio_put_refs(left, 1);
    split
}

/// MADV_COLD of a young PMD leaf.
pub(crate) fn make_huge_pmd_old<P: Platform>(
    mm: &mut Mm<P>,
    gather: &mut MmuGather,
    pmdp: Pmdp,
    pmd: Pmd<P::Arch>,
) {
    if !pmd.is_young() {
        return;
    }
    if mm.pt.kernel.cold_pmd_invalidate {
        let old = mm.pt.pmdp_invalidate(pmdp);
        mm.pt.set_pmd_at(pmdp, old.mkold());
    } else {
        mm.pt.pmdp_test_and_clear_young(pmdp);
    }
    gather.remove_pmd_tlb_entry(pmdp.va);
}

/// Copies a PMD leaf to the child of a fork: shared and read-only in both.
/// Source: Linux mm/huge_memory.c `copy_huge_pmd()`.
pub(crate) fn copy_huge_pmd<P: Platform>(
    mm: &mut Mm<P>,
    from: Pmdp,
    to: Pmdp,
    parent_vma: VmaId,
) -> Result<CopyHuge, crate::Errno> {
    mm.fentry(Event::FnCopyHugePmd);
    // First of all, as the allocation may reclaim, and split the leaf.
    if !deposit_table(mm, to) {
        return Err(crate::Errno::ENOMEM);
    }
    let pmd = mm.pt.pmdp_get(from);
    if !pmd.is_leaf() {
        free_deposited(mm, to);
        return Ok(CopyHuge::CopyPtes);
    }
    if pmd.is_special() {
        mm.pt.set_pmd_at(to, pmd);
        return Ok(CopyHuge::Copied);
    }
    let folio = mm.page_folio(pmd.pfn());
    if mm.folio_maybe_dma_pinned(folio) && mm.page_anon_exclusive(folio.pfn) {
        free_deposited(mm, to);
        split_huge_pmd(mm, parent_vma, from);
        return Ok(CopyHuge::CopyPtes);
    }
    mm.folio_ref_add(folio, 1);
    if mm.page_anon_exclusive(folio.pfn) {
        mm.clear_page_anon_exclusive(folio.pfn);
    }
    let head = mm.pt.pages.page_mut(folio.pfn);
    head.entire_mapcount += 1;
    head.large_mapcount += 1;
    mm.pt.count(Event::MapcountRmw, 1);
    mm.add_rss_anon(to.mm, 512);
    mm.pt.pmdp_set_wrprotect(from);
    mm.pt.set_pmd_at(to, pmd.mkold().wrprotect());
    Ok(CopyHuge::Copied)
}

/// What [`copy_huge_pmd`] did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CopyHuge {
    Copied,
    /// The leaf was split: copy its PTEs.
    CopyPtes,
}

/// Changes the protection of a PMD leaf. Source: Linux mm/huge_memory.c `change_huge_pmd()`.
pub(crate) fn change_huge_pmd<P: Platform>(
    mm: &mut Mm<P>,
    gather: &mut MmuGather,
    id: VmaId,
    pmdp: Pmdp,
) {
    mm.fentry(Event::FnChangeHugePmd);
    mm.lock_ptl();
    let vma = *mm.vma(id);
    let prot = P::Arch::vm_get_page_prot(vma.page_prot());
    let old = mm.pt.pmdp_invalidate_ad(pmdp);
    let mut entry = old.modify(prot);
    let head = mm.page_folio(old.pfn()).pfn;
    if vma.flags.contains(VmFlags::WRITE)
        && !old.is_special()
        && mm.page_anon_exclusive(head)
        && entry.is_dirty()
        && (!vma_soft_dirty_enabled::<P::Arch>(&vma) || entry.is_soft_dirty())
    {
        entry = entry.mkwrite();
    }
    mm.pt.set_pmd_at(pmdp, entry);
    if P::Arch::huge_pmd_needs_flush(&mm.pt.kernel, old, entry) {
        gather.flush_pmd_range(pmdp.va, PMD_SIZE);
    }
}

/// Moves a PMD leaf for mremap(2). Returns whether it could.
/// Source: Linux mm/huge_memory.c `move_huge_pmd()`.
pub(crate) fn move_huge_pmd<P: Platform>(mm: &mut Mm<P>, old: Pmdp, new: Pmdp) -> bool {
    mm.fentry(Event::FnMoveHugePmd);
    if !mm.pt.pmdp_get(new).is_none() {
        return false;
    }
    mm.lock_ptl();
    let pmd = mm.pt.pmdp_huge_get_and_clear(old, Teardown::Partial);
    let table = withdraw_table(mm, old);
    mm.deposited.insert((new.mm, new.va), table);
    mm.pt.set_pmd_at(new, pmd.mksoft_dirty());
    let end = old.va.wrapping_add(PMD_SIZE);
    let (stride, leaf_only) = (Reach::M2, LeafOnly::No);
    mm.pt.flush_tlb_range(old.mm, FlushRange { start: old.va, end, stride, leaf_only });
    true
}

impl<P: Platform> Mm<P> {
    /// The huge zero page, made on first use.
    fn huge_zero_folio(&mut self) -> Option<Folio> {
        if let Some(folio) = self.huge_zero {
            return Some(folio);
        }
        let folio = self.folio_alloc(PMD_ORDER)?;
        self.folio_zero(folio);
        self.folio_set(folio, PageFlags::RESERVED);
        self.huge_zero = Some(folio);
        Some(folio)
    }

    /// Out of the deferred split queue, when the folio goes away or is split.
    pub(crate) fn deferred_split_unqueue(&mut self, folio: Folio) {
        if self.folio_test(folio, PageFlags::DEFERRED_SPLIT) {
            self.folio_clear(folio, PageFlags::DEFERRED_SPLIT | PageFlags::PARTIALLY_MAPPED);
            self.deferred_split.remove(&folio.pfn);
            if let Some(stats) = self.thp.stats(folio.order) {
                stats.nr_anon_partially_mapped = stats.nr_anon_partially_mapped.saturating_sub(1);
            }
        }
        if folio.is_large()
            && self.folio_test(folio, PageFlags::ANON)
            && let Some(stats) = self.thp.stats(folio.order)
        {
            stats.nr_anon = stats.nr_anon.saturating_sub(1);
        }
    }
}

/// Why a folio is offered for a deferred split.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mapping {
    /// Mapped whole; it might turn out to hold mostly zeroes.
    Whole,
    /// Some of its pages are not mapped any more.
    Partial,
}

/// Queues a partly mapped folio to be split when memory is short.
/// Source: Linux mm/huge_memory.c `deferred_split_folio()`.
pub(crate) fn deferred_split_folio<P: Platform>(mm: &mut Mm<P>, folio: Folio, mapping: Mapping) {
    const MIN_ORDER: u8 = 2;
    mm.fentry(Event::FnDeferredSplitFolio);
    if folio.order.get() < MIN_ORDER || mm.folio_test(folio, PageFlags::SWAPCACHE) {
        return;
    }
    if mapping == Mapping::Whole {
        // FIDELITY: thp-underused whole folios are never split for being mostly zero, as by
        // the default `max_ptes_none`
        return;
    }
    if mm.folio_test(folio, PageFlags::DEFERRED_SPLIT) {
        return;
    }
    mm.folio_set(folio, PageFlags::DEFERRED_SPLIT | PageFlags::PARTIALLY_MAPPED);
    mm.deferred_split.insert(folio.pfn);
    if folio.is_pmd_mappable() {
        mm.vmstat.thp_deferred_split_page += 1;
    }
    if let Some(stats) = mm.thp.stats(folio.order) {
        stats.split_deferred += 1;
        stats.nr_anon_partially_mapped += 1;
    }
}

/// `split_folio()`: a large folio becomes single pages, all its mappings with it. Fails if
/// someone holds an extra reference. Source: Linux mm/huge_memory.c `__folio_split()`.
pub(crate) fn split_folio<P: Platform>(mm: &mut Mm<P>, folio: Folio) -> bool {
    mm.fentry_since(Event::FnSplitHugePageToListToOrder, Event::FnUnderSplitHugePageToListToOrder);
    if mm.pt.kernel.swap_api == SwapApi::Cluster {
        mm.fentry(Event::FnUnderFolioSplit);
    }
    let mapped = mm.folio_mapcount(folio);
    let cached = match mm.folio_test(folio, PageFlags::SWAPCACHE) {
        true => folio.nr_pages().get(),
        false => 0,
    };
    // The caller holds one reference; each mapping and cached page another.
    if u64::from(mm.folio_ref_count(folio)) != mapped + cached + 1 {
        mm.count_split_failure(folio.order);
        return false;
    }
    migrate::unmap_folio_for_split(mm, folio);
    mm.split_folio_metadata(folio);
    migrate::remap_split_pages(mm, folio);
    mm.release_split_pages(folio);
    if let Some(stats) = mm.thp.stats(folio.order) {
        stats.split += 1;
    }
    if folio.is_pmd_mappable() {
        mm.vmstat.thp_split_page += 1;
    }
    true
}

impl<P: Platform> Mm<P> {
    fn count_split_failure(&mut self, order: Order) {
        if let Some(stats) = self.thp.stats(order) {
            stats.split_failed += 1;
        }
        if order >= PMD_ORDER {
            self.vmstat.thp_split_page_failed += 1;
        }
    }

    /// `__split_folio_to_order()`: every page gets its own flags, reference and mapping. The
    /// folio has no mapping entries at this point; the caller's reference stays with the first
    /// page, the others get one that [`Mm::release_split_pages`] drops.
    fn split_folio_metadata(&mut self, folio: Folio) {
        self.deferred_split_unqueue(folio);
        let head = *self.pt.pages.page(folio.pfn);
        let on_lru = head.flags.contains(PageFlags::LRU);
        let inherit = PageFlags::ANON
            | PageFlags::SWAPBACKED
            | PageFlags::UPTODATE
            | PageFlags::DIRTY
            | PageFlags::REFERENCED
            | PageFlags::ACTIVE
            | PageFlags::WORKINGSET
            | PageFlags::SWAPCACHE
            | PageFlags::ALLOCATED
            | PageFlags::DIRTIED;
        for i in 0..folio.nr_pages().get() {
            let pfn = folio.pfn.add(i);
            let page = self.pt.pages.page_mut(pfn);
            let own = page.flags & (PageFlags::ANON_EXCLUSIVE | PageFlags::DIRTIED);
            page.flags = (head.flags & inherit) | own;
            page.order = Order::ZERO;
            page.mapping = head.mapping;
            page.index = head.index + i;
            let cached = head.flags.contains(PageFlags::SWAPCACHE);
            page.private = if cached { head.private + i } else { 0 };
            page.refcount = 1 + u32::from(cached);
            (page.large_mapcount, page.entire_mapcount, page.nr_pages_mapped) = (0, 0, 0);
            if i == 0 {
                page.flags.insert(head.flags & (PageFlags::LRU | PageFlags::LOCKED));
                (page.next, page.prev) = (head.next, head.prev);
            } else if on_lru {
                self.folio_add_lru(Folio { pfn, order: Order::ZERO });
            }
        }
    }

    /// Drops the references that the split itself held on the later pages: those that nothing
    /// maps are freed.
    fn release_split_pages(&mut self, folio: Folio) {
        for i in 1..folio.nr_pages().get() {
            let page = Folio { pfn: folio.pfn.add(i), order: Order::ZERO };
            self.folio_put_refs(page, 1);
        }
    }
}

/// Splits queued folios, as the shrinker does when memory is short. Returns pages freed.
/// Source: Linux mm/huge_memory.c `deferred_split_scan()`.
pub(crate) fn deferred_split_scan<P: Platform>(mm: &mut Mm<P>) -> u64 {
    let before = mm.buddy.free_pages();
    for pfn in std::mem::take(&mut mm.deferred_split) {
        let folio = mm.page_folio(pfn);
        mm.folio_clear(folio, PageFlags::DEFERRED_SPLIT);
        mm.folio_ref_add(folio, 1);
        let split = split_folio(mm, folio);
        let left = if split { Folio { pfn, order: Order::ZERO } } else { folio };
        mm.folio_put_refs(left, 1);
    }
    mm.buddy.free_pages() - before
}
