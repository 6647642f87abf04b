//! What batching must not change, and what GUP refuses.
//!
//! Three machines do the same random things: one kernel takes page by page, one takes runs, and a third
//! takes runs but is asked for one page at a time. After each request all must have the same pages,
//! references, pins and page tables.

use arch::{Arch, Arm64, Hw, KernelConfig, X86_64};
use events::Event;
use mm::{Errno, Foll, MapFlags, Thp, ThpSize, VmProt, advice};
use phys::PageFlags;
use ptescope_tests::guest::{Guest, pages};
use units::{ArchId, PAGE_SIZE, PMD_SIZE, Pfn, VirtAddr};

const MIB: u64 = 1 << 20;
const START: VirtAddr = VirtAddr::new(0x7f00_0000_0000);
/// Three and a bit page tables.
const LEN: u64 = 7 * MIB;
/// One of them is a PMD leaf at last.
const LEAF: VirtAddr = VirtAddr::new(START.get() + 4 * MIB);

/// A small generator, so that a failure can be repeated from its seed.
struct Random(u64);

impl Random {
    fn below(&mut self, n: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % n
    }
    fn index(&mut self, len: usize) -> usize {
        usize::try_from(self.below(len as u64)).expect("less than a usize")
    }
    fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.index(from.len())]
    }
    fn range(&mut self) -> (VirtAddr, u64) {
        let first = self.below(LEN / PAGE_SIZE);
        let most = (LEN / PAGE_SIZE - first).min(600);
        let nr = 1 + self.below(most);
        (START.wrapping_add(first * PAGE_SIZE), nr * PAGE_SIZE)
    }
}

fn hw<A: Arch>() -> Hw {
    match A::ID {
        ArchId::Arm64 => Hw { cpus: 2, ..Hw::arm64() },
        ArchId::X86_64 => Hw { cpus: 2, ..Hw::x86_64() },
    }
}

fn guest<A: Arch>(kernel: &str, change: fn(&mut KernelConfig)) -> Guest<A> {
    let mut kernel = KernelConfig::parse(kernel).expect("a known kernel");
    change(&mut kernel);
    Guest::new(kernel, hw::<A>(), Thp::only([]), 96 * MIB, 64 * MIB)
}

const RW: VmProt = VmProt::READ.union(VmProt::WRITE);

/// Writes to parts of the region, with one folio size or another enabled.
fn touch<A: Arch>(guest: &mut Guest<A>, random: &mut Random, times: u32) {
    for _ in 0..times {
        let order = Thp::order_of_kib(random.pick(&[16, 64, 128, 1024, 2048]));
        guest.mm.thp = Thp::only(order.map(|order| (order, ThpSize::Always)));
        let (at, len) = random.range();
        for va in pages(at, len.min(64 * PAGE_SIZE)) {
            guest.store(va, 1).expect("writable");
        }
    }
    let order = Thp::order_of_kib(64).map(|order| (order, ThpSize::Always));
    guest.mm.thp = Thp::only(order);
}

/// Folios of several sizes, holes, read-only and PROT_NONE parts, swapped parts, and a child
/// that shares what was there before it. Returns the child's address space.
fn scramble<A: Arch>(guest: &mut Guest<A>, random: &mut Random) -> arch::MmId {
    guest.mmap(START, LEN, RW, MapFlags::FIXED).expect("address space");
    touch(guest, random, 6);
    let child = guest.mm.dup_mmap(guest.id).expect("memory for a fork");
    touch(guest, random, 24);
    for _ in 0..3 {
        let (at, _) = random.range();
        guest.load(at).expect("readable");
        for (advice, most) in [(advice::PAGEOUT, 40), (advice::DONTNEED, 20)] {
            let (at, len) = random.range();
            let len = len.min(most * PAGE_SIZE);
            guest.mm.madvise(guest.id, at, len, advice).expect("advice is taken");
        }
    }
    for prot in [VmProt::READ, VmProt::empty(), VmProt::READ] {
        let (at, len) = random.range();
        guest.mm.mprotect(guest.id, at, len.min(200 * PAGE_SIZE), prot).expect("a good range");
    }
    map_leaf(guest, random);
    child
}

