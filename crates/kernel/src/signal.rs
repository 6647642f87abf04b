//! Signals: what is pending, what it does, and how a handler is entered and left.
//!
//! Frames are in `signal/x86_64.rs` and `signal/arm64.rs`. Source: Linux kernel/signal.c,
//! arch/{x86,arm64}/kernel/signal*.c, include/uapi/asm-generic/{signal,siginfo}.h.

#![deny(clippy::unwrap_used, clippy::indexing_slicing)]

mod arm64;
mod x86_64;

use crate::counts::CountsByScope;
use crate::kernel::Kernel;
use crate::regs::UserRegs;
use crate::task::{ExitStatus, ProcessId, Resume, TaskId, Wait};
use arch::{Arch, Platform};
use mm::{Errno, FaultSignal};
use std::collections::BTreeMap;
use units::{ArchId, VirtAddr};

/// A signal number, 1–64.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Signal(u8);

macro_rules! signals {
    ($($name:ident $nr:literal;)*) => {
        impl Signal {
            $(#[doc = concat!("`", stringify!($name), "`")] pub const $name: Signal = Signal($nr);)*
        }
    };
}
signals! {
    SIGILL 4;
    SIGTRAP 5;
    SIGBUS 7;
    SIGFPE 8;
    SIGKILL 9;
    SIGSEGV 11;
    SIGPIPE 13;
    SIGALRM 14;
    SIGCHLD 17;
    SIGCONT 18;
    SIGSTOP 19;
}

impl Signal {
    /// A signal of that number.
    pub(crate) fn new(nr: u64) -> Option<Signal> {
        u8::try_from(nr).ok().filter(|nr| (1..=64).contains(nr)).map(Signal)
    }
    /// The number.
    pub const fn get(self) -> u8 {
        self.0
    }
    pub(crate) const fn bit(self) -> u64 {
        1 << (self.0 - 1)
    }
    /// Whether the default action is to do nothing.
    // FIDELITY: signal-stop — job control does not exist: SIGSTOP, SIGTSTP, SIGTTIN and SIGTTOU
    // are ignored by default instead of stopping the process.
    const fn ignored_by_default(self) -> bool {
        matches!(self.0, 17..=23 | 28)
    }
}

/// A set of signals (`sigset_t`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct SigSet(pub(crate) u64);

impl SigSet {
    const UNBLOCKABLE: u64 = Signal::SIGKILL.bit() | Signal::SIGSTOP.bit();

    /// The set without those that cannot be blocked.
    pub(crate) const fn blockable(raw: u64) -> SigSet {
        SigSet(raw & !SigSet::UNBLOCKABLE)
    }
    pub(crate) const fn contains(self, signal: Signal) -> bool {
        self.0 & signal.bit() != 0
    }
}

/// `struct sigaction`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Action {
    pub(crate) handler: u64,
    pub(crate) flags: u64,
    pub(crate) restorer: u64,
    pub(crate) mask: u64,
}

impl Action {
    pub(crate) const DEFAULT: u64 = 0;
    pub(crate) const IGNORE: u64 = 1;
    const SA_ONSTACK: u64 = 0x0800_0000;
    const SA_RESTART: u64 = 0x1000_0000;
    const SA_NODEFER: u64 = 0x4000_0000;
    const SA_RESETHAND: u64 = 0x8000_0000;
    const SA_RESTORER: u64 = 0x0400_0000;
}

/// `stack_t`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct AltStack {
    pub(crate) sp: u64,
    pub(crate) size: u64,
}

impl AltStack {
    pub(crate) const ONSTACK: u32 = 1;
    pub(crate) const DISABLE: u32 = 2;

    pub(crate) fn holds(self, sp: VirtAddr) -> bool {
        self.size != 0 && sp.get().wrapping_sub(self.sp).wrapping_sub(1) < self.size
    }
    pub(crate) fn flags_at(self, sp: VirtAddr) -> u32 {
        match (self.size, self.holds(sp)) {
            (0, _) => AltStack::DISABLE,
            (_, true) => AltStack::ONSTACK,
            (_, false) => 0,
        }
    }
    /// As `stack_t`.
    pub(crate) fn to_bytes(self, sp: VirtAddr) -> [u8; 24] {
        let mut bytes = [0; 24];
        let words = [self.sp, u64::from(self.flags_at(sp)), self.size];
        for (chunk, word) in bytes.chunks_exact_mut(8).zip(words) {
            chunk.copy_from_slice(&word.to_le_bytes());
        }
        bytes
    }
}

