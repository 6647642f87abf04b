//! Advanced SIMD data processing, vector and scalar forms.
//!
//! Source: Arm DDI 0487, "Data processing – Scalar Floating-Point and Advanced SIMD".

use super::{Lower, dst, float, src, vreg};
use crate::arm64::decode::A64;
use crate::arm64::simd::{A64Op, lane_op, scalar_op};
use crate::ir::{Code, Op, Reg, Vreg};

const T0: Reg = Reg::tmp(0);
/// Holds the element that a by-element instruction multiplies with, in every lane.
const ELEMENT: Vreg = Vreg::tmp(0);

/// Scalar floating point and Advanced SIMD.
pub(super) fn lower(l: &mut Lower<'_>, i: &A64) {
    let w = i.word;
    match w >> 24 & 0x5f {
        0x1e => float::lower(l, w),
        0x1f => float::multiply_add(l, w),
        0x0e | 0x4e | 0x5e => registers(l, w),
        _ if w >> 10 & 1 == 0 => by_element(l, w),
        _ if w >> 28 & 1 == 0 && w >> 19 & 15 == 0 => modified_immediate(l, w),
        _ => shift_by_immediate(l, w),
    }
}

/// Whether the word is a scalar form.
const fn is_scalar(w: u32) -> bool {
    w >> 28 & 1 != 0
}

const fn q(w: u32) -> bool {
    w >> 30 & 1 != 0
}

const fn u(w: u32) -> bool {
    w >> 29 & 1 != 0
}

/// Lane size of floating-point forms: `sz` in bit 22.
const fn float_size(w: u32) -> u8 {
    2 + (w >> 22 & 1) as u8
}

/// Lane size of integer forms.
const fn size(w: u32) -> u8 {
    (w >> 22 & 3) as u8
}

/// The op on lanes of `size`, vector or scalar as the word says.
fn shaped(w: u32, op: A64Op, size: u8) -> Op {
    if is_scalar(w) { scalar_op(op, size) } else { lane_op(op, size, q(w)) }
}

/// Emits an op with `Vd`, `Vn` and, if it uses it, `Vm` from the word.
fn emit(l: &mut Lower<'_>, w: u32, op: Op) {
    l.push(op.vd(vreg(w)).va(vreg(w >> 5)).vb(vreg(w >> 16)));
}

/// Three registers, two registers, reductions, copies and permutes.
fn registers(l: &mut Lower<'_>, w: u32) {
    if w >> 21 & 1 == 0 {
        return match (w >> 10 & 3, u(w)) {
            (0, false) if is_scalar(w) => sha(l, w),
            (1 | 3, _) => copy(l, w),
            (2, false) => permute(l, w),
            (0, false) => table(l, w),
            _ => extract(l, w),
        };
    }
    if w >> 10 & 1 != 0 {
        return three_same(l, w);
    }
    if w >> 11 & 1 == 0 {
        return three_different(l, w);
    }
    match w >> 17 & 15 {
        0 => two_registers(l, w),
        4 => cryptography(l, w),
        8 if is_scalar(w) => scalar_pair(l, w),
        8 => across(l, w),
        _ => l.unsupported(),
    }
}

/// SHA-1 and SHA-256 on three registers.
fn sha(l: &mut Lower<'_>, w: u32) {
    use A64Op as O;
    let op = match w >> 12 & 7 {
        0 => O::Sha1c,
        1 => O::Sha1p,
        2 => O::Sha1m,
        3 => O::Sha1su0,
        4 => O::Sha256h,
        5 => O::Sha256h2,
        6 => O::Sha256su1,
        _ => return l.unsupported(),
    };
    emit(l, w, op.op());
}

/// AES and SHA on two registers.
fn cryptography(l: &mut Lower<'_>, w: u32) {
    use A64Op as O;
    let op = match (is_scalar(w), w >> 12 & 31) {
        (true, 0) => O::Sha1h,
        (true, 1) => O::Sha1su1,
        (true, 2) => O::Sha256su0,
        (false, 4) => O::Aese,
        (false, 5) => O::Aesd,
        (false, 6) => O::Aesmc,
        (false, 7) => O::Aesimc,
        _ => return l.unsupported(),
    };
    emit(l, w, op.op());
}

