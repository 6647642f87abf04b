use super::range_digit;
use crate::testing::{BASE, Lab, another_mm, check, counted, lab};
use crate::{
    Arm64, Broadcast, FlushRange, GatherFlush, Hw, LeafOnly, MmId, Pt, SwitchKind, Teardown, TlbOp,
};
use events::{Event, EventKind};
use proptest::prelude::*;
use units::{Asid, CpuId, NrPages, PAGE_SIZE, Reach, VirtAddr};

type TestPt = Pt<Lab<Arm64>>;

fn no_range() -> Hw {
    Hw { tlbi_range: false, ..Hw::arm64() }
}

fn pages(nr: u64) -> FlushRange {
    let end = BASE.wrapping_add(nr * PAGE_SIZE);
    FlushRange { start: BASE, end, stride: Reach::K4, leaf_only: LeafOnly::No }
}

/// Instructions that a flush of `nr` pages takes.
fn instructions(hw: Hw, nr: u64) -> u64 {
    let (mut pt, mm) = lab::<Arm64>("v7.3", hw);
    counted(&mut pt, |pt| pt.flush_tlb_range(mm, pages(nr)));
    pt.tlb.ops.len() as u64
}

#[test]
fn a_range_takes_one_instruction_per_non_zero_digit() {
    // The digits are those of nr/2 in base 32, and one page more if nr is odd.
    let table = [
        (1, 1),
        (2, 1),
        (3, 2),
        (16, 1),
        (17, 2),
        (32, 1),
        (64, 1),
        (66, 2),
        (512, 1),
        (2048, 1),
        (65_536, 1),
        (65_536 + 2048 + 64 + 2 + 1, 5),
        (1 << 21, 1),
        ((1 << 21) - 1, 5),
    ];
    for (nr, t) in table {
        assert_eq!(instructions(Hw::arm64(), nr), t, "{nr} pages");
    }
    assert_eq!(instructions(Hw::arm64(), (1 << 21) + 1), 1, "the whole ASID instead");
}

#[test]
fn without_ranges_each_page_takes_one_up_to_511() {
    for nr in [1, 2, 16, 511] {
        assert_eq!(instructions(no_range(), nr), nr);
    }
    assert_eq!(instructions(no_range(), 512), 1, "the whole ASID instead");
}

#[test]
fn too_large_a_range_waits_twice_in_6_12() {
    for (kernel, ish) in [("v6.12", 2), ("v7.3", 1)] {
        let (mut pt, mm) = lab::<Arm64>(kernel, no_range());
        let (_, c) = counted(&mut pt, |pt| pt.flush_tlb_range(mm, pages(512)));
        let expected = [
            (Event::DsbIsh, ish),
            (Event::DsbIshst, 1),
            (Event::TlbiAside1is, 1),
            (Event::FlushRangePages, 512),
        ];
        let tlb = |e: Event| matches!(e.kind(), EventKind::Tlb | EventKind::FlushDecision);
        check(&c, tlb, &expected);
        assert_eq!((c.get(Event::FnFlushTlbMm), c.get(Event::FnUnderFlushTlbRange)), (1, 1));
    }
}

#[test]
fn a_huge_stride_takes_one_instruction_per_leaf_without_ranges() {
    let (mut pt, mm) = lab::<Arm64>("v7.3", no_range());
    let range = FlushRange { stride: Reach::M2, ..pages(3 * 512) };
    let (_, c) = counted(&mut pt, |pt| pt.flush_tlb_range(mm, range));
    assert_eq!((c.get(Event::TlbiVae1is), c.get(Event::FnFlushTlbRange)), (3, 0));
}

