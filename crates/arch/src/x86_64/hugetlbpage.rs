//! Huge pages of hugetlb: one entry each, touched by the PTE primitives.
//!
//! Source: Linux include/asm-generic/hugetlb.h, arch/x86/mm/hugetlbpage.c.

use super::ptops::loses_rights;
use super::{X86_64, bits};
use crate::hugetlb::Hugep;
use crate::pt::Pt;
use crate::{Arch, FaultAccess, Platform, Pte, TlbPort};
use events::Event;
use units::NrPages;

/// `pte_mkhuge()`.
pub(super) fn make(entry: Pte<X86_64>) -> Pte<X86_64> {
    Pte::from_raw(entry.raw() | bits::PSE)
}

/// Runs a primitive that was written for last-level entries, and tells the stale-use oracle how
/// much the entry covers.
fn watched<P: Platform<Arch = X86_64>, R>(
    pt: &mut Pt<P>,
    at: Hugep,
    primitive: impl FnOnce(&mut Pt<P>) -> R,
) -> R {
    let old = pt.ram.load_u64(at.slot);
    let result = primitive(pt);
    if pt.tlb.watches_ptes() && loses_rights(old, pt.ram.load_u64(at.slot)) {
        pt.pte_changed(at.mm, at.va, at.size.reach());
    }
    result
}

/// `huge_ptep_get()`. Events: `ptep_get`, one read.
pub(super) fn get<P: Platform<Arch = X86_64>>(pt: &mut Pt<P>, at: Hugep) -> Pte<X86_64> {
    X86_64::ptep_get(pt, at.entry(0))
}

/// `set_huge_pte_at()`. Events: `set_ptes`, one store.
pub(super) fn set<P: Platform<Arch = X86_64>>(pt: &mut Pt<P>, at: Hugep, pte: Pte<X86_64>) {
    watched(pt, at, |pt| X86_64::set_ptes(pt, at.entry(0), pte, NrPages::ONE));
}

/// `huge_ptep_get_and_clear()`. Events: `ptep_get_and_clear`, one exchange.
pub(super) fn get_and_clear<P: Platform<Arch = X86_64>>(pt: &mut Pt<P>, at: Hugep) -> Pte<X86_64> {
    watched(pt, at, |pt| X86_64::ptep_get_and_clear(pt, at.entry(0)))
}

/// `huge_ptep_clear_flush()`: one INVLPG drops the translation of a page of any size.
///
/// Events: an exchange, the flush of one page.
pub(super) fn clear_flush<P: Platform<Arch = X86_64>>(pt: &mut Pt<P>, at: Hugep) -> Pte<X86_64> {
    pt.count(Event::FnPtepClearFlush, 1);
    let pte = get_and_clear(pt, at);
    if pte.is_accessible() {
        pt.flush_tlb_page(at.mm, at.va);
    }
    pte
}

/// `huge_ptep_set_wrprotect()`. Events: one locked bit clear.
pub(super) fn set_wrprotect<P: Platform<Arch = X86_64>>(pt: &mut Pt<P>, at: Hugep) {
    watched(pt, at, |pt| X86_64::wrprotect_ptes(pt, at.entry(0), NrPages::ONE));
}

/// `huge_ptep_set_access_flags()`. Events: one store if a write changes the entry.
pub(super) fn set_access_flags<P: Platform<Arch = X86_64>>(
    pt: &mut Pt<P>,
    at: Hugep,
    pte: Pte<X86_64>,
    access: FaultAccess,
) -> bool {
    X86_64::ptep_set_access_flags(pt, at.entry(0), pte, access)
}
