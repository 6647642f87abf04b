//! GUP over hugetlb in its three shapes, in closed form and in what it refuses.
//!
//! Until 6.4 hugetlb has a loop of its own (`follow_hugetlb_page()`), from 6.5 to 6.9 a look-up
//! of its own under the common loop (`hugetlb_follow_page_mask()`), since 6.10 none: the walk
//! finds leaves, and takes contiguous entries of the last level one by one.

use arch::{Arch, Arm64, HugeSize, Hw, KernelConfig, X86_64};
use events::Event;
use mm::{Backing, Errno, Foll, GupTest, GupTestCommand, MapFlags, Thp, VmProt};
use phys::PageFlags;
use ptescope_tests::guest::Guest;
use units::{ArchId, PAGE_SIZE, PMD_SIZE, Pfn, VirtAddr};

const MIB: u64 = 1 << 20;
const RW: VmProt = VmProt::READ.union(VmProt::WRITE);

fn guest<A: Arch>(kernel: &str, mib: u64) -> Guest<A> {
    let kernel = KernelConfig::parse(kernel).expect("a known kernel");
    let hw = match A::ID {
        ArchId::Arm64 => Hw::arm64(),
        ArchId::X86_64 => Hw::x86_64(),
    };
    Guest::new(kernel, Hw { cpus: 2, ..hw }, Thp::only([]), mib * MIB, 0)
}

/// A mapping of `bytes` in pages of `size`, each of them written unless `flags` says otherwise.
fn mapped<A: Arch>(guest: &mut Guest<A>, size: HugeSize, bytes: u64, prot: VmProt) -> VirtAddr {
    let backing = Backing::HugePages(size);
    let flags = MapFlags::PRIVATE;
    let at = guest.mm.mmap(guest.id, VirtAddr::ZERO, bytes, prot, flags, backing);
    at.expect("the pool covers it")
}

fn sum<A: Arch>(guest: &Guest<A>, event: Event) -> u64 {
    guest.counts().values().map(|c| c.get(event)).sum()
}

/// What one `gup_test -L -H -m MIB -n PER_CALL` iteration counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Totals {
    /// `follow_page_mask()`, or turns of `follow_hugetlb_page()`.
    walks: u64,
    locks: u64,
    ptep_get: u64,
    raw: u64,
    get_rmw: u64,
    put_rmw: u64,
    tested: u64,
    stored: u64,
    faults: u64,
}

const EVENTS: [Event; 10] = [
    Event::FnFollowPageMask,
    Event::FnFollowHugetlbPage,
    Event::PtlLock,
    Event::PtepGet,
    Event::PteRead,
    Event::FolioRefRmw,
    Event::FolioPincountRmw,
    Event::FolioPinnableTest,
    Event::GupPageStore,
    Event::FnHugetlbFault,
];

fn measured<A: Arch>(kernel: &str, size: HugeSize, mib: u64, per_call: u64) -> Totals {
    let mut guest = guest::<A>(kernel, mib + 128);
    guest.mm.set_nr_hugepages(size, mib * MIB / size.bytes());
    let at = mapped(&mut guest, size, mib * MIB, RW);
    for page in 0..mib * MIB / size.bytes() {
        guest.store(at.wrapping_add(page * size.bytes()), 1).expect("promised");
    }
    let request = GupTest {
        command: GupTestCommand::PinLongterm,
        addr: at,
        size: mib * MIB,
        nr_pages_per_call: per_call,
        flags: Foll::WRITE,
    };
    let now = |guest: &Guest<A>| EVENTS.map(|event| sum(guest, event));
    let start = now(&guest);
    let held = guest.mm.gup_test_get(guest.id, &request).expect("a good request");
    assert_eq!(held.size, mib * MIB, "every page is there");
    let middle = now(&guest);
    guest.assert_valid("pinned");
    guest.mm.gup_test_put(held);
    let end = now(&guest);
    guest.assert_valid("unpinned");
    let get: [u64; 10] = std::array::from_fn(|i| middle[i] - start[i]);
    let put: [u64; 10] = std::array::from_fn(|i| end[i] - middle[i]);
    Totals {
        walks: get[0] + get[1],
        locks: get[2],
        ptep_get: get[3],
        raw: get[4],
        get_rmw: get[5] + get[6],
        put_rmw: put[5] + put[6],
        tested: get[7],
        stored: get[8],
        faults: get[9],
    }
}

/// What a kernel makes of hugetlb.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Shape {
    OwnLoop,
    OwnLookUp,
    Generic,
}

fn shape(kernel: &KernelConfig) -> Shape {
    match (kernel.gup_hugetlb_unified, kernel.gup_hugetlb_generic) {
        (false, _) => Shape::OwnLoop,
        (true, false) => Shape::OwnLookUp,
        (true, true) => Shape::Generic,
    }
}

