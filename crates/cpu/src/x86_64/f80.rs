//! Arithmetic on the 80-bit extended format, exact and rounded as the control word says.
//!
//! FIDELITY: x87-flags exception flags other than the condition codes are not raised; unnormal encodings
//! are taken at their value; transcendental instructions are absent.

#![expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "narrowing is what these instructions do"
)]

/// Rounding control of the x87 control word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Rounding {
    /// To nearest, ties to even.
    Nearest,
    /// Towards minus infinity.
    Down,
    /// Towards plus infinity.
    Up,
    /// Towards zero.
    Zero,
}

impl Rounding {
    /// From bits 11–10 of the control word.
    pub(super) fn of_control(cw: u16) -> Rounding {
        match cw >> 10 & 3 {
            0 => Rounding::Nearest,
            1 => Rounding::Down,
            2 => Rounding::Up,
            _ => Rounding::Zero,
        }
    }
}

/// Mode of an operation: rounding, and significand bits (64, 53 or 24).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Mode {
    /// Rounding.
    pub(super) rounding: Rounding,
    /// Significand bits of results.
    pub(super) bits: u32,
}

impl Mode {
    /// What a control word asks for.
    pub(super) fn of_control(cw: u16) -> Mode {
        let bits = match cw >> 8 & 3 {
            0 => 24,
            2 => 53,
            _ => 64,
        };
        Mode { rounding: Rounding::of_control(cw), bits }
    }
}

/// An extended-precision number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub(super) struct F80 {
    /// Sign (bit 15) and biased exponent.
    pub(super) se: u16,
    /// Significand with explicit integer bit.
    pub(super) mant: u64,
}

const BIAS: i32 = 16383;
const TOP: u64 = 1 << 63;
/// The default NaN.
const INDEFINITE: F80 = F80 { se: 0xffff, mant: 3 << 62 };

/// A finite non-zero number: m / 2^63 × 2^e, bit 63 of m set.
#[derive(Clone, Copy)]
struct Norm {
    e: i32,
    m: u64,
}

/// Shifts right, collecting what falls out in the lowest bit.
fn shr_sticky(m: u128, n: u32) -> u128 {
    match n {
        0 => m,
        1..=127 => m >> n | u128::from(m << (128 - n) != 0),
        _ => u128::from(m != 0),
    }
}

/// The result of rounding m / 2^127 × 2^e to `bits`.
struct Rounded {
    e: i32,
    m: u64,
    overflow: bool,
}

fn round(sign: bool, e: i32, m: u128, bits: u32, range: (i32, i32), r: Rounding) -> Rounded {
    let (emin, emax) = range;
    let (m, mut e) = if e < emin { (shr_sticky(m, emin.abs_diff(e)), emin) } else { (m, e) };
    let mut keep = m >> (128 - bits);
    let rest = m << bits;
    let half = 1u128 << 127;
    let up = match r {
        Rounding::Nearest => rest > half || rest == half && keep & 1 != 0,
        Rounding::Down => sign && rest != 0,
        Rounding::Up => !sign && rest != 0,
        Rounding::Zero => false,
    };
    keep += u128::from(up);
    if keep == 1 << bits {
        keep >>= 1;
        e += 1;
    }
    Rounded { e, m: keep as u64, overflow: e > emax }
}

/// Whether an overflow becomes infinity (else the largest finite number).
fn overflows_to_infinity(sign: bool, r: Rounding) -> bool {
    match r {
        Rounding::Nearest => true,
        Rounding::Down => sign,
        Rounding::Up => !sign,
        Rounding::Zero => false,
    }
}

impl F80 {
    /// Zero of a sign.
    pub(super) fn zero(sign: bool) -> F80 {
        F80 { se: u16::from(sign) << 15, mant: 0 }
    }
    /// Infinity of a sign.
    fn infinity(sign: bool) -> F80 {
        F80 { se: u16::from(sign) << 15 | 0x7fff, mant: TOP }
    }
    /// Sign bit.
    pub(super) fn sign(self) -> bool {
        self.se >> 15 != 0
    }
    fn exp(self) -> u16 {
        self.se & 0x7fff
    }
    /// Whether it is a NaN.
    pub(super) fn is_nan(self) -> bool {
        self.exp() == 0x7fff && self.mant << 1 != 0
    }
    /// Whether it is an infinity.
    pub(super) fn is_inf(self) -> bool {
        self.exp() == 0x7fff && self.mant << 1 == 0
    }
    /// Whether it is a zero.
    pub(super) fn is_zero(self) -> bool {
        self.exp() != 0x7fff && self.mant == 0
    }
    /// Whether it is denormal.
    pub(super) fn is_denormal(self) -> bool {
        self.exp() == 0 && self.mant != 0
    }
    /// With the sign flipped.
    pub(super) fn negated(self) -> F80 {
        F80 { se: self.se ^ 0x8000, ..self }
    }
    /// With the sign cleared.
    pub(super) fn magnitude(self) -> F80 {
        F80 { se: self.se & 0x7fff, ..self }
    }

