//! MADV_PAGEOUT in closed form: every count derived from the number of pages, folios, contiguous
//! blocks and page tables, for 7.3, plain and batched, and for machines that differ.
//!
//! The region is 2 MiB aligned, written throughout, one VMA, exclusive, unpinned. `n` is pages
//! per folio, `b` folded blocks per folio, `t` page tables.

use arch::{Arch, Arm64, BbmLevel, Hw, KernelConfig, X86_64};
use events::{Counters, Event, Scope};
use mm::{MapFlags, Thp, ThpSize, VmProt, advice};
use ptescope_tests::guest::Guest;
use std::collections::BTreeMap;
use units::{CpuId, PMD_SIZE, VirtAddr};

const MIB: u64 = 1 << 20;
/// Entries of a contiguous block.
const B: u64 = 16;
/// Pages that one page table maps.
const TABLE: u64 = 512;
const SIZES_KIB: [u64; 5] = [4, 16, 64, 1024, 2048];

/// A kernel and a machine, and how much is paged out.
#[derive(Clone, Debug)]
struct Case {
    mib: u64,
    folio_kib: u64,
    kernel: KernelConfig,
    hw: Hw,
}

impl Case {
    fn new(mib: u64, folio_kib: u64, kernel: &str, hw: Hw) -> Case {
        let kernel = KernelConfig::parse(kernel).expect("a known kernel");
        Case { mib, folio_kib, kernel, hw }
    }
    fn pages(&self) -> u64 {
        self.mib * MIB / 4096
    }
    /// Pages per folio.
    fn n(&self) -> u64 {
        self.folio_kib / 4
    }
    fn folios(&self) -> u64 {
        self.pages() / self.n()
    }
    /// Page tables.
    fn tables(&self) -> u64 {
        self.pages() / TABLE
    }
    /// Whether PMD leaves map the folios, until reclaim splits them.
    fn pmd_mapped(&self) -> bool {
        self.n() == TABLE
    }
    /// Folded blocks per folio: those of a split leaf are folded from the start.
    fn blocks(&self) -> u64 {
        self.n() / B
    }
    /// Whether a folio is unmapped by one batch. A single page always is.
    fn batched(&self) -> bool {
        self.kernel.anon_unmap_batched && self.n() > 1
    }
    /// Reads of the marker helper.
    fn m(&self) -> u64 {
        u64::from(self.kernel.pte_marker_uffd_wp)
    }
    /// Leaves split.
    fn splits(&self) -> u64 {
        if self.pmd_mapped() { self.folios() } else { 0 }
    }
}

/// What is predicted, and counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Totals {
    ptep_get: u64,
    lockless: u64,
    raw: u64,
    xchg: u64,
    stores: u64,
    unfolds: u64,
    tlbi: u64,
    aside1is: u64,
    dsb_ishst: u64,
    dsb_ish: u64,
    flush_tlb_mm_range: u64,
    tlb_gen: u64,
    invlpg: u64,
    full_flushes: u64,
    rounds: u64,
}

/// Instructions that invalidate `pages` pages by ranges: one per non-zero digit in base 32, after
/// halving, and one for an odd page.
fn range_instructions(pages: u64) -> u64 {
    let mut digits = pages / 2;
    let mut n = pages % 2;
    while digits > 0 {
        n += u64::from(!digits.is_multiple_of(32));
        digits /= 32;
    }
    n
}

/// Instructions of one flush: by page or range, and of the whole ASID.
fn flush(case: &Case, pages: u64) -> (u64, u64) {
    match (case.hw.tlbi_range, pages) {
        (true, _) => (range_instructions(pages), 0),
        (false, ..512) => (pages, 0),
        (false, _) => (0, 1),
    }
}