#[test]
fn kpti_flushes_both_halves() {
    let (mut pt, mm) = lab::<Arm64>("v7.3", Hw { kpti: true, ..Hw::arm64() });
    let (_, c) = counted(&mut pt, |pt| pt.flush_tlb_mm(mm));
    assert_eq!((c.get(Event::TlbiAside1is), c.get(Event::DsbIsh)), (2, 1));
    let asids: Vec<_> = pt
        .tlb
        .ops
        .iter()
        .map(|(_, op)| match op {
            TlbOp::TlbiAsid { asid, broadcast: Broadcast::Yes } => asid.get(),
            other => panic!("{other:?}"),
        })
        .collect();
    assert_eq!(asids[0] | 1, asids[1]);
    assert_eq!(asids[0] & 1, 0);
    let (_, c) = counted(&mut pt, |pt| pt.flush_tlb_range(mm, pages(3)));
    assert_eq!((c.get(Event::TlbiRvae1is), c.get(Event::TlbiVae1is)), (2, 2));
    assert_eq!(pt.tlb.switches[0].2.get(), asids[1], "the guest runs under the user half");
}

#[test]
fn a_dying_mm_is_flushed_only_if_tables_go() {
    let (mut pt, mm) = lab::<Arm64>("v7.3", Hw::arm64());
    let gather = |teardown, freed_tables| GatherFlush {
        start: BASE,
        end: BASE.wrapping_add(16 * PAGE_SIZE),
        stride: Reach::K4,
        freed_tables,
        teardown,
    };
    let tlb = |e: Event| matches!(e.kind(), EventKind::Tlb);
    let mut flush =
        |teardown, freed| counted(&mut pt, |pt| pt.tlb_flush(mm, &gather(teardown, freed))).1;
    check(&flush(Teardown::FullMm, false), |_| true, &[(Event::TlbFlushFullmm, 1)]);
    let asid = [(Event::DsbIsh, 1), (Event::DsbIshst, 1), (Event::TlbiAside1is, 1)];
    check(&flush(Teardown::FullMm, true), tlb, &asid);
    let leaves = [(Event::DsbIsh, 1), (Event::DsbIshst, 1), (Event::TlbiRvale1is, 1)];
    check(&flush(Teardown::Partial, false), tlb, &leaves);
    let all = [(Event::DsbIsh, 1), (Event::DsbIshst, 1), (Event::TlbiRvae1is, 1)];
    check(&flush(Teardown::Partial, true), tlb, &all);
}

#[test]
fn a_batched_unmap_invalidates_at_once_and_waits_later() {
    let (mut pt, mm) = lab::<Arm64>("v6.12", Hw::arm64());
    assert!(pt.tlbbatch_should_defer(mm));
    let (_, c) = counted(&mut pt, |pt| pt.tlbbatch_add_pending(mm, BASE, NrPages::ONE));
    let expected = [
        (Event::FnArchTlbbatchAddPending, 1),
        (Event::FnUnderFlushTlbPageNosync, 1),
        (Event::DsbIshst, 1),
        (Event::TlbiVale1is, 1),
    ];
    check(&c, |_| true, &expected);
    let (_, c) = counted(&mut pt, |pt| pt.tlbbatch_add_pending(mm, BASE, NrPages::new(16)));
    let expected = [
        (Event::FnArchTlbbatchAddPending, 1),
        (Event::FnUnderFlushTlbRangeNosync, 1),
        (Event::FlushRangePages, 16),
        (Event::DsbIshst, 1),
        (Event::TlbiRvale1is, 1),
    ];
    check(&c, |_| true, &expected);
    let (_, c) = counted(&mut pt, TestPt::tlbbatch_flush);
    check(&c, |_| true, &[(Event::FnArchTlbbatchFlush, 1), (Event::DsbIsh, 1)]);
}

#[test]
fn switching_within_a_generation_flushes_nothing() {
    let (mut pt, mm) = lab::<Arm64>("v7.3", Hw::arm64());
    let other = another_mm(&mut pt, 0);
    let cpu = CpuId::new(0);
    let (_, c) = counted(&mut pt, |pt| {
        for next in [other, mm, other, mm] {
            pt.switch_mm(cpu, next);
        }
    });
    assert!(c.is_empty() && pt.tlb.ops.is_empty());
    let asid = |i: usize| pt.tlb.switches[i].2;
    assert_eq!((asid(0), asid(1)), (asid(2), asid(3)));
    assert_ne!(asid(0), asid(1));
    assert!(pt.tlb.switches.iter().all(|s| s.3 == SwitchKind::Keep));
}

