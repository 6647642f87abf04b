//! What the vector micro-ops compute: integer and floating-point lanes, shared by both instruction sets.
//!
//! Lane 0 is the least significant. Floating-point ops take bit 0 of `imm` as *scalar*: only lane 0 is
//! computed, the other bits come from `a`. NaN results follow the rule in the `x` field ([`ARM`]).

#![expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    clippy::cast_possible_wrap,
    clippy::cast_precision_loss,
    clippy::cast_lossless,
    reason = "narrowing and conversion are what the ops of an instruction set do"
)]

use crate::flags::eflags;
use crate::fp::{self, NanRule};
use crate::ir::{CcKind, Op};
use crate::state::CpuState;
use crate::swar::{self, H8, H16, halves, pick};

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
    /// a + b, 8-bit lanes
    Add8,
    /// a + b, 16-bit lanes
    Add16,
    /// a + b, 32-bit lanes
    Add32,
    /// a + b, 64-bit lanes
    Add64,
    /// a - b, 8-bit lanes
    Sub8,
    /// a - b, 16-bit lanes
    Sub16,
    /// a - b, 32-bit lanes
    Sub32,
    /// a - b, 64-bit lanes
    Sub64,
    /// a * b, low half, 8-bit lanes
    Mul8,
    /// a * b, low half, 16-bit lanes
    Mul16,
    /// a * b, low half, 32-bit lanes
    Mul32,
    /// High half of signed a * b, 16-bit lanes
    MulHiS16,
    /// High half of unsigned a * b, 16-bit lanes
    MulHiU16,
    /// Even 32-bit lanes, unsigned a * b to 64 bits (PMULUDQ)
    MulEvenU32,
    /// Even 32-bit lanes, signed a * b to 64 bits (PMULDQ)
    MulEvenS32,
    /// Pairs of signed 16-bit products added to 32 bits (PMADDWD)
    MulAdd16,
    /// Pairs of unsigned a × signed b 8-bit products added to 16 bits, saturated (PMADDUBSW)
    MulAddU8S8,
    /// Signed 16-bit product, rounded, high part (PMULHRSW)
    MulHiRound16,
    /// Sums of absolute differences of bytes, per 64 bits (PSADBW)
    SadU8,
    /// Rounded average, unsigned 8-bit lanes
    AvgU8,
    /// Rounded average, unsigned 16-bit lanes
    AvgU16,
    /// Saturating signed 8-bit addition
    AddSatS8,
    /// Saturating signed 16-bit addition
    AddSatS16,
    /// Saturating unsigned 8-bit addition
    AddSatU8,
    /// Saturating unsigned 16-bit addition
    AddSatU16,
    /// Saturating signed 8-bit subtraction
    SubSatS8,
    /// Saturating signed 16-bit subtraction
    SubSatS16,
    /// Saturating unsigned 8-bit subtraction
    SubSatU8,
    /// Saturating unsigned 16-bit subtraction
    SubSatU16,
    /// a == b ? ones : zero, 8-bit lanes
    CmpEq8,
    /// a == b, 16-bit lanes
    CmpEq16,
    /// a == b, 32-bit lanes
    CmpEq32,
    /// a == b, 64-bit lanes
    CmpEq64,
    /// signed a > b, 8-bit lanes
    CmpGtS8,
    /// signed a > b, 16-bit lanes
    CmpGtS16,
    /// signed a > b, 32-bit lanes
    CmpGtS32,
    /// signed a > b, 64-bit lanes
    CmpGtS64,
    /// unsigned a > b, 8-bit lanes
    CmpGtU8,
    /// unsigned a > b, 16-bit lanes
    CmpGtU16,
    /// unsigned a > b, 32-bit lanes
    CmpGtU32,
    /// unsigned a > b, 64-bit lanes
    CmpGtU64,
    /// Signed minimum, 8-bit lanes
    MinS8,
    /// Signed minimum, 16-bit lanes
    MinS16,
    /// Signed minimum, 32-bit lanes
    MinS32,
    /// Signed maximum, 8-bit lanes
    MaxS8,
    /// Signed maximum, 16-bit lanes
    MaxS16,
    /// Signed maximum, 32-bit lanes
    MaxS32,
    /// Unsigned minimum, 8-bit lanes
    MinU8,
    /// Unsigned minimum, 16-bit lanes
    MinU16,
    /// Unsigned minimum, 32-bit lanes
    MinU32,
    /// Unsigned maximum, 8-bit lanes
    MaxU8,
    /// Unsigned maximum, 16-bit lanes
    MaxU16,
    /// Unsigned maximum, 32-bit lanes
    MaxU32,
    /// Absolute value of b, 8-bit lanes
    Abs8,
    /// Absolute value of b, 16-bit lanes
    Abs16,
    /// Absolute value of b, 32-bit lanes
    Abs32,
    /// a negated, zeroed or kept by the sign of b, 8-bit lanes
    Sign8,
    /// As Sign8, 16-bit lanes
    Sign16,
    /// As Sign8, 32-bit lanes
    Sign32,
    /// Sums of neighbours, a then b, 16-bit lanes
    HAdd16,
    /// Sums of neighbours, a then b, 32-bit lanes
    HAdd32,
    /// Saturated sums of neighbours, 16-bit lanes
    HAddSat16,
    /// Differences of neighbours, 16-bit lanes
    HSub16,
    /// Differences of neighbours, 32-bit lanes
    HSub32,
    /// Saturated differences of neighbours, 16-bit lanes
    HSubSat16,
    /// a << imm, 16-bit lanes; zero when imm is too large (as for all shifts here)
    ShlI16,
    /// a << imm, 32-bit lanes
    ShlI32,
    /// a << imm, 64-bit lanes
    ShlI64,
    /// a >> imm logical, 16-bit lanes
    ShrI16,
    /// a >> imm logical, 32-bit lanes
    ShrI32,
    /// a >> imm logical, 64-bit lanes
    ShrI64,
    /// a >> imm arithmetic, 16-bit lanes
    SarI16,
    /// a >> imm arithmetic, 32-bit lanes
    SarI32,
    /// a << low 64 bits of b, 16-bit lanes
    Shl16,
    /// a << low 64 bits of b, 32-bit lanes
    Shl32,
    /// a << low 64 bits of b, 64-bit lanes
    Shl64,
    /// a >> low 64 bits of b logical, 16-bit lanes
    Shr16,
    /// a >> low 64 bits of b logical, 32-bit lanes
    Shr32,
    /// a >> low 64 bits of b logical, 64-bit lanes
    Shr64,
    /// a >> low 64 bits of b arithmetic, 16-bit lanes
    Sar16,
    /// a >> low 64 bits of b arithmetic, 32-bit lanes
    Sar32,
    /// a << imm bytes
    ShlBytes,
    /// a >> imm bytes
    ShrBytes,
    /// (a:b) >> imm bytes, a being the high half (PALIGNR); arm64 EXT with a and b exchanged
    Align,
    /// Interleave low halves, 8-bit lanes (PUNPCKL, ZIP1)
    UnpackLo8,
    /// Interleave low halves, 16-bit lanes
    UnpackLo16,
    /// Interleave low halves, 32-bit lanes
    UnpackLo32,
    /// Interleave low halves, 64-bit lanes
    UnpackLo64,
    /// Interleave high halves, 8-bit lanes (PUNPCKH, ZIP2)
    UnpackHi8,
    /// Interleave high halves, 16-bit lanes
    UnpackHi16,
    /// Interleave high halves, 32-bit lanes
    UnpackHi32,
    /// Interleave high halves, 64-bit lanes
    UnpackHi64,
    /// Narrow a then b, signed saturation, 16 to 8 bits (PACKSSWB)
    PackS16,
    /// Narrow a then b, signed saturation, 32 to 16 bits (PACKSSDW)
    PackS32,
    /// Narrow a then b, unsigned saturation of signed values, 16 to 8 bits (PACKUSWB)
    PackU16,
    /// Narrow a then b, unsigned saturation of signed values, 32 to 16 bits (PACKUSDW)
    PackU32,
    /// 32-bit lanes of a chosen by imm (PSHUFD)
    Shuf32,
    /// Low 16-bit lanes of a chosen by imm (PSHUFLW)
    ShufLo16,
    /// High 16-bit lanes of a chosen by imm (PSHUFHW)
    ShufHi16,
    /// Two 32-bit lanes of a, two of b, chosen by imm (SHUFPS)
    ShufPs,
    /// A 64-bit lane of a, one of b, chosen by imm (SHUFPD)
    ShufPd,
    /// Bytes of a chosen by b, zero where its top bit is set (PSHUFB)
    ShufBytes,
    /// b's low 32 bits in a
    CopyLo32,
    /// b's low 64 bits in a (MOVSD, MOVLPS)
    CopyLo64,
    /// b's high 64 bits in a's low (MOVHLPS)
    HiToLo64,
    /// b's low 64 bits in a's high (MOVHPS from memory, MOVLHPS)
    LoToHi64,
    /// Even 32-bit lanes of b doubled (MOVSLDUP)
    DupEven32,
    /// Odd 32-bit lanes of b doubled (MOVSHDUP)
    DupOdd32,
    /// Low 64-bit lane of b doubled (MOVDDUP)
    DupLo64,
    /// Blend by imm bits: b where set, 16-bit lanes
    BlendI16,
    /// Blend by imm bits, 32-bit lanes
    BlendI32,
    /// Blend by imm bits, 64-bit lanes
    BlendI64,
    /// Blend a and b by the top bits of XMM0's lanes (imm = lane bits)
    BlendV,
    /// b's lanes extended; imm = from bits | to bits << 8 | signed << 16
    Extend,
    /// a + b, singles
    FAdd32,
    /// a + b, doubles
    FAdd64,
    /// a - b, singles
    FSub32,
    /// a - b, doubles
    FSub64,
    /// a * b, singles
    FMul32,
    /// a * b, doubles
    FMul64,
    /// a / b, singles
    FDiv32,
    /// a / b, doubles
    FDiv64,
    /// x86 minimum: b when equal or unordered, singles
    FMin32,
    /// x86 minimum, doubles
    FMin64,
    /// x86 maximum: b when equal or unordered, singles
    FMax32,
    /// x86 maximum, doubles
    FMax64,
    /// Square root of b, singles
    FSqrt32,
    /// Square root of b, doubles
    FSqrt64,
    /// Comparison by predicate imm >> 8 (0–7 as CMPPS), singles
    FCmp32,
    /// Comparison by predicate imm >> 8, doubles
    FCmp64,
    /// Sums of neighbours, singles (HADDPS)
    FHAdd32,
    /// Sums of neighbours, doubles
    FHAdd64,
    /// Differences of neighbours, singles
    FHSub32,
    /// Differences of neighbours, doubles
    FHSub64,
    /// Subtract even lanes, add odd ones, singles
    FAddSub32,
    /// Subtract even lanes, add odd ones, doubles
    FAddSub64,
    /// Round b to integral; imm >> 8 = mode as ROUNDPS, singles
    FRound32,
    /// Round b to integral; imm >> 8 = mode, doubles
    FRound64,
    /// Low singles of b to doubles; scalar: the lowest, the rest from a
    Cvt32To64,
    /// Doubles of b to low singles; scalar: the lowest, the rest from a
    Cvt64To32,
    /// Signed 32-bit lanes of b to singles
    CvtI32ToF32,
    /// Low signed 32-bit lanes of b to doubles
    CvtI32ToF64,
    /// Singles of b to signed 32 bits, rounded to even
    CvtF32ToI32,
    /// Singles of b to signed 32 bits, truncated
    CvtF32ToI32Trunc,
    /// Doubles of b to low signed 32-bit lanes, rounded to even
    CvtF64ToI32,
    /// Doubles of b to low signed 32-bit lanes, truncated
    CvtF64ToI32Trunc,
    /// `VecFromR`: signed 32-bit b to a single, the rest from a
    I32ToF32,
    /// `VecFromR`: signed 64-bit b to a single, the rest from a
    I64ToF32,
    /// `VecFromR`: signed 32-bit b to a double, the rest from a
    I32ToF64,
    /// `VecFromR`: signed 64-bit b to a double, the rest from a
    I64ToF64,
    /// `VecToR`: top bits of bytes (PMOVMSKB)
    Mask8,
    /// `VecToR`: top bits of 32-bit lanes (MOVMSKPS)
    Mask32,
    /// `VecToR`: top bits of 64-bit lanes (MOVMSKPD)
    Mask64,
    /// `VecToR`: low single of a to signed 32 bits, rounded to even
    F32ToI32,
    /// `VecToR`: low single to signed 64 bits, rounded to even
    F32ToI64,
    /// `VecToR`: low single to signed 32 bits, truncated
    F32ToI32Trunc,
    /// `VecToR`: low single to signed 64 bits, truncated
    F32ToI64Trunc,
    /// `VecToR`: low double to signed 32 bits, rounded to even
    F64ToI32,
    /// `VecToR`: low double to signed 64 bits, rounded to even
    F64ToI64,
    /// `VecToR`: low double to signed 32 bits, truncated
    F64ToI32Trunc,
    /// `VecToR`: low double to signed 64 bits, truncated
    F64ToI64Trunc,
    /// `VecCc`: x86 flags of comparing the low singles (UCOMISS)
    Comi32,
    /// `VecCc`: x86 flags of comparing the low doubles (UCOMISD)
    Comi64,
    /// `VecCc`: x86 ZF = (a & b is 0), CF = (!a & b is 0) (PTEST)
    Test,
}