fn predict_arm64(case: &Case) -> Totals {
    let (n, b, f) = (case.n(), case.blocks(), case.folios());
    let (m, folded) = (case.m(), b > 0);
    // Raw reads of a getter on a folded block: its own, then a scan for young and dirty.
    let getter = if case.kernel.contpte_get_early_stop { 1 + 2 } else { 1 + B };
    // Which of a run's entries a batching loop looks at: one per block, or each.
    let looks = if folded { b } else { n };
    let look_raw = if folded { getter } else { 1 };
    let mut per = Totals::default();

    // The scan; PMD leaves are taken whole.
    if !case.pmd_mapped() {
        per.ptep_get += looks;
        per.raw += looks * look_raw;
    }

    // The walk and the unmapping.
    let (clears, page_flushes);
    if n == 1 || !case.batched() {
        // Per page: check_pte, try_to_unmap_one, marker helper; the walk's step before all but
        // the first page of a large folio, a lockless look before a small one.
        per.ptep_get += n * (2 + m) + (n - 1);
        per.lockless += u64::from(n == 1);
        // Each setter looks at its entry: one clears, one stores the swap entry.
        let settled = n * (2 + m + 2) + (n - 1) + u64::from(n == 1);
        // Until its first page is cleared, a block is folded: walk (but for the folio's first
        // page), check_pte and try_to_unmap_one gather.
        let gathers = if folded { 2 + (b - 1) * 3 } else { 0 };
        per.raw += settled + gathers * (getter - 1);
        // Clearing the first page of a block unfolds it: 16 exchanges and 16 stores.
        per.unfolds = b;
        clears = n + b * B;
        per.stores = n + b * B;
        page_flushes = (n, 1);
    } else {
        // check_pte, try_to_unmap_one, the rest of the run, the marker helper.
        per.ptep_get += 2 + (looks - 1) + m;
        per.raw += (2 + looks - 1) * look_raw + m;
        // One clear: whole blocks need no look; a part of a block needs one at each ragged end.
        if !folded {
            let per_block = B / n;
            // Every folio starts a part; all but the last of a block also end inside it.
            per.raw += 1;
            assert_eq!(f % per_block, 0);
        }
        per.raw += if case.kernel.softleaf_raw_check { n } else { 0 };
        clears = n;
        per.stores = n;
        page_flushes = (1, n);
    }
    per.xchg = clears;
    let unfold_flush = if case.hw.bbm == BbmLevel::Level0 { flush(case, B) } else { (0, 0) };
    let unfold_flushes = if case.hw.bbm == BbmLevel::Level0 { per.unfolds } else { 0 };
    let (flushes, span) = page_flushes;
    let unmap_flush = flush(case, span);
    per.tlbi = unfold_flushes * unfold_flush.0 + flushes * unmap_flush.0;
    per.aside1is = flushes * unmap_flush.1;
    per.dsb_ishst = unfold_flushes + flushes;
    // Unfolding waits; unmapping waits once, before the folio is written; a flush of the ASID
    // waits by itself.
    per.dsb_ish = unfold_flushes + 1 + per.aside1is;

    let mut all = times(per, f);
    if !folded && case.batched() {
        // The second look, where the run ends inside a block.
        all.raw += f - f / (B / n);
    }
    // A split exchanges the leaf, flushes it, and stores 512 entries.
    all.xchg += case.splits();
    all.stores += case.splits() * TABLE;
    all.tlbi += case.splits();
    all.dsb_ishst += case.splits();
    all.dsb_ish += case.splits();
    // Each page table after the first finds the flushes of the one before pending.
    if !case.pmd_mapped() {
        let pending = case.tables() - 1;
        all.aside1is += pending;
        all.dsb_ishst += pending;
        all.dsb_ish += pending;
    }
    if case.hw.kpti {
        all.tlbi *= 2;
        all.aside1is *= 2;
    }
    all
}

fn times(per: Totals, f: u64) -> Totals {
    Totals {
        ptep_get: per.ptep_get * f,
        lockless: per.lockless * f,
        raw: per.raw * f,
        xchg: per.xchg * f,
        stores: per.stores * f,
        unfolds: per.unfolds * f,
        tlbi: per.tlbi * f,
        aside1is: per.aside1is * f,
        dsb_ishst: per.dsb_ishst * f,
        dsb_ish: per.dsb_ish * f,
        ..Totals::default()
    }
}

/// Whether another CPU has the mm loaded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Siblings {
    None,
    One,
}

fn predict_x86(case: &Case, siblings: Siblings) -> Totals {
    const CEILING: u64 = 33;
    let (n, f, m) = (case.n(), case.folios(), case.m());
    let scan = if case.pmd_mapped() { 0 } else { n };
    let (gets, flushes, span) = match case.batched() {
        false => (n * (2 + m) + (n - 1), n, 1),
        true => (2 + (n - 1) + m, 1, n),
    };
    let mut all = Totals {
        ptep_get: f * (scan + gets),
        lockless: if n == 1 { f } else { 0 },
        xchg: case.pages() + case.splits(),
        stores: case.pages() + case.splits() * TABLE,
        tlb_gen: f * flushes + case.splits(),
        ..Totals::default()
    };
    all.raw = all.ptep_get + all.lockless;
    match siblings {
        Siblings::None => {
            all.flush_tlb_mm_range = f * flushes + case.splits();
            all.full_flushes = case.splits();
            if span <= CEILING {
                all.invlpg = f * flushes * span;
            } else {
                all.full_flushes += f * flushes;
            }
        }
        Siblings::One => {
            // Deferred to one round per folio; a split and a page table with unmaps pending
            // make a round each. Each round flushes here and there.
            let pending = if case.pmd_mapped() { 0 } else { case.tables() - 1 };
            all.flush_tlb_mm_range = case.splits() + pending;
            all.tlb_gen += pending;
            all.rounds = f + case.splits() + pending;
            all.full_flushes = 2 * all.rounds;
        }
    }
    all
}

