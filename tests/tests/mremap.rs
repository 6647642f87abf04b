//! mremap(2): what moves, what stays, and what is refused.

use arch::{Arch, Arm64, Hw, KernelConfig, X86_64};
use mm::{Access, Errno, FaultSignal, MapFlags, MremapFlags, Thp, ThpSize, VmProt, advice};
use ptescope_tests::guest::{Guest, pages};
use units::{ArchId, PAGE_SIZE, VirtAddr};

const MIB: u64 = 1 << 20;
const LEN: u64 = 6 * MIB;
const FROM: VirtAddr = VirtAddr::new(0x4000_0000);
const TO: VirtAddr = VirtAddr::new(0x8000_0000);
const RW: VmProt = VmProt::READ.union(VmProt::WRITE);
const MOVE: MremapFlags = MremapFlags::MAYMOVE.union(MremapFlags::FIXED);

fn guest<A: Arch>(kernel: &str, folio_kib: u64) -> Guest<A> {
    let hw = if A::ID == ArchId::Arm64 { Hw::arm64() } else { Hw::x86_64() };
    let kernel = KernelConfig::parse(kernel).expect("a known kernel");
    let thp = Thp::only(Thp::order_of_kib(folio_kib).map(|order| (order, ThpSize::Always)));
    Guest::new(kernel, Hw { cpus: 2, ..hw }, thp, 64 * MIB, 64 * MIB)
}

/// A byte that tells pages apart.
fn byte(page: u64) -> u8 {
    u8::try_from(page % 251 + 1).expect("small")
}

fn region<A: Arch>(g: &mut Guest<A>) {
    g.mmap(FROM, LEN, RW, MapFlags::FIXED).expect("address space");
    for (page, va) in (0..).zip(pages(FROM, LEN)) {
        g.store(va, byte(page)).expect("writable");
    }
}

fn check<A: Arch>(g: &mut Guest<A>, at: VirtAddr, len: u64) {
    for (page, va) in (0..).zip(pages(at, len)) {
        assert_eq!(g.load(va), Ok(byte(page)), "page {page} at {va}");
        g.store(va, byte(page)).expect("still writable");
    }
}

fn each(test: fn(&str, u64, bool)) {
    for kernel in ["v6.12", "v7.3"] {
        for folio_kib in [4, 64, 2048] {
            for arm in [false, true] {
                test(kernel, folio_kib, arm);
            }
        }
    }
}

fn moves<A: Arch>(kernel: &str, folio_kib: u64) {
    for shift in [0, 2 * MIB, 65536, 4096, 2 * MIB - 4096] {
        let mut g = guest::<A>(kernel, folio_kib);
        region(&mut g);
        // Some of it is in swap.
        g.mm.madvise(g.id, FROM.wrapping_add(MIB), MIB, advice::PAGEOUT).expect("taken");
        let to = TO.wrapping_add(shift);
        let rss = g.mm.mm_struct(g.id).rss;
        assert_eq!(g.mm.mremap(g.id, FROM, LEN, LEN, MOVE, to), Ok(to));
        assert_eq!(g.mm.mm_struct(g.id).rss, rss, "moving makes nothing resident or absent");
        g.assert_valid("after a move");
        assert_eq!(g.load(FROM), Err(FaultSignal::SegvMapErr));
        check(&mut g, to, LEN);
        // Reclaim finds the pages at their new place.
        g.mm.madvise(g.id, to, LEN, advice::PAGEOUT).expect("taken");
        assert_eq!(g.mm.mm_struct(g.id).rss.anon, 0);
        check(&mut g, to, LEN);
        g.mm.munmap(g.id, to, LEN).expect("a good range");
        g.assert_valid("after all");
    }
}

#[test]
fn what_is_mapped_moves_whatever_the_alignment() {
    each(|kernel, folio, arm| match arm {
        true => moves::<Arm64>(kernel, folio),
        false => moves::<X86_64>(kernel, folio),
    });
}

fn part<A: Arch>(kernel: &str, folio_kib: u64) {
    let mut g = guest::<A>(kernel, folio_kib);
    region(&mut g);
    let (page, to) = (700, TO.wrapping_add(5 * PAGE_SIZE));
    let from = FROM.wrapping_add(page * PAGE_SIZE);
    assert_eq!(g.mm.mremap(g.id, from, PAGE_SIZE, PAGE_SIZE, MOVE, to), Ok(to));
    g.assert_valid("after a move of one page");
    assert_eq!(g.load(to), Ok(byte(page)));
    assert_eq!(g.load(from), Err(FaultSignal::SegvMapErr));
    let rest = from.wrapping_add(PAGE_SIZE);
    assert_eq!(g.load(rest), Ok(byte(page + 1)));
    check(&mut g, FROM, page * PAGE_SIZE);
    // Back into the hole: one mapping again.
    assert_eq!(g.mm.mremap(g.id, to, PAGE_SIZE, PAGE_SIZE, MOVE, from), Ok(from));
    check(&mut g, FROM, LEN);
    assert_eq!(g.mm.vmas(g.id).count(), 1, "what belongs together is joined");
    g.assert_valid("after all");
}