/// A PMD leaf in place of what was there, read-only now and then.
fn map_leaf<A: Arch>(guest: &mut Guest<A>, random: &mut Random) {
    let order = Thp::order_of_kib(2048).map(|order| (order, ThpSize::Always));
    let before = std::mem::replace(&mut guest.mm.thp, Thp::only(order));
    guest.mmap(LEAF, PMD_SIZE, RW, MapFlags::FIXED).expect("address space");
    guest.store(LEAF, 1).expect("writable");
    guest.mm.thp = before;
    if random.below(2) == 0 {
        guest.mm.mprotect(guest.id, LEAF, PMD_SIZE, VmProt::READ).expect("mapped");
    }
}

#[derive(Clone, Copy, Debug)]
enum Kind {
    Get,
    Pin,
    GetFast,
    PinFast,
}

#[derive(Clone, Copy, Debug)]
struct Request {
    kind: Kind,
    at: VirtAddr,
    nr: u64,
    flags: Foll,
}

impl Request {
    fn random(random: &mut Random) -> Request {
        let (at, len) = random.range();
        let kind = random.pick(&[Kind::Get, Kind::Pin, Kind::GetFast, Kind::PinFast]);
        let mut flags = Foll::empty();
        let pin = matches!(kind, Kind::Pin | Kind::PinFast);
        let fast = matches!(kind, Kind::GetFast | Kind::PinFast);
        for (flag, allowed) in [
            (Foll::WRITE, true),
            (Foll::FORCE, true),
            (Foll::LONGTERM, pin),
            (Foll::DUMP, !fast),
            (Foll::NOFAULT, true),
            (Foll::HONOR_NUMA_FAULT, true),
        ] {
            if allowed && random.below(3) == 0 {
                flags |= flag;
            }
        }
        Request { kind, at, nr: len / PAGE_SIZE, flags }
    }

    fn run<A: Arch>(&self, guest: &mut Guest<A>) -> (Result<u64, Errno>, Vec<Pfn>) {
        let (id, at, nr, flags) = (guest.id, self.at, self.nr, self.flags);
        let mut got = Vec::new();
        let result = match self.kind {
            Kind::Get => guest.mm.get_user_pages(id, at, nr, flags, Some(&mut got)),
            Kind::Pin => guest.mm.pin_user_pages(id, at, nr, flags, &mut got),
            Kind::GetFast => guest.mm.get_user_pages_fast(id, at, nr, flags, &mut got),
            Kind::PinFast => guest.mm.pin_user_pages_fast(id, at, nr, flags, &mut got),
        };
        assert_eq!(got.len() as u64, result.unwrap_or(0), "as many pages as it says");
        (result, got)
    }

    /// The same, in calls for one page each, until one fails.
    fn run_by_ones<A: Arch>(&self, guest: &mut Guest<A>) -> (Result<u64, Errno>, Vec<Pfn>) {
        let mut got = Vec::new();
        for i in 0..self.nr {
            let at = self.at.wrapping_add(i * PAGE_SIZE);
            match (Request { at, nr: 1, ..*self }).run(guest) {
                (Ok(_), mut page) => got.append(&mut page),
                (Err(error), _) if i == 0 => return (Err(error), got),
                (Err(_), _) => break,
            }
        }
        (Ok(got.len() as u64), got)
    }

    fn put<A: Arch>(&self, guest: &mut Guest<A>, got: &[Pfn]) {
        match self.kind {
            Kind::Pin | Kind::PinFast => guest.mm.unpin_user_pages(got),
            Kind::Get | Kind::GetFast => got.iter().for_each(|&page| guest.mm.put_page(page)),
        }
    }
}

/// References and pins of every frame, and every entry that maps the region.
type State = (Vec<(u32, u32)>, Vec<(VirtAddr, u64)>);

fn state<A: Arch>(guest: &Guest<A>) -> State {
    let pt = &guest.mm.pt;
    let counts = (0..pt.pages.frames()).map(|i| {
        let page = pt.pages.page(Pfn::new(i));
        (page.refcount, page.pincount)
    });
    let mut entries = Vec::new();
    for va in (0..LEN.div_ceil(PMD_SIZE)).map(|i| START.wrapping_add(i * PMD_SIZE)) {
        let Some(pmdp) = pt.pmd_offset(guest.id, va) else { continue };
        match pt.pte_offset(pmdp, va) {
            None => entries.push((va, pt.pmdp_get(pmdp).raw())),
            Some(first) => {
                entries.extend((0..512).map(|i| (va, pt.ram.load_u64(first.add(i).slot))));
            }
        }
    }
    (counts.collect(), entries)
}

