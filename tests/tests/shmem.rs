//! Shared memory in the page tables: faults, forks, flushes, and GUP of it.

use arch::{Arch, Arm64, Hw, KernelConfig, X86_64};
use events::Event;
use mm::{Backing, Errno, FileId, Foll, MapFlags, Thp, VmProt, advice};
use ptescope_tests::guest::{Guest, Oracle, pages};
use units::{ArchId, PAGE_SIZE, PMD_SIZE, VirtAddr};

const MIB: u64 = 1 << 20;
const RW: VmProt = VmProt::READ.union(VmProt::WRITE);

fn guest<A: Arch>(kernel: &str) -> Guest<A> {
    let kernel = KernelConfig::parse(kernel).expect("a known kernel");
    let hw = match A::ID {
        ArchId::Arm64 => Hw::arm64(),
        ArchId::X86_64 => Hw::x86_64(),
    };
    let mut guest = Guest::new(kernel, Hw { cpus: 2, ..hw }, Thp::only([]), 64 * MIB, 0);
    guest.mm.pt.tlb.oracle = Oracle::On;
    guest
}

fn map<A: Arch>(guest: &mut Guest<A>, file: FileId, len: u64, flags: MapFlags) -> VirtAddr {
    let backing = Backing::File { file, offset: 0 };
    let at = guest.mm.mmap(guest.id, VirtAddr::ZERO, len, RW, flags, backing);
    at.expect("address space")
}

fn sum<A: Arch>(guest: &Guest<A>, event: Event) -> u64 {
    guest.counts().values().map(|c| c.get(event)).sum()
}

macro_rules! on_both {
    ($($name:ident $body:ident;)*) => {$(
        #[test]
        fn $name() {
            for kernel in ["v6.1", "v6.12", "v7.3"] {
                $body::<X86_64>(kernel);
                $body::<Arm64>(kernel);
            }
        }
    )*};
}

on_both! {
    a_read_fault_maps_the_cached_pages_around fault_around;
    a_shared_page_is_written_in_place write_in_place;
    a_child_finds_shared_pages_by_faults fork_leaves_shared_to_faults;
    dirty_shared_pages_are_flushed_under_the_lock flush_under_the_lock;
    a_file_that_is_written_back_is_not_pinned_for_long longterm;
    pins_of_shared_memory_stay_with_the_file pins;
    copies_of_a_file_survive_all_but_truncation cow_and_truncate;
}

fn fault_around<A: Arch>(kernel: &str) {
    const CACHED: u64 = 20;
    let mut guest = guest::<A>(kernel);
    let file = guest.mm.shmem_file_create("x", vec![3; 20 * 4096]);
    guest.mm.file_truncate(file, 40 * PAGE_SIZE).expect("room");
    let reader = map(&mut guest, file, 40 * PAGE_SIZE, MapFlags::PRIVATE);
    let start = sum(&guest, Event::FnDoFault);
    for va in pages(reader, 40 * PAGE_SIZE) {
        let index = va.bytes_since(reader) / PAGE_SIZE;
        assert_eq!(guest.load(va), Ok(if index < CACHED { 3 } else { 0 }));
    }
    // One fault for each window as far as the file was cached: a window is aligned, but begins
    // with the VMA. Then one for each page of the hole, which a fault elsewhere does not fill.
    let (mut next, mut windows) = (0, 0);
    while next < CACHED {
        let va = reader.wrapping_add(next * PAGE_SIZE);
        let window = va.align_down(16 * PAGE_SIZE).max(reader);
        next = window.bytes_since(reader) / PAGE_SIZE + 16;
        windows += 1;
    }
    assert_eq!(sum(&guest, Event::FnDoFault) - start, windows + 20);
    assert_eq!(guest.mm.mm_struct(guest.id).rss.shmem, 40);
    guest.assert_valid("mapped around");
    guest.mm.file_put(file);
}

fn write_in_place<A: Arch>(kernel: &str) {
    let mut guest = guest::<A>(kernel);
    let shared = MapFlags::SHARED | MapFlags::ANONYMOUS;
    let at = guest.mm.mmap(guest.id, VirtAddr::ZERO, MIB, RW, shared, Backing::Anonymous);
    let at = at.expect("address space");
    assert_eq!(guest.load(at), Ok(0), "read first");
    let copies = sum(&guest, Event::PageCopy);
    guest.store(at, 1).expect("writable");
    assert_eq!(sum(&guest, Event::PageCopy), copies, "no copy");
    guest.mm.mprotect(guest.id, at, MIB, VmProt::READ).expect("mapped");
    guest.mm.mprotect(guest.id, at, MIB, RW).expect("mapped");
    guest.store(at, 2).expect("writable again");
    assert_eq!(guest.load(at), Ok(2));
    assert_eq!(sum(&guest, Event::PageCopy), copies);
    guest.mm.madvise(guest.id, at, MIB, advice::DONTNEED).expect("allowed");
    assert_eq!(guest.load(at), Ok(2), "dropped from the page table, not from the file");
    guest.assert_valid("written");
    guest.mm.munmap(guest.id, at, MIB).expect("mapped");
    assert_eq!(guest.mm.meminfo().shmem, 0);
}

