//! Tasks (threads) and processes (thread groups).

use crate::creds::Creds;
use crate::fd::FdTable;
use crate::futex::FutexKey;
use crate::pipe::PipeId;
use crate::sched::CpuMask;
use crate::signal::{Action, AltStack, Pending, SigSet};
use arch::MmId;
use std::collections::BTreeMap;
use units::{CpuId, VirtAddr};

/// A thread, by its thread id.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TaskId(pub(crate) u32);

impl TaskId {
    /// The number that `gettid()` returns.
    pub const fn get(self) -> u32 {
        self.0
    }
}

/// A thread group, by its leader's thread id.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ProcessId(pub(crate) u32);

impl ProcessId {
    /// The number that `getpid()` returns.
    pub const fn get(self) -> u32 {
        self.0
    }
}

/// How a process ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExitStatus {
    /// By `exit()` or `exit_group()`, with the low byte of its argument.
    Exited(u8),
    /// By a signal of this number.
    Signaled(u8),
}

impl ExitStatus {
    /// What a shell makes of it: the status, or 128 + signal.
    pub const fn code(self) -> i32 {
        match self {
            ExitStatus::Exited(code) => code as i32,
            ExitStatus::Signaled(signal) => 128 + signal as i32,
        }
    }

    /// What `wait4()` stores.
    pub(crate) const fn wait_status(self) -> u32 {
        match self {
            ExitStatus::Exited(code) => (code as u32) << 8,
            ExitStatus::Signaled(signal) => signal as u32,
        }
    }
}

/// What a task waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wait {
    /// Somebody to wake the futex.
    Futex(FutexKey),
    /// The other end of a pipe to move.
    Pipe(PipeId),
    /// Any of the polled files to become ready.
    Poll,
    /// A child to end.
    Child,
    /// A child that borrowed the address space to end or exec.
    Vfork(ProcessId),
    /// Time to pass.
    Sleep,
    /// A signal that is not blocked.
    Signal,
    /// One of these signals, blocked or not (`sigtimedwait`).
    SignalIn(u64),
}

impl Wait {
    /// Whether SA_RESTART restarts the call, or it ends with EINTR in any case.
    pub(crate) fn restarts(self) -> bool {
        matches!(self, Wait::Futex(_) | Wait::Pipe(_) | Wait::Child | Wait::Vfork(_))
    }
}

/// What a task does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TaskState {
    /// It runs, or waits for a CPU.
    Runnable,
    /// It waits for something in a system call.
    Blocked,
    /// It has ended.
    Dead,
}

/// What is left to do of a system call before the task may run again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Resume {
    /// It returns this.
    Return(u64),
    /// It is tried again.
    Retry,
    /// A signal ended the wait.
    Interrupted(Wait),
}

/// A thread's rseq registration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Rseq {
    pub(crate) at: VirtAddr,
    pub(crate) len: u32,
    pub(crate) signature: u32,
}

/// A thread, without its registers.
#[derive(Clone, Debug)]
pub(crate) struct Task {
    pub(crate) id: TaskId,
    pub(crate) process: ProcessId,
    pub(crate) wait: Option<Wait>,
    /// When the wait ends by itself, in ns of virtual time.
    pub(crate) deadline: Option<u64>,
    pub(crate) resume: Option<Resume>,
    pub(crate) cpu: CpuId,
    pub(crate) affinity: CpuMask,
    pub(crate) blocked: SigSet,
    /// The mask to go back to once a signal was delivered (`sigsuspend`, `ppoll`).
    pub(crate) saved_mask: Option<SigSet>,
    pub(crate) pending: Pending,
    pub(crate) altstack: AltStack,
    /// Where the task writes its id before it first runs; zero for nowhere.
    pub(crate) set_child_tid: VirtAddr,
    /// Where zero is written when it ends, and who waits there woken; zero for nowhere.
    pub(crate) clear_child_tid: VirtAddr,
    pub(crate) robust_list: VirtAddr,
    pub(crate) rseq: Option<Rseq>,
    /// The task was off its CPU since it last ran user code.
    pub(crate) rseq_stale: bool,
    /// Bits that the waker of a futex must share.
    pub(crate) futex_bits: u32,
    pub(crate) comm: [u8; 16],
}

/// Resource limits that are kept: soft and hard, by number.
#[derive(Clone, Debug)]
pub(crate) struct Rlimits(pub(crate) [(u64, u64); 16]);

impl Rlimits {
    pub(crate) const STACK: usize = 3;
    pub(crate) const NOFILE: usize = 7;
    pub(crate) const MEMLOCK: usize = 8;

    /// Linux's defaults for root. Source: include/asm-generic/resource.h `INIT_RLIMITS`.
    pub(crate) fn new(stack: u64) -> Rlimits {
        let mut limits = [(u64::MAX, u64::MAX); 16];
        limits[Rlimits::STACK] = (stack, u64::MAX);
        limits[4] = (0, u64::MAX); // CORE
        limits[6] = (4096, 4096); // NPROC
        limits[Rlimits::NOFILE] = (1024, 4096);
        limits[Rlimits::MEMLOCK] = (8 << 20, 8 << 20);
        limits[11] = (4096, 4096); // SIGPENDING
        limits[12] = (819_200, 819_200); // MSGQUEUE
        limits[13] = (0, 0); // NICE
        limits[14] = (0, 0); // RTPRIO
        Rlimits(limits)
    }
}

/// A timer that sends SIGALRM: when next, and how often after that (0: never), in ns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Itimer {
    pub(crate) at: u64,
    pub(crate) interval: u64,
}

impl Itimer {
    /// The timer once it has gone off: the next time that is still to come.
    pub(crate) fn next(self, now_ns: u64) -> Option<Itimer> {
        let missed = now_ns.saturating_sub(self.at).checked_div(self.interval)?;
        let steps = missed.saturating_add(1).saturating_mul(self.interval);
        Some(Itimer { at: self.at.saturating_add(steps), ..self })
    }
}

/// A thread group.
#[derive(Clone, Debug)]
pub(crate) struct Process {
    pub(crate) id: ProcessId,
    pub(crate) parent: ProcessId,
    /// `None` once its last thread has ended.
    pub(crate) mm: Option<MmId>,
    pub(crate) threads: Vec<TaskId>,
    pub(crate) fds: FdTable,
    pub(crate) cwd: String,
    /// Process group and session.
    pub(crate) pgid: ProcessId,
    pub(crate) sid: ProcessId,
    /// `ITIMER_REAL`.
    pub(crate) itimer: Option<Itimer>,
    pub(crate) creds: Creds,
    pub(crate) umask: u32,
    pub(crate) actions: BTreeMap<u8, Action>,
    pub(crate) pending: Pending,
    pub(crate) exit: Option<ExitStatus>,
    pub(crate) exit_signal: u8,
    pub(crate) exe: String,
    pub(crate) cmdline: Vec<u8>,
    pub(crate) rlimits: Rlimits,
    pub(crate) layout: MmLayout,
}

/// What `/proc` and `sigreturn` need to know of how the address space was set up.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct MmLayout {
    pub(crate) brk_start: VirtAddr,
    pub(crate) stack_top: VirtAddr,
    pub(crate) arg_start: VirtAddr,
    /// The vDSO's return from signal handlers; zero where the guest brings its own.
    pub(crate) sigreturn: VirtAddr,
}
