//! The contpte layer: contiguous blocks kept uniform behind the back of the generic code.
//!
//! A block of 16 aligned entries is *folded* when all are valid with CONT set, map contiguous
//! frames and agree in every attribute but access and dirty state. Hardware may then note an
//! access or a write in any one of them, so getters gather over the block; a setter that would
//! break the uniformity first *unfolds* it: clears all 16, flushes, writes all 16 back without
//! CONT. Storing the last entry of a block that has become uniform folds it the same way.
//!
//! Source: Linux 7.3 and 6.12 arch/arm64/mm/contpte.c.

use super::bits::{AF, CONT_PTE_SIZE, CONT_PTES, DIRTY, RDONLY, WRITE};
use super::pte::{mkcont, mknoncont, valid_cont};
use super::ptops::{cmpxchg, raw_get, raw_set, set_access_flags};
use super::tlbflush::{Wait, flush_range, leaf_range};
use super::{Arm64, bbm};
use crate::pt::{Pt, Ptep};
use crate::{Broadcast, FaultAccess, Platform, Pte};
use events::{Event, Op};
use units::{PAGE_SIZE, Pfn, PhysAddr, Reach, VirtAddr};

/// First entry of the block that `at` belongs to.
#[inline]
pub(super) fn block_start(at: Ptep) -> Ptep {
    let slot = at.slot.align_down(CONT_PTES * 8);
    Ptep { slot, va: at.va.align_down(CONT_PTE_SIZE), mm: at.mm }
}

/// Loads entry `i` of the block at `first`; the caller counts.
#[inline(always)]
fn load<P: Platform<Arch = Arm64>>(pt: &Pt<P>, first: Ptep, i: u64) -> Pte<Arm64> {
    let slot = first.add(i).slot;
    pt.touch(slot);
    Pte::from_raw(pt.ram.load_u64(slot))
}

/// Adds young and dirty of the whole block to `pte`, which was read from `at`.
///
/// Events: raw reads; 16, or with the early stop as many as it takes to see both.
#[inline]
pub(super) fn gather<P: Platform<Arch = Arm64>>(
    pt: &mut Pt<P>,
    at: Ptep,
    pte: Pte<Arm64>,
) -> Pte<Arm64> {
    let first = block_start(at);
    if pt.kernel.contpte_get_early_stop {
        return gather_early(pt, first, pte);
    }
    pt.count(Event::PteRead, CONT_PTES);
    let mut sum = pte;
    for i in 0..CONT_PTES {
        sum = with_access(sum, load(pt, first, i));
    }
    sum
}

/// `sum`, young and dirty if `pte` is.
#[inline(always)]
fn with_access(sum: Pte<Arm64>, pte: Pte<Arm64>) -> Pte<Arm64> {
    let sum = if pte.is_dirty() { sum.mkdirty() } else { sum };
    if pte.is_young() { sum.mkyoung() } else { sum }
}

/// Looks for the first young or dirty entry, then only for what is still missing. After a dirty
/// one the search resumes at the same entry, after a young one at the next.
fn gather_early<P: Platform<Arch = Arm64>>(
    pt: &mut Pt<P>,
    first: Ptep,
    pte: Pte<Arm64>,
) -> Pte<Arm64> {
    let mut reads = 0;
    let mut sum = pte;
    let mut i = 0;
    while i < CONT_PTES {
        let entry = load(pt, first, i);
        reads += 1;
        if entry.is_dirty() {
            sum = sum.mkdirty();
            while i < CONT_PTES {
                reads += 1;
                if load(pt, first, i).is_young() {
                    sum = sum.mkyoung();
                    break;
                }
                i += 1;
            }
            break;
        }
        i += 1;
        if entry.is_young() {
            sum = sum.mkyoung();
            while i < CONT_PTES {
                reads += 1;
                if load(pt, first, i).is_dirty() {
                    sum = sum.mkdirty();
                    break;
                }
                i += 1;
            }
            break;
        }
    }
    pt.count(Event::PteRead, reads);
    sum
}