/// Derivation, for P pages in huge pages of n, in calls of c pages that do not cut them:
/// - One step takes s pages: n with a look-up that knows the size; what one leaf maps in the
///   generic walk, where a contiguous set is 16 leaves; 1 in the common loop where it loses its
///   stride once pages are recorded (before patch `gup-thp-stride`), and 1 in the generic walk of
///   last-level entries, unless it returns runs.
/// - A step is one walk and one lock. The own loop looks at the entry three times (is it there,
///   will it do, which page), the own look-up once, the generic walk at last-level entries only.
///   An entry of a contiguous set costs 1 + 16 raw reads, and as one that the contpte layer reads
///   1 + 2 where its scan stops at the first young and dirty one.
/// - A step takes references once in the own loop; elsewhere once for the first page and once for
///   the rest, if there is one. A pin of a large folio changes two words.
fn predict(kernel: &str, arch: ArchId, size: HugeSize, mib: u64, per_call: u64) -> Totals {
    let k = KernelConfig::parse(kernel).expect("a known kernel");
    let shape = shape(&k);
    let (p, n) = (mib * MIB / PAGE_SIZE, size.order().pages());
    assert!(per_call.is_multiple_of(n) || n.is_multiple_of(per_call));
    let leaf = size.entry_reach().pages();
    let step = match shape {
        Shape::OwnLoop => n,
        _ if !k.gup_thp_stride => 1,
        Shape::OwnLookUp => n,
        Shape::Generic if leaf == 1 && k.gup_pte_batch => n,
        Shape::Generic => leaf,
    };
    let step = step.min(per_call);
    let walks = p / step;
    let last_level = size == HugeSize::ContPte;
    let (looks, contpte) = match shape {
        Shape::OwnLoop => (3 * walks, false),
        Shape::OwnLookUp => (walks, false),
        Shape::Generic if last_level => (walks, k.contpte),
        Shape::Generic => (0, false),
    };
    let scan = if contpte && k.contpte_get_early_stop { 2 } else { 16 };
    let per_look = if size.entries() > 1 { 1 + scan } else { 1 };
    // huge_ptep_get() is ptep_get() on x86-64, and was on arm64 before the contpte layer.
    let named = shape == Shape::Generic || arch == ArchId::X86_64 || !k.contpte;
    let grabs = match shape {
        Shape::OwnLoop => walks,
        _ => walks + if step > 1 { walks } else { 0 },
    };
    let calls = p / per_call;
    Totals {
        walks,
        locks: walks,
        ptep_get: if named { looks } else { 0 },
        raw: looks * per_look,
        get_rmw: 2 * grabs,
        // unpin_user_pages() takes the pages of a folio at once.
        put_rmw: 2 * (p / n),
        tested: calls.max(p / n),
        stored: p,
        faults: 0,
    }
}

const KERNELS: [&str; 9] = [
    "v6.1",
    "v6.1+gup-thp-stride",
    "v6.1+gup-hugetlb-unify",
    "v6.1+gup-thp-stride+gup-hugetlb-unify",
    "v6.5",
    "v6.5-gup-hugetlb-unify",
    "v6.12",
    "v7.3",
    "v7.3+gup-pte-batch",
];

fn check<A: Arch>(kernel: &str, size: HugeSize, mib: u64, per_call: u64) -> Totals {
    let counted = measured::<A>(kernel, size, mib, per_call);
    let predicted = predict(kernel, A::ID, size, mib, per_call);
    assert_eq!(counted, predicted, "{kernel} {:?} {size:?} -n {per_call}", A::ID);
    counted
}

#[test]
fn one_call_for_256_mib_of_2_mib_pages() {
    for kernel in KERNELS {
        check::<X86_64>(kernel, HugeSize::Pmd, 256, 65_536);
        check::<Arm64>(kernel, HugeSize::Pmd, 256, 65_536);
    }
    // Until 6.4: 128 turns, each with three looks; references once a page: 128 × 2.
    for arch in [check::<X86_64>, check::<Arm64>] {
        let own = arch("v6.1", HugeSize::Pmd, 256, 65_536);
        assert_eq!((own.walks, own.locks, own.get_rmw, own.tested), (128, 128, 256, 128));
        assert_eq!((own.ptep_get, own.raw), (3 * 128, 3 * 128));
        // 6.5: one look, but two grabs of a reference and a pin each.
        let unified = arch("v6.5", HugeSize::Pmd, 256, 65_536);
        assert_eq!((unified.walks, unified.get_rmw, unified.ptep_get), (128, 512, 128));
        // Since 6.10 a PMD leaf is no PTE to look at.
        let generic = arch("v7.3", HugeSize::Pmd, 256, 65_536);
        assert_eq!((generic.walks, generic.locks, generic.get_rmw), (128, 128, 512));
        assert_eq!((generic.ptep_get, generic.raw, generic.put_rmw), (0, 0, 256));
    }
}