/// What a handler is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SigInfo {
    pub(crate) signal: Signal,
    pub(crate) code: i32,
    pub(crate) about: About,
}

/// The part of `siginfo_t` that depends on the signal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum About {
    /// `si_addr`, with what the hardware says of it.
    Fault(Trap),
    /// `si_pid`.
    Sender(ProcessId),
    /// `si_pid` and `si_status`.
    Child(ProcessId, i32),
}

/// A hardware trap as `ucontext` shows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Trap {
    pub(crate) addr: VirtAddr,
    /// x86-64 vector number.
    pub(crate) vector: u64,
    /// x86-64 error code.
    pub(crate) error: u64,
    /// arm64 ESR_EL1.
    pub(crate) esr: u64,
}

pub(crate) const SI_USER: i32 = 0;
pub(crate) const SI_TKILL: i32 = -6;
pub(crate) const SI_KERNEL: i32 = 0x80;
const CLD_EXITED: i32 = 1;
const CLD_KILLED: i32 = 2;

impl SigInfo {
    pub(crate) fn child(pid: ProcessId, exit: ExitStatus) -> SigInfo {
        let (code, status) = match exit {
            ExitStatus::Exited(code) => (CLD_EXITED, i32::from(code)),
            ExitStatus::Signaled(signal) => (CLD_KILLED, i32::from(signal)),
        };
        SigInfo { signal: Signal::SIGCHLD, code, about: About::Child(pid, status) }
    }

    /// As `siginfo_t`.
    pub(crate) fn to_bytes(self) -> [u8; 128] {
        let mut bytes = Vec::with_capacity(128);
        bytes.extend(i32::from(self.signal.0).to_le_bytes());
        bytes.extend(0i32.to_le_bytes());
        bytes.extend(self.code.to_le_bytes());
        bytes.extend([0; 4]);
        match self.about {
            About::Fault(trap) => bytes.extend(trap.addr.get().to_le_bytes()),
            About::Sender(pid) => bytes.extend(u64::from(pid.get()).to_le_bytes()),
            About::Child(pid, status) => {
                bytes.extend(u64::from(pid.get()).to_le_bytes());
                bytes.extend(status.to_le_bytes());
            }
        }
        bytes.resize(128, 0);
        bytes.try_into().unwrap_or([0; 128])
    }

    fn trap(&self) -> Option<Trap> {
        match self.about {
            About::Fault(trap) => Some(trap),
            _ => None,
        }
    }
}

/// Signals that wait for delivery: at most one of each number.
// FIDELITY: signal-queue — real-time signals are not queued: a second one of the same number that
// comes before the first was delivered is lost, as for classic signals.
#[derive(Clone, Debug, Default)]
pub(crate) struct Pending(BTreeMap<Signal, SigInfo>);

impl Pending {
    fn push(&mut self, info: SigInfo) {
        self.0.entry(info.signal).or_insert(info);
    }
    pub(crate) fn set(&self) -> u64 {
        self.0.keys().fold(0, |set, signal| set | signal.bit())
    }
    fn first_outside(&self, blocked: SigSet) -> Option<Signal> {
        self.0.keys().copied().find(|&signal| !blocked.contains(signal))
    }
    fn take(&mut self, signal: Signal) -> Option<SigInfo> {
        self.0.remove(&signal)
    }
    fn forget(&mut self, signal: Signal) {
        self.0.remove(&signal);
    }
}

/// A trap of the guest's own making other than a page fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exception {
    /// An instruction that does not exist, or is not allowed to user programs.
    UndefinedInstruction,
    /// x86-64: division by zero or with overflow.
    DivideError,
    /// x86-64 `INT3`, arm64 `BRK`.
    Breakpoint,
    /// x86-64 general protection: a non-canonical address, for example.
    GeneralProtection,
    /// An access that must be aligned and is not.
    Misaligned(VirtAddr),
    /// x86-64: an unmasked floating-point exception.
    FloatingPoint,
}

