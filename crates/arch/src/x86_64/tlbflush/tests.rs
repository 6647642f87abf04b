use crate::testing::{BASE, FRAME, Lab, another_mm, check, counted, lab, ptep, rw};
use crate::{FlushRange, GatherFlush, Hw, LeafOnly, MmId, Pt, SwitchKind, Teardown, TlbOp, X86_64};
use events::{Counters, Event};
use units::{CpuId, NrPages, PAGE_SIZE, PMD_SIZE, Reach};

type TestPt = Pt<Lab<X86_64>>;

const CPU0: CpuId = CpuId::new(0);
const CPU1: CpuId = CpuId::new(1);
const CPU2: CpuId = CpuId::new(2);

fn four() -> Hw {
    Hw { cpus: 4, ..Hw::x86_64() }
}

fn pcid() -> Hw {
    Hw { pcid: true, invpcid: true, ..four() }
}

fn pages(nr: u64) -> FlushRange {
    let end = BASE.wrapping_add(nr * PAGE_SIZE);
    FlushRange { start: BASE, end, stride: Reach::K4, leaf_only: LeafOnly::Yes }
}

fn flush(pt: &mut TestPt, mm: MmId, nr: u64) -> Counters {
    counted(pt, |pt| pt.flush_tlb_range(mm, pages(nr))).1
}

const fn local_partial(n: u64) -> [(Event, u64); 6] {
    [
        (Event::FnFlushTlbMmRange, 1),
        (Event::MmTlbGenInc, 1),
        (Event::FnFlushTlbFunc, 1),
        (Event::FlushTlbFuncPartial, 1),
        (Event::FnNativeFlushTlbOneUser, n),
        (Event::Invlpg, n),
    ]
}

const LOCAL_FULL: [(Event, u64); 7] = [
    (Event::FnFlushTlbMmRange, 1),
    (Event::FlushTlbMmRangeFull, 1),
    (Event::MmTlbGenInc, 1),
    (Event::FnFlushTlbFunc, 1),
    (Event::FlushTlbFuncFull, 1),
    (Event::FnNativeFlushTlbLocal, 1),
    (Event::Cr3Reload, 1),
];

#[test]
fn thirty_three_pages_go_one_by_one_and_thirty_four_at_once() {
    let (mut pt, mm) = lab::<X86_64>("v7.3", four());
    check(&flush(&mut pt, mm, 1), |_| true, &local_partial(1));
    check(&flush(&mut pt, mm, 33), |_| true, &local_partial(33));
    assert_eq!(pt.tlb.ops.len(), 33);
    check(&flush(&mut pt, mm, 34), |_| true, &LOCAL_FULL);
    assert_eq!(pt.tlb.ops, [(CPU0, TlbOp::Cr3Reload)]);
}

#[test]
fn the_ceiling_counts_strides() {
    let (mut pt, mm) = lab::<X86_64>("v7.3", four());
    let gather = |leaves, teardown| GatherFlush {
        start: BASE,
        end: BASE.wrapping_add(leaves * PMD_SIZE),
        stride: Reach::M2,
        freed_tables: false,
        teardown,
    };
    let (_, c) = counted(&mut pt, |pt| pt.tlb_flush(mm, &gather(32, Teardown::Partial)));
    check(&c, |_| true, &local_partial(32));
    // `flush_pmd_tlb_range()` counts 4 KiB pages, so that one leaf is a full flush already.
    let one = FlushRange { stride: Reach::M2, ..pages(512) };
    let (_, c) = counted(&mut pt, |pt| pt.flush_tlb_range(mm, one));
    check(&c, |_| true, &LOCAL_FULL);
    let (_, c) = counted(&mut pt, |pt| pt.tlb_flush(mm, &gather(1, Teardown::FullMm)));
    check(&c, |_| true, &LOCAL_FULL);
}

#[test]
fn other_cpus_are_interrupted_and_flush_for_themselves() {
    let (mut pt, mm) = lab::<X86_64>("v7.3", four());
    pt.switch_mm(CPU1, mm);
    pt.switch_mm(CPU2, mm);
    assert!(pt.tlbbatch_should_defer(mm));
    let c = flush(&mut pt, mm, 2);
    let expected = [
        (Event::FnFlushTlbMmRange, 1),
        (Event::MmTlbGenInc, 1),
        (Event::FnNativeFlushTlbMulti, 1),
        (Event::FnSmpCallFunctionManyCond, 1),
        (Event::CsdQueuedCpu, 2),
        (Event::IpiCallCpu, 2),
        (Event::FlushTlbFuncRemote, 2),
        (Event::FnFlushTlbFunc, 3),
        (Event::FlushTlbFuncPartial, 3),
        (Event::FnNativeFlushTlbOneUser, 6),
        (Event::Invlpg, 6),
    ];
    check(&c, |_| true, &expected);
    let by = |cpu| pt.tlb.ops.iter().filter(|o| o.0 == cpu).count();
    assert_eq!((by(CPU0), by(CPU1), by(CPU2)), (2, 2, 2));
}

