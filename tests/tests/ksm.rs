//! What merged pages do in the rest of mm: forks, pins, swap, moves, zero pages, limits.

use arch::{Arch, Arm64, Hw, KernelConfig, X86_64};
use mm::{Foll, KsmRun, MapFlags, MremapFlags, Switch, Thp, VmProt, advice};
use ptescope_tests::guest::{Guest, Oracle, pages};
use ptescope_tests::ksm::scan;
use units::{ArchId, PAGE_SIZE, VirtAddr};

const AT: VirtAddr = VirtAddr::new(0x4000_0000);
const RW: VmProt = VmProt::READ.union(VmProt::WRITE);

fn on<A: Arch>(kernel: &str) -> Guest<A> {
    let kernel = KernelConfig::parse(kernel).expect("a known kernel");
    let hw = match A::ID {
        ArchId::Arm64 => Hw::arm64(),
        ArchId::X86_64 => Hw::x86_64(),
    };
    let hw = Hw { cpus: 2, ..hw };
    let mut guest = Guest::new(kernel, hw, Thp::only([]), 16 << 20, 16 << 20);
    guest.mm.pt.tlb.oracle = Oracle::On;
    guest
}

/// `n` pages at `at`, each filled with what `byte` says, and mergeable.
fn mergeable<A: Arch>(guest: &mut Guest<A>, at: VirtAddr, n: u64, byte: impl Fn(u64) -> u8) {
    guest.mmap(at, n * PAGE_SIZE, RW, MapFlags::FIXED).expect("address space");
    for (i, va) in (0..).zip(pages(at, n * PAGE_SIZE)) {
        guest.memset(va, PAGE_SIZE, byte(i));
    }
    guest.mm.madvise(guest.id, at, n * PAGE_SIZE, advice::MERGEABLE).expect("advice is taken");
}

fn shared<A: Arch>(guest: &Guest<A>) -> (u64, u64) {
    let stats = guest.mm.ksm.stats();
    (stats.pages_shared, stats.pages_sharing)
}

fn page(i: u64) -> VirtAddr {
    AT.wrapping_add(i * PAGE_SIZE)
}

fn for_both(kernels: &[&str], body: impl Fn(&str)) {
    kernels.iter().for_each(|kernel| body(kernel));
}

#[test]
fn pages_merge_by_contents_and_writes_take_them_apart() {
    fn check<A: Arch>(kernel: &str) {
        let mut guest = on::<A>(kernel);
        mergeable(&mut guest, AT, 30, |i| (i % 3) as u8 + 1);
        scan(&mut guest, 2);
        assert_eq!(shared(&guest), (3, 27));
        let ksm = guest.mm.mm_struct(guest.id).ksm;
        assert_eq!((ksm.rmap_items, ksm.merging_pages), (30, 30));
        let free = guest.mm.meminfo().free;
        guest.store(page(4), 9).expect("writable");
        assert_eq!(guest.mm.meminfo().free, free - 1);
        assert_eq!((guest.load(page(4)), guest.load(page(7))), (Ok(9), Ok(2)));
        assert_eq!(guest.mm.vmstat.cow_ksm, 1);
        scan(&mut guest, 1);
        assert_eq!(shared(&guest), (3, 26));
    }
    for_both(&["v6.1", "v6.12", "v7.3"], |kernel| {
        check::<Arm64>(kernel);
        check::<X86_64>(kernel);
    });
}

#[test]
fn a_page_that_changes_between_scans_is_left_alone() {
    let mut guest = on::<X86_64>("v7.3");
    mergeable(&mut guest, AT, 2, |_| 7);
    scan(&mut guest, 1);
    guest.store(page(0), 8).expect("writable");
    guest.store(page(1), 8).expect("writable");
    scan(&mut guest, 1);
    assert_eq!(shared(&guest), (0, 0));
    scan(&mut guest, 1);
    assert_eq!(shared(&guest), (1, 1));
}

#[test]
fn a_full_page_gets_a_duplicate_and_chains_are_dissolved() {
    let mut guest = on::<Arm64>("v7.3");
    guest.mm.ksm.set_max_page_sharing(4).expect("nothing is merged yet");
    mergeable(&mut guest, AT, 10, |_| 7);
    scan(&mut guest, 3);
    // 4 + 4 + 2 pages, in one chain of three.
    let stats = guest.mm.ksm.stats();
    assert_eq!((stats.pages_shared, stats.pages_sharing), (3, 7));
    assert_eq!((stats.stable_node_chains, stats.stable_node_dups), (1, 3));
    assert_eq!(guest.mm.ksm.set_max_page_sharing(5), Err(mm::Errno::EBUSY));
    guest.mm.ksm_set_run(KsmRun::Unmerge).expect("room for copies");
    guest.assert_valid("everything is unmerged");
    let stats = guest.mm.ksm.stats();
    assert_eq!((stats.pages_shared, stats.pages_sharing, stats.rmap_items), (0, 0, 0));
    assert_eq!((stats.stable_node_chains, stats.stable_node_dups), (0, 0));
}