macro_rules! lane_type {
    ($split:ident, $join:ident, $map:ident, $map1:ident, $t:ty, $n:expr) => {
        /// Lanes, lowest first.
        #[inline(always)]
        pub fn $split(v: u128) -> [$t; $n] {
            let bytes = v.to_le_bytes();
            let (lanes, _) = bytes.as_chunks::<{ size_of::<$t>() }>();
            std::array::from_fn(|i| <$t>::from_le_bytes(lanes[i]))
        }
        /// The vector of such lanes.
        #[inline(always)]
        pub fn $join(lanes: [$t; $n]) -> u128 {
            let mut bytes = [0; 16];
            let (chunks, _) = bytes.as_chunks_mut::<{ size_of::<$t>() }>();
            for (chunk, lane) in chunks.iter_mut().zip(lanes) {
                *chunk = lane.to_le_bytes();
            }
            u128::from_le_bytes(bytes)
        }
        /// Lane by lane.
        #[inline(always)]
        pub fn $map(a: u128, b: u128, f: impl Fn($t, $t) -> $t) -> u128 {
            let (a, b) = ($split(a), $split(b));
            $join(std::array::from_fn(|i| f(a[i], b[i])))
        }
        /// Lane by lane of one vector.
        #[inline(always)]
        pub fn $map1(a: u128, f: impl Fn($t) -> $t) -> u128 {
            $join($split(a).map(f))
        }
    };
}
lane_type!(split8, join8, map8, map1_8, u8, 16);
lane_type!(split16, join16, map16, map1_16, u16, 8);
lane_type!(split32, join32, map32, map1_32, u32, 4);
lane_type!(split64, join64, map64, map1_64, u64, 2);

