//! arm64 (AArch64): decoding and lowering to the IR.

use crate::block::{Builder, Step};
use crate::bus::Bus;
use crate::exec::{Core, Flow};
use crate::ir::Op;

/// Lowers the instruction at `pc`, whose bytes start `bytes`.
pub fn lower(b: &mut Builder, _pc: u64, bytes: &[u8]) -> Step {
    let Some(word) = bytes.first_chunk::<4>() else { return Step::Short };
    b.unsupported(format!("arm64 word {:08x}", u32::from_le_bytes(*word)));
    Step::End(4)
}

/// What [`Code::A64`](crate::ir::Code::A64) does: helper number in the `x` field.
pub fn helper<B: Bus>(_core: &mut Core<B::Fault>, _bus: &mut B, _op: &Op) -> Flow {
    Flow::Undefined
}