fn three_same(l: &mut Lower<'_>, w: u32) {
    use A64Op as O;
    let pick = |signed, unsigned| if u(w) { unsigned } else { signed };
    let op = match w >> 11 & 31 {
        0 => pick(O::Shadd, O::Uhadd),
        1 => pick(O::Sqadd, O::Uqadd),
        2 => pick(O::Srhadd, O::Urhadd),
        3 => return bitwise(l, w),
        4 => pick(O::Shsub, O::Uhsub),
        5 => pick(O::Sqsub, O::Uqsub),
        6 => pick(O::Cmgt, O::Cmhi),
        7 => pick(O::Cmge, O::Cmhs),
        8 => pick(O::Sshl, O::Ushl),
        9 => pick(O::Sqshl, O::Uqshl),
        10 => pick(O::Srshl, O::Urshl),
        11 => pick(O::Sqrshl, O::Uqrshl),
        12 => pick(O::Smax, O::Umax),
        13 => pick(O::Smin, O::Umin),
        14 => pick(O::Sabd, O::Uabd),
        15 => pick(O::Saba, O::Uaba),
        16 => pick(O::Add, O::Sub),
        17 => pick(O::Cmtst, O::Cmeq),
        18 => pick(O::Mla, O::Mls),
        19 => pick(O::Mul, O::Pmul),
        20 => pick(O::Smaxp, O::Umaxp),
        21 => pick(O::Sminp, O::Uminp),
        22 => pick(O::Sqdmulh, O::Sqrdmulh),
        23 => O::Addp,
        _ => return three_same_float(l, w),
    };
    emit(l, w, shaped(w, op, size(w)));
}

fn bitwise(l: &mut Lower<'_>, w: u32) {
    use A64Op as O;
    let op = match (u(w), size(w)) {
        (false, 0) => O::And,
        (false, 1) => O::Bic,
        (false, 2) if q(w) && w >> 5 & 31 == w >> 16 & 31 => {
            l.push(Op::new(Code::VMov).vd(vreg(w)).va(vreg(w >> 5)));
            return;
        }
        (false, 2) => O::Orr,
        (false, _) => O::Orn,
        (true, 0) => O::Eor,
        // BSL, BIT and BIF read their destination.
        (true, 1) => O::Bsl,
        (true, 2) => O::Bit,
        (true, _) => O::Bif,
    };
    emit(l, w, lane_op(op, 0, q(w)));
}

fn three_same_float(l: &mut Lower<'_>, w: u32) {
    use A64Op as O;
    let op = match (w >> 11 & 7, w >> 23 & 1, u(w)) {
        (0, 0, false) => O::Fmaxnm,
        (0, 0, true) => O::Fmaxnmp,
        (0, _, false) => O::Fminnm,
        (0, _, true) => O::Fminnmp,
        (1, 0, false) => O::Fmla,
        (1, 1, false) => O::Fmls,
        (2, 0, false) => O::Fadd,
        (2, 0, true) => O::Faddp,
        (2, _, false) => O::Fsub,
        (2, _, true) => O::Fabd,
        (3, 0, false) => O::Fmulx,
        (3, 0, true) => O::Fmul,
        (4, 0, false) => O::Fcmeq,
        (4, 0, true) => O::Fcmge,
        (4, 1, true) => O::Fcmgt,
        (5, 0, true) => O::Facge,
        (5, 1, true) => O::Facgt,
        (6, 0, false) => O::Fmax,
        (6, 0, true) => O::Fmaxp,
        (6, _, false) => O::Fmin,
        (6, _, true) => O::Fminp,
        (7, 0, false) => O::Frecps,
        (7, 0, true) => O::Fdiv,
        (7, 1, false) => O::Frsqrts,
        _ => return l.unsupported(),
    };
    emit(l, w, shaped(w, op, float_size(w)));
}

fn three_different(l: &mut Lower<'_>, w: u32) {
    use A64Op as O;
    let pick = |signed, unsigned| if u(w) { unsigned } else { signed };
    let op = match w >> 12 & 15 {
        0 => pick(O::Saddl, O::Uaddl),
        1 => pick(O::Saddw, O::Uaddw),
        2 => pick(O::Ssubl, O::Usubl),
        3 => pick(O::Ssubw, O::Usubw),
        4 => pick(O::Addhn, O::Raddhn),
        5 => pick(O::Sabal, O::Uabal),
        6 => pick(O::Subhn, O::Rsubhn),
        7 => pick(O::Sabdl, O::Uabdl),
        8 => pick(O::Smlal, O::Umlal),
        9 => O::Sqdmlal,
        10 => pick(O::Smlsl, O::Umlsl),
        11 => O::Sqdmlsl,
        12 => pick(O::Smull, O::Umull),
        13 => O::Sqdmull,
        14 if size(w) == 3 => O::Pmull64,
        14 => O::Pmull,
        _ => return l.unsupported(),
    };
    emit(l, w, shaped(w, op, size(w)));
}

