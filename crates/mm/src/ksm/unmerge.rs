//! Unmerging: a fault for each merged page gives its address a page of its own again.
//!
//! How the merged pages are found is what differs between kernel versions, in five forms:
//! `follow_page()` for each address, with a reference taken; `walk_page_range_vma()` for each
//! address, with one callback or two; `folio_walk_start()` for each address; one walk over the
//! range that stops at each merged page. Source: Linux mm/ksm.c `break_ksm()`.

use super::merge::find_mergeable_vma;
use super::stable::remove_all_stable_nodes;
use super::{RmapId, scan};
use crate::errno::Errno;
use crate::memory::{FaultSignal, handle_mm_fault};
use crate::pagewalk::{
    Action, Callbacks, Fw, MmWalk, MmWalkOps, Span, Step, folio_walk_start, pte_offset_map_lock,
    walk_page_range_vma,
};
use crate::vma::{VmFlags, VmaId};
use crate::{Mm, gup};
use arch::{BreakKsm, FaultAccess, Platform, Pmdp, Pte};
use events::{Event, Op};
use std::ops::ControlFlow;
use units::{PAGE_SIZE, PhysAddr, VirtAddr};

/// Unmerges a part of a VMA.
/// Source: Linux mm/ksm.c `unmerge_ksm_pages()`; 7.3 calls `break_ksm()` itself.
///
/// # Errors
/// ENOMEM if there is no room for copies.
pub(super) fn unmerge_ksm_pages<P: Platform>(
    mm: &mut Mm<P>,
    id: VmaId,
    start: VirtAddr,
    end: VirtAddr,
) -> Result<(), Errno> {
    if mm.pt.kernel.break_ksm == BreakKsm::RangeWalk {
        return break_ksm_range(mm, id, start, end);
    }
    let mm = &mut *mm.enter(Op::UnmergeKsmPages);
    mm.fentry(Event::FnUnmergeKsmPages);
    let mut at = start;
    while at < end {
        break_ksm(mm, id, at)?;
        at = at.wrapping_add(PAGE_SIZE);
    }
    Ok(())
}

/// Undoes a merge whose page did not get into the stable tree.
/// Source: Linux mm/ksm.c `break_cow()`.
pub(super) fn break_cow<P: Platform>(mm: &mut Mm<P>, item: RmapId) {
    mm.ksm[item].anon_vma = None;
    let Some(vma) = find_mergeable_vma(mm, item) else { return };
    let at = mm.ksm[item].address;
    // Without memory, the page stays merged outside the tree.
    let _ = match mm.pt.kernel.break_ksm {
        BreakKsm::RangeWalk => break_ksm_range(mm, vma, at, at.wrapping_add(PAGE_SIZE)),
        _ => break_ksm(mm, vma, at),
    };
}

/// Source: Linux mm/ksm.c `break_ksm()` up to 6.18.
fn break_ksm<P: Platform>(mm: &mut Mm<P>, id: VmaId, at: VirtAddr) -> Result<(), Errno> {
    let mm = &mut *mm.enter(Op::BreakKsm);
    match mm.pt.kernel.break_ksm {
        BreakKsm::FollowPage if mm.pt.kernel.ksm_fault_write => break_ksm_by_write(mm, id, at),
        BreakKsm::FollowPage => break_ksm_by_follow_page(mm, id, at),
        BreakKsm::WalkVma => break_ksm_by_walk(mm, id, at, &mut BreakKsmOps),
        BreakKsm::WalkVmaPud => break_ksm_by_walk(mm, id, at, &mut BreakKsmPudOps),
        BreakKsm::FolioWalk | BreakKsm::RangeWalk => break_ksm_by_folio_walk(mm, id, at),
    }
}

/// Whether the loop of `break_ksm()` goes on after a fault, for another look.
///
/// # Errors
/// ENOMEM without memory. Other failures mean that the mapping is gone, and end the loop.
fn looks_again(fault: Result<(), FaultSignal>) -> Result<bool, Errno> {
    match fault {
        Ok(()) => Ok(true),
        Err(FaultSignal::OutOfMemory) => Err(Errno::ENOMEM),
        Err(_) => Ok(false),
    }
}

