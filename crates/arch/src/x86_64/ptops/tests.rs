use crate::testing::{FRAME, Lab, check, counted, lab, pmdp, prot, ptep, rw};
use crate::{ClearYoungDirty, FaultAccess, Hw, Pmd, Pt, Pte, Softleaf, Teardown, X86_64};
use events::{Counters, Event};
use units::NrPages;

type TestPt = Pt<Lab<X86_64>>;
const FOUR: NrPages = NrPages::new(4);

/// Four pages mapped writable, dirty and young.
fn mapped(kernel: &str) -> (TestPt, crate::Ptep) {
    let (mut pt, mm) = lab::<X86_64>(kernel, Hw::x86_64());
    let at = ptep(&pt, mm, 0);
    pt.set_ptes(at, rw(FRAME), FOUR);
    (pt, at)
}

fn of(pt: &mut TestPt, body: impl FnOnce(&mut TestPt)) -> Counters {
    counted(pt, body).1
}

#[test]
fn each_primitive_touches_each_entry_once() {
    let (mut pt, at) = mapped("v7.3");
    let c = of(&mut pt, |pt| {
        pt.ptep_get_lockless(at);
    });
    let expected = [(Event::PtepGetLockless, 1), (Event::PtepGet, 1), (Event::PteRead, 1)];
    check(&c, |_| true, &expected);

    let c = of(&mut pt, |pt| pt.wrprotect_ptes(at, FOUR));
    let expected = [
        (Event::WrprotectPtes, 1),
        (Event::WrprotectPtesPages, 4),
        (Event::PtepSetWrprotect, 4),
        (Event::PteRead, 4),
        (Event::PteCmpxchg, 4),
    ];
    check(&c, |_| true, &expected);

    let c = of(&mut pt, |pt| {
        pt.get_and_clear_ptes(at, FOUR);
    });
    let expected = [
        (Event::GetAndClearFullPtes, 1),
        (Event::GetAndClearFullPtesPages, 4),
        (Event::PtepGetAndClear, 4),
        (Event::PteXchg, 4),
    ];
    check(&c, |_| true, &expected);

    let c = of(&mut pt, |pt| pt.set_ptes(at, rw(FRAME), FOUR));
    let expected = [(Event::SetPtes, 1), (Event::SetPtesPages, 4), (Event::PteWrite, 4)];
    check(&c, |_| true, &expected);
    let third = pt.ptep_get(at.add(3));
    assert_eq!(third.pfn(), FRAME.add(3));
}

#[test]
fn a_dying_mm_is_cleared_with_plain_loads_and_stores() {
    let (mut pt, at) = mapped("v7.3");
    let c = of(&mut pt, |pt| pt.clear_full_ptes(at, FOUR, Teardown::FullMm));
    let expected = [
        (Event::ClearFullPtes, 1),
        (Event::ClearFullPtesPages, 4),
        (Event::LocalPtepGetAndClear, 4),
        (Event::PteRead, 4),
        (Event::PteWrite, 4),
    ];
    check(&c, |_| true, &expected);
}

#[test]
fn cold_clears_a_bit_and_free_rewrites_the_entry() {
    let (mut pt, at) = mapped("v7.3");
    let c = of(&mut pt, |pt| pt.clear_young_dirty_ptes(at, FOUR, ClearYoungDirty::Young));
    let expected = [
        (Event::ClearYoungDirtyPtes, 1),
        (Event::ClearYoungDirtyPtesPages, 4),
        (Event::PtepTestAndClearYoung, 4),
        (Event::PteRead, 4),
        (Event::PteCmpxchg, 4),
    ];
    check(&c, |_| true, &expected);
    assert!(pt.ptep_get(at).is_dirty() && !pt.ptep_get(at).is_young());

    let c = of(&mut pt, |pt| pt.clear_young_dirty_ptes(at, FOUR, ClearYoungDirty::Both));
    let expected = [
        (Event::ClearYoungDirtyPtes, 1),
        (Event::ClearYoungDirtyPtesPages, 4),
        (Event::PtepGetAndClear, 4),
        (Event::PteXchg, 4),
        (Event::SetPtes, 4),
        (Event::SetPtesNr1, 4),
        (Event::SetPtesPages, 4),
        (Event::PteWrite, 4),
    ];
    check(&c, |_| true, &expected);
    assert!(!pt.ptep_get(at).is_dirty());
}

