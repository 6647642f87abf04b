//! Loads and stores.
//!
//! A pair is two accesses, as the model counts them. Faulting accesses come before any write-back, and a
//! load that overwrites its own base comes last, so that a faulting instruction can be restarted.
//!
//! FIDELITY: arm64-exclusive-alignment — exclusive, ordered and atomic accesses do not check alignment.
//!
//! Source: Arm DDI 0487, "Loads and stores".

use super::{Lower, dst, int, src, src_sp, vreg};
use crate::arm64::decode::A64;
use crate::arm64::simd::{A64Op, lane_op};
use crate::ir::{Code, Op, Reg, RmwOp, Vreg, ZERO};

const T0: Reg = Reg::tmp(0);
const T1: Reg = Reg::tmp(1);

/// Where an access goes: base plus immediate, or base plus shifted index.
#[derive(Clone, Copy)]
struct Address {
    base: Reg,
    index: Option<(Reg, u16)>,
    offset: i64,
}

impl Address {
    const fn at(base: Reg, offset: i64) -> Address {
        Address { base, index: None, offset }
    }
}

/// What moves: the op for each addressing form, and whether a vector slot takes part.
#[derive(Clone, Copy)]
struct Transfer {
    plain: Code,
    /// `None` where the IR has no indexed form.
    indexed: Option<Code>,
    vector: bool,
    store: bool,
}

const fn load(plain: Code, indexed: Code) -> Transfer {
    Transfer { plain, indexed: Some(indexed), vector: false, store: false }
}
const fn store(plain: Code, indexed: Code) -> Transfer {
    Transfer { plain, indexed: Some(indexed), vector: false, store: true }
}

/// The integer access of `size` (log2 of bytes) and `opc`; `None` for prefetches.
fn integer_transfer(size: u32, opc: u32) -> Option<Transfer> {
    Some(match (size, opc) {
        (0, 0) => store(Code::St8, Code::St8X),
        (1, 0) => store(Code::St16, Code::St16X),
        (2, 0) => store(Code::St32, Code::St32X),
        (3, 0) => store(Code::St64, Code::St64X),
        (0, 1) => load(Code::LdU8, Code::LdU8X),
        (1, 1) => load(Code::LdU16, Code::LdU16X),
        (2, 1) => load(Code::LdU32, Code::LdU32X),
        (3, 1) => load(Code::Ld64, Code::Ld64X),
        (0, 2) => load(Code::LdS8to64, Code::LdS8to64X),
        (1, 2) => load(Code::LdS16to64, Code::LdS16to64X),
        (2, 2) => load(Code::LdS32to64, Code::LdS32to64X),
        (0, 3) => load(Code::LdS8to32, Code::LdS8to32X),
        (1, 3) => load(Code::LdS16to32, Code::LdS16to32X),
        _ => return None,
    })
}

/// The vector access of `1 << size` bytes.
fn vector_transfer(size: u32, is_load: bool) -> Transfer {
    let (plain, indexed) = match (size, is_load) {
        (0, true) => (Code::VLd8, None),
        (1, true) => (Code::VLd16, None),
        (2, true) => (Code::VLd32, Some(Code::VLd32X)),
        (3, true) => (Code::VLd64, Some(Code::VLd64X)),
        (_, true) => (Code::VLd128, Some(Code::VLd128X)),
        (0, false) => (Code::VSt8, None),
        (1, false) => (Code::VSt16, None),
        (2, false) => (Code::VSt32, Some(Code::VSt32X)),
        (3, false) => (Code::VSt64, Some(Code::VSt64X)),
        (_, false) => (Code::VSt128, Some(Code::VSt128X)),
    };
    Transfer { plain, indexed, vector: true, store: !is_load }
}

/// Loads and stores.
pub(super) fn lower(l: &mut Lower<'_>, i: &A64) {
    let w = i.word;
    match w >> 27 & 7 {
        1 if w >> 26 & 1 != 0 => structures(l, w),
        1 => exclusive_or_ordered(l, w),
        3 => literal(l, w),
        5 => pair(l, w),
        7 if w >> 24 & 1 != 0 => unsigned_offset(l, w),
        7 if w >> 21 & 1 == 0 => nine_bit_offset(l, w),
        7 if w >> 10 & 3 == 2 => register_offset(l, w),
        7 if w >> 10 & 3 == 0 => atomic(l, w),
        _ => l.unsupported(),
    }
}

/// The access and the log2 of its bytes; `None` for a prefetch.
fn transfer_of(w: u32) -> Option<(Transfer, u32)> {
    let (size, opc) = (w >> 30, w >> 22 & 3);
    if w >> 26 & 1 == 0 {
        return integer_transfer(size, opc).map(|t| (t, size));
    }
    let size = size | (opc & 2) << 1;
    Some((vector_transfer(size, opc & 1 != 0), size))
}

