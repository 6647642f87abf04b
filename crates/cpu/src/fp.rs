//! IEEE arithmetic on the host's floats, with the NaN results that the guest architecture defines.
//!
//! Rust leaves payload and sign of a computed NaN open, so each operation checks for a NaN result
//! and then builds it by rule.
//!
//! FIDELITY: fp-flags exception flags (MXCSR, FPSR) are not raised and rounding is to nearest even;
//! see [`crate::x86_64`] and [`crate::arm64`] for what happens on other modes.

/// How NaN results are formed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NanRule {
    /// x86 SSE: the first operand that is a NaN, quieted; else the default NaN, which is negative.
    X86,
    /// arm64 with FPCR.DN clear: a signalling NaN first (first operand before second), then a
    /// quiet one; else the default NaN, which is positive.
    Arm,
}

macro_rules! ieee {
    ($bits:ty, $float:ty, $quiet:expr, $default:expr,
     $is_nan:ident, $is_snan:ident, $nan2:ident, $nan1:ident,
     $add:ident, $sub:ident, $mul:ident, $div:ident, $sqrt:ident, $default_nan:ident) => {
        /// The default NaN of the rule.
        pub const fn $default_nan(rule: NanRule) -> $bits {
            match rule {
                NanRule::X86 => $default | (1 << (<$bits>::BITS - 1)),
                NanRule::Arm => $default,
            }
        }
        /// Whether the bits are a NaN.
        #[inline]
        pub const fn $is_nan(a: $bits) -> bool {
            <$float>::from_bits(a).is_nan()
        }
        /// Whether the bits are a signalling NaN.
        #[inline]
        pub const fn $is_snan(a: $bits) -> bool {
            <$float>::from_bits(a).is_nan() && a & $quiet == 0
        }
        /// NaN result of an operation on two operands.
        #[cold]
        pub const fn $nan2(a: $bits, b: $bits, rule: NanRule) -> $bits {
            if matches!(rule, NanRule::Arm) {
                if $is_snan(a) {
                    return a | $quiet;
                }
                if $is_snan(b) {
                    return b | $quiet;
                }
            }
            if $is_nan(a) {
                return a | $quiet;
            }
            if $is_nan(b) {
                return b | $quiet;
            }
            $default_nan(rule)
        }
        /// NaN result of an operation on one operand.
        #[cold]
        pub const fn $nan1(a: $bits, rule: NanRule) -> $bits {
            if $is_nan(a) { a | $quiet } else { $default_nan(rule) }
        }
        ieee!(@binary $bits, $float, $nan2, $add +);
        ieee!(@binary $bits, $float, $nan2, $sub -);
        ieee!(@binary $bits, $float, $nan2, $mul *);
        ieee!(@binary $bits, $float, $nan2, $div /);
        /// Square root.
        #[inline]
        pub fn $sqrt(a: $bits, rule: NanRule) -> $bits {
            let r = <$float>::from_bits(a).sqrt();
            if r.is_nan() { $nan1(a, rule) } else { r.to_bits() }
        }
    };
    (@binary $bits:ty, $float:ty, $nan2:ident, $name:ident $op:tt) => {
        /// The operation of its name, rounded to nearest even.
        #[inline(always)]
        pub fn $name(a: $bits, b: $bits, rule: NanRule) -> $bits {
            let r = <$float>::from_bits(a) $op <$float>::from_bits(b);
            if r.is_nan() { $nan2(a, b, rule) } else { r.to_bits() }
        }
    };
}

ieee!(
    u64,
    f64,
    1 << 51,
    0x7ff8_0000_0000_0000,
    is_nan64,
    is_snan64,
    nan2_64,
    nan1_64,
    add64,
    sub64,
    mul64,
    div64,
    sqrt64,
    default_nan64
);
ieee!(
    u32,
    f32,
    1 << 22,
    0x7fc0_0000,
    is_nan32,
    is_snan32,
    nan2_32,
    nan1_32,
    add32,
    sub32,
    mul32,
    div32,
    sqrt32,
    default_nan32
);
