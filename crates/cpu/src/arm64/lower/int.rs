//! Integer data processing: immediate and register forms.
//!
//! Source: Arm DDI 0487, "Data processing – immediate", "Data processing – register".

use super::{Lower, cond, dst, dst_sp, shift_code, src, src_sp};
use crate::arm64::decode::A64;
use crate::arm64::simd::A64Op;
use crate::ir::{CcKind, CcOp, Code, Cond, Op, Reg, Width, ZERO};

const T0: Reg = Reg::tmp(0);
const T1: Reg = Reg::tmp(1);

/// Picks the 32-bit or 64-bit form of an op by `sf`.
const fn sized(sf: bool, narrow: Code, wide: Code) -> Code {
    if sf { wide } else { narrow }
}

const fn width(sf: bool) -> Width {
    if sf { Width::W64 } else { Width::W32 }
}

/// Data processing – immediate.
pub(super) fn immediate(l: &mut Lower<'_>, i: &A64) {
    match i.word >> 23 & 7 {
        0 | 1 => pc_relative(l, i.word),
        2 => add_sub_immediate(l, i.word),
        4 => logical_immediate(l, i.word),
        5 => move_wide(l, i.word),
        6 => bitfield(l, i.word),
        7 => extract(l, i.word),
        _ => l.unsupported(),
    }
}

/// Data processing – register.
pub(super) fn register(l: &mut Lower<'_>, i: &A64) {
    let w = i.word;
    match (w >> 24 & 31, w >> 21 & 7) {
        (0b01010, _) => logical_shifted(l, w),
        (0b01011, op) if op & 1 == 0 => add_sub_shifted(l, w),
        (0b01011, _) => add_sub_extended(l, w),
        (0b11010, 0) => add_with_carry(l, w),
        (0b11010, 2) => conditional_compare(l, w),
        (0b11010, 4) => conditional_select(l, w),
        (0b11010, 6) if w >> 30 & 1 == 0 => two_sources(l, w),
        (0b11010, 6) => one_source(l, w),
        (0b11011, _) => three_sources(l, w),
        _ => l.unsupported(),
    }
}

fn pc_relative(l: &mut Lower<'_>, w: u32) {
    let imm = i64::from((w.cast_signed() << 8) >> 13 << 2) | i64::from(w >> 29 & 3);
    let value = if w >> 31 == 0 {
        l.pc.wrapping_add_signed(imm)
    } else {
        (l.pc & !0xfff).wrapping_add_signed(imm << 12)
    };
    l.constant(dst(w), value);
}

fn add_sub_immediate(l: &mut Lower<'_>, w: u32) {
    let (sf, sub, sets) = (w >> 31 != 0, w >> 30 & 1 != 0, w >> 29 & 1 != 0);
    let imm = i64::from((w >> 10 & 0xfff) << (12 * (w >> 22 & 1)));
    let a = src_sp(w >> 5);
    let d = if sets { dst(w) } else { dst_sp(w) };
    let signed = if sub { -imm } else { imm };
    if sets {
        let op = if sub { CcOp::Subs } else { CcOp::Add };
        l.push(Op::new(Code::CcI).kind(CcKind::new(op, width(sf))).a(a).imm(imm));
        if w & 31 == 31 {
            return;
        }
    }
    if let Some(known) = l.known(a).filter(|_| !sets && sf) {
        l.constant(d, known.wrapping_add_signed(signed));
        return;
    }
    let op = match (imm, sf) {
        (0, true) => Op::new(Code::Mov),
        (0, false) => Op::new(Code::Zext32),
        _ => Op::new(sized(sf, Code::AddI32, Code::AddI64)).imm(signed),
    };
    l.push(op.d(d).a(a));
}

/// Expands a logical immediate; the screen has refused the reserved ones.
///
/// Source: Arm DDI 0487, pseudocode `DecodeBitMasks()`.
fn logical_mask(n: u32, imms: u32, immr: u32) -> u64 {
    let bits = if n != 0 { 64 } else { 1 << (!imms & 63).max(2).ilog2() };
    let levels = bits - 1;
    let (ones, turn) = ((imms & levels) + 1, immr & levels);
    let element = u64::MAX >> (64 - ones.min(64));
    let all = u64::MAX >> (64 - bits);
    let rotated =
        if turn == 0 { element } else { element >> turn | element << (bits - turn) } & all;
    let mut mask = rotated;
    let mut filled = bits;
    while filled < 64 {
        mask |= mask << filled;
        filled *= 2;
    }
    mask
}

