//! Lazy flags: from the last flag-setting operation and its operands to single flags, conditions,
//! EFLAGS and NZCV.
//!
//! The record is (kind, a, b, c) in [`CpuState`]; nothing is computed until somebody asks. The
//! carry follows the instruction set that made the record: a borrow after an x86 subtraction, its
//! complement after an arm64 one ([`CcKind::Subs32`], [`CcKind::Subs64`]).

use crate::ir::{CcKind, CcOp, Cond};
use crate::state::CpuState;

/// Bits of EFLAGS.
pub mod eflags {
    /// Carry.
    pub const CF: u64 = 1 << 0;
    /// Always one.
    pub const FIXED: u64 = 1 << 1;
    /// Parity.
    pub const PF: u64 = 1 << 2;
    /// Auxiliary carry.
    pub const AF: u64 = 1 << 4;
    /// Zero.
    pub const ZF: u64 = 1 << 6;
    /// Sign.
    pub const SF: u64 = 1 << 7;
    /// Trap.
    pub const TF: u64 = 1 << 8;
    /// Interrupt enable, always one in user mode.
    pub const IF: u64 = 1 << 9;
    /// Direction.
    pub const DF: u64 = 1 << 10;
    /// Overflow.
    pub const OF: u64 = 1 << 11;
    /// Nested task.
    pub const NT: u64 = 1 << 14;
    /// Alignment check.
    pub const AC: u64 = 1 << 18;
    /// CPUID can be used.
    pub const ID: u64 = 1 << 21;
    /// The six status flags.
    pub const STATUS: u64 = CF | PF | AF | ZF | SF | OF;
}

/// Bits of NZCV, in the position `MRS NZCV` gives them.
pub mod nzcv {
    /// Negative.
    pub const N: u64 = 1 << 31;
    /// Zero.
    pub const Z: u64 = 1 << 30;
    /// Carry.
    pub const C: u64 = 1 << 29;
    /// Overflow.
    pub const V: u64 = 1 << 28;
}

#[inline(always)]
const fn mask(bits: u32) -> u64 {
    u64::MAX >> (64 - bits)
}

/// Result of the recorded operation, truncated to its width.
#[inline(always)]
fn result(s: &CpuState) -> u64 {
    let (op, bits) = (s.cc_kind.op(), s.cc_kind.bits());
    let (a, b) = (s.cc_a, s.cc_b);
    let r = match op {
        CcOp::Add => a.wrapping_add(b),
        CcOp::Sub | CcOp::Subs => a.wrapping_sub(b),
        CcOp::Adc => a.wrapping_add(b).wrapping_add(s.cc_c),
        CcOp::Sbb => a.wrapping_sub(b).wrapping_sub(s.cc_c),
        CcOp::Inc => a.wrapping_add(1),
        CcOp::Dec => a.wrapping_sub(1),
        CcOp::Shl => shl(a, b),
        CcOp::Shr => shr(a & mask(bits), b),
        CcOp::Sar => sar(sext(a, bits), b),
        CcOp::Logic | CcOp::Flags | CcOp::Nzcv => a,
    };
    r & mask(bits)
}

#[inline(always)]
fn shl(a: u64, n: u64) -> u64 {
    if n < 64 { a << n } else { 0 }
}
#[inline(always)]
fn shr(a: u64, n: u64) -> u64 {
    if n < 64 { a >> n } else { 0 }
}
#[inline(always)]
fn sar(a: u64, n: u64) -> u64 {
    (a.cast_signed() >> n.min(63)).cast_unsigned()
}
/// Sign-extends the low `bits` of `a`.
#[inline(always)]
pub fn sext(a: u64, bits: u32) -> u64 {
    ((a << (64 - bits)).cast_signed() >> (64 - bits)).cast_unsigned()
}

