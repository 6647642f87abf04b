//! Scalar floating point.
//!
//! Source: Arm DDI 0487, "Data processing – Scalar Floating-Point and Advanced SIMD".

use super::simd::{expand_double, expand_single};
use super::{Lower, cond, dst, src, vreg};
use crate::arm64::simd::{A64Op, scalar_op};
use crate::ir::{Code, Cond, Op};
use crate::vector::ARM;

/// log2 of the bytes of `ftype`: single, double, half.
const fn size(w: u32) -> u8 {
    match w >> 22 & 3 {
        0 => 2,
        1 => 3,
        _ => 1,
    }
}

/// Emits an op with `Vd`, `Vn` and `Vm` from the word.
fn emit(l: &mut Lower<'_>, w: u32, op: Op) {
    l.push(op.vd(vreg(w)).va(vreg(w >> 5)).vb(vreg(w >> 16)));
}

/// Everything with one, two or no FP sources, and conversions.
pub(super) fn lower(l: &mut Lower<'_>, w: u32) {
    if w >> 21 & 1 == 0 {
        return fixed_point(l, w);
    }
    match w >> 10 & 63 {
        0 => integer(l, w),
        op if op & 3 == 1 => conditional_compare(l, w),
        op if op & 3 == 2 => two_sources(l, w),
        op if op & 3 == 3 => conditional_select(l, w),
        op if op & 7 == 4 => immediate(l, w),
        op if op & 15 == 8 => compare(l, w),
        op if op & 31 == 16 => one_source(l, w),
        _ => l.unsupported(),
    }
}

/// `FMADD`, `FMSUB`, `FNMADD`, `FNMSUB`.
pub(super) fn multiply_add(l: &mut Lower<'_>, w: u32) {
    let double = size(w) == 3;
    let op = match (w >> 21 & 1, w >> 15 & 1) {
        (0, 0) => Op::new(if double { Code::FMAdd64 } else { Code::FMAdd32 }),
        (0, _) => Op::new(if double { Code::FMSub64 } else { Code::FMSub32 }),
        (_, 0) => scalar_op(A64Op::Fnmadd, size(w)),
        (_, _) => scalar_op(A64Op::Fnmsub, size(w)),
    };
    emit(l, w, op.vc(vreg(w >> 10)));
}

fn two_sources(l: &mut Lower<'_>, w: u32) {
    let double = size(w) == 3;
    let shared = match (w >> 12 & 15, double) {
        (0, false) => Some(Code::FMul32),
        (0, true) => Some(Code::FMul64),
        (1, false) => Some(Code::FDiv32),
        (1, true) => Some(Code::FDiv64),
        (2, false) => Some(Code::FAdd32),
        (2, true) => Some(Code::FAdd64),
        (3, false) => Some(Code::FSub32),
        (3, true) => Some(Code::FSub64),
        _ => None,
    };
    if let Some(code) = shared {
        // c = 1 clears the rest of the register.
        return emit(l, w, Op { c: 1, ..Op::new(code).x(ARM) });
    }
    let op = match w >> 12 & 15 {
        4 => A64Op::Fmax,
        5 => A64Op::Fmin,
        6 => A64Op::Fmaxnm,
        7 => A64Op::Fminnm,
        8 => A64Op::Fnmul,
        _ => return l.unsupported(),
    };
    emit(l, w, scalar_op(op, size(w)));
}

fn one_source(l: &mut Lower<'_>, w: u32) {
    use A64Op as O;
    let op = match (w >> 15 & 63, size(w)) {
        (0, 2) => return emit(l, w, Op::new(Code::VLow32)),
        (0, _) => return emit(l, w, Op::new(Code::VLow64)),
        (1, _) => O::Fabs,
        (2, _) => O::Fneg,
        (3, _) => O::Fsqrt,
        (4, 3) => O::FcvtDS,
        (4, 1) => O::FcvtHS,
        (5, 2) => O::FcvtSD,
        (5, 1) => O::FcvtHD,
        (7, 2) => O::FcvtSH,
        (7, 3) => O::FcvtDH,
        (8, _) => O::Frintn,
        (9, _) => O::Frintp,
        (10, _) => O::Frintm,
        (11, _) => O::Frintz,
        (12, _) => O::Frinta,
        // FRINTX and FRINTI round by FPCR, which is to nearest.
        (14 | 15, _) => O::Frintn,
        _ => return l.unsupported(),
    };
    emit(l, w, scalar_op(op, size(w)));
}

