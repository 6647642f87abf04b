//! Building one block: what a lowering emits into, and the clean-up before it is executed.

use crate::ir::{CcKind, CcOp, Code, Cond, Op, Reg, Width};

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

    /// Removes dead flag records, fuses compare with branch, and strips the instruction marks.
    pub fn finish(mut self) -> Finished {
        remove_dead_flags(&mut self.ops);
        fuse_zero_select(&mut self.ops);
        fuse_compare_branch(&mut self.ops);
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

fn remove_dead_flags(ops: &mut Vec<Op>) {
    let mut live = true;
    for op in ops.iter_mut().rev() {
        if op.code.only_records_flags() && !live {
            *op = Op::new(Code::Nop);
            continue;
        }
        if op.code.overwrites_flags() {
            live = false;
        }
        if op.code.reads_flags() {
            live = true;
        }
    }
    ops.retain(|op| op.code != Code::Nop);
}

/// A record of a value against zero, read only by the conditional select right behind it, becomes a
/// select on the value.
fn fuse_zero_select(ops: &mut Vec<Op>) {
    let mut at = 0;
    while at + 1 < ops.len() {
        at += 1;
        let select = ops[at];
        if !matches!(select.code, Code::Csel32 | Code::Csel64) {
            continue;
        }
        let zero = match Cond::from_raw(select.c) {
            Cond::Z => true,
            Cond::Nz => false,
            _ => continue,
        };
        let Some(before) = ops[..at].iter().rposition(|op| op.code != Code::InsnStart) else {
            continue;
        };
        let record = ops[before];
        let kind = CcKind::from_raw(record.x);
        // The op tests and moves the same number of bits.
        let (code, fits) = match select.code {
            Code::Csel32 => (Code::SelZ32, kind.bits() == 32),
            _ => (Code::SelZ64, kind.bits() == 64),
        };
        let is_compare = matches!(kind.op(), CcOp::Logic | CcOp::Sub | CcOp::Subs);
        let overwritten = ops[at + 1..]
            .iter()
            .find(|op| op.code.reads_flags() || op.code.overwrites_flags())
            .is_some_and(|op| !op.code.reads_flags());
        if record.code != Code::CcI || record.imm != 0 || !is_compare || !fits || !overwritten {
            continue;
        }
        let (a, b) = if zero { (select.a, select.b) } else { (select.b, select.a) };
        ops[at] = Op { code, x: 0, d: select.d, a, b, c: record.a, imm: 0 };
        ops.remove(before);
        at -= 1;
    }
}

/// A compare record directly before a branch on it becomes one op.
fn fuse_compare_branch(ops: &mut Vec<Op>) {
    let Some(&branch) = ops.last() else { return };
    if branch.code != Code::Br {
        return;
    }
    // Marks may stand between the two.
    let Some(at) = ops[..ops.len() - 1].iter().rposition(|op| op.code != Code::InsnStart) else {
        return;
    };
    let compare = ops[at];
    let Some(code) = fused(compare, Cond::from_raw(branch.c)) else { return };
    ops.remove(at);
    if let Some(last) = ops.last_mut() {
        *last = Op { code, ..compare };
    }
}

/// The fused form of a flag record and a branch on `cond`.
fn fused(compare: Op, cond: Cond) -> Option<Code> {
    use Code::{
        CmpBrEq32, CmpBrEq64, CmpBrNe32, CmpBrNe64, CmpBrSge32, CmpBrSge64, CmpBrSgt32, CmpBrSgt64,
        CmpBrSle32, CmpBrSle64, CmpBrSlt32, CmpBrSlt64, CmpBrUge32, CmpBrUge64, CmpBrUgt32,
        CmpBrUgt64, CmpBrUle32, CmpBrUle64, CmpBrUlt32, CmpBrUlt64, CmpIBrEq32, CmpIBrEq64,
        CmpIBrNe32, CmpIBrNe64, CmpIBrSge32, CmpIBrSge64, CmpIBrSgt32, CmpIBrSgt64, CmpIBrSle32,
        CmpIBrSle64, CmpIBrSlt32, CmpIBrSlt64, CmpIBrUge32, CmpIBrUge64, CmpIBrUgt32, CmpIBrUgt64,
        CmpIBrUle32, CmpIBrUle64, CmpIBrUlt32, CmpIBrUlt64,
    };
    let kind = CcKind::from_raw(compare.x);
    let immediate = match compare.code {
        Code::Cc => false,
        Code::CcI => true,
        _ => return None,
    };
    let wide = match kind.bits() {
        32 => false,
        64 => true,
        _ => return None,
    };
    // Forms: register 32, register 64, immediate 32, immediate 64.
    let forms = match (kind.op(), cond) {
        (CcOp::Sub | CcOp::Subs, Cond::Z) => [CmpBrEq32, CmpBrEq64, CmpIBrEq32, CmpIBrEq64],
        (CcOp::Sub | CcOp::Subs, Cond::Nz) => [CmpBrNe32, CmpBrNe64, CmpIBrNe32, CmpIBrNe64],
        (CcOp::Sub, Cond::C) | (CcOp::Subs, Cond::Nc) => {
            [CmpBrUlt32, CmpBrUlt64, CmpIBrUlt32, CmpIBrUlt64]
        }
        (CcOp::Sub, Cond::Nc) | (CcOp::Subs, Cond::C) => {
            [CmpBrUge32, CmpBrUge64, CmpIBrUge32, CmpIBrUge64]
        }
        (CcOp::Sub, Cond::Be) | (CcOp::Subs, Cond::Ls) => {
            [CmpBrUle32, CmpBrUle64, CmpIBrUle32, CmpIBrUle64]
        }
        (CcOp::Sub, Cond::A) | (CcOp::Subs, Cond::Hi) => {
            [CmpBrUgt32, CmpBrUgt64, CmpIBrUgt32, CmpIBrUgt64]
        }
        (CcOp::Sub | CcOp::Subs, Cond::L) => [CmpBrSlt32, CmpBrSlt64, CmpIBrSlt32, CmpIBrSlt64],
        (CcOp::Sub | CcOp::Subs, Cond::Ge) => [CmpBrSge32, CmpBrSge64, CmpIBrSge32, CmpIBrSge64],
        (CcOp::Sub | CcOp::Subs, Cond::Le) => [CmpBrSle32, CmpBrSle64, CmpIBrSle32, CmpIBrSle64],
        (CcOp::Sub | CcOp::Subs, Cond::G) => [CmpBrSgt32, CmpBrSgt64, CmpIBrSgt32, CmpIBrSgt64],
        // A logical result against zero: the record keeps the result in `a`; `b` (or imm) must be zero.
        (CcOp::Logic, _) => return fused_logic(cond, wide, immediate),
        _ => return None,
    };
    Some(forms[usize::from(immediate) * 2 + usize::from(wide)])
}

/// `Logic` records are made by [`Code::CcI`] with imm 0, so the immediate forms compare with zero.
fn fused_logic(cond: Cond, wide: bool, immediate: bool) -> Option<Code> {
    if !immediate {
        return None;
    }
    Some(match (cond, wide) {
        (Cond::Z | Cond::Be, false) => Code::CmpIBrEq32,
        (Cond::Z | Cond::Be, true) => Code::CmpIBrEq64,
        (Cond::Nz | Cond::A, false) => Code::CmpIBrNe32,
        (Cond::Nz | Cond::A, true) => Code::CmpIBrNe64,
        (Cond::S | Cond::L, false) => Code::CmpIBrSlt32,
        (Cond::S | Cond::L, true) => Code::CmpIBrSlt64,
        (Cond::Ns | Cond::Ge, false) => Code::CmpIBrSge32,
        (Cond::Ns | Cond::Ge, true) => Code::CmpIBrSge64,
        (Cond::Le, false) => Code::CmpIBrSle32,
        (Cond::Le, true) => Code::CmpIBrSle64,
        (Cond::G, false) => Code::CmpIBrSgt32,
        (Cond::G, true) => Code::CmpIBrSgt64,
        _ => return None,
    })
}