    fn norm(self) -> Norm {
        let lz = self.mant.leading_zeros();
        let e = i32::from(self.exp().max(1)) - BIAS;
        Norm { e: e - lz.cast_signed(), m: self.mant << (lz & 63) }
    }

    /// Rounds m / 2^127 × 2^e (bit 127 of m set, or m zero).
    fn pack(sign: bool, e: i32, m: u128, mode: Mode) -> F80 {
        if m == 0 {
            return F80::zero(sign);
        }
        let r = round(sign, e, m, mode.bits, (1 - BIAS, BIAS), mode.rounding);
        if r.overflow {
            if overflows_to_infinity(sign, mode.rounding) {
                return F80::infinity(sign);
            }
            let mant = u64::MAX << (64 - mode.bits);
            return F80 { se: u16::from(sign) << 15 | 0x7ffe, mant };
        }
        let mant = r.m << (64 - mode.bits);
        let biased = if mant & TOP != 0 { (r.e + BIAS) as u16 } else { 0 };
        F80 { se: u16::from(sign) << 15 | biased, mant }
    }

    /// The NaN result of an operation: the operand with the larger significand, quieted.
    fn nan(a: F80, b: F80) -> F80 {
        let pick = match (a.is_nan(), b.is_nan()) {
            (true, true) if b.mant > a.mant => b,
            (true, _) => a,
            (_, true) => b,
            _ => return INDEFINITE,
        };
        F80 { mant: pick.mant | 1 << 62, ..pick }
    }

    /// a + b
    pub(super) fn add(a: F80, b: F80, mode: Mode) -> F80 {
        if a.is_nan() || b.is_nan() {
            return F80::nan(a, b);
        }
        match (a.is_inf(), b.is_inf()) {
            (true, true) if a.sign() != b.sign() => return INDEFINITE,
            (true, _) => return a,
            (_, true) => return b,
            _ => {}
        }
        let zero_sign = mode.rounding == Rounding::Down;
        match (a.is_zero(), b.is_zero()) {
            (true, true) if a.sign() == b.sign() => return a,
            (true, true) => return F80::zero(zero_sign),
            (true, false) => return F80::pack(b.sign(), b.norm().e, wide(b.norm().m), mode),
            (false, true) => return F80::pack(a.sign(), a.norm().e, wide(a.norm().m), mode),
            _ => {}
        }
        let (mut x, mut y) = (a, b);
        let larger = (y.norm().e, y.norm().m) > (x.norm().e, x.norm().m);
        if larger {
            (x, y) = (b, a);
        }
        let (nx, ny) = (x.norm(), y.norm());
        let mx = u128::from(nx.m) << 63;
        let my = shr_sticky(u128::from(ny.m) << 63, nx.e.abs_diff(ny.e));
        let sum = if x.sign() == y.sign() { mx + my } else { mx - my };
        if sum == 0 {
            return F80::zero(zero_sign);
        }
        let lz = sum.leading_zeros();
        F80::pack(x.sign(), nx.e + 1 - lz.cast_signed(), sum << lz, mode)
    }

    /// a - b
    pub(super) fn sub(a: F80, b: F80, mode: Mode) -> F80 {
        if b.is_nan() { F80::add(a, b, mode) } else { F80::add(a, b.negated(), mode) }
    }

