//! The cost table of the contpte layer, row by row, derived by hand.

use super::gather;
use crate::arm64::bits::{AF, CONT, DIRTY, RDONLY};
use crate::arm64::{bits, check_cont_block};
use crate::testing::{BASE, FRAME, Lab, check, counted, folio, lab, ptep, rw};
use crate::{
    Arm64, BbmLevel, ClearYoungDirty, FaultAccess, Hw, MmId, Pt, Pte, Ptep, Softleaf, Teardown,
};
use events::{Counters, Event, EventKind};
use proptest::prelude::*;
use units::{NrPages, Order, PhysAddr, Reach};

type TestPt = Pt<Lab<Arm64>>;
const SIXTEEN: NrPages = NrPages::new(16);

fn order(n: u8) -> Order {
    Order::new(n).expect("an order")
}

/// A machine whose first 64 pages are one folio, all mapped folded, dirty and young.
fn folded_on(kernel: &str, hw: Hw) -> (TestPt, MmId) {
    let (mut pt, mm) = lab::<Arm64>(kernel, hw);
    folio(&mut pt, FRAME, order(6));
    let at = ptep(&pt, mm, 0);
    pt.set_ptes(at, rw(FRAME), NrPages::new(64));
    (pt, mm)
}

fn folded() -> (TestPt, MmId) {
    folded_on("v7.3", Hw::arm64())
}

/// Rewrites the raw entries of the first block.
fn poke(pt: &mut TestPt, mm: MmId, change: impl Fn(u64, u64) -> u64) {
    for i in 0..16 {
        let slot = ptep(pt, mm, i).slot;
        let raw = pt.ram.load_u64(slot);
        pt.ram.store_u64(slot, change(i, raw));
    }
}

fn is_folded(pt: &TestPt, mm: MmId, block: u64) -> bool {
    let entries = block_entries(pt, mm, block);
    assert_eq!(check_cont_block(&entries, Reach::K4), Ok(()));
    entries[0] & CONT != 0
}

fn block_entries(pt: &TestPt, mm: MmId, block: u64) -> [u64; 16] {
    std::array::from_fn(|i| pt.ram.load_u64(ptep(pt, mm, block * 16 + i as u64).slot))
}

/// Raw reads, atomics, stores, TLBIs, DSB ISHST, DSB ISH: the columns of the worked sequences.
type Row = (u64, u64, u64, u64, u64, u64);

fn row(c: &Counters) -> Row {
    let sum = |of: &[Event]| of.iter().map(|&e| c.get(e)).sum();
    (
        c.get(Event::PteRead),
        sum(&[Event::PteXchg, Event::PteCmpxchg]),
        c.get(Event::PteWrite),
        sum(&[
            Event::TlbiVale1is,
            Event::TlbiVae1is,
            Event::TlbiRvale1is,
            Event::TlbiRvae1is,
            Event::TlbiAside1is,
        ]),
        c.get(Event::DsbIshst),
        c.get(Event::DsbIsh),
    )
}

fn run(pt: &mut TestPt, body: impl FnOnce(&mut TestPt)) -> Row {
    row(&counted(pt, body).1)
}

fn no_range() -> Hw {
    Hw { tlbi_range: false, ..Hw::arm64() }
}

/// Checks one worked sequence with and without range instructions and on a core that needs no
/// break-before-make.
#[track_caller]
fn check_sequence(body: impl Fn(&mut TestPt, MmId), conversions: u64, with_range: Row) {
    let (raw, atom, st, tlbi, ishst, ish) = with_range;
    let (mut pt, mm) = folded();
    assert_eq!(run(&mut pt, |pt| body(pt, mm)), with_range, "with ranges");
    let (mut pt, mm) = folded_on("v7.3", no_range());
    let single = (raw, atom, st, tlbi + 15 * conversions, ishst, ish);
    assert_eq!(run(&mut pt, |pt| body(pt, mm)), single, "without ranges");
    let (mut pt, mm) = folded_on("v7.3", Hw { bbm: BbmLevel::Level3, ..Hw::arm64() });
    let quiet = (raw, atom, st, tlbi - conversions, ishst - conversions, ish - conversions);
    assert_eq!(run(&mut pt, |pt| body(pt, mm)), quiet, "without break-before-make");
}

