//! System calls about memory beyond mapping it: locking, sealing, splicing, pinning, collapsing.

use super::*;

on_both! {
    locked_memory_stays_within_its_limit
    sealed_memory_cannot_change
    memory_that_was_writable_never_becomes_executable
    a_page_in_a_pipe_is_the_page_of_that_moment
    a_registered_buffer_is_written_from_its_pages
    a_debugger_writes_where_the_program_may_not
    written_pages_are_noticed_again
    small_pages_are_collapsed_into_a_huge_one
    a_socket_of_a_pair_reads_what_the_other_wrote
    a_timer_sends_its_signal_and_tells_what_is_left
    a_dying_process_gives_its_memory_early
    one_node_holds_all_memory
}

const PAGE: u64 = 4096;
const ENOMEM: i64 = -12;
const ESRCH: i64 = -3;
const ENODEV: i64 = -19;
const EIO: i64 = -5;
const ENXIO: i64 = -6;

mod check {
    use super::*;

    fn status<A: Arch>(g: &mut Guest<A>, key: &str) -> u64 {
        let text = g.slurp("/proc/self/status");
        let line = text.lines().find_map(|line| line.strip_prefix(key)).expect("a line");
        line.trim_start_matches(':').trim().trim_end_matches(" kB").parse().expect("a number")
    }

    fn pagemap<A: Arch>(g: &mut Guest<A>, va: u64) -> u64 {
        let fd = g.open("/proc/self/pagemap", 0).cast_unsigned();
        assert_eq!(g.call("pread64", &[fd, DATA, 8, va / PAGE * 8]), 8);
        g.call("close", &[fd]);
        g.peek_u64(DATA)
    }

    pub(super) fn locked_memory_stays_within_its_limit<A: Arch>() {
        let mut g = Guest::<A>::new();
        let at = g.map(16 * PAGE);
        assert_eq!(g.call("mlock", &[at + 100, PAGE]), 0);
        assert_eq!(status(&mut g, "VmLck"), 8, "both pages that the range touches");
        assert_ne!(pagemap(&mut g, at), 0, "they are there at once");
        assert_eq!(g.call("mlock2", &[at + 4 * PAGE, PAGE, 1]), 0);
        assert_eq!(pagemap(&mut g, at + 4 * PAGE) >> 63, 0, "on fault is later");
        assert_eq!(g.call("mlock2", &[at, PAGE, 2]), EINVAL);
        assert_eq!(g.call("munlock", &[at, 16 * PAGE]), 0);
        assert_eq!(status(&mut g, "VmLck"), 0);
        // Without the capability the limit holds: four pages, then none.
        g.poke(DATA, &[(4 * PAGE).to_le_bytes(), (4 * PAGE).to_le_bytes()].concat());
        assert_eq!(g.call("prlimit64", &[0, 8, DATA, 0]), 0);
        assert_eq!(g.call("setresuid", &[7, 7, 7]), 0);
        assert_eq!(g.call("setuid", &[0]), EPERM);
        assert_eq!(g.call("mlock", &[at, 5 * PAGE]), ENOMEM);
        assert_eq!(g.call("mlock", &[at, 4 * PAGE]), 0);
        assert_eq!(g.call("mlock", &[at, 2 * PAGE]), 0, "what is locked is not counted again");
        assert_eq!(g.call("mmap", &[0, PAGE, 3, 0x2022, u64::MAX, 0]), EAGAIN);
        assert_eq!(g.call("mlockall", &[2]), 0);
        assert_eq!(g.call("mmap", &[0, PAGE, 3, 0x22, u64::MAX, 0]), EAGAIN);
        assert_eq!(g.call("munlockall", &[]), 0);
        g.map(PAGE);
    }

    pub(super) fn sealed_memory_cannot_change<A: Arch>() {
        let mut g = Guest::<A>::new();
        let at = g.map(5 * PAGE);
        assert_eq!(g.call("munmap", &[at + 4 * PAGE, PAGE]), 0);
        g.poke(at + PAGE, &[7]);
        assert_eq!(g.call("mseal", &[at + PAGE, 2 * PAGE, 1]), EINVAL);
        assert_eq!(g.call("mseal", &[at + 3 * PAGE, 2 * PAGE, 0]), ENOMEM);
        assert_eq!(g.call("mseal", &[at + PAGE, 2 * PAGE, 0]), 0);
        assert_eq!(g.call("munmap", &[at, 4 * PAGE]), EPERM);
        assert_eq!(g.call("mprotect", &[at + PAGE, PAGE, 1]), EPERM);
        assert_eq!(g.call("mremap", &[at + PAGE, PAGE, 2 * PAGE, 1]), EPERM);
        assert_eq!(g.call("mmap", &[at + PAGE, PAGE, 3, 0x32, u64::MAX, 0]), EPERM);
        // What may be written may also be thrown away; only the neighbours are not sealed.
        assert_eq!(g.call("madvise", &[at + PAGE, PAGE, 4]), 0);
        assert_eq!(g.peek(at + PAGE, 1), [0]);
        assert_eq!(g.call("mprotect", &[at, PAGE, 1]), 0);
        assert!(g.slurp("/proc/self/smaps").contains(" sl"));
    }