/// Emits one access of register `t` (its number; 31 is the zero register for integers).
fn access(l: &mut Lower<'_>, transfer: Transfer, t: u32, address: Address) {
    let op = match (address.index, transfer.indexed) {
        (None, _) => Op::new(transfer.plain).a(address.base).imm(address.offset),
        (Some((index, shift)), Some(indexed)) => Op::new(indexed).a(address.base).b(index).x(shift),
        (Some((index, shift)), None) => {
            l.push(Op::new(Code::AddShl64).d(T1).a(address.base).b(index).x(shift));
            Op::new(transfer.plain).a(T1)
        }
    };
    l.push(match (transfer.vector, transfer.store) {
        (true, true) => op.vc(vreg(t)),
        (true, false) => op.vd(vreg(t)),
        (false, true) => op.c(src(t)),
        (false, false) => op.d(dst(t)),
    });
}

/// Moves a base register by a constant.
fn advance(l: &mut Lower<'_>, base: Reg, by: i64) {
    l.push(Op::new(Code::AddI64).d(base).a(base).imm(by));
}

fn unsigned_offset(l: &mut Lower<'_>, w: u32) {
    let Some((transfer, size)) = transfer_of(w) else { return };
    let offset = i64::from((w >> 10 & 0xfff) << size);
    access(l, transfer, w, Address::at(src_sp(w >> 5), offset));
}

/// Unscaled, unprivileged, pre- and post-indexed forms.
fn nine_bit_offset(l: &mut Lower<'_>, w: u32) {
    let Some((transfer, _)) = transfer_of(w) else { return };
    let offset = i64::from((w << 11).cast_signed() >> 23);
    let base = src_sp(w >> 5);
    match w >> 10 & 3 {
        1 => {
            if post_indexed(l, transfer, w, base, offset) {
                return;
            }
            access(l, transfer, w, Address::at(base, 0));
            advance(l, base, offset);
        }
        3 => {
            access(l, transfer, w, Address::at(base, offset));
            advance(l, base, offset);
        }
        _ => access(l, transfer, w, Address::at(base, offset)),
    }
}

/// Emits a post-indexed access as one op, if there is one for it.
fn post_indexed(l: &mut Lower<'_>, transfer: Transfer, w: u32, base: Reg, by: i64) -> bool {
    let code = match transfer.plain {
        Code::LdU8 => Code::LdU8P,
        Code::LdU32 => Code::LdU32P,
        Code::Ld64 => Code::Ld64P,
        Code::St8 => Code::St8P,
        Code::St32 => Code::St32P,
        Code::St64 => Code::St64P,
        Code::VLd128 => Code::VLd128P,
        Code::VSt128 => Code::VSt128P,
        _ => return false,
    };
    if !transfer.vector && !transfer.store && dst(w) == base {
        return false;
    }
    let op = Op::new(code).a(base).imm(by);
    l.push(match (transfer.vector, transfer.store) {
        (true, true) => op.vc(vreg(w)),
        (true, false) => op.vd(vreg(w)),
        (false, true) => op.c(src(w)),
        (false, false) => op.d(dst(w)),
    });
    true
}

fn register_offset(l: &mut Lower<'_>, w: u32) {
    let Some((transfer, size)) = transfer_of(w) else { return };
    let index = int::extended(l, w >> 13, src(w >> 16), true, T0);
    let shift = if w >> 12 & 1 != 0 { size } else { 0 };
    let base = src_sp(w >> 5);
    let address = Address { base, index: Some((index, (shift & 7) as u16)), offset: 0 };
    access(l, transfer, w, address);
}

fn literal(l: &mut Lower<'_>, w: u32) {
    let offset = i64::from((w << 8).cast_signed() >> 13 << 2);
    let address = Address::at(ZERO, l.pc.wrapping_add_signed(offset).cast_signed());
    let transfer = match (w >> 26 & 1, w >> 30) {
        (0, 0) => load(Code::LdU32, Code::LdU32X),
        (0, 1) => load(Code::Ld64, Code::Ld64X),
        (0, 2) => load(Code::LdS32to64, Code::LdS32to64X),
        (0, _) => return, // PRFM
        (_, opc) => vector_transfer(2 + opc, true),
    };
    access(l, transfer, w, address);
}

