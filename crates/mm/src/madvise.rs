//! madvise(2). Source: Linux mm/madvise.c.

use crate::errno::Errno;
use crate::folio::Folio;
use crate::ksm::Switch;
use crate::mmap::page_align;
use crate::mmu_gather::MmuGather;
use crate::mseal::can_modify_vma_madv;
use crate::pagewalk::{Action, Callbacks, MmWalk, MmWalkOps, Span, Step, walk_page_range};
use crate::pte_batch::Fpb;
use crate::vma::{VmFlags, VmaId};
use crate::{Mm, huge_memory, hugetlb, memory, vmscan};
use arch::{ClearYoungDirty, MmId, Platform, Pmdp, Pte, Ptep, Teardown};
use events::Op;
use phys::PageFlags;
use std::convert::Infallible;
use std::ops::ControlFlow;
use units::{NrPages, PAGE_SIZE, PMD_SIZE, VirtAddr};

/// MADV_* numbers (Linux uapi mman-common.h).
pub mod advice {
    #![expect(missing_docs, reason = "each is its name")]
    pub const NORMAL: i32 = 0;
    pub const RANDOM: i32 = 1;
    pub const SEQUENTIAL: i32 = 2;
    pub const WILLNEED: i32 = 3;
    pub const DONTNEED: i32 = 4;
    pub const FREE: i32 = 8;
    pub const REMOVE: i32 = 9;
    pub const DONTFORK: i32 = 10;
    pub const DOFORK: i32 = 11;
    pub const MERGEABLE: i32 = 12;
    pub const UNMERGEABLE: i32 = 13;
    pub const HUGEPAGE: i32 = 14;
    pub const NOHUGEPAGE: i32 = 15;
    pub const DONTDUMP: i32 = 16;
    pub const DODUMP: i32 = 17;
    pub const WIPEONFORK: i32 = 18;
    pub const KEEPONFORK: i32 = 19;
    pub const COLD: i32 = 20;
    pub const PAGEOUT: i32 = 21;
    pub const POPULATE_READ: i32 = 22;
    pub const POPULATE_WRITE: i32 = 23;
    pub const DONTNEED_LOCKED: i32 = 24;
    pub const COLLAPSE: i32 = 25;

    /// The symbolic name.
    pub fn name(advice: i32) -> Option<&'static str> {
        Some(match advice {
            NORMAL => "MADV_NORMAL",
            RANDOM => "MADV_RANDOM",
            SEQUENTIAL => "MADV_SEQUENTIAL",
            WILLNEED => "MADV_WILLNEED",
            DONTNEED => "MADV_DONTNEED",
            FREE => "MADV_FREE",
            DONTFORK => "MADV_DONTFORK",
            DOFORK => "MADV_DOFORK",
            MERGEABLE => "MADV_MERGEABLE",
            UNMERGEABLE => "MADV_UNMERGEABLE",
            HUGEPAGE => "MADV_HUGEPAGE",
            NOHUGEPAGE => "MADV_NOHUGEPAGE",
            DONTDUMP => "MADV_DONTDUMP",
            DODUMP => "MADV_DODUMP",
            WIPEONFORK => "MADV_WIPEONFORK",
            KEEPONFORK => "MADV_KEEPONFORK",
            COLD => "MADV_COLD",
            PAGEOUT => "MADV_PAGEOUT",
            POPULATE_READ => "MADV_POPULATE_READ",
            POPULATE_WRITE => "MADV_POPULATE_WRITE",
            DONTNEED_LOCKED => "MADV_DONTNEED_LOCKED",
            COLLAPSE => "MADV_COLLAPSE",
            _ => return None,
        })
    }
}

/// Which of the two walks over mapped pages is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Cooling {
    /// MADV_COLD: make pages old and inactive.
    Cold,
    /// MADV_PAGEOUT: reclaim them.
    Pageout,
}

/// `can_madv_lru_vma()`.
fn can_madv_lru(flags: VmFlags) -> bool {
    !flags.intersects(VmFlags::LOCKED | VmFlags::PFNMAP | VmFlags::HUGETLB)
}

