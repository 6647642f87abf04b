//! Signals: handlers, their frames, and what happens without one.

use super::*;

on_both! {
    a_handler_sees_the_fault_and_returns_to_it
    a_handler_runs_on_its_alternate_stack
    a_blocked_fault_signal_kills
    traps_kill_with_their_signal
    a_wait_is_interrupted_or_restarted_as_the_action_says
    an_awaited_signal_is_taken_without_its_handler
    a_frame_that_cannot_be_written_kills
}

const HANDLER: u64 = CODE + 0x200;
const RESTORER: u64 = CODE + 0x300;
const CPU: CpuId = CpuId::new(0);

mod check {
    use super::*;

    fn handle<A: Arch>(g: &mut Guest<A>, signal: u64, flags: u64) {
        let flags = flags | 4 | if A::ID == ArchId::X86_64 { 0x0400_0000 } else { 0 };
        let restorer = if A::ID == ArchId::X86_64 { RESTORER } else { 0 };
        let action = [HANDLER, flags, restorer, 0].map(u64::to_le_bytes).concat();
        g.poke(DATA, &action);
        assert_eq!(g.call("rt_sigaction", &[signal, DATA, 0, 8]), 0);
    }

    fn fault<A: Arch>(g: &mut Guest<A>, va: u64) -> Outcome {
        let task = g.task;
        let regs = g.regs.get_mut(&task).expect("registers");
        g.kernel.page_fault(task, VirtAddr::new(va), mm::Access::Write, regs)
    }

    /// (signal, siginfo, ucontext) of the handler that was entered.
    fn arguments<A: Arch>(g: &mut Guest<A>) -> (u64, u64, u64) {
        let regs = g.regs();
        match A::ID {
            ArchId::X86_64 => (regs.gpr[7], regs.gpr[6], regs.gpr[2]),
            ArchId::Arm64 => (regs.gpr[0], regs.gpr[1], regs.gpr[2]),
        }
    }

    /// What the handler's last instructions and the return code do.
    fn return_from_handler<A: Arch>(g: &mut Guest<A>) {
        match A::ID {
            ArchId::X86_64 => {
                let sp = g.regs().sp;
                assert_eq!(g.peek_u64(sp.get()), RESTORER);
                g.regs().sp = sp.wrapping_add(8);
            }
            ArchId::Arm64 => {
                let back = g.regs().gpr[30];
                let code = g.peek(back, 8);
                assert_eq!(code, [0x68, 0x11, 0x80, 0xd2, 0x01, 0x00, 0x00, 0xd4]);
            }
        }
        let info = SYSCALLS.iter().find(|s| s.name == "rt_sigreturn").expect("listed");
        let nr = info.nr(A::ID).expect("on both");
        let at = if A::ID == ArchId::X86_64 { 0 } else { 8 };
        g.regs().gpr[at] = u64::from(nr);
        let task = g.task;
        let regs = g.regs.get_mut(&task).expect("registers");
        g.last = g.kernel.syscall(task, regs, &mut g.outside);
    }

    pub(super) fn a_handler_sees_the_fault_and_returns_to_it<A: Arch>() {
        let mut g = Guest::<A>::new();
        handle(&mut g, 11, 0);
        for n in 0..31u8 {
            if A::ID == ArchId::Arm64 || n < 16 && n != 4 {
                g.regs().gpr[usize::from(n)] = 0x100 + u64::from(n);
            }
        }
        g.regs().pc = VirtAddr::new(CODE + 0x10);
        g.regs().flags = if A::ID == ArchId::X86_64 { 0x246 } else { 0x6000_0000 };
        g.regs().fp[8] = 0x7f;
        let before = g.regs().clone();
        assert_eq!(fault(&mut g, 0x123_4567), Outcome::Resume);
        assert_eq!(g.regs().pc, VirtAddr::new(HANDLER));
        let (signal, info, uc) = arguments(&mut g);
        assert_eq!(signal, 11);
        assert_eq!((g.peek_u32(info), g.peek_u32(info + 8)), (11, 1));
        assert_eq!(g.peek_u64(info + 16), 0x123_4567);
        let pc_at = if A::ID == ArchId::X86_64 { uc + 40 + 16 * 8 } else { uc + 176 + 8 + 32 * 8 };
        assert_eq!(g.peek_u64(pc_at), CODE + 0x10);
        let sp = g.regs().sp.get();
        assert_eq!(sp % 16, if A::ID == ArchId::X86_64 { 8 } else { 0 });
        // The handler skips the instruction.
        g.poke(pc_at, &(CODE + 0x14).to_le_bytes());
        g.regs().gpr[9] = 0xdead;
        g.regs().fp[8] = 0;
        return_from_handler(&mut g);
        assert_eq!(g.last, Outcome::Resume);
        let mut expected = before;
        expected.pc = VirtAddr::new(CODE + 0x14);
        expected.gpr[4] = g.regs().gpr[4];
        if A::ID == ArchId::Arm64 {
            expected.gpr[4] = 0x104;
        }
        assert_eq!(*g.regs(), expected);
        // And the signal is deliverable again.
        assert_eq!(fault(&mut g, 8), Outcome::Resume);
    }