#[test]
fn empty_pages_become_the_zero_page_and_come_apart_again() {
    fn check<A: Arch>(kernel: &str) {
        let mut guest = on::<A>(kernel);
        guest.mm.ksm.knobs.use_zero_pages = Switch::On;
        mergeable(&mut guest, AT, 8, |_| 0);
        let rss = guest.mm.mm_struct(guest.id).rss.anon;
        scan(&mut guest, 2);
        assert_eq!(guest.mm.ksm.stats().zero_pages, 8);
        assert_eq!(guest.mm.mm_struct(guest.id).rss.anon, rss - 8);
        guest.store(page(3), 1).expect("writable");
        assert_eq!(guest.mm.mm_struct(guest.id).ksm.zero_pages, 7);
        let child = guest.mm.dup_mmap(guest.id).expect("memory");
        assert_eq!(guest.mm.ksm.stats().zero_pages, 14);
        guest.mm.mmput(child);
        assert_eq!(guest.mm.ksm.stats().zero_pages, 7);
        let len = 8 * PAGE_SIZE;
        guest.mm.madvise(guest.id, AT, len, advice::UNMERGEABLE).expect("room for copies");
        guest.assert_valid("unmerged");
        assert_eq!(guest.mm.ksm.stats().zero_pages, 0);
        assert_eq!(guest.mm.mm_struct(guest.id).rss.anon, rss);
        assert_eq!((guest.load(page(3)), guest.load(page(4))), (Ok(1), Ok(0)));
    }
    for_both(&["v6.12", "v7.3"], |kernel| {
        check::<Arm64>(kernel);
        check::<X86_64>(kernel);
    });
}

#[test]
fn a_pinned_page_is_not_merged_and_a_pin_gets_a_page_of_its_own() {
    let mut guest = on::<Arm64>("v7.3");
    mergeable(&mut guest, AT, 3, |_| 7);
    let (mut pinned, mut second) = (Vec::new(), Vec::new());
    let flags = Foll::WRITE | Foll::LONGTERM;
    guest.mm.pin_user_pages(guest.id, page(2), 1, flags, &mut pinned).expect("a page");
    scan(&mut guest, 2);
    assert_eq!(shared(&guest), (1, 1), "the two that nobody holds");
    guest.mm.pin_user_pages(guest.id, page(1), 1, Foll::empty(), &mut second).expect("a page");
    assert!(guest.mm.page_anon_exclusive(second[0]), "a read-only pin unshares");
    assert_eq!(guest.mm.vmstat.cow_ksm, 1);
    guest.mm.unpin_user_pages(&pinned);
    guest.mm.unpin_user_pages(&second);
    guest.assert_valid("unpinned");
}

#[test]
fn a_merge_whose_second_page_is_pinned_is_undone() {
    let mut guest = on::<X86_64>("v7.3");
    mergeable(&mut guest, AT, 2, |_| 7);
    let mut pinned = Vec::new();
    guest.mm.pin_user_pages(guest.id, page(0), 1, Foll::WRITE, &mut pinned).expect("a page");
    scan(&mut guest, 2);
    // The second page became a merged one, but the first in the unstable tree could not join.
    assert_eq!((shared(&guest), guest.mm.vmstat.cow_ksm), ((0, 0), 1));
    guest.mm.unpin_user_pages(&pinned);
    scan(&mut guest, 2);
    assert_eq!(shared(&guest), (1, 1));
}

#[test]
fn a_child_shares_the_merged_pages_of_its_parent() {
    let mut guest = on::<X86_64>("v7.3");
    mergeable(&mut guest, AT, 4, |_| 7);
    scan(&mut guest, 2);
    let parent = guest.id;
    let child = guest.mm.dup_mmap(parent).expect("memory");
    scan(&mut guest, 1);
    guest.assert_valid("the child was scanned");
    assert_eq!(shared(&guest), (1, 7), "the child's addresses were appended");
    guest.switch_to(child);
    guest.store(page(0), 1).expect("writable");
    guest.switch_to(parent);
    assert_eq!(guest.load(page(0)), Ok(7));
    guest.mm.mmput(child);
    scan(&mut guest, 1);
    assert_eq!(shared(&guest), (1, 3), "ksmd has forgotten the child");
}

