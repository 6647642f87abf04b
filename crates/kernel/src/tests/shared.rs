//! Memory that more than one can see: shared mappings, files in memory, huge pages.

use super::*;

on_both! {
    a_shared_mapping_and_the_file_are_the_same_bytes
    a_private_mapping_sees_the_file_until_it_writes
    shared_anonymous_memory_is_shared_with_a_child
    truncation_takes_pages_out_of_mappings
    a_file_without_a_name_goes_with_its_last_user
    a_file_opened_for_reading_is_shared_read_only
    memfd_checks_its_flags
    huge_pages_are_asked_for_in_sysfs
    a_huge_memfd_is_mapped_and_read_but_not_written
    pagemap_says_whose_a_page_is
    mappings_say_what_they_show
}

const ENODEV: i64 = -19;
const ENOMEM: i64 = -12;
const HUGE: u64 = 2 << 20;
const POOL: &str = "/sys/kernel/mm/hugepages/hugepages-2048kB";

mod check {
    use super::*;

    impl<A: Arch> Guest<A> {
        fn map_file(&mut self, fd: u64, len: u64, prot: u64, flags: u64) -> u64 {
            let at = self.call("mmap", &[0, len, prot, flags, fd, 0]);
            assert!(at > 0, "mmap: {at}");
            at.cast_unsigned()
        }
        fn memfd(&mut self, flags: u64) -> i64 {
            self.poke(DATA, b"it\0");
            self.call("memfd_create", &[DATA, flags])
        }
        /// Whether a load of user code works.
        fn reads(&mut self, at: u64) -> bool {
            let mut byte = [0];
            self.kernel.read_user(self.task, VirtAddr::new(at), &mut byte).is_ok()
        }
        fn assert_valid(&self) {
            let wrong = self.kernel.mm.validate();
            assert!(wrong.is_empty(), "{wrong:?}");
        }
    }

    pub(super) fn a_shared_mapping_and_the_file_are_the_same_bytes<A: Arch>() {
        let mut g = Guest::<A>::new();
        let fd = g.open("/dev/shm/x", 0o102).cast_unsigned();
        assert_eq!(g.call("ftruncate", &[fd, 0x3000]), 0);
        let one = g.map_file(fd, 0x3000, 3, 1);
        let two = g.map_file(fd, 0x3000, 3, 1);
        g.poke(one + 0x1ffe, b"abcd");
        assert_eq!(g.peek(two + 0x1ffe, 4), b"abcd");
        assert_eq!(g.call("pread64", &[fd, DATA, 4, 0x1ffe]), 4);
        assert_eq!(g.peek(DATA, 4), b"abcd");
        g.poke(DATA, b"xy");
        assert_eq!(g.call("pwrite64", &[fd, DATA, 2, 0x2000]), 2);
        assert_eq!(g.peek(one + 0x1ffe, 4), b"abxy");
        g.assert_valid();
        assert_eq!(g.call("munmap", &[one, 0x3000]), 0);
        assert_eq!(g.peek(two + 0x2000, 2), b"xy");
        g.assert_valid();
    }

    pub(super) fn a_private_mapping_sees_the_file_until_it_writes<A: Arch>() {
        let mut g = Guest::<A>::new();
        let fd = g.open("/tmp/x", 0o102).cast_unsigned();
        g.poke(DATA, b"old");
        assert_eq!(g.call("write", &[fd, DATA, 3]), 3);
        let private = g.map_file(fd, 0x1000, 3, 2);
        assert_eq!(g.peek(private, 4), b"old\0");
        g.poke(DATA, b"new");
        assert_eq!(g.call("pwrite64", &[fd, DATA, 3, 0]), 3);
        assert_eq!(g.peek(private, 3), b"new");
        g.poke(private, b"own");
        g.poke(DATA, b"end");
        assert_eq!(g.call("pwrite64", &[fd, DATA, 3, 0]), 3);
        assert_eq!(g.peek(private, 3), b"own");
        assert_eq!(g.slurp("/tmp/x"), "end");
        g.assert_valid();
    }