impl Exception {
    fn info(self, arch: ArchId, pc: VirtAddr) -> SigInfo {
        let x86 = arch == ArchId::X86_64;
        let (signal, code, addr, vector, class) = match self {
            Exception::UndefinedInstruction => (Signal::SIGILL, if x86 { 2 } else { 1 }, pc, 6, 0),
            Exception::DivideError => (Signal::SIGFPE, 1, pc, 0, 0),
            Exception::Breakpoint if x86 => (Signal::SIGTRAP, SI_KERNEL, VirtAddr::ZERO, 3, 0),
            Exception::Breakpoint => (Signal::SIGTRAP, 1, pc, 3, 0x3c),
            Exception::GeneralProtection => (Signal::SIGSEGV, SI_KERNEL, VirtAddr::ZERO, 13, 0),
            Exception::Misaligned(va) => (Signal::SIGBUS, 1, va, 17, 0x24),
            Exception::FloatingPoint => (Signal::SIGFPE, 3, pc, 19, 0),
        };
        let trap = Trap { addr, vector, error: 0, esr: class << 26 };
        SigInfo { signal, code, about: About::Fault(trap) }
    }
}

/// `SIGSEGV` or `SIGBUS` for a page fault that `mm` could not resolve; `None` for out of memory.
pub(crate) fn fault_info(why: FaultSignal, va: VirtAddr, access: mm::Access) -> Option<SigInfo> {
    let (signal, code) = match why {
        FaultSignal::SegvMapErr => (Signal::SIGSEGV, 1),
        FaultSignal::SegvAccErr => (Signal::SIGSEGV, 2),
        FaultSignal::Bus => (Signal::SIGBUS, 2),
        FaultSignal::OutOfMemory => return None,
    };
    // x86: bit 0 protection, 1 write, 2 user, 4 fetch. arm64: EC of a lower-EL abort, WnR, a
    // level-3 fault status.
    let present = u64::from(matches!(why, FaultSignal::SegvAccErr));
    let (error, esr) = match access {
        mm::Access::Read => (4, 0x24 << 26),
        mm::Access::Write => (6, 0x24 << 26 | 0x40),
        mm::Access::Exec => (0x14, 0x20 << 26),
    };
    let status = if present == 1 { 0xf } else { 0x7 };
    let trap = Trap { addr: va, vector: 14, error: error | present, esr: esr | 1 << 25 | status };
    Some(SigInfo { signal, code, about: About::Fault(trap) })
}

/// What a handler's frame is made from.
pub(super) struct Frame<'a> {
    info: &'a SigInfo,
    action: Action,
    /// The mask that `sigreturn` goes back to.
    mask: SigSet,
    altstack: AltStack,
    /// The page with the return code, where the guest brings none.
    sigreturn: VirtAddr,
}

impl Frame<'_> {
    /// Where the frame's stack starts: the alternate stack if asked for and not in use.
    fn stack(&self, sp: VirtAddr, red_zone: u64) -> u64 {
        let wants_alt = self.action.flags & Action::SA_ONSTACK != 0 && self.altstack.size != 0;
        if wants_alt && !self.altstack.holds(sp) {
            return self.altstack.sp.wrapping_add(self.altstack.size);
        }
        sp.get().wrapping_sub(red_zone)
    }
}