/// Walks of both kernels, and what they met before the first request.
#[derive(Clone, Copy, Debug, Default)]
struct Walks {
    plain: u64,
    batched: u64,
    mix: Mix,
}

/// How many entries are of each kind that GUP must tell apart.
#[derive(Clone, Copy, Debug, Default)]
struct Mix {
    holes: u64,
    swapped: u64,
    protnone: u64,
    read_only: u64,
    /// Mapping a page that a child may share.
    shared: u64,
    of_small_folios: u64,
    of_large_folios: u64,
    leaves: u64,
}

impl Mix {
    fn add<A: Arch>(&mut self, guest: &Guest<A>) {
        for va in pages(START, LEN) {
            let Some(pmdp) = guest.mm.pt.pmd_offset(guest.id, va) else { continue };
            if guest.mm.pt.pte_offset(pmdp, va).is_none() {
                self.leaves += u64::from(guest.mm.pt.pmdp_get(pmdp).is_leaf());
                continue;
            }
            let pte = pte(guest, va);
            if pte.is_none() || !pte.is_present() {
                *(if pte.is_none() { &mut self.holes } else { &mut self.swapped }) += 1;
                continue;
            }
            self.protnone += u64::from(pte.is_protnone());
            self.read_only += u64::from(!pte.is_write());
            let page = guest.mm.pt.pages.page(pte.pfn());
            self.shared += u64::from(!page.flags.contains(PageFlags::ANON_EXCLUSIVE));
            let large = guest.mm.page_folio(pte.pfn()).is_large();
            *(if large { &mut self.of_large_folios } else { &mut self.of_small_folios }) += 1;
        }
    }

    fn assert_rich(&self) {
        let Mix { holes, swapped, protnone, read_only, shared, .. } = *self;
        let Mix { of_small_folios, of_large_folios, leaves, .. } = *self;
        let kinds = [holes, swapped, protnone, read_only, shared, of_small_folios, of_large_folios];
        assert!(kinds.iter().all(|&n| n >= 100) && leaves > 0, "{self:?}");
    }
}

fn count<A: Arch>(guest: &Guest<A>, event: Event) -> u64 {
    guest.counts().values().map(|c| c.get(event)).sum()
}

fn same_but_for_batching<A: Arch>(change: fn(&mut KernelConfig), seed: u64, walks: &mut Walks) {
    let mut plain = guest::<A>("v7.3", |_| ());
    let mut batched = guest::<A>("v7.3+gup-pte-batch", change);
    let mut by_ones = guest::<A>("v7.3+gup-pte-batch", change);
    let child = scramble(&mut plain, &mut Random(seed));
    for other in [&mut batched, &mut by_ones] {
        assert_eq!(scramble(other, &mut Random(seed)), child);
    }
    walks.mix.add(&plain);
    let mut random = Random(seed.wrapping_mul(31));
    let mut held: Vec<(Request, Vec<Pfn>)> = Vec::new();
    for _ in 0..40 {
        let request = Request::random(&mut random);
        let first = request.run(&mut plain);
        assert_eq!(first, request.run(&mut batched), "seed {seed}: {request:?}");
        assert_eq!(first, request.run_by_ones(&mut by_ones), "seed {seed}: {request:?}");
        let now = state(&plain);
        assert_eq!(now, state(&batched), "seed {seed}: {request:?}");
        assert_eq!(now, state(&by_ones), "by ones, seed {seed}: {request:?}");
        held.push((request, first.1));
        if held.len() > 6 {
            let (old, got) = held.remove(random.index(6));
            for guest in [&mut plain, &mut batched, &mut by_ones] {
                old.put(guest, &got);
            }
        }
    }
    for (request, got) in held {
        for guest in [&mut plain, &mut batched, &mut by_ones] {
            request.put(guest, &got);
        }
    }
    assert_eq!(state(&plain), state(&batched), "seed {seed}");
    walks.plain += count(&plain, Event::FnFollowPageMask);
    walks.batched += count(&batched, Event::FnFollowPageMask);
    for guest in [&mut plain, &mut batched, &mut by_ones] {
        guest.assert_valid("all is put back");
        assert_balanced(guest, child);
    }
}