fn logical_immediate(l: &mut Lower<'_>, w: u32) {
    let sf = w >> 31 != 0;
    let mut mask = logical_mask(w >> 22 & 1, w >> 10 & 63, w >> 16 & 63);
    if !sf {
        mask &= 0xffff_ffff;
    }
    let a = src(w >> 5);
    let opc = w >> 29 & 3;
    let d = match opc {
        3 if w & 31 == 31 => T0,
        3 => dst(w),
        _ => dst_sp(w),
    };
    if opc == 1 && a == ZERO {
        l.constant(d, mask);
        return;
    }
    let code = match opc {
        1 => sized(sf, Code::OrI32, Code::OrI64),
        2 => sized(sf, Code::XorI32, Code::XorI64),
        _ => sized(sf, Code::AndI32, Code::AndI64),
    };
    l.push(Op::new(code).d(d).a(a).imm(mask.cast_signed()));
    if opc == 3 {
        l.push(Op::new(Code::CcI).kind(CcKind::new(CcOp::Logic, width(sf))).a(d));
    }
}

fn move_wide(l: &mut Lower<'_>, w: u32) {
    let sf = w >> 31 != 0;
    let shift = 16 * (w >> 21 & 3);
    let imm = u64::from(w >> 5 & 0xffff) << shift;
    let d = dst(w);
    let narrow = |v: u64| if sf { v } else { v & 0xffff_ffff };
    match w >> 29 & 3 {
        0 => l.constant(d, narrow(!imm)),
        2 => l.constant(d, imm),
        _ => {
            let hole = 0xffff_u64 << shift;
            if let Some(old) = l.known(d) {
                l.constant(d, narrow(old & !hole | imm));
                return;
            }
            let keep = narrow(!hole).cast_signed();
            l.push(Op::new(sized(sf, Code::AndI32, Code::AndI64)).d(d).a(d).imm(keep));
            l.push(Op::new(sized(sf, Code::OrI32, Code::OrI64)).d(d).a(d).imm(imm.cast_signed()));
        }
    }
}

/// `n` ones.
const fn ones(n: u32) -> u64 {
    if n >= 64 { u64::MAX } else { (1 << n) - 1 }
}

fn bitfield(l: &mut Lower<'_>, w: u32) {
    let sf = w >> 31 != 0;
    let (immr, imms) = (w >> 16 & 63, w >> 10 & 63);
    let top = if sf { 63 } else { 31 };
    let (d, a) = (dst(w), src(w >> 5));
    // The field as it lies in the rotated source.
    let mask =
        if imms >= immr { ones(imms - immr + 1) } else { ones(imms + 1) << (top + 1 - immr) };
    let field = mask.cast_signed();
    let op = match w >> 29 & 3 {
        0 => signed_bitfield(sf, immr, imms),
        1 => Op::new(sized(sf, Code::BfIns32, Code::BfIns64)).x(small(immr)).imm(field).c(src(w)),
        _ if imms == top => Op::new(sized(sf, Code::ShrI32, Code::ShrI64)).imm(i64::from(immr)),
        _ if imms + 1 == immr => {
            Op::new(sized(sf, Code::ShlI32, Code::ShlI64)).imm(i64::from(top - imms))
        }
        _ if immr == 0 && imms == 7 => Op::new(Code::Zext8),
        _ if immr == 0 && imms == 15 => Op::new(Code::Zext16),
        _ if immr == 0 && imms == 31 => Op::new(Code::Zext32),
        _ if immr == 0 => Op::new(sized(sf, Code::AndI32, Code::AndI64)).imm(field),
        _ => Op::new(sized(sf, Code::RotMask32, Code::RotMask64)).x(small(immr)).imm(field),
    };
    l.push(op.d(d).a(a));
}

/// A field of at most 12 bits as the small datum of an op.
fn small(v: u32) -> u16 {
    (v & 0xfff) as u16
}

