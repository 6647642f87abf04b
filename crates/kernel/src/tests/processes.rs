//! Threads, processes, futexes and time.

use super::*;

on_both! {
    a_futex_is_waited_for_and_woken
    a_futex_wait_ends_with_its_time
    the_end_of_a_thread_wakes_who_joins_it
    a_parent_waits_for_its_child_and_learns_how_it_ended
    a_child_of_vfork_holds_its_parent
    memory_after_fork_is_separate
    affinity_moves_a_task
    sleep_takes_virtual_time
    rseq_says_where_a_thread_runs_and_aborts_what_it_was_in
}

const THREAD: u64 = 0x100 | 0x200 | 0x400 | 0x800 | 0x1_0000 | 0x4_0000;
const CPU: CpuId = CpuId::new(0);

mod check {
    use super::*;

    /// Starts a thread; its task.
    fn thread<A: Arch>(g: &mut Guest<A>, flags: u64, ctid: u64) -> TaskId {
        let tls = 0x7000;
        let args = match A::ID {
            ArchId::X86_64 => [THREAD | flags, DATA + 0x700, 0, ctid, tls],
            ArchId::Arm64 => [THREAD | flags, DATA + 0x700, 0, tls, ctid],
        };
        let tid = g.call("clone", &args);
        TaskId(u32::try_from(tid).expect("a thread"))
    }

    pub(super) fn a_futex_is_waited_for_and_woken<A: Arch>() {
        let mut g = Guest::<A>::new();
        let main = g.task;
        g.poke(DATA, &[0; 16]);
        let other = thread(&mut g, 0, 0);
        assert_eq!(g.call("futex", &[DATA, 128, 1, 0]), EAGAIN);
        g.call("futex", &[DATA, 128, 0, 0]);
        assert_eq!(g.last, Outcome::Reschedule);
        g.turn(CPU);
        assert_eq!(g.task, other);
        assert_eq!(g.regs().sp, VirtAddr::new(DATA + 0x700));
        assert_eq!(g.call("futex", &[DATA + 4, 129, 1]), 0);
        assert_eq!(g.call("futex", &[DATA, 129, 1]), 1);
        assert_eq!(g.call("futex", &[DATA, 129, 1]), 0);
        g.call("sched_yield", &[]);
        g.turn(CPU);
        assert_eq!((g.task, g.regs().ret()), (main, 0));
        // A bitset that does not meet the waiter's wakes nobody; requeue moves the waiter.
        g.call("futex", &[DATA, 9, 0, 0, 0, 2]);
        g.turn(CPU);
        assert_eq!(g.call("futex", &[DATA, 10, 1, 0, 0, 1]), 0);
        assert_eq!(g.call("futex", &[DATA, 4, 0, 1, DATA + 8, 0]), 1);
        assert_eq!(g.call("futex", &[DATA, 1, 1]), 0);
        assert_eq!(g.call("futex", &[DATA + 8, 10, 1, 0, 0, 2]), 1);
        assert_eq!(g.kernel.task_state(main), TaskState::Runnable);
    }

    pub(super) fn a_futex_wait_ends_with_its_time<A: Arch>() {
        let mut g = Guest::<A>::new();
        g.outside.now_ns = 100;
        g.poke(DATA, &[0; 16]);
        g.poke(DATA + 16, &[1u64.to_le_bytes(), 5u64.to_le_bytes()].concat());
        g.call("futex", &[DATA, 0, 0, DATA + 16]);
        assert_eq!(g.kernel.next_deadline(), Some(1_000_000_105));
        g.kernel.wake_expired(1_000_000_104);
        assert_eq!(g.turn(CPU), None);
        g.kernel.wake_expired(1_000_000_105);
        g.turn(CPU);
        assert_eq!(g.regs().ret(), ETIMEDOUT);
        assert_eq!(g.call("futex", &[DATA, 1, 1]), 0);
    }