fn pair(l: &mut Lower<'_>, w: u32) {
    let (opc, is_load, vector) = (w >> 30, w >> 22 & 1 != 0, w >> 26 & 1 != 0);
    let (size, transfer) = match (vector, opc) {
        (true, _) => (2 + opc, vector_transfer(2 + opc, is_load)),
        (false, 0) if is_load => (2, load(Code::LdU32, Code::LdU32X)),
        (false, 0) => (2, store(Code::St32, Code::St32X)),
        (false, 1) => (2, load(Code::LdS32to64, Code::LdS32to64X)),
        (false, _) if is_load => (3, load(Code::Ld64, Code::Ld64X)),
        (false, _) => (3, store(Code::St64, Code::St64X)),
    };
    let offset = i64::from((w << 10).cast_signed() >> 25) << size;
    let base = src_sp(w >> 5);
    let (first, second) = (w & 31, w >> 10 & 31);
    let mode = w >> 23 & 3;
    let start = if mode == 1 { 0 } else { offset };
    let (low, high) = (Address::at(base, start), Address::at(base, start + (1 << size)));
    let overwrites_base = is_load && !vector && first != 31 && src(first) == base;
    if overwrites_base {
        let op = Op::new(transfer.plain).a(base);
        l.push(op.d(T0).imm(low.offset));
        access(l, transfer, second, high);
        l.push(Op::new(Code::Mov).d(dst(first)).a(T0));
    } else {
        access(l, transfer, first, low);
        access(l, transfer, second, high);
    }
    if mode & 1 != 0 {
        advance(l, base, offset);
    }
}

fn exclusive_or_ordered(l: &mut Lower<'_>, w: u32) {
    let size = w >> 30;
    let (ordered, is_load, pairs) = (w >> 23 & 1 != 0, w >> 22 & 1 != 0, w >> 21 & 1 != 0);
    let (t, t2, s, base) = (w & 31, w >> 10 & 31, w >> 16 & 31, src_sp(w >> 5));
    if ordered && pairs {
        return compare_and_swap(l, w);
    }
    if ordered {
        let Some(transfer) = integer_transfer(size, u32::from(is_load)) else { return };
        l.push(Op::new(Code::Fence));
        access(l, transfer, t, Address::at(base, 0));
        return;
    }
    if pairs && size < 2 {
        return compare_and_swap_pair(l, w);
    }
    let op = match (is_load, pairs) {
        (true, false) => {
            let code = [Code::LdEx8, Code::LdEx16, Code::LdEx32, Code::LdEx64][size as usize & 3];
            Op::new(code).d(dst(t))
        }
        (true, true) => {
            let code = if size == 2 { Code::LdExPair32 } else { Code::LdExPair64 };
            Op::new(code).d(dst(t)).b(dst(t2))
        }
        (false, false) => {
            let code = [Code::StEx8, Code::StEx16, Code::StEx32, Code::StEx64][size as usize & 3];
            Op::new(code).d(dst(s)).b(src(t))
        }
        (false, true) => {
            let code = if size == 2 { Code::StExPair32 } else { Code::StExPair64 };
            Op::new(code).d(dst(s)).b(src(t)).c(src(t2))
        }
    };
    l.push(op.a(base));
}

fn compare_and_swap(l: &mut Lower<'_>, w: u32) {
    let code = [Code::Cas8, Code::Cas16, Code::Cas32, Code::Cas64][(w >> 30) as usize & 3];
    let (t, s) = (src(w), src(w >> 16));
    l.push(Op::new(code).d(dst(w >> 16)).a(src_sp(w >> 5)).b(t).c(s));
}

fn compare_and_swap_pair(l: &mut Lower<'_>, w: u32) {
    let (t, s) = (w & 31, w >> 16 & 31);
    if (t | s) & 1 != 0 {
        return l.undefined();
    }
    // A pair that ends in the zero register goes through temporaries.
    let (expected, wanted, old) = (Reg::tmp(2), Reg::tmp(4), Reg::tmp(6));
    for (to, n) in [(expected, s), (wanted, t)] {
        l.push(Op::new(Code::Mov).d(to).a(src(n)));
        l.push(Op::new(Code::Mov).d(Reg(to.0 + 1)).a(src(n + 1)));
    }
    let code = if w >> 30 & 1 == 0 { Code::CasPair32 } else { Code::Cas128 };
    l.push(Op::new(code).d(old).a(src_sp(w >> 5)).b(wanted).c(expected));
    l.push(Op::new(Code::Mov).d(dst(s)).a(old));
    l.push(Op::new(Code::Mov).d(dst(s + 1)).a(Reg(old.0 + 1)));
}