fn signed_bitfield(sf: bool, immr: u32, imms: u32) -> Op {
    let top = if sf { 63 } else { 31 };
    if imms == top {
        return Op::new(sized(sf, Code::SarI32, Code::SarI64)).imm(i64::from(immr));
    }
    match (immr, imms) {
        (0, 7) => return Op::new(sized(sf, Code::Sext8to32, Code::Sext8to64)),
        (0, 15) => return Op::new(sized(sf, Code::Sext16to32, Code::Sext16to64)),
        (0, 31) => return Op::new(Code::Sext32to64),
        _ => {}
    }
    let left = top - imms;
    let right = if imms >= immr { left + immr } else { immr - imms - 1 };
    Op::new(sized(sf, Code::Sbf32, Code::Sbf64)).imm(i64::from(left)).x(small(right))
}

fn extract(l: &mut Lower<'_>, w: u32) {
    let sf = w >> 31 != 0;
    let lsb = w >> 10 & 63;
    let (a, b) = (src(w >> 5), src(w >> 16));
    let op = if a == b {
        Op::new(sized(sf, Code::RorI32, Code::RorI64)).imm(i64::from(lsb))
    } else {
        Op::new(sized(sf, Code::Extr32, Code::Extr64)).x(small(lsb)).b(b)
    };
    l.push(op.d(dst(w)).a(a));
}

/// The shifted second operand: the register itself when nothing is shifted, else `T1`.
fn shifted(l: &mut Lower<'_>, w: u32) -> Reg {
    let (m, amount) = (src(w >> 16), w >> 10 & 63);
    if amount == 0 || m == ZERO {
        return m;
    }
    let code = shift_code(w >> 22 & 3, w >> 31 != 0);
    l.push(Op::new(code).d(T1).a(m).imm(i64::from(amount)));
    T1
}

fn logical_shifted(l: &mut Lower<'_>, w: u32) {
    let sf = w >> 31 != 0;
    let (opc, invert) = (w >> 29 & 3, w >> 21 & 1 != 0);
    let (d, a) = (dst(w), src(w >> 5));
    if opc == 1 && !invert && a == ZERO {
        return move_shifted(l, w);
    }
    let fused = match (opc, invert, w >> 22 & 3) {
        (2, false, 0) => Some(sized(sf, Code::XorShl32, Code::XorShl64)),
        (2, false, 1) => Some(sized(sf, Code::XorShr32, Code::XorShr64)),
        (2, false, 3) => Some(sized(sf, Code::XorRor32, Code::XorRor64)),
        (1, false, 0) => Some(sized(sf, Code::OrShl32, Code::OrShl64)),
        (1, false, 1) => Some(sized(sf, Code::OrShr32, Code::OrShr64)),
        _ => None,
    };
    if let Some(code) = fused.filter(|_| w >> 10 & 63 != 0) {
        l.push(Op::new(code).x(small(w >> 10 & 63)).d(d).a(a).b(src(w >> 16)));
        return;
    }
    let b = shifted(l, w);
    if opc == 1 && invert && a == ZERO {
        l.push(Op::new(sized(sf, Code::Not32, Code::Not64)).d(d).a(b));
        return;
    }
    let code = match (opc, invert) {
        (1, false) => sized(sf, Code::Or32, Code::Or64),
        (1, true) => sized(sf, Code::Orn32, Code::Orn64),
        (2, false) => sized(sf, Code::Xor32, Code::Xor64),
        (2, true) => sized(sf, Code::Eon32, Code::Eon64),
        (_, false) => sized(sf, Code::And32, Code::And64),
        (_, true) => sized(sf, Code::Bic32, Code::Bic64),
    };
    let logic = CcKind::new(CcOp::Logic, width(sf));
    if opc != 3 {
        l.push(Op::new(code).d(d).a(a).b(b));
        return;
    }
    let test = w & 31 == 31;
    if test && a == b && !invert {
        l.push(Op::new(Code::CcI).kind(logic).a(a));
        return;
    }
    let r = if test { T0 } else { d };
    l.push(Op::new(code).d(r).a(a).b(b));
    l.push(Op::new(Code::CcI).kind(logic).a(r));
}