fn two_registers(l: &mut Lower<'_>, w: u32) {
    use A64Op as O;
    let pick = |signed, unsigned| if u(w) { unsigned } else { signed };
    let op = match w >> 12 & 31 {
        0x00 => pick(O::Rev64, O::Rev32),
        0x01 => O::Rev16,
        0x02 => pick(O::Saddlp, O::Uaddlp),
        0x03 => pick(O::Suqadd, O::Usqadd),
        0x04 => pick(O::Cls, O::Clz),
        0x05 if !u(w) => O::Cnt,
        0x05 if size(w) == 0 => O::Not,
        0x05 => O::Rbit,
        0x06 => pick(O::Sadalp, O::Uadalp),
        0x07 => pick(O::Sqabs, O::Sqneg),
        0x08 => pick(O::Cmgt0, O::Cmge0),
        0x09 => pick(O::Cmeq0, O::Cmle0),
        0x0a => O::Cmlt0,
        0x0b => pick(O::Abs, O::Neg),
        0x12 => pick(O::Xtn, O::Sqxtun),
        0x14 => pick(O::Sqxtn, O::Uqxtn),
        0x13 => {
            let bits = 8i64 << size(w);
            return emit(l, w, shaped(w, O::Shll, size(w)).imm(bits));
        }
        _ => return two_registers_float(l, w),
    };
    emit(l, w, shaped(w, op, size(w)));
}

fn two_registers_float(l: &mut Lower<'_>, w: u32) {
    use A64Op as O;
    let pick = |signed, unsigned| if u(w) { unsigned } else { signed };
    let double = w >> 22 & 1 != 0;
    let op = match (w >> 12 & 31, w >> 23 & 1) {
        (0x0c, 1) => pick(O::Fcmgt0, O::Fcmge0),
        (0x0d, 1) => pick(O::Fcmeq0, O::Fcmle0),
        (0x0e, 1) => O::Fcmlt0,
        (0x0f, 1) => pick(O::Fabs, O::Fneg),
        (0x16, _) if u(w) => O::Fcvtxn,
        (0x16, _) => {
            if double {
                O::Fcvtn
            } else {
                O::FcvtnH
            }
        }
        (0x17, _) => {
            if double {
                O::Fcvtl
            } else {
                O::FcvtlH
            }
        }
        (0x18, 0) => pick(O::Frintn, O::Frinta),
        (0x18, _) => O::Frintp,
        // FRINTX and FRINTI round by FPCR, which is to nearest.
        (0x19, 0) => pick(O::Frintm, O::Frintn),
        (0x19, _) => pick(O::Frintz, O::Frintn),
        (0x1a, 0) => pick(O::FcvtnsV, O::FcvtnuV),
        (0x1a, _) => pick(O::FcvtpsV, O::FcvtpuV),
        (0x1b, 0) => pick(O::FcvtmsV, O::FcvtmuV),
        (0x1b, _) => pick(O::FcvtzsV, O::FcvtzuV),
        (0x1c, 0) => pick(O::FcvtasV, O::FcvtauV),
        (0x1c, _) => pick(O::Urecpe, O::Ursqrte),
        (0x1d, 0) => pick(O::ScvtfV, O::UcvtfV),
        (0x1d, _) => pick(O::Frecpe, O::Frsqrte),
        (0x1f, 1) => pick(O::Frecpx, O::Fsqrt),
        _ => return l.unsupported(),
    };
    emit(l, w, shaped(w, op, float_size(w)));
}

fn across(l: &mut Lower<'_>, w: u32) {
    use A64Op as O;
    let pick = |signed, unsigned| if u(w) { unsigned } else { signed };
    let minimum = w >> 23 & 1 != 0;
    let op = match w >> 12 & 31 {
        0x03 => pick(O::Saddlv, O::Uaddlv),
        0x0a => pick(O::Smaxv, O::Umaxv),
        0x1a => pick(O::Sminv, O::Uminv),
        0x1b => O::Addv,
        0x0c | 0x0f => {
            let op = match (w >> 12 & 31, minimum) {
                (0x0c, false) => O::Fmaxnmv,
                (0x0c, true) => O::Fminnmv,
                (_, false) => O::Fmaxv,
                (_, true) => O::Fminv,
            };
            return emit(l, w, lane_op(op, 2, true));
        }
        _ => return l.unsupported(),
    };
    emit(l, w, lane_op(op, size(w), q(w)));
}

