//! The price lists against the published rows, over counts in closed form (without cache lines).
//!
//! `madvise(MADV_PAGEOUT)` of 256 MiB on v7.3: N pages in F folios of n pages. Page-table and
//! TLB counts per folio are those derived by hand from Linux's source and confirmed on an
//! instrumented kernel; so are the function entries.

use cost::{Breakdown, PriceList};
use events::{Counters, Event, Sink};
use units::ArchId;

const PAGES: u64 = 65_536;

#[derive(Clone, Copy, PartialEq)]
enum Unmap {
    PerPage,
    Batched,
}

/// The counts of the whole call with folios of `n` pages, mapped by PTEs.
fn pageout(arch: ArchId, n: u64, unmap: Unmap) -> Counters {
    let folios = PAGES / n;
    let mut c = Counters::new();
    let steps = if unmap == Unmap::Batched { folios } else { PAGES };
    for (event, count) in [
        (Event::MapcountRmw, PAGES),
        (Event::AnonExclusiveClear, PAGES),
        (Event::SwapCountInc, PAGES),
        (Event::PageScanZero, PAGES),
        (Event::LargeMapcountLock, if n == 1 { 0 } else { steps }),
        (Event::SwapClusterLock, steps + 2 * folios),
        (Event::AnonExclusiveBarrier, 2 * steps),
        (Event::MmCounterUpdate, 2 * steps),
        (Event::FolioRefRmw, steps + 4 * folios),
        (Event::PageFree, folios),
        (Event::FolioLock, 2 * folios),
        (Event::PtlLock, folios + 128),
        (Event::SyscallTrap, 1),
        (Event::FnReclaimPages, 128),
        (Event::FnCheckPte, steps),
        (Event::FnPageout, folios),
    ] {
        c.add(event, count);
    }
    functions(&mut c, n, steps);
    match arch {
        ArchId::Arm64 => arm64(&mut c, n, unmap, steps),
        ArchId::X86_64 => x86_64(&mut c, n, unmap, steps),
    }
    c
}

fn functions(c: &mut Counters, n: u64, steps: u64) {
    let folios = PAGES / n;
    for event in [
        Event::FnFolioUnmapPteBatch,
        Event::FnFolioRemoveRmapPtes,
        Event::FnCondInstallUffdWpPtes,
        Event::FnPageVmaMappedWalk,
        Event::FnSwapDupEntriesCluster,
    ] {
        c.add(event, steps);
    }
    for event in [
        Event::FnFolioAllocSwap,
        Event::FnFolioFreeSwap,
        Event::FnFolioIsolateLru,
        Event::FnMapPte,
        Event::FnSwapWriteout,
        Event::FnTryToUnmap,
        Event::FnTryToUnmapOne,
        Event::FnTryToUnmapFlushDirty,
        Event::FnUnderRemoveMapping,
    ] {
        c.add(event, folios);
    }
    if steps == PAGES {
        c.add(Event::FnTtuAnonSwapbackedFolio, steps);
        c.add(Event::FnUnderFolioTryShareAnonRmap, steps);
        c.add(Event::FnFolioDupSwap, steps);
        c.add(Event::FnDeferredSplitFolio, if n == 1 { 0 } else { steps - folios });
    }
}

fn arm64(c: &mut Counters, n: u64, unmap: Unmap, steps: u64) {
    let folios = PAGES / n;
    let blocks = if n >= 16 { n / 16 } else { 0 };
    let unfolds = if unmap == Unmap::PerPage { blocks } else { 0 };
    let reads = match (unmap, blocks) {
        (_, 0) => 7 * n,
        (Unmap::PerPage, b) => 3 * b + 9 + (b - 1) * 12 + (n - b) * 6,
        (Unmap::Batched, b) => 3 * b + 3 * (2 + b - 1) + 1 + n,
    };
    let touched = n + 16 * unfolds;
    c.add(Event::PteRead, folios * reads);
    c.add(Event::PteXchg, folios * touched);
    c.add(Event::PteWrite, folios * touched);
    let single = if unmap == Unmap::PerPage || n == 1 { PAGES } else { 0 };
    let ranges = folios * unfolds + if single == 0 { folios } else { 0 };
    c.add(Event::TlbiVale1is, single);
    c.add(Event::TlbiRvale1is, ranges);
    c.add(Event::TlbiAside1is, 127);
    c.add(Event::DsbIshst, single + ranges + 127);
    c.add(Event::DsbIsh, folios * (unfolds + 1) + 127);
    c.add(Event::TlbFlushBatchedInc, steps);
    for event in [
        Event::FnArchTlbbatchAddPending,
        Event::FnSetTlbUbcFlushPending,
        Event::FnUnderDoFlushTlbRange,
        Event::FnUnderFlushTlbRange,
    ] {
        c.add(event, steps);
    }
}