    pub(super) fn the_end_of_a_thread_wakes_who_joins_it<A: Arch>() {
        let mut g = Guest::<A>::new();
        let main = g.task;
        g.poke(DATA, &7u32.to_le_bytes());
        let other = thread(&mut g, 0x20_0000 | 0x8_0000, DATA);
        g.call("futex", &[DATA, 9 | 256, 7, 0, 0, u64::from(u32::MAX)]);
        g.turn(CPU);
        assert_eq!((g.task, g.regs().tls), (other, 0x7000));
        assert_eq!(g.call("getpid", &[]), i64::from(main.0));
        assert_eq!(g.call("gettid", &[]), i64::from(other.0));
        g.call("exit", &[3]);
        assert_eq!(g.last, Outcome::Exited);
        assert_eq!(g.kernel.task_state(other), TaskState::Dead);
        g.turn(CPU);
        assert_eq!((g.task, g.regs().ret()), (main, 0));
        assert_eq!(g.peek_u32(DATA), 0);
        g.call("exit", &[0x1_05]);
        assert_eq!(g.kernel.exit_status(), Some(ExitStatus::Exited(5)));
        assert_eq!(g.kernel.schedule(CPU), None);
    }

    pub(super) fn a_parent_waits_for_its_child_and_learns_how_it_ended<A: Arch>() {
        let mut g = Guest::<A>::new();
        let parent = g.task;
        g.poke(DATA + 64, &[0; 4]);
        let tid_at = DATA + 64;
        let child = g.call("clone", &[17 | 0x100_0000, 0, 0, tid_at, tid_at]);
        assert_eq!(g.call("wait4", &[child.cast_unsigned(), DATA, 1, 0]), 0);
        g.call("wait4", &[u64::MAX, DATA, 0, 0]);
        assert_eq!(g.last, Outcome::Reschedule);
        g.turn(CPU);
        assert_eq!(i64::from(g.task.0), child);
        assert_eq!(i64::from(g.peek_u32(DATA + 64)), child);
        assert_eq!(g.call("getppid", &[]), i64::from(parent.0));
        g.call("exit_group", &[42]);
        g.turn(CPU);
        assert_eq!((g.task, g.regs().ret()), (parent, child));
        assert_eq!(g.peek_u32(DATA), 42 << 8);
        assert_eq!(g.peek_u32(DATA + 64), 0);
        assert_eq!(g.call("wait4", &[u64::MAX, 0, 0, 0]), ECHILD);
        // Killed by a signal.
        let child = g.call("clone", &[17, 0, 0, 0, 0]);
        assert_eq!(g.call("kill", &[child.cast_unsigned(), 9]), 0);
        g.call("waitid", &[1, child.cast_unsigned(), DATA, 4, 0]);
        g.turn(CPU);
        assert_eq!(g.last, Outcome::Exited);
        g.turn(CPU);
        assert_eq!((g.task, g.regs().ret()), (parent, 0));
        assert_eq!((g.peek_u32(DATA), g.peek_u32(DATA + 8), g.peek_u32(DATA + 24)), (17, 2, 9));
    }

    pub(super) fn a_child_of_vfork_holds_its_parent<A: Arch>() {
        let mut g = Guest::<A>::new();
        let parent = g.task;
        let child = g.call("clone", &[0x4000 | 0x100 | 17, 0, 0, 0, 0]);
        assert!(matches!(g.last, Outcome::Spawned(Spawn { parent_waits: true, .. })));
        g.turn(CPU);
        assert_eq!(i64::from(g.task.0), child);
        g.poke(DATA, &[9]);
        g.call("exit_group", &[0]);
        g.turn(CPU);
        assert_eq!((g.task, g.regs().ret()), (parent, child));
        assert_eq!(g.peek(DATA, 1), [9]);
    }

    pub(super) fn memory_after_fork_is_separate<A: Arch>() {
        let mut g = Guest::<A>::new();
        let at = g.map(4096);
        g.poke(at, &[1]);
        let parent = g.task;
        let child = g.call("clone", &[17, 0, 0, 0, 0]);
        g.poke(at, &[2]);
        g.call("sched_yield", &[]);
        g.turn(CPU);
        assert_eq!(i64::from(g.task.0), child);
        assert_eq!(g.peek(at, 1), [1]);
        g.poke(at, &[3]);
        g.call("exit_group", &[0]);
        g.turn(CPU);
        assert_eq!((g.task, g.peek(at, 1)), (parent, vec![2]));
    }