    pub(super) fn a_handler_runs_on_its_alternate_stack<A: Arch>() {
        let mut g = Guest::<A>::new();
        let stack = g.map(0x1_0000);
        g.poke(DATA, &[stack, 0, 0x1_0000].map(u64::to_le_bytes).concat());
        assert_eq!(g.call("sigaltstack", &[DATA, 0]), 0);
        handle(&mut g, 11, 0x0800_0000);
        fault(&mut g, 8);
        let sp = g.regs().sp.get();
        assert!((stack..stack + 0x1_0000).contains(&sp), "{sp:#x}");
        assert_eq!(g.call("sigaltstack", &[0, DATA]), 0);
        assert_eq!(g.peek_u64(DATA + 8), 1);
    }

    pub(super) fn a_blocked_fault_signal_kills<A: Arch>() {
        let mut g = Guest::<A>::new();
        handle(&mut g, 11, 0);
        assert_eq!(fault(&mut g, 8), Outcome::Resume);
        // A fault in the handler of the same signal.
        assert_eq!(fault(&mut g, 8), Outcome::Exited);
        assert_eq!(g.kernel.exit_status(), Some(ExitStatus::Signaled(11)));
    }

    pub(super) fn traps_kill_with_their_signal<A: Arch>() {
        for (exception, signal) in [
            (Exception::UndefinedInstruction, 4),
            (Exception::DivideError, 8),
            (Exception::Breakpoint, 5),
            (Exception::GeneralProtection, 11),
            (Exception::Misaligned(VirtAddr::new(1)), 7),
        ] {
            let mut g = Guest::<A>::new();
            let task = g.task;
            let regs = g.regs.get_mut(&task).expect("registers");
            assert_eq!(g.kernel.exception(task, exception, regs), Outcome::Exited);
            assert_eq!(g.kernel.exit_status(), Some(ExitStatus::Signaled(signal)));
        }
    }

    pub(super) fn a_wait_is_interrupted_or_restarted_as_the_action_says<A: Arch>() {
        for (flags, restarted) in [(0, false), (0x1000_0000, true)] {
            let mut g = Guest::<A>::new();
            handle(&mut g, 10, flags);
            g.call("pipe2", &[DATA + 64, 0]);
            let parent = g.task;
            g.call("clone", &[17, 0, 0, 0, 0]);
            g.regs().pc = VirtAddr::new(CODE + 0x40);
            g.call("read", &[3, DATA, 1]);
            assert_eq!(g.last, Outcome::Reschedule);
            g.turn(CPU);
            assert_eq!(g.call("kill", &[u64::from(parent.0), 10]), 0);
            g.call("sched_yield", &[]);
            g.turn(CPU);
            assert_eq!((g.task, g.regs().pc), (parent, VirtAddr::new(HANDLER)));
            return_from_handler(&mut g);
            let len = if A::ID == ArchId::X86_64 { 2 } else { 4 };
            if restarted {
                assert_eq!(g.regs().pc, VirtAddr::new(CODE + 0x40 - len));
            } else {
                assert_eq!(g.regs().pc, VirtAddr::new(CODE + 0x40));
                assert_eq!(g.regs().ret(), EINTR);
            }
        }
    }

    pub(super) fn an_awaited_signal_is_taken_without_its_handler<A: Arch>() {
        let mut g = Guest::<A>::new();
        handle(&mut g, 10, 0);
        let set = 1u64 << 9;
        g.poke(DATA, &set.to_le_bytes());
        assert_eq!(g.call("rt_sigprocmask", &[0, DATA, 0, 8]), 0);
        let pid = u64::from(g.task.0);
        assert_eq!(g.call("tgkill", &[pid, pid, 10]), 0);
        assert_eq!(g.call("rt_sigpending", &[DATA + 8, 8]), 0);
        assert_eq!(g.peek_u64(DATA + 8), set);
        assert_eq!(g.call("rt_sigtimedwait", &[DATA, DATA + 64, 0, 8]), 10);
        assert_eq!(g.peek_u32(DATA + 64), 10);
        assert_eq!(g.call("rt_sigpending", &[DATA + 8, 8]), 0);
        assert_eq!(g.peek_u64(DATA + 8), 0);
    }

    pub(super) fn a_frame_that_cannot_be_written_kills<A: Arch>() {
        let mut g = Guest::<A>::new();
        handle(&mut g, 11, 0);
        g.regs().sp = VirtAddr::new(0x2_0000);
        assert_eq!(fault(&mut g, 8), Outcome::Exited);
        assert_eq!(g.kernel.exit_status(), Some(ExitStatus::Signaled(11)));
    }
}
