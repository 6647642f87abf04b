use crate::arm64::bits;
use crate::testing::{BASE, FRAME, Lab, check, counted, lab, pmdp, prot, ptep, rw};
use crate::{Arm64, FaultAccess, Hw, Pmd, Pt, Pte, Teardown};
use events::{Event, EventKind};
use units::{NrPages, Reach};

type TestPt = Pt<Lab<Arm64>>;

fn everything(_: Event) -> bool {
    true
}

#[test]
fn a_write_to_a_clean_page_raises_and_flushes_it() {
    for (kernel, expected) in [
        (
            "v6.12",
            &[
                (Event::PtepSetAccessFlags, 1),
                (Event::PteRead, 2),
                (Event::PteCmpxchg, 1),
                (Event::FnUnderPtepSetAccessFlags, 1),
                (Event::FnFlushTlbPage, 1),
                (Event::FnUnderFlushTlbPageNosync, 1),
                (Event::DsbIshst, 1),
                (Event::TlbiVale1is, 1),
                (Event::DsbIsh, 1),
            ][..],
        ),
        (
            "v7.3",
            &[
                (Event::PtepSetAccessFlags, 1),
                (Event::PteRead, 2),
                (Event::PteCmpxchg, 1),
                (Event::FnUnderPtepSetAccessFlagsAnysz, 1),
                (Event::FnUnderFlushTlbRange, 1),
                (Event::FnUnderDoFlushTlbRange, 1),
                (Event::FlushRangeLocal, 1),
                (Event::FlushRangePages, 1),
                (Event::DsbNshst, 1),
                (Event::TlbiVale1, 1),
                (Event::DsbNsh, 1),
            ][..],
        ),
    ] {
        let (mut pt, mm) = lab::<Arm64>(kernel, Hw::arm64());
        let at = ptep(&pt, mm, 1);
        pt.set_pte_at(at, rw(FRAME).mkclean());
        let raise = |pt: &mut TestPt| pt.ptep_set_access_flags(at, rw(FRAME), FaultAccess::Write);
        let (changed, c) = counted(&mut pt, raise);
        assert!(changed);
        check(&c, everything, expected);
        let (changed, c) = counted(&mut pt, raise);
        assert!(!changed && c.get(Event::PteRead) == 2 && c.get(Event::PteCmpxchg) == 0);
    }
}

#[test]
fn raising_takes_the_more_permissive_of_both() {
    let (mut pt, mm) = lab::<Arm64>("v7.3", Hw::arm64());
    let at = ptep(&pt, mm, 1);
    // Hardware made it dirty since the fault was taken; the entry to install is still clean.
    let stale = rw(FRAME).mkclean();
    pt.set_pte_at(at, Pte::from_raw(stale.raw() & !bits::RDONLY));
    pt.ptep_set_access_flags(at, stale, FaultAccess::Read);
    assert!(pt.ptep_get(at).is_dirty());
}

#[test]
fn a_spurious_fault_costs_a_local_flush_since_raises_are_local() {
    let spurious = |kernel| {
        let (mut pt, mm) = lab::<Arm64>(kernel, Hw::arm64());
        let at = ptep(&pt, mm, 1);
        counted(&mut pt, |pt| pt.flush_tlb_fix_spurious_fault(at)).1
    };
    assert!(spurious("v6.12").is_empty());
    let expected = [
        (Event::FnUnderFlushTlbPage, 1),
        (Event::FnUnderDoFlushTlbRange, 1),
        (Event::FlushRangeLocal, 1),
        (Event::FlushRangePages, 1),
        (Event::DsbNshst, 1),
        (Event::TlbiVale1, 1),
        (Event::DsbNsh, 1),
    ];
    check(&spurious("v7.3"), everything, &expected);
}