/// Pages the region out and returns the counts by scope, of a machine whose process also runs
/// on another CPU or not.
fn pageout<A: Arch>(case: &Case, siblings: Siblings) -> (BTreeMap<Scope, Counters>, Guest<A>) {
    let thp = Thp::only(Thp::order_of_kib(case.folio_kib).map(|order| (order, ThpSize::Always)));
    let hw = Hw { cpus: 2, ..case.hw.clone() };
    let room = (case.mib + 64) * MIB;
    let mut guest = Guest::<A>::new(case.kernel.clone(), hw, thp, room, room);
    if siblings == Siblings::One {
        guest.mm.pt.switch_mm(CpuId::new(0), guest.id);
    }
    let (len, at) = (case.mib * MIB, VirtAddr::new(64 * PMD_SIZE));
    let prot = VmProt::READ | VmProt::WRITE;
    guest.mmap(at, len, prot, MapFlags::FIXED).expect("address space");
    guest.memset(at, len, 0);
    let before = guest.counts_of_all_cpus();
    guest.mm.madvise(guest.id, at, len, advice::PAGEOUT).expect("advice is taken");
    let mut counts = guest.counts_of_all_cpus();
    for (scope, before) in &before {
        if let Some(now) = counts.get_mut(scope) {
            *now = now.since(before);
        }
    }
    guest.assert_valid("pageout");
    (counts, guest)
}

fn sum(counts: &BTreeMap<Scope, Counters>, events: &[Event]) -> u64 {
    let of = |c: &Counters| events.iter().map(|&e| c.get(e)).sum::<u64>();
    counts.values().map(of).sum()
}

fn measured<A: Arch>(case: &Case, siblings: Siblings) -> Totals {
    let (counts, _) = pageout::<A>(case, siblings);
    let get = |events: &[Event]| sum(&counts, events);
    let lockless = get(&[Event::PtepGetLockless]);
    // On x86-64 a lockless read is a `ptep_get()` too.
    let plain = match A::ID {
        units::ArchId::Arm64 => get(&[Event::PtepGet]),
        units::ArchId::X86_64 => get(&[Event::PtepGet]) - lockless,
    };
    Totals {
        ptep_get: plain,
        lockless,
        raw: get(&[Event::PteRead]),
        xchg: get(&[Event::PteXchg, Event::PmdXchg]),
        stores: get(&[Event::PteWrite]),
        unfolds: get(&[Event::ContpteUnfoldDone]),
        tlbi: get(&[
            Event::TlbiVale1is,
            Event::TlbiVae1is,
            Event::TlbiRvale1is,
            Event::TlbiRvae1is,
        ]),
        aside1is: get(&[Event::TlbiAside1is]),
        dsb_ishst: get(&[Event::DsbIshst]),
        dsb_ish: get(&[Event::DsbIsh]),
        flush_tlb_mm_range: get(&[Event::FnFlushTlbMmRange]),
        tlb_gen: get(&[Event::MmTlbGenInc]),
        invlpg: get(&[Event::Invlpg]),
        full_flushes: get(&[Event::Cr3Reload]),
        rounds: get(&[Event::FnNativeFlushTlbMulti]),
    }
}

fn check_arm64(case: &Case) -> Totals {
    let counted = measured::<Arm64>(case, Siblings::None);
    assert_eq!(counted, predict_arm64(case), "{case:#?}");
    counted
}

const KERNELS: [&str; 2] = ["v7.3", "v7.3+anon-unmap-batch"];

#[test]
fn arm64_of_every_size() {
    for kernel in KERNELS {
        for kib in SIZES_KIB {
            check_arm64(&Case::new(256, kib, kernel, Hw::arm64()));
        }
    }
}

#[test]
fn arm64_of_64k_folios_in_words() {
    // 63 to 3 looks and 17 to 1 TLBIs per folio, beside the scan's one look.
    let folios = 4096;
    let plain = check_arm64(&Case::new(256, 64, KERNELS[0], Hw::arm64()));
    let batched = check_arm64(&Case::new(256, 64, KERNELS[1], Hw::arm64()));
    assert_eq!((plain.ptep_get, batched.ptep_get), (folios * (1 + 63), folios * (1 + 3)));
    assert_eq!((plain.tlbi, batched.tlbi), (folios * 17, folios));
    assert_eq!((plain.unfolds, batched.unfolds), (folios, 0));
}

#[test]
fn arm64_without_range_instructions() {
    for kernel in KERNELS {
        for kib in SIZES_KIB {
            check_arm64(&Case::new(64, kib, kernel, Hw { tlbi_range: false, ..Hw::arm64() }));
        }
    }
}

