//! Floating point as Advanced SIMD defines it, on bits: what [`crate::fp`] does not have because
//! only arm64 needs it.
//!
//! The host's arithmetic does the work where its result is not a NaN; no exception bits, round to nearest,
//! no flushing, no default-NaN mode (see [`crate::arm64`]).
//!
//! Source: Arm DDI 0487, "Shared pseudocode", `shared/functions/float`.
#![expect(
    clippy::cast_possible_truncation,
    clippy::cast_precision_loss,
    clippy::cast_sign_loss,
    reason = "conversions between formats are what this file is about"
)]

use crate::fp::{self, NanRule};
use std::cmp::Ordering;

/// How a value is rounded to an integer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Round {
    /// To nearest, ties to even.
    Nearest,
    /// Towards plus infinity.
    Up,
    /// Towards minus infinity.
    Down,
    /// Towards zero.
    Zero,
    /// To nearest, ties away from zero.
    Away,
}

/// The bits of a single or double, with the operations of the instruction set.
pub(crate) trait Float: Copy + PartialEq {
    /// Width in bits.
    const BITS: u32;
    /// The low bits of a vector lane.
    fn of(lane: u64) -> Self;
    /// As the low bits of a vector lane.
    fn lane(self) -> u64;
    /// Nearest value to a double.
    fn from_f64(value: f64) -> Self;
    /// The value as a double, exactly (of a NaN: some NaN).
    fn to_f64(self) -> f64;
    fn is_nan(self) -> bool;
    fn is_signalling(self) -> bool;
    fn quieted(self) -> Self;
    fn negated(self) -> Self;
    fn absolute(self) -> Self;
    fn is_negative(self) -> bool;
    fn default_nan() -> Self;
    fn add(self, b: Self) -> Self;
    fn sub(self, b: Self) -> Self;
    fn mul(self, b: Self) -> Self;
    fn div(self, b: Self) -> Self;
    fn sqrt(self) -> Self;
    /// `self + a * b` without NaN rules.
    fn raw_fma(self, a: Self, b: Self) -> Self;
    /// Nearest value to a signed integer.
    fn from_i64(value: i64) -> Self;
    /// Nearest value to an unsigned integer.
    fn from_u64(value: u64) -> Self;
    /// Multiplied by two to the power of `-bits`.
    fn scaled_down(self, bits: u32) -> Self;
    /// `None` when either is a NaN.
    fn compare(self, b: Self) -> Option<Ordering>;
    /// Rounded to an integral value, a NaN quieted.
    fn round(self, mode: Round) -> Self;
}

fn round_f64(x: f64, mode: Round) -> f64 {
    match mode {
        Round::Nearest => x.round_ties_even(),
        Round::Up => x.ceil(),
        Round::Down => x.floor(),
        Round::Zero => x.trunc(),
        Round::Away => x.round(),
    }
}