impl<P: Platform> Mm<P> {
    /// `madvise()`.
    ///
    /// # Errors
    /// EINVAL for an unknown or unsuitable advice or an unaligned start, EPERM where sealed memory would lose its contents, ENOMEM if the range has
    /// holes (what is mapped is advised all the same).
    pub fn madvise(
        &mut self,
        mm: MmId,
        start: VirtAddr,
        len: u64,
        advice: i32,
    ) -> Result<(), Errno> {
        if advice::name(advice).is_none() || !start.is_aligned(PAGE_SIZE) {
            return Err(Errno::EINVAL);
        }
        let len = page_align(len).ok_or(Errno::EINVAL)?;
        let end = start.checked_add(len).ok_or(Errno::EINVAL)?;
        if len == 0 {
            return Ok(());
        }
        if matches!(advice, advice::POPULATE_READ | advice::POPULATE_WRITE) {
            let write = advice == advice::POPULATE_WRITE;
            return memory::populate_range(self, mm, start, end, write);
        }
        let mut unmapped = false;
        let mut at = start;
        for id in self.vmas_in(mm, start, end) {
            let vma = *self.vma(id);
            unmapped |= vma.start > at;
            let (from, to) = (vma.start.max(start), vma.end.min(end));
            self.madvise_vma_behavior(id, from, to, advice)?;
            at = to;
        }
        match unmapped || at < end {
            true => Err(Errno::ENOMEM),
            false => Ok(()),
        }
    }

    /// Source: Linux mm/madvise.c `madvise_vma_behavior()`.
    fn madvise_vma_behavior(
        &mut self,
        id: VmaId,
        start: VirtAddr,
        end: VirtAddr,
        advice: i32,
    ) -> Result<(), Errno> {
        let vma = *self.vma(id);
        can_modify_vma_madv(&vma, advice)?;
        let anon_private = vma.is_anonymous() && !vma.flags.contains(VmFlags::SHARED);
        let dontneed = matches!(advice, advice::DONTNEED | advice::DONTNEED_LOCKED);
        if !vma.may_split(start) || !(dontneed || vma.may_split(end)) {
            return Err(Errno::EINVAL);
        }
        match advice {
            advice::NORMAL | advice::RANDOM | advice::SEQUENTIAL | advice::WILLNEED => Ok(()),
            advice::COLLAPSE => self.madvise_collapse(id, start, end),
            advice::COLD => self.madvise_cool(id, start, end, Cooling::Cold),
            advice::PAGEOUT => self.madvise_cool(id, start, end, Cooling::Pageout),
            advice::FREE => match can_madv_lru(vma.flags) && anon_private {
                true => {
                    self.madvise_free_single_vma(id, start, end);
                    Ok(())
                }
                false => Err(Errno::EINVAL),
            },
            advice::DONTNEED | advice::DONTNEED_LOCKED => {
                let mut forbidden = VmFlags::PFNMAP;
                if advice == advice::DONTNEED {
                    forbidden |= VmFlags::LOCKED;
                }
                if vma.flags.intersects(forbidden) {
                    return Err(Errno::EINVAL);
                }
                self.madvise_dontneed_single_vma(id, start, end);
                Ok(())
            }
            advice::HUGEPAGE => {
                let add = VmFlags::HUGEPAGE;
                self.set_vma_flags(id, start, end, add, VmFlags::NOHUGEPAGE);
                Ok(())
            }
            advice::NOHUGEPAGE => {
                let add = VmFlags::NOHUGEPAGE;
                self.set_vma_flags(id, start, end, add, VmFlags::HUGEPAGE);
                Ok(())
            }
            advice::DONTFORK => {
                self.set_vma_flags(id, start, end, VmFlags::DONTFORK, VmFlags::empty());
                Ok(())
            }
            advice::DOFORK => {
                self.set_vma_flags(id, start, end, VmFlags::empty(), VmFlags::DONTFORK);
                Ok(())
            }
            advice::DONTDUMP => {
                self.set_vma_flags(id, start, end, VmFlags::DONTDUMP, VmFlags::empty());
                Ok(())
            }
            advice::DODUMP => {
                self.set_vma_flags(id, start, end, VmFlags::empty(), VmFlags::DONTDUMP);
                Ok(())
            }
            advice::WIPEONFORK if anon_private => {
                self.set_vma_flags(id, start, end, VmFlags::WIPEONFORK, VmFlags::empty());
                Ok(())
            }
            advice::KEEPONFORK => {
                self.set_vma_flags(id, start, end, VmFlags::empty(), VmFlags::WIPEONFORK);
                Ok(())
            }
            advice::MERGEABLE | advice::UNMERGEABLE => {
                let on = if advice == advice::MERGEABLE { Switch::On } else { Switch::Off };
                let flags = self.ksm_madvise(id, start, end, on)?;
                self.set_vma_flags(id, start, end, flags - vma.flags, vma.flags - flags);
                Ok(())
            }
            _ => Err(Errno::EINVAL),
        }
    }