/// `ORR Rd, ZR, Rm, shift`: a move, or a shift.
fn move_shifted(l: &mut Lower<'_>, w: u32) {
    let sf = w >> 31 != 0;
    let (d, m, amount) = (dst(w), src(w >> 16), w >> 10 & 63);
    if m == ZERO {
        l.constant(d, 0);
        return;
    }
    let op = match (amount, sf) {
        (0, true) => Op::new(Code::Mov),
        (0, false) => Op::new(Code::Zext32),
        _ => Op::new(shift_code(w >> 22 & 3, sf)).imm(i64::from(amount)),
    };
    l.push(op.d(d).a(m));
}

fn add_sub_shifted(l: &mut Lower<'_>, w: u32) {
    let (sf, sub, sets) = (w >> 31 != 0, w >> 30 & 1 != 0, w >> 29 & 1 != 0);
    let (d, a) = (dst(w), src(w >> 5));
    let (kind, amount) = (w >> 22 & 3, w >> 10 & 63);
    if !sub && !sets && kind == 0 {
        let m = src(w >> 16);
        let op = if amount == 0 {
            Op::new(sized(sf, Code::Add32, Code::Add64))
        } else {
            Op::new(sized(sf, Code::AddShl32, Code::AddShl64)).x(small(amount))
        };
        l.push(op.d(d).a(a).b(m));
        return;
    }
    let fused = match (sub, kind) {
        (false, 1) => Some(sized(sf, Code::AddShr32, Code::AddShr64)),
        (false, 2) => Some(sized(sf, Code::AddSar32, Code::AddSar64)),
        (true, 0) => Some(sized(sf, Code::SubShl32, Code::SubShl64)),
        (true, 2) => Some(sized(sf, Code::SubSar32, Code::SubSar64)),
        _ => None,
    };
    if let Some(code) = fused.filter(|_| !sets && amount != 0) {
        l.push(Op::new(code).x(small(amount)).d(d).a(a).b(src(w >> 16)));
        return;
    }
    let b = shifted(l, w);
    add_sub(l, w, d, a, b, (sf, sub, sets));
}

/// Add or subtract two slots, with flags if asked.
fn add_sub(l: &mut Lower<'_>, w: u32, d: Reg, a: Reg, b: Reg, (sf, sub, sets): (bool, bool, bool)) {
    if sets {
        let op = if sub { CcOp::Subs } else { CcOp::Add };
        l.push(Op::new(Code::Cc).kind(CcKind::new(op, width(sf))).a(a).b(b).c(ZERO));
        if w & 31 == 31 {
            return;
        }
    }
    let op = if sub && a == ZERO {
        Op::new(sized(sf, Code::Neg32, Code::Neg64)).a(b)
    } else if sub {
        Op::new(sized(sf, Code::Sub32, Code::Sub64)).a(a).b(b)
    } else {
        Op::new(sized(sf, Code::Add32, Code::Add64)).a(a).b(b)
    };
    l.push(op.d(d));
}

/// Emits the extension of register operands (`UXTB` … `SXTX`) into `to`; returns where it is.
pub(super) fn extended(l: &mut Lower<'_>, option: u32, m: Reg, sf: bool, to: Reg) -> Reg {
    let code = match option & 7 {
        0 => Code::Zext8,
        1 => Code::Zext16,
        2 if sf => Code::Zext32,
        4 => sized(sf, Code::Sext8to32, Code::Sext8to64),
        5 => sized(sf, Code::Sext16to32, Code::Sext16to64),
        6 if sf => Code::Sext32to64,
        _ => return m,
    };
    if m == ZERO {
        return m;
    }
    l.push(Op::new(code).d(to).a(m));
    to
}

