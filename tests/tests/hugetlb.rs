//! Huge pages of hugetlb: pools and promises, faults, copies and changes, on both architectures
//! and in every size; each count of a fault derived by hand.

use arch::{Arch, Arm64, HugeSize, Hw, KernelConfig, X86_64};
use events::Event;
use mm::{Backing, Errno, FaultSignal, Foll, HugePool, MapFlags, MremapFlags, Thp, VmProt, advice};
use ptescope_tests::guest::{Guest, Oracle};
use units::{ArchId, PAGE_SIZE, VirtAddr};

const MIB: u64 = 1 << 20;
const RW: VmProt = VmProt::READ.union(VmProt::WRITE);
const KERNELS: [&str; 4] = ["v6.1", "v6.5", "v6.12", "v7.3"];

fn guest<A: Arch>(kernel: &str, mib: u64) -> Guest<A> {
    let kernel = KernelConfig::parse(kernel).expect("a known kernel");
    let hw = match A::ID {
        ArchId::Arm64 => Hw { cpus: 2, ..Hw::arm64() },
        ArchId::X86_64 => Hw { cpus: 2, ..Hw::x86_64() },
    };
    let mut guest = Guest::new(kernel, hw, Thp::only([]), mib * MIB, 0);
    guest.mm.pt.tlb.oracle = Oracle::On;
    guest
}

fn map<A: Arch>(
    guest: &mut Guest<A>,
    size: HugeSize,
    pages: u64,
    flags: MapFlags,
) -> Result<VirtAddr, Errno> {
    let flags = match flags.contains(MapFlags::SHARED) {
        true => flags,
        false => flags | MapFlags::PRIVATE,
    };
    let backing = Backing::HugePages(size);
    guest.mm.mmap(guest.id, VirtAddr::ZERO, pages * size.bytes(), RW, flags, backing)
}

/// Total, free, reserved and surplus pages.
fn pool<A: Arch>(guest: &Guest<A>, size: HugeSize) -> (u64, u64, u64, u64) {
    let HugePool { total, free, reserved, surplus, .. } = guest.mm.huge_pool(size).expect("a size");
    (total, free, reserved, surplus)
}

/// Runs `test` for every size of the architecture that fits into the RAM of a test.
fn each_size<A: Arch>(test: impl Fn(HugeSize)) {
    A::HUGE_SIZES.iter().copied().filter(|&size| size != HugeSize::Pud).for_each(test);
}

fn both(test: impl Fn(&str), arm64: impl Fn(&str)) {
    for kernel in KERNELS {
        test(kernel);
        arm64(kernel);
    }
}