/// 6.1: the fault says that it wrote, so one look is enough.
fn break_ksm_by_write<P: Platform>(mm: &mut Mm<P>, id: VmaId, at: VirtAddr) -> Result<(), Errno> {
    let Some(page) = gup::follow_page(mm, id, at) else { return Ok(()) };
    let folio = mm.page_folio(page);
    let result = match mm.folio_test_ksm(folio) {
        true => looks_again(handle_mm_fault(mm, id, at, FaultAccess::Write)).map(|_| ()),
        false => Ok(()),
    };
    mm.folio_put_refs(folio, 1);
    result
}

/// The same after VM_FAULT_WRITE was removed: what the first posting of `ksm-walk-vma` replaced.
fn break_ksm_by_follow_page<P: Platform>(
    mm: &mut Mm<P>,
    id: VmaId,
    at: VirtAddr,
) -> Result<(), Errno> {
    loop {
        let Some(page) = gup::follow_page(mm, id, at) else { return Ok(()) };
        let folio = mm.page_folio(page);
        let merged = mm.folio_test_ksm(folio);
        mm.folio_put_refs(folio, 1);
        if !merged || !looks_again(handle_mm_fault(mm, id, at, FaultAccess::Unshare))? {
            return Ok(());
        }
    }
}

/// 6.2 to 6.11: `break_ksm_ops` has one callback; the second is an aside of the series.
fn break_ksm_by_walk<P: Platform>(
    mm: &mut Mm<P>,
    id: VmaId,
    at: VirtAddr,
    ops: &mut impl MmWalkOps<P, Stop = ()>,
) -> Result<(), Errno> {
    let span = Span { start: at, end: at.wrapping_add(PAGE_SIZE) };
    while walk_page_range_vma(mm, id, span, ops).is_break() {
        if !looks_again(handle_mm_fault(mm, id, at, FaultAccess::Unshare))? {
            break;
        }
    }
    Ok(())
}

/// 6.12.
fn break_ksm_by_folio_walk<P: Platform>(
    mm: &mut Mm<P>,
    id: VmaId,
    at: VirtAddr,
) -> Result<(), Errno> {
    loop {
        let walked = folio_walk_start(mm, id, at, Fw::MIGRATION | Fw::ZEROPAGE);
        let merged = walked.is_some_and(|walked| {
            mm.folio_test_ksm(walked.folio)
                || walked.pte().is_some_and(|pte| mm.is_ksm_zero_pte(pte))
        });
        if !merged || !looks_again(handle_mm_fault(mm, id, at, FaultAccess::Unshare))? {
            return Ok(());
        }
    }
}

/// Since 6.19: one walk until the first merged page; after its fault the walk resumes there.
fn break_ksm_range<P: Platform>(
    mm: &mut Mm<P>,
    id: VmaId,
    mut at: VirtAddr,
    end: VirtAddr,
) -> Result<(), Errno> {
    let mm = &mut *mm.enter(Op::BreakKsm);
    while at < end {
        let span = Span { start: at, end };
        let ControlFlow::Break(found) = walk_page_range_vma(mm, id, span, &mut BreakKsmRangeOps)
        else {
            break;
        };
        at = found;
        if !looks_again(handle_mm_fault(mm, id, at, FaultAccess::Unshare))? {
            break;
        }
    }
    Ok(())
}

/// Whether the entry maps a merged page, or a migration entry stands for one: those remain
/// merged until they are freed, so there is no need to wait.
fn maps_ksm_page<P: Platform>(mm: &Mm<P>, pte: Pte<P::Arch>) -> bool {
    if pte.is_present() {
        let page = mm.vm_normal_folio(pte);
        return page.is_some_and(|folio| mm.folio_test_ksm(folio)) || mm.is_ksm_zero_pte(pte);
    }
    if pte.is_none() || !pte.softleaf().is_migration() {
        return false;
    }
    mm.folio_test_ksm(mm.page_folio(pte.softleaf().pfn()))
}