#[test]
fn arm64_that_may_change_live_blocks_skips_the_flush_of_an_unfold() {
    for kernel in KERNELS {
        for bbm in [BbmLevel::Level2NoAbort, BbmLevel::Level3] {
            for kib in SIZES_KIB {
                check_arm64(&Case::new(64, kib, kernel, Hw { bbm, ..Hw::arm64() }));
            }
        }
    }
}

#[test]
fn arm64_with_page_table_isolation_invalidates_twice() {
    for kernel in KERNELS {
        for kib in SIZES_KIB {
            check_arm64(&Case::new(64, kib, kernel, Hw { kpti: true, ..Hw::arm64() }));
        }
    }
}

#[test]
fn arm64_with_other_kernel_details() {
    for kernel in KERNELS {
        for kib in SIZES_KIB {
            let case = Case::new(64, kib, kernel, Hw::arm64());
            let with = |change: fn(&mut KernelConfig)| {
                let mut case = case.clone();
                change(&mut case.kernel);
                check_arm64(&case);
            };
            with(|k| k.contpte_get_early_stop = false);
            with(|k| k.pte_marker_uffd_wp = false);
            with(|k| k.softleaf_raw_check = false);
        }
    }
}

#[test]
fn x86_64_alone_in_its_mm() {
    for kernel in KERNELS {
        for kib in SIZES_KIB {
            let case = Case::new(256, kib, kernel, Hw::x86_64());
            let counted = measured::<X86_64>(&case, Siblings::None);
            assert_eq!(counted, predict_x86(&case, Siblings::None), "{case:#?}");
        }
    }
}

#[test]
fn x86_64_without_the_marker_helper() {
    for kernel in KERNELS {
        let mut case = Case::new(64, 64, kernel, Hw::x86_64());
        case.kernel.pte_marker_uffd_wp = false;
        let counted = measured::<X86_64>(&case, Siblings::None);
        assert_eq!(counted, predict_x86(&case, Siblings::None), "{case:#?}");
    }
}

#[test]
fn x86_64_with_the_mm_on_another_cpu_defers() {
    for kernel in KERNELS {
        for kib in SIZES_KIB {
            let case = Case::new(64, kib, kernel, Hw::x86_64());
            let counted = measured::<X86_64>(&case, Siblings::One);
            assert_eq!(counted, predict_x86(&case, Siblings::One), "{case:#?}");
        }
    }
}

/// Counts beside page tables and TLBs, of 64K folios: the same on both architectures.
fn check_structures<A: Arch>(kernel: &str, hw: Hw) {
    let case = Case::new(256, 64, kernel, hw);
    let (counts, guest) = pageout::<A>(&case, Siblings::None);
    let (n, f, pages) = (case.n(), case.folios(), case.pages());
    // What is done once per page without batches, and once per folio with them.
    let steps = if case.batched() { f } else { pages };
    let unmap = |event: Event| counts.get(&Scope::Unmap).map_or(0, |c| c.get(event));
    assert_eq!(unmap(Event::SwapClusterLock), steps, "one lock per swap-count change");
    assert_eq!(unmap(Event::SwapCountInc), pages);
    assert_eq!(unmap(Event::AnonExclusiveBarrier), 2 * steps, "one before, one after");
    assert_eq!(unmap(Event::AnonExclusiveClear), pages);
    assert_eq!(unmap(Event::MmCounterUpdate), 2 * steps, "anonymous down, swapped up");
    assert_eq!(unmap(Event::FolioRefRmw), steps);
    assert_eq!(unmap(Event::LargeMapcountLock), steps);
    assert_eq!(unmap(Event::MapcountRmw), pages);
    let partial = if case.batched() { 0 } else { f * (n - 1) };
    assert_eq!(unmap(Event::FnDeferredSplitFolio), partial, "all but the last page of a folio");
    assert_eq!(unmap(Event::FnFolioUnmapPteBatch), steps, "positions of the walk");
    assert_eq!(sum(&counts, &[Event::FnReclaimPages]), case.tables());
    assert_eq!(guest.mm.vmstat.swpout_zero, pages, "the region is all zeroes");
    assert_eq!(guest.mm.vmstat.pswpout, 0);
    let order = Thp::order_of_kib(64).expect("a size");
    assert_eq!(guest.mm.thp.size(order).stats.swpout, 0);
}

#[test]
fn structures_are_touched_per_page_or_per_batch() {
    for kernel in KERNELS {
        check_structures::<Arm64>(kernel, Hw::arm64());
        check_structures::<X86_64>(kernel, Hw::x86_64());
    }
}

#[test]
fn range_instructions_follow_the_digits() {
    let expected = [(1, 1), (2, 1), (3, 2), (16, 1), (17, 2), (32, 1), (512, 1), (65536, 1)];
    for (pages, instructions) in expected {
        assert_eq!(range_instructions(pages), instructions, "{pages} pages");
    }
}