    /// a × b
    pub(super) fn mul(a: F80, b: F80, mode: Mode) -> F80 {
        if a.is_nan() || b.is_nan() {
            return F80::nan(a, b);
        }
        let sign = a.sign() != b.sign();
        if a.is_inf() || b.is_inf() {
            if a.is_zero() || b.is_zero() {
                return INDEFINITE;
            }
            return F80::infinity(sign);
        }
        if a.is_zero() || b.is_zero() {
            return F80::zero(sign);
        }
        let (x, y) = (a.norm(), b.norm());
        let m = u128::from(x.m) * u128::from(y.m);
        let lz = m.leading_zeros();
        F80::pack(sign, x.e + y.e + 1 - lz.cast_signed(), m << lz, mode)
    }

    /// a ÷ b
    pub(super) fn div(a: F80, b: F80, mode: Mode) -> F80 {
        if a.is_nan() || b.is_nan() {
            return F80::nan(a, b);
        }
        let sign = a.sign() != b.sign();
        match (a.is_inf(), b.is_inf()) {
            (true, true) => return INDEFINITE,
            (true, false) => return F80::infinity(sign),
            (false, true) => return F80::zero(sign),
            _ => {}
        }
        match (a.is_zero(), b.is_zero()) {
            (true, true) => return INDEFINITE,
            (true, false) => return F80::zero(sign),
            (false, true) => return F80::infinity(sign),
            _ => {}
        }
        let (x, y) = (a.norm(), b.norm());
        let d = u128::from(y.m);
        let n = u128::from(x.m) << 63;
        let (q0, r0) = (n / d, n % d);
        let (q1, r1) = ((r0 << 63) / d, (r0 << 63) % d);
        // q0 can have 64 bits, so the 127 bits of the quotient fit.
        let q = q0 << 63 | q1;
        let lz = q.leading_zeros();
        F80::pack(sign, x.e - y.e + 1 - lz.cast_signed(), q << lz | u128::from(r1 != 0), mode)
    }

    /// Square root.
    pub(super) fn sqrt(self, mode: Mode) -> F80 {
        if self.is_nan() {
            return F80::nan(self, self);
        }
        if self.is_zero() {
            return self;
        }
        if self.sign() {
            return INDEFINITE;
        }
        if self.is_inf() {
            return self;
        }
        let n = self.norm();
        let odd = n.e & 1;
        let x = u128::from(n.m) << (63 + odd);
        let root = x.isqrt();
        let rest = x - root * root;
        let mut m = root << 64;
        if rest > root {
            m |= 1 << 63;
        }
        m |= u128::from(rest != 0);
        F80::pack(false, (n.e - odd) / 2, m, mode)
    }

    /// Rounded to an integral value.
    pub(super) fn round_to_integral(self, r: Rounding) -> F80 {
        if self.is_nan() {
            return F80::nan(self, self);
        }
        if self.is_inf() || self.is_zero() || self.norm().e >= 63 {
            return self;
        }
        let (m, _) = self.integral(r);
        let exact = Mode { rounding: Rounding::Nearest, bits: 64 };
        let lz = m.leading_zeros();
        if m == 0 {
            return F80::zero(self.sign());
        }
        F80::pack(self.sign(), 127 - lz.cast_signed(), m << lz, exact)
    }

    /// Magnitude rounded to an integer (exponent below 64), and whether that was inexact.
    fn integral(self, r: Rounding) -> (u128, bool) {
        let n = self.norm();
        // m / 2^63 × 2^e as fixed point with 64 fraction bits.
        let fixed = if n.e >= -1 {
            u128::from(n.m) << (n.e + 1).min(64)
        } else {
            shr_sticky(u128::from(n.m), (-1 - n.e).cast_unsigned())
        };
        let fraction = fixed as u64;
        let whole = fixed >> 64;
        let up = match r {
            Rounding::Nearest => fraction > TOP || fraction == TOP && whole & 1 != 0,
            Rounding::Down => self.sign() && fraction != 0,
            Rounding::Up => !self.sign() && fraction != 0,
            Rounding::Zero => false,
        };
        (whole + u128::from(up), fraction != 0)
    }

    /// To a signed integer of `bits`; the "integer indefinite" if it does not fit.
    pub(super) fn to_int(self, bits: u32, r: Rounding) -> u64 {
        let indefinite = u64::MAX << (bits - 1);
        if self.is_zero() {
            return 0;
        }
        if self.is_nan() || self.is_inf() || self.norm().e > 63 {
            return indefinite;
        }
        let (m, _) = self.integral(r);
        let limit = 1u128 << (bits - 1);
        match (self.sign(), m) {
            (true, m) if m <= limit => (m as u64).wrapping_neg(),
            (false, m) if m < limit => m as u64,
            _ => indefinite,
        }
    }

