//! Branches, exception generation, hints, barriers, system registers and cache maintenance.
//!
//! Source: Arm DDI 0487, "Branches, Exception Generating and System instructions"; Linux
//! `Documentation/arch/arm64/cpu-feature-registers.rst` for what EL0 may read.

use super::{Lower, cond, dst, src};
use crate::arm64::decode::A64;
use crate::arm64::features;
use crate::arm64::simd::A64Op;
use crate::ir::{CcKind, Code, Cond, Op, Reg, SINK, TPIDR, ZERO};

const T0: Reg = Reg::tmp(0);
const LR: Reg = Reg(30);

/// Branches, exception generation and system instructions.
pub(super) fn lower(l: &mut Lower<'_>, i: &A64) {
    let w = i.word;
    match w >> 29 & 7 {
        0 | 4 => immediate(l, w),
        1 | 5 if w >> 25 & 1 == 0 => compare_and_branch(l, w),
        1 | 5 => test_and_branch(l, w),
        2 => conditional(l, w),
        6 if w >> 25 & 1 != 0 => to_register(l, w),
        6 if w >> 24 & 1 != 0 => system(l, w),
        6 => exception(l, w),
        _ => l.unsupported(),
    }
}

/// Target of a branch with `bits` of word offset above bit `low`.
fn target(l: &Lower<'_>, w: u32, low: u32, bits: u32) -> u64 {
    let offset = (w << (32 - low - bits)).cast_signed() >> (32 - bits);
    l.pc.wrapping_add_signed(i64::from(offset) << 2)
}

fn immediate(l: &mut Lower<'_>, w: u32) {
    let to = target(l, w, 0, 26);
    if w >> 31 != 0 {
        l.constant(LR, l.next_pc());
    }
    l.end(Op::new(Code::Jump), to);
}

fn compare_and_branch(l: &mut Lower<'_>, w: u32) {
    let (sf, not_zero) = (w >> 31 != 0, w >> 24 & 1 != 0);
    let code = match (sf, not_zero) {
        (false, false) => Code::BrZ32,
        (false, true) => Code::BrNz32,
        (true, false) => Code::BrZ64,
        (true, true) => Code::BrNz64,
    };
    let to = target(l, w, 5, 19);
    l.end(Op::new(code).a(src(w)), to);
}

fn test_and_branch(l: &mut Lower<'_>, w: u32) {
    let bit = (w >> 31 << 5 | (w >> 19 & 31)) as u16;
    let code = if w >> 24 & 1 != 0 { Code::BrBit1 } else { Code::BrBit0 };
    let to = target(l, w, 5, 14);
    l.end(Op::new(code).x(bit).a(src(w)), to);
}

/// `B.cond`, on the result of the instruction before where that decides.
fn conditional(l: &mut Lower<'_>, w: u32) {
    let to = target(l, w, 5, 19);
    let condition = cond(w);
    if condition == Cond::Al {
        return l.end(Op::new(Code::Jump), to);
    }
    let on_result = l.result().and_then(|(sf, r)| {
        let top = if sf { 63 } else { 31 };
        Some(
            match (condition, sf) {
                (Cond::Z, false) => Op::new(Code::BrZ32),
                (Cond::Z, true) => Op::new(Code::BrZ64),
                (Cond::Nz, false) => Op::new(Code::BrNz32),
                (Cond::Nz, true) => Op::new(Code::BrNz64),
                (Cond::S, _) => Op::new(Code::BrBit1).x(top),
                (Cond::Ns, _) => Op::new(Code::BrBit0).x(top),
                _ => return None,
            }
            .a(r),
        )
    });
    l.end(on_result.unwrap_or(Op::new(Code::Br).cond(condition)), to);
}

fn to_register(l: &mut Lower<'_>, w: u32) {
    let n = src(w >> 5);
    match w >> 21 & 15 {
        0 | 2 => l.leave(Op::new(Code::JumpInd).a(n)),
        1 if n == LR => {
            l.push(Op::new(Code::Mov).d(T0).a(n));
            l.constant(LR, l.next_pc());
            l.leave(Op::new(Code::JumpInd).a(T0));
        }
        1 => {
            l.constant(LR, l.next_pc());
            l.leave(Op::new(Code::JumpInd).a(n));
        }
        // ERET, DRPS: undefined at EL0.
        _ => l.undefined(),
    }
}

fn exception(l: &mut Lower<'_>, w: u32) {
    match (w >> 21 & 7, w & 3) {
        (0, 1) => {
            let next = l.next_pc();
            l.leave(Op::new(Code::Syscall).imm(next.cast_signed()));
        }
        // The PC stays at the BRK.
        (1, 0) => {
            let here = l.pc;
            l.leave(Op::new(Code::Breakpoint).imm(here.cast_signed()));
        }
        // HVC, SMC, HLT, DCPSn: undefined at EL0.
        _ => l.undefined(),
    }
}