#[test]
fn fault_in_writes_16_entries_and_nothing_else() {
    let (mut pt, mm) = lab::<Arm64>("v7.3", Hw::arm64());
    let at = ptep(&pt, mm, 16);
    let (_, c) = counted(&mut pt, |pt| pt.set_ptes(at, rw(FRAME), SIXTEEN));
    assert_eq!(row(&c), (0, 0, 16, 0, 0, 0));
    assert_eq!(c.get(Event::ContpteSetPtesBlocks), 1);
    assert!(is_folded(&pt, mm, 1));
}

#[test]
fn clearing_one_by_one_unfolds_once() {
    let one_by_one = |pt: &mut TestPt, mm| {
        for i in 0..16 {
            let at = ptep(pt, mm, i);
            assert!(pt.ptep_get_and_clear(at).is_dirty());
        }
    };
    check_sequence(one_by_one, 1, (16, 32, 16, 1, 1, 1));
}

#[test]
fn clearing_in_one_call_does_not_unfold() {
    let at_once = |pt: &mut TestPt, mm| {
        let at = ptep(pt, mm, 0);
        let pte = pt.get_and_clear_full_ptes(at, SIXTEEN, Teardown::Partial);
        assert_eq!(pte.pfn(), FRAME);
    };
    check_sequence(at_once, 0, (0, 16, 0, 0, 0, 0));
}

#[test]
fn clearing_half_a_block_unfolds_it() {
    let half = |pt: &mut TestPt, mm| {
        let at = ptep(pt, mm, 0);
        pt.clear_full_ptes(at, NrPages::new(8), Teardown::Partial);
    };
    check_sequence(half, 1, (2, 24, 16, 1, 1, 1));
    let (mut pt, mm) = folded();
    half(&mut pt, mm);
    assert!(!is_folded(&pt, mm, 0) && is_folded(&pt, mm, 1));
}

#[test]
fn clearing_from_the_middle_of_one_block_to_that_of_another_unfolds_both() {
    let straddle = |pt: &mut TestPt, mm| {
        let at = ptep(pt, mm, 8);
        pt.get_and_clear_full_ptes(at, NrPages::new(32), Teardown::Partial);
    };
    check_sequence(straddle, 2, (2, 32 + 32, 32, 2, 2, 2));
}

#[test]
fn write_protecting_a_whole_block_keeps_it_folded() {
    let fork = |pt: &mut TestPt, mm| {
        let at = ptep(pt, mm, 0);
        pt.wrprotect_ptes(at, SIXTEEN);
    };
    check_sequence(fork, 0, (16, 16, 0, 0, 0, 0));
    let (mut pt, mm) = folded();
    fork(&mut pt, mm);
    let at = ptep(&pt, mm, 5);
    let pte = pt.ptep_get(at);
    assert!(is_folded(&pt, mm, 0) && !pte.is_write() && pte.is_dirty());
}

#[test]
fn write_protecting_one_entry_unfolds() {
    let one = |pt: &mut TestPt, mm| {
        let at = ptep(pt, mm, 3);
        pt.wrprotect_ptes(at, NrPages::ONE);
    };
    check_sequence(one, 1, (1, 17, 16, 1, 1, 1));
}

#[test]
fn swap_entries_go_one_by_one() {
    let (mut pt, mm) = lab::<Arm64>("v7.3", Hw::arm64());
    let got = run(&mut pt, |pt| {
        for i in 0..16 {
            let at = ptep(pt, mm, i);
            pt.set_pte_at(at, Pte::from_softleaf(Softleaf::swap(0, 100 + i)));
        }
    });
    assert_eq!(got, (16, 0, 16, 0, 0, 0));
}

fn map_one_by_one(pt: &mut TestPt, mm: MmId, indices: impl Iterator<Item = u64>) {
    for i in indices {
        let at = ptep(pt, mm, i);
        pt.set_pte_at(at, rw(FRAME.add(i)));
    }
}

#[test]
fn mapping_low_to_high_folds_on_the_last_store() {
    for (hw, tlbi) in [(Hw::arm64(), 1), (no_range(), 16)] {
        let (mut pt, mm) = lab::<Arm64>("v6.12", hw);
        folio(&mut pt, FRAME, order(4));
        let (_, c) = counted(&mut pt, |pt| map_one_by_one(pt, mm, 0..16));
        assert_eq!(row(&c), (16 + 16, 16, 16 + 16, tlbi, 1, 1));
        assert_eq!((c.get(Event::ContpteFoldDone), c.get(Event::FnUnderContpteTryFold)), (1, 1));
        assert!(is_folded(&pt, mm, 0));
    }
}

