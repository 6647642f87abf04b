//! Host code for hot blocks: a one-pass compiler from the IR that `cpu` interprets, for hosts that are x86-64 Unix.
//!
//! It is a short cut and nothing else: the interpreter's functions stay the definition of every op, are the slow path of every
//! memory op and of every floating-point operation that meets a NaN, and run what is not emitted. Counts are the same with
//! and without it, to the last TLB miss.
//!
//! Where things are: `asm` encodes instructions, `regs` says which guest slots are in registers, `emit` makes a
//! block, `ops` and `memory` its ops, `code` holds the bytes (written or executable, never both), `run` enters and
//! leaves them. All unsafe code is in `run`.
//!
//! The contract with the TLB model is [`mmu::hit`]; a bus offers it as [`HitBus`].

use cpu::{Bus, Native};
use mmu::HitPath;
use mmu::hit::HitShape;

#[cfg(all(target_arch = "x86_64", unix))]
mod x86_64;

/// A bus whose translations and memory native code may reach by itself.
pub trait HitBus: Bus {
    /// What its hit path is like.
    const SHAPE: HitShape;

    /// The hit path of the CPU that runs. [`Bus::load`], [`Bus::store`] and [`Bus::load_for_write`] of an access that hits
    /// must do the same as [`mmu::hit`] says, and count nothing else.
    fn hit_path(&mut self) -> HitPath<'_>;
}

/// A compiler for this host, if there is one.
pub fn native<B: HitBus + 'static>() -> Option<Box<dyn Native<B>>> {
    #[cfg(all(target_arch = "x86_64", unix))]
    return x86_64::Jit::<B>::new().map(|jit| -> Box<dyn Native<B>> { Box::new(jit) });
    #[cfg(not(all(target_arch = "x86_64", unix)))]
    None
}