#[test]
fn one_page_moves_out_of_a_folio_and_back() {
    each(|kernel, folio, arm| match arm {
        true => part::<Arm64>(kernel, folio),
        false => part::<X86_64>(kernel, folio),
    });
}

fn resizes<A: Arch>(kernel: &str, folio_kib: u64) {
    let mut g = guest::<A>(kernel, folio_kib);
    region(&mut g);
    let none = MremapFlags::empty();
    let (id, zero) = (g.id, VirtAddr::ZERO);
    assert_eq!(g.mm.mremap(id, FROM, LEN, LEN - PAGE_SIZE, none, zero), Ok(FROM));
    let last = FROM.wrapping_add(LEN - PAGE_SIZE);
    assert_eq!(g.load(last), Err(FaultSignal::SegvMapErr));
    assert_eq!(g.mm.mremap(id, FROM, LEN - PAGE_SIZE, LEN, none, zero), Ok(FROM));
    assert_eq!(g.load(last), Ok(0), "what it grew by is new");
    assert_eq!(g.mm.mm_struct(id).total_vm, LEN / PAGE_SIZE);
    // Something is in the way: only by moving.
    g.mmap(FROM.wrapping_add(LEN), PAGE_SIZE, VmProt::READ, MapFlags::FIXED).expect("space");
    let more = LEN + PAGE_SIZE;
    assert_eq!(g.mm.mremap(id, FROM, LEN, more, none, zero), Err(Errno::ENOMEM));
    let moved = g.mm.mremap(id, FROM, LEN, more, MremapFlags::MAYMOVE, zero).expect("room");
    assert_ne!(moved, FROM);
    check(&mut g, moved, LEN - PAGE_SIZE);
    assert_eq!(g.load(moved.wrapping_add(LEN)), Ok(0));
    g.assert_valid("after all");
}

#[test]
fn a_mapping_shrinks_and_grows_where_it_is_or_elsewhere() {
    each(|kernel, folio, arm| match arm {
        true => resizes::<Arm64>(kernel, folio),
        false => resizes::<X86_64>(kernel, folio),
    });
}

fn stays<A: Arch>(kernel: &str, folio_kib: u64) {
    let mut g = guest::<A>(kernel, folio_kib);
    region(&mut g);
    let flags = MOVE | MremapFlags::DONTUNMAP;
    assert_eq!(g.mm.mremap(g.id, FROM, LEN, LEN, flags, TO), Ok(TO));
    assert!(g.translate(FROM, Access::Read).is_none(), "nothing is left there");
    check(&mut g, TO, LEN);
    assert_eq!(g.load(FROM), Ok(0), "the old mapping is empty, not gone");
    g.store(FROM, 9).expect("writable");
    assert_eq!(g.load(TO), Ok(byte(0)));
    g.assert_valid("after all");
}

#[test]
fn dontunmap_leaves_an_empty_mapping() {
    each(|kernel, folio, arm| match arm {
        true => stays::<Arm64>(kernel, folio),
        false => stays::<X86_64>(kernel, folio),
    });
}

#[test]
fn a_child_that_shares_pages_keeps_them_where_they_were() {
    let mut g = guest::<Arm64>("v7.3", 64);
    region(&mut g);
    let (parent, child) = (g.id, g.mm.dup_mmap(g.id).expect("memory"));
    assert_eq!(g.mm.mremap(parent, FROM, LEN, LEN, MOVE, TO), Ok(TO));
    g.assert_valid("after a move");
    g.store(TO, 99).expect("writable");
    g.switch_to(child);
    check(&mut g, FROM, LEN);
    g.assert_valid("after all");
}

#[test]
fn bad_requests_are_refused() {
    let mut g = guest::<X86_64>("v7.3", 4);
    region(&mut g);
    let id = g.id;
    let (free, may) = (MremapFlags::empty(), MremapFlags::MAYMOVE);
    let keep = may | MremapFlags::DONTUNMAP;
    let unmapped = VirtAddr::new(0x1000_0000);
    let odd = FROM.wrapping_add(1);
    let page = PAGE_SIZE;
    for (addr, old, new, flags, to, error) in [
        (FROM, LEN, LEN, MremapFlags::FIXED, TO, Errno::EINVAL),
        (FROM, LEN, LEN, MremapFlags::DONTUNMAP, TO, Errno::EINVAL),
        (FROM, LEN, LEN - page, keep, TO, Errno::EINVAL),
        (odd, page, page, free, TO, Errno::EINVAL),
        (FROM, page, 0, free, TO, Errno::EINVAL),
        (FROM, 0, page, may, TO, Errno::EINVAL),
        (unmapped, page, 2 * page, may, TO, Errno::EFAULT),
        (FROM, LEN + page, LEN + 2 * page, may, TO, Errno::EFAULT),
        (FROM, LEN, LEN, MOVE, FROM.wrapping_add(page), Errno::EINVAL),
        (FROM, page, page, MOVE, TO.wrapping_add(1), Errno::EINVAL),
        (FROM, page, page, MOVE, VirtAddr::new(u64::MAX - 4095), Errno::EINVAL),
    ] {
        let got = g.mm.mremap(id, addr, old, new, flags, to);
        assert_eq!(got, Err(error), "mremap({addr}, {old}, {new}, {flags:?}, {to})");
    }
    check(&mut g, FROM, LEN);
}