    pub(super) fn shared_anonymous_memory_is_shared_with_a_child<A: Arch>() {
        let mut g = Guest::<A>::new();
        let shared = g.call("mmap", &[0, 0x2000, 3, 0x21, u64::MAX, 0]).cast_unsigned();
        g.poke(shared, b"before");
        let parent = g.task;
        g.call("clone", &[17, 0, 0, 0, 0]);
        g.poke(shared + 0x1000, b"parent");
        g.task = TaskId(parent.0 + 1);
        assert_eq!(g.peek(shared, 6), b"before");
        assert_eq!(g.peek(shared + 0x1000, 6), b"parent");
        g.poke(shared, b"child!");
        g.task = parent;
        assert_eq!(g.peek(shared, 6), b"child!");
        g.assert_valid();
    }

    pub(super) fn truncation_takes_pages_out_of_mappings<A: Arch>() {
        let mut g = Guest::<A>::new();
        let fd = g.memfd(0).cast_unsigned();
        assert_eq!(g.call("ftruncate", &[fd, 0x3000]), 0);
        let at = g.map_file(fd, 0x4000, 3, 1);
        g.poke(at + 0xffe, &[7; 0x2000]);
        assert!(!g.reads(at + 0x3000), "beyond the end of the file");
        assert_eq!(g.call("ftruncate", &[fd, 0x1001]), 0);
        assert_eq!(g.peek(at + 0x1000, 2), [7, 0], "the rest of the last page is cleared");
        assert!(!g.reads(at + 0x2000));
        assert_eq!(g.call("ftruncate", &[fd, 0x3000]), 0);
        assert_eq!(g.peek(at + 0x2000, 1), [0], "what was cut off does not come back");
        g.assert_valid();
        // Nothing of an empty file that is said to be large exists.
        assert_eq!(g.call("ftruncate", &[fd, 1 << 60]), 0);
        assert_eq!(g.call("lseek", &[fd, 0, 2]), 1 << 60);
        assert_eq!(g.call("pread64", &[fd, DATA, 8, 1 << 50]), 8);
        assert_eq!(g.peek(DATA, 8), [0; 8]);
    }

    pub(super) fn a_file_without_a_name_goes_with_its_last_user<A: Arch>() {
        let mut g = Guest::<A>::new();
        let free = |g: &Guest<A>| (g.kernel.mm.meminfo().free, g.kernel.mm.meminfo().shmem);
        g.open("/tmp/warm", 0o102);
        let before = free(&g);
        let fd = g.open("/tmp/x", 0o102).cast_unsigned();
        assert_eq!(g.call("ftruncate", &[fd, 0x10_0000]), 0);
        let at = g.map_file(fd, 0x10_0000, 3, 1);
        for page in 0..256 {
            g.poke(at + page * 0x1000, &[1]);
        }
        assert_eq!(free(&g).1, before.1 + 256);
        g.poke(DATA, b"/tmp/x\0");
        assert_eq!(g.call("unlinkat", &[(-100i64).cast_unsigned(), DATA, 0]), 0);
        assert_eq!(g.call("close", &[fd]), 0);
        assert_eq!(g.peek(at, 1), [1], "the mapping holds it");
        assert!(g.slurp("/proc/self/maps").contains("/tmp/x (deleted)"));
        assert_eq!(g.call("munmap", &[at, 0x10_0000]), 0);
        assert_eq!(free(&g).1, before.1, "and nobody does any more");
        g.assert_valid();
    }