fn scalar_pair(l: &mut Lower<'_>, w: u32) {
    use A64Op as O;
    let minimum = w >> 23 & 1 != 0;
    let (op, size) = match (w >> 12 & 31, minimum) {
        (0x1b, _) => (O::Addp, 3),
        (0x0c, false) => (O::Fmaxnmp, float_size(w)),
        (0x0c, true) => (O::Fminnmp, float_size(w)),
        (0x0d, _) => (O::Faddp, float_size(w)),
        (0x0f, false) => (O::Fmaxp, float_size(w)),
        (0x0f, true) => (O::Fminp, float_size(w)),
        _ => return l.unsupported(),
    };
    emit(l, w, scalar_op(op, size));
}

fn by_element(l: &mut Lower<'_>, w: u32) {
    use A64Op as O;
    let pick = |signed, unsigned| if u(w) { unsigned } else { signed };
    let (op, is_float) = match w >> 12 & 15 {
        0 => (O::Mla, false),
        1 => (O::Fmla, true),
        2 => (pick(O::Smlal, O::Umlal), false),
        3 => (O::Sqdmlal, false),
        4 => (O::Mls, false),
        5 => (O::Fmls, true),
        6 => (pick(O::Smlsl, O::Umlsl), false),
        7 => (O::Sqdmlsl, false),
        8 => (O::Mul, false),
        9 => (pick(O::Fmul, O::Fmulx), true),
        10 => (pick(O::Smull, O::Umull), false),
        11 => (O::Sqdmull, false),
        12 => (O::Sqdmulh, false),
        13 => (O::Sqrdmulh, false),
        _ => return l.unsupported(),
    };
    let (high, low, m) = (w >> 11 & 1, w >> 21 & 1, w >> 20 & 1);
    let size = if is_float { float_size(w) } else { size(w) };
    let (index, register) = match size {
        1 => (high << 2 | low << 1 | m, w >> 16 & 15),
        2 => (high << 1 | low, w >> 16 & 31),
        _ => (high, w >> 16 & 31),
    };
    let element = lane_op(O::DupLane, size, true).imm(i64::from(index));
    l.push(element.vd(ELEMENT).va(vreg(register)));
    l.push(shaped(w, op, size).vd(vreg(w)).va(vreg(w >> 5)).vb(ELEMENT));
}

/// `DUP`, `INS`, `SMOV`, `UMOV`.
fn copy(l: &mut Lower<'_>, w: u32) {
    use A64Op as O;
    let imm5 = w >> 16 & 31;
    let size = imm5.trailing_zeros().min(3);
    let lane = imm5 >> (size + 1);
    let (log2, index) = (size as u8, size as usize & 3);
    let (d, n) = (vreg(w), vreg(w >> 5));
    let get = [Code::VGet8, Code::VGet16, Code::VGet32, Code::VGet64][index];
    if u(w) {
        let from = (w >> 11 & 15) >> size;
        let op = lane_op(O::InsLane, log2, true).imm(i64::from(lane << 4 | from));
        return l.push(op.vd(d).va(n));
    }
    match w >> 11 & 15 {
        0 => l.push(shaped(w, O::DupLane, log2).imm(i64::from(lane)).vd(d).va(n)),
        1 => l.push(lane_op(O::DupR, log2, q(w)).vd(d).a(src(w >> 5))),
        3 => {
            let set = [Code::VSet8, Code::VSet16, Code::VSet32, Code::VSet64][index];
            l.push(Op::new(set).x((lane & 15) as u16).vd(d).a(src(w >> 5)));
        }
        5 => {
            l.push(Op::new(get).x((lane & 15) as u16).d(T0).va(n));
            let extend = match (index, q(w)) {
                (0, false) => Code::Sext8to32,
                (0, true) => Code::Sext8to64,
                (1, false) => Code::Sext16to32,
                (1, true) => Code::Sext16to64,
                _ => Code::Sext32to64,
            };
            l.push(Op::new(extend).d(dst(w)).a(T0));
        }
        7 => l.push(Op::new(get).x((lane & 15) as u16).d(dst(w)).va(n)),
        _ => l.unsupported(),
    }
}

fn permute(l: &mut Lower<'_>, w: u32) {
    use A64Op as O;
    let op = match w >> 12 & 7 {
        1 => O::Uzp1,
        2 => O::Trn1,
        3 => O::Zip1,
        5 => O::Uzp2,
        6 => O::Trn2,
        7 => O::Zip2,
        _ => return l.unsupported(),
    };
    emit(l, w, lane_op(op, size(w), q(w)));
}