/// Source: Linux v6.2 mm/ksm.c `break_ksm_pmd_entry()`: looks at one entry.
fn break_ksm_pmd_entry<P: Platform>(mm: &mut Mm<P>, pmdp: Pmdp, va: VirtAddr) -> Step<()> {
    mm.fentry(Event::FnBreakKsmPmdEntry);
    let Some(at) = pte_offset_map_lock(mm, pmdp, va) else {
        return Step::Continue(Action::Subtree);
    };
    let pte = mm.pt.ptep_get(at);
    match maps_ksm_page(mm, pte) {
        true => Step::Break(()),
        false => Step::Continue(Action::Subtree),
    }
}

/// `break_ksm_ops` of 6.2.
struct BreakKsmOps;

impl<P: Platform> MmWalkOps<P> for BreakKsmOps {
    type Stop = ();
    const CALLBACKS: Callbacks = Callbacks::PMD_ENTRY;

    fn pmd_entry(&mut self, mm: &mut Mm<P>, _: &MmWalk, pmdp: Pmdp, span: Span) -> Step<()> {
        break_ksm_pmd_entry(mm, pmdp, span.start)
    }
}

/// The same with a second callback, which has nothing to do.
struct BreakKsmPudOps;

impl<P: Platform> MmWalkOps<P> for BreakKsmPudOps {
    type Stop = ();
    const CALLBACKS: Callbacks = Callbacks::PMD_ENTRY.union(Callbacks::PUD_ENTRY);

    fn pud_entry(&mut self, _: &mut Mm<P>, _: &MmWalk, _: PhysAddr, _: Span) -> Step<()> {
        Step::Continue(Action::Subtree)
    }

    fn pmd_entry(&mut self, mm: &mut Mm<P>, _: &MmWalk, pmdp: Pmdp, span: Span) -> Step<()> {
        break_ksm_pmd_entry(mm, pmdp, span.start)
    }
}

/// `break_ksm_ops` of 7.3: stops with the address of the first merged page.
struct BreakKsmRangeOps;

impl<P: Platform> MmWalkOps<P> for BreakKsmRangeOps {
    type Stop = VirtAddr;
    const CALLBACKS: Callbacks = Callbacks::PMD_ENTRY;

    fn pmd_entry(&mut self, mm: &mut Mm<P>, _: &MmWalk, pmdp: Pmdp, span: Span) -> Step<VirtAddr> {
        mm.fentry(Event::FnBreakKsmPmdEntry);
        let Some(first) = pte_offset_map_lock(mm, pmdp, span.start) else {
            return Step::Continue(Action::Subtree);
        };
        for i in 0..span.pages().get() {
            let at = first.add(i);
            let pte = mm.pt.ptep_get(at);
            if maps_ksm_page(mm, pte) {
                return Step::Break(at.va);
            }
        }
        Step::Continue(Action::Subtree)
    }
}

/// Nothing stays merged, and `ksmd` starts anew when it is started.
/// Source: Linux mm/ksm.c `unmerge_and_remove_all_rmap_items()`.
///
/// # Errors
/// ENOMEM if there is no room for copies.
pub(super) fn unmerge_and_remove_all_rmap_items<P: Platform>(mm: &mut Mm<P>) -> Result<(), Errno> {
    let mut at = 0;
    while at < mm.ksm.slots.len() {
        mm.ksm.cursor.slot = at;
        let (id, exited) = (mm.ksm.slots[at].mm, mm.ksm.slots[at].exited);
        if !exited && let Err(error) = unmerge_mm(mm, id) {
            mm.ksm.cursor.slot = mm.ksm.slots.len();
            return Err(error);
        }
        scan::remove_items(mm, at, VirtAddr::ZERO, None);
        match exited {
            true => mm.ksm.remove_slot(at),
            false => at += 1,
        }
    }
    remove_all_stable_nodes(mm);
    mm.ksm.cursor = super::Cursor { slot: mm.ksm.slots.len(), ..super::Cursor::default() };
    Ok(())
}

fn unmerge_mm<P: Platform>(mm: &mut Mm<P>, id: arch::MmId) -> Result<(), Errno> {
    for vma_id in mm.vmas_in(id, VirtAddr::ZERO, VirtAddr::new(u64::MAX)) {
        let vma = *mm.vma(vma_id);
        if vma.flags.contains(VmFlags::MERGEABLE) && vma.anon_vma.is_some() {
            unmerge_ksm_pages(mm, vma_id, vma.start, vma.end)?;
        }
    }
    Ok(())
}