#[test]
fn mapping_high_to_low_never_folds() {
    let (mut pt, mm) = lab::<Arm64>("v7.3", Hw::arm64());
    folio(&mut pt, FRAME, order(4));
    // The attempt at the first store reads one entry, finds it empty and gives up.
    let got = run(&mut pt, |pt| map_one_by_one(pt, mm, (0..16).rev()));
    assert_eq!(got, (16 + 1, 0, 16, 0, 0, 0));
    assert!(!is_folded(&pt, mm, 0));
}

#[test]
fn small_folios_do_not_fold_and_cost_no_reads() {
    let (mut pt, mm) = lab::<Arm64>("v7.3", Hw::arm64());
    for first in [0, 8] {
        folio(&mut pt, FRAME.add(first), order(3));
    }
    let (_, c) = counted(&mut pt, |pt| map_one_by_one(pt, mm, 0..16));
    assert_eq!(row(&c), (16, 0, 16, 0, 0, 0));
    assert_eq!(c.get(Event::FnUnderContpteTryFold), 1);
}

#[test]
fn a_misaligned_folio_is_not_even_tried() {
    let (mut pt, mm) = lab::<Arm64>("v7.3", Hw::arm64());
    folio(&mut pt, FRAME, order(6));
    let (_, c) = counted(&mut pt, |pt| {
        for i in 0..16 {
            let at = ptep(pt, mm, i);
            pt.set_pte_at(at, rw(FRAME.add(i + 1)));
        }
    });
    assert_eq!(c.get(Event::FnUnderContpteTryFold), 0);
}

#[test]
fn conversions_gather_access_and_dirty_state() {
    let (mut pt, mm) = folded();
    poke(&mut pt, mm, |i, raw| match i {
        9 => raw & !AF,
        12 => (raw | AF) & !DIRTY & !RDONLY,
        _ => raw & !AF & !DIRTY | RDONLY,
    });
    let at = ptep(&pt, mm, 0);
    pt.ptep_get_and_clear(at);
    for i in 1..16 {
        let at = ptep(&pt, mm, i);
        let pte = pt.ptep_get(at);
        assert!(pte.is_young() && pte.is_dirty() && !pte.is_cont(), "entry {i}");
        assert_eq!(pte.pfn(), FRAME.add(i));
    }
}

#[test]
fn unfolding_is_attributed_to_its_op_and_marks_the_block_stale() {
    let (mut pt, mm) = folded();
    pt.tlb.watch = true;
    let at = ptep(&pt, mm, 2);
    pt.set_pte_at(at, rw(FRAME.add(2)).wrprotect());
    let first = pt.tlb.changes[0];
    assert_eq!((first.va, first.reach), (BASE, Reach::K64));
    assert_eq!(first.owed_by, events::Op::ContpteUnfold);
    assert_eq!(pt.op, events::Op::HandleMmFault, "the op around it is back");
    assert_eq!(pt.violations, Vec::<String>::new());
}

/// Reads of a getter on a folded block, beyond its own, when entry `d` is the first dirty and
/// entries `young` are young.
fn scan(kernel: &str, dirty: &[u64], young: &[u64]) -> u64 {
    let (mut pt, mm) = folded_on(kernel, Hw::arm64());
    poke(&mut pt, mm, |i, raw| {
        let raw = raw & !AF & !DIRTY | RDONLY;
        let raw = if dirty.contains(&i) { raw | DIRTY } else { raw };
        if young.contains(&i) { raw | AF } else { raw }
    });
    let at = ptep(&pt, mm, 7);
    let pte = Pte::from_raw(pt.ram.load_u64(at.slot));
    let (sum, c) = counted(&mut pt, |pt| gather(pt, at, pte));
    assert_eq!((sum.is_dirty(), sum.is_young()), (!dirty.is_empty(), !young.is_empty()));
    assert_eq!((sum.pfn(), sum.is_cont()), (FRAME.add(7), true));
    c.get(Event::PteRead)
}