fn table(l: &mut Lower<'_>, w: u32) {
    let op = if w >> 12 & 1 != 0 { A64Op::Tbx } else { A64Op::Tbl };
    let registers = i64::from(w >> 13 & 3) + 1;
    emit(l, w, lane_op(op, 0, q(w)).imm(registers));
}

fn extract(l: &mut Lower<'_>, w: u32) {
    emit(l, w, lane_op(A64Op::Ext, 0, q(w)).imm(i64::from(w >> 11 & 15)));
}

/// Expands the eight bits of an FP immediate to a double's bits.
///
/// Source: Arm DDI 0487, pseudocode `VFPExpandImm()`.
pub(super) fn expand_double(imm8: u64) -> u64 {
    let (sign, b, rest) = (imm8 >> 7 & 1, imm8 >> 6 & 1, imm8 & 0x3f);
    let exponent = (b ^ 1) << 10 | (b * 0xff) << 2 | rest >> 4;
    sign << 63 | exponent << 52 | (rest & 15) << 48
}

/// As [`expand_double`], to a single's bits.
pub(super) fn expand_single(imm8: u64) -> u64 {
    let (sign, b, rest) = (imm8 >> 7 & 1, imm8 >> 6 & 1, imm8 & 0x3f);
    let exponent = (b ^ 1) << 7 | (b * 0x1f) << 2 | rest >> 4;
    sign << 31 | exponent << 23 | (rest & 15) << 19
}

/// `MOVI`, `MVNI`, `ORR`, `BIC`, `FMOV` with an expanded immediate.
///
/// Source: Arm DDI 0487, pseudocode `AdvSIMDExpandImm()`.
fn modified_immediate(l: &mut Lower<'_>, w: u32) {
    let imm8 = u64::from((w >> 16 & 7) << 5 | (w >> 5 & 31));
    let (cmode, op) = (w >> 12 & 15, w >> 29 & 1);
    let words = |v: u64| v | v << 32;
    let halves = |v: u64| words(v | v << 16);
    let bytes = |v: u64| halves(v | v << 8);
    let value = match (cmode, op) {
        (0..=7, _) => words(imm8 << (8 * (cmode >> 1))),
        (8..=11, _) => halves(imm8 << (8 * (cmode >> 1 & 1))),
        (12, _) => words(imm8 << 8 | 0xff),
        (13, _) => words(imm8 << 16 | 0xffff),
        (14, 0) => bytes(imm8),
        (14, _) => (0..8).filter(|i| imm8 >> i & 1 != 0).fold(0, |v, i| v | 0xff << (8 * i)),
        (_, 0) => words(expand_single(imm8)),
        (_, _) => expand_double(imm8),
    };
    let accumulates = cmode < 12 && cmode & 1 != 0;
    if accumulates {
        let op = if op == 0 { A64Op::OrrI } else { A64Op::BicI };
        return l.push(lane_op(op, 0, q(w)).vd(vreg(w)).imm(value.cast_signed()));
    }
    let value = if op == 1 && cmode < 14 { !value } else { value };
    let code = if q(w) { Code::VDupI } else { Code::VMovI };
    l.push(Op::new(code).vd(vreg(w)).imm(value.cast_signed()));
}

fn shift_by_immediate(l: &mut Lower<'_>, w: u32) {
    use A64Op as O;
    let pick = |signed, unsigned| if u(w) { unsigned } else { signed };
    let immediate = w >> 16 & 127;
    let size = (immediate >> 3).max(1).ilog2();
    let right = i64::from((16 << size) - immediate);
    let left = i64::from(immediate.saturating_sub(8 << size));
    let (op, n) = match w >> 11 & 31 {
        0 => (pick(O::Sshr, O::Ushr), right),
        2 => (pick(O::Ssra, O::Usra), right),
        4 => (pick(O::Srshr, O::Urshr), right),
        6 => (pick(O::Srsra, O::Ursra), right),
        8 => (O::Sri, right),
        10 => (pick(O::Shl, O::Sli), left),
        12 => (O::Sqshlu, left),
        14 => (pick(O::SqshlI, O::UqshlI), left),
        16 => (pick(O::Shrn, O::Sqshrun), right),
        17 => (pick(O::Rshrn, O::Sqrshrun), right),
        18 => (pick(O::Sqshrn, O::Uqshrn), right),
        19 => (pick(O::Sqrshrn, O::Uqrshrn), right),
        20 => (pick(O::Sshll, O::Ushll), left),
        28 => (pick(O::ScvtfV, O::UcvtfV), right),
        31 => (pick(O::FcvtzsV, O::FcvtzuV), right),
        _ => return l.unsupported(),
    };
    emit(l, w, shaped(w, op, size as u8).imm(n));
}