fn add_sub_extended(l: &mut Lower<'_>, w: u32) {
    let (sf, sub, sets) = (w >> 31 != 0, w >> 30 & 1 != 0, w >> 29 & 1 != 0);
    let a = src_sp(w >> 5);
    let d = if sets { dst(w) } else { dst_sp(w) };
    let amount = w >> 10 & 7;
    let fused = match w >> 13 & 7 {
        2 => Some(Code::AddZext64),
        6 => Some(Code::AddSext64),
        _ => None,
    };
    if let Some(code) = fused.filter(|_| sf && !sub && !sets) {
        l.push(Op::new(code).x(small(amount)).d(d).a(a).b(src(w >> 16)));
        return;
    }
    let m = extended(l, w >> 13, src(w >> 16), sf, T1);
    if !sub && !sets {
        let code = sized(sf, Code::AddShl32, Code::AddShl64);
        l.push(Op::new(code).x(small(amount)).d(d).a(a).b(m));
        return;
    }
    let b = if amount == 0 || m == ZERO {
        m
    } else {
        let code = sized(sf, Code::ShlI32, Code::ShlI64);
        l.push(Op::new(code).d(T1).a(m).imm(i64::from(amount)));
        T1
    };
    add_sub(l, if sets { w } else { 0 }, d, a, b, (sf, sub, sets));
}

fn add_with_carry(l: &mut Lower<'_>, w: u32) {
    let (sf, sub, sets) = (w >> 31 != 0, w >> 30 & 1 != 0, w >> 29 & 1 != 0);
    let (d, a) = (dst(w), src(w >> 5));
    let mut b = src(w >> 16);
    let (carry, sum) = (T0, Reg::tmp(2));
    if sub {
        l.push(Op::new(sized(sf, Code::Not32, Code::Not64)).d(T1).a(b));
        b = T1;
    }
    l.push(Op::new(Code::Carry).d(carry));
    let add = sized(sf, Code::Add32, Code::Add64);
    l.push(Op::new(add).d(sum).a(a).b(b));
    if sets {
        l.push(Op::new(Code::Cc).kind(CcKind::new(CcOp::Adc, width(sf))).a(a).b(b).c(carry));
    }
    l.push(Op::new(add).d(d).a(sum).b(carry));
}

fn conditional_compare(l: &mut Lower<'_>, w: u32) {
    let (sf, sub) = (w >> 31 != 0, w >> 30 & 1 != 0);
    let a = src(w >> 5);
    let b = if w >> 11 & 1 == 0 {
        src(w >> 16)
    } else {
        l.push(Op::new(Code::MovI).d(T1).imm(i64::from(w >> 16 & 31)));
        T1
    };
    let kind = CcKind::new(if sub { CcOp::Subs } else { CcOp::Add }, width(sf));
    let condition = cond(w >> 12);
    if condition == Cond::Al {
        l.push(Op::new(Code::Cc).kind(kind).a(a).b(b).c(ZERO));
        return;
    }
    let otherwise = i64::from(w & 15) << 28;
    l.push(Op::new(Code::CcIf).kind(kind).a(a).b(b).cond(condition).imm(otherwise));
}

fn conditional_select(l: &mut Lower<'_>, w: u32) {
    let sf = w >> 31 != 0;
    let (d, a, b) = (dst(w), src(w >> 5), src(w >> 16));
    let (condition, inverse) = (cond(w >> 12), cond(w >> 12 ^ 1));
    let invert = w >> 30 & 1 != 0;
    let increment = w >> 10 & 1 != 0;
    if condition == Cond::Al {
        l.push(Op::new(if sf { Code::Mov } else { Code::Zext32 }).d(d).a(a));
        return;
    }
    let both_zero = a == ZERO && b == ZERO;
    if both_zero && increment != invert {
        // CSET and CSETM.
        let r = if invert { T0 } else { d };
        l.push(Op::new(Code::SetCond).d(r).cond(inverse));
        if invert {
            l.push(Op::new(sized(sf, Code::Neg32, Code::Neg64)).d(d).a(r));
        }
        return;
    }
    let other = match (invert, increment) {
        (false, false) => b,
        (false, true) => {
            l.push(Op::new(sized(sf, Code::AddI32, Code::AddI64)).d(T1).a(b).imm(1));
            T1
        }
        (true, false) => {
            l.push(Op::new(sized(sf, Code::Not32, Code::Not64)).d(T1).a(b));
            T1
        }
        (true, true) => {
            l.push(Op::new(sized(sf, Code::Neg32, Code::Neg64)).d(T1).a(b));
            T1
        }
    };
    let code = sized(sf, Code::Csel32, Code::Csel64);
    l.push(Op::new(code).d(d).a(a).b(other).cond(condition));
}