#[test]
fn huge_leaves_are_counted_as_measured() {
    let (mut pt, mm) = lab::<Arm64>("v6.12", Hw::arm64());
    let at = pmdp(&pt, mm);
    let leaf = Pmd::new_leaf(FRAME, prot::<Arm64>()).mkwrite().mkdirty();
    let (_, c) = counted(&mut pt, |pt| pt.set_pmd_at(at, leaf));
    check(&c, everything, &[(Event::HugeLeafWrite, 1)]);

    let (_, c) = counted(&mut pt, |pt| pt.pmdp_set_wrprotect(at));
    check(&c, everything, &[(Event::PteRead, 1), (Event::PteCmpxchg, 1)]);

    let (old, c) = counted(&mut pt, |pt| pt.pmdp_invalidate(at));
    assert!(old.is_dirty() && !old.is_write());
    let expected = [
        (Event::PmdXchg, 1),
        (Event::FnUnderFlushTlbRange, 1),
        (Event::FnUnderFlushTlbRangeNosync, 1),
        (Event::FlushRangePages, 512),
        (Event::DsbIshst, 1),
        (Event::TlbiRvae1is, 1),
        (Event::DsbIsh, 1),
    ];
    check(&c, everything, &expected);
    let (_, c) = counted(&mut pt, |pt| pt.pmdp_huge_get_and_clear(at, Teardown::Partial));
    check(&c, everything, &[(Event::PmdXchg, 1)]);
}

#[test]
fn raising_a_huge_leaf_flushes_a_page_in_6_12_and_the_leaf_in_7_3() {
    for (kernel, expected) in [
        ("v6.12", &[(Event::DsbIsh, 1), (Event::DsbIshst, 1), (Event::TlbiVale1is, 1)][..]),
        (
            "v7.3",
            &[
                (Event::DsbNsh, 1),
                (Event::DsbNshst, 1),
                (Event::TlbiRvale1, 1),
                (Event::FlushRangeLocal, 1),
                (Event::FlushRangePages, 512),
            ][..],
        ),
    ] {
        let (mut pt, mm) = lab::<Arm64>(kernel, Hw::arm64());
        let at = pmdp(&pt, mm);
        let leaf = Pmd::new_leaf(FRAME, prot::<Arm64>()).mkwrite();
        pt.set_pmd_at(at, leaf);
        let dirty = leaf.mkdirty();
        let (_, c) = counted(&mut pt, |pt| pt.pmdp_set_access_flags(at, dirty, FaultAccess::Write));
        check(&c, |e| matches!(e.kind(), EventKind::Tlb | EventKind::FlushDecision), expected);
    }
}

#[test]
fn the_stale_use_oracle_hears_of_lost_rights_only() {
    let (mut pt, mm) = lab::<Arm64>("v7.3", Hw::arm64());
    pt.tlb.watch = true;
    let at = ptep(&pt, mm, 1);
    pt.set_pte_at(at, rw(FRAME));
    pt.clear_young_dirty_ptes(at, NrPages::ONE, crate::ClearYoungDirty::Both);
    pt.ptep_set_access_flags(at, rw(FRAME), FaultAccess::Write);
    let old = pt.modify_prot_start_ptes(at, NrPages::ONE);
    pt.modify_prot_commit_ptes(at, old, NrPages::ONE);
    assert_eq!(pt.tlb.changes, []);

    pt.wrprotect_ptes(at, NrPages::ONE);
    let change = pt.tlb.changes.pop().expect("write permission went");
    assert_eq!((change.va, change.reach), (at.va, Reach::K4));
    let old = pt.modify_prot_start_ptes(at, NrPages::ONE);
    pt.modify_prot_commit_ptes(at, old.modify(prot()), NrPages::ONE);
    assert_eq!(pt.tlb.changes, []);
    pt.ptep_get_and_clear(at);
    assert_eq!(pt.tlb.changes.len(), 1);
}

#[test]
fn a_live_descriptor_replaced_by_another_frame_is_a_violation() {
    let (mut pt, mm) = lab::<Arm64>("v7.3", Hw::arm64());
    pt.tlb.watch = true;
    let at = ptep(&pt, mm, 1);
    pt.set_pte_at(at, rw(FRAME));
    pt.set_pte_at(at, rw(FRAME.add(1)));
    assert_eq!(pt.violations.len(), 1);
    assert!(pt.violations[0].contains("break-before-make"), "{:?}", pt.violations);
    assert_eq!(at.va, BASE.wrapping_add(units::PAGE_SIZE));
}
