//! Files, pipes and pseudo-files.

use super::*;

on_both! {
    bad_arguments_yield_the_errors_of_linux
    output_reaches_the_console_whole
    a_file_keeps_what_was_written
    pipes_block_wake_and_break
    thp_knobs_are_read_and_written_in_linux_format
    directories_are_listed_and_removed
    poll_tells_what_is_ready_and_times_out
    proc_files_can_be_read
    symbolic_links_are_followed_but_not_for_ever
    pagemap_and_smaps_agree_with_what_was_touched
}

const NOWHERE: u64 = 0x10_0000;
const KERNEL: u64 = 0xffff_8000_0000_0000;

mod check {
    use super::*;

    pub(super) fn bad_arguments_yield_the_errors_of_linux<A: Arch>() {
        let mut g = Guest::<A>::new();
        let fdcwd = (-100i64).cast_unsigned();
        g.poke(DATA, b"/nosuch\0/proc/vmstat\0/tmp\0\0");
        let (nosuch, vmstat, tmp, empty) = (DATA, DATA + 8, DATA + 21, DATA + 26);
        let table: &[(&str, &[u64], i64)] = &[
            ("write", &[1, NOWHERE, 5], EFAULT),
            ("write", &[1, KERNEL, 5], EFAULT),
            ("write", &[99, DATA, 5], EBADF),
            ("write", &[0, DATA, 5], EBADF),
            ("write", &[1, NOWHERE, 0], 0),
            ("read", &[1, DATA, 5], EBADF),
            ("writev", &[1, DATA, 1025], EINVAL),
            ("readv", &[0, NOWHERE, 1], EFAULT),
            ("openat", &[fdcwd, NOWHERE, 0], EFAULT),
            ("openat", &[fdcwd, nosuch, 0], ENOENT),
            ("openat", &[fdcwd, empty, 0], ENOENT),
            ("openat", &[99, nosuch + 1, 0], EBADF),
            ("openat", &[1, nosuch + 1, 0], ENOTDIR),
            ("openat", &[fdcwd, vmstat, 1], EACCES),
            ("openat", &[fdcwd, tmp, 2], EISDIR),
            ("openat", &[fdcwd, tmp, 0o300], EEXIST),
            ("close", &[77], EBADF),
            ("lseek", &[1, 0, 0], ESPIPE),
            ("ioctl", &[1, 0x5401, DATA], ENOTTY),
            ("dup3", &[1, 1, 0], EINVAL),
            ("fcntl", &[1, 999, 0], EINVAL),
            ("pipe2", &[NOWHERE, 0], EFAULT),
            ("pipe2", &[DATA, 1], EINVAL),
            ("getdents64", &[1, DATA, 100], ENOTDIR),
            ("clock_gettime", &[99, DATA], EINVAL),
            ("clock_gettime", &[1, NOWHERE], EFAULT),
            ("madvise", &[CODE, 4096, 9999], EINVAL),
            ("mprotect", &[CODE + 1, 4096, 1], EINVAL),
            ("munmap", &[CODE + 1, 4096], EINVAL),
            ("mmap", &[0, 0, 3, 0x22, 0, 0], EINVAL),
            ("mmap", &[0, 4096, 3, 0x22, 0, 1], EINVAL),
            ("mmap", &[0, 4096, 3, 0x02, 99, 0], EBADF),
            ("futex", &[DATA + 1, 0, 0], EINVAL),
            ("rt_sigaction", &[9, DATA, 0, 8], EINVAL),
            ("rt_sigaction", &[65, 0, 0, 8], EINVAL),
            ("rt_sigprocmask", &[0, 0, 0, 4], EINVAL),
            ("sched_setaffinity", &[0, 8, NOWHERE], EFAULT),
            ("wait4", &[(-1i64).cast_unsigned(), 0, 0, 0], ECHILD),
            ("clone", &[0x1_0000, 0, 0, 0, 0], EINVAL),
            ("kill", &[4242, 0], -3),
            ("getrandom", &[DATA, 8, 64], EINVAL),
            ("rseq", &[DATA + 4, 32, 0, 0], EINVAL),
        ];
        for (name, args, expected) in table {
            assert_eq!(g.call(name, args), *expected, "{name}{args:x?}");
        }
        assert_eq!(g.call_nr(9999, [0; 6]), ENOSYS);
        assert_eq!(g.call_nr(9999, [0; 6]), ENOSYS);
        let unknown = g.kernel.unknown_syscalls();
        assert_eq!(unknown, [UnknownSyscall { nr: 9999, name: None, calls: 2 }]);
    }