macro_rules! float {
    ($bits:ty, $float:ty, $quiet:expr, $default:expr,
     $add:path, $sub:path, $mul:path, $div:path, $sqrt:path) => {
        impl Float for $bits {
            const BITS: u32 = <$bits>::BITS;
            #[inline(always)]
            fn of(lane: u64) -> Self {
                lane as $bits
            }
            #[inline(always)]
            fn lane(self) -> u64 {
                u64::from(self)
            }
            fn from_f64(value: f64) -> Self {
                (value as $float).to_bits()
            }
            fn to_f64(self) -> f64 {
                f64::from(<$float>::from_bits(self))
            }
            #[inline(always)]
            fn is_nan(self) -> bool {
                <$float>::from_bits(self).is_nan()
            }
            fn is_signalling(self) -> bool {
                self.is_nan() && self & $quiet == 0
            }
            fn quieted(self) -> Self {
                self | $quiet
            }
            #[inline(always)]
            fn negated(self) -> Self {
                self ^ (1 << (<$bits>::BITS - 1))
            }
            #[inline(always)]
            fn absolute(self) -> Self {
                self & !(1 << (<$bits>::BITS - 1))
            }
            fn is_negative(self) -> bool {
                self >> (<$bits>::BITS - 1) != 0
            }
            fn default_nan() -> Self {
                $default
            }
            #[inline(always)]
            fn add(self, b: Self) -> Self {
                $add(self, b, NanRule::Arm)
            }
            #[inline(always)]
            fn sub(self, b: Self) -> Self {
                $sub(self, b, NanRule::Arm)
            }
            #[inline(always)]
            fn mul(self, b: Self) -> Self {
                $mul(self, b, NanRule::Arm)
            }
            #[inline(always)]
            fn div(self, b: Self) -> Self {
                $div(self, b, NanRule::Arm)
            }
            fn sqrt(self) -> Self {
                $sqrt(self, NanRule::Arm)
            }
            #[inline(always)]
            fn raw_fma(self, a: Self, b: Self) -> Self {
                let (c, a, b) =
                    (<$float>::from_bits(self), <$float>::from_bits(a), <$float>::from_bits(b));
                a.mul_add(b, c).to_bits()
            }
            fn from_i64(value: i64) -> Self {
                (value as $float).to_bits()
            }
            fn from_u64(value: u64) -> Self {
                (value as $float).to_bits()
            }
            fn scaled_down(self, bits: u32) -> Self {
                let scale = f64::from_bits(u64::from(1023 - bits.min(64)) << 52) as $float;
                (<$float>::from_bits(self) * scale).to_bits()
            }
            #[inline(always)]
            fn compare(self, b: Self) -> Option<Ordering> {
                <$float>::from_bits(self).partial_cmp(&<$float>::from_bits(b))
            }
            fn round(self, mode: Round) -> Self {
                if self.is_nan() {
                    return self.quieted();
                }
                (round_f64(self.to_f64(), mode) as $float).to_bits()
            }
        }
    };
}

float!(
    u64,
    f64,
    1 << 51,
    0x7ff8_0000_0000_0000,
    fp::add64,
    fp::sub64,
    fp::mul64,
    fp::div64,
    fp::sqrt64
);
float!(u32, f32, 1 << 22, 0x7fc0_0000, fp::add32, fp::sub32, fp::mul32, fp::div32, fp::sqrt32);

/// The NaN that the operands lead to: a signalling one first, then a quiet one, in order.
fn chosen_nan<F: Float>(operands: &[F]) -> F {
    let signalling = operands.iter().find(|f| f.is_signalling());
    let any = operands.iter().find(|f| f.is_nan());
    signalling.or(any).map_or(F::default_nan(), |f| f.quieted())
}

fn is_zero<F: Float>(a: F) -> bool {
    a.absolute().lane() == 0
}

fn is_infinite<F: Float>(a: F) -> bool {
    a.to_f64().is_infinite()
}

fn is_infinity_times_zero<F: Float>(a: F, b: F) -> bool {
    (is_infinite(a) && is_zero(b)) || (is_zero(a) && is_infinite(b))
}

/// `FPMulAdd`: `c + a * b` with one rounding.
#[inline(always)]
pub(crate) fn fma<F: Float>(c: F, a: F, b: F) -> F {
    let r = c.raw_fma(a, b);
    if r.is_nan() { fma_nan(c, a, b) } else { r }
}

#[cold]
fn fma_nan<F: Float>(c: F, a: F, b: F) -> F {
    if c.is_nan() && !c.is_signalling() && is_infinity_times_zero(a, b) {
        return F::default_nan();
    }
    chosen_nan(&[c, a, b])
}

/// `FPMulX`: infinity times zero is two.
pub(crate) fn mulx<F: Float>(a: F, b: F) -> F {
    if is_infinity_times_zero(a, b) {
        let two = F::from_f64(2.0);
        return if a.is_negative() != b.is_negative() { two.negated() } else { two };
    }
    a.mul(b)
}