    /// Changes flags of part of a VMA, splitting and merging around it.
    pub(crate) fn set_vma_flags(
        &mut self,
        id: VmaId,
        start: VirtAddr,
        end: VirtAddr,
        add: VmFlags,
        remove: VmFlags,
    ) {
        let vma = *self.vma(id);
        if (vma.flags | add) - remove == vma.flags {
            return;
        }
        for id in self.isolate_range(vma.mm, start, end) {
            let vma = &mut self.vmas[id.index()];
            vma.flags = (vma.flags | add) - remove;
            self.merge_vma(id);
        }
    }

    /// Source: Linux mm/madvise.c `madvise_cold()`, `madvise_pageout()`.
    fn madvise_cool(
        &mut self,
        id: VmaId,
        start: VirtAddr,
        end: VirtAddr,
        cooling: Cooling,
    ) -> Result<(), Errno> {
        let vma = *self.vma(id);
        if !can_madv_lru(vma.flags) {
            return Err(Errno::EINVAL);
        }
        if cooling == Cooling::Pageout && !vma.is_anonymous() {
            // FIDELITY: page-cache file pages are not reclaimed
            return Ok(());
        }
        let op = match cooling {
            Cooling::Cold => Op::MadviseCold,
            Cooling::Pageout => Op::MadvisePageout,
        };
        let mm = &mut *self.enter(op);
        let mut gather = MmuGather::new(vma.mm, Teardown::Partial);
        let mut ops = ColdWalk { gather: &mut gather, cooling };
        let ControlFlow::Continue(()) = walk_page_range(mm, vma.mm, Span { start, end }, &mut ops);
        gather.end_vma(mm);
        gather.finish(mm);
        Ok(())
    }

    /// Source: Linux mm/madvise.c `madvise_free_single_vma()`.
    fn madvise_free_single_vma(&mut self, id: VmaId, start: VirtAddr, end: VirtAddr) {
        let mm = &mut *self.enter(Op::MadviseFree);
        let owner = mm.vma(id).mm;
        let mut gather = MmuGather::new(owner, Teardown::Partial);
        mm.update_hiwater_rss(owner);
        let mut ops = FreeWalk { gather: &mut gather };
        let ControlFlow::Continue(()) = walk_page_range(mm, owner, Span { start, end }, &mut ops);
        gather.end_vma(mm);
        gather.finish(mm);
    }

    /// Source: Linux mm/madvise.c `madvise_dontneed_single_vma()`, mm/memory.c
    /// `zap_page_range_single()`.
    fn madvise_dontneed_single_vma(&mut self, id: VmaId, start: VirtAddr, end: VirtAddr) {
        let mm = &mut *self.enter(Op::MadviseDontneed);
        let owner = mm.vma(id).mm;
        let mut gather = MmuGather::new(owner, Teardown::Partial);
        match mm.vma(id).huge {
            Some(size) => {
                let end = end.align_down(size.bytes());
                hugetlb::unmap_hugepage_range(mm, &mut gather, id, size, start, end);
            }
            None => {
                let reclaim = memory::Reclaim::EmptyTables;
                memory::unmap_page_range(mm, &mut gather, id, start, end, reclaim);
            }
        }
        gather.finish(mm);
    }
}

/// `cold_walk_ops`, `pageout_walk_ops`.
struct ColdWalk<'a> {
    gather: &'a mut MmuGather,
    cooling: Cooling,
}

impl<P: Platform> MmWalkOps<P> for ColdWalk<'_> {
    type Stop = Infallible;
    const CALLBACKS: Callbacks = Callbacks::PMD_ENTRY;

    fn pmd_entry(
        &mut self,
        mm: &mut Mm<P>,
        _: &MmWalk,
        pmdp: Pmdp,
        span: Span,
    ) -> Step<Infallible> {
        let Span { start, end } = span;
        madvise_cold_or_pageout_pte_range(mm, self.gather, pmdp, start, end, self.cooling);
        Step::Continue(Action::Subtree)
    }
}