#[test]
fn the_old_getter_scans_all_16() {
    let all: Vec<u64> = (0..16).collect();
    for (dirty, young) in [(&all[..], &all[..]), (&[], &[]), (&[3], &[9])] {
        assert_eq!(scan("v6.12", dirty, young), 16);
    }
}

#[test]
fn the_new_getter_stops_once_it_saw_both() {
    let all: Vec<u64> = (0..16).collect();
    let s = |dirty: &[u64], young: &[u64]| scan("v7.3", dirty, young);
    assert_eq!(s(&[], &[]), 16, "nothing to find");
    assert_eq!(s(&all, &all), 2, "dirty at once, then young at the same entry");
    assert_eq!(s(&[], &all), 16, "all young, all clean");
    assert_eq!(s(&all, &[]), 17, "all dirty, none young: one more than the old getter");
    assert_eq!(s(&[5], &[2]), 6, "young first: up to the dirty one");
    assert_eq!(s(&[5], &[9]), 6 + 5, "dirty first: the search for young restarts there");
    assert_eq!(s(&[5], &[5]), 6 + 1);
    assert_eq!(s(&[5], &[]), 6 + 11);
}

#[test]
fn getters_count_themselves_and_their_scan() {
    for (kernel, get, lockless) in [("v6.12", 17, 18), ("v7.3", 3, 4)] {
        let (mut pt, mm) = folded_on(kernel, Hw::arm64());
        let at = ptep(&pt, mm, 4);
        let (_, c) = counted(&mut pt, |pt| pt.ptep_get(at));
        let expected = [(Event::PtepGet, 1), (Event::PteRead, get), (Event::FnContptePtepGet, 1)];
        check(&c, |_| true, &expected);
        let (_, c) = counted(&mut pt, |pt| pt.ptep_get_lockless(at));
        let expected = [
            (Event::PtepGetLockless, 1),
            (Event::PteRead, lockless),
            (Event::FnContptePtepGetLockless, 1),
        ];
        check(&c, |_| true, &expected);
    }
}

#[test]
fn the_batch_hint_reaches_to_the_end_of_the_block() {
    let (mut pt, mm) = folded();
    let at = ptep(&pt, mm, 21);
    let pte = pt.ptep_get(at);
    assert_eq!(pt.pte_batch_hint(at, pte), NrPages::new(11));
    assert_eq!(pt.pte_batch_hint(at, rw(FRAME)), NrPages::ONE);
}

#[test]
fn setters_on_plain_entries_read_once() {
    let (mut pt, mm) = lab::<Arm64>("v7.3", Hw::arm64());
    let at = ptep(&pt, mm, 1);
    let one = NrPages::ONE;
    assert_eq!(run(&mut pt, |pt| pt.set_ptes(at, rw(FRAME), one)), (1, 0, 1, 0, 0, 0));
    assert_eq!(run(&mut pt, |pt| pt.wrprotect_ptes(at, one)), (1, 1, 0, 0, 0, 0));
    assert_eq!(
        run(&mut pt, |pt| {
            pt.ptep_get_and_clear(at);
        }),
        (1, 1, 0, 0, 0, 0)
    );
    assert_eq!(run(&mut pt, |pt| pt.pte_clear(at)), (1, 0, 1, 0, 0, 0));
    let full = Teardown::FullMm;
    assert_eq!(run(&mut pt, |pt| pt.clear_full_ptes(at, one, full)), (1, 1, 0, 0, 0, 0));
}

#[test]
fn a_kernel_without_the_layer_does_not_look() {
    let (mut pt, mm) = lab::<Arm64>("v6.1", Hw::arm64());
    folio(&mut pt, FRAME, order(4));
    let at = ptep(&pt, mm, 0);
    assert_eq!(run(&mut pt, |pt| pt.set_ptes(at, rw(FRAME), SIXTEEN)), (0, 0, 16, 0, 0, 0));
    assert!(!is_folded(&pt, mm, 0));
    assert_eq!(
        run(&mut pt, |pt| {
            pt.ptep_get_and_clear(at);
        }),
        (0, 1, 0, 0, 0, 0)
    );
    assert_eq!(run(&mut pt, |pt| pt.set_pte_at(at, rw(FRAME))), (0, 0, 1, 0, 0, 0));
}