/// `FPMax`: a NaN wins; plus zero is larger than minus zero.
pub(crate) fn max<F: Float>(a: F, b: F) -> F {
    match a.compare(b) {
        None => chosen_nan(&[a, b]),
        Some(Ordering::Greater) => a,
        Some(Ordering::Equal) if a.is_negative() => b,
        Some(Ordering::Equal) => a,
        Some(Ordering::Less) => b,
    }
}

/// `FPMin`: a NaN wins; minus zero is smaller than plus zero.
pub(crate) fn min<F: Float>(a: F, b: F) -> F {
    match a.compare(b) {
        None => chosen_nan(&[a, b]),
        Some(Ordering::Less) => a,
        Some(Ordering::Equal) if a.is_negative() => a,
        Some(Ordering::Equal) => b,
        Some(Ordering::Greater) => b,
    }
}

/// A quiet NaN against a number gives way to the number.
fn number_of<F: Float>(a: F, b: F) -> Option<F> {
    match (a.is_nan(), b.is_nan()) {
        (true, false) if !a.is_signalling() => Some(b),
        (false, true) if !b.is_signalling() => Some(a),
        _ => None,
    }
}

/// `FPMaxNum`.
pub(crate) fn maxnm<F: Float>(a: F, b: F) -> F {
    number_of(a, b).unwrap_or_else(|| max(a, b))
}

/// `FPMinNum`.
pub(crate) fn minnm<F: Float>(a: F, b: F) -> F {
    number_of(a, b).unwrap_or_else(|| min(a, b))
}

/// `FPRecipStepFused`: `2 - a * b`.
pub(crate) fn recps<F: Float>(a: F, b: F) -> F {
    let a = a.negated();
    step_special(a, b, 2.0).unwrap_or_else(|| F::from_f64(2.0).raw_fma(a, b))
}

/// `FPRSqrtStepFused`: `(3 - a * b) / 2`, rounded once.
///
/// Halving the larger factor is exact wherever the product matters, and cannot overflow before the end.
pub(crate) fn rsqrts<F: Float>(a: F, b: F) -> F {
    let a = a.negated();
    step_special(a, b, 1.5).unwrap_or_else(|| {
        let a_is_larger = a.absolute().lane() >= b.absolute().lane();
        let (large, small) = if a_is_larger { (a, b) } else { (b, a) };
        F::from_f64(1.5).raw_fma(large.scaled_down(1), small)
    })
}

/// What the steps give for a NaN, and for infinity times zero.
fn step_special<F: Float>(a: F, b: F, at_infinity_times_zero: f64) -> Option<F> {
    if a.is_nan() || b.is_nan() {
        return Some(chosen_nan(&[a, b]));
    }
    is_infinity_times_zero(a, b).then(|| F::from_f64(at_infinity_times_zero))
}

/// NZCV of a comparison, in bits 31–28.
pub(crate) fn compare_flags<F: Float>(a: F, b: F) -> u64 {
    let flags = match a.compare(b) {
        Some(Ordering::Less) => 0b1000,
        Some(Ordering::Equal) => 0b0110,
        Some(Ordering::Greater) => 0b0010,
        None => 0b0011,
    };
    flags << 28
}

/// Whether an integer result is signed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sign {
    /// Two's complement.
    Signed,
    /// Unsigned.
    Unsigned,
}

/// `FPToFixed`: to an integer of 32 or 64 bits with `fraction` fractional bits, saturating.
pub(crate) fn to_int<F: Float>(a: F, mode: Round, sign: Sign, wide: bool, fraction: u32) -> u64 {
    let x = a.to_f64();
    let scale = f64::from_bits(u64::from(1023 + fraction.min(64)) << 52);
    let y = round_f64(x * scale, mode);
    match (sign, wide) {
        (Sign::Signed, true) => (y as i64) as u64,
        (Sign::Signed, false) => u64::from((y as i32) as u32),
        (Sign::Unsigned, true) => y as u64,
        (Sign::Unsigned, false) => u64::from(y as u32),
    }
}