    pub(super) fn output_reaches_the_console_whole<A: Arch>() {
        let mut g = Guest::<A>::new();
        let at = g.map(0x5_0000);
        let text: Vec<u8> = (0..0x4_2000u32).map(|i| b'a' + (i % 26) as u8).collect();
        g.poke(at, &text);
        assert_eq!(g.call("write", &[1, at, text.len() as u64]), 0x4_2000);
        assert_eq!(g.outside.out, text);
        // The second buffer is not there: what came before it counts.
        g.poke(DATA, &[at.to_le_bytes(), 4u64.to_le_bytes()].concat());
        g.poke(DATA + 16, &[NOWHERE.to_le_bytes(), 4u64.to_le_bytes()].concat());
        assert_eq!(g.call("writev", &[2, DATA, 2]), 4);
        g.outside.input = b"xyz".to_vec();
        assert_eq!(g.call("read", &[0, DATA, 100]), 3);
        assert_eq!(g.peek(DATA, 3), b"xyz");
    }

    pub(super) fn a_file_keeps_what_was_written<A: Arch>() {
        let mut g = Guest::<A>::new();
        let fd = g.open("/tmp/./x", 0o102).cast_unsigned();
        g.poke(DATA, b"hello world");
        assert_eq!(g.call("write", &[fd, DATA, 11]), 11);
        assert_eq!(g.call("pwrite64", &[fd, DATA, 5, 6]), 5);
        assert_eq!(g.call("lseek", &[fd, 2, 0]), 2);
        assert_eq!(g.call("dup", &[fd]), 4);
        assert_eq!(g.call("read", &[4, DATA, 3]), 3);
        assert_eq!(g.call("lseek", &[fd, 0, 1]), 5);
        assert_eq!(g.slurp("/tmp/x"), "hello hello");
        let at = g.call("mmap", &[0, 4096, 1, 2, fd, 0]).cast_unsigned();
        assert_eq!(g.peek(at, 12), b"hello hello\0");
        assert_eq!(g.call("ftruncate", &[fd, 3]), 0);
        assert_eq!(g.slurp("/tmp/../tmp/x"), "hel");
        assert_eq!(g.call("fstat", &[fd, DATA]), 0);
        assert_eq!(g.peek_u64(DATA + 48), 3);
    }