#[test]
fn a_lazy_cpu_is_spared_and_flushes_when_it_returns() {
    let (mut pt, mm) = lab::<X86_64>("v7.3", four());
    pt.switch_mm(CPU1, mm);
    pt.enter_lazy_tlb(CPU1);
    let c = flush(&mut pt, mm, 2);
    assert_eq!((c.get(Event::IpiCallCpu), c.get(Event::FnNativeFlushTlbMulti)), (0, 1));
    pt.tlb.switches.clear();
    pt.switch_mm(CPU1, mm);
    assert_eq!(pt.tlb.switches.len(), 1);
    assert_eq!(pt.tlb.switches[0].3, SwitchKind::Flush);
    // Nothing was missed this time.
    pt.enter_lazy_tlb(CPU1);
    pt.switch_mm(CPU1, mm);
    assert_eq!(pt.tlb.switches.len(), 1);
}

#[test]
fn freed_tables_reach_lazy_cpus_too_and_move_them_away() {
    let (mut pt, mm) = lab::<X86_64>("v7.3", four());
    pt.switch_mm(CPU1, mm);
    pt.enter_lazy_tlb(CPU1);
    let gather = GatherFlush {
        start: BASE,
        end: BASE.wrapping_add(PAGE_SIZE),
        stride: Reach::K4,
        freed_tables: true,
        teardown: Teardown::Partial,
    };
    let (_, c) = counted(&mut pt, |pt| pt.tlb_flush(mm, &gather));
    assert_eq!((c.get(Event::IpiCallCpu), c.get(Event::FlushTlbFuncPartial)), (1, 1));
    let (_, c) = counted(&mut pt, |pt| pt.tlb_flush(mm, &gather));
    assert_eq!(c.get(Event::IpiCallCpu), 1, "still in the mask, finds another mm loaded");
    let (_, c) = counted(&mut pt, |pt| pt.tlb_flush(mm, &gather));
    assert_eq!(c.get(Event::IpiCallCpu), 0, "and left it");
}

#[test]
fn a_cpu_that_fell_behind_flushes_everything_then_has_nothing_to_do() {
    let (mut pt, mm) = lab::<X86_64>("v7.3", four());
    pt.switch_mm(CPU1, mm);
    // Two requests are pending, neither carried out.
    pt.tlbbatch_add_pending(mm, BASE, NrPages::ONE);
    pt.tlbbatch_add_pending(mm, BASE, NrPages::ONE);
    let c = flush(&mut pt, mm, 1);
    assert_eq!((c.get(Event::FlushTlbFuncFull), c.get(Event::FlushTlbFuncPartial)), (2, 0));
    let (_, c) = counted(&mut pt, TestPt::tlbbatch_flush);
    assert_eq!((c.get(Event::FlushTlbFuncUptodate), c.get(Event::IpiCallCpu)), (2, 1));
    assert!(pt.tlb.ops.is_empty());
}

#[test]
fn a_batch_costs_one_round_however_many_pages_it_has() {
    let (mut pt, mm) = lab::<X86_64>("v6.12", four());
    assert!(!pt.tlbbatch_should_defer(mm), "alone, each unmap flushes at once");
    pt.switch_mm(CPU1, mm);
    let (_, c) = counted(&mut pt, |pt| {
        for i in 0..100 {
            pt.tlbbatch_add_pending(mm, BASE.wrapping_add(i * PAGE_SIZE), NrPages::ONE);
        }
    });
    check(&c, |_| true, &[(Event::FnArchTlbbatchAddPending, 100), (Event::MmTlbGenInc, 100)]);
    let (_, c) = counted(&mut pt, TestPt::tlbbatch_flush);
    let expected = [
        (Event::FnArchTlbbatchFlush, 1),
        (Event::FnNativeFlushTlbMulti, 1),
        (Event::FnSmpCallFunctionManyCond, 1),
        (Event::CsdQueuedCpu, 1),
        (Event::IpiCallCpu, 1),
        (Event::FlushTlbFuncRemote, 1),
        (Event::FnFlushTlbFunc, 2),
        (Event::FlushTlbFuncFull, 2),
        (Event::FnNativeFlushTlbLocal, 2),
        (Event::Cr3Reload, 2),
    ];
    check(&c, |_| true, &expected);
    let (_, c) = counted(&mut pt, TestPt::tlbbatch_flush);
    check(&c, |_| true, &[(Event::FnArchTlbbatchFlush, 1)]);
}

#[test]
fn a_cpu_stays_in_the_mask_until_a_flush_trims_it() {
    let (mut pt, mm) = lab::<X86_64>("v7.3", four());
    let other = another_mm(&mut pt, 0);
    pt.switch_mm(CPU1, mm);
    pt.switch_mm(CPU1, other);
    assert!(pt.tlbbatch_should_defer(mm), "it moved on, but counts as present");
    assert_eq!(flush(&mut pt, mm, 1).get(Event::IpiCallCpu), 0);
    assert!(pt.tlbbatch_should_defer(mm));
    pt.jiffies += 101;
    assert_eq!(flush(&mut pt, mm, 1).get(Event::IpiCallCpu), 1);
    assert!(!pt.tlbbatch_should_defer(mm));
}