#[test]
fn protections_change_by_exchange_and_store() {
    for (kernel, calls) in [("v6.12", 0), ("v7.3", 1)] {
        let (mut pt, at) = mapped(kernel);
        let c = of(&mut pt, |pt| {
            let old = pt.modify_prot_start_ptes(at, NrPages::ONE);
            pt.modify_prot_commit_ptes(at, old.modify(prot()), NrPages::ONE);
        });
        let expected = [
            (Event::ModifyProtStartPtes, calls),
            (Event::ModifyProtStartPtesPages, calls),
            (Event::ModifyProtCommitPtes, calls),
            (Event::ModifyProtCommitPtesPages, calls),
            (Event::PtepGetAndClear, 1),
            (Event::PteXchg, 1),
            (Event::SetPtes, 1),
            (Event::SetPtesNr1, 1),
            (Event::SetPtesPages, 1),
            (Event::PteWrite, 1),
        ];
        check(&c, |_| true, &expected);
        assert!(pt.ptep_get(at).is_dirty() && !pt.ptep_get(at).is_write());
    }
}

#[test]
fn raising_flags_in_a_write_fault_is_one_store_and_no_flush() {
    let (mut pt, at) = mapped("v7.3");
    pt.wrprotect_ptes(at, NrPages::ONE);
    let entry = pt.ptep_get(at).mkwrite().mkdirty();
    let c = of(&mut pt, |pt| {
        assert!(pt.ptep_set_access_flags(at, entry, FaultAccess::Write));
    });
    check(&c, |_| true, &[(Event::FnPtepSetAccessFlags, 1), (Event::PteWrite, 1)]);
    let c = of(&mut pt, |pt| {
        assert!(!pt.ptep_set_access_flags(at, entry, FaultAccess::Write));
        pt.flush_tlb_fix_spurious_fault(at);
    });
    check(&c, |_| true, &[(Event::FnPtepSetAccessFlags, 1)]);
}

#[test]
fn swap_entries_advance_in_the_stored_order_of_slots() {
    let (mut pt, mm) = lab::<X86_64>("v7.3", Hw::x86_64());
    let at = ptep(&pt, mm, 0);
    let first = Pte::from_softleaf(Softleaf::swap(1, 77)).swp_mkexclusive();
    pt.set_softleaf_ptes(at, first, FOUR);
    for i in 0..4 {
        let pte = pt.ptep_get(at.add(i));
        assert_eq!(pte.softleaf(), Softleaf::swap(1, 77 + i));
        assert!(pte.is_swp_exclusive());
    }
}

#[test]
fn huge_leaves_are_counted_as_measured() {
    let (mut pt, mm) = lab::<X86_64>("v7.3", Hw::x86_64());
    let at = pmdp(&pt, mm);
    let leaf = Pmd::new_leaf(FRAME, prot::<X86_64>()).mkwrite().mkdirty();
    let c = of(&mut pt, |pt| pt.set_pmd_at(at, leaf));
    check(&c, |_| true, &[(Event::PmdWrite, 1)]);
    let c = of(&mut pt, |pt| pt.pmdp_set_wrprotect(at));
    check(&c, |_| true, &[(Event::PmdCmpxchg, 1)]);
    let c = of(&mut pt, |pt| assert!(pt.pmdp_test_and_clear_young(at)));
    check(&c, |_| true, &[]);
    let c = of(&mut pt, |pt| assert!(pt.pmdp_invalidate_ad(at).is_dirty()));
    check(&c, |_| true, &[(Event::PmdXchg, 1)]);
    pt.set_pmd_at(at, leaf);
    let c = of(&mut pt, |pt| assert!(pt.pmdp_invalidate(at).is_dirty()));
    let expected = [
        (Event::PmdXchg, 1),
        (Event::FnFlushTlbMmRange, 1),
        (Event::FlushTlbMmRangeFull, 1),
        (Event::MmTlbGenInc, 1),
        (Event::FnFlushTlbFunc, 1),
        (Event::FlushTlbFuncFull, 1),
        (Event::FnNativeFlushTlbLocal, 1),
        (Event::Cr3Reload, 1),
    ];
    check(&c, |_| true, &expected);
    assert!(pt.pmdp_get(at).is_present() && pt.pmdp_get(at).pfn() == FRAME);
}

#[test]
fn the_stale_use_oracle_hears_of_lost_rights_only() {
    let (mut pt, at) = mapped("v7.3");
    pt.tlb.watch = true;
    pt.clear_young_dirty_ptes(at, FOUR, ClearYoungDirty::Both);
    pt.ptep_set_access_flags(at, rw(FRAME), FaultAccess::Write);
    let old = pt.modify_prot_start_ptes(at, FOUR);
    pt.modify_prot_commit_ptes(at, old, FOUR);
    assert_eq!(pt.tlb.changes, []);
    pt.wrprotect_ptes(at, FOUR);
    assert_eq!(pt.tlb.changes.len(), 4);
    let old = pt.modify_prot_start_ptes(at, FOUR);
    pt.modify_prot_commit_ptes(at, old.modify(no_access()), FOUR);
    assert_eq!(pt.tlb.changes.len(), 8);
}

fn no_access() -> crate::Prot<X86_64> {
    use crate::PteFormat;
    X86_64::vm_get_page_prot(crate::VmaProt::default())
}