#[test]
fn young_bits_of_a_block_go_together() {
    let (mut pt, mm) = folded();
    let at = ptep(&pt, mm, 3);
    let test = |pt: &mut TestPt, nr| {
        run(pt, |pt| {
            pt.test_and_clear_young_ptes(at, nr);
        })
    };
    assert_eq!(test(&mut pt, NrPages::ONE), (1 + 2 + 16, 16, 0, 0, 0, 0));
    // From entry 3 for 16: expanded to two blocks.
    assert_eq!(test(&mut pt, SIXTEEN), (2 + 32, 32, 0, 0, 0, 0));
    assert!(is_folded(&pt, mm, 0));
    let (mut pt, _) = folded_on("v6.12", Hw::arm64());
    assert_eq!(test(&mut pt, NrPages::ONE), (1 + 16, 16, 0, 0, 0, 0));
}

#[test]
fn clearing_young_flushes_without_waiting() {
    let (mut pt, mm) = folded();
    let at = ptep(&pt, mm, 0);
    let flush = |pt: &mut TestPt, nr| {
        run(pt, |pt| {
            pt.clear_flush_young_ptes(at, nr);
        })
    };
    assert_eq!(flush(&mut pt, SIXTEEN), (2 + 16 + 2, 16, 0, 1, 1, 0));
    assert_eq!(flush(&mut pt, SIXTEEN), (2 + 16, 16, 0, 0, 0, 0), "old already");
    let plain = ptep(&pt, mm, 100);
    pt.set_pte_at(plain, rw(FRAME.add(100)));
    let got = run(&mut pt, |pt| {
        pt.clear_flush_young_ptes(plain, NrPages::ONE);
    });
    assert_eq!(got, (2, 1, 0, 1, 1, 0));
    let (mut pt, _) = folded_on("v6.12", Hw::arm64());
    assert_eq!(flush(&mut pt, NrPages::ONE), (1 + 16, 16, 0, 1, 1, 0));
}

#[test]
fn young_and_dirty_go_without_unfolding() {
    use ClearYoungDirty::{Both, Dirty, Young};
    let (mut pt, mm) = folded();
    let at = ptep(&pt, mm, 0);
    let clear = |pt: &mut TestPt, nr, what| run(pt, |pt| pt.clear_young_dirty_ptes(at, nr, what));
    assert_eq!(clear(&mut pt, SIXTEEN, Young), (18, 16, 0, 0, 0, 0));
    assert_eq!(clear(&mut pt, SIXTEEN, Dirty), (18, 16, 0, 0, 0, 0));
    assert_eq!(clear(&mut pt, SIXTEEN, Both), (18, 0, 16, 0, 0, 0));
    assert_eq!(clear(&mut pt, NrPages::ONE, Both), (19, 0, 16, 0, 0, 0));
    let pte = pt.ptep_get(at);
    assert!(is_folded(&pt, mm, 0) && !pte.is_young() && !pte.is_dirty());
    let plain = ptep(&pt, mm, 100);
    pt.set_pte_at(plain, rw(FRAME.add(100)));
    let got = run(&mut pt, |pt| pt.clear_young_dirty_ptes(plain, NrPages::ONE, Both));
    assert_eq!(got, (2, 0, 1, 0, 0, 0));
}

#[test]
fn raising_young_on_a_folded_block_raises_all_16() {
    for (kernel, reads) in [("v6.12", 19), ("v7.3", 19)] {
        let (mut pt, mm) = folded_on(kernel, Hw::arm64());
        poke(&mut pt, mm, |_, raw| raw & !AF);
        let at = ptep(&pt, mm, 6);
        let entry = pt.ptep_get(at).mkyoung();
        let read = |pt: &mut TestPt| pt.ptep_set_access_flags(at, entry, FaultAccess::Read);
        let (changed, c) = counted(&mut pt, read);
        assert!(changed);
        assert_eq!(row(&c), (reads, 16, 0, 0, 0, 0));
        assert!(is_folded(&pt, mm, 0) && block_entries(&pt, mm, 0).iter().all(|e| e & AF != 0));
        // Again: nothing to raise, found out by comparing all 16.
        let (changed, c) = counted(&mut pt, read);
        assert!(!changed);
        assert_eq!(row(&c), (17, 0, 0, 0, 0, 0));
    }
}