/// Carry flag, in the sense of the instruction set that recorded the operation.
#[inline(always)]
pub fn carry(s: &CpuState) -> bool {
    let bits = s.cc_kind.bits();
    let m = mask(bits);
    let (a, b) = (s.cc_a & m, s.cc_b & m);
    match s.cc_kind.op() {
        CcOp::Add => (a.wrapping_add(b) & m) < a,
        CcOp::Sub => a < b,
        CcOp::Subs => a >= b,
        CcOp::Adc => {
            let r = result(s);
            if s.cc_c != 0 { r <= a } else { r < a }
        }
        CcOp::Sbb => a < b || (s.cc_c != 0 && a == b),
        CcOp::Logic => false,
        CcOp::Inc | CcOp::Dec => s.cc_c != 0,
        // The last bit shifted out; the count is not zero here, and may exceed 8 or 16 bits.
        CcOp::Shl => {
            let n = s.cc_b;
            n <= u64::from(bits) && (shr(a, u64::from(bits) - n) & 1) != 0
        }
        CcOp::Shr => (shr(a, s.cc_b.wrapping_sub(1)) & 1) != 0, // `a` is masked above
        CcOp::Sar => (sar(sext(a, bits), s.cc_b.wrapping_sub(1)) & 1) != 0,
        CcOp::Flags => s.cc_a & eflags::CF != 0,
        CcOp::Nzcv => s.cc_a & nzcv::C != 0,
    }
}

/// Zero flag.
#[inline(always)]
pub fn zero(s: &CpuState) -> bool {
    match s.cc_kind.op() {
        CcOp::Flags => s.cc_a & eflags::ZF != 0,
        CcOp::Nzcv => s.cc_a & nzcv::Z != 0,
        _ => result(s) == 0,
    }
}

/// Sign (negative) flag.
#[inline(always)]
pub fn sign(s: &CpuState) -> bool {
    match s.cc_kind.op() {
        CcOp::Flags => s.cc_a & eflags::SF != 0,
        CcOp::Nzcv => s.cc_a & nzcv::N != 0,
        _ => result(s) >> (s.cc_kind.bits() - 1) != 0,
    }
}

/// Overflow flag.
#[inline(always)]
pub fn overflow(s: &CpuState) -> bool {
    let bits = s.cc_kind.bits();
    let top = bits - 1;
    let (a, b) = (s.cc_a, s.cc_b);
    let r = result(s);
    let bit = match s.cc_kind.op() {
        CcOp::Add | CcOp::Adc => (a ^ r) & (b ^ r),
        CcOp::Sub | CcOp::Subs | CcOp::Sbb => (a ^ b) & (a ^ r),
        CcOp::Logic | CcOp::Sar => return false,
        CcOp::Inc => return r == 1 << top,
        CcOp::Dec => return r == mask(top),
        CcOp::Shl => return (r >> top != 0) != carry(s),
        CcOp::Shr => a,
        CcOp::Flags => return a & eflags::OF != 0,
        CcOp::Nzcv => return a & nzcv::V != 0,
    };
    (bit >> top) & 1 != 0
}

/// x86 parity flag: even number of ones in the low byte of the result.
#[inline]
pub fn parity(s: &CpuState) -> bool {
    match s.cc_kind.op() {
        CcOp::Flags => s.cc_a & eflags::PF != 0,
        CcOp::Nzcv => false,
        _ => (result(s) & 0xff).count_ones().is_multiple_of(2),
    }
}

/// x86 auxiliary carry: carry out of bit 3. Zero where the manual leaves it undefined.
#[inline]
pub fn aux(s: &CpuState) -> bool {
    match s.cc_kind.op() {
        CcOp::Add | CcOp::Sub | CcOp::Subs | CcOp::Adc | CcOp::Sbb => {
            (s.cc_a ^ s.cc_b ^ result(s)) & 16 != 0
        }
        CcOp::Inc => result(s) & 15 == 0,
        CcOp::Dec => result(s) & 15 == 15,
        CcOp::Flags => s.cc_a & eflags::AF != 0,
        CcOp::Logic | CcOp::Shl | CcOp::Shr | CcOp::Sar | CcOp::Nzcv => false,
    }
}

