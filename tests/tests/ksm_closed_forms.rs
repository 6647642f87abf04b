//! KSM in closed form: every count of unmerging a region derived from its pages, for the five
//! forms of `break_ksm()`, and those of merging it.
//!
//! The region is 2 MiB aligned, one VMA of equal pages, merged as far as `max_page_sharing`
//! lets it: N pages in T page tables.

use arch::{Arch, Arm64, Hw, KernelConfig, X86_64};
use events::{Event, Scope};
use mm::{Thp, ThpSize};
use ptescope_tests::guest::Guest;
use ptescope_tests::ksm::{ByScope, region, scan, unmerge};
use units::ArchId;

const MIB: u64 = 8;
const N: u64 = MIB << 8;
const T: u64 = N / 512;
/// `max_page_sharing`.
const SHARERS: u64 = 256;

const KERNELS: [&str; 6] =
    ["v6.1", "v6.5-ksm-walk-vma", "v6.1+ksm-walk-vma", "v6.1+ksm-walk-vma-pud", "v6.12", "v7.3"];

/// What looking for merged pages counts, beside the faults.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Lookups {
    /// `follow_page_mask()`.
    follow_page: u64,
    /// Walks with callbacks.
    walks: u64,
    /// `folio_walk_start()`.
    folio_walks: u64,
    callbacks: u64,
    ptep_get: u64,
    refs: u64,
}

impl Lookups {
    fn counted(by_scope: &ByScope) -> Lookups {
        let n = |event| sum(by_scope, &[Scope::KsmBreak, Scope::GupSlow], event);
        Lookups {
            follow_page: n(Event::FnFollowPageMask),
            walks: n(Event::PageWalk),
            folio_walks: n(Event::FnFolioWalkStart),
            callbacks: n(Event::PageWalkCallback),
            ptep_get: n(Event::PtepGet),
            refs: n(Event::FolioRefRmw),
        }
    }

    /// Each merged page is looked at once to find it, and once more after its fault, to see that
    /// it is merged no more; up to 6.1 the fault itself said so.
    fn derived(kernel: &str) -> Lookups {
        let looks = if kernel == "v6.1" { N } else { 2 * N };
        let by_address = Lookups { ptep_get: looks, ..Lookups::default() };
        match kernel {
            // A reference taken and dropped for each look.
            "v6.1" | "v6.5-ksm-walk-vma" => {
                Lookups { follow_page: looks, refs: 2 * looks, ..by_address }
            }
            "v6.1+ksm-walk-vma" => Lookups { walks: looks, callbacks: looks, ..by_address },
            "v6.1+ksm-walk-vma-pud" => Lookups { walks: looks, callbacks: 2 * looks, ..by_address },
            "v6.12" => Lookups { folio_walks: looks, ..by_address },
            // A walk ends at each merged page, and one more at the end of the range. Each page is
            // read by the walk that finds it and by the next, which resumes there. Each walk enters
            // one table, and those that resume at the last page of one (or the last walk) the next.
            "v7.3" => Lookups { walks: N + 1, callbacks: N + 1 + (T - 1), ..by_address },
            other => panic!("{other}"),
        }
    }
}

fn sum(by_scope: &ByScope, scopes: &[Scope], event: Event) -> u64 {
    scopes.iter().filter_map(|scope| by_scope.get(scope)).map(|counts| counts.get(event)).sum()
}

fn all(by_scope: &ByScope, event: Event) -> u64 {
    by_scope.values().map(|counts| counts.get(event)).sum()
}

/// Requests where the flush itself may be another CPU's, in an interrupt that `by_scope` leaves out.
fn flushes_of_a_page<A: Arch>(by_scope: &ByScope) -> u64 {
    all(
        by_scope,
        match A::ID {
            ArchId::Arm64 => Event::TlbiVale1is,
            ArchId::X86_64 => Event::FnFlushTlbMmRange,
        },
    )
}

fn guest<A: Arch>(kernel: &str, folio_kib: u64) -> Guest<A> {
    let kernel = KernelConfig::parse(kernel).expect("a known kernel");
    let hw = match A::ID {
        ArchId::Arm64 => Hw::arm64(),
        ArchId::X86_64 => Hw::x86_64(),
    };
    let thp = Thp::only(Thp::order_of_kib(folio_kib).map(|order| (order, ThpSize::Always)));
    Guest::new(kernel, Hw { cpus: 2, ..hw }, thp, (4 * MIB + 16) << 20, 0)
}