/// `contpte_convert()`: rewrites a live block as what `pte` asks for, access and dirty state
/// gathered.
///
/// Events: 16 exchanges, one range flush of the block (none where the core tolerates the change
/// without), 16 stores.
fn convert<P: Platform<Arch = Arm64>>(pt: &mut Pt<P>, at: Ptep, pte: Pte<Arm64>) {
    pt.count(Event::FnContpteConvert, 1);
    let first = block_start(at);
    let mut entry = align_pfn(pte);
    pt.count(Event::PteXchg, CONT_PTES);
    for i in 0..CONT_PTES {
        entry = with_access(entry, load(pt, first, i));
        pt.ram.store_u64(PhysAddr::new(first.slot.get() + i * 8), 0);
    }
    if !bbm::may_skip_bbm(&pt.hw, &pt.kernel) {
        pt.pte_changed(first.mm, first.va, Reach::K64);
        let range = leaf_range(first.va, CONT_PTES, Reach::K4);
        flush_range(pt, first.mm, range, Broadcast::Yes, Wait::Sync);
    }
    raw_set(pt, first, entry, CONT_PTES);
}

/// `pte` for the first frame of its aligned block.
fn align_pfn(pte: Pte<Arm64>) -> Pte<Arm64> {
    Pte::from_raw(pte.raw() & !(CONT_PTE_SIZE - PAGE_SIZE))
}

/// Unfolds the block of `at`, whose entry is `pte`, if it is folded.
#[inline(always)]
pub(super) fn try_unfold<P: Platform<Arch = Arm64>>(pt: &mut Pt<P>, at: Ptep, pte: Pte<Arm64>) {
    if valid_cont(pte) {
        unfold(pt, at, pte);
    }
}

/// `__contpte_try_unfold()`.
#[cold]
fn unfold<P: Platform<Arch = Arm64>>(pt: &mut Pt<P>, at: Ptep, pte: Pte<Arm64>) {
    pt.count(Event::FnUnderContpteTryUnfold, 1);
    pt.count(Event::ContpteUnfoldDone, 1);
    pt.within(Op::ContpteUnfold, |pt| convert(pt, at, mknoncont(pte)));
}

/// `contpte_try_fold()`: after a store to the last entry of a block.
#[inline(always)]
pub(super) fn try_fold<P: Platform<Arch = Arm64>>(pt: &mut Pt<P>, at: Ptep, pte: Pte<Arm64>) {
    const LAST: u64 = CONT_PTES - 1;
    if at.va.vpn().get() & LAST != LAST || pte.pfn().get() & LAST != LAST {
        return;
    }
    if pte.is_accessible() && !pte.is_cont() && !pte.is_special() {
        fold_if_uniform(pt, at, pte);
    }
}

/// `__contpte_try_fold()`.
///
/// Events: one raw read per entry up to the first that does not fit; those of the conversion if
/// all fit. None if the folio does not span the block.
fn fold_if_uniform<P: Platform<Arch = Arm64>>(pt: &mut Pt<P>, at: Ptep, pte: Pte<Arm64>) {
    pt.count(Event::FnUnderContpteTryFold, 1);
    if !folio_spans_block(pt, at.va, pte.pfn()) {
        return;
    }
    let first = block_start(at);
    let mut expected = align_pfn(pte.mkclean().mkold());
    for i in 0..CONT_PTES {
        pt.count(Event::PteRead, 1);
        if load(pt, first, i).mkclean().mkold() != expected {
            return;
        }
        expected = expected.advance_pfn(1);
    }
    pt.count(Event::ContpteFoldDone, 1);
    pt.within(Op::ContpteFold, |pt| convert(pt, at, mkcont(pte)));
}

