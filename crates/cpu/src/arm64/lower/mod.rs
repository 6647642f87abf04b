//! From decoded A64 instructions to micro-ops.
//!
//! One file per encoding group; each reads its fields from the instruction word, which
//! [`decode`](crate::arm64::decode) has found to be a defined instruction. A lowering appends micro-ops to a
//! [`Lower`], which also remembers what the last instruction left behind where the next one can use it:
//! a register with a known constant (`MOVZ`+`MOVK`, `ADRP`+`ADD`), a compare that a conditional
//! branch can swallow, a result that `B.EQ` can test without going through the flags.
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
use crate::ir::{Code, Cond, Op, Reg, SINK, Vreg, ZERO};

/// Where a block goes after its last op.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct End {
    /// Target 0 of the block: where the last op's branch goes.
    pub(crate) taken: u64,
    /// Target 1 of the block: the next instruction.
    pub(crate) next: u64,
}

/// A compare without a destination that was the last thing emitted.
#[derive(Clone, Copy, Debug)]
struct Fused {
    /// The op that records it.
    op: Op,
    /// Where it stands.
    index: usize,
}

/// What one instruction leaves for the next.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Memory {
    known: Option<(Reg, u64)>,
    compare: Option<Fused>,
    result: Option<(bool, Reg)>,
}

/// Lowering of one instruction: its address, the ops so far and the memory of the one before.
#[derive(Debug)]
pub(crate) struct Lower<'a> {
    pc: u64,
    ops: &'a mut Vec<Op>,
    memory: &'a mut Memory,
    last: Memory,
    end: Option<End>,
}

/// Appends the ops of the instruction at `pc`. Returns where control goes if it ends the block.
pub(crate) fn lower(i: &A64, pc: u64, ops: &mut Vec<Op>, memory: &mut Memory) -> Option<End> {
    let last = std::mem::take(memory);
    memory.known = last.known;
    let mut l = Lower { pc, ops, memory, last, end: None };
    match i.word >> 25 & 15 {
        8 | 9 => int::immediate(&mut l, i),
        10 | 11 => branch::lower(&mut l, i),
        4 | 6 | 12 | 14 => mem::lower(&mut l, i),
        5 | 13 => int::register(&mut l, i),
        7 | 15 => simd::lower(&mut l, i),
        _ => l.undefined(), // UDF
    }
    l.end
}

impl Lower<'_> {
    /// Appends an op.
    fn push(&mut self, op: Op) {
        if self.memory.known.is_some_and(|(r, _)| r.0 == op.d) {
            self.memory.known = None;
        }
        self.memory.compare = None;
        if matches!(op.code, Code::Cc | Code::CcI) {
            self.memory.compare = Some(Fused { op, index: self.ops.len() });
        }
        self.ops.push(op);
    }

    /// Writes a constant to a register, and remembers it.
    fn constant(&mut self, d: Reg, value: u64) {
        self.push(Op::new(Code::MovI).d(d).imm(value.cast_signed()));
        if d != SINK {
            self.memory.known = Some((d, value));
        }
    }

    /// The constant in a register, if the instructions before put one there.
    fn known(&self, r: Reg) -> Option<u64> {
        self.memory.known.filter(|&(known, _)| known == r).map(|(_, value)| value)
    }

    /// A slot was written by an op that does not have it as `d`.
    fn forget(&mut self, r: Reg) {
        if self.memory.known.is_some_and(|(known, _)| known == r) {
            self.memory.known = None;
        }
    }

    /// Says that `r` holds the result that the flags were set from.
    fn result_is(&mut self, sets: bool, wide: bool, r: Reg) {
        if sets && r != SINK && r != ZERO {
            self.memory.result = Some((wide, r));
        }
    }

    /// The register whose sign and zeroness are N and Z, if the instruction before left one.
    fn result(&self) -> Option<(bool, Reg)> {
        self.last.result
    }

    /// The compare that the instruction before ended with, if nothing else came after.
    fn take_compare(&self) -> Option<Fused> {
        let fused = self.last.compare?;
        let only_marks = self.ops.iter().skip(fused.index + 1).all(|op| op.code == Code::InsnStart);
        (only_marks && self.last.result.is_none()).then_some(fused)
    }

    /// Takes a compare out again, because a branch does its work.
    fn drop_compare(&mut self, fused: Fused) {
        if fused.index < self.ops.len() {
            self.ops.remove(fused.index);
        }
    }

    /// Address of the next instruction.
    fn next_pc(&self) -> u64 {
        self.pc.wrapping_add(4)
    }

    /// Ends the block with a branch to `taken`.
    fn end(&mut self, op: Op, taken: u64) {
        self.push(op);
        self.end = Some(End { taken, next: self.next_pc() });
    }

    /// Ends the block with an op that has no direct target.
    fn leave(&mut self, op: Op) {
        let next = self.next_pc();
        self.end(op, next);
    }

    fn undefined(&mut self) {
        self.leave(Op::new(Code::Undefined));
    }

    fn unsupported(&mut self) {
        self.leave(Op::new(Code::Unsupported));
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