/// `op0:op1:CRn:CRm:op2` in the form that the word has them, bits 20 to 5.
const fn sys(op0: u32, op1: u32, crn: u32, crm: u32, op2: u32) -> u32 {
    op0 << 14 | op1 << 11 | crn << 7 | crm << 3 | op2
}

fn system(l: &mut Lower<'_>, w: u32) {
    let register = w >> 5 & 0xffff;
    let read = w >> 21 & 1 != 0;
    match w >> 19 & 3 {
        0 if w >> 12 & 15 == 2 => {} // Hints: YIELD, BTI, PACIASP and the like do nothing here.
        0 if w >> 12 & 15 == 3 => barrier(l, w),
        // MSR (immediate): DAIF, SPSel and others are not for EL0.
        0 => l.undefined(),
        1 => maintenance(l, w, register),
        _ if read => read_register(l, w, register),
        _ => write_register(l, w, register),
    }
}

fn barrier(l: &mut Lower<'_>, w: u32) {
    match w >> 5 & 7 {
        2 => l.push(Op::new(Code::Clrex)),
        // DSB, DMB, ISB. Instruction fetch sees new code after IC IVAU, which ends its block.
        4..=6 => l.push(Op::new(Code::Fence)),
        _ => l.undefined(),
    }
}

/// `DC` and `IC` by address, as far as EL0 may use them (SCTLR_EL1.UCI and DZE set, as in Linux).
fn maintenance(l: &mut Lower<'_>, w: u32, operation: u32) {
    const DC_ZVA: u32 = sys(1, 3, 7, 4, 1);
    const IC_IVAU: u32 = sys(1, 3, 7, 5, 1);
    const DC_CVAC: u32 = sys(1, 3, 7, 10, 1);
    const DC_CVAU: u32 = sys(1, 3, 7, 11, 1);
    const DC_CIVAC: u32 = sys(1, 3, 7, 14, 1);
    if w >> 21 & 1 != 0 {
        return l.undefined(); // SYSL
    }
    match operation {
        DC_ZVA => {
            l.push(Op::new(Code::AndI64).d(T0).a(src(w)).imm(-64));
            l.push(Op::new(Code::ZeroQuads).x(8).a(T0));
        }
        IC_IVAU => {
            let next = l.next_pc();
            l.end(Op::new(Code::ICacheInv).a(src(w)), next);
        }
        // Cleaning needs the address translated, and faults where a load would.
        DC_CVAC | DC_CVAU | DC_CIVAC => l.push(Op::new(Code::LdU8).d(SINK).a(src(w))),
        _ => l.undefined(),
    }
}

const NZCV: u32 = sys(3, 3, 4, 2, 0);
const FPCR: u32 = sys(3, 3, 4, 4, 0);
const FPSR: u32 = sys(3, 3, 4, 4, 1);
const TPIDR_EL0: u32 = sys(3, 3, 13, 0, 2);
const TPIDRRO_EL0: u32 = sys(3, 3, 13, 0, 3);
const CNTFRQ_EL0: u32 = sys(3, 3, 14, 0, 0);
const CNTVCT_EL0: u32 = sys(3, 3, 14, 0, 2);
const CTR_EL0: u32 = sys(3, 3, 0, 0, 1);
const DCZID_EL0: u32 = sys(3, 3, 0, 0, 7);

fn read_register(l: &mut Lower<'_>, w: u32, register: u32) {
    let d = dst(w);
    match register {
        TPIDR_EL0 => l.push(Op::new(Code::Mov).d(d).a(TPIDR)),
        TPIDRRO_EL0 => l.constant(d, 0),
        NZCV => l.push(Op::new(Code::GetNzcv).d(d)),
        FPCR => l.push(A64Op::ReadFpcr.op().d(d)),
        FPSR => l.push(A64Op::ReadFpsr.op().d(d)),
        CNTFRQ_EL0 => l.push(Op::new(Code::CounterHz).d(d)),
        CNTVCT_EL0 => {
            l.push(Op::new(Code::Counter).d(d));
            let next = l.next_pc();
            l.end(Op::new(Code::Jump), next);
        }
        CTR_EL0 => l.constant(d, features::CTR_EL0),
        DCZID_EL0 => l.constant(d, features::DCZID_EL0),
        _ => match features::id_register(register) {
            Some(value) => l.constant(d, value),
            None => l.undefined(),
        },
    }
}

fn write_register(l: &mut Lower<'_>, w: u32, register: u32) {
    let t = src(w);
    match register {
        TPIDR_EL0 => l.push(Op::new(Code::Mov).d(TPIDR).a(t)),
        NZCV => l.push(Op::new(Code::Cc).kind(CcKind::Nzcv).a(t).b(ZERO).c(ZERO)),
        FPCR => l.push(A64Op::WriteFpcr.op().a(t)),
        FPSR => l.push(A64Op::WriteFpsr.op().a(t)),
        _ => l.undefined(),
    }
}