/// `madvise_free_walk_ops`.
struct FreeWalk<'a> {
    gather: &'a mut MmuGather,
}

impl<P: Platform> MmWalkOps<P> for FreeWalk<'_> {
    type Stop = Infallible;
    const CALLBACKS: Callbacks = Callbacks::PMD_ENTRY;

    fn pmd_entry(
        &mut self,
        mm: &mut Mm<P>,
        _: &MmWalk,
        pmdp: Pmdp,
        span: Span,
    ) -> Step<Infallible> {
        madvise_free_pte_range(mm, self.gather, pmdp, span.start, span.end);
        Step::Continue(Action::Subtree)
    }
}

/// Source: Linux mm/madvise.c `madvise_cold_or_pageout_pte_range()`.
fn madvise_cold_or_pageout_pte_range<P: Platform>(
    mm: &mut Mm<P>,
    gather: &mut MmuGather,
    pmdp: Pmdp,
    start: VirtAddr,
    end: VirtAddr,
    cooling: Cooling,
) {
    let mm = &mut *mm.enter(Op::MadviseColdOrPageoutPteRange);
    let mut list = Vec::new();
    let pmd = mm.pt.pmdp_get(pmdp);
    if pmd.is_leaf() && cold_or_pageout_huge_pmd(mm, gather, pmdp, start, end, cooling, &mut list) {
        if cooling == Cooling::Pageout {
            vmscan::reclaim_pages(mm, list);
        }
        return;
    }
    let Some(first) = mm.pt.pte_offset(pmdp, start) else { return };
    mm.lock_ptl();
    mm.flush_tlb_batched_pending(pmdp.mm);
    let pages = NrPages::covering(end.bytes_since(start)).get();
    let mut i = 0;
    while i < pages {
        let at = first.add(i);
        i += cold_or_pageout_pte(mm, gather, at, NrPages::new(pages - i), cooling, &mut list);
    }
    if cooling == Cooling::Pageout {
        vmscan::reclaim_pages(mm, list);
    }
}

/// A PMD leaf under MADV_COLD or MADV_PAGEOUT. Returns whether it was dealt with; otherwise its
/// PTEs are to be looked at.
fn cold_or_pageout_huge_pmd<P: Platform>(
    mm: &mut Mm<P>,
    gather: &mut MmuGather,
    pmdp: Pmdp,
    start: VirtAddr,
    end: VirtAddr,
    cooling: Cooling,
    list: &mut Vec<Folio>,
) -> bool {
    mm.lock_ptl();
    let pmd = mm.pt.pmdp_get(pmdp);
    if pmd.is_special() {
        return true;
    }
    let folio = mm.page_folio(pmd.pfn());
    if mm.folio_maybe_mapped_shared(folio) {
        return true;
    }
    if end.bytes_since(start) != PMD_SIZE {
        return !(mm.folio_trylock(folio) && huge_memory::split_locked_folio(mm, folio));
    }
    if cooling == Cooling::Cold {
        huge_memory::make_huge_pmd_old(mm, gather, pmdp, pmd);
    }
    mm.folio_clear(folio, PageFlags::REFERENCED);
    match cooling {
        Cooling::Cold => mm.folio_deactivate(folio),
        Cooling::Pageout => mm.isolate_for_reclaim(folio, list),
    }
    true
}

/// One run of PTEs; returns how many entries were looked at.
fn cold_or_pageout_pte<P: Platform>(
    mm: &mut Mm<P>,
    gather: &mut MmuGather,
    at: Ptep,
    max: NrPages,
    cooling: Cooling,
    list: &mut Vec<Folio>,
) -> u64 {
    let pte = mm.pt.ptep_get(at);
    if pte.is_none() || !pte.is_present() {
        return 1;
    }
    let Some(folio) = mm.vm_normal_folio(pte) else { return 1 };
    let mut nr = NrPages::ONE;
    let mut young = pte.is_young();
    if folio.is_large() {
        let run = mm.folio_pte_batch(folio, at, pte, max, Fpb::empty());
        (nr, young) = (run.nr, run.any_young);
        if nr < folio.nr_pages() {
            return split_partly_covered(mm, at.mm, folio, nr);
        }
    }
    if !mm.folio_test(folio, PageFlags::LRU) || mm.folio_mapcount(folio) != nr.get() {
        return nr.get();
    }
    if cooling == Cooling::Cold && young {
        mm.pt.clear_young_dirty_ptes(at, nr, ClearYoungDirty::Young);
        gather.remove_tlb_entries(at.va, nr);
    }
    mm.folio_clear(folio, PageFlags::REFERENCED);
    match cooling {
        Cooling::Cold => mm.folio_deactivate(folio),
        Cooling::Pageout => mm.isolate_for_reclaim(folio, list),
    }
    nr.get()
}