    /// From a signed integer.
    pub(super) fn from_int(v: i64) -> F80 {
        let exact = Mode { rounding: Rounding::Nearest, bits: 64 };
        let m = v.unsigned_abs();
        let lz = m.leading_zeros();
        if m == 0 {
            return F80::zero(false);
        }
        F80::pack(v < 0, 63 - lz.cast_signed(), wide(m << lz), exact)
    }

    /// From a double.
    pub(super) fn from_f64(bits: u64) -> F80 {
        F80::from_ieee(bits, 11, 52)
    }
    /// From a single.
    pub(super) fn from_f32(bits: u32) -> F80 {
        F80::from_ieee(u64::from(bits), 8, 23)
    }
    fn from_ieee(bits: u64, exp_bits: u32, frac_bits: u32) -> F80 {
        let sign = bits >> (exp_bits + frac_bits) & 1 != 0;
        let s = u16::from(sign) << 15;
        let exp = (bits >> frac_bits) & ((1 << exp_bits) - 1);
        let frac = bits & ((1 << frac_bits) - 1);
        let bias = (1i32 << (exp_bits - 1)) - 1;
        let mant = frac << (63 - frac_bits);
        if exp == (1 << exp_bits) - 1 {
            let quiet = if frac != 0 { 1 << 62 } else { 0 };
            return F80 { se: s | 0x7fff, mant: TOP | mant | quiet };
        }
        if exp != 0 {
            return F80 { se: s | (exp as i32 - bias + BIAS) as u16, mant: TOP | mant };
        }
        if frac == 0 {
            return F80::zero(sign);
        }
        let lz = mant.leading_zeros();
        F80 { se: s | (1 - bias - lz.cast_signed() + BIAS) as u16, mant: mant << lz }
    }

    /// To a double.
    pub(super) fn to_f64(self, r: Rounding) -> u64 {
        self.to_ieee(11, 52, r)
    }
    /// To a single.
    pub(super) fn to_f32(self, r: Rounding) -> u32 {
        self.to_ieee(8, 23, r) as u32
    }
    fn to_ieee(self, exp_bits: u32, frac_bits: u32, r: Rounding) -> u64 {
        let s = u64::from(self.sign()) << (exp_bits + frac_bits);
        let ones = ((1u64 << exp_bits) - 1) << frac_bits;
        if self.is_nan() {
            return s | ones | 1 << (frac_bits - 1) | self.mant << 1 >> (64 - frac_bits);
        }
        if self.is_inf() {
            return s | ones;
        }
        if self.is_zero() {
            return s;
        }
        let bias = (1i32 << (exp_bits - 1)) - 1;
        let n = self.norm();
        let x = round(self.sign(), n.e, wide(n.m), frac_bits + 1, (1 - bias, bias), r);
        if x.overflow {
            return s | if overflows_to_infinity(self.sign(), r) { ones } else { ones - 1 };
        }
        let top = 1u64 << frac_bits;
        let exp = if x.m & top != 0 { (x.e + bias) as u64 } else { 0 };
        s | exp << frac_bits | x.m & (top - 1)
    }

    /// Order, `None` if unordered.
    pub(super) fn compare(a: F80, b: F80) -> Option<std::cmp::Ordering> {
        use std::cmp::Ordering;
        if a.is_nan() || b.is_nan() {
            return None;
        }
        if a.is_zero() && b.is_zero() {
            return Some(Ordering::Equal);
        }
        let key = |v: F80| {
            let m = i128::from(v.exp()) << 64 | i128::from(v.mant);
            if v.sign() { -m } else { m }
        };
        Some(key(a).cmp(&key(b)))
    }

    /// a × 2^trunc(b) (FSCALE).
    pub(super) fn scale(a: F80, b: F80, mode: Mode) -> F80 {
        if a.is_nan() || b.is_nan() {
            return F80::nan(a, b);
        }
        if b.is_inf() {
            return match (b.sign(), a.is_zero(), a.is_inf()) {
                (false, true, _) | (true, _, true) => INDEFINITE,
                (false, ..) => F80::infinity(a.sign()),
                (true, ..) => F80::zero(a.sign()),
            };
        }
        if a.is_inf() || a.is_zero() {
            return a;
        }
        let by = b.to_int(32, Rounding::Zero) as i32;
        let by = by.clamp(-0x1_0000, 0x1_0000);
        F80::pack(a.sign(), a.norm().e + by, wide(a.norm().m), mode)
    }

