//! The guest CPUs: decoders, one IR for both instruction sets, and the interpreters that run it.
//!
//! A guest instruction is decoded (`iced-x86`, `yaxpeax-arm`), lowered to micro-ops ([`ir`]) by
//! [`x86_64`] or [`arm64`], gathered in a block ([`block`]), and executed ([`exec`]) by [`Cpu::run`]
//! ([`engine`]). Memory is seen only through the [`Bus`] trait, so this crate knows no page tables and no
//! TLB. It leaves out privileged execution: system calls, faults and traps are exits, served by the layer above.
//!
//! Start reading at [`ir`], then [`exec`].

pub mod arm64;
pub mod block;
pub mod bus;
pub mod engine;
pub mod exec;
pub mod flags;
pub mod fp;
pub mod ir;
pub mod native;
mod opt;
pub mod regs;
pub mod state;
mod swar;
pub mod testbus;
pub mod vector;
pub mod x86_64;

pub use bus::{Bus, Scalar};
pub use engine::{Cpu, Engine, EngineStats, Exit, InsnBytes};
pub use native::Native;
pub use state::CpuState;
