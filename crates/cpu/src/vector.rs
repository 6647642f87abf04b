//! What the vector micro-ops compute: integer and floating-point lanes, shared by both instruction sets.

#![expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "narrowing is what the ops of an instruction set do"
)]

use crate::fp::NanRule;
use crate::ir::Op;
use crate::state::CpuState;

/// Bit of the `x` field that selects arm64's NaN rules.
pub const ARM: u16 = 1 << 15;

/// The NaN rule in an `x` field.
#[inline(always)]
pub fn nan_rule(x: u16) -> NanRule {
    if x & ARM == 0 { NanRule::X86 } else { NanRule::Arm }
}

macro_rules! define_vec_op {
    ($($(#[$doc:meta])* $name:ident),* $(,)?) => {
        /// Sub-operation of [`Code::Vec`](crate::ir::Code::Vec) and its relatives, in the `x` field.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[repr(u16)]
        pub enum VecOp { $($(#[$doc])* $name),* }

        impl VecOp {
            /// All of them, in order.
            pub const ALL: &'static [VecOp] = &[$(VecOp::$name),*];
            /// From the `x` field.
            #[inline(always)]
            pub fn from_raw(x: u16) -> VecOp {
                VecOp::ALL.get(usize::from(x & !ARM)).copied().unwrap_or(VecOp::And)
            }
        }
    };
}

define_vec_op! {
    /// a & b
    And,
    /// a | b
    Or,
    /// a ^ b
    Xor,
    /// !a & b (x86 PANDN)
    AndNot,
    /// a & !b (arm64 BIC)
    Bic,
    /// a | !b (arm64 ORN)
    Orn,
}

/// The lanes of `a` and `b` combined; `old` is the destination's old value, for [`Code::VecAcc`](crate::ir::Code::VecAcc).
pub fn vec(_s: &mut CpuState, op: &Op, a: u128, b: u128, _old: u128) -> u128 {
    match VecOp::from_raw(op.x) {
        VecOp::And => a & b,
        VecOp::Or => a | b,
        VecOp::Xor => a ^ b,
        VecOp::AndNot => !a & b,
        VecOp::Bic => a & !b,
        VecOp::Orn => a | !b,
    }
}

/// Vector to integer register.
pub fn vec_to_r(_s: &mut CpuState, _op: &Op, _a: u128, _b: u128) -> u64 {
    0
}

/// Integer register to vector.
pub fn vec_from_r(_s: &mut CpuState, _op: &Op, _a: u128, _b: u64) -> u128 {
    0
}

/// Floating-point comparison into the flags.
pub fn vec_cc(_s: &mut CpuState, _op: &Op, _a: u128, _b: u128) {}