#[test]
fn a_write_that_raises_flags_flushes_the_block_once() {
    let on_write = |kernel| {
        let (mut pt, mm) = folded_on(kernel, no_range());
        poke(&mut pt, mm, |_, raw| raw & !AF & !DIRTY | RDONLY);
        let at = ptep(&pt, mm, 6);
        let entry = pt.ptep_get(at).mkyoung().mkdirty();
        counted(&mut pt, |pt| pt.ptep_set_access_flags(at, entry, FaultAccess::Write)).1
    };
    let tlb = |e: Event| matches!(e.kind(), EventKind::Tlb | EventKind::FlushDecision);
    let broadcast = [
        (Event::DsbIsh, 1),
        (Event::DsbIshst, 1),
        (Event::TlbiVale1is, 16),
        (Event::FlushRangePages, 16),
    ];
    check(&on_write("v6.12"), tlb, &broadcast);
    let local = [
        (Event::DsbNsh, 1),
        (Event::DsbNshst, 1),
        (Event::TlbiVale1, 16),
        (Event::FlushRangeLocal, 1),
        (Event::FlushRangePages, 16),
    ];
    check(&on_write("v7.3"), tlb, &local);
}

#[test]
fn raising_write_unfolds_and_raises_one() {
    let (mut pt, mm) = folded();
    let at = ptep(&pt, mm, 6);
    pt.wrprotect_ptes(ptep(&pt, mm, 0), SIXTEEN);
    let entry = pt.ptep_get(at).mkwrite().mkdirty().mkyoung();
    let (_, c) = counted(&mut pt, |pt| pt.ptep_set_access_flags(at, entry, FaultAccess::Write));
    // Test, one comparison, target, the entry itself; the unfold, then one exchange.
    assert_eq!(row(&c), (4, 17, 16, 1, 1, 1));
    assert_eq!((c.get(Event::TlbiVale1), c.get(Event::DsbNsh)), (1, 1));
    assert!(!is_folded(&pt, mm, 0));
    assert!(pt.ptep_get(at).is_write());
    let other = ptep(&pt, mm, 7);
    assert!(!pt.ptep_get(other).is_write());
}

#[test]
fn changing_protection_of_a_block_at_once_keeps_it_folded() {
    let (mut pt, mm) = folded();
    let at = ptep(&pt, mm, 0);
    let got = run(&mut pt, |pt| {
        let old = pt.modify_prot_start_ptes(at, SIXTEEN);
        pt.modify_prot_commit_ptes(at, old.wrprotect(), SIXTEEN);
    });
    assert_eq!(got, (0, 16, 16, 0, 0, 0));
    assert!(is_folded(&pt, mm, 0));
}

#[test]
fn changing_protection_page_by_page_unfolds_and_folds_again() {
    let (mut pt, mm) = folded_on("v6.12", Hw::arm64());
    let got = run(&mut pt, |pt| {
        for i in 0..16 {
            let at = ptep(pt, mm, i);
            pt.ptep_get(at);
            let old = pt.modify_prot_start_ptes(at, NrPages::ONE);
            pt.modify_prot_commit_ptes(at, old.wrprotect(), NrPages::ONE);
        }
    });
    // As measured: 80 raw reads, 48 exchanges, 48 stores, 2 range flushes.
    assert_eq!(got, (80, 48, 48, 2, 2, 2));
    assert!(is_folded(&pt, mm, 0));
}

/// One step of a random history of a table.
#[derive(Clone, Copy, Debug)]
enum Step {
    Set(u64, u64),
    Clear(u64, u64),
    ClearOne(u64),
    Wrprotect(u64, u64),
    Young(u64, u64),
    YoungDirty(u64, u64),
    Raise(u64),
    HwDirty(u64),
}

fn step() -> impl Strategy<Value = Step> {
    let at = 0u64..64;
    let nr = prop_oneof![Just(1u64), Just(16), 1u64..40];
    prop_oneof![
        (at.clone(), nr.clone()).prop_map(|(i, n)| Step::Set(i, n)),
        (at.clone(), nr.clone()).prop_map(|(i, n)| Step::Clear(i, n)),
        at.clone().prop_map(Step::ClearOne),
        (at.clone(), nr.clone()).prop_map(|(i, n)| Step::Wrprotect(i, n)),
        (at.clone(), nr.clone()).prop_map(|(i, n)| Step::Young(i, n)),
        (at.clone(), nr).prop_map(|(i, n)| Step::YoungDirty(i, n)),
        at.clone().prop_map(Step::Raise),
        at.prop_map(Step::HwDirty),
    ]
}