/// Nothing is pinned, and once both processes are gone nothing is referenced.
fn assert_balanced<A: Arch>(guest: &mut Guest<A>, child: arch::MmId) {
    let stat = &guest.mm.vmstat;
    assert_eq!(stat.nr_foll_pin_acquired, stat.nr_foll_pin_released);
    let (counts, _) = state(guest);
    assert!(counts.iter().all(|&(_, pins)| pins == 0));
    let other = guest.mm.mm_alloc().expect("a root table");
    let id = guest.id;
    guest.switch_to(other);
    guest.mm.mmput(id);
    guest.mm.mmput(child);
    let memory = &guest.mm.pt.pages;
    let kept = PageFlags::RESERVED | PageFlags::TABLE;
    let left = (0..memory.frames())
        .map(|i| (i, memory.page(Pfn::new(i))))
        .filter(|(_, page)| page.refcount > 0 && !page.flags.intersects(kept));
    let left: Vec<_> = left.collect();
    assert!(left.is_empty(), "still referenced: {left:#?}");
}

#[test]
fn runs_and_single_pages_give_the_same() {
    let mut walks = Walks::default();
    for seed in 1..=12 {
        same_but_for_batching::<X86_64>(|_| (), seed, &mut walks);
        same_but_for_batching::<Arm64>(|_| (), seed, &mut walks);
    }
    assert!(walks.plain > walks.batched + 10_000, "the mix has runs: {walks:?}");
    walks.mix.assert_rich();
}

#[test]
fn runs_of_equally_exclusive_pages_give_the_same() {
    let mut walks = Walks::default();
    for seed in 101..=108 {
        let change: fn(&mut KernelConfig) = |k| k.gup_ro_pin_exclusive_run = true;
        same_but_for_batching::<X86_64>(change, seed, &mut walks);
        same_but_for_batching::<Arm64>(change, seed, &mut walks);
    }
    assert!(walks.plain > walks.batched + 10_000, "the mix has runs: {walks:?}");
}

#[test]
fn runs_grabbed_at_once_give_the_same() {
    for seed in 201..=206 {
        let change: fn(&mut KernelConfig) = |k| {
            k.gup_merge_grab = true;
            k.gup_batch_own_scan = true;
        };
        same_but_for_batching::<Arm64>(change, seed, &mut Walks::default());
    }
}

// ---- one by one

/// Four pages that are mapped and one that is not, in a process of its own.
fn small<A: Arch>(kernel: &str) -> Guest<A> {
    let mut guest = guest::<A>(kernel, |_| ());
    guest.mmap(START, 4 * PAGE_SIZE, RW, MapFlags::FIXED).expect("address space");
    guest
}

fn get<A: Arch>(guest: &mut Guest<A>, nr: u64, flags: Foll) -> Result<u64, Errno> {
    let mut got = Vec::new();
    let result = guest.mm.get_user_pages(guest.id, START, nr, flags, Some(&mut got));
    got.iter().for_each(|&page| guest.mm.put_page(page));
    result
}

fn pin<A: Arch>(guest: &mut Guest<A>, nr: u64, flags: Foll) -> Result<Vec<Pfn>, Errno> {
    let mut got = Vec::new();
    guest.mm.pin_user_pages(guest.id, START, nr, flags, &mut got).map(|_| got)
}

fn pte<A: Arch>(guest: &Guest<A>, va: VirtAddr) -> arch::Pte<A> {
    let pmdp = guest.mm.pt.pmd_offset(guest.id, va).expect("a table");
    let at = guest.mm.pt.pte_offset(pmdp, va).expect("a table");
    arch::Pte::from_raw(guest.mm.pt.ram.load_u64(at.slot))
}

