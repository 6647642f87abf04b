//! GUP in closed form: every count of one iteration of gup_test derived from pages, folios and
//! calls, for every kernel whose loop differs.
//!
//! The region is 2 MiB aligned, written throughout, one VMA, exclusive, unpinned.

use arch::{Arch, Arm64, Hw, KernelConfig, X86_64};
use events::{Event, EventKind};
use mm::{GupTestCommand, Thp, ThpSize, advice};
use ptescope_tests::guest::Guest;
use ptescope_tests::gup::{ByScope, Options, iteration, region};
use units::ArchId;

const MIB: u64 = 1 << 20;
/// Entries of a contiguous block.
const B: u64 = 16;
/// Pages of a PMD leaf.
const LEAF: u64 = 512;

/// One command line on one kernel.
#[derive(Clone, Debug)]
struct Case {
    kernel: KernelConfig,
    folio_kib: u64,
    options: Options,
}

impl Case {
    /// `gup_test -L -m MIB -n PER_CALL -t`.
    fn longterm(kernel: &str, folio_kib: u64, mib: u64, per_call: u64) -> Case {
        let options = Options {
            command: GupTestCommand::PinLongterm,
            mib,
            per_call,
            repeats: 1,
            write: true,
            advice: Some(advice::HUGEPAGE),
        };
        let kernel = KernelConfig::parse(kernel).expect("a known kernel");
        Case { kernel, folio_kib, options }
    }
    fn with(mut self, command: GupTestCommand) -> Case {
        self.options.command = command;
        self
    }
    fn pages(&self) -> u64 {
        self.options.mib * MIB / 4096
    }
    /// Pages per folio.
    fn n(&self) -> u64 {
        self.folio_kib / 4
    }
    fn folios(&self) -> u64 {
        self.pages() / self.n()
    }
    fn calls(&self) -> u64 {
        self.pages().div_ceil(self.options.per_call)
    }
    /// Atomic changes per grab or release: a large folio's pin count is a word of its own.
    fn k(&self) -> u64 {
        1 + u64::from(self.options.command.pins() && self.n() > 1)
    }
    /// Reads of one look at an entry.
    fn raw_per_look(&self, arch: ArchId, lockless: bool) -> u64 {
        let folded = arch == ArchId::Arm64 && self.kernel.contpte && self.n() >= B;
        let scan = if self.kernel.contpte_get_early_stop { 2 } else { B };
        match folded {
            true => 1 + u64::from(lockless) + scan,
            false => 1,
        }
    }
    /// The pieces that calls and runs of `n` pages cut the region into: first page and length.
    fn pieces(&self, n: u64) -> Vec<(u64, u64)> {
        let step = |size| (0..self.pages()).step_by(usize::try_from(size).expect("small"));
        let mut starts: Vec<u64> = step(n).chain(step(self.options.per_call)).collect();
        starts.sort_unstable();
        starts.dedup();
        let ends = starts.iter().skip(1).copied().chain([self.pages()]);
        starts.iter().zip(ends).map(|(&start, end)| (start, end - start)).collect()
    }
}

/// What is predicted, and counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Totals {
    walks: u64,
    locks: u64,
    grabs: u64,
    ptep_get: u64,
    lockless: u64,
    raw: u64,
    /// Reference and pin counts, while getting.
    get_rmw: u64,
    /// The same, while putting back.
    put_rmw: u64,
    folios_tested: u64,
    stored: u64,
}

fn predict_slow(case: &Case, arch: ArchId) -> Totals {
    let (p, n, k) = (case.pages(), case.n(), case.k());
    let leaf = n == LEAF;
    // How many pages a walk takes: all to the end of the folio, the call or the region, or one.
    let run = match (leaf, case.kernel.gup_thp_stride, case.kernel.gup_pte_batch) {
        (true, true, _) | (false, _, true) => n,
        _ => 1,
    };
    let pieces = case.pieces(run);
    let walks = pieces.len() as u64;
    // The first page's reference in the walk; those of the others, if any, in one more call.
    let seconds = pieces.iter().filter(|piece| piece.1 > 1).count() as u64;
    let grabs = match case.kernel.gup_merge_grab {
        true => walks,
        false => walks + seconds,
    };
    let ptep_get = match (leaf, arch) {
        (true, _) => 0,
        // A run is looked at once per folded block, and without the Contiguous bit once a page.
        (false, ArchId::Arm64) if n >= B && run > 1 => {
            pieces.iter().map(|&(start, len)| (start + len).div_ceil(B) - start / B).sum()
        }
        (false, _) => p,
    };
    Totals {
        walks,
        locks: walks,
        grabs,
        ptep_get,
        lockless: 0,
        raw: ptep_get * case.raw_per_look(arch, false),
        get_rmw: k * grabs,
        put_rmw: if case.options.command.pins() { k * case.folios() } else { p },
        folios_tested: match case.options.command {
            // Each call looks at each folio that it got pages of.
            GupTestCommand::PinLongterm => case.pieces(n).len() as u64,
            _ => 0,
        },
        stored: p,
    }
}