impl<P: Platform> Kernel<P>
where
    P::Sink: CountsByScope,
{
    /// Sends a signal to one thread.
    pub(crate) fn signal_task(&mut self, task: TaskId, info: SigInfo) {
        let process = self.task(task).process;
        if self.discards(process, info.signal) {
            return;
        }
        self.task_mut(task).pending.push(info);
        self.interrupt(task, info.signal);
    }

    /// Sends a signal to a process: any thread that does not block it takes it.
    pub(crate) fn signal_process(&mut self, process: ProcessId, info: SigInfo) {
        if self.discards(process, info.signal) {
            return;
        }
        let Some(target) = self.processes.get_mut(&process) else { return };
        target.pending.push(info);
        let threads = target.threads.clone();
        let ready = |t: &&TaskId| self.takes(**t, info.signal);
        if let Some(&task) = threads.iter().find(ready) {
            self.interrupt(task, info.signal);
        }
    }

    /// Whether a thread sees to a signal: it does not block it, or waits for it.
    fn takes(&self, task: TaskId, signal: Signal) -> bool {
        let it = self.task(task);
        let awaited = matches!(it.wait, Some(Wait::SignalIn(set)) if set & signal.bit() != 0);
        awaited || !it.blocked.contains(signal)
    }

    fn action(&self, process: ProcessId, signal: Signal) -> Action {
        let process = self.processes.get(&process);
        process.and_then(|p| p.actions.get(&signal.0)).copied().unwrap_or_default()
    }

    fn discards(&self, process: ProcessId, signal: Signal) -> bool {
        match self.action(process, signal).handler {
            Action::IGNORE => true,
            Action::DEFAULT => signal.ignored_by_default(),
            _ => false,
        }
    }

    /// Ends the wait of a task that has a signal to see to.
    fn interrupt(&mut self, task: TaskId, signal: Signal) {
        let it = self.task(task);
        match it.wait {
            Some(Wait::SignalIn(set)) if set & signal.bit() != 0 => self.wake(task, Resume::Retry),
            Some(Wait::Vfork(_)) if signal != Signal::SIGKILL => {}
            Some(wait) if !it.blocked.contains(signal) => {
                self.wake(task, Resume::Interrupted(wait));
            }
            _ => {}
        }
    }

    /// Whether a signal waits that the task does not block.
    pub(crate) fn signal_pending(&self, task: TaskId) -> bool {
        self.next_signal(task).is_some()
    }

    fn next_signal(&self, task: TaskId) -> Option<Signal> {
        let it = self.task(task);
        let own = it.pending.first_outside(it.blocked);
        let shared = self.process_of(task).pending.first_outside(it.blocked);
        match (own, shared) {
            (Some(a), Some(b)) => Some(a.min(b)),
            (a, b) => a.or(b),
        }
    }

    /// Sets a task up for a signal that it cannot escape: one of its own making.
    /// Source: Linux kernel/signal.c `force_sig_info_to_task()`.
    pub(crate) fn force_signal(&mut self, task: TaskId, info: SigInfo) {
        let process = self.task(task).process;
        let ignored = self.action(process, info.signal).handler == Action::IGNORE;
        let blocked = self.task(task).blocked.contains(info.signal);
        if (ignored || blocked)
            && let Some(process) = self.processes.get_mut(&process)
        {
            process.actions.remove(&info.signal.0);
        }
        let it = self.task_mut(task);
        it.blocked.0 &= !info.signal.bit();
        it.pending.push(info);
    }

    pub(crate) fn exception_info(&self, exception: Exception, pc: VirtAddr) -> SigInfo {
        exception.info(P::Arch::ID, pc)
    }

    /// Whether the signal that interrupted a wait lets the call be made again.
    pub(crate) fn restarts_call(&self, task: TaskId, wait: Wait) -> bool {
        let Some(signal) = self.next_signal(task) else { return true };
        let action = self.action(self.task(task).process, signal);
        action.handler <= Action::IGNORE
            || wait.restarts() && action.flags & Action::SA_RESTART != 0
    }

    /// Delivers what is pending: enters handlers, or ends the process. Whether the task lives.
    pub(crate) fn deliver_signals(&mut self, task: TaskId, regs: &mut dyn UserRegs) -> bool {
        while let Some(signal) = self.next_signal(task) {
            let Some(info) = self.dequeue(task, signal) else { continue };
            let process = self.task(task).process;
            let action = self.action(process, signal);
            match action.handler {
                Action::IGNORE => {}
                Action::DEFAULT if signal.ignored_by_default() => {}
                Action::DEFAULT => {
                    self.exit_group(process, ExitStatus::Signaled(signal.0));
                    return false;
                }
                _ => {
                    if self.enter_handler(task, regs, &info, action).is_err() {
                        let status = ExitStatus::Signaled(Signal::SIGSEGV.0);
                        self.exit_group(process, status);
                        return false;
                    }
                }
            }
        }
        if let Some(mask) = self.task_mut(task).saved_mask.take() {
            self.task_mut(task).blocked = mask;
        }
        true
    }

    fn dequeue(&mut self, task: TaskId, signal: Signal) -> Option<SigInfo> {
        let own = self.task_mut(task).pending.take(signal);
        own.or_else(|| self.process_of_mut(task).pending.take(signal))
    }

    /// Takes a pending signal out of `set`, for `sigtimedwait()`.
    pub(crate) fn take_pending(&mut self, task: TaskId, set: u64) -> Option<SigInfo> {
        let pending = (self.task(task).pending.set() | self.process_of(task).pending.set()) & set;
        let signal = Signal::new(u64::from(pending.trailing_zeros()) + 1)?;
        self.dequeue(task, signal)
    }

    fn enter_handler(
        &mut self,
        task: TaskId,
        regs: &mut dyn UserRegs,
        info: &SigInfo,
        action: Action,
    ) -> Result<(), Errno> {
        let it = self.task_mut(task);
        let mask = it.saved_mask.take().unwrap_or(it.blocked);
        let altstack = it.altstack;
        let sigreturn = self.process_of(task).layout.sigreturn;
        let frame = Frame { info, action, mask, altstack, sigreturn };
        match P::Arch::ID {
            ArchId::X86_64 => x86_64::setup(self, task, regs, &frame)?,
            ArchId::Arm64 => arm64::setup(self, task, regs, &frame)?,
        }
        let it = self.task_mut(task);
        it.blocked = SigSet::blockable(it.blocked.0 | action.mask);
        if action.flags & Action::SA_NODEFER == 0 {
            it.blocked.0 |= info.signal.bit();
        }
        if action.flags & Action::SA_RESETHAND != 0 {
            self.process_of_mut(task).actions.remove(&info.signal.0);
        }
        Ok(())
    }

    /// `rt_sigreturn()`: goes back to what the handler interrupted.
    pub(crate) fn sigreturn(&mut self, task: TaskId, regs: &mut dyn UserRegs) -> Result<(), Errno> {
        let (mask, altstack) = match P::Arch::ID {
            ArchId::X86_64 => x86_64::restore(self, task, regs)?,
            ArchId::Arm64 => arm64::restore(self, task, regs)?,
        };
        let it = self.task_mut(task);
        it.blocked = SigSet::blockable(mask);
        if let Some(altstack) = altstack {
            it.altstack = altstack;
        }
        Ok(())
    }

    /// Forgets pending signals that the new action ignores.
    pub(crate) fn drop_ignored(&mut self, process: ProcessId, signal: Signal) {
        if !self.discards(process, signal) {
            return;
        }
        let Some(it) = self.processes.get_mut(&process) else { return };
        it.pending.forget(signal);
        for thread in it.threads.clone() {
            self.task_mut(thread).pending.forget(signal);
        }
    }
}

/// A frame as a row of little-endian words.
#[derive(Default)]
struct Words(Vec<u8>);

impl Words {
    fn push(&mut self, word: u64) {
        self.0.extend(word.to_le_bytes());
    }
    fn bytes(&mut self, bytes: &[u8]) {
        self.0.extend(bytes);
    }
    fn pad_to(&mut self, len: usize) {
        self.0.resize(len, 0);
    }
}

/// Word at byte `at` of a frame that was read back.
fn word(bytes: &[u8], at: usize) -> u64 {
    bytes
        .get(at..)
        .and_then(|rest| rest.first_chunk())
        .map_or(0, |chunk| u64::from_le_bytes(*chunk))
}

/// The alternate stack in a `stack_t` of a frame, if it may be set.
fn altstack_from(bytes: &[u8], at: usize) -> Option<AltStack> {
    let (sp, flags, size) = (word(bytes, at), word(bytes, at + 8), word(bytes, at + 16));
    let disabled = flags & u64::from(AltStack::DISABLE) != 0;
    Some(if disabled { AltStack::default() } else { AltStack { sp, size } })
}