/// What the kernel may rely on, whatever the layer does: frame, write permission.
fn facts(pt: &TestPt, mm: MmId) -> Vec<(u64, bool)> {
    (0..64)
        .map(|i| {
            let pte = Pte::<Arm64>::from_raw(pt.ram.load_u64(ptep(pt, mm, i).slot));
            (if pte.is_present() { pte.pfn().get() } else { 0 }, pte.is_write())
        })
        .collect()
}

fn present(pt: &TestPt, at: Ptep) -> bool {
    Pte::<Arm64>::from_raw(pt.ram.load_u64(at.slot)).is_present()
}

/// Applies a step as far as its contract allows (setters over empty entries, the rest over
/// present ones).
fn apply(pt: &mut TestPt, mm: MmId, step: Step) {
    let at = |pt: &TestPt, i| ptep(pt, mm, i);
    let run_of = |pt: &TestPt, i: u64, n: u64, live: bool| {
        (i..(i + n).min(64)).take_while(|&k| present(pt, at(pt, k)) == live).count() as u64
    };
    let one = at(pt, 0);
    match step {
        Step::Set(i, n) => {
            let n = run_of(pt, i, n, false);
            if n > 0 {
                pt.set_ptes(at(pt, i), rw(FRAME.add(i)), NrPages::new(n));
            }
        }
        Step::Clear(i, n) => {
            let n = run_of(pt, i, n, true);
            if n > 0 {
                pt.clear_full_ptes(at(pt, i), NrPages::new(n), Teardown::Partial);
            }
        }
        Step::ClearOne(i) => {
            pt.ptep_get_and_clear(at(pt, i));
        }
        Step::Wrprotect(i, n) => {
            let n = run_of(pt, i, n, true);
            if n > 0 {
                pt.wrprotect_ptes(at(pt, i), NrPages::new(n));
            }
        }
        Step::Young(i, n) => {
            let n = run_of(pt, i, n, true);
            if n > 0 {
                pt.test_and_clear_young_ptes(at(pt, i), NrPages::new(n));
            }
        }
        Step::YoungDirty(i, n) => {
            let n = run_of(pt, i, n, true);
            if n > 0 {
                let nr = NrPages::new(n);
                pt.clear_young_dirty_ptes(at(pt, i), nr, ClearYoungDirty::Both);
            }
        }
        Step::Raise(i) if present(pt, at(pt, i)) => {
            let pte = pt.ptep_get(at(pt, i)).mkwrite().mkdirty().mkyoung();
            pt.ptep_set_access_flags(at(pt, i), pte, FaultAccess::Write);
        }
        Step::HwDirty(i) => {
            let slot: PhysAddr = at(pt, i).slot;
            let raw = pt.ram.load_u64(slot);
            if raw & (bits::VALID | bits::WRITE) == bits::VALID | bits::WRITE {
                pt.ram.store_u64(slot, (raw | AF) & !RDONLY);
            }
        }
        Step::Raise(_) => {
            pt.ptep_get(one);
        }
    }
}

proptest! {
    /// Blocks stay uniform, no live descriptor is changed illegally, and frames and write
    /// permission are those of a kernel without the layer.
    #[test]
    fn the_layer_is_invisible_but_for_its_costs(
        steps in prop::collection::vec(step(), 1..60),
        kernel in prop_oneof![Just("v6.12"), Just("v7.3")],
    ) {
        let (mut with, mm) = lab::<Arm64>(kernel, Hw::arm64());
        let (mut without, other) = lab::<Arm64>(kernel, Hw::arm64());
        without.kernel.contpte = false;
        for pt in [&mut with, &mut without] {
            pt.tlb.watch = true;
            folio(pt, FRAME, order(6));
        }
        for &step in &steps {
            apply(&mut with, mm, step);
            apply(&mut without, other, step);
            for block in 0..4 {
                prop_assert_eq!(check_cont_block(&block_entries(&with, mm, block), Reach::K4), Ok(()));
            }
            prop_assert_eq!(facts(&with, mm), facts(&without, other));
        }
        prop_assert_eq!(&with.violations, &Vec::<String>::new());
    }
}