/// A folio that the range covers only partly is split, so that the rest is left alone. Returns
/// how many entries to skip: none after a split, as the entry is looked at again.
fn split_partly_covered<P: Platform>(mm: &mut Mm<P>, id: MmId, folio: Folio, nr: NrPages) -> u64 {
    if mm.folio_maybe_mapped_shared(folio) || !mm.folio_trylock(folio) {
        return nr.get();
    }
    let split = huge_memory::split_locked_folio(mm, folio);
    // The page-table lock was let go of meanwhile.
    mm.lock_ptl();
    mm.flush_tlb_batched_pending(id);
    if split { 0 } else { nr.get() }
}

/// Source: Linux mm/madvise.c `madvise_free_pte_range()`.
fn madvise_free_pte_range<P: Platform>(
    mm: &mut Mm<P>,
    gather: &mut MmuGather,
    pmdp: Pmdp,
    start: VirtAddr,
    end: VirtAddr,
) {
    let mm = &mut *mm.enter(Op::MadviseFreePteRange);
    let pmd = mm.pt.pmdp_get(pmdp);
    if pmd.is_leaf() && huge_memory::madvise_free_huge_pmd(mm, gather, pmdp, start, end) {
        return;
    }
    let Some(first) = mm.pt.pte_offset(pmdp, start) else { return };
    mm.lock_ptl();
    mm.flush_tlb_batched_pending(pmdp.mm);
    let pages = NrPages::covering(end.bytes_since(start)).get();
    let mut swapents = 0;
    let mut i = 0;
    while i < pages {
        let (at, max) = (first.add(i), NrPages::new(pages - i));
        let pte = mm.pt.ptep_get(at);
        if pte.is_none() {
            i += 1;
        } else if pte.is_present() {
            i += free_present_pte(mm, gather, at, pte, max);
        } else if pte.softleaf().is_swap() {
            let nr = mm.swap_pte_batch(at, pte, max);
            swapents += nr.get().cast_signed();
            mm.swap_put_entries_direct(pte.softleaf(), nr);
            for k in 0..nr.get() {
                mm.pt.pte_clear(at.add(k));
            }
            i += nr.get();
        } else {
            i += 1;
        }
    }
    if swapents != 0 {
        mm.add_rss_swapents(pmdp.mm, -swapents);
    }
}

/// One run of present PTEs under MADV_FREE; returns how many entries were looked at.
fn free_present_pte<P: Platform>(
    mm: &mut Mm<P>,
    gather: &mut MmuGather,
    at: Ptep,
    pte: Pte<P::Arch>,
    max: NrPages,
) -> u64 {
    let Some(folio) = mm.vm_normal_folio(pte) else { return 1 };
    let mut nr = NrPages::ONE;
    let (mut young, mut dirty) = (pte.is_young(), pte.is_dirty());
    if folio.is_large() {
        let run = mm.folio_pte_batch(folio, at, pte, max, Fpb::empty());
        (nr, young, dirty) = (run.nr, run.any_young, run.any_dirty);
        if nr < folio.nr_pages() {
            return split_partly_covered(mm, at.mm, folio, nr);
        }
    }
    // FIDELITY: ksm-lazyfree a merged page is never marked lazyfree: another page may merge with it
    // later, and be lost with it
    if mm.folio_mapcount(folio) != nr.get() || mm.folio_test_ksm(folio) {
        return nr.get();
    }
    if mm.folio_test(folio, PageFlags::SWAPCACHE) && !mm.folio_free_swap(folio) {
        return nr.get();
    }
    mm.folio_clear(folio, PageFlags::DIRTY);
    if young || dirty {
        mm.pt.clear_young_dirty_ptes(at, nr, ClearYoungDirty::Both);
        gather.remove_tlb_entries(at.va, nr);
    }
    mm.folio_mark_lazyfree(folio);
    nr.get()
}