#[test]
fn contiguous_sets_are_walked_entry_by_entry_since_6_10() {
    for kernel in KERNELS {
        for per_call in [16, 512, 4_096] {
            check::<Arm64>(kernel, HugeSize::ContPte, 16, per_call);
        }
        check::<Arm64>(kernel, HugeSize::ContPmd, 64, 16_384);
        check::<Arm64>(kernel, HugeSize::ContPmd, 64, 512);
    }
    let walks = |kernel, size| check::<Arm64>(kernel, size, 64, 16_384).walks;
    let (pte, pmd) = (HugeSize::ContPte, HugeSize::ContPmd);
    assert_eq!([walks("v6.5", pte), walks("v7.3", pte)], [1_024, 16 * 1_024]);
    assert_eq!(walks("v7.3+gup-pte-batch", pte), 1_024, "a run is a set again");
    assert_eq!([walks("v6.5", pmd), walks("v7.3", pmd)], [2, 16 * 2]);
}

#[test]
fn unifying_without_the_stride_walks_every_page() {
    // Why the series does both: the common loop would otherwise have slowed hugetlb down.
    let [own, unified] = ["v6.1", "v6.1+gup-hugetlb-unify"]
        .map(|kernel| check::<X86_64>(kernel, HugeSize::Pmd, 64, 16_384).walks);
    assert_eq!((own, unified), (32, 16_384));
}

#[test]
fn calls_shorter_than_a_huge_page_walk_it_again() {
    for kernel in KERNELS {
        for per_call in [1, 16, 512, 1_024] {
            check::<X86_64>(kernel, HugeSize::Pmd, 16, per_call);
        }
    }
    assert_eq!(check::<X86_64>("v7.3", HugeSize::Pmd, 512, 1_024).walks, 256);
}

/// Places of the pages in their folios; references and pins of each folio.
type Seen = (Vec<u64>, Vec<(u32, u32)>);

/// Whatever the shape: the same pages, references and pins.
fn all_shapes_agree<A: Arch>() {
    for &size in A::HUGE_SIZES.iter().filter(|&&size| size != HugeSize::Pud) {
        let n = size.order().pages();
        let mut known: Option<Seen> = None;
        for kernel in KERNELS {
            let mut guest = guest::<A>(kernel, 256);
            guest.mm.set_nr_hugepages(size, 3);
            let at = mapped(&mut guest, size, 3 * size.bytes(), RW);
            let mut pages = Vec::new();
            // The first page is not there yet; the request starts and ends inside a page.
            let start = at.wrapping_add(3 * PAGE_SIZE);
            let flags = Foll::WRITE | Foll::LONGTERM;
            let got = guest.mm.pin_user_pages(guest.id, start, 2 * n, flags, &mut pages);
            assert_eq!(got, Ok(2 * n), "{kernel}");
            let base = pages[0].get() - 3;
            let folio = |i: u64| pages[usize::try_from(i).expect("small")].get();
            assert_eq!(folio(n - 4), base + n - 1, "up to the end of the first page");
            let counts: Vec<(u32, u32)> = (0..3u64)
                .map(|page| {
                    let va = at.wrapping_add(page * size.bytes());
                    let mut one = Vec::new();
                    let id = guest.id;
                    guest
                        .mm
                        .get_user_pages(id, va, 1, Foll::empty(), Some(&mut one))
                        .expect("there");
                    let head = guest.mm.page_folio(one[0]);
                    let pins = guest.mm.pt.pages.page(head.pfn).pincount;
                    let refs = guest.mm.folio_ref_count(head);
                    guest.mm.put_page(one[0]);
                    (refs, pins)
                })
                .collect();
            // Mapped once, looked at once, and a reference for each pin.
            let (first, last) = (u32::try_from(n - 3).expect("small"), 3);
            let whole = u32::try_from(n).expect("small");
            let pinned = [first, whole, last];
            assert_eq!(counts, pinned.map(|pins| (2 + pins, pins)), "{kernel} {size:?}");
            let relative: Vec<u64> = pages.iter().map(|page| page.get() % n).collect();
            let all = (relative, counts);
            assert_eq!(*known.get_or_insert_with(|| all.clone()), all, "{kernel} {size:?}");
            guest.assert_valid(kernel);
            guest.mm.unpin_user_pages(&pages);
            guest.assert_valid(kernel);
        }
    }
}

#[test]
fn all_shapes_take_the_same_pages() {
    all_shapes_agree::<X86_64>();
    all_shapes_agree::<Arm64>();
}