#[test]
fn flags_that_contradict_each_other_are_refused() {
    let mut guest = small::<X86_64>("v7.3");
    for flags in [Foll::PIN, Foll::TOUCH, Foll::FAST_ONLY, Foll::LONGTERM, Foll::REMOTE] {
        assert_eq!(get(&mut guest, 1, flags), Err(Errno::EINVAL), "{flags:?}");
    }
    assert_eq!(pin(&mut guest, 1, Foll::GET), Err(Errno::EINVAL));
    assert_eq!(pin(&mut guest, 1, Foll::LONGTERM | Foll::PCI_P2PDMA), Err(Errno::EINVAL));
    let none = guest.mm.get_user_pages(guest.id, START, 1, Foll::GET, None);
    assert_eq!(none, Err(Errno::EINVAL));
    let fast = guest.mm.pin_user_pages_fast(guest.id, START, 1, Foll::DUMP, &mut Vec::new());
    assert_eq!(fast, Err(Errno::EINVAL));
}

#[test]
fn a_hole_ends_the_request_or_refuses_it() {
    let mut guest = small::<Arm64>("v7.3");
    assert_eq!(get(&mut guest, 9, Foll::WRITE), Ok(4));
    guest.mm.munmap(guest.id, START, PAGE_SIZE).expect("mapped");
    assert_eq!(get(&mut guest, 9, Foll::WRITE), Err(Errno::EFAULT));
    assert_eq!(get(&mut guest, 0, Foll::WRITE), Ok(0));
}

#[test]
fn ranges_beyond_user_space_are_refused() {
    let mut guest = small::<X86_64>("v7.3");
    let mut fast = |at: u64, nr: u64| {
        let at = VirtAddr::new(at);
        guest.mm.get_user_pages_fast(guest.id, at, nr, Foll::WRITE, &mut Vec::new())
    };
    assert_eq!(fast(0x7fff_ffff_f000, 1), Err(Errno::EFAULT));
    assert_eq!(fast(0xffff_8000_0000_0000, 1), Err(Errno::EFAULT));
    assert_eq!(fast(0xffff_ffff_ffff_f000, 2), Err(Errno::EOVERFLOW));
    assert_eq!(fast(START.get(), u64::MAX), Err(Errno::EOVERFLOW));
    let mut slow = |at: u64| {
        let at = VirtAddr::new(at);
        guest.mm.get_user_pages(guest.id, at, 4, Foll::WRITE, Some(&mut Vec::new()))
    };
    assert_eq!(slow(0xffff_8000_0000_0000), Err(Errno::EFAULT));
    assert_eq!(slow(0xffff_ffff_ffff_f000), Err(Errno::EFAULT));
}

#[test]
fn protection_is_respected_unless_forced() {
    let mut guest = small::<Arm64>("v7.3");
    guest.store(START, 1).expect("writable");
    guest.mm.mprotect(guest.id, START, 4 * PAGE_SIZE, VmProt::READ).expect("mapped");
    assert_eq!(get(&mut guest, 4, Foll::WRITE), Err(Errno::EFAULT));
    assert_eq!(get(&mut guest, 4, Foll::empty()), Ok(4));
    assert_eq!(get(&mut guest, 4, Foll::WRITE | Foll::FORCE), Ok(4));
    assert!(!pte(&guest, START).is_write(), "a forced write does not make the entry writable");
    assert!(guest.store(START, 2).is_err());
    guest.mm.mprotect(guest.id, START, 4 * PAGE_SIZE, VmProt::empty()).expect("mapped");
    assert_eq!(get(&mut guest, 4, Foll::empty()), Err(Errno::EFAULT));
    assert_eq!(get(&mut guest, 4, Foll::FORCE), Ok(4));
    guest.assert_valid("forced");
}

#[test]
fn a_dump_and_a_caller_without_faults_stop_at_an_empty_entry() {
    for flags in [Foll::DUMP, Foll::NOFAULT] {
        let mut guest = small::<X86_64>("v7.3");
        assert_eq!(get(&mut guest, 4, flags), Err(Errno::EFAULT));
        guest.store(START, 1).expect("writable");
        assert_eq!(get(&mut guest, 4, flags), Ok(1));
    }
    let mut guest = small::<X86_64>("v7.3");
    guest.load(START).expect("readable");
    assert_eq!(get(&mut guest, 1, Foll::DUMP), Err(Errno::EFAULT), "the zero page is no content");
    assert_eq!(get(&mut guest, 1, Foll::NOFAULT), Ok(1));
}