/// Whether the folio of `pfn`, mapped at `va`, covers the whole block around `va`.
fn folio_spans_block<P: Platform<Arch = Arm64>>(pt: &Pt<P>, va: VirtAddr, pfn: Pfn) -> bool {
    if !pt.pages.is_valid(pfn) {
        return false;
    }
    let head = pt.pages.folio_head(pfn);
    let before = pfn.frames_since(head);
    let after = pt.pages.folio_order(pfn).pages() - before;
    let in_block = va.vpn().get() % CONT_PTES;
    before >= in_block && after >= CONT_PTES - in_block
}

/// `contpte_try_unfold_partial()`: unfolds the blocks that `nr` entries cover only in part.
///
/// Events: one raw read at the head if it does not start a whole block, one at the tail if it
/// does not end one; those of up to two unfolds.
pub(super) fn try_unfold_partial<P: Platform<Arch = Arm64>>(pt: &mut Pt<P>, at: Ptep, nr: u64) {
    pt.count(Event::FnContpteTryUnfoldPartial, 1);
    if !at.va.is_aligned(CONT_PTE_SIZE) || nr < CONT_PTES {
        let pte = raw_get(pt, at);
        try_unfold(pt, at, pte);
    }
    let last = at.add(nr - 1);
    if !last.va.wrapping_add(PAGE_SIZE).is_aligned(CONT_PTE_SIZE) {
        let pte = raw_get(pt, last);
        try_unfold(pt, last, pte);
    }
}

/// `contpte_set_ptes()`: whole aligned blocks are folded from the start, the rest is plain.
pub(super) fn set_ptes<P: Platform<Arch = Arm64>>(
    pt: &mut Pt<P>,
    at: Ptep,
    pte: Pte<Arm64>,
    nr: u64,
) {
    pt.count(Event::FnContpteSetPtes, 1);
    let (mut at, mut pte, mut left) = (at, pte, nr);
    while left > 0 {
        let to_boundary = CONT_PTES - at.va.vpn().get() % CONT_PTES;
        let n = left.min(to_boundary);
        let whole = n == CONT_PTES && pte.pfn().get() % CONT_PTES == 0;
        if whole {
            pt.count(Event::ContpteSetPtesBlocks, 1);
        }
        raw_set(pt, at, if whole { mkcont(pte) } else { pte }, n);
        (at, pte, left) = (at.add(n), pte.advance_pfn(n), left - n);
    }
}

/// The entries of `at` … `at + nr`, expanded to whole blocks where they touch folded ones.
///
/// Events: two raw reads.
pub(super) fn expand<P: Platform<Arch = Arm64>>(pt: &mut Pt<P>, at: Ptep, nr: u64) -> (Ptep, u64) {
    let mut end = at.va.wrapping_add(nr * PAGE_SIZE);
    if valid_cont(raw_get(pt, at.add(nr - 1))) {
        end = end.checked_align_up(CONT_PTE_SIZE).unwrap_or(end);
    }
    let start = if valid_cont(raw_get(pt, at)) { block_start(at) } else { at };
    (start, end.bytes_since(start.va) / PAGE_SIZE)
}

/// `contpte_test_and_clear_young_ptes()`, or in 6.12 of the one block of `at`
/// (`contpte_ptep_test_and_clear_young()`).
pub(super) fn test_and_clear_young<P: Platform<Arch = Arm64>>(
    pt: &mut Pt<P>,
    at: Ptep,
    nr: u64,
) -> bool {
    let (first, nr) = if pt.kernel.young_ptes_batched {
        pt.count(Event::FnContpteTestAndClearYoungPtes, 1);
        expand(pt, at, nr)
    } else {
        pt.count(Event::FnContptePtepTestAndClearYoung, 1);
        (block_start(at), CONT_PTES)
    };
    let mut young = false;
    for i in 0..nr {
        young |= clear_young(pt, first.add(i));
    }
    young
}