    pub(super) fn memory_that_was_writable_never_becomes_executable<A: Arch>() {
        let mut g = Guest::<A>::new();
        let at = g.map(PAGE);
        assert_eq!(g.call("prctl", &[65, 2, 0, 0, 0]), EINVAL);
        assert_eq!(g.call("prctl", &[65, 1, 0, 0, 0]), 0);
        assert_eq!(g.call("prctl", &[65, 3, 0, 0, 0]), EPERM);
        assert_eq!(g.call("prctl", &[66, 0, 0, 0, 0]), 1);
        assert_eq!(g.call("mprotect", &[at, PAGE, 5]), EACCES);
        assert_eq!(g.call("mmap", &[0, PAGE, 7, 0x22, u64::MAX, 0]), EACCES);
        assert!(g.call("mmap", &[0, PAGE, 5, 0x22, u64::MAX, 0]) > 0);
    }

    pub(super) fn a_page_in_a_pipe_is_the_page_of_that_moment<A: Arch>() {
        let mut g = Guest::<A>::new();
        let free = g.kernel.mm.meminfo().free;
        let at = g.map(2 * PAGE);
        g.poke(at, b"old");
        assert_eq!(g.call("pipe2", &[DATA, 0]), 0);
        let (reader, writer) = (u64::from(g.peek_u32(DATA)), u64::from(g.peek_u32(DATA + 4)));
        g.poke(DATA, &[at.to_le_bytes(), (PAGE + 1).to_le_bytes()].concat());
        assert_eq!(g.call("vmsplice", &[writer, DATA, 1, 0]).cast_unsigned(), PAGE + 1);
        // The page is shared with the pipe, not copied, and outlives its mapping.
        g.poke(at, b"new");
        assert_eq!(g.call("munmap", &[at, 2 * PAGE]), 0);
        assert_eq!(g.call("write", &[writer, CODE, 4]), 4);
        assert_eq!(g.call("read", &[reader, DATA, 3]), 3);
        assert_eq!(g.peek(DATA, 3), b"new");
        for fd in [reader, writer] {
            assert_eq!(g.call("close", &[fd]), 0);
        }
        assert_eq!(g.kernel.mm.validate(), []);
        let tables = 4;
        assert!(free - g.kernel.mm.meminfo().free <= tables, "the pages are free again");
    }

    pub(super) fn a_registered_buffer_is_written_from_its_pages<A: Arch>() {
        let mut g = Guest::<A>::new();
        let buffer = g.map(PAGE);
        g.poke(DATA, &[0; 120]);
        let ring = g.call("io_uring_setup", &[1, DATA]).cast_unsigned();
        assert_eq!(g.peek_u32(DATA + 4), 2, "twice as many completions as requests");
        let (tail, array) = (g.peek_u32(DATA + 44), g.peek_u32(DATA + 64));
        let (cq_tail, cqes) = (g.peek_u32(DATA + 84), g.peek_u32(DATA + 100));
        let rings = g.call("mmap", &[0, PAGE, 3, 1, ring, 0]).cast_unsigned();
        let sqes = g.call("mmap", &[0, 64, 3, 1, ring, 0x1000_0000]).cast_unsigned();
        assert_eq!(g.call("io_uring_register", &[ring, 1, 0, 0]), ENXIO);
        g.poke(DATA, &[buffer.to_le_bytes(), PAGE.to_le_bytes()].concat());
        assert_eq!(g.call("io_uring_register", &[ring, 0, DATA, 1]), 0);
        // The program moves its buffer away; the pinned page is what is written.
        g.poke(buffer, b"pinned");
        assert_eq!(g.call("madvise", &[buffer, PAGE, 4]), 0);
        let file = g.open("/tmp/out", 0o102).cast_unsigned();
        let mut sqe = vec![5, 0, 0, 0];
        sqe.extend(u32::try_from(file).expect("small").to_le_bytes());
        sqe.extend(0u64.to_le_bytes());
        sqe.extend(buffer.to_le_bytes());
        sqe.extend(6u64.to_le_bytes());
        sqe.extend(77u64.to_le_bytes());
        sqe.resize(64, 0);
        g.poke(sqes, &sqe);
        g.poke(rings + u64::from(array), &0u32.to_le_bytes());
        g.poke(rings + u64::from(tail), &1u32.to_le_bytes());
        assert_eq!(g.call("io_uring_enter", &[ring, 1, 1, 1, 0, 0]), 1);
        assert_eq!(g.peek_u32(rings + u64::from(cq_tail)), 1);
        let cqe = rings + u64::from(cqes);
        assert_eq!((g.peek_u64(cqe), g.peek_u64(cqe + 8)), (77, 6));
        assert_eq!(g.slurp("/tmp/out"), "pinned");
        assert_eq!(g.call("close", &[ring]), 0);
        assert_eq!(g.kernel.mm.validate(), []);
    }