/// The atomics of FEAT_LSE: `LD<op>`, `SWP`.
fn atomic(l: &mut Lower<'_>, w: u32) {
    let size = (w >> 30) as usize & 3;
    let op = match w >> 12 & 15 {
        0 => RmwOp::Add,
        1 => RmwOp::Bic,
        2 => RmwOp::Xor,
        3 => RmwOp::Or,
        4 => RmwOp::MaxS,
        5 => RmwOp::MinS,
        6 => RmwOp::MaxU,
        7 => RmwOp::MinU,
        8 => RmwOp::Swap,
        _ => return l.unsupported(),
    };
    let code = [Code::Rmw8, Code::Rmw16, Code::Rmw32, Code::Rmw64][size];
    let operand = src(w >> 16);
    l.push(Op::new(code).x(op as u16).d(dst(w)).a(src_sp(w >> 5)).b(operand));
}

/// `LD1`–`LD4`, `ST1`–`ST4`, `LD1R`–`LD4R`, multiple and single structures.
fn structures(l: &mut Lower<'_>, w: u32) {
    let base = src_sp(w >> 5);
    let bytes = if w >> 24 & 1 == 0 { multiple(l, w, base) } else { single(l, w, base) };
    if w >> 23 & 1 == 0 {
        return;
    }
    match w >> 16 & 31 {
        31 => advance(l, base, i64::from(bytes)),
        m => l.push(Op::new(Code::Add64).d(base).a(base).b(Reg(m as u8))),
    }
}

/// Register `n` places after the one in the low bits of the word, wrapping at 32.
fn nth(w: u32, n: u32) -> Vreg {
    vreg(w + n)
}

/// Whole registers, with or without interleaving. Returns the bytes moved.
fn multiple(l: &mut Lower<'_>, w: u32, base: Reg) -> u32 {
    let (registers, interleaved) = match w >> 12 & 15 {
        0b0000 => (4, true),
        0b0010 => (4, false),
        0b0100 => (3, true),
        0b0110 => (3, false),
        0b0111 => (1, false),
        0b1000 => (2, true),
        _ => (2, false),
    };
    let (q, is_load) = (w >> 30 & 1, w >> 22 & 1 != 0);
    let step = 8 << q;
    let transfer = vector_transfer(3 + q, is_load);
    if !interleaved {
        for n in 0..registers {
            access(l, transfer, w + n, Address::at(base, i64::from(n * step)));
        }
        return registers * step;
    }
    // Through temporaries 0..registers, whose lanes are (de)interleaved by one helper.
    let shuffle = |code| lane_op(code, (w >> 10 & 3) as u8, q != 0).imm(i64::from(registers));
    if !is_load {
        l.push(shuffle(A64Op::Interleave).vd(Vreg::tmp(0)).va(nth(w, 0)));
    }
    for n in 0..registers {
        let op = Op::new(transfer.plain).a(base).imm(i64::from(n * step));
        let slot = Vreg::tmp(n as u8);
        l.push(if is_load { op.vd(slot) } else { op.vc(slot) });
    }
    if is_load {
        l.push(shuffle(A64Op::Deinterleave).vd(nth(w, 0)).va(Vreg::tmp(0)));
    }
    registers * step
}

/// One lane of one to four registers, or one value to all lanes. Returns the bytes moved.
fn single(l: &mut Lower<'_>, w: u32, base: Reg) -> u32 {
    let registers = ((w >> 13 & 1) << 1 | (w >> 21 & 1)) + 1;
    let (q, is_load) = (w >> 30 & 1, w >> 22 & 1 != 0);
    let (scale, size) = (w >> 14 & 3, w >> 10 & 3);
    let (log2, lane, replicate) = match scale {
        0 => (0, q << 3 | (w >> 12 & 1) << 2 | size, false),
        1 => (1, q << 2 | (w >> 12 & 1) << 1 | size >> 1, false),
        2 if size & 1 == 0 => (2, q << 1 | (w >> 12 & 1), false),
        2 => (3, q, false),
        _ => (size, 0, true),
    };
    let Some(transfer) = integer_transfer(log2, u32::from(is_load)) else { return 0 };
    let index = log2 as usize & 3;
    let value = |n: u32| Reg::tmp(8 + n as u8);
    for n in 0..registers {
        let code = [Code::VGet8, Code::VGet16, Code::VGet32, Code::VGet64][index];
        if !is_load {
            l.push(Op::new(code).x(lane as u16).d(value(n)).va(nth(w, n)));
        }
    }
    for n in 0..registers {
        let op = Op::new(transfer.plain).a(base).imm(i64::from(n << log2));
        l.push(if is_load { op.d(value(n)) } else { op.c(value(n)) });
    }
    for n in 0..registers {
        if !is_load {
            break;
        }
        let code = [Code::VSet8, Code::VSet16, Code::VSet32, Code::VSet64][index];
        l.push(if replicate {
            lane_op(A64Op::DupR, log2 as u8, q != 0).vd(nth(w, n)).a(value(n))
        } else {
            Op::new(code).x(lane as u16).vd(nth(w, n)).a(value(n))
        });
    }
    registers << log2
}
