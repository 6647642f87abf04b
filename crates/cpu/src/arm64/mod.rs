//! arm64 (AArch64, user mode): decoding, lowering to the IR, and what EL0 can read about the CPU.
//!
//! [`decode`] turns a word into an instruction of the announced set or refuses it; `lower` turns that
//! into micro-ops; `simd` holds what the [`Code::A64`](crate::ir::Code::A64) micro-op computes, which is
//! Advanced SIMD and floating point. [`HWCAP`] and [`HWCAP2`] say to the guest what is there.
//!
//! FIDELITY: arm64-fp-environment — FPSR's exception bits are not raised, except QC, and FPCR
//! accepts only round to nearest without flushing and default NaNs; another mode ends the run as
//! unsupported.

pub mod decode;
mod features;
pub(crate) mod float;
mod lower;
mod simd;

pub(crate) use simd::lanes;

pub use features::{HWCAP, HWCAP2};

use crate::block::{Builder, Step};
use crate::bus::Bus;
use crate::exec::{Core, Flow};
use crate::ir::Op;

/// Lowers the instruction at `pc`, whose bytes start `bytes`.
pub fn lower(b: &mut Builder, pc: u64, bytes: &[u8]) -> Step {
    let Some(word) = bytes.first_chunk::<4>() else { return Step::Short };
    match decode::decode(u32::from_le_bytes(*word)) {
        Ok(insn) => lower::lower(b, pc, &insn),
        Err(_undef) => {
            b.undefined();
            Step::End(4)
        }
    }
}

/// What [`Code::A64`](crate::ir::Code::A64) does: helper number in the `x` field.
#[inline(always)]
pub fn helper<B: Bus>(core: &mut Core<B::Fault>, _bus: &mut B, op: &Op) -> Flow {
    simd::exec(&mut core.s, op)
}

#[cfg(test)]
mod tests;