fn compare(l: &mut Lower<'_>, w: u32) {
    let with_zero = w >> 3 & 1 != 0;
    let op = match (with_zero, size(w)) {
        (true, size) => scalar_op(A64Op::Fcmp, size),
        (false, 3) => Op::new(Code::FCmpArm64),
        (false, _) => Op::new(Code::FCmpArm32),
    };
    l.push(op.va(vreg(w >> 5)).vb(vreg(w >> 16)));
}

fn conditional_compare(l: &mut Lower<'_>, w: u32) {
    let condition = cond(w >> 12);
    let otherwise = i64::from(w & 15) << 28;
    let op = scalar_op(A64Op::Fccmp, size(w)).cond(condition).imm(otherwise);
    l.push(op.va(vreg(w >> 5)).vb(vreg(w >> 16)));
}

fn conditional_select(l: &mut Lower<'_>, w: u32) {
    let condition = cond(w >> 12);
    let op = if condition == Cond::Al { A64Op::Low } else { A64Op::Fcsel };
    emit(l, w, scalar_op(op, size(w)).cond(condition));
}

fn immediate(l: &mut Lower<'_>, w: u32) {
    let imm8 = u64::from(w >> 13 & 0xff);
    let value = if size(w) == 3 { expand_double(imm8) } else { expand_single(imm8) };
    l.push(Op::new(Code::VMovI).vd(vreg(w)).imm(value.cast_signed()));
}

/// The op with the bit that says that the integer register is an X.
fn with_width(op: Op, w: u32) -> Op {
    let wide = if w >> 31 != 0 { crate::arm64::simd::Q } else { 0 };
    Op { x: op.x | wide, ..op }
}

fn fixed_point(l: &mut Lower<'_>, w: u32) {
    let fraction = 64 - i64::from(w >> 10 & 63);
    let op = match w >> 16 & 7 {
        0 => A64Op::FcvtzsR,
        1 => A64Op::FcvtzuR,
        2 => A64Op::ScvtfR,
        _ => A64Op::UcvtfR,
    };
    convert(l, w, op, fraction);
}

fn convert(l: &mut Lower<'_>, w: u32, op: A64Op, fraction: i64) {
    let from_integer = matches!(op, A64Op::ScvtfR | A64Op::UcvtfR);
    let op = with_width(scalar_op(op, size(w)), w).imm(fraction);
    l.push(if from_integer {
        op.vd(vreg(w)).a(src(w >> 5))
    } else {
        op.d(dst(w)).va(vreg(w >> 5))
    });
}

/// Conversions to and from integers, and moves between the register files.
fn integer(l: &mut Lower<'_>, w: u32) {
    use A64Op as O;
    let op = match (w >> 19 & 3, w >> 16 & 7) {
        (0, 0) => O::FcvtnsR,
        (0, 1) => O::FcvtnuR,
        (1, 0) => O::FcvtpsR,
        (1, 1) => O::FcvtpuR,
        (2, 0) => O::FcvtmsR,
        (2, 1) => O::FcvtmuR,
        (3, 0) => O::FcvtzsR,
        (3, 1) => O::FcvtzuR,
        (0, 2) => O::ScvtfR,
        (0, 3) => O::UcvtfR,
        (0, 4) => O::FcvtasR,
        (0, 5) => O::FcvtauR,
        (mode, 6 | 7) => return move_general(l, w, mode),
        _ => return l.unsupported(),
    };
    convert(l, w, op, 0);
}

/// `FMOV` between a general and a vector register.
fn move_general(l: &mut Lower<'_>, w: u32, mode: u32) {
    let to_vector = w >> 16 & 1 != 0;
    let (wide, upper) = (w >> 31 != 0, mode == 1);
    let op = match (to_vector, upper, wide) {
        (true, true, _) => Op::new(Code::VSet64).x(1),
        (true, false, true) => Op::new(Code::VFromR64),
        (true, false, false) => Op::new(Code::VFromR32),
        (false, true, _) => Op::new(Code::VGet64).x(1),
        (false, false, true) => Op::new(Code::VGet64),
        (false, false, false) => Op::new(Code::VGet32),
    };
    l.push(if to_vector { op.vd(vreg(w)).a(src(w >> 5)) } else { op.d(dst(w)).va(vreg(w >> 5)) });
}