fn fork_leaves_shared_to_faults<A: Arch>(kernel: &str) {
    let mut guest = guest::<A>(kernel);
    let shared = MapFlags::SHARED | MapFlags::ANONYMOUS;
    let at = guest.mm.mmap(guest.id, VirtAddr::ZERO, MIB, RW, shared, Backing::Anonymous);
    let at = at.expect("address space");
    for va in pages(at, MIB) {
        guest.store(va, 5).expect("writable");
    }
    let before = sum(&guest, Event::SetPtes);
    let (parent, child) = (guest.id, guest.mm.dup_mmap(guest.id).expect("memory"));
    assert_eq!(sum(&guest, Event::SetPtes), before, "nothing is copied");
    guest.switch_to(child);
    assert_eq!(guest.load(at), Ok(5));
    guest.store(at, 6).expect("writable");
    guest.switch_to(parent);
    assert_eq!(guest.load(at), Ok(6));
    guest.mm.mmput(parent);
    guest.switch_to(child);
    assert_eq!(guest.load(at), Ok(6));
    guest.assert_valid("the parent is gone");
}

/// Whoever cleans a page next relies on it: one flush for each page table with a dirty page of a
/// file in it, before its lock is dropped.
fn flush_under_the_lock<A: Arch>(kernel: &str) {
    let mut guest = guest::<A>(kernel);
    let shared = MapFlags::SHARED | MapFlags::ANONYMOUS | MapFlags::FIXED;
    let at = VirtAddr::new(0x4000_0000);
    let len = 4 * PMD_SIZE;
    guest.mm.mmap(guest.id, at, len, RW, shared, Backing::Anonymous).expect("address space");
    guest.store(at, 1).expect("writable");
    guest.store(at.wrapping_add(2 * PMD_SIZE), 1).expect("writable");
    assert_eq!(guest.load(at.wrapping_add(3 * PMD_SIZE)), Ok(0), "there, and clean");
    let before = sum(&guest, Event::FnTlbFlushMmu);
    guest.mm.munmap(guest.id, at, len).expect("mapped");
    // Two tables with dirty pages, and the end.
    assert_eq!(sum(&guest, Event::FnTlbFlushMmu) - before, 3);
    guest.assert_valid("unmapped");
}

fn longterm<A: Arch>(kernel: &str) {
    let mut guest = guest::<A>(kernel);
    let refuses = guest.mm.pt.kernel.gup_longterm_file_refused;
    let disk = guest.mm.file_create("disk", vec![1; 8192]);
    let tmpfs = guest.mm.shmem_file_create("tmpfs", vec![1; 8192]);
    for (file, flags, refused) in [
        (disk, MapFlags::SHARED, refuses),
        (disk, MapFlags::PRIVATE, false),
        (tmpfs, MapFlags::SHARED, false),
    ] {
        let at = map(&mut guest, file, 8192, flags);
        guest.store(at, 1).expect("writable");
        let mut pages = Vec::new();
        let wanted = Foll::WRITE | Foll::LONGTERM;
        let expected = if refused { Err(Errno::EFAULT) } else { Ok(1) };
        let slow = guest.mm.pin_user_pages(guest.id, at, 1, wanted, &mut pages);
        assert_eq!(slow, expected, "{flags:?}");
        let fast = guest.mm.pin_user_pages_fast(guest.id, at, 1, wanted, &mut pages);
        assert_eq!(fast, expected, "{flags:?}");
        // Not for long, or not to write, is fine.
        for allowed in [Foll::WRITE, Foll::LONGTERM] {
            let got = guest.mm.pin_user_pages(guest.id, at, 1, allowed, &mut pages);
            assert_eq!(got, Ok(1));
        }
        guest.mm.unpin_user_pages(&pages);
        guest.assert_valid("unpinned");
    }
}

fn pins<A: Arch>(kernel: &str) {
    let mut guest = guest::<A>(kernel);
    let file = guest.mm.shmem_file_create("x", vec![0; 16 * 4096]);
    let at = map(&mut guest, file, 16 * PAGE_SIZE, MapFlags::SHARED);
    let mut pinned = Vec::new();
    let got = guest.mm.pin_user_pages(guest.id, at, 16, Foll::WRITE, &mut pinned);
    assert_eq!(got, Ok(16), "faulted in");
    // The child shares the page, pinned or not.
    let child = guest.mm.dup_mmap(guest.id).expect("memory");
    guest.store(at, 9).expect("writable");
    let parent = guest.id;
    guest.switch_to(child);
    assert_eq!(guest.load(at), Ok(9));
    guest.switch_to(parent);
    let mut again = Vec::new();
    guest.mm.get_user_pages_fast(parent, at, 16, Foll::empty(), &mut again).expect("there");
    assert_eq!(pinned, again);
    again.iter().for_each(|&page| guest.mm.put_page(page));
    guest.mm.file_truncate(file, 0).expect("a file of small pages");
    assert_eq!(guest.mm.file_cached_pages(file), 0);
    guest.assert_valid("truncated under the pins");
    let free = guest.mm.meminfo().free;
    guest.mm.unpin_user_pages(&pinned);
    assert_eq!(guest.mm.meminfo().free, free + 16, "the pins held them last");
    guest.assert_valid("unpinned");
}

fn cow_and_truncate<A: Arch>(kernel: &str) {
    let mut guest = guest::<A>(kernel);
    let file = guest.mm.shmem_file_create("x", vec![7; 3 * 4096]);
    let at = map(&mut guest, file, 3 * PAGE_SIZE, MapFlags::PRIVATE);
    guest.store(at.wrapping_add(PAGE_SIZE), 1).expect("a copy");
    guest.mm.file_write(file, 4096, &[8]).expect("memory");
    assert_eq!(guest.load(at.wrapping_add(PAGE_SIZE)), Ok(1), "its own now");
    assert_eq!(guest.load(at), Ok(7));
    guest.mm.file_truncate(file, 4096).expect("a file of small pages");
    assert_eq!(guest.load(at), Ok(7));
    assert!(guest.load(at.wrapping_add(PAGE_SIZE)).is_err(), "copies beyond the end go too");
    guest.assert_valid("truncated");
}