/// `__ptep_test_and_clear_young()`. Events: one raw read, one compare-and-exchange.
#[inline]
pub(super) fn clear_young<P: Platform<Arch = Arm64>>(pt: &mut Pt<P>, at: Ptep) -> bool {
    let pte = raw_get(pt, at);
    cmpxchg(pt, at, pte, pte.mkold());
    pte.is_young()
}

/// `contpte_clear_flush_young_ptes()`, or in 6.12 of the one block of `at`
/// (`contpte_ptep_clear_flush_young()`).
pub(super) fn clear_flush_young<P: Platform<Arch = Arm64>>(
    pt: &mut Pt<P>,
    at: Ptep,
    nr: u64,
) -> bool {
    let batched = pt.kernel.young_ptes_batched;
    pt.count(
        if batched {
            Event::FnContpteClearFlushYoungPtes
        } else {
            Event::FnContptePtepClearFlushYoung
        },
        1,
    );
    let young = test_and_clear_young(pt, at, nr);
    if young {
        let (first, nr) = if batched { expand(pt, at, nr) } else { (block_start(at), CONT_PTES) };
        let range = leaf_range(first.va, nr, Reach::K4);
        flush_range(pt, at.mm, range, Broadcast::Yes, Wait::NoSync);
    }
    young
}

/// `contpte_ptep_set_access_flags()` on a folded block, whose entry at `at` was read already.
///
/// Events: raw reads up to the first entry that lacks a flag; then one more, and either all 16
/// entries are raised one by one (one flush for the block), or, if write permission changes, the
/// block is unfolded and the one entry raised.
pub(super) fn set_access_flags_folded<P: Platform<Arch = Arm64>>(
    pt: &mut Pt<P>,
    at: Ptep,
    entry: Pte<Arm64>,
    access: FaultAccess,
) -> bool {
    pt.count(Event::FnContptePtepSetAccessFlags, 1);
    if all_match_access_flags(pt, at, entry) {
        return false;
    }
    let target = mknoncont(raw_get(pt, at));
    if target.is_write() != entry.is_write() {
        unfold(pt, at, target);
        set_access_flags(pt, at, entry, access);
        return true;
    }
    let first = block_start(at);
    for i in 0..CONT_PTES {
        // No flush for each; one for all follows.
        set_access_flags(pt, first.add(i), entry, FaultAccess::Read);
    }
    if access == FaultAccess::Write {
        let scope = super::ptops::access_flags_scope(pt);
        let range = leaf_range(first.va, CONT_PTES, Reach::K4);
        flush_range(pt, at.mm, range, scope, Wait::Sync);
    }
    true
}

/// `contpte_all_subptes_match_access_flags()`.
fn all_match_access_flags<P: Platform<Arch = Arm64>>(
    pt: &mut Pt<P>,
    at: Ptep,
    entry: Pte<Arm64>,
) -> bool {
    const MASK: u64 = RDONLY | AF | WRITE | DIRTY;
    if !pt.kernel.has_6_12_names() {
        pt.count(Event::FnContpteAllSubptesMatchAccessFlags, 1);
    }
    let first = block_start(at);
    for i in 0..CONT_PTES {
        pt.count(Event::PteRead, 1);
        if (load(pt, first, i).raw() ^ entry.raw()) & MASK != 0 {
            return false;
        }
    }
    true
}

/// Clears `nr` entries; the first one's value, young and dirty of all.
///
/// Events: `nr` exchanges.
#[inline]
pub(super) fn get_and_clear_range<P: Platform<Arch = Arm64>>(
    pt: &mut Pt<P>,
    at: Ptep,
    nr: u64,
    clear: impl Fn(&mut Pt<P>, Ptep) -> Pte<Arm64>,
) -> Pte<Arm64> {
    let mut sum = clear(pt, at);
    for i in 1..nr {
        let pte = clear(pt, at.add(i));
        sum = with_access(sum, pte);
    }
    sum
}

#[cfg(test)]
mod tests;