/// All ones or zero.
macro_rules! ones {
    ($t:ty, $c:expr) => {
        if $c { <$t>::MAX } else { 0 }
    };
}

/// The lanes of `a` and `b` combined; `old` is the destination's old value, for
/// [`Code::VecAcc`](crate::ir::Code::VecAcc).
pub fn vec(s: &mut CpuState, op: &Op, a: u128, b: u128, _old: u128) -> u128 {
    vec_as(VecOp::from_raw(op.x), s, op, a, b)
}

/// As [`vec`], for an operation that the caller knows; a constant one compiles to itself alone.
#[inline(always)]
pub(crate) fn vec_as(which: VecOp, s: &mut CpuState, op: &Op, a: u128, b: u128) -> u128 {
    use VecOp as O;
    let imm = op.imm;
    match which {
        O::And => a & b,
        O::Or => a | b,
        O::Xor => a ^ b,
        O::AndNot => !a & b,
        O::Bic => a & !b,
        O::Orn => a | !b,
        O::Add8 => halves(a, b, |x, y| swar::add(x, y, H8)),
        O::Add16 => halves(a, b, |x, y| swar::add(x, y, H16)),
        O::Add32 => map32(a, b, u32::wrapping_add),
        O::Add64 => map64(a, b, u64::wrapping_add),
        O::Sub8 => halves(a, b, |x, y| swar::sub(x, y, H8)),
        O::Sub16 => halves(a, b, |x, y| swar::sub(x, y, H16)),
        O::Sub32 => map32(a, b, u32::wrapping_sub),
        O::Sub64 => map64(a, b, u64::wrapping_sub),
        O::CmpEq8 => halves(a, b, |x, y| swar::eq(x, y, H8)),
        O::CmpEq16 => halves(a, b, |x, y| swar::eq(x, y, H16)),
        O::CmpEq32 => map32(a, b, |x, y| ones!(u32, x == y)),
        O::CmpEq64 => map64(a, b, |x, y| ones!(u64, x == y)),
        O::CmpGtS8 => halves(a, b, |x, y| swar::lt_signed(y, x, H8)),
        O::CmpGtS16 => halves(a, b, |x, y| swar::lt_signed(y, x, H16)),
        O::CmpGtS32 => map32(a, b, |x, y| ones!(u32, x as i32 > y as i32)),
        O::CmpGtS64 => map64(a, b, |x, y| ones!(u64, x as i64 > y as i64)),
        O::CmpGtU8 => halves(a, b, |x, y| swar::lt_unsigned(y, x, H8)),
        O::CmpGtU16 => halves(a, b, |x, y| swar::lt_unsigned(y, x, H16)),
        O::CmpGtU32 => map32(a, b, |x, y| ones!(u32, x > y)),
        O::CmpGtU64 => map64(a, b, |x, y| ones!(u64, x > y)),
        O::MinS8 => halves(a, b, |x, y| pick(swar::lt_signed(x, y, H8), x, y)),
        O::MinS16 => halves(a, b, |x, y| pick(swar::lt_signed(x, y, H16), x, y)),
        O::MinS32 => map32(a, b, |x, y| (x as i32).min(y as i32) as u32),
        O::MaxS8 => halves(a, b, |x, y| pick(swar::lt_signed(x, y, H8), y, x)),
        O::MaxS16 => halves(a, b, |x, y| pick(swar::lt_signed(x, y, H16), y, x)),
        O::MaxS32 => map32(a, b, |x, y| (x as i32).max(y as i32) as u32),
        O::MinU8 => halves(a, b, |x, y| pick(swar::lt_unsigned(x, y, H8), x, y)),
        O::MinU16 => halves(a, b, |x, y| pick(swar::lt_unsigned(x, y, H16), x, y)),
        O::MinU32 => map32(a, b, u32::min),
        O::MaxU8 => halves(a, b, |x, y| pick(swar::lt_unsigned(x, y, H8), y, x)),
        O::MaxU16 => halves(a, b, |x, y| pick(swar::lt_unsigned(x, y, H16), y, x)),
        O::MaxU32 => map32(a, b, u32::max),
        O::ShlI16
        | O::ShlI32
        | O::ShlI64
        | O::ShrI16
        | O::ShrI32
        | O::ShrI64
        | O::SarI16
        | O::SarI32 => shift(which, a, imm as u64),
        O::Shl16 | O::Shl32 | O::Shl64 | O::Shr16 | O::Shr32 | O::Shr64 | O::Sar16 | O::Sar32 => {
            shift(which, a, b as u64)
        }
        O::ShlBytes => {
            if imm < 16 {
                a << (imm * 8)
            } else {
                0
            }
        }
        O::ShrBytes => {
            if imm < 16 {
                a >> (imm * 8)
            } else {
                0
            }
        }
        O::Align => align(a, b, imm),
        O::CopyLo32 => a & !u128::from(u32::MAX) | b & u128::from(u32::MAX),
        O::CopyLo64 => a & !u128::from(u64::MAX) | b & u128::from(u64::MAX),
        O::HiToLo64 => a & !u128::from(u64::MAX) | b >> 64,
        O::LoToHi64 | O::UnpackLo64 => a & u128::from(u64::MAX) | b << 64,
        O::UnpackHi64 => a >> 64 | b & !u128::from(u64::MAX),
        O::BlendV => blend_v(a, b, s.v[0], imm),
        x if x as u16 >= O::FAdd32 as u16 => float(which, op, a, b),
        _ => integer(which, op, a, b),
    }
}