fn unmerging<A: Arch>(kernel: &str) {
    let mut guest = guest::<A>(kernel, 4);
    let at = region(&mut guest, MIB);
    scan(&mut guest, 2);
    let stats = guest.mm.ksm.stats();
    assert_eq!((stats.pages_shared, stats.pages_sharing), (N / SHARERS, N - N / SHARERS));
    let counts = unmerge(&mut guest, at, MIB);
    assert_eq!(Lookups::counted(&counts), Lookups::derived(kernel), "{kernel}");
    assert_eq!(all(&counts, Event::FnHandleMmFault), N, "{kernel}: one fault per page");
    assert_eq!(all(&counts, Event::FnWpPageCopy), N);
    assert_eq!(all(&counts, Event::PageCopy), N);
    assert_eq!((all(&counts, Event::PteXchg), all(&counts, Event::PteWrite)), (N, N));
    assert_eq!(flushes_of_a_page::<A>(&counts), N, "{kernel}: one flush per copy");
    assert_eq!(guest.mm.vmstat.cow_ksm, N);
    for va in ptescope_tests::guest::pages(at, MIB << 20) {
        assert_eq!(guest.load(va), Ok(b'*'));
    }
}

#[test]
fn each_form_of_break_ksm_looks_as_often_as_derived() {
    for kernel in KERNELS {
        unmerging::<Arm64>(kernel);
        unmerging::<X86_64>(kernel);
    }
}

/// The table of 2048 MiB: the forms are linear in N and T.
#[test]
fn derived_lookups_scale_to_the_published_size() {
    let (n, t) = (2048_u64 << 8, 2048 / 2);
    let scaled = |kernel: &str| {
        let at = Lookups::derived(kernel);
        let up = |count: u64| count / N * n + (count % N) / (T).max(1) * t;
        [at.follow_page + at.folio_walks, at.ptep_get, at.refs, at.callbacks].map(up)
    };
    assert_eq!(scaled("v6.5-ksm-walk-vma"), [1_048_576, 1_048_576, 2_097_152, 0]);
    assert_eq!(scaled("v6.1+ksm-walk-vma"), [0, 1_048_576, 0, 1_048_576]);
    assert_eq!(scaled("v6.1+ksm-walk-vma-pud"), [0, 1_048_576, 0, 2_097_152]);
    assert_eq!(scaled("v6.12"), [1_048_576, 1_048_576, 0, 0]);
    assert_eq!(scaled("v7.3"), [0, 1_048_576, 0, 525_312]);
}

/// Per merged page two exchanges, two stores and two flushes; one of each for the page that the
/// others of its node are merged with. Each page is checksummed in both scans and found by one
/// read of its entry in each.
fn merging<A: Arch>(kernel: &str) {
    let mut guest = guest::<A>(kernel, 4);
    region(&mut guest, MIB);
    let counts = scan(&mut guest, 2);
    let replaced = N - N / SHARERS;
    assert_eq!(sum(&counts, &[Scope::KsmWrprot], Event::PteXchg), N);
    assert_eq!(sum(&counts, &[Scope::KsmReplace], Event::PteXchg), replaced);
    assert_eq!(all(&counts, Event::PteXchg), N + replaced);
    assert_eq!(all(&counts, Event::PteWrite), N + replaced);
    assert_eq!(flushes_of_a_page::<A>(&counts), N + replaced);
    assert_eq!(all(&counts, Event::PageChecksum), 2 * N);
    assert_eq!(sum(&counts, &[Scope::None], Event::PtepGet), 2 * N);
    // One page of each node waited in the unstable tree for the next.
    assert_eq!(sum(&counts, &[Scope::KsmScan], Event::FnFolioWalkStart), N / SHARERS);
}

#[test]
fn merging_takes_two_exchanges_two_stores_and_two_flushes_a_page() {
    for kernel in ["v6.12", "v7.3"] {
        merging::<Arm64>(kernel);
        merging::<X86_64>(kernel);
    }
}

/// Large folios are split when their first page is merged; afterwards nothing differs.
#[test]
fn large_folios_unmerge_like_single_pages() {
    for kernel in KERNELS {
        let mut guest = guest::<Arm64>(kernel, if kernel < "v6.12" { 2048 } else { 64 });
        let at = region(&mut guest, MIB);
        // The page that met its own folio in the unstable tree is merged in the third scan.
        scan(&mut guest, 3);
        let counts = unmerge(&mut guest, at, MIB);
        assert_eq!(Lookups::counted(&counts), Lookups::derived(kernel), "{kernel}");
        assert_eq!(flushes_of_a_page::<Arm64>(&counts), N);
    }
}
