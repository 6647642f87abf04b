//! What a run yields.

use events::{ByOp, TraceLog};
use kernel::{ExitStatus, UnknownSyscall};
use mm::{MthpStats, VmStat};
use mmu::TlbStats;
use units::{ArchId, Order};

/// Everything that was counted in a run.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// The guest's architecture.
    pub arch: ArchId,
    /// How the program ended.
    pub exit: ExitStatus,
    /// Guest instructions that retired, on all CPUs.
    pub instructions: u64,
    /// Events by context and op.
    pub sink: ByOp,
    /// TLBs and walkers, all CPUs together.
    pub tlb: TlbStats,
    /// /proc/vmstat.
    pub vmstat: VmStat,
    /// Statistics of each folio size.
    pub thp: Vec<(Order, MthpStats)>,
    /// Virtual time at the end.
    pub virtual_ns: u64,
    /// What happened when, if it was to be written down.
    pub trace: Option<TraceLog>,
    /// The kernel's log.
    pub dmesg: Vec<String>,
    /// System calls that do not exist here.
    pub unknown_syscalls: Vec<UnknownSyscall>,
}