#[inline(always)]
fn shift(which: VecOp, a: u128, n: u64) -> u128 {
    use VecOp as O;
    let k = n.min(64) as u32;
    match which {
        O::ShlI16 | O::Shl16 => map1_16(a, |x| x.checked_shl(k).unwrap_or(0)),
        O::ShlI32 | O::Shl32 => map1_32(a, |x| x.checked_shl(k).unwrap_or(0)),
        O::ShlI64 | O::Shl64 => map1_64(a, |x| x.checked_shl(k).unwrap_or(0)),
        O::ShrI16 | O::Shr16 => map1_16(a, |x| x.checked_shr(k).unwrap_or(0)),
        O::ShrI32 | O::Shr32 => map1_32(a, |x| x.checked_shr(k).unwrap_or(0)),
        O::ShrI64 | O::Shr64 => map1_64(a, |x| x.checked_shr(k).unwrap_or(0)),
        O::SarI16 | O::Sar16 => map1_16(a, |x| (x as i16 >> k.min(15)) as u16),
        _ => map1_32(a, |x| (x as i32 >> k.min(31)) as u32),
    }
}

fn align(a: u128, b: u128, imm: i64) -> u128 {
    match imm {
        0 => b,
        1..=15 => a << (128 - imm * 8) | b >> (imm * 8),
        16..=31 => a >> ((imm - 16) * 8),
        _ => 0,
    }
}