/// `FixedToFP`: from an integer of 32 or 64 bits with `fraction` fractional bits.
pub(crate) fn from_int<F: Float>(a: u64, sign: Sign, wide: bool, fraction: u32) -> F {
    let value = match (sign, wide) {
        (Sign::Signed, true) => F::from_i64(a.cast_signed()),
        (Sign::Signed, false) => F::from_i64(i64::from((a as u32).cast_signed())),
        (Sign::Unsigned, true) => F::from_u64(a),
        (Sign::Unsigned, false) => F::from_u64(u64::from(a as u32)),
    };
    if fraction == 0 { value } else { value.scaled_down(fraction) }
}

/// Single to double.
pub(crate) fn widen(a: u32) -> u64 {
    if a.is_nan() {
        let sign = u64::from(a >> 31) << 63;
        return sign | 0x7ff8 << 48 | u64::from(a & 0x7f_ffff) << 29;
    }
    f64::from(f32::from_bits(a)).to_bits()
}

/// Double to single.
pub(crate) fn narrow(a: u64) -> u32 {
    if a.is_nan() {
        let sign = ((a >> 63) as u32) << 31;
        return sign | 0x7fc0_0000 | ((a >> 29) as u32 & 0x3f_ffff);
    }
    (f64::from_bits(a) as f32).to_bits()
}

/// Double to single, rounded to odd (`FCVTXN`).
pub(crate) fn narrow_to_odd(a: u64) -> u32 {
    let nearest = narrow(a);
    if a.is_nan() {
        return nearest;
    }
    let back = f64::from(f32::from_bits(nearest));
    let exact = f64::from_bits(a);
    if back == exact {
        return nearest;
    }
    // Towards zero, then the low bit on.
    let truncated = if back.abs() > exact.abs() { nearest - 1 } else { nearest };
    truncated | 1
}

/// Half to double, exact.
pub(crate) fn half_to_double(h: u16) -> u64 {
    let sign = u64::from(h >> 15) << 63;
    let (exponent, fraction) = (u64::from(h >> 10 & 31), u64::from(h & 0x3ff));
    match (exponent, fraction) {
        (0, 0) => sign,
        (0, f) => sign | (f as f64 / 16_777_216.0).to_bits(),
        (31, 0) => sign | 0x7ff0 << 48,
        (31, f) => sign | 0x7ff8 << 48 | f << 42,
        (e, f) => sign | (e + 1008) << 52 | f << 42,
    }
}

/// Double to half, to nearest even.
pub(crate) fn double_to_half(d: u64) -> u16 {
    let sign = ((d >> 63) as u16) << 15;
    let exponent = (d >> 52 & 0x7ff) as i32 - 1023;
    let fraction = d & ((1 << 52) - 1);
    if exponent == 1024 {
        let nan = 0x200 | (fraction >> 42) as u16;
        return sign | 0x7c00 | if fraction == 0 { 0 } else { nan };
    }
    if exponent < -25 {
        return sign;
    }
    let significand = fraction | 1 << 52;
    let (shift, base) = if exponent < -14 {
        ((28 - exponent) as u32, 0)
    } else {
        (42, ((exponent + 14) as u64) << 10)
    };
    let kept = significand >> shift;
    let rest = significand & ((1 << shift) - 1);
    let half = 1 << (shift - 1);
    let up = rest > half || (rest == half && kept & 1 != 0);
    let rounded = base + kept + u64::from(up);
    sign | rounded.min(0x7c00) as u16
}

/// Single to half.
pub(crate) fn single_to_half(a: u32) -> u16 {
    double_to_half(widen(a))
}

/// Half to single.
pub(crate) fn half_to_single(h: u16) -> u32 {
    narrow(half_to_double(h))
}

/// `RecipEstimate` of the manual: `a` in 256..512, result in 256..512.
fn recip_estimate(a: u64) -> u64 {
    let a = a * 2 + 1;
    let b = (1 << 19) / a;
    b.div_ceil(2)
}