/// Whether `cond` holds.
///
/// Comparisons and logical results, which is nearly all, are told from their operands in one step.
#[inline(always)]
pub fn holds(s: &CpuState, cond: Cond) -> bool {
    let (a, b) = (s.cc_a, s.cc_b);
    let quick = match (s.cc_kind.op(), s.cc_kind.bits()) {
        (CcOp::Subs, 64) => compared(a, b, cond),
        (CcOp::Subs, 32) => compared(sext(a, 32), sext(b, 32), cond),
        (CcOp::Logic, 64) => logical(a, cond),
        (CcOp::Logic, 32) => logical(sext(a, 32), cond),
        _ => None,
    };
    quick.unwrap_or_else(|| holds_by_flags(s, cond))
}

/// A condition after the arm64 comparison of `a` with `b`, sign-extended operands of one width.
#[inline(always)]
fn compared(a: u64, b: u64, cond: Cond) -> Option<bool> {
    Some(match cond {
        Cond::Z => a == b,
        Cond::Nz => a != b,
        Cond::C => a >= b,
        Cond::Nc => a < b,
        Cond::Hi => a > b,
        Cond::Ls => a <= b,
        Cond::L => a.cast_signed() < b.cast_signed(),
        Cond::Ge => a.cast_signed() >= b.cast_signed(),
        Cond::Le => a.cast_signed() <= b.cast_signed(),
        Cond::G => a.cast_signed() > b.cast_signed(),
        _ => return None,
    })
}

/// A condition after a logical operation with the sign-extended result `a`.
#[inline(always)]
fn logical(a: u64, cond: Cond) -> Option<bool> {
    Some(match cond {
        Cond::Z => a == 0,
        Cond::Nz => a != 0,
        Cond::S | Cond::L => a.cast_signed() < 0,
        Cond::Ns | Cond::Ge => a.cast_signed() >= 0,
        Cond::Le => a.cast_signed() <= 0,
        Cond::G => a.cast_signed() > 0,
        _ => return None,
    })
}

/// Whether `cond` holds, from single flags.
fn holds_by_flags(s: &CpuState, cond: Cond) -> bool {
    match cond {
        Cond::O => overflow(s),
        Cond::No => !overflow(s),
        Cond::C => carry(s),
        Cond::Nc => !carry(s),
        Cond::Z => zero(s),
        Cond::Nz => !zero(s),
        Cond::Be => carry(s) || zero(s),
        Cond::A => !carry(s) && !zero(s),
        Cond::S => sign(s),
        Cond::Ns => !sign(s),
        Cond::P => parity(s),
        Cond::Np => !parity(s),
        Cond::L => sign(s) != overflow(s),
        Cond::Ge => sign(s) == overflow(s),
        Cond::Le => zero(s) || sign(s) != overflow(s),
        Cond::G => !zero(s) && sign(s) == overflow(s),
        Cond::Hi => carry(s) && !zero(s),
        Cond::Ls => !carry(s) || zero(s),
        Cond::Al => true,
    }
}

/// The six status flags as EFLAGS bits.
pub fn status(s: &CpuState) -> u64 {
    if s.cc_kind == CcKind::Flags {
        return s.cc_a & eflags::STATUS;
    }
    let bit = |on: bool, bit: u64| if on { bit } else { 0 };
    bit(carry(s), eflags::CF)
        | bit(parity(s), eflags::PF)
        | bit(aux(s), eflags::AF)
        | bit(zero(s), eflags::ZF)
        | bit(sign(s), eflags::SF)
        | bit(overflow(s), eflags::OF)
}

/// EFLAGS as `pushf` and signal frames show it.
pub fn eflags(s: &CpuState) -> u64 {
    let df = if s.df { eflags::DF } else { 0 };
    status(s) | eflags::FIXED | eflags::IF | df | u64::from(s.eflags_other)
}