    pub(super) fn affinity_moves_a_task<A: Arch>() {
        let mut g = Guest::<A>::with_cpus(4);
        assert_eq!(g.call("sched_getaffinity", &[0, 128, DATA]), 8);
        assert_eq!(g.peek_u64(DATA), 0xf);
        g.poke(DATA, &2u64.to_le_bytes());
        assert_eq!(g.call("sched_setaffinity", &[0, 8, DATA]), 0);
        assert_eq!(g.last, Outcome::Resume);
        assert_eq!(g.kernel.schedule(CPU), None);
        g.poke(DATA, &4u64.to_le_bytes());
        assert_eq!(g.call("sched_setaffinity", &[0, 8, DATA]), 0);
        assert_eq!(g.last, Outcome::Reschedule);
        assert_eq!(g.kernel.schedule(CpuId::new(1)), None);
        g.turn(CpuId::new(2));
        assert_eq!(g.call("getcpu", &[DATA, 0, 0]), 0);
        assert_eq!(g.peek_u32(DATA), 2);
        g.poke(DATA, &0x10u64.to_le_bytes());
        assert_eq!(g.call("sched_setaffinity", &[0, 8, DATA]), EINVAL);
    }

    pub(super) fn sleep_takes_virtual_time<A: Arch>() {
        let mut g = Guest::<A>::new();
        g.poke(DATA, &[0u64.to_le_bytes(), 200_000_000u64.to_le_bytes()].concat());
        g.call("clock_nanosleep", &[1, 0, DATA, 0]);
        assert_eq!(g.last, Outcome::Reschedule);
        assert_eq!(g.kernel.next_deadline(), Some(200_000_000));
        g.outside.now_ns = 200_000_000;
        g.kernel.wake_expired(200_000_000);
        g.turn(CPU);
        assert_eq!(g.regs().ret(), 0);
        assert_eq!(g.call("clock_gettime", &[1, DATA]), 0);
        assert_eq!((g.peek_u64(DATA), g.peek_u64(DATA + 8)), (0, 200_000_000));
        assert_eq!(g.call("clock_gettime", &[0, DATA]), 0);
        assert_eq!(g.peek_u64(DATA), 1_767_225_600);
    }

    pub(super) fn rseq_says_where_a_thread_runs_and_aborts_what_it_was_in<A: Arch>() {
        let mut g = Guest::<A>::with_cpus(2);
        g.poke(DATA, &[0xff; 8]);
        assert_eq!(g.call("rseq", &[DATA, 32, 0, 0x53]), 0);
        assert_eq!(g.call("rseq", &[DATA, 32, 0, 0x53]), -16);
        assert_eq!(g.peek_u64(DATA), 1 | 1 << 32);
        // A critical section of 16 bytes from CODE on, aborting to CODE + 0x100.
        let section = [0, CODE, 16, CODE + 0x100].map(u64::to_le_bytes).concat();
        g.poke(DATA + 64, &section);
        g.poke(DATA + 8, &(DATA + 64).to_le_bytes());
        g.regs().pc = VirtAddr::new(CODE + 4);
        g.poke(DATA + 128, &1u64.to_le_bytes());
        assert_eq!(g.call("sched_setaffinity", &[0, 8, DATA + 128]), 0);
        g.turn(CPU);
        assert_eq!(g.peek_u64(DATA), 0);
        assert_eq!(g.regs().pc, VirtAddr::new(CODE + 0x100));
        assert_eq!(g.peek_u64(DATA + 8), 0);
        assert_eq!(g.call("rseq", &[DATA, 32, 1, 0x54]), EPERM);
        assert_eq!(g.call("rseq", &[DATA, 32, 1, 0x53]), 0);
    }
}