    pub(super) fn a_file_opened_for_reading_is_shared_read_only<A: Arch>() {
        let mut g = Guest::<A>::new();
        let fd = g.open("/tmp/x", 0o102).cast_unsigned();
        g.poke(DATA, b"text");
        assert_eq!(g.call("write", &[fd, DATA, 4]), 4);
        let reader = g.open("/tmp/x", 0).cast_unsigned();
        assert_eq!(g.call("mmap", &[0, 0x1000, 3, 1, reader, 0]), EACCES);
        let at = g.map_file(reader, 0x1000, 1, 1);
        assert_eq!(g.peek(at, 4), b"text");
        assert_eq!(g.call("mprotect", &[at, 0x1000, 3]), EACCES);
        let private = g.map_file(reader, 0x1000, 1, 2);
        assert_eq!(g.call("mprotect", &[private, 0x1000, 3]), 0);
        g.poke(private, b"T");
        assert_eq!(g.peek(at, 1), b"t");
        assert!(g.slurp("/proc/self/maps").contains("r--s 00000000"));
        g.assert_valid();
    }

    pub(super) fn memfd_checks_its_flags<A: Arch>() {
        let mut g = Guest::<A>::new();
        assert_eq!(g.memfd(0x20), EINVAL);
        assert_eq!(g.memfd(8 | 16), EINVAL);
        assert_eq!(g.memfd(21 << 26), EINVAL, "a page size without huge pages");
        assert_eq!(g.memfd(4 | 22 << 26), ENODEV);
        assert_eq!(g.call("memfd_create", &[0x10_0000, 0]), EFAULT);
        assert!(g.memfd(1 | 2) >= 3);
        assert!(g.memfd(4 | 21 << 26) >= 3);
    }

    pub(super) fn huge_pages_are_asked_for_in_sysfs<A: Arch>() {
        let mut g = Guest::<A>::new();
        let anonymous = |size: u64| 0x4_0022 | size << 26;
        let map = |g: &mut Guest<A>, len, flags| g.call("mmap", &[0, len, 3, flags, u64::MAX, 0]);
        assert_eq!(map(&mut g, HUGE, anonymous(21)), ENOMEM, "the pool is empty");
        assert_eq!(map(&mut g, HUGE, anonymous(22)), EINVAL, "no such size");
        assert_eq!(g.spew("/proc/sys/vm/nr_hugepages", "3"), 1);
        assert_eq!(g.spew(&format!("{POOL}/nr_overcommit_hugepages"), "x"), EINVAL);
        assert_eq!(g.slurp(&format!("{POOL}/nr_hugepages")), "3\n");
        // A length that is no multiple of the page is rounded up.
        let at = map(&mut g, HUGE + 1, anonymous(0));
        assert!(at > 0 && at % (2 << 20) == 0, "{at:x}");
        let at = at.cast_unsigned();
        g.poke(at + HUGE - 1, b"ab");
        assert_eq!(g.slurp(&format!("{POOL}/free_hugepages")), "1\n");
        assert_eq!(g.slurp(&format!("{POOL}/resv_hugepages")), "0\n");
        let meminfo = g.slurp("/proc/meminfo");
        for line in [
            "HugePages_Total:       3\n",
            "HugePages_Free:        1\n",
            "Hugetlb:            6144 kB\n",
        ] {
            assert!(meminfo.contains(line), "{meminfo}");
        }
        let smaps = g.slurp("/proc/self/smaps");
        for line in ["KernelPageSize:     2048 kB", "Private_Hugetlb:    4096 kB", " ht "] {
            assert!(smaps.contains(line), "{line}: {smaps}");
        }
        assert!(g.slurp("/proc/self/status").contains("HugetlbPages:\t    4096 kB"));
        assert_eq!(g.call("munmap", &[at, 2 * HUGE]), 0);
        g.assert_valid();
    }