fn blend_v(a: u128, b: u128, mask: u128, lane_bits: i64) -> u128 {
    match lane_bits {
        8 => {
            let m = map1_8(mask, |x| ones!(u8, x >> 7 != 0));
            a & !m | b & m
        }
        32 => {
            let m = map1_32(mask, |x| ones!(u32, x >> 31 != 0));
            a & !m | b & m
        }
        _ => {
            let m = map1_64(mask, |x| ones!(u64, x >> 63 != 0));
            a & !m | b & m
        }
    }
}

/// Interleaves lanes of `a` and `b` starting at lane `from`.
macro_rules! interleave {
    ($split:ident, $join:ident, $a:expr, $b:expr, $from:expr) => {{
        let (a, b) = ($split($a), $split($b));
        $join(std::array::from_fn(|i| {
            let lane = $from + i / 2;
            if i % 2 == 0 { a[lane] } else { b[lane] }
        }))
    }};
}

/// Neighbours of a then b combined.
macro_rules! horizontal {
    ($split:ident, $join:ident, $n:expr, $a:expr, $b:expr, $f:expr) => {{
        let (a, b) = ($split($a), $split($b));
        $join(std::array::from_fn(|i| {
            let (v, k) = if i < $n / 2 { (&a, i) } else { (&b, i - $n / 2) };
            $f(v[2 * k], v[2 * k + 1])
        }))
    }};
}

