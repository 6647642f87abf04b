//! Huge pages of hugetlb: blocks, and contiguous sets of 16 pages or blocks, which software may
//! change only as a whole: clear all, flush, write all.
//!
//! The contpte layer is not involved: these are the raw accessors below it.
//!
//! Source: Linux 6.12 and 7.3 arch/arm64/mm/hugetlbpage.c.

use super::Arm64;
use super::bits::{TABLE, VALID};
use super::pte::mkcont;
use super::ptops::{cmpxchg, raw_get, raw_set, set_access_flags_of, xchg_zero};
use super::tlbflush::{self, Wait};
use crate::hugetlb::{HugeSize, Hugep};
use crate::pt::{FlushRange, Pt};
use crate::{Broadcast, FaultAccess, LeafOnly, Platform, Pte};
use events::Event;
use units::{PAGE_SIZE, Reach};

/// `arch_make_huge_pte()`.
pub(super) fn make(entry: Pte<Arm64>, size: HugeSize) -> Pte<Arm64> {
    let block = |pte: Pte<Arm64>| Pte::from_raw(pte.raw() & !TABLE);
    match size {
        HugeSize::ContPte => mkcont(entry),
        HugeSize::Pmd | HugeSize::Pud => block(entry),
        HugeSize::ContPmd => mkcont(block(entry)),
    }
}

/// `huge_ptep_get()`: the first entry, young and dirty as in any of the set.
///
/// Events: one raw read, and one for each entry of a contiguous set. Before the contpte layer
/// this was `ptep_get()`.
pub(super) fn get<P: Platform<Arch = Arm64>>(pt: &mut Pt<P>, at: Hugep) -> Pte<Arm64> {
    if !pt.kernel.contpte {
        pt.count(Event::PtepGet, 1);
    }
    let mut sum = raw_get(pt, at.entry(0));
    if !sum.is_present() || !sum.is_cont() {
        return sum;
    }
    for i in 0..at.size.entries() {
        let pte = raw_get(pt, at.entry(i));
        sum = with_access(sum, pte);
    }
    sum
}

fn with_access(sum: Pte<Arm64>, pte: Pte<Arm64>) -> Pte<Arm64> {
    let sum = if pte.is_dirty() { sum.mkdirty() } else { sum };
    if pte.is_young() { sum.mkyoung() } else { sum }
}

/// Stores all entries, frames advancing by what each covers. Events: one store for each.
fn store_all<P: Platform<Arch = Arm64>>(pt: &mut Pt<P>, at: Hugep, pte: Pte<Arm64>) {
    for i in 0..at.size.entries() {
        raw_set(pt, at.entry(i), pte.advance_pfn(i * at.entry_pages()), 1);
    }
}

/// `get_clear_contig()`. Events: one exchange for each entry.
fn get_clear_contig<P: Platform<Arch = Arm64>>(pt: &mut Pt<P>, at: Hugep) -> Pte<Arm64> {
    let mut sum = xchg_zero(pt, at.entry(0));
    let present = sum.is_present();
    for i in 1..at.size.entries() {
        let pte = xchg_zero(pt, at.entry(i));
        if present {
            sum = with_access(sum, pte);
        }
    }
    changed(pt, at, sum);
    sum
}

/// Tells the stale-use oracle how much went with a live entry.
fn changed<P: Platform<Arch = Arm64>>(pt: &mut Pt<P>, at: Hugep, old: Pte<Arm64>) {
    if old.raw() & VALID != 0 {
        pt.pte_changed(at.mm, at.va, at.size.reach());
    }
}

/// The flush of a set that was broken up: until 6.14 page by page and with walk caches, later
/// by the size of an entry, leaves only.
fn flush<P: Platform<Arch = Arm64>>(pt: &mut Pt<P>, at: Hugep) {
    let end = at.va.wrapping_add(at.size.bytes());
    if pt.kernel.hugetlb_tlb_hints {
        let stride = at.size.entry_reach();
        let range = FlushRange { start: at.va, end, stride, leaf_only: LeafOnly::Yes };
        return tlbflush::flush_range(pt, at.mm, range, Broadcast::Yes, Wait::Sync);
    }
    let (stride, leaf_only) = (Reach::K4, LeafOnly::No);
    tlbflush::flush_tlb_range(pt, at.mm, FlushRange { start: at.va, end, stride, leaf_only });
}