#[test]
fn a_core_dump_leaves_holes_where_nothing_was_touched() {
    for kernel in KERNELS {
        let mut guest = guest::<X86_64>(kernel, 64);
        guest.mm.set_nr_hugepages(HugeSize::Pmd, 2);
        let at = mapped(&mut guest, HugeSize::Pmd, 2 * PMD_SIZE, RW);
        guest.store(at, 1).expect("promised");
        let id = guest.id;
        let mut pages = Vec::new();
        let flags = Foll::DUMP;
        let got = guest.mm.get_user_pages(id, at, 1_024, flags, Some(&mut pages));
        assert_eq!(got, Ok(512), "{kernel}: up to the hole");
        let hole = at.wrapping_add(PMD_SIZE);
        let mut none: Vec<Pfn> = Vec::new();
        let got = guest.mm.get_user_pages(id, hole, 1, flags, Some(&mut none));
        assert_eq!(got, Err(Errno::EFAULT), "{kernel}");
        assert_eq!(guest.mm.huge_pool(HugeSize::Pmd).map(|pool| pool.free), Some(1));
        pages.iter().for_each(|&page| guest.mm.put_page(page));
        guest.assert_valid(kernel);
    }
}

#[test]
fn a_read_only_pin_of_a_shared_page_copies_it_first() {
    for kernel in KERNELS {
        let mut guest = guest::<Arm64>(kernel, 128);
        let size = HugeSize::ContPte;
        guest.mm.set_nr_hugepages(size, 3);
        let at = mapped(&mut guest, size, size.bytes(), RW);
        guest.store(at, 1).expect("promised");
        let child = guest.mm.dup_mmap(guest.id).expect("memory");
        let mut pages = Vec::new();
        let got = guest.mm.pin_user_pages(guest.id, at, 16, Foll::empty(), &mut pages);
        assert_eq!(got, Ok(16), "{kernel}");
        let head = guest.mm.page_folio(pages[0]);
        assert!(guest.mm.folio_test(head, PageFlags::ANON_EXCLUSIVE), "{kernel}: a copy");
        guest.store(at, 2).expect("writable without another copy");
        let mut again = Vec::new();
        guest.mm.pin_user_pages(guest.id, at, 16, Foll::empty(), &mut again).expect("there");
        assert_eq!(pages, again, "{kernel}: the pin stays coherent");
        guest.mm.unpin_user_pages(&pages);
        guest.mm.unpin_user_pages(&again);
        guest.switch_to(child);
        assert_eq!(guest.load(at), Ok(1), "{kernel}");
        guest.assert_valid(kernel);
    }
}

#[test]
fn refusals() {
    for kernel in KERNELS {
        let mut guest = guest::<X86_64>(kernel, 64);
        guest.mm.set_nr_hugepages(HugeSize::Pmd, 1);
        let at = mapped(&mut guest, HugeSize::Pmd, PMD_SIZE, VmProt::READ);
        let mut pages = Vec::new();
        let mut get = |flags| guest.mm.get_user_pages(guest.id, at, 1, flags, Some(&mut pages));
        // A huge page cannot be written against its mapping, not even by force.
        assert_eq!(get(Foll::WRITE), Err(Errno::EFAULT), "{kernel}");
        assert_eq!(get(Foll::WRITE | Foll::FORCE), Err(Errno::EFAULT), "{kernel}");
        assert_eq!(get(Foll::ANON), Err(Errno::EFAULT), "{kernel}: it is a file");
        assert_eq!(get(Foll::SPLIT_PMD), Err(Errno::EOPNOTSUPP), "{kernel}");
        assert_eq!(get(Foll::empty()), Ok(1), "{kernel}");
    }
}

#[test]
fn an_empty_pool_is_a_bad_address() {
    for kernel in KERNELS {
        let mut guest = guest::<X86_64>(kernel, 64);
        let backing = Backing::HugePages(HugeSize::Pmd);
        let flags = MapFlags::PRIVATE | MapFlags::NORESERVE;
        let at = guest.mm.mmap(guest.id, VirtAddr::ZERO, PMD_SIZE, RW, flags, backing);
        let at = at.expect("nothing is promised");
        let mut pages = Vec::new();
        for flags in [Foll::empty(), Foll::WRITE] {
            let got = guest.mm.pin_user_pages(guest.id, at, 1, flags, &mut pages);
            assert_eq!(got, Err(Errno::EFAULT), "{kernel}: SIGBUS for a program");
            let got = guest.mm.pin_user_pages_fast(guest.id, at, 1, flags, &mut pages);
            assert_eq!(got, Err(Errno::EFAULT), "{kernel}");
        }
        guest.assert_valid(kernel);
    }
}