    pub(super) fn a_debugger_writes_where_the_program_may_not<A: Arch>() {
        let mut g = Guest::<A>::new();
        let at = g.map(PAGE);
        assert_eq!(g.call("mprotect", &[at, PAGE, 1]), 0);
        let mem = g.open("/proc/self/mem", 2).cast_unsigned();
        g.poke(DATA, b"x");
        assert_eq!(g.call("pwrite64", &[mem, DATA, 1, at + 5]), 1);
        assert_eq!(g.peek(at + 5, 1), b"x");
        assert_eq!(g.call("pread64", &[mem, DATA, 2, at + 5]), 2);
        assert_eq!(g.peek(DATA, 2), b"x\0");
        assert_eq!(g.call("pread64", &[mem, DATA, 1, 0x1000]), EIO);
        assert!(g.kernel.write_user(g.task, VirtAddr::new(at), b"y").is_err());
    }

    pub(super) fn written_pages_are_noticed_again<A: Arch>() {
        const SOFT_DIRTY: u64 = 1 << 55;
        let mut g = Guest::<A>::new();
        let at = g.map(2 * PAGE);
        for page in [at, at + PAGE] {
            g.poke(page, &[1]);
        }
        assert_eq!(g.spew("/proc/self/clear_refs", "9"), EINVAL);
        assert_eq!(g.spew("/proc/self/clear_refs", "4"), 1);
        assert_eq!(pagemap(&mut g, at) & SOFT_DIRTY, 0);
        g.poke(at, &[2]);
        let noticed = if A::ID == ArchId::X86_64 { SOFT_DIRTY } else { 0 };
        assert_eq!(pagemap(&mut g, at) & SOFT_DIRTY, noticed);
        assert_eq!(pagemap(&mut g, at + PAGE) & SOFT_DIRTY, 0);
        assert_eq!(g.kernel.mm.validate(), []);
    }

    fn huge<A: Arch>(g: &mut Guest<A>) -> bool {
        g.slurp("/proc/self/smaps").lines().any(|line| line == "AnonHugePages:      2048 kB")
    }

    pub(super) fn small_pages_are_collapsed_into_a_huge_one<A: Arch>() {
        const THP: &str = "/sys/kernel/mm/transparent_hugepage";
        let mut g = Guest::<A>::new();
        let start = g.map(4 << 20).next_multiple_of(2 << 20);
        assert_eq!(g.call("madvise", &[start, 2 << 20, 25]), EINVAL, "there is nothing yet");
        for page in 0..3 {
            g.poke(start + page * PAGE, &[1 + u8::try_from(page).expect("small")]);
        }
        assert_eq!(g.call("madvise", &[start, 2 << 20, 25]), 0);
        assert!(huge(&mut g));
        assert_eq!(g.peek(start + 2 * PAGE, 1), [3]);
        assert_eq!(g.peek(start + 3 * PAGE, 1), [0]);
        assert_eq!(g.kernel.mm.validate(), []);
        // The daemon does it by itself, but keeps to its limits.
        assert_eq!(g.call("madvise", &[start, PAGE, 4]), 0);
        assert!(!huge(&mut g));
        assert_eq!(g.call("madvise", &[start, 2 << 20, 14]), 0);
        assert_eq!(g.spew(&format!("{THP}/khugepaged/max_ptes_none"), "0"), 1);
        g.kernel.wake_expired(0);
        assert!(!huge(&mut g), "one entry is empty");
        assert_eq!(g.spew(&format!("{THP}/khugepaged/max_ptes_none"), "1"), 1);
        g.kernel.wake_expired(0);
        assert!(huge(&mut g));
        assert_eq!(g.slurp(&format!("{THP}/khugepaged/pages_collapsed")), "1\n");
        assert_eq!(g.spew(&format!("{THP}/khugepaged/max_ptes_none"), "512"), EINVAL);
        assert_eq!(g.kernel.mm.validate(), []);
    }