/// Sets EFLAGS as `popf` in user mode does: IF and IOPL do not change.
pub fn set_eflags(s: &mut CpuState, value: u64) {
    s.set_cc(CcKind::Flags, value & eflags::STATUS, 0, 0);
    s.df = value & eflags::DF != 0;
    let other = value & (eflags::TF | eflags::NT | eflags::AC | eflags::ID);
    s.eflags_other = u32::try_from(other).unwrap_or(0);
}

/// NZCV in bits 31–28.
pub fn nzcv(s: &CpuState) -> u64 {
    if s.cc_kind == CcKind::Nzcv {
        return s.cc_a & (0xf << 28);
    }
    let bit = |on: bool, bit: u64| if on { bit } else { 0 };
    bit(sign(s), nzcv::N)
        | bit(zero(s), nzcv::Z)
        | bit(carry(s), nzcv::C)
        | bit(overflow(s), nzcv::V)
}

/// Sets NZCV from bits 31–28.
pub fn set_nzcv(s: &mut CpuState, value: u64) {
    s.set_cc(CcKind::Nzcv, value & (0xf << 28), 0, 0);
}

/// Sets the carry flag and leaves the other x86 flags.
pub fn set_carry(s: &mut CpuState, carry: bool) {
    let rest = status(s) & !eflags::CF;
    s.set_cc(CcKind::Flags, rest | if carry { eflags::CF } else { 0 }, 0, 0);
}

/// Direction of a rotation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rotate {
    /// ROL
    Left,
    /// ROR
    Right,
}

/// CF and OF after a rotation of `bits` whose result is `r`; the others stay.
pub fn after_rotate(s: &mut CpuState, r: u64, bits: u16, way: Rotate) {
    let top = (r >> (bits - 1)) & 1;
    let (cf, of) = match way {
        Rotate::Left => (r & 1, top ^ (r & 1)),
        Rotate::Right => (top, top ^ ((r >> (bits - 2)) & 1)),
    };
    let rest = status(s) & !(eflags::CF | eflags::OF);
    s.set_cc(CcKind::Flags, rest | cf | of << 11, 0, 0);
}

/// SF, ZF and PF of a result, as EFLAGS bits.
pub fn szp(r: u64, bits: u32) -> u64 {
    let r = r & mask(bits);
    let pf = if (r & 0xff).count_ones().is_multiple_of(2) { eflags::PF } else { 0 };
    let zf = if r == 0 { eflags::ZF } else { 0 };
    let sf = if r >> (bits - 1) != 0 { eflags::SF } else { 0 };
    pf | zf | sf
}

/// Flags after a signed multiplication at `bits`: CF and OF say that the product did not fit.
pub fn after_mul_signed(s: &mut CpuState, a: u64, b: u64, bits: u16) {
    let bits = u32::from(bits);
    let wide = i128::from(sext(a, bits).cast_signed()) * i128::from(sext(b, bits).cast_signed());
    let low = a.wrapping_mul(b) & mask(bits);
    let fits = wide == i128::from(sext(low, bits).cast_signed());
    let over = if fits { 0 } else { eflags::CF | eflags::OF };
    s.set_cc(CcKind::Flags, over | szp(low, bits) & !eflags::ZF, 0, 0);
}

/// Flags after an unsigned multiplication at `bits`.
pub fn after_mul_unsigned(s: &mut CpuState, a: u64, b: u64, bits: u16) {
    let bits = u32::from(bits);
    let wide = u128::from(a & mask(bits)) * u128::from(b & mask(bits));
    let over = if wide >> bits == 0 { 0 } else { eflags::CF | eflags::OF };
    let low = a.wrapping_mul(b);
    s.set_cc(CcKind::Flags, over | szp(low, bits) & !eflags::ZF, 0, 0);
}