#[test]
fn only_anonymous_memory_if_asked() {
    let mut guest = small::<Arm64>("v7.3");
    let file = guest.mm.file_create("/f", vec![7; 4096]);
    let backing = mm::Backing::File { file, offset: 0 };
    let flags = MapFlags::PRIVATE | MapFlags::FIXED;
    guest.mm.mmap(guest.id, START, PAGE_SIZE, VmProt::READ, flags, backing).expect("mapped");
    assert_eq!(get(&mut guest, 1, Foll::ANON), Err(Errno::EFAULT));
    assert_eq!(get(&mut guest, 1, Foll::empty()), Ok(1));
    // A long-term pin of a private mapping must see later writes of its owner: a copy is pinned.
    let shared = pin(&mut guest, 1, Foll::empty()).expect("readable");
    let own = pin(&mut guest, 1, Foll::LONGTERM).expect("readable");
    assert_ne!(shared, own);
    assert_eq!(guest.mm.pt.ram.frame(own[0])[0], 7);
    guest.mm.unpin_user_pages(&shared);
    guest.mm.unpin_user_pages(&own);
    guest.assert_valid("unpinned");
}

#[test]
fn a_read_only_pin_of_a_shared_page_is_of_its_own_copy_and_stays_coherent() {
    for kernel in ["v7.3", "v7.3+gup-pte-batch", "v6.12"] {
        let mut guest = small::<Arm64>(kernel);
        guest.store(START, 1).expect("writable");
        let child = guest.mm.dup_mmap(guest.id).expect("memory");
        let before = pte(&guest, START).pfn();
        let pinned = pin(&mut guest, 1, Foll::empty()).expect("readable");
        assert_ne!(pinned[0], before, "unshared");
        assert!(!pte(&guest, START).is_write());
        guest.store(START, 9).expect("writable");
        assert_eq!(pte(&guest, START).pfn(), pinned[0], "the write went to the pinned page");
        assert_eq!(guest.mm.pt.ram.frame(pinned[0])[0], 9);
        // A pinned page is not shared with a second child either.
        let second = guest.mm.dup_mmap(guest.id).expect("memory");
        assert!(pte(&guest, START).is_write());
        guest.mm.unpin_user_pages(&pinned);
        guest.assert_valid("unpinned");
        guest.mm.mmput(child);
        guest.mm.mmput(second);
    }
}

#[test]
fn a_leaf_is_split_if_asked() {
    let mut guest = guest::<Arm64>("v7.3", |_| ());
    let order = Thp::order_of_kib(2048).expect("a size");
    guest.mm.thp = Thp::only([(order, ThpSize::Always)]);
    guest.mmap(START, PMD_SIZE, RW, MapFlags::FIXED).expect("address space");
    guest.store(START, 1).expect("writable");
    let walks = |g: &Guest<Arm64>| count(g, Event::FnFollowHugePmd);
    assert_eq!(get(&mut guest, 512, Foll::WRITE), Ok(512));
    assert_eq!(walks(&guest), 1);
    assert_eq!(get(&mut guest, 512, Foll::WRITE | Foll::SPLIT_PMD), Ok(512));
    assert_eq!(walks(&guest), 1);
    guest.assert_valid("split");
}

#[test]
fn a_small_page_looks_pinned_and_the_zero_page_never_is() {
    let mut guest = small::<X86_64>("v7.3");
    guest.load(START).expect("readable");
    let zero = pin(&mut guest, 1, Foll::empty()).expect("readable");
    assert!(guest.mm.is_zero_page(zero[0]) && !guest.mm.page_maybe_dma_pinned(zero[0]));
    guest.mm.unpin_user_pages(&zero);
    let own = pin(&mut guest, 2, Foll::WRITE).expect("writable");
    assert!(own.iter().all(|&page| guest.mm.page_maybe_dma_pinned(page)));
    assert_eq!(guest.mm.pt.pages.page(own[0]).refcount, 1 + 1024);
    guest.mm.unpin_user_pages(&own);
    assert_eq!(guest.mm.pt.pages.page(own[0]).refcount, 1);
}