    /// Exponent and significand of a (FXTRACT).
    pub(super) fn extract(self) -> (F80, F80) {
        if self.is_nan() {
            return (self, self);
        }
        if self.is_inf() {
            return (F80::infinity(false), self);
        }
        if self.is_zero() {
            return (F80::infinity(true), self);
        }
        let n = self.norm();
        let se = self.se & 0x8000 | BIAS as u16;
        (F80::from_int(i64::from(n.e)), F80 { se, mant: n.m })
    }

    /// Partial remainder of a by b, quotient bits, and whether it is complete. `nearest` is FPREM1.
    pub(super) fn remainder(a: F80, b: F80, nearest: bool) -> (F80, u64, bool) {
        if a.is_nan() || b.is_nan() {
            return (F80::nan(a, b), 0, true);
        }
        if a.is_inf() || b.is_zero() {
            return (INDEFINITE, 0, true);
        }
        if a.is_zero() || b.is_inf() {
            return (a, 0, true);
        }
        let (x, y) = (a.norm(), b.norm());
        let d = x.e - y.e;
        if d < -1 || (d < 0 && !nearest) {
            return (a, 0, true);
        }
        // Long division, at most 63 steps at a time.
        let steps = if d < 64 { d } else { 32 + d % 32 };
        let complete = d < 64;
        let (mut r, mut q) = (u128::from(x.m), 0u64);
        let div = u128::from(y.m);
        if d >= 0 {
            for i in 0..=steps {
                q <<= 1;
                if r >= div {
                    r -= div;
                    q |= 1;
                }
                if i != steps {
                    r <<= 1;
                }
            }
        }
        let mut e = if d >= 0 { x.e - steps } else { x.e };
        let mut sign = a.sign();
        if nearest && complete {
            // Remainder r at exponent e against half of b.
            let twice = if d < 0 { r } else { r << 1 };
            if twice > div || twice == div && q & 1 != 0 {
                r = if d < 0 { (div << 1) - r } else { div - r };
                q += 1;
                sign = !sign;
                if d < 0 {
                    e = x.e;
                }
            }
        }
        if r == 0 {
            return (F80::zero(a.sign()), q, complete);
        }
        let exact = Mode { rounding: Rounding::Nearest, bits: 64 };
        let lz = r.leading_zeros();
        (F80::pack(sign, e + 64 - lz.cast_signed(), r << lz, exact), q, complete)
    }
}

fn wide(m: u64) -> u128 {
    u128::from(m) << 64
}

#[cfg(test)]
mod tests {
    use super::*;

    const DOUBLE: Mode = Mode { rounding: Rounding::Nearest, bits: 64 };

    fn f(v: f64) -> F80 {
        F80::from_f64(v.to_bits())
    }
    fn back(v: F80) -> f64 {
        f64::from_bits(v.to_f64(Rounding::Nearest))
    }

    #[test]
    fn doubles_survive_the_round_trip() {
        for v in [0.0, -0.0, 1.5, -3.25e300, 5e-324, f64::MIN_POSITIVE, f64::INFINITY] {
            assert_eq!(back(f(v)).to_bits(), v.to_bits());
        }
        assert!(back(f(f64::NAN)).is_nan());
    }

    #[test]
    fn small_integers_compute_exactly() {
        assert_eq!(back(F80::add(f(3.0), f(-5.5), DOUBLE)), -2.5);
        assert_eq!(back(F80::mul(f(3.0), f(-5.5), DOUBLE)), -16.5);
        assert_eq!(back(F80::div(f(1.0), f(-8.0), DOUBLE)), -0.125);
        assert_eq!(back(f(144.0).sqrt(DOUBLE)), 12.0);
        assert_eq!(f(-2.5).to_int(32, Rounding::Nearest), (-2i64).cast_unsigned());
        assert_eq!(f(-2.5).to_int(32, Rounding::Down), (-3i64).cast_unsigned());
        assert_eq!(back(F80::remainder(f(10.5), f(3.0), false).0), 1.5);
        assert_eq!(back(F80::remainder(f(10.5), f(4.0), true).0), -1.5);
    }
}