    pub(super) fn pipes_block_wake_and_break<A: Arch>() {
        let mut g = Guest::<A>::new();
        assert_eq!(g.call("pipe2", &[DATA, 0]), 0);
        assert_eq!(g.peek(DATA, 8), [3, 0, 0, 0, 4, 0, 0, 0]);
        let parent = g.task;
        let child = g.call("clone", &[17, 0, 0, 0, 0]);
        g.call("read", &[3, DATA, 8]);
        assert_eq!(g.last, Outcome::Reschedule);
        g.turn(CpuId::new(0));
        assert_eq!(i64::from(g.task.get()), child);
        g.poke(DATA, b"ping");
        assert_eq!(g.call("write", &[4, DATA, 4]), 4);
        assert_eq!(g.kernel.task_state(parent), TaskState::Runnable);
        g.call("exit_group", &[0]);
        assert_eq!(g.last, Outcome::Exited);
        assert_eq!(g.turn(CpuId::new(0)), Some(Outcome::Resume));
        assert_eq!((g.task, g.regs().ret()), (parent, 4));
        assert_eq!(g.peek(DATA, 4), b"ping");
        // The end of the file, once no writer is left.
        g.call("close", &[4]);
        assert_eq!(g.call("read", &[3, DATA, 8]), 0);
        // Nobody reads: EPIPE, and a signal unless it is ignored.
        g.call("pipe2", &[DATA, 0]);
        let writer = u64::from(g.peek_u32(DATA + 4));
        let reader = u64::from(g.peek_u32(DATA));
        g.call("close", &[reader]);
        g.poke(DATA, &[1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
        g.call("rt_sigaction", &[13, DATA, 0, 8]);
        assert_eq!(g.call("write", &[writer, DATA, 1]), EPIPE);
        g.poke(DATA, &[0; 8]);
        g.call("rt_sigaction", &[13, DATA, 0, 8]);
        g.call("write", &[writer, DATA, 1]);
        assert_eq!(g.last, Outcome::Exited);
        assert_eq!(g.kernel.exit_status(), Some(ExitStatus::Signaled(13)));
    }

    pub(super) fn thp_knobs_are_read_and_written_in_linux_format<A: Arch>() {
        let mut g = Guest::<A>::new();
        let thp = "/sys/kernel/mm/transparent_hugepage";
        let enabled = format!("{thp}/enabled");
        assert_eq!(g.slurp(&enabled), "always [madvise] never\n");
        assert_eq!(g.spew(&enabled, "always\n"), 7);
        assert_eq!(g.slurp(&enabled), "[always] madvise never\n");
        assert_eq!(g.spew(&enabled, "sometimes"), EINVAL);
        assert_eq!(g.slurp(&format!("{thp}/hpage_pmd_size")), "2097152\n");
        let size = format!("{thp}/hugepages-64kB");
        assert_eq!(g.slurp(&format!("{size}/enabled")), "always inherit madvise [never]\n");
        assert_eq!(g.spew(&format!("{size}/enabled"), "always"), 6);
        assert_eq!(g.slurp(&format!("{size}/enabled")), "[always] inherit madvise never\n");
        assert_eq!(g.slurp(&format!("{size}/stats/anon_fault_alloc")), "0\n");
        assert_eq!(g.slurp(&format!("{thp}/use_zero_page")), "1\n");
        assert_eq!(g.spew(&format!("{thp}/use_zero_page"), "2"), EINVAL);
        assert_eq!(
            g.slurp(&format!("{thp}/defrag")),
            "always defer defer+madvise [madvise] never\n"
        );
        assert_eq!(
            g.slurp(&format!("{thp}/shmem_enabled")),
            "always within_size advise [never] deny force\n"
        );
        assert_eq!(g.spew(&enabled, "never"), 5);
        let at = g.map(4 << 20);
        g.poke((at + (1 << 20)) & !0xffff, &[1]);
        assert_eq!(g.slurp(&format!("{size}/stats/anon_fault_alloc")), "1\n");
    }

    pub(super) fn directories_are_listed_and_removed<A: Arch>() {
        let mut g = Guest::<A>::new();
        let fdcwd = (-100i64).cast_unsigned();
        g.poke(DATA, b"/tmp/d\0/tmp/d/f\0");
        assert_eq!(g.call("mkdirat", &[fdcwd, DATA, 0o755]), 0);
        assert_eq!(g.call("mkdirat", &[fdcwd, DATA, 0o755]), EEXIST);
        g.open("/tmp/d/f", 0o101);
        let directory = if A::ID == ArchId::X86_64 { 0o200_000 } else { 0o40_000 };
        let fd = g.open("/tmp/d", directory).cast_unsigned();
        let n = g.call("getdents64", &[fd, DATA, 1000]);
        assert_eq!(n, 24 * 3);
        assert_eq!(g.peek(DATA + 48 + 18, 3), [8, b'f', 0]);
        assert_eq!(g.call("getdents64", &[fd, DATA, 1000]), 0);
        g.poke(DATA, b"/tmp/d\0f\0");
        assert_eq!(g.call("unlinkat", &[fdcwd, DATA, 0x200]), -39);
        assert_eq!(g.call("unlinkat", &[fd, DATA + 7, 0]), 0);
        assert_eq!(g.call("unlinkat", &[fdcwd, DATA, 0x200]), 0);
        assert_eq!(g.open("/tmp/d", 0), ENOENT);
    }

    pub(super) fn poll_tells_what_is_ready_and_times_out<A: Arch>() {
        let mut g = Guest::<A>::new();
        g.call("pipe2", &[DATA, 0]);
        let entry = |fd: u32, events: u16| {
            [&fd.to_le_bytes()[..], &events.to_le_bytes(), &[0xff, 0xff]].concat()
        };
        g.poke(DATA, &[entry(3, 1), entry(4, 4), entry(9, 1), entry(u32::MAX, 1)].concat());
        assert_eq!(g.call("ppoll", &[DATA, 4, 0, 0, 0]), 2);
        let revents: Vec<u8> = (0..4).map(|i| g.peek(DATA + 8 * i + 6, 1)[0]).collect();
        assert_eq!(revents, [0, 4, 0x20, 0]);
        // Only the empty pipe: until time is up.
        g.poke(DATA + 64, &[0u64.to_le_bytes(), 500u64.to_le_bytes()].concat());
        g.call("ppoll", &[DATA, 1, DATA + 64, 0, 0]);
        assert_eq!(g.last, Outcome::Reschedule);
        assert_eq!(g.kernel.schedule(CpuId::new(0)), None);
        assert_eq!(g.kernel.next_deadline(), Some(500));
        g.outside.now_ns = 500;
        g.kernel.wake_expired(500);
        g.turn(CpuId::new(0));
        assert_eq!(g.regs().ret(), 0);
    }

    pub(super) fn proc_files_can_be_read<A: Arch>() {
        let mut g = Guest::<A>::new();
        assert!(g.slurp("/proc/vmstat").contains("\npgfault "));
        assert!(g.slurp("/proc/meminfo").starts_with("MemTotal:          65536 kB\n"));
        assert!(g.slurp("/proc/self/status").contains("VmRSS:"));
        assert!(g.slurp("/proc/self/stat").contains("(prog) R 1 "));
        assert_eq!(g.slurp("/proc/self/comm"), "prog\n");
        assert_eq!(g.slurp("/proc/self/cmdline"), "prog\0");
        assert_eq!(g.slurp("/proc/sys/kernel/osrelease"), "6.12.0-ptescope\n");
        assert_eq!(g.slurp("/sys/devices/system/cpu/online"), "0\n");
        let statm = g.slurp("/proc/self/statm");
        assert_eq!(statm.split(' ').count(), 7, "{statm}");
        g.poke(DATA, b"/proc/self/exe\0");
        let fdcwd = (-100i64).cast_unsigned();
        assert_eq!(g.call("readlinkat", &[fdcwd, DATA, DATA + 32, 64]), 9);
        assert_eq!(g.peek(DATA + 32, 9), b"/bin/prog");
    }

    pub(super) fn symbolic_links_are_followed_but_not_for_ever<A: Arch>() {
        let mut g = Guest::<A>::new();
        let fdcwd = (-100i64).cast_unsigned();
        g.poke(DATA, b"../tmp/x\0/tmp/link\0loop\0/tmp/loop\0");
        assert_eq!(g.call("symlinkat", &[DATA, fdcwd, DATA + 9]), 0);
        assert_eq!(g.call("symlinkat", &[DATA, fdcwd, DATA + 9]), EEXIST);
        assert_eq!(g.call("symlinkat", &[DATA + 19, fdcwd, DATA + 24]), 0);
        assert_eq!(g.open("/tmp/link", 0), ENOENT);
        assert_eq!(g.open("/tmp/x", 0o101), 3);
        assert_eq!(g.open("/tmp/link", 0), 4);
        assert_eq!(g.open("/tmp/loop", 0), -40);
        g.poke(DATA, b"/tmp/link\0");
        assert_eq!(g.call("readlinkat", &[fdcwd, DATA, DATA + 32, 3]), 3);
        assert_eq!(g.peek(DATA + 32, 3), b"../");
    }

    pub(super) fn pagemap_and_smaps_agree_with_what_was_touched<A: Arch>() {
        let mut g = Guest::<A>::new();
        let at = g.map(0x10_000);
        for page in 0..4 {
            g.poke(at + page * 4096, &[1]);
        }
        assert_eq!(g.call("madvise", &[at + 0x3000, 0x1000, 21]), 0);
        let fd = g.open("/proc/self/pagemap", 0).cast_unsigned();
        assert_eq!(g.call("pread64", &[fd, DATA, 48, at / 4096 * 8]), 48);
        let entry = |g: &mut Guest<A>, i: u64| g.peek_u64(DATA + 8 * i) >> 55;
        assert_eq!(entry(&mut g, 0) & 0x182, 0x102, "present, exclusive, not swapped");
        // A new mapping counts as written, where there is a bit for that.
        let soft_dirty = u64::from(A::ID == ArchId::X86_64);
        assert_eq!(entry(&mut g, 3), 0x80 | soft_dirty, "swapped");
        assert_eq!(entry(&mut g, 4), soft_dirty);
        assert_eq!(g.call("mincore", &[at, 0x6000, DATA]), 0);
        assert_eq!(g.peek(DATA, 6), [1, 1, 1, 0, 0, 0]);
        assert_eq!(g.call("mincore", &[at + 1, 1, DATA]), EINVAL);
        assert_eq!(g.call("mincore", &[at, 0x100_0000, DATA]), -12);
        let smaps = g.slurp("/proc/self/smaps");
        let start = smaps.find(&format!("{at:08x}-")).expect("its mapping");
        let of_map = &smaps[start..];
        for line in [
            "Size:                 64 kB",
            "Rss:                  12 kB",
            "Swap:                  4 kB",
        ] {
            assert!(of_map.contains(line), "{line}\n{of_map}");
        }
    }
}