/// Creates and loads mms on CPU 0 until `body` says stop; returns them.
fn load_many(pt: &mut TestPt, n: u64) -> Vec<MmId> {
    (0..n)
        .map(|i| {
            let mm = another_mm(pt, i);
            pt.switch_mm(CpuId::new(0), mm);
            mm
        })
        .collect()
}

#[test]
fn running_out_of_asids_flushes_each_cpu_once() {
    let hw = Hw { asid_bits: 8, cpus: 2, ..Hw::arm64() };
    let (mut pt, first) = lab::<Arm64>("v7.3", hw);
    // CPU 1 keeps an mm loaded through the roll-over.
    let kept = another_mm(&mut pt, 1000);
    pt.switch_mm(CpuId::new(1), kept);
    let kept_asid = pt.tlb.switches.last().expect("switched").2;
    // 255 ASIDs (0 is reserved), two are taken.
    let (_, c) = counted(&mut pt, |pt| load_many(pt, 253));
    assert!(c.is_empty());
    let vmalle1 = [(Event::DsbNsh, 1), (Event::DsbNshst, 1), (Event::TlbiVmalle1, 1)];
    let (_, c) = counted(&mut pt, |pt| load_many(pt, 1));
    check(&c, |_| true, &vmalle1);
    assert_eq!(pt.tlb.ops, [(CpuId::new(0), TlbOp::TlbiAll { broadcast: Broadcast::No })]);
    let (_, c) = counted(&mut pt, |pt| load_many(pt, 100));
    assert!(c.is_empty(), "once per generation");
    let given: Vec<Asid> = pt.tlb.switches.iter().rev().take(101).map(|s| s.2).collect();
    assert!(!given.contains(&kept_asid), "an ASID live on a CPU is not given away");
    // CPU 1 pays at its next switch that is not free.
    let (_, c) = counted(&mut pt, |pt| pt.switch_mm(CpuId::new(1), first));
    check(&c, |_| true, &vmalle1);
    assert_eq!(pt.tlb.ops, [(CpuId::new(1), TlbOp::TlbiAll { broadcast: Broadcast::No })]);
    pt.switch_mm(CpuId::new(1), kept);
    assert_eq!(pt.tlb.switches.last().expect("switched").2, kept_asid, "and is kept");
}

#[test]
fn kpti_halves_the_asids() {
    let hw = Hw { asid_bits: 8, kpti: true, ..Hw::arm64() };
    let (mut pt, _) = lab::<Arm64>("v7.3", hw);
    let (_, c) = counted(&mut pt, |pt| load_many(pt, 126));
    assert_eq!(c.get(Event::TlbiVmalle1), 0);
    let (_, c) = counted(&mut pt, |pt| load_many(pt, 1));
    assert_eq!(c.get(Event::TlbiVmalle1), 1);
}

proptest! {
    #[test]
    fn instructions_cover_the_range_exactly(nr in 1u64..1 << 21) {
        let (mut pt, mm) = lab::<Arm64>("v7.3", Hw::arm64());
        pt.flush_tlb_range(mm, pages(nr));
        let mut at = BASE;
        for (_, op) in &pt.tlb.ops {
            let (va, step): (VirtAddr, u64) = match *op {
                TlbOp::TlbiRange { va, pages, .. } => (va, pages.get()),
                TlbOp::TlbiVa { va, .. } => (va, 1),
                ref other => panic!("{other:?}"),
            };
            prop_assert_eq!(va, at);
            prop_assert!(step == 1 || step % 2 == 0);
            at = at.wrapping_add(step * PAGE_SIZE);
        }
        prop_assert_eq!(at, BASE.wrapping_add(nr * PAGE_SIZE));
        prop_assert!(pt.tlb.ops.len() <= 5);
        prop_assert_eq!(range_digit(1, 0), 0);
    }
}