fn x86_64(c: &mut Counters, n: u64, unmap: Unmap, steps: u64) {
    let folios = PAGES / n;
    let scan_and_unmap = match (unmap, n) {
        (_, 1) => 5,
        (Unmap::PerPage, n) => n + 4 * n - 1,
        (Unmap::Batched, n) => n + 2 + (n - 1) + 1,
    };
    c.add(Event::PteRead, folios * scan_and_unmap);
    c.add(Event::PteXchg, PAGES);
    c.add(Event::PteWrite, PAGES);
    let whole = unmap == Unmap::Batched && n > 33;
    c.add(Event::Invlpg, if whole { 0 } else { PAGES });
    c.add(Event::Cr3Reload, if whole { folios } else { 0 });
    c.add(Event::MmTlbGenInc, steps);
    c.add(Event::FnFlushTlbMmRange, steps);
    c.add(Event::FnFlushTlbFunc, steps);
}

fn explain(machine: &str, arch: ArchId, n: u64, unmap: Unmap) -> Breakdown {
    let prices = PriceList::for_machine(machine, arch).expect("embedded");
    prices.explain(&pageout(arch, n, unmap), 0)
}

fn ms(machine: &str, arch: ArchId, n: u64, unmap: Unmap) -> f64 {
    explain(machine, arch, n, unmap).total().ms()
}

const M3: (&str, ArchId) = ("apple-m3-vm", ArchId::Arm64);
const X86: (&str, ArchId) = ("x86-bare-metal", ArchId::X86_64);

#[test]
fn closed_forms_are_those_of_the_instrumented_kernel() {
    let check = |arch, n, unmap, event, count| {
        assert_eq!(pageout(arch, n, unmap).get(event), count, "{event:?} n={n}");
    };
    check(ArchId::Arm64, 16, Unmap::PerPage, Event::PteRead, 417_792);
    check(ArchId::Arm64, 16, Unmap::Batched, Event::PteRead, 106_496);
    check(ArchId::Arm64, 256, Unmap::PerPage, Event::PteRead, 429_312);
    check(ArchId::Arm64, 1, Unmap::PerPage, Event::PteRead, 458_752);
    check(ArchId::Arm64, 16, Unmap::PerPage, Event::DsbIshst, 69_632 + 127);
    check(ArchId::X86_64, 16, Unmap::PerPage, Event::PteRead, 323_584);
    check(ArchId::X86_64, 16, Unmap::Batched, Event::PteRead, 139_264);
    check(ArchId::X86_64, 256, Unmap::Batched, Event::PteRead, 131_584);
}

#[test]
fn the_published_ratios_lie_in_their_intervals() {
    for ((machine, arch), published) in [(M3, 2.15), (X86, 1.06)] {
        let vanilla = explain(machine, arch, 16, Unmap::PerPage);
        let ratio = vanilla.ratio(&explain(machine, arch, 16, Unmap::Batched));
        assert!(ratio.low < published && published < ratio.high, "{machine}: {ratio:?}");
    }
}

#[test]
fn single_pages_gain_nothing_and_cost_more_than_large_folios() {
    for (machine, arch) in [M3, X86] {
        let per_page = ms(machine, arch, 1, Unmap::PerPage);
        assert_eq!(per_page, ms(machine, arch, 1, Unmap::Batched), "{machine}");
        assert!(per_page > 1.5 * ms(machine, arch, 16, Unmap::PerPage), "{machine}");
        assert!(per_page < 4.0 * ms(machine, arch, 16, Unmap::PerPage), "{machine}");
    }
}

#[test]
fn on_arm64_the_gain_is_the_flushes_and_on_x86_64_it_is_not() {
    let share = |(machine, arch): (&str, ArchId), classes: &[&str]| {
        let prices = PriceList::for_machine(machine, arch).expect("embedded");
        let (a, b) = (pageout(arch, 16, Unmap::PerPage), pageout(arch, 16, Unmap::Batched));
        let difference = prices.difference((&a, 0), (&b, 0));
        let flushes = classes.iter().filter_map(|c| difference.change(c)).map(|c| c.saved().ms());
        flushes.sum::<f64>() / difference.total().ms()
    };
    assert!(share(M3, &["tlbi_page", "tlbi_range", "dsb_ish", "dsb_ishst"]) > 0.6);
    assert!(share(X86, &["invlpg", "cr3_flush"]).abs() < 0.01);
}