fn two_sources(l: &mut Lower<'_>, w: u32) {
    let sf = w >> 31 != 0;
    let code = match w >> 10 & 63 {
        2 => sized(sf, Code::UDiv32, Code::UDiv64),
        3 => sized(sf, Code::SDiv32, Code::SDiv64),
        8 => sized(sf, Code::Shl32, Code::Shl64),
        9 => sized(sf, Code::Shr32, Code::Shr64),
        10 => sized(sf, Code::Sar32, Code::Sar64),
        11 => sized(sf, Code::Ror32, Code::Ror64),
        16..=23 => {
            // Size in bits 11–10, the Castagnoli polynomial in bit 12.
            let op = A64Op::Crc32.op().imm(i64::from(w >> 10 & 7));
            return l.push(op.d(dst(w)).a(src(w >> 5)).b(src(w >> 16)));
        }
        _ => return l.unsupported(),
    };
    l.push(Op::new(code).d(dst(w)).a(src(w >> 5)).b(src(w >> 16)));
}

fn one_source(l: &mut Lower<'_>, w: u32) {
    let sf = w >> 31 != 0;
    let code = match w >> 10 & 63 {
        0 => sized(sf, Code::Rbit32, Code::Rbit64),
        1 => sized(sf, Code::Rev16x32, Code::Rev16x64),
        2 => sized(sf, Code::Bswap32, Code::Rev32x64),
        3 => Code::Bswap64,
        4 => sized(sf, Code::Clz32, Code::Clz64),
        5 => sized(sf, Code::Cls32, Code::Cls64),
        _ => return l.unsupported(),
    };
    l.push(Op::new(code).d(dst(w)).a(src(w >> 5)));
}

fn three_sources(l: &mut Lower<'_>, w: u32) {
    let sf = w >> 31 != 0;
    let (d, a, b, c) = (dst(w), src(w >> 5), src(w >> 16), src(w >> 10));
    let subtract = w >> 15 & 1 != 0;
    let long = match w >> 21 & 7 {
        0 if !subtract && c == ZERO => {
            l.push(Op::new(sized(sf, Code::Mul32, Code::Mul64)).d(d).a(a).b(b));
            return;
        }
        0 => {
            let code = if subtract {
                sized(sf, Code::MSub32, Code::MSub64)
            } else {
                sized(sf, Code::MAdd32, Code::MAdd64)
            };
            l.push(Op::new(code).d(d).a(a).b(b).c(c));
            return;
        }
        2 | 6 => {
            let code = if w >> 23 & 1 != 0 { Code::MulHiU64 } else { Code::MulHiS64 };
            l.push(Op::new(code).d(d).a(a).b(b));
            return;
        }
        1 => Code::MulLS,
        5 => Code::MulLU,
        _ => return l.unsupported(),
    };
    if c == ZERO && !subtract {
        l.push(Op::new(long).d(d).a(a).b(b));
        return;
    }
    l.push(Op::new(long).d(T0).a(a).b(b));
    let code = if subtract { Code::Sub64 } else { Code::Add64 };
    l.push(Op::new(code).d(d).a(c).b(T0));
}

#[cfg(test)]
mod tests {
    use super::logical_mask;

    #[test]
    fn logical_masks_expand_as_the_manual_says() {
        assert_eq!(logical_mask(1, 0, 0), 1);
        assert_eq!(logical_mask(1, 62, 0), u64::MAX >> 1);
        assert_eq!(logical_mask(1, 0, 1), 1 << 63);
        assert_eq!(logical_mask(0, 0b000111, 0), 0x0000_00ff_0000_00ff);
        assert_eq!(logical_mask(0, 0b100111, 0), 0x00ff_00ff_00ff_00ff);
        assert_eq!(logical_mask(0, 0b110011, 4), 0xf0f0_f0f0_f0f0_f0f0);
        assert_eq!(logical_mask(0, 0b111000, 1), 0x8888_8888_8888_8888);
        assert_eq!(logical_mask(0, 0b111100, 0), 0x5555_5555_5555_5555);
    }
}