/// `RecipSqrtEstimate` of the manual: `a` in 128..512, result in 256..512.
fn rsqrt_estimate(a: u64) -> u64 {
    let a = if a < 256 { a * 2 + 1 } else { ((a >> 1 << 1) + 1) * 2 };
    let mut b = 512;
    while a * (b + 1) * (b + 1) < 1 << 28 {
        b += 1;
    }
    b.div_ceil(2)
}

/// `UnsignedRecipEstimate`.
pub(crate) fn unsigned_recip(a: u32) -> u32 {
    if a >> 31 == 0 {
        return u32::MAX;
    }
    (recip_estimate(u64::from(a >> 23)) as u32) << 23
}

/// `UnsignedRSqrtEstimate`.
pub(crate) fn unsigned_rsqrt(a: u32) -> u32 {
    if a >> 30 == 0 {
        return u32::MAX;
    }
    (rsqrt_estimate(u64::from(a >> 23)) as u32) << 23
}

/// Exponent and fraction fields of a format: fraction bits, largest exponent.
fn fields<F: Float>() -> (u32, u64) {
    if F::BITS == 64 { (52, 0x7ff) } else { (23, 0xff) }
}

/// `FPRecipEstimate`.
pub(crate) fn recip<F: Float>(x: F) -> F {
    let (bits, top) = fields::<F>();
    let sign = x.lane() & (1 << (F::BITS - 1));
    let mut exponent = x.lane() >> bits & top;
    let mut fraction = (x.lane() & ((1 << bits) - 1)) << (52 - bits);
    if x.is_nan() {
        return x.quieted();
    }
    if exponent == top {
        return F::of(sign);
    }
    if exponent == 0 && fraction >> 50 == 0 {
        // Zero, and what is so small that the reciprocal overflows: infinity.
        return F::of(sign | top << bits);
    }
    if exponent == 0 {
        if fraction >> 51 == 0 {
            exponent = u64::MAX;
            fraction = fraction << 2 & ((1 << 52) - 1);
        } else {
            fraction = fraction << 1 & ((1 << 52) - 1);
        }
    }
    let estimate = recip_estimate(1 << 8 | fraction >> 44);
    let mut fraction = (estimate & 0xff) << 44;
    let mut result = (2 * (top >> 1) - 1).wrapping_sub(exponent);
    if result == 0 {
        fraction = 1 << 51 | fraction >> 1;
    } else if result == u64::MAX {
        fraction = 1 << 50 | fraction >> 2;
        result = 0;
    }
    F::of(sign | (result & top) << bits | fraction >> (52 - bits))
}

/// `FPRSqrtEstimate`.
pub(crate) fn rsqrt<F: Float>(x: F) -> F {
    let (bits, top) = fields::<F>();
    if x.is_nan() {
        return x.quieted();
    }
    let sign = x.lane() & (1 << (F::BITS - 1));
    if is_zero(x) {
        return F::of(sign | top << bits);
    }
    if sign != 0 {
        return F::default_nan();
    }
    let mut exponent = (x.lane() >> bits & top).cast_signed();
    if exponent.cast_unsigned() == top {
        return F::of(0);
    }
    let mut fraction = (x.lane() & ((1 << bits) - 1)) << (52 - bits);
    if exponent == 0 {
        while fraction >> 51 == 0 {
            fraction = fraction << 1 & ((1 << 52) - 1);
            exponent -= 1;
        }
        fraction = fraction << 1 & ((1 << 52) - 1);
    }
    let scaled = if exponent & 1 == 0 { 1 << 8 | fraction >> 44 } else { 1 << 7 | fraction >> 45 };
    let bias = (top >> 1).cast_signed();
    let result = (3 * bias - 1 - exponent).div_euclid(2).cast_unsigned();
    let estimate = rsqrt_estimate(scaled);
    F::of((result & top) << bits | (estimate & 0xff) << 44 >> (52 - bits))
}