    pub(super) fn a_socket_of_a_pair_reads_what_the_other_wrote<A: Arch>() {
        let mut g = Guest::<A>::new();
        assert_eq!(g.call("socketpair", &[2, 1, 0, DATA]), -97);
        assert_eq!(g.call("socketpair", &[1, 1, 0, DATA]), 0);
        let (a, b) = (u64::from(g.peek_u32(DATA)), u64::from(g.peek_u32(DATA + 4)));
        g.poke(DATA, b"to b");
        assert_eq!(g.call("write", &[a, DATA, 4]), 4);
        assert_eq!(g.call("write", &[b, DATA, 2]), 2);
        assert_eq!(g.call("read", &[b, DATA + 8, 9]), 4);
        assert_eq!(g.peek(DATA + 8, 4), b"to b");
        assert_eq!(g.call("close", &[b]), 0);
        assert_eq!(g.call("read", &[a, DATA + 8, 9]), 2);
        assert_eq!(g.call("read", &[a, DATA + 8, 9]), 0);
    }

    pub(super) fn a_timer_sends_its_signal_and_tells_what_is_left<A: Arch>() {
        let mut g = Guest::<A>::new();
        assert_eq!(g.call("setitimer", &[0, 0, 0]), 0);
        let words = [0, 0, 2, 500_000u64];
        g.poke(DATA, &words.map(u64::to_le_bytes).concat());
        assert_eq!(g.call("setitimer", &[0, DATA, 0]), 0);
        g.outside.now_ns = 1_000_000_000;
        assert_eq!(g.call("getitimer", &[0, DATA]), 0);
        assert_eq!((g.peek_u64(DATA + 16), g.peek_u64(DATA + 24)), (1, 500_000));
        assert_eq!(g.kernel.next_deadline(), Some(2_500_000_000));
        g.kernel.wake_expired(2_499_999_999);
        g.poke(DATA, &(1u64 << 13).to_le_bytes());
        assert_eq!(g.call("rt_sigprocmask", &[0, DATA, 0, 8]), 0);
        g.kernel.wake_expired(2_500_000_000);
        assert_eq!(g.call("rt_sigpending", &[DATA, 8]), 0);
        assert_eq!(g.peek_u64(DATA), 1 << 13);
        assert_eq!(g.kernel.next_deadline(), None);
    }

    pub(super) fn a_dying_process_gives_its_memory_early<A: Arch>() {
        let mut g = Guest::<A>::new();
        let at = g.map(64 * PAGE);
        for page in 0..64 {
            g.poke(at + page * PAGE, &[1]);
        }
        let parent = g.task;
        let child = g.call("clone", &[17, 0, 0, 0, 0]).cast_unsigned();
        assert_eq!(g.call("pidfd_open", &[child + 1, 0]), ESRCH);
        let pidfd = g.call("pidfd_open", &[child, 0]).cast_unsigned();
        assert_eq!(g.call("process_mrelease", &[pidfd, 0]), EINVAL, "it does not die");
        // It has a page of its own by now.
        g.task = TaskId(parent.get() + 1);
        g.poke(at, &[2]);
        g.task = parent;
        let free = g.kernel.mm.meminfo().free;
        assert_eq!(g.call("kill", &[child, 9]), 0);
        assert_eq!(g.call("process_mrelease", &[pidfd, 0]), 0);
        assert!(g.kernel.mm.meminfo().free > free);
        assert_eq!(g.kernel.mm.validate(), []);
    }

    pub(super) fn one_node_holds_all_memory<A: Arch>() {
        let mut g = Guest::<A>::new();
        let at = g.map(2 * PAGE);
        g.poke(at, &[1]);
        g.poke(DATA, &[0xff; 16]);
        assert_eq!(g.call("get_mempolicy", &[DATA, DATA + 8, 64, at, 2]), 0);
        assert_eq!((g.peek_u32(DATA), g.peek_u64(DATA + 8)), (0, 0));
        g.poke(DATA, &2u64.to_le_bytes());
        assert_eq!(g.call("set_mempolicy", &[2, DATA, 64]), EINVAL, "node 1 does not exist");
        g.poke(DATA, &1u64.to_le_bytes());
        assert_eq!(g.call("mbind", &[at, PAGE, 2, DATA, 64, 2]), 0);
        g.poke(DATA, &[at.to_le_bytes(), (at + PAGE).to_le_bytes()].concat());
        assert_eq!(g.call("move_pages", &[0, 2, DATA, 0, DATA + 16, 2]), 0);
        assert_eq!((g.peek_u32(DATA + 16), g.peek_u32(DATA + 20).cast_signed()), (0, -2));
        g.poke(DATA + 32, &1u32.to_le_bytes());
        assert_eq!(g.call("move_pages", &[0, 1, DATA, DATA + 32, DATA + 16, 2]), ENODEV);
    }
}
