//! The compiler for x86-64 hosts.

mod asm;
mod code;
mod emit;
mod memory;
mod ops;
mod regs;
mod run;

pub(crate) use run::Jit;
