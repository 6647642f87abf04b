//! What the arm64 micro-op computes: Advanced SIMD and scalar floating point, and the few system
//! registers that need more than a move.
//!
//! The `x` field of the op is an [`A64Op`] with a lane size, a `Q` bit and a scalar bit (see
//! [`lane_op`]); `imm` is said at each. A result narrower than 128 bits clears the rest of its
//! register, as the architecture does.
//!
//! Source: Arm DDI 0487, "A64 – Advanced SIMD and Floating-point Instruction Descriptions".
#![expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "narrowing lanes is what these instructions do"
)]

mod crypto;
mod fp_lanes;
pub(crate) mod lanes;

use crate::arm64::float::{self, Float, Round, Sign};
use crate::exec::Flow;
use crate::flags;
use crate::ir::{CcKind, Code, Cond, Op};
use crate::state::CpuState;
use lanes::{Lane, Read, build, by_size, get, map1, map2, map3, mask, saturate, splat};

/// Position of the lane size in the `x` field.
const SIZE_AT: u16 = 10;
/// The `Q` bit in the `x` field: 128-bit vectors, or the upper half of a source.
pub(crate) const Q: u16 = 1 << 12;
/// The scalar bit in the `x` field: one lane.
const SCALAR: u16 = 1 << 13;
/// FPSR: cumulative saturation.
const FPSR_QC: u32 = 1 << 27;
/// FPSR bits that can be written.
const FPSR_MASK: u64 = 0xf800_009f;
/// FPCR bits that change results: AHP, DN, FZ, RMode, FZ16.
const FPCR_MODES: u64 = 0x07c8_0000;

