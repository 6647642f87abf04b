//! x86-64: decoding (`iced-x86`) and lowering to the IR.
//!
//! `int` lowers the integer instructions, `sse` the vector ones, `x87` the rest of floating point; `operand` maps
//! registers and addresses; `helper` holds the instructions that are functions of the state. What CPUID
//! announces (`cpuid`) is what is here. A valid instruction that is not here ends the run by name
//! ([`Exit::Unsupported`](crate::Exit::Unsupported)). Source: Intel SDM volume 2.

mod cpuid;
mod f80;
mod helper;
mod int;
mod operand;
mod sse;
mod x87;

use crate::block::{Builder, Step};
use iced_x86::{Decoder, DecoderError, DecoderOptions};
use operand::Lower;

pub use helper::helper;
pub use x87::{FXSAVE_BYTES, fxrstor_image, fxsave_image};

/// `AT_HWCAP` for the auxiliary vector: EDX of CPUID leaf 1.
pub fn hwcap() -> u32 {
    cpuid::leaf(1, 0)[3]
}

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
    let mut l = Lower { b, i: &i };
    if let Some(step) = l.integer() {
        return step;
    }
    if let Some(step) = l.vector() {
        return step;
    }
    if let Some(step) = l.x87() {
        return step;
    }
    b.unsupported(format!("{:?}", i.mnemonic()).to_lowercase());
    Step::End(u32::try_from(i.len()).unwrap_or(1))
}

/// Length of the instruction at the start of `bytes`; all of them if it is not one.
pub fn length(bytes: &[u8]) -> usize {
    let mut decoder = Decoder::with_ip(64, bytes, 0, DecoderOptions::NONE);
    let i = decoder.decode();
    if decoder.last_error() == DecoderError::None { i.len() } else { bytes.len() }
}

/// Mnemonic of the instruction at the start of `bytes`, for messages.
pub fn mnemonic(bytes: &[u8]) -> String {
    let i = Decoder::with_ip(64, bytes, 0, DecoderOptions::NONE).decode();
    format!("{:?}", i.mnemonic()).to_lowercase()
}