fn predict_fast(case: &Case, arch: ArchId) -> Totals {
    let (p, n, k) = (case.pages(), case.n(), case.k());
    let pins = case.options.command.pins();
    // A small page is pinned in two steps too: one reference, then the other 1023.
    let per_grab = 1 + u64::from(pins);
    let grabs = if n == LEAF { case.pieces(n).len() as u64 } else { p };
    let looks = if n == LEAF { 0 } else { p };
    let (ptep_get, lockless) = match case.kernel.gup_fast_recheck_lockless {
        true => (0, 2 * looks),
        false => (looks, looks),
    };
    let raw = ptep_get * case.raw_per_look(arch, false) + lockless * case.raw_per_look(arch, true);
    Totals {
        grabs,
        ptep_get,
        lockless,
        raw,
        get_rmw: per_grab * grabs,
        put_rmw: if pins { k * case.folios() } else { p },
        stored: p,
        ..Totals::default()
    }
}

fn sum(counts: &ByScope, event: Event) -> u64 {
    counts.values().map(|c| c.get(event)).sum()
}

fn measured<A: Arch>(case: &Case) -> Totals {
    let order = Thp::order_of_kib(case.folio_kib);
    let thp = Thp::only(order.map(|order| (order, ThpSize::Always)));
    let hw = match A::ID {
        ArchId::Arm64 => Hw::arm64(),
        ArchId::X86_64 => Hw { cpus: 2, ..Hw::x86_64() },
    };
    let room = (2 * case.options.mib + 64) * MIB;
    let mut guest = Guest::<A>::new(case.kernel.clone(), Hw { cpus: 2, ..hw }, thp, room, 0);
    let at = region(&mut guest, &case.options, 0);
    let (get, put) = iteration(&mut guest, &case.options, at);
    assert_quiet(&get);
    assert_quiet(&put);
    let calls = if case.options.command == GupTestCommand::PinLongterm { case.calls() } else { 0 };
    assert_eq!(sum(&get, Event::FnCollectLongtermUnpinnableFolios), calls);
    let rmw = |counts| sum(counts, Event::FolioRefRmw) + sum(counts, Event::FolioPincountRmw);
    // On x86-64 a lockless read is a `ptep_get()` too.
    let lockless = sum(&get, Event::PtepGetLockless);
    let twice = if A::ID == ArchId::X86_64 { lockless } else { 0 };
    Totals {
        walks: sum(&get, Event::FnFollowPageMask),
        locks: sum(&get, Event::PtlLock),
        grabs: sum(&get, Event::FnTryGrabFolio) + sum(&get, Event::FnTryGrabFolioFast),
        ptep_get: sum(&get, Event::PtepGet) - twice,
        lockless,
        raw: sum(&get, Event::PteRead),
        get_rmw: rmw(&get),
        put_rmw: rmw(&put),
        folios_tested: sum(&get, Event::FolioPinnableTest),
        stored: sum(&get, Event::GupPageStore),
    }
}

/// Nothing is faulted, flushed, exchanged or stored.
fn assert_quiet(counts: &ByScope) {
    let touched = |e: &Event| match e.kind() {
        EventKind::Tlb | EventKind::FlushDecision => true,
        EventKind::PteTouch => *e != Event::PteRead,
        _ => *e == Event::FnHandleMmFault,
    };
    for &event in Event::ALL.iter().filter(|e| touched(e)) {
        assert_eq!(sum(counts, event), 0, "{}", event.name());
    }
}

fn check(case: &Case) -> [Totals; 2] {
    let is_fast = matches!(case.options.command, GupTestCommand::GupFast | GupTestCommand::PinFast);
    let predict = if is_fast { predict_fast } else { predict_slow };
    let both = [measured::<X86_64>(case), measured::<Arm64>(case)];
    for (counted, arch) in both.iter().zip([ArchId::X86_64, ArchId::Arm64]) {
        assert_eq!(*counted, predict(case, arch), "{arch:?} {case:#?}");
    }
    both
}

const BEFORE: &str = "v7.3";
const AFTER: &str = "v7.3+gup-pte-batch";