#[test]
fn a_merged_page_is_swapped_out_and_comes_back_as_copies() {
    for kernel in ["v6.12", "v7.3"] {
        let mut guest = on::<Arm64>(kernel);
        mergeable(&mut guest, AT, 4, |_| 7);
        scan(&mut guest, 2);
        // Enough to push the merged page out; it is found by all four addresses.
        let big = VirtAddr::new(0x8000_0000);
        guest.mmap(big, 24 << 20, RW, MapFlags::FIXED).expect("address space");
        guest.memset(big, 24 << 20, 1);
        guest.assert_valid("memory was short");
        let swapped = guest.mm.mm_struct(guest.id).rss.swapents;
        for i in 0..4 {
            assert_eq!(guest.load(page(i)), Ok(7), "{kernel}: page {i} of {swapped} swapped");
        }
        guest.assert_valid("read again");
        assert!(guest.mm.vmstat.ksm_swpin_copy > 0, "{kernel}: other addresses need copies");
    }
}

#[test]
fn a_moved_mapping_leaves_its_merged_pages_behind() {
    let mut guest = on::<Arm64>("v7.3");
    mergeable(&mut guest, AT, 4, |_| 7);
    scan(&mut guest, 2);
    let to = VirtAddr::new(0x9000_0000);
    let flags = MremapFlags::MAYMOVE | MremapFlags::FIXED;
    let len = 4 * PAGE_SIZE;
    guest.mm.mremap(guest.id, AT, len, len, flags, to).expect("room");
    guest.assert_valid("moved");
    assert_eq!(guest.mm.vmstat.cow_ksm, 4);
    assert_eq!(guest.load(to), Ok(7));
    // The VMA is mergeable still, so its pages merge again where they are now.
    scan(&mut guest, 3);
    assert_eq!(shared(&guest), (1, 3));
}

#[test]
fn a_process_can_have_everything_merged() {
    let mut guest = on::<X86_64>("v7.3");
    guest.mm.ksm_enable_merge_any(guest.id);
    guest.mmap(AT, 4 * PAGE_SIZE, RW, MapFlags::FIXED).expect("address space");
    guest.memset(AT, 4 * PAGE_SIZE, 7);
    scan(&mut guest, 2);
    assert_eq!(shared(&guest), (1, 3));
    let child = guest.mm.dup_mmap(guest.id).expect("memory");
    assert!(guest.mm.mm_struct(child).ksm.merge_any, "a child inherits it");
    guest.mm.mmput(child);
    guest.mm.ksm_disable_merge_any(guest.id).expect("room for copies");
    guest.assert_valid("unmerged");
    assert_eq!(guest.mm.vmstat.cow_ksm, 4);
    assert!(!guest.mm.mm_struct(guest.id).ksm.merge_any);
}

#[test]
fn smart_scan_skips_pages_that_never_merge() {
    let mut guest = on::<Arm64>("v7.3");
    mergeable(&mut guest, AT, 8, |i| u8::try_from(i).expect("few pages") + 1);
    // Ages 0 to 3 are looked at (the fourth look allows one skip), then one round is skipped, …
    scan(&mut guest, 4);
    assert_eq!(guest.mm.ksm.stats().pages_skipped, 0);
    scan(&mut guest, 1);
    assert_eq!(guest.mm.ksm.stats().pages_skipped, 8);
    // … age 5 allows two.
    scan(&mut guest, 3);
    assert_eq!(guest.mm.ksm.stats().pages_skipped, 8 + 16);
    assert_eq!(guest.mm.ksm.stats().pages_unshared, 0);
    guest.mm.ksm.knobs.smart_scan = Switch::Off;
    scan(&mut guest, 1);
    assert_eq!(guest.mm.ksm.stats().pages_unshared, 8);
}

#[test]
fn advice_that_does_not_apply_is_ignored() {
    let mut guest = on::<Arm64>("v7.3");
    let flags = MapFlags::SHARED | MapFlags::ANONYMOUS | MapFlags::FIXED;
    let backing = mm::Backing::Anonymous;
    guest.mm.mmap(guest.id, AT, PAGE_SIZE, RW, flags, backing).expect("address space");
    assert_eq!(guest.mm.madvise(guest.id, AT, PAGE_SIZE, advice::MERGEABLE), Ok(()));
    assert_eq!(guest.mm.madvise(guest.id, AT, PAGE_SIZE, advice::UNMERGEABLE), Ok(()));
    assert!(!guest.mm.ksm.should_run());
}