    pub(super) fn a_huge_memfd_is_mapped_and_read_but_not_written<A: Arch>() {
        let mut g = Guest::<A>::new();
        assert_eq!(g.spew("/proc/sys/vm/nr_hugepages", "2"), 1);
        let fd = g.memfd(4).cast_unsigned();
        assert_eq!(g.call("ftruncate", &[fd, HUGE + 1]), EINVAL);
        assert_eq!(g.call("ftruncate", &[fd, 2 * HUGE]), 0);
        let at = g.map_file(fd, 2 * HUGE, 3, 1);
        g.poke(at + HUGE + 5, b"huge");
        assert_eq!(g.call("pread64", &[fd, DATA, 4, HUGE + 5]), 4);
        assert_eq!(g.peek(DATA, 4), b"huge");
        assert_eq!(g.call("write", &[fd, DATA, 4]), EINVAL);
        assert_eq!(g.call("ftruncate", &[fd, HUGE]), 0);
        assert!(!g.reads(at + HUGE), "cut off");
        assert_eq!(g.slurp(&format!("{POOL}/free_hugepages")), "2\n");
        assert_eq!(g.slurp(&format!("{POOL}/resv_hugepages")), "1\n", "the first page's");
        g.assert_valid();
        assert_eq!(g.call("munmap", &[at, 2 * HUGE]), 0);
        assert_eq!(g.call("close", &[fd]), 0);
        assert_eq!(g.slurp(&format!("{POOL}/resv_hugepages")), "0\n");
        g.assert_valid();
    }

    pub(super) fn pagemap_says_whose_a_page_is<A: Arch>() {
        const PRESENT: u64 = 1 << 63;
        const FILE: u64 = 1 << 61;
        const EXCLUSIVE: u64 = 1 << 56;
        let mut g = Guest::<A>::new();
        assert_eq!(g.spew("/proc/sys/vm/nr_hugepages", "1"), 1);
        let private = g.map(0x1000);
        let shared = g.call("mmap", &[0, 0x1000, 3, 0x21, u64::MAX, 0]).cast_unsigned();
        let huge = g.call("mmap", &[0, HUGE, 3, 0x4_0022, u64::MAX, 0]).cast_unsigned();
        for at in [private, shared, huge] {
            g.poke(at, &[1]);
        }
        let fd = g.open("/proc/self/pagemap", 0).cast_unsigned();
        let entry = |g: &mut Guest<A>, at: u64| {
            assert_eq!(g.call("pread64", &[fd, DATA, 8, at / 0x1000 * 8]), 8);
            g.peek_u64(DATA)
        };
        let kind = |entry: u64| entry & (PRESENT | FILE | EXCLUSIVE);
        assert_eq!(kind(entry(&mut g, private)), PRESENT | EXCLUSIVE);
        assert_eq!(kind(entry(&mut g, shared)), PRESENT | FILE | EXCLUSIVE);
        assert_eq!(kind(entry(&mut g, huge)), PRESENT | EXCLUSIVE);
        let frame = |entry: u64| entry & ((1 << 55) - 1);
        let first = frame(entry(&mut g, huge));
        assert_eq!(first % 512, 0);
        assert_eq!(frame(entry(&mut g, huge + 0x5000)), first + 5, "pages of the huge page");
        g.call("clone", &[17, 0, 0, 0, 0]);
        assert_eq!(kind(entry(&mut g, private)), PRESENT, "the child maps it too");
        assert_eq!(kind(entry(&mut g, huge)), PRESENT);
        let guard = g.map(0x1000);
        assert_eq!(kind(entry(&mut g, guard)), 0);
    }

    pub(super) fn mappings_say_what_they_show<A: Arch>() {
        let mut g = Guest::<A>::new();
        let fd = g.memfd(0).cast_unsigned();
        assert_eq!(g.call("ftruncate", &[fd, 0x1000]), 0);
        let at = g.map_file(fd, 0x1000, 3, 1);
        g.poke(at, &[1]);
        g.call("mmap", &[0, 0x1000, 3, 0x21, u64::MAX, 0]);
        let maps = g.slurp("/proc/self/maps");
        for name in ["/memfd:it (deleted)", "/dev/zero (deleted)"] {
            let line = maps.lines().find(|line| line.ends_with(name)).unwrap_or("missing");
            assert!(line.contains(" rw-s "), "{name}: {maps}");
        }
        assert!(g.slurp("/proc/self/status").contains("RssShmem:\t       4 kB"));
        assert!(g.slurp("/proc/meminfo").contains("Shmem:                 4 kB"));
    }
}