#[inline(always)]
fn integer(which: VecOp, op: &Op, a: u128, b: u128) -> u128 {
    use VecOp as O;
    let imm = op.imm as usize;
    match which {
        O::Mul8 => map8(a, b, u8::wrapping_mul),
        O::Mul16 => map16(a, b, u16::wrapping_mul),
        O::Mul32 => map32(a, b, u32::wrapping_mul),
        O::MulHiS16 => map16(a, b, |x, y| ((x as i16 as i32 * y as i16 as i32) >> 16) as u16),
        O::MulHiU16 => map16(a, b, |x, y| ((x as u32 * y as u32) >> 16) as u16),
        O::MulHiRound16 => map16(a, b, |x, y| {
            let product = x as i16 as i32 * y as i16 as i32;
            (((product >> 14) + 1) >> 1) as u16
        }),
        O::MulEvenU32 => map64(a, b, |x, y| (x & 0xffff_ffff) * (y & 0xffff_ffff)),
        O::MulEvenS32 => map64(a, b, |x, y| (x as i32 as i64 * y as i32 as i64) as u64),
        O::MulAdd16 => {
            let (a, b) = (split16(a), split16(b));
            let p = |i: usize| a[i] as i16 as i32 * b[i] as i16 as i32;
            join32(std::array::from_fn(|i| p(2 * i).wrapping_add(p(2 * i + 1)) as u32))
        }
        O::MulAddU8S8 => {
            let (a, b) = (split8(a), split8(b));
            let p = |i: usize| a[i] as i32 * b[i] as i8 as i32;
            join16(std::array::from_fn(|i| (p(2 * i) + p(2 * i + 1)).clamp(-32768, 32767) as u16))
        }
        O::SadU8 => {
            let (a, b) = (split8(a), split8(b));
            let sum =
                |from: usize| (from..from + 8).map(|i| u64::from(a[i].abs_diff(b[i]))).sum::<u64>();
            join64([sum(0), sum(8)])
        }
        O::AvgU8 => map8(a, b, |x, y| ((x as u16 + y as u16 + 1) >> 1) as u8),
        O::AvgU16 => map16(a, b, |x, y| ((x as u32 + y as u32 + 1) >> 1) as u16),
        O::AddSatS8 => map8(a, b, |x, y| (x as i8).saturating_add(y as i8) as u8),
        O::AddSatS16 => map16(a, b, |x, y| (x as i16).saturating_add(y as i16) as u16),
        O::AddSatU8 => map8(a, b, u8::saturating_add),
        O::AddSatU16 => map16(a, b, u16::saturating_add),
        O::SubSatS8 => map8(a, b, |x, y| (x as i8).saturating_sub(y as i8) as u8),
        O::SubSatS16 => map16(a, b, |x, y| (x as i16).saturating_sub(y as i16) as u16),
        O::SubSatU8 => map8(a, b, u8::saturating_sub),
        O::SubSatU16 => map16(a, b, u16::saturating_sub),
        O::Abs8 => map1_8(b, |x| (x as i8).wrapping_abs() as u8),
        O::Abs16 => map1_16(b, |x| (x as i16).wrapping_abs() as u16),
        O::Abs32 => map1_32(b, |x| (x as i32).wrapping_abs() as u32),
        O::Sign8 => map8(a, b, |x, y| (x as i8).wrapping_mul((y as i8).signum()) as u8),
        O::Sign16 => map16(a, b, |x, y| (x as i16).wrapping_mul((y as i16).signum()) as u16),
        O::Sign32 => map32(a, b, |x, y| (x as i32).wrapping_mul((y as i32).signum()) as u32),
        O::HAdd16 => horizontal!(split16, join16, 8, a, b, u16::wrapping_add),
        O::HAdd32 => horizontal!(split32, join32, 4, a, b, u32::wrapping_add),
        O::HAddSat16 => horizontal!(split16, join16, 8, a, b, |x: u16, y: u16| {
            (x as i16).saturating_add(y as i16) as u16
        }),
        O::HSub16 => horizontal!(split16, join16, 8, a, b, u16::wrapping_sub),
        O::HSub32 => horizontal!(split32, join32, 4, a, b, u32::wrapping_sub),
        O::HSubSat16 => horizontal!(split16, join16, 8, a, b, |x: u16, y: u16| {
            (x as i16).saturating_sub(y as i16) as u16
        }),
        O::UnpackLo8 => swar::interleave8(a as u64, b as u64),
        O::UnpackLo16 => interleave!(split16, join16, a, b, 0),
        O::UnpackLo32 => interleave!(split32, join32, a, b, 0),
        O::UnpackHi8 => swar::interleave8((a >> 64) as u64, (b >> 64) as u64),
        O::UnpackHi16 => interleave!(split16, join16, a, b, 4),
        O::UnpackHi32 => interleave!(split32, join32, a, b, 2),
        O::PackS16 => pack16(a, b, |x| x.clamp(-128, 127) as u8),
        O::PackU16 => pack16(a, b, |x| x.clamp(0, 255) as u8),
        O::PackS32 => pack32(a, b, |x| x.clamp(-32768, 32767) as u16),
        O::PackU32 => pack32(a, b, |x| x.clamp(0, 65535) as u16),
        O::Shuf32 => {
            let v = split32(a);
            join32(std::array::from_fn(|i| v[(imm >> (2 * i)) & 3]))
        }
        O::ShufLo16 => {
            let v = split16(a);
            join16(std::array::from_fn(|i| if i < 4 { v[(imm >> (2 * i)) & 3] } else { v[i] }))
        }
        O::ShufHi16 => {
            let v = split16(a);
            join16(std::array::from_fn(|i| {
                if i < 4 { v[i] } else { v[4 + ((imm >> (2 * (i - 4))) & 3)] }
            }))
        }
        O::ShufPs => {
            let (x, y) = (split32(a), split32(b));
            join32(std::array::from_fn(|i| {
                let lane = (imm >> (2 * i)) & 3;
                if i < 2 { x[lane] } else { y[lane] }
            }))
        }
        O::ShufPd => {
            let (x, y) = (split64(a), split64(b));
            join64([x[imm & 1], y[(imm >> 1) & 1]])
        }
        O::ShufBytes => {
            let v = split8(a);
            map1_8(b, |i| if i & 0x80 == 0 { v[usize::from(i & 15)] } else { 0 })
        }
        O::DupEven32 => {
            let v = split32(b);
            join32([v[0], v[0], v[2], v[2]])
        }
        O::DupOdd32 => {
            let v = split32(b);
            join32([v[1], v[1], v[3], v[3]])
        }
        O::DupLo64 => b & u128::from(u64::MAX) | b << 64,
        O::BlendI16 => blend_i(a, b, imm, 16),
        O::BlendI32 => blend_i(a, b, imm, 32),
        O::BlendI64 => blend_i(a, b, imm, 64),
        O::Extend => extend(b, imm),
        _ => a,
    }
}

fn pack16(a: u128, b: u128, f: impl Fn(i16) -> u8) -> u128 {
    let (a, b) = (split16(a), split16(b));
    join8(std::array::from_fn(|i| f(if i < 8 { a[i] } else { b[i - 8] } as i16)))
}
fn pack32(a: u128, b: u128, f: impl Fn(i32) -> u16) -> u128 {
    let (a, b) = (split32(a), split32(b));
    join16(std::array::from_fn(|i| f(if i < 4 { a[i] } else { b[i - 4] } as i32)))
}

fn blend_i(a: u128, b: u128, mask: usize, bits: u32) -> u128 {
    let mut r = 0;
    for i in 0..128 / bits {
        let lane = (u128::MAX >> (128 - bits)) << (i * bits);
        r |= if mask >> i & 1 != 0 { b & lane } else { a & lane };
    }
    r
}

fn extend(b: u128, imm: usize) -> u128 {
    let (from, to, signed) = ((imm & 0xff) as u32, (imm >> 8 & 0xff) as u32, imm >> 16 != 0);
    let mut r = 0;
    for i in 0..128 / to {
        let lane = (b >> (i * from)) & (u128::MAX >> (128 - from));
        let value =
            if signed { ((lane << (128 - from)) as i128 >> (128 - from)) as u128 } else { lane };
        r |= (value & (u128::MAX >> (128 - to))) << (i * to);
    }
    r
}

/// Lane 0 only (scalar), or all lanes.
macro_rules! lanes_fp {
    ($op:expr, $a:expr, $b:expr, $map:ident, $t:ty, $f:expr) => {
        if $op.imm & 1 != 0 {
            let low = $f($a as $t, $b as $t);
            $a & !u128::from(<$t>::MAX) | u128::from(low)
        } else {
            $map($a, $b, $f)
        }
    };
}

