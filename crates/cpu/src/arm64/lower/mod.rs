//! From decoded A64 instructions to micro-ops.
//!
//! One file per encoding group; each reads its fields from the instruction word, which
//! [`decode`](crate::arm64::decode) has found to be a defined instruction. Where the instruction before
//! left something useful, the ops it emitted tell: a constant (`MOVZ`+`MOVK`, `ADRP`+`ADD`), or
//! a result that `B.EQ` can test without going through the flags.
//!
//! Source: Arm DDI 0487, "A64 Instruction Set Encoding".
#![expect(
    clippy::cast_possible_truncation,
    reason = "bit fields of the instruction word are narrowed on purpose; every cast is behind a mask"
)]

mod branch;
mod float;
mod int;
mod mem;
mod simd;

use crate::arm64::decode::A64;
use crate::block::{Builder, Step};
use crate::ir::{Code, Cond, Op, Reg, SINK, Vreg, ZERO};

/// Lowering of one instruction.
#[derive(Debug)]
struct Lower<'a> {
    pc: u64,
    b: &'a mut Builder,
    insn: &'a A64,
    ended: bool,
}

/// Appends the ops of the instruction at `pc`.
pub(super) fn lower(b: &mut Builder, pc: u64, i: &A64) -> Step {
    let mut l = Lower { pc, b, insn: i, ended: false };
    match i.word >> 25 & 15 {
        8 | 9 => int::immediate(&mut l, i),
        10 | 11 => branch::lower(&mut l, i),
        4 | 6 | 12 | 14 => mem::lower(&mut l, i),
        5 | 13 => int::register(&mut l, i),
        7 | 15 => simd::lower(&mut l, i),
        _ => l.undefined(), // UDF
    }
    if l.ended { Step::End(4) } else { Step::Next(4) }
}

impl Lower<'_> {
    /// Appends an op.
    fn push(&mut self, op: Op) {
        self.b.emit(op);
    }

    /// Writes a constant to a register.
    fn constant(&mut self, d: Reg, value: u64) {
        if d != SINK {
            self.b.movi(d, value);
        }
    }

    /// The ops of the instruction before this one, if this one has emitted none yet.
    fn before(&self) -> &[Op] {
        let Some((mark, before)) = self.b.ops().split_last() else { return &[] };
        if mark.code != Code::InsnStart {
            return &[];
        }
        let start = before.iter().rposition(|op| op.code == Code::InsnStart);
        before.get(start.map_or(0, |at| at + 1)..).unwrap_or(&[])
    }

    /// The constant in `r`, if the instruction before put it there.
    fn known(&self, r: Reg) -> Option<u64> {
        let [op] = self.before() else { return None };
        (op.code == Code::MovI && op.d == r.0).then_some(op.imm.cast_unsigned())
    }

    /// The register whose sign and zeroness are N and Z, and whether it is 64 bits wide, if the
    /// instruction before was an addition or subtraction that left its result in one.
    fn result(&self) -> Option<(bool, Reg)> {
        let [.., record, last] = self.before() else { return None };
        if !matches!(record.code, Code::Cc | Code::CcI) || last.d == SINK.0 {
            return None;
        }
        let wide = match last.code {
            Code::Add64 | Code::AddI64 | Code::Sub64 | Code::Neg64 => true,
            Code::Add32 | Code::AddI32 | Code::Sub32 | Code::Neg32 => false,
            _ => return None,
        };
        Some((wide, Reg(last.d)))
    }

    /// Address of the next instruction.
    fn next_pc(&self) -> u64 {
        self.pc.wrapping_add(4)
    }

    /// Ends the block with a branch to `taken`, else to the next instruction.
    fn end(&mut self, op: Op, taken: u64) {
        let next = self.next_pc();
        self.b.branch(op, taken, next);
        self.ended = true;
    }

    /// Ends the block with an op that has no direct target.
    fn leave(&mut self, op: Op) {
        self.push(op);
        self.ended = true;
    }

    fn undefined(&mut self) {
        self.b.undefined();
        self.ended = true;
    }

    fn unsupported(&mut self) {
        let name = format!("{:?}", self.insn.inst.opcode).to_lowercase();
        self.b.unsupported(name);
        self.ended = true;
    }
}

/// Source register of a field in the low five bits: 31 reads as zero.
fn src(field: u32) -> Reg {
    match (field & 31) as u8 {
        31 => ZERO,
        n => Reg(n),
    }
}

/// Source register of a field in the low five bits: 31 is SP.
fn src_sp(field: u32) -> Reg {
    Reg((field & 31) as u8)
}

/// Destination register: 31 is discarded.
fn dst(field: u32) -> Reg {
    match (field & 31) as u8 {
        31 => SINK,
        n => Reg(n),
    }
}

/// Destination register: 31 is SP.
fn dst_sp(field: u32) -> Reg {
    src_sp(field)
}

/// Vector register of a field in the low five bits.
fn vreg(field: u32) -> Vreg {
    Vreg((field & 31) as u8)
}

/// A condition field in the low four bits.
fn cond(field: u32) -> Cond {
    match field & 15 {
        0 => Cond::Z,
        1 => Cond::Nz,
        2 => Cond::C,
        3 => Cond::Nc,
        4 => Cond::S,
        5 => Cond::Ns,
        6 => Cond::O,
        7 => Cond::No,
        8 => Cond::Hi,
        9 => Cond::Ls,
        10 => Cond::Ge,
        11 => Cond::L,
        12 => Cond::G,
        13 => Cond::Le,
        _ => Cond::Al,
    }
}

/// The op that shifts by an immediate, by the two-bit shift type.
fn shift_code(kind: u32, wide: bool) -> Code {
    match (kind & 3, wide) {
        (0, false) => Code::ShlI32,
        (0, true) => Code::ShlI64,
        (1, false) => Code::ShrI32,
        (1, true) => Code::ShrI64,
        (2, false) => Code::SarI32,
        (2, true) => Code::SarI64,
        (_, false) => Code::RorI32,
        (_, true) => Code::RorI64,
    }
}
