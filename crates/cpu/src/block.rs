//! Building one block: what a lowering emits into, and the clean-up before it is executed.

use crate::ir::{CcKind, CcOp, Code, Cond, Op, Reg, Width};
use crate::opt;

/// What lowering one instruction led to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// It took so many bytes; the block may go on.
    Next(u32),
    /// It took so many bytes and ended the block: its last op leaves it.
    End(u32),
    /// More bytes are needed; nothing was emitted.
    Short,
}

/// Collects the micro-ops of a block.
///
/// The caller (the translator) announces each instruction with [`start`](Builder::start); the
/// lowering emits ops with [`emit`](Builder::emit). A lowering that returns [`Step::End`] must have
/// emitted an op that leaves the block on all paths, with [`jump`](Builder::jump),
/// [`branch`](Builder::branch), or one of the indirect and exit ops.
#[derive(Debug, Default)]
pub struct Builder {
    ops: Vec<Op>,
    pcs: Vec<u64>,
    targets: [u64; 2],
    note: Option<String>,
}

/// A finished block, before it is bound to an engine.
#[derive(Debug, Clone, PartialEq)]
pub struct Finished {
    /// The ops, ending with one that leaves the block.
    pub ops: Vec<Op>,
    /// Per instruction: index of its first op, and its address.
    pub marks: Vec<(u32, u64)>,
    /// Where [`Flow::Link0`](crate::exec::Flow::Link0) and `Link1` go.
    pub targets: [u64; 2],
    /// Data accesses if all of the block runs.
    pub accesses_nr: u32,
    /// Mnemonic of the instruction behind [`Code::Unsupported`].
    pub note: Option<String>,
}

impl Builder {
    /// An empty block.
    pub fn new() -> Self {
        Builder::default()
    }

    /// Starts the instruction at `pc`.
    pub fn start(&mut self, pc: u64) {
        self.pcs.push(pc);
        self.ops.push(Op::new(Code::InsnStart));
    }

    /// Takes back the [`start`](Builder::start) of an instruction that emitted nothing.
    pub fn unstart(&mut self) {
        self.pcs.pop();
        self.ops.pop();
    }

    /// Instructions so far, the current one included.
    pub fn insns_nr(&self) -> usize {
        self.pcs.len()
    }

    /// Ops so far.
    pub fn ops_nr(&self) -> usize {
        self.ops.len()
    }

    /// The ops so far, each instruction's behind its [`Code::InsnStart`].
    pub fn ops(&self) -> &[Op] {
        &self.ops
    }

    /// Emits an op.
    pub fn emit(&mut self, op: Op) {
        self.ops.push(op);
    }

    /// d = value
    pub fn movi(&mut self, d: Reg, value: u64) {
        self.emit(Op::new(Code::MovI).d(d).imm(value.cast_signed()));
    }
    /// d = a
    pub fn mov(&mut self, d: Reg, a: Reg) {
        self.emit(Op::new(Code::Mov).d(d).a(a));
    }
    /// d = a (op) b
    pub fn alu(&mut self, code: Code, d: Reg, a: Reg, b: Reg) {
        self.emit(Op::new(code).d(d).a(a).b(b));
    }
    /// d = a (op) imm
    pub fn alui(&mut self, code: Code, d: Reg, a: Reg, imm: i64) {
        self.emit(Op::new(code).d(d).a(a).imm(imm));
    }
    /// Records flags of kind `op` at `width`.
    pub fn cc(&mut self, op: CcOp, width: Width, a: Reg, b: Reg) {
        self.emit(Op::new(Code::Cc).kind(CcKind::new(op, width)).a(a).b(b));
    }
    /// Records flags of kind `op` at `width`, second operand immediate.
    pub fn cci(&mut self, op: CcOp, width: Width, a: Reg, imm: i64) {
        self.emit(Op::new(Code::CcI).kind(CcKind::new(op, width)).a(a).imm(imm));
    }

    /// Ends the block: go to `target`.
    pub fn jump(&mut self, target: u64) {
        self.targets[0] = target;
        self.emit(Op::new(Code::Jump));
    }
    /// Ends the block: `op`, a conditional branch, to `taken`, else to `next`.
    pub fn branch(&mut self, op: Op, taken: u64, next: u64) {
        self.targets = [taken, next];
        self.emit(op);
    }
    /// Ends the block: to `taken` if the flags say so, else to `next`.
    pub fn branch_if(&mut self, cond: Cond, taken: u64, next: u64) {
        self.branch(Op::new(Code::Br).cond(cond), taken, next);
    }
    /// Ends the block at an instruction that is valid but not implemented.
    pub fn unsupported(&mut self, mnemonic: impl Into<String>) {
        self.note = Some(mnemonic.into());
        self.emit(Op::new(Code::Unsupported));
    }
    /// Ends the block at an architecturally undefined instruction.
    pub fn undefined(&mut self) {
        self.emit(Op::new(Code::Undefined));
    }
    /// Sets target 0 for an op that leaves the block by itself but goes on there (an instruction-cache
    /// invalidation).
    pub fn set_target(&mut self, target: u64) {
        self.targets[0] = target;
    }

    /// Optimises and strips the instruction marks.
    pub fn finish(mut self) -> Finished {
        opt::optimise(&mut self.ops);
        let mut marks = Vec::with_capacity(self.pcs.len());
        let mut ops = Vec::with_capacity(self.ops.len());
        let mut pcs = self.pcs.iter();
        for op in &self.ops {
            match op.code {
                Code::InsnStart => {
                    let at = u32::try_from(ops.len()).unwrap_or(u32::MAX);
                    marks.push((at, pcs.next().copied().unwrap_or(0)));
                }
                Code::Nop => {}
                _ => ops.push(*op),
            }
        }
        let accesses_nr = ops.iter().map(|op| op.code.accesses()).sum();
        Finished { ops, marks, targets: self.targets, accesses_nr, note: self.note }
    }
}