/// `FPRecpX`: reciprocal of the exponent.
pub(crate) fn recpx<F: Float>(x: F) -> F {
    let (bits, top) = fields::<F>();
    if x.is_nan() {
        return x.quieted();
    }
    let sign = x.lane() & (1 << (F::BITS - 1));
    let exponent = x.lane() >> bits & top;
    let inverse = if exponent == 0 { top - 1 } else { !exponent & top };
    F::of(sign | inverse << bits)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fma_takes_the_addends_nan_first_and_signalling_before_quiet() {
        let (quiet, signalling) = (0x7ff8_0000_0000_0001u64, 0x7ff0_0000_0000_0002u64);
        let one = 1f64.to_bits();
        assert_eq!(fma(quiet, one, signalling), signalling | 1 << 51);
        assert_eq!(fma(quiet, one, one), quiet);
        let (inf, zero) = (f64::INFINITY.to_bits(), 0u64);
        assert_eq!(fma(quiet, inf, zero), u64::default_nan());
        assert_eq!(fma(one, inf, zero), u64::default_nan());
    }

    #[test]
    fn reciprocal_square_root_step_overflows_only_at_the_end() {
        let (a, b) = (f32::from_bits(0x7f7f_ffff).to_bits(), (-1.5f32).to_bits());
        let exact = (3.0 + f64::from(f32::MAX) * 1.5) / 2.0;
        assert_eq!(rsqrts(a, b), (exact as f32).to_bits());
        assert_eq!(rsqrts(f32::INFINITY.to_bits(), 0), 1.5f32.to_bits());
    }

    #[test]
    fn maximum_and_minimum_order_zeros_and_nans() {
        let (plus, minus) = (0f32.to_bits(), (-0f32).to_bits());
        assert_eq!((max(minus, plus), max(plus, minus)), (plus, plus));
        assert_eq!((min(minus, plus), min(plus, minus)), (minus, minus));
        let nan = u32::default_nan();
        assert_eq!(max(nan, plus), nan);
        assert_eq!(maxnm(nan, plus), plus);
    }

    #[test]
    fn halves_round_trip_through_doubles() {
        for h in 0..=u16::MAX {
            let signalling = h & 0x7c00 == 0x7c00 && h & 0x3ff != 0 && h & 0x200 == 0;
            let expected = if signalling { h | 0x200 } else { h };
            assert_eq!(double_to_half(half_to_double(h)), expected, "{h:04x}");
            assert_eq!(single_to_half(half_to_single(h)), expected, "{h:04x}");
        }
    }

    #[test]
    fn doubles_round_to_nearest_half() {
        assert_eq!(double_to_half(65519.0f64.to_bits()), 0x7bff);
        assert_eq!(double_to_half(65520.0f64.to_bits()), 0x7c00);
        assert_eq!(double_to_half(2f64.powi(-25).to_bits()), 0);
        assert_eq!(double_to_half((2f64.powi(-25) * 1.5).to_bits()), 1);
        assert_eq!(double_to_half(1e300f64.to_bits()), 0x7c00);
    }

    #[test]
    fn integers_saturate_and_nans_become_zero() {
        let big = 1e30f64.to_bits();
        assert_eq!(to_int(big, Round::Zero, Sign::Signed, false, 0), 0x7fff_ffff);
        assert_eq!(to_int(big, Round::Zero, Sign::Unsigned, true, 0), u64::MAX);
        assert_eq!(to_int(u64::default_nan(), Round::Zero, Sign::Signed, true, 0), 0);
        assert_eq!(to_int(2.5f64.to_bits(), Round::Away, Sign::Signed, true, 0), 3);
        assert_eq!(to_int(2.5f64.to_bits(), Round::Nearest, Sign::Signed, true, 0), 2);
        assert_eq!(to_int(1.25f64.to_bits(), Round::Zero, Sign::Signed, true, 2), 5);
    }
}
