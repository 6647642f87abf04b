//! The kernel layer above `mm`: tasks, the ELF loader, files, signals and system calls, as
//! programs of both architectures see them.
//!
//! [`Kernel`] owns the [`Mm`](mm::Mm) and everything that belongs to a task but its registers:
//! those are the machine's, and are seen here through [`UserRegs`]. The machine runs guest
//! instructions and calls [`Kernel::syscall`], [`Kernel::page_fault`] or [`Kernel::exception`]
//! when they trap; what to do next is the [`Outcome`]. Which task runs on which CPU is
//! [`Kernel::schedule`]'s decision; the loop around it is the machine's.
//!
//! Which system calls exist, and how faithful each is, is data: [`SYSCALLS`]. One that is not
//! listed returns ENOSYS and is remembered ([`Kernel::unknown_syscalls`]).
//!
//! Deliberately absent: host files (the VFS is a tmpfs and pseudo-files), the network, vDSO,
//! dynamic linking, users other than root.

mod abi;
mod auxv;
mod counts;
mod creds;
mod elf;
mod errno;
mod exec;
mod fd;
mod futex;
mod host;
mod kernel;
mod load_error;
mod log;
mod pipe;
mod regs;
mod residence;
mod rng;
mod sched;
mod signal;
mod syscalls;
mod task;
#[cfg(test)]
mod tests;
mod uring;
mod user;
mod vdso;
mod vfs;

pub use counts::{CountsByScope, by_scope_on_all_cpus};
pub use elf::{Image, ImageKind, Segment};
pub use exec::{Loaded, Program};
pub use host::{Clock, Console, Host, Stream};
pub use kernel::{Kernel, KernelOptions, Outcome, Spawn, UnknownSyscall};
pub use load_error::{LoadError, LoadErrorKind};
pub use regs::UserRegs;
pub use sched::CpuMask;
pub use signal::{Exception, Signal};
pub use syscalls::{Fidelity, SYSCALLS, SyscallInfo};
pub use task::{ExitStatus, ProcessId, TaskId, TaskState};
pub use vfs::PseudoFile;