macro_rules! define_ops {
    ($($(#[$doc:meta])* $name:ident),* $(,)?) => {
        /// Sub-operation of [`Code::A64`], in the low bits of `x`. Named as the instructions; where one is left
        /// out the name says what it does.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[repr(u16)]
        pub(crate) enum A64Op { $($(#[$doc])* $name),* }

        const ALL: &[A64Op] = &[$(A64Op::$name),*];
    };
}

define_ops! {
    // System registers.
    ReadFpcr, ReadFpsr, WriteFpcr, WriteFpsr,
    // Moves and permutations. Lane numbers in imm.
    /// Low bits of va, by size.
    Low,
    /// Every lane = integer a.
    DupR,
    /// Every lane = lane imm of va.
    DupLane,
    /// Lane imm bits 7–4 of vd = lane imm bits 3–0 of va.
    InsLane,
    /// imm registers from va on, interleaved into temporaries from vd on.
    Interleave,
    /// imm temporaries from va on, deinterleaved into registers from vd on.
    Deinterleave,
    Ext, Zip1, Zip2, Uzp1, Uzp2, Trn1, Trn2, Rev16, Rev32, Rev64,
    /// Table of imm registers from va on, indices vb; others zero.
    Tbl,
    /// As Tbl; others keep vd.
    Tbx,
    // Bitwise.
    And, Bic, Orr, Orn, Eor, Bsl, Bit, Bif, Not,
    /// vd | imm in both halves
    OrrI,
    /// vd & !imm in both halves
    BicI,
    // Integer, three registers of the same type.
    Add, Sub, Mul, Mla, Mls, Pmul, Cmeq, Cmtst, Cmgt, Cmge, Cmhi, Cmhs,
    Smax, Umax, Smin, Umin, Smaxp, Umaxp, Sminp, Uminp, Addp, Sabd, Uabd, Saba, Uaba,
    Shadd, Uhadd, Srhadd, Urhadd, Shsub, Uhsub, Sqadd, Uqadd, Sqsub, Uqsub,
    Sshl, Ushl, Srshl, Urshl, Sqshl, Uqshl, Sqrshl, Uqrshl, Sqdmulh, Sqrdmulh,
    // Integer, two registers.
    Cmgt0, Cmge0, Cmeq0, Cmle0, Cmlt0, Abs, Neg, Sqabs, Sqneg, Cls, Clz, Cnt, Rbit, Suqadd, Usqadd,
    Saddlp, Uaddlp, Sadalp, Uadalp, Xtn, Sqxtn, Uqxtn, Sqxtun, Shll,
    // Integer, widening and narrowing.
    Saddl, Uaddl, Saddw, Uaddw, Ssubl, Usubl, Ssubw, Usubw, Addhn, Raddhn, Subhn, Rsubhn,
    Sabal, Uabal, Sabdl, Uabdl, Smull, Umull, Smlal, Umlal, Smlsl, Umlsl,
    Sqdmull, Sqdmlal, Sqdmlsl, Pmull,
    // Reductions.
    Addv, Saddlv, Uaddlv, Smaxv, Umaxv, Sminv, Uminv,
    // Shifts by imm.
    Sshr, Ushr, Ssra, Usra, Srshr, Urshr, Srsra, Ursra, Shl, Sri, Sli, SqshlI, UqshlI, Sqshlu,
    Shrn, Rshrn, Sqshrn, Sqrshrn, Uqshrn, Uqrshrn, Sqshrun, Sqrshrun, Sshll, Ushll,
    // Floating point, lanes or scalar.
    Fadd, Fsub, Fmul, Fdiv, Fmax, Fmin, Fmaxnm, Fminnm, Fmulx, Fnmul, Fabd, Frecps, Frsqrts,
    Fmla, Fmls, Faddp, Fmaxp, Fminp, Fmaxnmp, Fminnmp,
    Fcmeq, Fcmge, Fcmgt, Facge, Facgt, Fcmeq0, Fcmge0, Fcmgt0, Fcmle0, Fcmlt0,
    Fabs, Fneg, Fsqrt, Frintn, Frintp, Frintm, Frintz, Frinta, Frecpe, Frsqrte, Frecpx,
    Urecpe, Ursqrte, Fcvtl, Fcvtn, Fcvtxn, FcvtlH, FcvtnH,
    Fmaxv, Fminv, Fmaxnmv, Fminnmv,
    // Conversions in vector registers, fractional bits in imm.
    FcvtnsV, FcvtnuV, FcvtpsV, FcvtpuV, FcvtmsV, FcvtmuV, FcvtzsV, FcvtzuV, FcvtasV, FcvtauV,
    ScvtfV, UcvtfV,
    // Conversions between integer registers (W, or X with the Q bit) and scalars.
    FcvtnsR, FcvtnuR, FcvtpsR, FcvtpuR, FcvtmsR, FcvtmuR, FcvtzsR, FcvtzuR, FcvtasR, FcvtauR,
    ScvtfR, UcvtfR,
    // Cryptography; CRC-32 on integer registers, imm = log2 of the bytes, 4 more for the Castagnoli polynomial.
    Aese, Aesd, Aesmc, Aesimc, Sha1c, Sha1p, Sha1m, Sha1h, Sha1su0, Sha1su1,
    Sha256h, Sha256h2, Sha256su0, Sha256su1, Pmull64, Crc32,
    // Scalar only. The third source is c.
    Fnmadd, Fnmsub,
    /// Flags from va and zero.
    Fcmp,
    /// Flags from va and vb if condition c holds, else NZCV = imm.
    Fccmp,
    /// va if condition c holds, else vb.
    Fcsel,
    FcvtSD, FcvtDS, FcvtHS, FcvtHD, FcvtSH, FcvtDH,
}

impl A64Op {
    /// The micro-op, with neither size nor `Q`.
    pub(crate) const fn op(self) -> Op {
        Op::new(Code::A64).x(self as u16)
    }

    #[inline(always)]
    fn from_raw(x: u16) -> A64Op {
        ALL.get(usize::from(x & 0x3ff)).copied().unwrap_or(A64Op::ReadFpcr)
    }
}

/// The micro-op on lanes of `8 << size` bits, in 128 bits if `q`.
///
/// Frequent ones have a code of their own, whose `c` says whether the high half is cleared.
pub(crate) const fn lane_op(op: A64Op, size: u8, q: bool) -> Op {
    if let Some(code) = direct(op, size) {
        let mut op = Op::new(code);
        op.c = if q { 0 } else { 1 };
        return op;
    }
    if let Some(code) = lengthening(op, size) {
        return Op::new(code).x(q as u16);
    }
    match (op, size, q) {
        (A64Op::Umaxp, 0, true) => return Op::new(Code::VUmaxp8),
        (A64Op::Addp, 0, true) => return Op::new(Code::VAddp8),
        (A64Op::Shrn, 0, false) => return Op::new(Code::VShrn8),
        _ => {}
    }
    let q = if q { Q } else { 0 };
    Op::new(Code::A64).x(op as u16 | (size as u16 & 3) << SIZE_AT | q)
}

/// The micro-op on one lane of `8 << size` bits.
pub(crate) const fn scalar_op(op: A64Op, size: u8) -> Op {
    Op::new(Code::A64).x(op as u16 | (size as u16 & 3) << SIZE_AT | SCALAR)
}

/// The micro-op of its own that does the same as `op` on vectors, where frequent ones have one.
const fn direct(op: A64Op, size: u8) -> Option<Code> {
    use A64Op as O;
    Some(match (op, size) {
        (O::And, _) => Code::VAnd,
        (O::Orr, _) => Code::VOr,
        (O::Eor, _) => Code::VXor,
        (O::Bic, _) => Code::VBic,
        (O::Bsl, _) => Code::VBsl,
        (O::Bit, _) => Code::VBit,
        (O::Bif, _) => Code::VBif,
        (O::Add, 0) => Code::VAdd8,
        (O::Add, 1) => Code::VAdd16,
        (O::Add, 2) => Code::VAdd32,
        (O::Add, 3) => Code::VAdd64,
        (O::Sub, 0) => Code::VSub8,
        (O::Sub, 1) => Code::VSub16,
        (O::Sub, 2) => Code::VSub32,
        (O::Sub, 3) => Code::VSub64,
        (O::Mul, 1) => Code::VMul16,
        (O::Mul, 2) => Code::VMul32,
        (O::Cmeq, 0) => Code::VCmeq8,
        (O::Cmeq, 1) => Code::VCmeq16,
        (O::Cmeq, 2) => Code::VCmeq32,
        (O::Cmeq0, 0) => Code::VCmeqZ8,
        (O::Cmhi, 0) => Code::VCmhi8,
        (O::Cmhs, 0) => Code::VCmhs8,
        (O::Umax, 0) => Code::VUmax8,
        (O::Umin, 0) => Code::VUmin8,
        (O::Shl, 1) => Code::VShlI16,
        (O::Shl, 2) => Code::VShlI32,
        (O::Shl, 3) => Code::VShlI64,
        (O::Ushr, 0) => Code::VShrI8,
        (O::Ushr, 1) => Code::VShrI16,
        (O::Ushr, 2) => Code::VShrI32,
        (O::Ushr, 3) => Code::VShrI64,
        (O::Sshr, 1) => Code::VSarI16,
        (O::Sshr, 2) => Code::VSarI32,
        (O::DupR, 0) => Code::VDup8,
        (O::DupR, 2) => Code::VDup32,
        (O::DupR, 3) => Code::VDup64,
        (O::Fadd, 2) => Code::VFAdd32,
        (O::Fadd, 3) => Code::VFAdd64,
        (O::Fsub, 2) => Code::VFSub32,
        (O::Fsub, 3) => Code::VFSub64,
        (O::Fmul, 2) => Code::VFMul32,
        (O::Fmul, 3) => Code::VFMul64,
        (O::Fmla, 2) => Code::VFMla32,
        (O::Fmla, 3) => Code::VFMla64,
        _ => return None,
    })
}

/// The micro-op of its own that lengthens one half of a vector: `SSHLL`, `USHLL`.
const fn lengthening(op: A64Op, size: u8) -> Option<Code> {
    Some(match (op, size) {
        (A64Op::Ushll | A64Op::Shll, 0) => Code::VUshll8,
        (A64Op::Ushll | A64Op::Shll, 1) => Code::VUshll16,
        (A64Op::Ushll | A64Op::Shll, 2) => Code::VUshll32,
        (A64Op::Sshll, 0) => Code::VSshll8,
        (A64Op::Sshll, 1) => Code::VSshll16,
        (A64Op::Sshll, 2) => Code::VSshll32,
        _ => return None,
    })
}

/// The bits of a register that take part.
#[inline(always)]
const fn active(size: u8, x: u16) -> u128 {
    if x & SCALAR != 0 {
        u128::MAX >> (128 - (8 << size))
    } else if x & Q != 0 {
        u128::MAX
    } else {
        u64::MAX as u128
    }
}

/// A lane operation as a function of its own, so that [`exec`] keeps a small frame.
macro_rules! one {
    ($t:ident, $size:expr, $a:expr, $f:expr) => {{
        #[inline(never)]
        fn lanes(size: u8, a: u128) -> u128 {
            by_size!(size, $t => map1::<$t>(a, $f))
        }
        lanes($size, $a)
    }};
}
macro_rules! two {
    ($t:ident, $size:expr, $a:expr, $b:expr, $f:expr) => {{
        #[inline(never)]
        fn lanes(size: u8, a: u128, b: u128) -> u128 {
            by_size!(size, $t => map2::<$t>(a, b, $f))
        }
        lanes($size, $a, $b)
    }};
}
macro_rules! three {
    ($t:ident, $size:expr, $c:expr, $a:expr, $b:expr, $f:expr) => {{
        #[inline(never)]
        fn lanes(size: u8, c: u128, a: u128, b: u128) -> u128 {
            by_size!(size, $t => map3::<$t>(c, a, b, $f))
        }
        lanes($size, $c, $a, $b)
    }};
}
macro_rules! pairwise {
    ($t:ident, $size:expr, $a:expr, $b:expr, $q:expr, $f:expr) => {{
        #[inline(never)]
        fn lanes(size: u8, a: u128, b: u128, q: bool) -> u128 {
            by_size!(size, $t => pairs::<$t>(a, b, q, $f))
        }
        lanes($size, $a, $b, $q)
    }};
}

/// What an op works on.
#[derive(Clone, Copy)]
struct Source {
    id: A64Op,
    size: u8,
    q: bool,
    scalar: bool,
    /// The bits of a register that take part.
    live: u128,
    a: u128,
    b: u128,
    /// The destination's old value.
    d: u128,
    imm: i64,
}

impl Source {
    #[inline(always)]
    fn of(s: &CpuState, op: &Op) -> Source {
        let size = (op.x >> SIZE_AT & 3) as u8;
        Source {
            id: A64Op::from_raw(op.x),
            size,
            q: op.x & Q != 0,
            scalar: op.x & SCALAR != 0,
            live: active(size, op.x),
            a: s.v[usize::from(op.a & 127)],
            b: s.v[usize::from(op.b & 127)],
            d: s.v[usize::from(op.d & 127)],
            imm: op.imm,
        }
    }

    /// The halves of `a` and `b` that a lengthening op takes: with `Q` the high ones.
    fn halves(&self) -> (u128, u128) {
        if self.q { (self.a >> 64, self.b >> 64) } else { (self.a, self.b) }
    }
}

/// Executes the op. The ops are grouped in the order of [`A64Op`].
pub(crate) fn exec(s: &mut CpuState, op: &Op) -> Flow {
    use A64Op as O;
    let x = Source::of(s, op);
    let up_to = |last: A64Op| x.id as u16 <= last as u16;
    if up_to(O::WriteFpsr) {
        return system(s, op, x.id);
    }
    let value = match x.id {
        O::Interleave | O::Deinterleave => return structure(s, op, x.id, x.size),
        O::DupR => splat(x.size, s.r[usize::from(op.a)]),
        O::Tbl => table(s, op, x.b, 0),
        O::Tbx => table(s, op, x.b, x.d),
        _ if up_to(O::Tbx) => moved(&x),
        _ if up_to(O::BicI) => bitwise(&x),
        _ if up_to(O::Uaba) => same_size(&x),
        _ if up_to(O::Usqadd) => same_size_special(s, &x),
        O::Saddlp | O::Uaddlp | O::Sadalp | O::Uadalp => add_long_pairs(x.id, x.size, x.a, x.d),
        _ if up_to(O::Uminv) => return resized(s, op, &x),
        _ if up_to(O::Sli) => shift_by_immediate(x.id, x.size, x.a, x.d, x.imm as u32),
        _ if up_to(O::Sqshlu) => saturating_shift(s, x.id, x.size, x.a & x.live, x.imm as u32),
        _ if up_to(O::Ushll) => return resized(s, op, &x),
        _ => return floating(s, op, x.id, x.size),
    };
    s.v[usize::from(op.d & 127)] = value & x.live;
    Flow::Next
}

/// FPCR and FPSR.
#[inline(never)]
fn system(s: &mut CpuState, op: &Op, id: A64Op) -> Flow {
    match id {
        A64Op::ReadFpcr => to_r(s, op, u64::from(s.fpcr)),
        A64Op::ReadFpsr => to_r(s, op, u64::from(s.fpsr)),
        A64Op::WriteFpcr => write_fpcr(s, op),
        _ => {
            s.fpsr = (s.r[usize::from(op.a)] & FPSR_MASK) as u32;
            Flow::Next
        }
    }
}

/// Moves and permutations.
#[inline(never)]
fn moved(x: &Source) -> u128 {
    use A64Op as O;
    let Source { id, size, q, live, a, b, d, imm, .. } = *x;
    match id {
        O::Low => a,
        O::DupLane => {
            let shift = (imm as u32 & 15) << (size + 3);
            splat(size, (a >> (shift & 127)) as u64)
        }
        O::InsLane => {
            let bits = 8u32 << size;
            let (to, from) = ((imm >> 4) as u32 * bits, (imm & 15) as u32 * bits);
            let lane = u128::MAX >> (128 - bits);
            let value = a >> (from & 127) & lane;
            d & !(lane << (to & 127)) | value << (to & 127)
        }
        O::Ext => {
            let n = imm as u32 * 8;
            let (low, high) = if q { (a, b) } else { (a & live, 0) };
            let joined = if q { low } else { low | (b & live) << 64 };
            if n == 0 {
                joined
            } else if q {
                low >> n | high << (128 - n)
            } else {
                joined >> n
            }
        }
        O::Rev16 => map1::<u16>(a, u16::swap_bytes),
        O::Rev32 if size == 0 => map1::<u32>(a, u32::swap_bytes),
        O::Rev32 => map1::<u32>(a, |x| x.rotate_left(16)),
        O::Rev64 => match size {
            0 => map1::<u64>(a, u64::swap_bytes),
            1 => map1::<u64>(a, |x| {
                ((x & 0xffff) << 48) | ((x & 0xffff_0000) << 16) | (x >> 16 & 0xffff_0000) | x >> 48
            }),
            _ => map1::<u64>(a, |x| x.rotate_left(32)),
        },
        _ => permute(id, size, q, a, b),
    }
}

#[inline(never)]
fn bitwise(x: &Source) -> u128 {
    use A64Op as O;
    let Source { a, b, d, imm, .. } = *x;
    match x.id {
        O::And => a & b,
        O::Bic => a & !b,
        O::Orr => a | b,
        O::Orn => a | !b,
        O::Eor => a ^ b,
        O::Bsl => (d & a) | (!d & b),
        O::Bit => (d & !b) | (a & b),
        O::Bif => (d & b) | (a & !b),
        O::Not => !a,
        O::OrrI => d | twice(imm),
        _ => d & !twice(imm),
    }
}

/// Three registers with lanes of one size.
#[inline(never)]
fn same_size(x: &Source) -> u128 {
    use A64Op as O;
    let Source { id, size, q, a, b, d, .. } = *x;
    match id {
        O::Add => two!(T, size, a, b, <T as Lane>::wrapping_add),
        O::Sub => two!(T, size, a, b, <T as Lane>::wrapping_sub),
        O::Mul => two!(T, size, a, b, <T as Lane>::wrapping_mul),
        O::Mla => {
            three!(T, size, d, a, b, |c, x, y| c.wrapping_add(x.wrapping_mul(y)))
        }
        O::Mls => {
            three!(T, size, d, a, b, |c, x, y| c.wrapping_sub(x.wrapping_mul(y)))
        }
        O::Pmul => map2::<u8>(a, b, |x, y| polynomial(u64::from(x), u64::from(y)) as u8),
        O::Cmeq => two!(T, size, a, b, |x, y| mask(x == y)),
        O::Cmtst => two!(T, size, a, b, |x, y| mask(x.and(y) != T::ZERO)),
        O::Cmgt => two!(T, size, a, b, |x, y| mask(x.signed() > y.signed())),
        O::Cmge => two!(T, size, a, b, |x, y| mask(x.signed() >= y.signed())),
        O::Cmhi => two!(T, size, a, b, |x, y| mask(x > y)),
        O::Cmhs => two!(T, size, a, b, |x, y| mask(x >= y)),
        O::Smax => {
            two!(T, size, a, b, |x, y| if x.signed() > y.signed() { x } else { y })
        }
        O::Smin => {
            two!(T, size, a, b, |x, y| if x.signed() < y.signed() { x } else { y })
        }
        O::Umax => two!(T, size, a, b, Ord::max),
        O::Umin => two!(T, size, a, b, Ord::min),
        O::Smaxp => {
            pairwise!(T, size, a, b, q, |x, y| if x.signed() > y.signed() { x } else { y })
        }
        O::Sminp => {
            pairwise!(T, size, a, b, q, |x, y| if x.signed() < y.signed() { x } else { y })
        }
        O::Umaxp => pairwise!(T, size, a, b, q, Ord::max),
        O::Uminp => pairwise!(T, size, a, b, q, Ord::min),
        O::Addp if x.scalar => u128::from((a as u64).wrapping_add((a >> 64) as u64)),
        O::Addp => pairwise!(T, size, a, b, q, <T as Lane>::wrapping_add),
        O::Sabd => {
            two!(T, size, a, b, |x, y| T::wrap((x.wide_s() - y.wide_s()).abs()))
        }
        O::Uabd => {
            two!(T, size, a, b, |x, y| T::wrap((x.wide_u() - y.wide_u()).abs()))
        }
        O::Saba => {
            three!(T, size, d, a, b, |c, x, y| T::wrap(
                c.wide_u() + (x.wide_s() - y.wide_s()).abs()
            ))
        }
        O::Uaba => {
            three!(T, size, d, a, b, |c, x, y| T::wrap(
                c.wide_u() + (x.wide_u() - y.wide_u()).abs()
            ))
        }
        _ => 0,
    }
}

/// Lanes of one size: halving, saturating, register shifts, and two-register forms.
#[inline(never)]
fn same_size_special(s: &mut CpuState, x: &Source) -> u128 {
    use A64Op as O;
    let Source { id, size, live, a, b, d, .. } = *x;
    match id {
        O::Cmgt0 => one!(T, size, a, |x| mask(x.wide_s() > 0)),
        O::Cmge0 => one!(T, size, a, |x| mask(x.wide_s() >= 0)),
        O::Cmeq0 => one!(T, size, a, |x| mask(x == T::ZERO)),
        O::Cmle0 => one!(T, size, a, |x| mask(x.wide_s() <= 0)),
        O::Cmlt0 => one!(T, size, a, |x| mask(x.wide_s() < 0)),
        O::Shadd | O::Uhadd => halving(read(id == O::Shadd), size, a, b, |x, y| (x + y) >> 1),
        O::Srhadd | O::Urhadd => {
            halving(read(id == O::Srhadd), size, a, b, |x, y| (x + y + 1) >> 1)
        }
        O::Shsub | O::Uhsub => halving(read(id == O::Shsub), size, a, b, |x, y| (x - y) >> 1),
        O::Abs => one!(T, size, a, |x| T::wrap(x.wide_s().abs())),
        O::Neg => one!(T, size, a, |x| T::ZERO.wrapping_sub(x)),
        O::Cls => one!(T, size, a, |x| T::wrap(i128::from(x.leading_signs()))),
        O::Clz => {
            one!(T, size, a, |x| T::wrap(i128::from(<T as Lane>::leading_zeros(x))))
        }
        O::Cnt => map1::<u8>(a, |x| x.count_ones() as u8),
        O::Rbit => map1::<u8>(a, u8::reverse_bits),
        O::Sshl | O::Ushl | O::Srshl | O::Urshl | O::Sqshl | O::Uqshl | O::Sqrshl | O::Uqrshl => {
            shift_by_register(s, id, size, a & live, b & live)
        }
        _ => saturating(s, id, size, a & live, b & live, d & live),
    }
}

/// Lengthening, narrowing and reductions.
#[inline(never)]
fn resized(s: &mut CpuState, op: &Op, x: &Source) -> Flow {
    use A64Op as O;
    let Source { id, size, q, a, b, d, .. } = *x;
    let (low_a, low_b) = x.halves();
    let value = match id {
        O::Addhn | O::Raddhn | O::Subhn | O::Rsubhn => return narrow_high(s, op, id, size, a, b),
        O::Saddw | O::Uaddw | O::Ssubw | O::Usubw => widening(id, size, a, low_b, d, x.imm),
        O::Sqdmull | O::Sqdmlal | O::Sqdmlsl => doubling(s, id, size, low_a, low_b, d, x.scalar),
        O::Pmull => build(|i| {
            polynomial(u64::from(get::<u8>(low_a, i)), u64::from(get::<u8>(low_b, i))) as u16
        }),
        O::Addv | O::Saddlv | O::Uaddlv | O::Smaxv | O::Umaxv | O::Sminv | O::Uminv => {
            reduce(id, size, q, a)
        }
        O::Xtn | O::Sqxtn | O::Uqxtn | O::Sqxtun => return narrow(s, op, id, size, a),
        _ if id as u16 >= O::Shrn as u16 && (id as u16) < O::Sshll as u16 => {
            return narrow(s, op, id, size, a);
        }
        _ => widening(id, size, low_a, low_b, d, x.imm),
    };
    s.v[usize::from(op.d & 127)] = value;
    Flow::Next
}

fn crc(s: &mut CpuState, op: &Op) -> Flow {
    let polynomial = if op.imm & 4 != 0 { 0x82f6_3b78 } else { 0xedb8_8320 };
    let (crc, value) = (s.r[usize::from(op.a)] as u32, s.r[usize::from(op.b)]);
    let result = crypto::crc32(crc, value, 1 << (op.imm & 3), polynomial);
    to_r(s, op, u64::from(result))
}

/// Cryptography, and floating point by lane size, 32 or 64 bits.
#[inline(never)]
fn floating(s: &mut CpuState, op: &Op, id: A64Op, size: u8) -> Flow {
    let at = |slot: u8| usize::from(slot & 127);
    if id == A64Op::Crc32 {
        return crc(s, op);
    }
    if id == A64Op::Pmull64 {
        let (a, b) = Source::of(s, op).halves();
        s.v[at(op.d)] = crypto::product64(a as u64, b as u64);
        return Flow::Next;
    }
    if let Some(value) = crypto::exec(id, s.v[at(op.d)], s.v[at(op.a)], s.v[at(op.b)]) {
        s.v[at(op.d)] = value;
        return Flow::Next;
    }
    if let Some(flow) = convert_format(s, op, id) {
        return flow;
    }
    if size == 3 { fp_lanes::exec::<u64>(s, op, id) } else { fp_lanes::exec::<u32>(s, op, id) }
}

/// Writes an integer destination.
fn to_r(s: &mut CpuState, op: &Op, value: u64) -> Flow {
    s.r[usize::from(op.d)] = value;
    Flow::Next
}

#[inline(never)]
fn write_fpcr(s: &mut CpuState, op: &Op) -> Flow {
    if s.r[usize::from(op.a)] & FPCR_MODES != 0 {
        return Flow::Unsupported;
    }
    s.fpcr = 0;
    Flow::Next
}

const fn read(signed: bool) -> Read {
    if signed { Read::Signed } else { Read::Unsigned }
}

/// An immediate in both halves.
const fn twice(imm: i64) -> u128 {
    let half = imm.cast_unsigned() as u128;
    half | half << 64
}

/// Carry-less product.
fn polynomial(a: u64, b: u64) -> u64 {
    (0..8).filter(|i| a >> i & 1 != 0).fold(0, |r, i| r ^ b << i)
}

/// Adjacent lanes of `a`, then of `b`, combined.
#[inline(always)]
fn pairs<T: Lane>(a: u128, b: u128, q: bool, f: impl Fn(T, T) -> T) -> u128 {
    let n = if q { T::N } else { T::N / 2 };
    let (x, y) = (a.to_le_bytes(), b.to_le_bytes());
    build(|i| {
        let (from, at) = if i < n / 2 { (&x, 2 * i) } else { (&y, (2 * i).wrapping_sub(n)) };
        f(T::get(from, at & (T::N - 1)), T::get(from, (at + 1) & (T::N - 1)))
    })
}

#[inline(never)]
fn halving(r: Read, size: u8, a: u128, b: u128, f: impl Fn(i128, i128) -> i128) -> u128 {
    by_size!(size, T => map2::<T>(a, b, |x, y| T::wrap(f(r.lane(x), r.lane(y)))))
}

fn note_saturation(s: &mut CpuState, saturated: bool) {
    if saturated {
        s.fpsr |= FPSR_QC;
    }
}

#[inline(never)]
fn saturating(s: &mut CpuState, id: A64Op, size: u8, a: u128, b: u128, d: u128) -> u128 {
    use A64Op as O;
    let mut hit = false;
    let value = by_size!(size, T => match id {
        O::Sqadd => map2::<T>(a, b, |x, y| saturate(x.wide_s() + y.wide_s(), Read::Signed, &mut hit)),
        O::Uqadd => map2::<T>(a, b, |x, y| saturate(x.wide_u() + y.wide_u(), Read::Unsigned, &mut hit)),
        O::Sqsub => map2::<T>(a, b, |x, y| saturate(x.wide_s() - y.wide_s(), Read::Signed, &mut hit)),
        O::Uqsub => map2::<T>(a, b, |x, y| saturate(x.wide_u() - y.wide_u(), Read::Unsigned, &mut hit)),
        O::Sqdmulh => map2::<T>(a, b, |x, y| {
            saturate((2 * x.wide_s() * y.wide_s()) >> T::BITS, Read::Signed, &mut hit)
        }),
        O::Sqrdmulh => map2::<T>(a, b, |x, y| {
            let round = 1i128 << (T::BITS - 1);
            saturate((2 * x.wide_s() * y.wide_s() + round) >> T::BITS, Read::Signed, &mut hit)
        }),
        O::Sqabs => map1::<T>(a, |x| saturate(x.wide_s().abs(), Read::Signed, &mut hit)),
        O::Sqneg => map1::<T>(a, |x| saturate(-x.wide_s(), Read::Signed, &mut hit)),
        O::Suqadd => map2::<T>(d, a, |x, y| saturate(x.wide_s() + y.wide_u(), Read::Signed, &mut hit)),
        _ => map2::<T>(d, a, |x, y| saturate(x.wide_u() + y.wide_s(), Read::Unsigned, &mut hit)),
    });
    note_saturation(s, hit);
    value
}

/// One lane shifted by a signed amount: left if positive, else right, perhaps rounding.
fn shift_lane<T: Lane>(
    value: i128,
    by: i8,
    range: Read,
    rounds: bool,
    hit: Option<&mut bool>,
) -> T {
    let by = i32::from(by);
    if by < 0 {
        let n = (-by).min(100) as u32;
        let rounding = if rounds { 1i128 << (n - 1) } else { 0 };
        return T::wrap((value + rounding) >> n);
    }
    let Some(hit) = hit else {
        return if by as u32 >= T::BITS { T::ZERO } else { T::wrap(value << by) };
    };
    // Far enough to saturate anything but zero, without overflowing 128 bits.
    let far = by as u32 >= T::BITS;
    let shifted = if far { value.signum() << 100 } else { value << by };
    saturate(shifted, range, hit)
}

#[inline(never)]
fn shift_by_register(s: &mut CpuState, id: A64Op, size: u8, a: u128, b: u128) -> u128 {
    use A64Op as O;
    let r = read(matches!(id, O::Sshl | O::Srshl | O::Sqshl | O::Sqrshl));
    let rounds = matches!(id, O::Srshl | O::Urshl | O::Sqrshl | O::Uqrshl);
    let saturates = matches!(id, O::Sqshl | O::Uqshl | O::Sqrshl | O::Uqrshl);
    let mut hit = false;
    let value = by_size!(size, T => map2::<T>(a, b, |x, y| {
        let by = y.wide_u() as i8;
        shift_lane(r.lane(x), by, r, rounds, saturates.then_some(&mut hit))
    }));
    note_saturation(s, hit);
    value
}

#[inline(never)]
fn shift_by_immediate(id: A64Op, size: u8, a: u128, d: u128, n: u32) -> u128 {
    use A64Op as O;
    by_size!(size, T => match id {
        O::Sshr => map1::<T>(a, |x| x.shr_signed(n)),
        O::Ushr => map1::<T>(a, |x| x.shr(n)),
        O::Ssra => map2::<T>(d, a, |old, x| old.wrapping_add(x.shr_signed(n))),
        O::Usra => map2::<T>(d, a, |old, x| old.wrapping_add(x.shr(n))),
        O::Srshr => map1::<T>(a, |x| x.shr_signed(n).wrapping_add(x.shr_signed(n - 1).low_bit())),
        O::Urshr => map1::<T>(a, |x| x.shr(n).wrapping_add(x.shr(n - 1).low_bit())),
        O::Srsra => map2::<T>(d, a, |old, x| {
            old.wrapping_add(x.shr_signed(n)).wrapping_add(x.shr_signed(n - 1).low_bit())
        }),
        O::Ursra => map2::<T>(d, a, |old, x| {
            old.wrapping_add(x.shr(n)).wrapping_add(x.shr(n - 1).low_bit())
        }),
        O::Shl => map1::<T>(a, |x| x.shl(n)),
        O::Sri => map2::<T>(d, a, |old, x| old.and(T::ONES.shr(n).inverted()).or(x.shr(n))),
        _ => map2::<T>(d, a, |old, x| old.and(T::ONES.shl(n).inverted()).or(x.shl(n))),
    })
}

#[inline(never)]
fn saturating_shift(s: &mut CpuState, id: A64Op, size: u8, a: u128, n: u32) -> u128 {
    use A64Op as O;
    let (from, to) = match id {
        O::SqshlI => (Read::Signed, Read::Signed),
        O::UqshlI => (Read::Unsigned, Read::Unsigned),
        _ => (Read::Signed, Read::Unsigned),
    };
    let mut hit = false;
    let value = by_size!(size, T => map1::<T>(a, |x| saturate(from.lane(x) << n, to, &mut hit)));
    note_saturation(s, hit);
    value
}

/// Pairs of lanes added into lanes twice as wide, `size` being the narrow one.
#[inline(never)]
fn add_long_pairs(id: A64Op, size: u8, a: u128, d: u128) -> u128 {
    use A64Op as O;
    let r = read(matches!(id, O::Saddlp | O::Sadalp));
    let accumulates = matches!(id, O::Sadalp | O::Uadalp);
    by_size!(size + 1, T => build(|i| {
        let sum = r.at(a, size, 2 * i) + r.at(a, size, 2 * i + 1);
        let old = if accumulates { get::<T>(d, i).wide_u() } else { 0 };
        T::wrap(old + sum)
    }))
}

/// Wide lanes narrowed to `size`, into the low half, or with `Q` into the high half.
#[inline(never)]
fn narrow(s: &mut CpuState, op: &Op, id: A64Op, size: u8, a: u128) -> Flow {
    use A64Op as O;
    if matches!(id, O::Xtn | O::Shrn) {
        let n = op.imm as u32;
        let value = match size {
            0 => build(|i| if i < 8 { (get::<u16>(a, i) >> n) as u8 } else { 0 }),
            1 => build(|i| if i < 4 { (get::<u32>(a, i) >> n) as u16 } else { 0 }),
            _ => build(|i| if i < 2 { (get::<u64>(a, i) >> n) as u32 } else { 0 }),
        };
        return put_half(s, op, value);
    }
    let from = read(!matches!(id, O::Uqxtn | O::Uqshrn | O::Uqrshrn));
    let to = match id {
        O::Xtn | O::Shrn | O::Rshrn => None,
        O::Sqxtn | O::Sqshrn | O::Sqrshrn => Some(Read::Signed),
        _ => Some(Read::Unsigned),
    };
    let n = op.imm as u32;
    let rounds = matches!(id, O::Rshrn | O::Sqrshrn | O::Uqrshrn | O::Sqrshrun);
    let rounding = if rounds && n > 0 { 1i128 << (n - 1) } else { 0 };
    let one = op.x & SCALAR != 0;
    let mut hit = false;
    let value = by_size!(size, T => build(|i| {
        if i >= T::N / 2 || (one && i > 0) {
            return T::ZERO;
        }
        let wide = (from.at(a, size + 1, i) + rounding) >> n;
        match to {
            None => T::wrap(wide),
            Some(range) => saturate(wide, range, &mut hit),
        }
    }));
    note_saturation(s, hit);
    put_half(s, op, value)
}

/// A narrowed result: low half with the rest cleared, or the high half with the rest kept.
fn put_half(s: &mut CpuState, op: &Op, value: u128) -> Flow {
    let d = &mut s.v[usize::from(op.d & 127)];
    *d = if op.x & Q != 0 { *d & u128::from(u64::MAX) | value << 64 } else { value };
    Flow::Next
}

/// The high halves of sums and differences of wide lanes.
#[inline(never)]
fn narrow_high(s: &mut CpuState, op: &Op, id: A64Op, size: u8, a: u128, b: u128) -> Flow {
    use A64Op as O;
    let value = by_size!(size, T => build(|i| {
        if i >= T::N / 2 {
            return T::ZERO;
        }
        let (x, y) = (Read::Unsigned.at(a, size + 1, i), Read::Unsigned.at(b, size + 1, i));
        let sum = if matches!(id, O::Addhn | O::Raddhn) { x + y } else { x - y };
        let rounding = if matches!(id, O::Raddhn | O::Rsubhn) { 1i128 << (T::BITS - 1) } else { 0 };
        T::wrap((sum + rounding) >> T::BITS)
    }));
    put_half(s, op, value)
}

/// Lanes of `size` in the low half of the sources to lanes twice as wide.
#[inline(never)]
fn widening(id: A64Op, size: u8, a: u128, b: u128, d: u128, imm: i64) -> u128 {
    use A64Op as O;
    let n = imm as u32 & 63;
    match id {
        O::Saddl => widen(Read::Signed, size, a, b, d, |x, y, _, _| x.wrapping_add(y)),
        O::Uaddl => widen(Read::Unsigned, size, a, b, d, |x, y, _, _| x.wrapping_add(y)),
        O::Ssubl => widen(Read::Signed, size, a, b, d, |x, y, _, _| x.wrapping_sub(y)),
        O::Usubl => widen(Read::Unsigned, size, a, b, d, |x, y, _, _| x.wrapping_sub(y)),
        O::Sabdl => widen(Read::Signed, size, a, b, d, |x, y, _, _| distance(x, y)),
        O::Uabdl => widen(Read::Unsigned, size, a, b, d, |x, y, _, _| distance(x, y)),
        O::Sabal => widen(Read::Signed, size, a, b, d, |x, y, c, _| c.wrapping_add(distance(x, y))),
        O::Uabal => {
            widen(Read::Unsigned, size, a, b, d, |x, y, c, _| c.wrapping_add(distance(x, y)))
        }
        O::Smull => widen(Read::Signed, size, a, b, d, |x, y, _, _| x.wrapping_mul(y)),
        O::Umull => widen(Read::Unsigned, size, a, b, d, |x, y, _, _| x.wrapping_mul(y)),
        O::Smlal => {
            widen(Read::Signed, size, a, b, d, |x, y, c, _| c.wrapping_add(x.wrapping_mul(y)))
        }
        O::Umlal => {
            widen(Read::Unsigned, size, a, b, d, |x, y, c, _| c.wrapping_add(x.wrapping_mul(y)))
        }
        O::Smlsl => {
            widen(Read::Signed, size, a, b, d, |x, y, c, _| c.wrapping_sub(x.wrapping_mul(y)))
        }
        O::Umlsl => {
            widen(Read::Unsigned, size, a, b, d, |x, y, c, _| c.wrapping_sub(x.wrapping_mul(y)))
        }
        O::Saddw => widen(Read::Signed, size, a, b, d, |_, y, _, w| w.wrapping_add(y)),
        O::Uaddw => widen(Read::Unsigned, size, a, b, d, |_, y, _, w| w.wrapping_add(y)),
        O::Ssubw => widen(Read::Signed, size, a, b, d, |_, y, _, w| w.wrapping_sub(y)),
        O::Usubw => widen(Read::Unsigned, size, a, b, d, |_, y, _, w| w.wrapping_sub(y)),
        O::Sshll => widen(Read::Signed, size, a, b, d, |x, _, _, _| x << n),
        _ => widen(Read::Unsigned, size, a, b, d, |x, _, _, _| x << n),
    }
}

/// Absolute difference of two sign- or zero-extended 32-bit values.
fn distance(x: u64, y: u64) -> u64 {
    x.cast_signed().abs_diff(y.cast_signed())
}

/// `f` of the extended lanes of `a` and `b`, and of the wide lanes of `d` and of `a`.
#[inline(always)]
fn widen(
    r: Read,
    size: u8,
    a: u128,
    b: u128,
    d: u128,
    f: impl Fn(u64, u64, u64, u64) -> u64,
) -> u128 {
    /// The loop for one pair of types.
    macro_rules! lanes {
        ($narrow:ty, $wide:ty) => {{
            let extend = |v: $narrow| match r {
                Read::Signed => i64::from(v.cast_signed()).cast_unsigned(),
                Read::Unsigned => u64::from(v),
            };
            build::<$wide>(|i| {
                let (x, y) = (extend(get(a, i)), extend(get(b, i)));
                f(x, y, u64::from(get::<$wide>(d, i)), u64::from(get::<$wide>(a, i))) as $wide
            })
        }};
    }
    match size & 3 {
        0 => lanes!(u8, u16),
        1 => lanes!(u16, u32),
        _ => lanes!(u32, u64),
    }
}

/// Doubling products with saturation, of lanes of `size`, to lanes twice as wide.
#[inline(never)]
fn doubling(
    s: &mut CpuState,
    id: A64Op,
    size: u8,
    a: u128,
    b: u128,
    d: u128,
    scalar: bool,
) -> u128 {
    let mut hit = false;
    let value = by_size!(size + 1, T => build(|i| {
        if scalar && i > 0 {
            return T::ZERO;
        }
        let (x, y) = (Read::Signed.at(a, size, i), Read::Signed.at(b, size, i));
        let product: T = saturate(2 * x * y, Read::Signed, &mut hit);
        let old = get::<T>(d, i).wide_s();
        match id {
            A64Op::Sqdmlal => saturate(old + product.wide_s(), Read::Signed, &mut hit),
            A64Op::Sqdmlsl => saturate(old - product.wide_s(), Read::Signed, &mut hit),
            _ => product,
        }
    }));
    note_saturation(s, hit);
    value
}

#[inline(never)]
fn reduce(id: A64Op, size: u8, q: bool, a: u128) -> u128 {
    use A64Op as O;
    let r = read(matches!(id, O::Saddlv | O::Smaxv | O::Sminv));
    let n = (if q { 16 } else { 8 }) >> size;
    let lanes = (0..n).map(|i| r.at(a, size, i));
    let bits = if matches!(id, O::Saddlv | O::Uaddlv) { 16 << size } else { 8 << size };
    let value = match id {
        O::Addv | O::Saddlv | O::Uaddlv => lanes.sum(),
        O::Smaxv | O::Umaxv => lanes.max().unwrap_or(0),
        _ => lanes.min().unwrap_or(0),
    };
    value.cast_unsigned() & (u128::MAX >> (128 - bits))
}

#[inline(never)]
fn permute(id: A64Op, size: u8, q: bool, a: u128, b: u128) -> u128 {
    use A64Op as O;
    by_size!(size, T => {
        let n = if q { T::N } else { T::N / 2 };
        build(|i| {
            if i >= n {
                return T::ZERO;
            }
            let (first, at) = match id {
                O::Zip1 => (i & 1 == 0, i / 2),
                O::Zip2 => (i & 1 == 0, n / 2 + i / 2),
                O::Uzp1 => (i < n / 2, 2 * i % n),
                O::Uzp2 => (i < n / 2, 2 * i % n + 1),
                O::Trn1 => (i & 1 == 0, i & !1),
                _ => (i & 1 == 0, i | 1),
            };
            get::<T>(if first { a } else { b }, at)
        })
    })
}

/// `TBL` and `TBX` over `imm` registers, wrapping from 31 to 0.
#[inline(never)]
fn table(s: &CpuState, op: &Op, indices: u128, otherwise: u128) -> u128 {
    let registers = usize::from(op.imm as u8 & 7);
    build(|i| {
        let index = usize::from(get::<u8>(indices, i));
        if index >= registers * 16 {
            return get::<u8>(otherwise, i);
        }
        let register = (usize::from(op.a) + index / 16) & 31;
        get::<u8>(s.v[register], index % 16)
    })
}

/// Between memory order (in temporaries) and registers, for `LD2`–`LD4` and `ST2`–`ST4`.
#[inline(never)]
fn structure(s: &mut CpuState, op: &Op, id: A64Op, size: u8) -> Flow {
    let registers = usize::from(op.imm as u8 & 7).clamp(1, 4);
    let lanes = (if op.x & Q != 0 { 16 } else { 8 }) >> size;
    let place = |memory: usize| (memory % registers, memory / registers);
    let mut out = [0u128; 4];
    let source: [u128; 4] = std::array::from_fn(|n| {
        let slot = usize::from(op.a) + n;
        s.v[if id == A64Op::Interleave { slot & 31 } else { slot & 127 }]
    });
    for memory in 0..lanes * registers {
        let (register, lane) = place(memory);
        let (chunk, at) = (memory / lanes, memory % lanes);
        let (from, to) = match id {
            A64Op::Interleave => ((register, lane), (chunk, at)),
            _ => ((chunk, at), (register, lane)),
        };
        let value = Read::Unsigned.at(source[from.0 & 3], size, from.1).cast_unsigned();
        out[to.0 & 3] |= value << (to.1 * (8 << size));
    }
    for (n, value) in out.iter().enumerate().take(registers) {
        let slot = usize::from(op.d) + n;
        s.v[if id == A64Op::Interleave { slot & 127 } else { slot & 31 }] = *value;
    }
    Flow::Next
}

/// Conversions between formats; `None` for other ops.
#[inline(never)]
fn convert_format(s: &mut CpuState, op: &Op, id: A64Op) -> Option<Flow> {
    use A64Op as O;
    let a = s.v[usize::from(op.a & 127)];
    let high = op.x & Q != 0;
    let half = if high { a >> 64 } else { a };
    let value = match id {
        O::FcvtSD => u128::from(float::widen(a as u32)),
        O::FcvtDS => u128::from(float::narrow(a as u64)),
        O::FcvtHS => u128::from(float::half_to_single(a as u16)),
        O::FcvtHD => u128::from(float::half_to_double(a as u16)),
        O::FcvtSH => u128::from(float::single_to_half(a as u32)),
        O::FcvtDH => u128::from(float::double_to_half(a as u64)),
        O::Fcvtl => build(|i| float::widen(get::<u32>(half, i))),
        O::FcvtlH => build(|i| float::half_to_single(get::<u16>(half, i))),
        O::Fcvtn | O::Fcvtxn | O::FcvtnH => {
            let one = op.x & SCALAR != 0;
            let value = match id {
                O::FcvtnH => build(|i| if i < 4 { float::single_to_half(get(a, i)) } else { 0 }),
                _ => build(|i| match i {
                    1 if one => 0,
                    0 | 1 if id == O::Fcvtn => float::narrow(get(a, i)),
                    0 | 1 => float::narrow_to_odd(get(a, i)),
                    _ => 0,
                }),
            };
            return Some(put_half(s, op, value));
        }
        _ => return None,
    };
    s.v[usize::from(op.d & 127)] = value;
    Some(Flow::Next)
}