#[inline(always)]
fn float(which: VecOp, op: &Op, a: u128, b: u128) -> u128 {
    use VecOp as O;
    let rule = nan_rule(op.x);
    match which {
        O::FAdd32 => lanes_fp!(op, a, b, map32, u32, |x, y| fp::add32(x, y, rule)),
        O::FAdd64 => lanes_fp!(op, a, b, map64, u64, |x, y| fp::add64(x, y, rule)),
        O::FSub32 => lanes_fp!(op, a, b, map32, u32, |x, y| fp::sub32(x, y, rule)),
        O::FSub64 => lanes_fp!(op, a, b, map64, u64, |x, y| fp::sub64(x, y, rule)),
        O::FMul32 => lanes_fp!(op, a, b, map32, u32, |x, y| fp::mul32(x, y, rule)),
        O::FMul64 => lanes_fp!(op, a, b, map64, u64, |x, y| fp::mul64(x, y, rule)),
        O::FDiv32 => lanes_fp!(op, a, b, map32, u32, |x, y| fp::div32(x, y, rule)),
        O::FDiv64 => lanes_fp!(op, a, b, map64, u64, |x, y| fp::div64(x, y, rule)),
        O::FMin32 => lanes_fp!(op, a, b, map32, u32, |x, y| {
            if f32::from_bits(x) < f32::from_bits(y) { x } else { y }
        }),
        O::FMin64 => lanes_fp!(op, a, b, map64, u64, |x, y| {
            if f64::from_bits(x) < f64::from_bits(y) { x } else { y }
        }),
        O::FMax32 => lanes_fp!(op, a, b, map32, u32, |x, y| {
            if f32::from_bits(x) > f32::from_bits(y) { x } else { y }
        }),
        O::FMax64 => lanes_fp!(op, a, b, map64, u64, |x, y| {
            if f64::from_bits(x) > f64::from_bits(y) { x } else { y }
        }),
        O::FSqrt32 => lanes_fp!(op, a, b, map32, u32, |_x, y| fp::sqrt32(y, rule)),
        O::FSqrt64 => lanes_fp!(op, a, b, map64, u64, |_x, y| fp::sqrt64(y, rule)),
        O::FCmp32 => lanes_fp!(op, a, b, map32, u32, |x, y| {
            let (x, y) = (f32::from_bits(x) as f64, f32::from_bits(y) as f64);
            ones!(u32, compare(x, y, op.imm >> 8))
        }),
        O::FCmp64 => lanes_fp!(op, a, b, map64, u64, |x, y| {
            ones!(u64, compare(f64::from_bits(x), f64::from_bits(y), op.imm >> 8))
        }),
        O::FHAdd32 => horizontal!(split32, join32, 4, a, b, |x, y| fp::add32(x, y, rule)),
        O::FHAdd64 => horizontal!(split64, join64, 2, a, b, |x, y| fp::add64(x, y, rule)),
        O::FHSub32 => horizontal!(split32, join32, 4, a, b, |x, y| fp::sub32(x, y, rule)),
        O::FHSub64 => horizontal!(split64, join64, 2, a, b, |x, y| fp::sub64(x, y, rule)),
        O::FAddSub32 => {
            let (x, y) = (split32(a), split32(b));
            join32(std::array::from_fn(|i| {
                if i % 2 == 0 { fp::sub32(x[i], y[i], rule) } else { fp::add32(x[i], y[i], rule) }
            }))
        }
        O::FAddSub64 => {
            let (x, y) = (split64(a), split64(b));
            join64([fp::sub64(x[0], y[0], rule), fp::add64(x[1], y[1], rule)])
        }
        O::FRound32 => lanes_fp!(op, a, b, map32, u32, |_x, y| round32(y, op.imm >> 8, rule)),
        O::FRound64 => lanes_fp!(op, a, b, map64, u64, |_x, y| round64(y, op.imm >> 8, rule)),
        _ => convert(which, op, a, b),
    }
}

/// The eight SSE predicates: eq, lt, le, unord, and their complements.
fn compare(x: f64, y: f64, predicate: i64) -> bool {
    let holds = match predicate & 3 {
        0 => x == y,
        1 => x < y,
        2 => x <= y,
        _ => x.is_nan() || y.is_nan(),
    };
    holds != (predicate & 4 != 0)
}

fn round32(y: u32, mode: i64, rule: NanRule) -> u32 {
    let v = f32::from_bits(y);
    if v.is_nan() {
        return fp::nan1_32(y, rule);
    }
    let r = match mode & 7 {
        1 => v.floor(),
        2 => v.ceil(),
        3 => v.trunc(),
        _ => v.round_ties_even(),
    };
    r.to_bits()
}
fn round64(y: u64, mode: i64, rule: NanRule) -> u64 {
    let v = f64::from_bits(y);
    if v.is_nan() {
        return fp::nan1_64(y, rule);
    }
    let r = match mode & 7 {
        1 => v.floor(),
        2 => v.ceil(),
        3 => v.trunc(),
        _ => v.round_ties_even(),
    };
    r.to_bits()
}

/// Single to double, NaN payload kept and quieted.
pub fn widen(y: u32) -> u64 {
    let v = f32::from_bits(y);
    if !v.is_nan() {
        return f64::from(v).to_bits();
    }
    let sign = u64::from(y >> 31) << 63;
    sign | 0x7ff8 << 48 | u64::from(y & 0x3f_ffff) << 29
}

