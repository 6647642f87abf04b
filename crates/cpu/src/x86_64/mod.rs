//! x86-64: decoding and lowering to the IR.

use crate::block::{Builder, Step};
use crate::bus::Bus;
use crate::exec::{Core, Flow};
use crate::ir::Op;
use iced_x86::{Decoder, DecoderError, DecoderOptions};

/// Lowers the instruction at `pc`, whose bytes start `bytes`.
pub fn lower(b: &mut Builder, pc: u64, bytes: &[u8]) -> Step {
    let mut decoder = Decoder::with_ip(64, bytes, pc, DecoderOptions::NONE);
    let i = decoder.decode();
    match decoder.last_error() {
        DecoderError::None => {}
        DecoderError::NoMoreBytes => return Step::Short,
        _ => {
            b.undefined();
            return Step::End(1);
        }
    }
    b.unsupported(format!("{:?}", i.mnemonic()).to_lowercase());
    Step::End(i.len() as u32)
}

/// Length of the instruction at the start of `bytes`; all of them if it is not one.
pub fn length(bytes: &[u8]) -> usize {
    let mut decoder = Decoder::with_ip(64, bytes, 0, DecoderOptions::NONE);
    let i = decoder.decode();
    if decoder.last_error() == DecoderError::None { i.len() } else { bytes.len() }
}

/// What [`Code::X86`](crate::ir::Code::X86) does: helper number in the `x` field.
pub fn helper<B: Bus>(_core: &mut Core<B::Fault>, _bus: &mut B, _op: &Op) -> Flow {
    Flow::Undefined
}