#[test]
fn without_pcid_every_switch_flushes() {
    let (mut pt, mm) = lab::<X86_64>("v7.3", four());
    let other = another_mm(&mut pt, 0);
    for next in [other, mm] {
        pt.switch_mm(CPU0, next);
    }
    assert!(pt.tlb.switches.iter().all(|s| s.2.get() == 0 && s.3 == SwitchKind::Flush));
    assert_eq!(pt.tlb.switches.len(), 3);
}

#[test]
fn pcid_keeps_the_entries_of_six_address_spaces() {
    let (mut pt, mm) = lab::<X86_64>("v7.3", pcid());
    let mms: Vec<MmId> =
        std::iter::once(mm).chain((0..5).map(|i| another_mm(&mut pt, i))).collect();
    for &next in &mms[1..] {
        pt.switch_mm(CPU0, next);
    }
    pt.tlb.switches.clear();
    let (_, c) = counted(&mut pt, |pt| mms.iter().for_each(|&next| pt.switch_mm(CPU0, next)));
    assert_eq!(c.get(Event::Cr3WriteNoflush), 6);
    assert!(pt.tlb.switches.iter().all(|s| s.3 == SwitchKind::Keep));
    let mut tags: Vec<u16> = pt.tlb.switches.iter().map(|s| s.2.get()).collect();
    tags.sort_unstable();
    assert_eq!(tags, [1, 2, 3, 4, 5, 6], "PCID 0 is never used");
    // A seventh takes the place of the oldest.
    let seventh = another_mm(&mut pt, 9);
    pt.switch_mm(CPU0, seventh);
    pt.switch_mm(CPU0, mms[0]);
    let kinds: Vec<SwitchKind> = pt.tlb.switches[6..].iter().map(|s| s.3).collect();
    assert_eq!(kinds, [SwitchKind::Flush, SwitchKind::Flush]);
}

#[test]
fn a_tag_that_missed_a_flush_is_flushed_on_return() {
    let (mut pt, mm) = lab::<X86_64>("v7.3", pcid());
    let other = another_mm(&mut pt, 0);
    pt.switch_mm(CPU0, other);
    let c = flush(&mut pt, mm, 1);
    assert_eq!(c.get(Event::FnFlushTlbFunc), 0, "loaded nowhere");
    pt.switch_mm(CPU0, mm);
    assert_eq!(pt.tlb.switches.last().expect("switched").3, SwitchKind::Flush);
}

#[test]
fn page_table_isolation_flushes_the_user_tag_as_well() {
    let (mut pt, mm) = lab::<X86_64>("v7.3", Hw { kpti: true, ..pcid() });
    assert_eq!(pt.tlb.switches[0].2.get() & 0x7ff, pt.tlb.switches[0].2.get() - 0x800);
    let c = flush(&mut pt, mm, 3);
    assert_eq!((c.get(Event::Invlpg), c.get(Event::Invpcid)), (3, 3));
}

#[test]
fn an_exiting_process_flushes_once_and_leaves_its_mm() {
    let (mut pt, mm) = lab::<X86_64>("v6.12", four());
    pt.enter_lazy_tlb(CPU0);
    let gather = GatherFlush {
        start: BASE,
        end: BASE.wrapping_add(PAGE_SIZE),
        stride: Reach::K4,
        freed_tables: true,
        teardown: Teardown::FullMm,
    };
    let mut tear = || counted(&mut pt, |pt| pt.tlb_flush(mm, &gather)).1;
    let request =
        [(Event::FnFlushTlbMmRange, 1), (Event::FlushTlbMmRangeFull, 1), (Event::MmTlbGenInc, 1)];
    let mut first = request.to_vec();
    first.push((Event::FnFlushTlbFunc, 1));
    check(&tear(), |_| true, &first);
    check(&tear(), |_| true, &request);
}

#[test]
fn a_destroyed_mm_is_loaded_nowhere() {
    let (mut pt, mm) = lab::<X86_64>("v7.3", four());
    let other = another_mm(&mut pt, 0);
    pt.enter_lazy_tlb(CPU0);
    pt.mm_destroy(mm);
    pt.switch_mm(CPU0, other);
    assert_eq!(flush(&mut pt, other, 1).get(Event::Invlpg), 1);
}

#[test]
fn unmapping_one_page_marks_it_stale_until_flushed() {
    let (mut pt, mm) = lab::<X86_64>("v7.3", four());
    pt.tlb.watch = true;
    let at = ptep(&pt, mm, 4);
    pt.set_pte_at(at, rw(FRAME));
    let (_, c) = counted(&mut pt, |pt| pt.ptep_clear_flush(at));
    assert_eq!((c.get(Event::PteXchg), c.get(Event::Invlpg)), (1, 1));
    assert_eq!(pt.tlb.changes.len(), 1);
    assert_eq!(pt.tlb.changes[0].va, at.va);
}