/// Double to single, NaN payload kept (its high bits) and quieted.
pub fn narrow(y: u64) -> u32 {
    let v = f64::from_bits(y);
    if !v.is_nan() {
        return (v as f32).to_bits();
    }
    let sign = ((y >> 63) as u32) << 31;
    sign | 0x7fc0_0000 | (y >> 29) as u32 & 0x3f_ffff
}

/// x86's "integer indefinite" where the value does not fit.
fn to_i32(v: f64) -> u32 {
    if (-2_147_483_648.0..2_147_483_648.0).contains(&v) { v as i32 as u32 } else { 1 << 31 }
}
fn to_i64(v: f64) -> u64 {
    let limit = 9_223_372_036_854_775_808.0;
    if (-limit..limit).contains(&v) { v as i64 as u64 } else { 1 << 63 }
}

fn convert(which: VecOp, op: &Op, a: u128, b: u128) -> u128 {
    use VecOp as O;
    let scalar = op.imm & 1 != 0;
    let f32s = split32(b).map(|x| f64::from(f32::from_bits(x)));
    let f64s = split64(b).map(f64::from_bits);
    match which {
        O::Cvt32To64 if scalar => a & !u128::from(u64::MAX) | u128::from(widen(b as u32)),
        O::Cvt32To64 => join64([widen(b as u32), widen((b >> 32) as u32)]),
        O::Cvt64To32 if scalar => a & !u128::from(u32::MAX) | u128::from(narrow(b as u64)),
        O::Cvt64To32 => join32([narrow(b as u64), narrow((b >> 64) as u64), 0, 0]),
        O::CvtI32ToF32 => map1_32(b, |x| (x as i32 as f32).to_bits()),
        O::CvtI32ToF64 => {
            let f = |x: u32| f64::from(x as i32).to_bits();
            join64([f(b as u32), f((b >> 32) as u32)])
        }
        O::CvtF32ToI32 => join32(f32s.map(|v| to_i32(v.round_ties_even()))),
        O::CvtF32ToI32Trunc => join32(f32s.map(|v| to_i32(v.trunc()))),
        O::CvtF64ToI32 => {
            let [x, y] = f64s.map(|v| to_i32(v.round_ties_even()));
            join32([x, y, 0, 0])
        }
        O::CvtF64ToI32Trunc => {
            let [x, y] = f64s.map(|v| to_i32(v.trunc()));
            join32([x, y, 0, 0])
        }
        _ => a,
    }
}

/// Vector to integer register.
pub fn vec_to_r(_s: &mut CpuState, op: &Op, a: u128, _b: u128) -> u64 {
    use VecOp as O;
    let single = f64::from(f32::from_bits(a as u32));
    let double = f64::from_bits(a as u64);
    match VecOp::from_raw(op.x) {
        O::Mask8 => swar::mask8(a as u64) | swar::mask8((a >> 64) as u64) << 8,
        O::Mask32 => split32(a).iter().enumerate().map(|(i, &x)| u64::from(x >> 31) << i).sum(),
        O::Mask64 => (a >> 63) as u64 & 1 | (a >> 126) as u64 & 2,
        O::F32ToI32 => u64::from(to_i32(single.round_ties_even())),
        O::F32ToI64 => to_i64(single.round_ties_even()),
        O::F32ToI32Trunc => u64::from(to_i32(single.trunc())),
        O::F32ToI64Trunc => to_i64(single.trunc()),
        O::F64ToI32 => u64::from(to_i32(double.round_ties_even())),
        O::F64ToI64 => to_i64(double.round_ties_even()),
        O::F64ToI32Trunc => u64::from(to_i32(double.trunc())),
        O::F64ToI64Trunc => to_i64(double.trunc()),
        _ => 0,
    }
}

/// Integer register to vector.
pub fn vec_from_r(_s: &mut CpuState, op: &Op, a: u128, b: u64) -> u128 {
    let single = |v: f32| a & !u128::from(u32::MAX) | u128::from(v.to_bits());
    let double = |v: f64| a & !u128::from(u64::MAX) | u128::from(v.to_bits());
    match VecOp::from_raw(op.x) {
        VecOp::I32ToF32 => single(b as i32 as f32),
        VecOp::I64ToF32 => single(b as i64 as f32),
        VecOp::I32ToF64 => double(f64::from(b as i32)),
        VecOp::I64ToF64 => double(b as i64 as f64),
        _ => a,
    }
}

/// A comparison of vectors into the flags.
pub fn vec_cc(s: &mut CpuState, op: &Op, a: u128, b: u128) {
    let (x, y) = match VecOp::from_raw(op.x) {
        VecOp::Comi32 => (f64::from(f32::from_bits(a as u32)), f64::from(f32::from_bits(b as u32))),
        VecOp::Test => {
            let zf = if a & b == 0 { eflags::ZF } else { 0 };
            let cf = if !a & b == 0 { eflags::CF } else { 0 };
            s.set_cc(CcKind::Flags, zf | cf, 0, 0);
            return;
        }
        _ => (f64::from_bits(a as u64), f64::from_bits(b as u64)),
    };
    let flags = match x.partial_cmp(&y) {
        None => eflags::ZF | eflags::PF | eflags::CF,
        Some(std::cmp::Ordering::Less) => eflags::CF,
        Some(std::cmp::Ordering::Equal) => eflags::ZF,
        Some(std::cmp::Ordering::Greater) => 0,
    };
    s.set_cc(CcKind::Flags, flags, 0, 0);
}
