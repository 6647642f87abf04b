//! The composition root: CPUs and MMUs under a kernel, a scheduler loop and a clock.
//!
//! [`run`] takes a program as bytes and a [`RunConfig`], and returns an [`Outcome`]: everything
//! that was counted. It reads no file and no host clock: a run is a function of its inputs. The
//! guest architecture is chosen once, here, from the program's header; below, everything is
//! generic over it.
//!
//! Kernel entries are atomic with respect to guest instructions. Tasks run in quanta of
//! [`QUANTUM`] instructions, CPU after CPU in the order of their numbers, so that counts repeat.

mod bus;
mod clock;
mod config;
mod error;
mod guest;
mod outcome;
mod regs;
pub mod walk;

pub use arch::{BreakKsm, KernelConfig, SwapApi, UnknownKernel};
pub use bus::World;
pub use clock::{FreeClock, Pricing};
pub use config::{Engine, RunConfig};
pub use error::{RunError, RunErrorKind};
pub use guest::{Emulated, Observer, QUANTUM, run, run_with};
pub use kernel::{Console, ExitStatus, LoadError, LoadErrorKind, Stream, UnknownSyscall};
pub use mm::{MthpStats, Thp, ThpSize, VmStat};
pub use mmu::{Machine, MachineError, SETTINGS, TlbStats};
pub use outcome::Outcome;