/// `get_clear_contig_flush()`.
fn get_clear_contig_flush<P: Platform<Arch = Arm64>>(pt: &mut Pt<P>, at: Hugep) -> Pte<Arm64> {
    let pte = get_clear_contig(pt, at);
    flush(pt, at);
    pte
}

/// `set_huge_pte_at()`.
///
/// Events: one store for each entry; before that a contiguous set is cleared and flushed, always
/// until 6.14, later only if it was valid (one raw read).
pub(super) fn set<P: Platform<Arch = Arm64>>(pt: &mut Pt<P>, at: Hugep, pte: Pte<Arm64>) {
    if pte.is_present() && pte.is_cont() {
        let hints = pt.kernel.hugetlb_tlb_hints;
        if !hints || raw_get(pt, at.entry(0)).raw() & VALID != 0 {
            get_clear_contig_flush(pt, at);
        }
    }
    store_all(pt, at, pte);
}

/// `huge_ptep_get_and_clear()`. Events: one exchange for each entry.
pub(super) fn get_and_clear<P: Platform<Arch = Arm64>>(pt: &mut Pt<P>, at: Hugep) -> Pte<Arm64> {
    get_clear_contig(pt, at)
}

/// `huge_ptep_clear_flush()`.
///
/// Events: one exchange for each entry and a flush; until 6.14 a raw read first, and a single
/// entry goes through `ptep_clear_flush()`.
pub(super) fn clear_flush<P: Platform<Arch = Arm64>>(pt: &mut Pt<P>, at: Hugep) -> Pte<Arm64> {
    if pt.kernel.hugetlb_tlb_hints || raw_get(pt, at.entry(0)).is_cont() {
        return get_clear_contig_flush(pt, at);
    }
    let old = pt.ram.load_u64(at.slot);
    changed(pt, at, Pte::from_raw(old));
    pt.ptep_clear_flush(at.entry(0))
}

/// `huge_ptep_set_wrprotect()`.
///
/// Events: one raw read; one exchange for each entry of a contiguous set, a flush and as many
/// stores, or one read and one compare-and-exchange.
pub(super) fn set_wrprotect<P: Platform<Arch = Arm64>>(pt: &mut Pt<P>, at: Hugep) {
    if raw_get(pt, at.entry(0)).is_cont() {
        let pte = get_clear_contig_flush(pt, at);
        return store_all(pt, at, pte.wrprotect());
    }
    let old = raw_get(pt, at.entry(0));
    changed(pt, at, old);
    cmpxchg(pt, at.entry(0), old, old.wrprotect());
}

/// Whether the set lacks a flag of `pte`, or has one more. Events: one raw read, and one for
/// each entry up to the first that differs.
fn access_flags_changed<P: Platform<Arch = Arm64>>(
    pt: &mut Pt<P>,
    at: Hugep,
    pte: Pte<Arm64>,
) -> bool {
    if raw_get(pt, at.entry(0)).is_write() != pte.is_write() {
        return true;
    }
    (0..at.size.entries()).any(|i| {
        let old = raw_get(pt, at.entry(i));
        (old.is_dirty(), old.is_young()) != (pte.is_dirty(), pte.is_young())
    })
}

/// `huge_ptep_set_access_flags()`: a contiguous set is broken up and written again.
pub(super) fn set_access_flags<P: Platform<Arch = Arm64>>(
    pt: &mut Pt<P>,
    at: Hugep,
    pte: Pte<Arm64>,
    access: FaultAccess,
) -> bool {
    if !pte.is_cont() {
        return set_access_flags_of(pt, at.entry(0), pte, access, at.size.entry_reach());
    }
    if !access_flags_changed(pt, at, pte) {
        return false;
    }
    let old = get_clear_contig_flush(pt, at);
    store_all(pt, at, with_access(pte, old));
    true
}

const _: () = assert!(HugeSize::ContPte.bytes() == super::bits::CONT_PTES * PAGE_SIZE);
