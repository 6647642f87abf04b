//! x87.

use crate::bus::Bus;
use crate::exec::{Core, Flow};
use crate::ir::Op;

/// Saves state.
pub(super) fn fxsave<B: Bus>(_core: &mut Core<B::Fault>, _bus: &mut B, _op: &Op) -> Flow {
    Flow::Unsupported
}
/// Restores state.
pub(super) fn fxrstor<B: Bus>(_core: &mut Core<B::Fault>, _bus: &mut B, _op: &Op) -> Flow {
    Flow::Unsupported
}
/// Runs one x87 instruction.
pub(super) fn execute<B: Bus>(_core: &mut Core<B::Fault>, _bus: &mut B, _op: &Op) -> Flow {
    Flow::Unsupported
}