#[test]
fn one_call_for_256_mib() {
    for kernel in [BEFORE, AFTER] {
        for kib in [4, 2048] {
            check(&Case::longterm(kernel, kib, 256, 65_536));
        }
    }
    // One walk per page before, one per folio after; x86-64 still looks at each entry, arm64 at
    // one per block: 1 raw read to see the block, 2 to find young and dirty.
    let [x86, arm64] = check(&Case::longterm(BEFORE, 64, 256, 65_536));
    assert_eq!((x86.walks, x86.ptep_get, x86.get_rmw), (65_536, 65_536, 131_072));
    assert_eq!((arm64.ptep_get, arm64.raw, arm64.folios_tested), (65_536, 196_608, 4_096));
    let [x86, arm64] = check(&Case::longterm(AFTER, 64, 256, 65_536));
    assert_eq!((x86.walks, x86.ptep_get, x86.get_rmw), (4_096, 65_536, 16_384));
    assert_eq!((arm64.walks, arm64.ptep_get, arm64.raw), (4_096, 4_096, 12_288));
    assert_eq!((arm64.put_rmw, arm64.grabs), (8_192, 8_192));
}

#[test]
fn grabbing_a_run_at_once_halves_the_atomics() {
    let mut case = Case::longterm(AFTER, 64, 256, 65_536);
    case.kernel.gup_merge_grab = true;
    for counted in check(&case) {
        assert_eq!(counted.get_rmw, 8_192);
    }
}

#[test]
fn the_old_getter_gathers_whole_blocks() {
    let [_, arm64] = check(&Case::longterm("v6.12", 64, 256, 65_536));
    assert_eq!(arm64.raw, 1_114_112);
    let [_, arm64] = check(&Case::longterm("v6.12+gup-pte-batch", 64, 256, 65_536));
    assert_eq!(arm64.raw, 69_632);
}

#[test]
fn before_its_stride_was_kept_a_leaf_was_walked_once_per_page() {
    for counted in check(&Case::longterm("v6.1", 2048, 256, 65_536)) {
        assert_eq!((counted.walks, counted.locks), (65_536, 65_536));
        assert_eq!((counted.get_rmw, counted.folios_tested), (131_072, 128));
    }
    for kernel in ["v6.1+gup-thp-stride", "v6.5"] {
        for counted in check(&Case::longterm(kernel, 2048, 256, 65_536)) {
            assert_eq!((counted.walks, counted.get_rmw, counted.put_rmw), (128, 512, 256));
        }
    }
    check(&Case::longterm("v6.1", 4, 64, 16_384));
    check(&Case::longterm("v7.3-gup-thp-stride", 2048, 64, 16_384));
}

#[test]
fn calls_of_1024_pages_over_512_mib_of_leaves() {
    for (kernel, walks, rmw) in [("v6.1", 131_072, 262_144), ("v6.5", 256, 1_024)] {
        for counted in check(&Case::longterm(kernel, 2048, 512, 1_024)) {
            assert_eq!((counted.walks, counted.get_rmw), (walks, rmw));
        }
    }
}

#[test]
fn a_call_that_starts_inside_a_leaf_walks_it_again() {
    for (per_call, walks) in [(1, 65_536), (123, 659), (512, 128)] {
        for counted in check(&Case::longterm(BEFORE, 2048, 256, per_call)) {
            assert_eq!(counted.walks, walks);
        }
    }
    for kernel in [BEFORE, AFTER, "v6.12", "v6.12+gup-pte-batch"] {
        for kib in [4, 16, 64, 1024] {
            for per_call in [1, 123, 512] {
                check(&Case::longterm(kernel, kib, 16, per_call));
            }
        }
    }
}

#[test]
fn fast_looks_twice_at_every_entry() {
    let [x86, arm64] = check(&Case::longterm(BEFORE, 64, 256, 512).with(GupTestCommand::PinFast));
    assert_eq!((x86.lockless, x86.get_rmw, x86.walks), (131_072, 131_072, 0));
    assert_eq!((arm64.lockless, arm64.raw), (131_072, 524_288));
    let [_, old] = check(&Case::longterm("v6.12", 64, 16, 512).with(GupTestCommand::PinFast));
    assert_eq!(old.raw, 35 * 4_096);
    for command in [GupTestCommand::GupFast, GupTestCommand::PinFast] {
        for kernel in [BEFORE, AFTER, "v6.12", "v6.1"] {
            for kib in if kernel == "v6.1" { vec![4, 2048] } else { vec![4, 64, 2048] } {
                check(&Case::longterm(kernel, kib, 16, 512).with(command));
            }
        }
    }
}

#[test]
fn references_cost_one_atomic_whatever_the_size() {
    for command in [GupTestCommand::Gup, GupTestCommand::Pin] {
        for kernel in [BEFORE, AFTER] {
            for kib in [4, 64] {
                check(&Case::longterm(kernel, kib, 16, 4_096).with(command));
            }
        }
    }
}