macro_rules! on_both {
    ($(#[$doc:meta])* $name:ident, $body:ident) => {
        $(#[$doc])*
        #[test]
        fn $name() {
            both($body::<X86_64>, $body::<Arm64>);
        }
    };
}

// ---- pools

fn pool_grows_and_shrinks<A: Arch>(kernel: &str) {
    each_size::<A>(|size| {
        let mut guest = guest::<A>(kernel, 256);
        let before = guest.mm.meminfo().free;
        guest.mm.set_nr_hugepages(size, 3);
        assert_eq!(pool(&guest, size), (3, 3, 0, 0));
        assert_eq!(guest.mm.meminfo().free, before - 3 * size.order().pages());
        // Two are promised, so one can go at once; the others when they are free.
        let at = map(&mut guest, size, 2, MapFlags::empty()).expect("the pool covers it");
        guest.mm.set_nr_hugepages(size, 0);
        assert_eq!(pool(&guest, size), (2, 2, 2, 2));
        guest.store(at, 1).expect("promised");
        guest.assert_valid("one used");
        guest.mm.munmap(guest.id, at, 2 * size.bytes()).expect("mapped");
        assert_eq!(pool(&guest, size), (0, 0, 0, 0));
        assert_eq!(guest.mm.meminfo().free, before, "all of it is ordinary memory again");
        guest.assert_valid("the pool is gone");
    });
}
on_both!(a_pool_grows_and_shrinks_as_far_as_promises_allow, pool_grows_and_shrinks);

fn pool_is_limited_by_memory<A: Arch>(kernel: &str) {
    let mut guest = guest::<A>(kernel, 64);
    guest.mm.set_nr_hugepages(HugeSize::Pud, u64::MAX);
    assert_eq!(pool(&guest, HugeSize::Pud), (0, 0, 0, 0));
    guest.mm.set_nr_hugepages(HugeSize::Pmd, u64::MAX);
    let (total, free, ..) = pool(&guest, HugeSize::Pmd);
    assert!((28..32).contains(&total) && free == total, "{total} pages of 64 MiB");
    guest.assert_valid("full");
}
on_both!(a_pool_takes_what_memory_has, pool_is_limited_by_memory);

fn mmap_reserves<A: Arch>(kernel: &str) {
    each_size::<A>(|size| {
        let mut guest = guest::<A>(kernel, 256);
        assert_eq!(map(&mut guest, size, 1, MapFlags::empty()), Err(Errno::ENOMEM));
        guest.mm.set_nr_hugepages(size, 2);
        let at = map(&mut guest, size, 2, MapFlags::empty()).expect("covered");
        assert!(at.is_aligned(size.bytes()));
        assert_eq!(pool(&guest, size), (2, 2, 2, 0));
        assert_eq!(map(&mut guest, size, 1, MapFlags::SHARED), Err(Errno::ENOMEM));
        // Beyond what is promised only by luck: the free page is promised to the first mapping.
        let loose = map(&mut guest, size, 1, MapFlags::NORESERVE).expect("nothing is promised");
        assert_eq!(guest.store(loose, 1), Err(FaultSignal::Bus));
        guest.store(at, 1).expect("promised");
        assert_eq!(pool(&guest, size), (2, 1, 1, 0));
        guest.mm.munmap(guest.id, at, 2 * size.bytes()).expect("mapped");
        assert_eq!(pool(&guest, size), (2, 2, 0, 0));
        guest.store(loose, 1).expect("the pool has pages again");
        guest.assert_valid("no reserve");
    });
}
on_both!(a_mapping_reserves_its_pages_or_is_refused, mmap_reserves);

fn overcommit<A: Arch>(kernel: &str) {
    let size = HugeSize::Pmd;
    let mut guest = guest::<A>(kernel, 64);
    assert_eq!(guest.mm.set_nr_overcommit_hugepages(HugeSize::Pud, 1), Err(Errno::EINVAL));
    guest.mm.set_nr_overcommit_hugepages(size, 3).expect("a size of the page allocator");
    assert_eq!(map(&mut guest, size, 4, MapFlags::empty()), Err(Errno::ENOMEM));
    assert_eq!(pool(&guest, size), (0, 0, 0, 0), "nothing is left of the attempt");
    let at = map(&mut guest, size, 2, MapFlags::empty()).expect("surplus pages");
    assert_eq!(pool(&guest, size), (2, 2, 2, 2));
    let loose = map(&mut guest, size, 2, MapFlags::NORESERVE).expect("nothing is promised");
    guest.store(loose, 1).expect("the third surplus page");
    assert_eq!(guest.store(loose.wrapping_add(size.bytes()), 1), Err(FaultSignal::Bus));
    guest.store(at, 1).expect("promised");
    guest.assert_valid("surplus");
    for (va, pages) in [(at, 2), (loose, 2)] {
        guest.mm.munmap(guest.id, va, pages * size.bytes()).expect("mapped");
    }
    assert_eq!(pool(&guest, size), (0, 0, 0, 0), "surplus pages do not stay");
    guest.assert_valid("no surplus");
}
on_both!(overcommit_takes_pages_beyond_the_pool, overcommit);

// ---- contents

fn zeroes_every_time<A: Arch>(kernel: &str) {
    each_size::<A>(|size| {
        let mut guest = guest::<A>(kernel, 256);
        guest.mm.set_nr_hugepages(size, 1);
        for round in 0..3 {
            let at = map(&mut guest, size, 1, MapFlags::empty()).expect("covered");
            for offset in [0, 5000, size.bytes() - 1] {
                assert_eq!(guest.load(at.wrapping_add(offset)), Ok(0), "round {round}");
                guest.store(at.wrapping_add(offset), 7).expect("writable");
                assert_eq!(guest.load(at.wrapping_add(offset)), Ok(7));
            }
            if round == 1 {
                let all = size.bytes();
                guest.mm.madvise(guest.id, at, all, advice::DONTNEED).expect("allowed");
                assert_eq!(guest.load(at), Ok(0), "what was dropped comes back as zeroes");
            }
            guest.assert_valid("used");
            guest.mm.munmap(guest.id, at, size.bytes()).expect("mapped");
        }
        assert_eq!(pool(&guest, size), (1, 1, 0, 0));
    });
}
on_both!(a_page_of_the_pool_starts_as_zeroes, zeroes_every_time);

fn shared_by_fork<A: Arch>(kernel: &str) {
    each_size::<A>(|size| {
        let mut guest = guest::<A>(kernel, 256);
        guest.mm.set_nr_hugepages(size, 2);
        let at = map(&mut guest, size, 2, MapFlags::SHARED).expect("covered");
        guest.store(at, 1).expect("promised");
        let (parent, child) = (guest.id, guest.mm.dup_mmap(guest.id).expect("memory"));
        guest.switch_to(child);
        assert_eq!(guest.load(at), Ok(1));
        let second = at.wrapping_add(size.bytes());
        guest.store(second, 2).expect("promised to the file");
        guest.switch_to(parent);
        assert_eq!(guest.load(second), Ok(2), "one file");
        assert_eq!(pool(&guest, size), (2, 0, 0, 0));
        guest.assert_valid("shared");
        guest.mm.mmput(child);
        assert_eq!(pool(&guest, size), (2, 0, 0, 0), "the file is still mapped");
        guest.mm.munmap(parent, at, 2 * size.bytes()).expect("mapped");
        assert_eq!(pool(&guest, size), (2, 2, 0, 0), "the file is gone, and its pages with it");
        guest.assert_valid("unmapped");
    });
}
on_both!(shared_huge_pages_stay_shared_across_fork, shared_by_fork);

fn cow<A: Arch>(kernel: &str) {
    each_size::<A>(|size| {
        let mut guest = guest::<A>(kernel, 256);
        guest.mm.set_nr_hugepages(size, 2);
        let at = map(&mut guest, size, 1, MapFlags::empty()).expect("covered");
        guest.store(at, 1).expect("promised");
        let (parent, child) = (guest.id, guest.mm.dup_mmap(guest.id).expect("memory"));
        guest.assert_valid("forked");
        guest.switch_to(child);
        guest.store(at, 2).expect("a page that nobody was promised");
        assert_eq!(pool(&guest, size), (2, 0, 0, 0));
        guest.switch_to(parent);
        assert_eq!(guest.load(at), Ok(1));
        // The last one to map a page writes it without a copy.
        guest.store(at, 3).expect("its own");
        guest.switch_to(child);
        assert_eq!(guest.load(at), Ok(2));
        guest.assert_valid("copied");
        guest.mm.mmput(child);
        guest.switch_to(parent);
        assert_eq!(pool(&guest, size), (2, 1, 0, 0));
    });
}
on_both!(a_child_copies_what_it_writes, cow);

fn owner_takes_the_page<A: Arch>(kernel: &str) {
    each_size::<A>(|size| {
        let mut guest = guest::<A>(kernel, 256);
        guest.mm.set_nr_hugepages(size, 1);
        let at = map(&mut guest, size, 1, MapFlags::empty()).expect("covered");
        guest.store(at, 1).expect("promised");
        let (parent, child) = (guest.id, guest.mm.dup_mmap(guest.id).expect("memory"));
        guest.switch_to(child);
        assert_eq!(guest.store(at, 2), Err(FaultSignal::Bus), "no page for a copy");
        assert_eq!(guest.load(at), Ok(1));
        guest.switch_to(parent);
        guest.store(at, 3).expect("the owner was promised the page");
        guest.assert_valid("taken away");
        guest.switch_to(child);
        assert_eq!(guest.load(at), Err(FaultSignal::Bus), "what the child saw is gone");
        guest.switch_to(parent);
        assert_eq!(guest.load(at), Ok(3));
    });
}
on_both!(the_owner_of_a_mapping_never_fails_for_its_childs_sake, owner_takes_the_page);

// ---- changes of the mapping

fn cut_at_page_boundaries_only<A: Arch>(kernel: &str) {
    each_size::<A>(|size| {
        let mut guest = guest::<A>(kernel, 256);
        guest.mm.set_nr_hugepages(size, 3);
        let at = map(&mut guest, size, 3, MapFlags::empty()).expect("covered");
        for page in 0..3 {
            guest.store(at.wrapping_add(page * size.bytes()), 1).expect("promised");
        }
        let (id, bytes) = (guest.id, size.bytes());
        let inside = at.wrapping_add(PAGE_SIZE);
        assert_eq!(guest.mm.munmap(id, inside, bytes), Err(Errno::EINVAL));
        assert_eq!(guest.mm.munmap(id, at, PAGE_SIZE), Err(Errno::EINVAL));
        assert_eq!(guest.mm.mprotect(id, at, PAGE_SIZE, VmProt::READ), Err(Errno::EINVAL));
        let dontneed = advice::DONTNEED;
        assert_eq!(guest.mm.madvise(id, inside, bytes, dontneed), Err(Errno::EINVAL));
        assert_eq!(guest.mm.madvise(id, at, PAGE_SIZE, dontneed), Ok(()), "rounded to nothing");
        assert_eq!(guest.load(at), Ok(1));
        for advice in [advice::COLD, advice::PAGEOUT, advice::FREE] {
            assert_eq!(guest.mm.madvise(id, at, bytes, advice), Err(Errno::EINVAL));
        }
        let over = MapFlags::FIXED | MapFlags::PRIVATE | MapFlags::ANONYMOUS;
        let cut = guest.mm.mmap(id, inside, PAGE_SIZE, RW, over, Backing::Anonymous);
        assert_eq!(cut, Err(Errno::EINVAL));
        guest.mm.munmap(id, at.wrapping_add(bytes), bytes).expect("a whole page");
        assert_eq!(pool(&guest, size), (3, 1, 0, 0));
        guest.assert_valid("a hole of one page");
        assert_eq!(guest.load(at.wrapping_add(2 * bytes)), Ok(1));
    });
}
on_both!(a_mapping_is_cut_between_huge_pages_only, cut_at_page_boundaries_only);

fn protection<A: Arch>(kernel: &str) {
    each_size::<A>(|size| {
        let mut guest = guest::<A>(kernel, 256);
        guest.mm.set_nr_hugepages(size, 2);
        let at = map(&mut guest, size, 2, MapFlags::empty()).expect("covered");
        guest.store(at, 1).expect("promised");
        let (id, bytes) = (guest.id, size.bytes());
        guest.mm.mprotect(id, at, bytes, VmProt::READ).expect("whole pages");
        assert_eq!(guest.store(at, 2), Err(FaultSignal::SegvAccErr));
        assert_eq!(guest.load(at), Ok(1));
        guest.mm.mprotect(id, at, bytes, VmProt::empty()).expect("whole pages");
        assert_eq!(guest.load(at), Err(FaultSignal::SegvAccErr));
        guest.assert_valid("PROT_NONE");
        guest.mm.mprotect(id, at, bytes, RW).expect("whole pages");
        guest.store(at, 3).expect("writable again");
        assert_eq!(guest.load(at), Ok(3));
        guest.assert_valid("changed");
    });
}
on_both!(protection_changes_for_whole_pages, protection);

fn moves<A: Arch>(kernel: &str) {
    each_size::<A>(|size| {
        let mut guest = guest::<A>(kernel, 256);
        guest.mm.set_nr_hugepages(size, 3);
        let at = map(&mut guest, size, 3, MapFlags::empty()).expect("covered");
        guest.store(at, 1).expect("promised");
        let (id, bytes) = (guest.id, size.bytes());
        let (may, fixed) = (MremapFlags::MAYMOVE, MremapFlags::MAYMOVE | MremapFlags::FIXED);
        let zero = VirtAddr::ZERO;
        let grow = guest.mm.mremap(id, at, bytes, 2 * bytes, may, zero);
        assert_eq!(grow, Err(Errno::EINVAL), "reservations cannot grow");
        let keep = may | MremapFlags::DONTUNMAP;
        assert_eq!(guest.mm.mremap(id, at, bytes, bytes, keep, zero), Err(Errno::EINVAL));
        let to = VirtAddr::new(0x2000_0000_0000);
        let crooked = guest.mm.mremap(id, at, bytes, bytes, fixed, to.wrapping_add(PAGE_SIZE));
        assert_eq!(crooked, Err(Errno::EINVAL));
        assert_eq!(guest.mm.mremap(id, at, 2 * bytes, 2 * bytes, fixed, to), Ok(to));
        assert_eq!(guest.load(to), Ok(1));
        assert_eq!(guest.load(at), Err(FaultSignal::SegvMapErr));
        guest.assert_valid("moved");
        assert_eq!(pool(&guest, size), (3, 2, 2, 0), "promises moved along");
        guest.store(to.wrapping_add(bytes), 2).expect("promised");
        guest.store(at.wrapping_add(2 * bytes), 2).expect("promised to what stayed");
        guest.mm.munmap(id, to, 2 * bytes).expect("mapped");
        guest.mm.munmap(id, at.wrapping_add(2 * bytes), bytes).expect("mapped");
        assert_eq!(pool(&guest, size), (3, 3, 0, 0));
        guest.assert_valid("unmapped");
    });
}
on_both!(promises_move_with_their_mapping, moves);

fn dontneed_keeps_the_promise<A: Arch>(kernel: &str) {
    each_size::<A>(|size| {
        let mut guest = guest::<A>(kernel, 256);
        guest.mm.set_nr_hugepages(size, 1);
        let at = map(&mut guest, size, 1, MapFlags::empty()).expect("covered");
        guest.store(at, 1).expect("promised");
        guest.mm.madvise(guest.id, at, size.bytes(), advice::DONTNEED).expect("allowed");
        let restores = guest.mm.pt.kernel.hugetlb_restore_reserve;
        assert_eq!(pool(&guest, size), (1, 1, u64::from(restores), 0));
        guest.assert_valid("dropped");
        let thief = map(&mut guest, size, 1, MapFlags::NORESERVE).expect("nothing is promised");
        // Since 6.9 nobody can take the page in between.
        assert_eq!(guest.store(thief, 1).is_err(), restores);
        assert_eq!(guest.store(at, 2).is_ok(), restores);
        guest.assert_valid("used again");
    });
}
on_both!(a_dropped_page_stays_promised_since_6_9, dontneed_keeps_the_promise);

fn pinned_page_outlives_its_mapping<A: Arch>(kernel: &str) {
    each_size::<A>(|size| {
        let mut guest = guest::<A>(kernel, 256);
        guest.mm.set_nr_hugepages(size, 2);
        let at = map(&mut guest, size, 1, MapFlags::empty()).expect("covered");
        let mut pages = Vec::new();
        let nr = size.order().pages();
        let got = guest.mm.pin_user_pages(guest.id, at, nr, Foll::WRITE, &mut pages);
        assert_eq!(got, Ok(nr));
        // A child of a process with pinned pages gets copies at once.
        let child = guest.mm.dup_mmap(guest.id).expect("a page for the copy");
        assert_eq!(pool(&guest, size), (2, 0, 0, 0));
        guest.assert_valid("pinned");
        guest.mm.mmput(child);
        guest.mm.munmap(guest.id, at, size.bytes()).expect("mapped");
        assert_eq!(pool(&guest, size).1, 1, "the pinned page is not free");
        guest.mm.unpin_user_pages(&pages);
        assert_eq!(pool(&guest, size), (2, 2, 0, 0));
        guest.assert_valid("unpinned");
    });
}
on_both!(a_pinned_huge_page_outlives_its_mapping, pinned_page_outlives_its_mapping);

// ---- counts

/// Counts of one store, by event.
fn counts_of_store<A: Arch>(guest: &mut Guest<A>, at: VirtAddr) -> impl Fn(Event) -> u64 + use<A> {
    let sum = |guest: &Guest<A>, e: Event| guest.counts().values().map(|c| c.get(e)).sum::<u64>();
    let before: Vec<u64> = Event::ALL.iter().map(|&e| sum(guest, e)).collect();
    guest.store(at, 1).expect("writable");
    let after: Vec<u64> = Event::ALL.iter().map(|&e| sum(guest, e)).collect();
    move |event| {
        let i = Event::ALL.iter().position(|&e| e == event).expect("an event");
        after[i] - before[i]
    }
}

/// The first write: looks at the entry to see it is empty; again under the lock; `hugetlb_wp()`
/// looks at what was just stored, and once more before it makes that writable.
#[test]
fn a_first_write_looks_four_times() {
    for kernel in KERNELS {
        let mut x86 = guest::<X86_64>(kernel, 64);
        x86.mm.set_nr_hugepages(HugeSize::Pmd, 1);
        let at = map(&mut x86, HugeSize::Pmd, 1, MapFlags::empty()).expect("covered");
        let count = counts_of_store(&mut x86, at);
        assert_eq!((count(Event::PtepGet), count(Event::PteRead)), (4, 4));
        // The entry, read-only, and the same writable.
        assert_eq!((count(Event::SetPtes), count(Event::PteWrite)), (1, 2));
        assert_eq!((count(Event::PtlLock), count(Event::PageZero)), (1, 512));
        assert_eq!((count(Event::FnHugetlbFault), count(Event::FnHugetlbWp)), (1, 1));
        assert_eq!(count(Event::Invlpg) + count(Event::Cr3Reload), 0, "rights are only added");
    }
}

#[test]
fn a_first_write_on_arm64_raises_the_block_in_place() {
    for kernel in KERNELS {
        let mut guest = guest::<Arm64>(kernel, 64);
        guest.mm.set_nr_hugepages(HugeSize::Pmd, 1);
        let at = map(&mut guest, HugeSize::Pmd, 1, MapFlags::empty()).expect("covered");
        let count = counts_of_store(&mut guest, at);
        // Four looks, and that of the raise.
        assert_eq!((count(Event::PteRead), count(Event::PteWrite)), (5, 1));
        assert_eq!((count(Event::PteCmpxchg), count(Event::PteXchg)), (1, 0));
        // The contpte layer gave the raw accessors to hugetlb.
        let api = if guest.mm.pt.kernel.contpte { 0 } else { 4 };
        assert_eq!(count(Event::PtepGet), api);
    }
}

/// A contiguous set of 16 is broken up for each change: the store of the fresh entry (until 6.14
/// even though nothing was there), and its raise to writable.
#[test]
fn a_first_write_to_a_contiguous_set_breaks_it() {
    for size in [HugeSize::ContPte, HugeSize::ContPmd] {
        for kernel in KERNELS {
            let mut guest = guest::<Arm64>(kernel, 128);
            guest.mm.set_nr_hugepages(size, 1);
            let at = map(&mut guest, size, 1, MapFlags::empty()).expect("covered");
            let count = counts_of_store(&mut guest, at);
            let hints = guest.mm.pt.kernel.hugetlb_tlb_hints;
            // Two looks at nothing; 7.3 looks whether the set was valid before the store; two
            // gathering looks at 1 + 16; the raise sees at once that write permission differs.
            let looks = 2 + u64::from(hints) + 2 * 17 + 1;
            let breaks = if hints { 1 } else { 2 };
            assert_eq!(count(Event::PteRead), looks, "{size:?} {kernel}");
            assert_eq!((count(Event::PteWrite), count(Event::PteXchg)), (32, 16 * breaks));
            assert_eq!((count(Event::DsbIshst), count(Event::DsbIsh)), (breaks, breaks));
            let leaf = count(Event::TlbiRvale1is);
            let walk = count(Event::TlbiRvae1is);
            assert_eq!((leaf, walk), if hints { (1, 0) } else { (0, 2) });
        }
    }
}

/// munmap: one look, one exchange for each entry, and one flush for the whole mapping.
#[test]
fn unmapping_exchanges_each_entry() {
    for kernel in ["v6.12", "v7.3"] {
        for &size in &HugeSize::ALL[..3] {
            let mut guest = guest::<Arm64>(kernel, 256);
            guest.mm.set_nr_hugepages(size, 3);
            let at = map(&mut guest, size, 3, MapFlags::empty()).expect("covered");
            for page in 0..3 {
                guest.store(at.wrapping_add(page * size.bytes()), 1).expect("promised");
            }
            let sum = |guest: &Guest<Arm64>, event: Event| -> u64 {
                guest.counts().values().map(|c| c.get(event)).sum()
            };
            let before = (sum(&guest, Event::PteXchg), sum(&guest, Event::PteRead));
            guest.mm.munmap(guest.id, at, 3 * size.bytes()).expect("mapped");
            let xchg = sum(&guest, Event::PteXchg) - before.0;
            let reads = sum(&guest, Event::PteRead) - before.1;
            let look = if size.entries() == 1 { 1 } else { 1 + 16 };
            assert_eq!((xchg, reads), (3 * size.entries(), 3 * look), "{size:?}");
        }
    }
}

#[test]
fn a_gigantic_page_is_one_pud_leaf() {
    let mut guest = guest::<X86_64>("v7.3", 2200);
    guest.mm.set_nr_hugepages(HugeSize::Pud, 1);
    assert_eq!(pool(&guest, HugeSize::Pud), (1, 1, 0, 0));
    let at = map(&mut guest, HugeSize::Pud, 1, MapFlags::empty()).expect("covered");
    for offset in [0, 3 * MIB + 17, (1 << 30) - 1] {
        guest.store(at.wrapping_add(offset), 9).expect("promised");
        assert_eq!(guest.load(at.wrapping_add(offset)), Ok(9));
    }
    let mut bytes = [0; 2];
    let far = at.wrapping_add(3 * MIB + 16);
    guest.mm.copy_from_user(guest.id, far, &mut bytes).expect("mapped");
    assert_eq!(bytes, [0, 9], "the kernel reads through the same leaf");
    assert_eq!(guest.mm.mm_struct(guest.id).hugetlb_usage, 1 << 18);
    guest.assert_valid("a PUD leaf");
    let mut pages = Vec::new();
    let got = guest.mm.pin_user_pages_fast(guest.id, far, 1000, Foll::WRITE, &mut pages);
    assert_eq!(got, Ok(1000));
    assert_eq!(pages[999].frames_since(pages[0]), 999);
    guest.mm.unpin_user_pages(&pages);
    guest.mm.munmap(guest.id, at, 1 << 30).expect("mapped");
    guest.mm.set_nr_hugepages(HugeSize::Pud, 0);
    // Free memory in pieces of 4 MiB can become a gigantic page again.
    guest.mm.set_nr_hugepages(HugeSize::Pud, 1);
    assert_eq!(pool(&guest, HugeSize::Pud), (1, 1, 0, 0));
    guest.assert_valid("again");
}
