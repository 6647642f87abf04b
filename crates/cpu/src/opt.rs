//! Peephole optimisation of a block's micro-ops: conditions from operands instead of flags, dead flag records
//! dropped, register moves folded, loop ends fused.
//!
//! Every pass keeps the architectural state right at each op that can leave the block, except that
//! flag records which the block overwrites unread are dropped (see [`crate::ir`], "Flags").

use crate::ir::{CcKind, CcOp, Code, Cond, Defines, Op, Reg};

/// Holds the outcome of a comparison between two ops of the optimiser's own making.
const T_TEST: Reg = Reg(100);
/// How many ops a move may be carried over.
const WINDOW: usize = 8;

/// Runs all passes.
pub(crate) fn optimise(ops: &mut Vec<Op>) {
    let pinned = resolve_conditions(ops);
    remove_dead_flags(ops, &pinned);
    forward_moves(ops);
    fuse_step(ops);
    ops.retain(|op| op.code != Code::Nop);
    turn_sources(ops);
}

/// A comparison of two values.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Test {
    Eq,
    Ne,
    Ult,
    Uge,
    Ule,
    Ugt,
    Slt,
    Sge,
    Sle,
    Sgt,
}

/// Forms of a test: registers 32, registers 64, immediate 32, immediate 64.
fn set_codes(test: Test) -> [Code; 4] {
    match test {
        Test::Eq => [Code::SetEq32, Code::SetEq64, Code::SetIEq32, Code::SetIEq64],
        Test::Ne => [Code::SetNe32, Code::SetNe64, Code::SetINe32, Code::SetINe64],
        Test::Ult => [Code::SetUlt32, Code::SetUlt64, Code::SetIUlt32, Code::SetIUlt64],
        Test::Uge => [Code::SetUge32, Code::SetUge64, Code::SetIUge32, Code::SetIUge64],
        Test::Ule => [Code::SetUle32, Code::SetUle64, Code::SetIUle32, Code::SetIUle64],
        Test::Ugt => [Code::SetUgt32, Code::SetUgt64, Code::SetIUgt32, Code::SetIUgt64],
        Test::Slt => [Code::SetSlt32, Code::SetSlt64, Code::SetISlt32, Code::SetISlt64],
        Test::Sge => [Code::SetSge32, Code::SetSge64, Code::SetISge32, Code::SetISge64],
        Test::Sle => [Code::SetSle32, Code::SetSle64, Code::SetISle32, Code::SetISle64],
        Test::Sgt => [Code::SetSgt32, Code::SetSgt64, Code::SetISgt32, Code::SetISgt64],
    }
}

fn branch_codes(test: Test) -> [Code; 4] {
    match test {
        Test::Eq => [Code::CmpBrEq32, Code::CmpBrEq64, Code::CmpIBrEq32, Code::CmpIBrEq64],
        Test::Ne => [Code::CmpBrNe32, Code::CmpBrNe64, Code::CmpIBrNe32, Code::CmpIBrNe64],
        Test::Ult => [Code::CmpBrUlt32, Code::CmpBrUlt64, Code::CmpIBrUlt32, Code::CmpIBrUlt64],
        Test::Uge => [Code::CmpBrUge32, Code::CmpBrUge64, Code::CmpIBrUge32, Code::CmpIBrUge64],
        Test::Ule => [Code::CmpBrUle32, Code::CmpBrUle64, Code::CmpIBrUle32, Code::CmpIBrUle64],
        Test::Ugt => [Code::CmpBrUgt32, Code::CmpBrUgt64, Code::CmpIBrUgt32, Code::CmpIBrUgt64],
        Test::Slt => [Code::CmpBrSlt32, Code::CmpBrSlt64, Code::CmpIBrSlt32, Code::CmpIBrSlt64],
        Test::Sge => [Code::CmpBrSge32, Code::CmpBrSge64, Code::CmpIBrSge32, Code::CmpIBrSge64],
        Test::Sle => [Code::CmpBrSle32, Code::CmpBrSle64, Code::CmpIBrSle32, Code::CmpIBrSle64],
        Test::Sgt => [Code::CmpBrSgt32, Code::CmpBrSgt64, Code::CmpIBrSgt32, Code::CmpIBrSgt64],
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Rhs {
    Reg(u8),
    Imm(i64),
}

/// The last flag record, as far as its operands are still in their slots.
#[derive(Clone, Copy)]
struct Known {
    kind: CcKind,
    a: Option<u8>,
    b: Option<Rhs>,
    /// Slot with the result of the recorded sum or difference.
    result: Option<u8>,
}

/// A test on values that are at hand.
#[derive(Clone, Copy)]
struct Predicate {
    test: Test,
    a: u8,
    b: Rhs,
    bits: u32,
    /// Whether `a` and `b` are the operands of the record itself.
    of_operands: bool,
}

impl Known {
    fn of(op: &Op) -> Option<Known> {
        let kind = CcKind::from_raw(op.x);
        let b = match op.code {
            Code::Cc => Rhs::Reg(op.b),
            Code::CcI => Rhs::Imm(op.imm),
            Code::CcIncDec => Rhs::Imm(1),
            _ => return None,
        };
        Some(Known { kind, a: Some(op.a), b: Some(b), result: None })
    }

    /// Whether `op` computes the recorded sum or difference from the recorded operands.
    fn is_result(&self, op: &Op) -> bool {
        if self.a != Some(op.a) {
            return false;
        }
        let wide = matches!(op.code, Code::Add64 | Code::Sub64 | Code::AddI64);
        if wide != (self.kind.bits() == 64) {
            return false;
        }
        let kind = self.kind.op();
        match (op.code, self.b) {
            (Code::Add32 | Code::Add64, Some(Rhs::Reg(b))) => kind == CcOp::Add && b == op.b,
            (Code::Sub32 | Code::Sub64, Some(Rhs::Reg(b))) => {
                matches!(kind, CcOp::Sub | CcOp::Subs) && b == op.b
            }
            (Code::AddI32 | Code::AddI64, Some(Rhs::Imm(v))) => match kind {
                CcOp::Add | CcOp::Inc => op.imm == v,
                CcOp::Sub | CcOp::Subs | CcOp::Dec => op.imm == v.wrapping_neg(),
                _ => false,
            },
            _ => false,
        }
    }

    /// Slot `d` is overwritten by `op`.
    fn overwrite(&mut self, op: &Op) {
        let result = self.is_result(op);
        if self.result == Some(op.d) {
            self.result = None;
        }
        if result {
            self.result = Some(op.d);
        }
        if self.a == Some(op.d) {
            self.a = None;
        }
        if self.b == Some(Rhs::Reg(op.d)) {
            self.b = None;
        }
    }

    fn predicate(&self, cond: Cond) -> Option<Predicate> {
        self.of_operands(cond).or_else(|| self.of_result(cond))
    }

    fn of_operands(&self, cond: Cond) -> Option<Predicate> {
        let (a, b) = (self.a?, self.b?);
        let test = match (self.kind.op(), cond) {
            (CcOp::Sub | CcOp::Subs, Cond::Z) => Test::Eq,
            (CcOp::Sub | CcOp::Subs, Cond::Nz) => Test::Ne,
            (CcOp::Sub, Cond::C) | (CcOp::Subs, Cond::Nc) => Test::Ult,
            (CcOp::Sub, Cond::Nc) | (CcOp::Subs, Cond::C) => Test::Uge,
            (CcOp::Sub, Cond::Be) | (CcOp::Subs, Cond::Ls) => Test::Ule,
            (CcOp::Sub, Cond::A) | (CcOp::Subs, Cond::Hi) => Test::Ugt,
            (CcOp::Sub | CcOp::Subs, Cond::L) => Test::Slt,
            (CcOp::Sub | CcOp::Subs, Cond::Ge) => Test::Sge,
            (CcOp::Sub | CcOp::Subs, Cond::Le) => Test::Sle,
            (CcOp::Sub | CcOp::Subs, Cond::G) => Test::Sgt,
            (CcOp::Logic, _) => return self.of_logic(a, cond),
            _ => return None,
        };
        Some(Predicate { test, a, b, bits: self.kind.bits(), of_operands: true })
    }

    /// A logical result is compared with zero; carry and overflow are clear.
    fn of_logic(&self, a: u8, cond: Cond) -> Option<Predicate> {
        let test = match cond {
            Cond::Z | Cond::Be => Test::Eq,
            Cond::Nz | Cond::A => Test::Ne,
            Cond::S | Cond::L => Test::Slt,
            Cond::Ns | Cond::Ge => Test::Sge,
            Cond::Le => Test::Sle,
            Cond::G => Test::Sgt,
            _ => return None,
        };
        // The fused branch records (a, imm): it must be the record itself.
        let of_operands = self.b == Some(Rhs::Imm(0));
        Some(Predicate { test, a, b: Rhs::Imm(0), bits: self.kind.bits(), of_operands })
    }

    fn of_result(&self, cond: Cond) -> Option<Predicate> {
        let test = match cond {
            Cond::Z => Test::Eq,
            Cond::Nz => Test::Ne,
            Cond::S => Test::Slt,
            Cond::Ns => Test::Sge,
            _ => return None,
        };
        let a = self.result?;
        Some(Predicate { test, a, b: Rhs::Imm(0), bits: self.kind.bits(), of_operands: false })
    }
}

impl Predicate {
    /// d = 1 if the test holds, else 0.
    fn set(&self, d: u8) -> Op {
        let shift = 32u32.saturating_sub(self.bits);
        let form = usize::from(self.bits == 64);
        let x = u16::try_from(shift).unwrap_or(0);
        match self.b {
            Rhs::Reg(b) => {
                let code = set_codes(self.test)[form];
                Op { code, x, d, a: self.a, b, c: 0, imm: 0 }
            }
            Rhs::Imm(imm) => {
                let code = set_codes(self.test)[2 + form];
                Op { code, x, d, a: self.a, b: 0, c: 0, imm }
            }
        }
    }

    /// The comparison and branch in one op, which repeats the flag record.
    fn branch(&self, kind: CcKind) -> Option<Op> {
        let form = usize::from(self.bits == 64);
        if self.bits < 32 || !self.of_operands {
            return None;
        }
        let x = kind.raw();
        Some(match self.b {
            Rhs::Reg(b) => {
                let code = branch_codes(self.test)[form];
                Op { code, x, d: 0, a: self.a, b, c: 0, imm: 0 }
            }
            Rhs::Imm(imm) => {
                let code = branch_codes(self.test)[2 + form];
                Op { code, x, d: 0, a: self.a, b: 0, c: 0, imm }
            }
        })
    }

    /// A branch on a value against zero, without touching flags.
    fn branch_on_zero(&self) -> Option<Op> {
        if self.b != Rhs::Imm(0) {
            return None;
        }
        let top = u16::try_from(self.bits - 1).unwrap_or(63);
        let (code, x) = match (self.test, self.bits) {
            (Test::Eq, 32) => (Code::BrZ32, 0),
            (Test::Eq, 64) => (Code::BrZ64, 0),
            (Test::Ne, 32) => (Code::BrNz32, 0),
            (Test::Ne, 64) => (Code::BrNz64, 0),
            (Test::Slt, _) => (Code::BrBit1, top),
            (Test::Sge, _) => (Code::BrBit0, top),
            _ => return None,
        };
        Some(Op { code, x, d: 0, a: self.a, b: 0, c: 0, imm: 0 })
    }

    /// The select that picks `first` if the test holds, directly on a value against zero.
    fn select_on_zero(&self, select: &Op) -> Option<Op> {
        let code = match (select.code, self.bits) {
            (Code::Csel32, 32) => Code::SelZ32,
            (Code::Csel64, 64) => Code::SelZ64,
            _ => return None,
        };
        let (a, b) = match (self.test, self.b) {
            (Test::Eq, Rhs::Imm(0)) => (select.a, select.b),
            (Test::Ne, Rhs::Imm(0)) => (select.b, select.a),
            _ => return None,
        };
        Some(Op { code, x: 0, d: select.d, a, b, c: self.a, imm: 0 })
    }
}

/// Conditions whose flag record is in the block, with its operands still there, test the operands.
///
/// Returns the records that must stay all the same: an op between the record and its reader can
/// leave the block, and the reader is then lowered again in a block without the record.
fn resolve_conditions(ops: &mut Vec<Op>) -> Vec<usize> {
    let mut out = Vec::with_capacity(ops.len() + 4);
    let mut known: Option<Known> = None;
    let mut pinned = Vec::new();
    // Where the last record is in `out`, and whether the block can be left since.
    let (mut record, mut left) = (0, false);
    for op in ops.iter() {
        let predicate = match op.code {
            Code::Br | Code::SetCond | Code::Csel32 | Code::Csel64 => {
                known.and_then(|k| k.predicate(Cond::from_raw(op.c)).map(|p| (p, k.kind)))
            }
            _ => None,
        };
        match predicate {
            Some((p, kind)) => {
                if left {
                    pinned.push(record);
                }
                rewrite(&mut out, op, p, kind);
            }
            None => out.push(*op),
        }
        if op.code.changes_flags() {
            known = Known::of(op);
            (record, left) = (out.len() - 1, false);
            continue;
        }
        left |= !op.code.is_pure() && !matches!(op.code, Code::InsnStart | Code::Nop);
        match (op.code.defines(), &mut known) {
            (Defines::D, Some(k)) => k.overwrite(op),
            (Defines::Many, k) => *k = None,
            _ => {}
        }
    }
    *ops = out;
    pinned
}

fn rewrite(out: &mut Vec<Op>, op: &Op, p: Predicate, kind: CcKind) {
    match op.code {
        Code::SetCond => out.push(p.set(op.d)),
        Code::Br => {
            if let Some(branch) = p.branch(kind).or_else(|| p.branch_on_zero()) {
                out.push(branch);
                return;
            }
            out.push(p.set(T_TEST.0));
            out.push(Op::new(Code::BrNz32).a(T_TEST));
        }
        _ => {
            if let Some(select) = p.select_on_zero(op) {
                out.push(select);
                return;
            }
            out.push(p.set(T_TEST.0));
            let code = if op.code == Code::Csel32 { Code::SelZ32 } else { Code::SelZ64 };
            // The select takes its first source when the test slot is zero.
            out.push(Op { code, x: 0, d: op.d, a: op.b, b: op.a, c: T_TEST.0, imm: 0 });
        }
    }
}

/// Flag records that are overwritten before anything reads them go, but for those `pinned`.
fn remove_dead_flags(ops: &mut [Op], pinned: &[usize]) {
    let mut live = true;
    for (at, op) in ops.iter_mut().enumerate().rev() {
        if op.code.only_records_flags() && !live && !pinned.contains(&at) {
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
}

/// `mov d, s` followed by an op that replaces d: the op reads s instead and the move goes.
fn forward_moves(ops: &mut [Op]) {
    for at in 0..ops.len() {
        let op = ops[at];
        if !matches!(op.code, Code::Mov | Code::Zext32) || op.d == op.a {
            continue;
        }
        let Some(end) = move_end(ops, at) else { continue };
        for later in &mut ops[at + 1..=end] {
            for field in [&mut later.a, &mut later.b] {
                if *field == op.d {
                    *field = op.a;
                }
            }
            if later.code.is_pure() && later.c == op.d {
                later.c = op.a;
            }
        }
        ops[at] = Op::new(Code::Nop);
    }
}

/// The op that replaces the destination of the move at `at`, if all between may read the source instead.
fn move_end(ops: &[Op], at: usize) -> Option<usize> {
    let (mov, narrow) = (ops[at], ops[at].code == Code::Zext32);
    for (i, op) in ops.iter().enumerate().skip(at + 1).take(WINDOW) {
        match op.code {
            Code::InsnStart | Code::Nop => continue,
            Code::Cc | Code::CcI => {
                // Records of 32 bits or fewer look at no more of their operands.
                if narrow && CcKind::from_raw(op.x).bits() > 32 || op.c == mov.d {
                    return None;
                }
                continue;
            }
            code if !code.is_pure() => return None,
            _ => {}
        }
        if op.d == mov.d {
            let reads_32 = is_narrow(op.code);
            return (!op.code.merges() && (!narrow || reads_32)).then_some(i);
        }
        if op.d == mov.a || op.code.merges() {
            return None;
        }
        let reads_d = op.a == mov.d || op.b == mov.d || op.c == mov.d;
        if narrow && reads_d && !is_narrow(op.code) {
            return None;
        }
    }
    None
}

/// The result of the op before goes first among the sources of a commutative op, where the
/// interpreter's fused pairs look for it.
fn turn_sources(ops: &mut [Op]) {
    let mut last = None;
    for op in ops.iter_mut().filter(|op| op.code != Code::InsnStart) {
        let commutes = matches!(
            op.code,
            Code::Add32
                | Code::Add64
                | Code::Xor32
                | Code::Xor64
                | Code::And32
                | Code::And64
                | Code::Or32
                | Code::Or64
                | Code::Mul32
                | Code::Mul64
        );
        if commutes && last == Some(op.b) && last != Some(op.a) {
            std::mem::swap(&mut op.a, &mut op.b);
        }
        last = op.code.is_pure().then_some(op.d);
    }
}

/// Whether an op reads only the low 32 bits of its sources.
fn is_narrow(code: Code) -> bool {
    matches!(
        code,
        Code::Add32
            | Code::Sub32
            | Code::And32
            | Code::Or32
            | Code::Xor32
            | Code::Mul32
            | Code::AddI32
            | Code::AndI32
            | Code::OrI32
            | Code::XorI32
            | Code::MulI32
            | Code::ShlI32
            | Code::ShrI32
            | Code::SarI32
            | Code::RorI32
            | Code::Shl32
            | Code::Shr32
            | Code::Sar32
            | Code::Ror32
            | Code::AddShl32
            | Code::Neg32
            | Code::Not32
            | Code::Zext32
            | Code::Zext8
            | Code::Zext16
    )
}

/// `add d, imm` directly before a compare-and-branch becomes part of it.
fn fuse_step(ops: &mut [Op]) {
    let Some(last) = ops.iter().rposition(|op| op.code != Code::Nop) else { return };
    let branch = ops[last];
    let Some(at) =
        ops[..last].iter().rposition(|op| !matches!(op.code, Code::InsnStart | Code::Nop))
    else {
        return;
    };
    let step = ops[at];
    let (Ok(by), Some(code)) = (i8::try_from(step.imm), stepped(branch.code)) else { return };
    if step.code != Code::AddI64 || step.d != step.a {
        return;
    }
    ops[last] = Op { code, d: step.d, c: by.cast_unsigned(), ..branch };
    ops[at] = Op::new(Code::Nop);
}

/// The form of a compare-and-branch with a step before it.
fn stepped(code: Code) -> Option<Code> {
    Some(match code {
        Code::CmpBrEq32 => Code::StepCmpBrEq32,
        Code::CmpBrNe32 => Code::StepCmpBrNe32,
        Code::CmpBrUlt32 => Code::StepCmpBrUlt32,
        Code::CmpBrUge32 => Code::StepCmpBrUge32,
        Code::CmpBrUle32 => Code::StepCmpBrUle32,
        Code::CmpBrUgt32 => Code::StepCmpBrUgt32,
        Code::CmpBrSlt32 => Code::StepCmpBrSlt32,
        Code::CmpBrSge32 => Code::StepCmpBrSge32,
        Code::CmpBrSle32 => Code::StepCmpBrSle32,
        Code::CmpBrSgt32 => Code::StepCmpBrSgt32,
        Code::CmpIBrEq32 => Code::StepCmpIBrEq32,
        Code::CmpIBrNe32 => Code::StepCmpIBrNe32,
        Code::CmpIBrUlt32 => Code::StepCmpIBrUlt32,
        Code::CmpIBrUge32 => Code::StepCmpIBrUge32,
        Code::CmpIBrUle32 => Code::StepCmpIBrUle32,
        Code::CmpIBrUgt32 => Code::StepCmpIBrUgt32,
        Code::CmpIBrSlt32 => Code::StepCmpIBrSlt32,
        Code::CmpIBrSge32 => Code::StepCmpIBrSge32,
        Code::CmpIBrSle32 => Code::StepCmpIBrSle32,
        Code::CmpIBrSgt32 => Code::StepCmpIBrSgt32,
        Code::CmpBrEq64 => Code::StepCmpBrEq64,
        Code::CmpBrNe64 => Code::StepCmpBrNe64,
        Code::CmpBrUlt64 => Code::StepCmpBrUlt64,
        Code::CmpBrUge64 => Code::StepCmpBrUge64,
        Code::CmpBrUle64 => Code::StepCmpBrUle64,
        Code::CmpBrUgt64 => Code::StepCmpBrUgt64,
        Code::CmpBrSlt64 => Code::StepCmpBrSlt64,
        Code::CmpBrSge64 => Code::StepCmpBrSge64,
        Code::CmpBrSle64 => Code::StepCmpBrSle64,
        Code::CmpBrSgt64 => Code::StepCmpBrSgt64,
        Code::CmpIBrEq64 => Code::StepCmpIBrEq64,
        Code::CmpIBrNe64 => Code::StepCmpIBrNe64,
        Code::CmpIBrUlt64 => Code::StepCmpIBrUlt64,
        Code::CmpIBrUge64 => Code::StepCmpIBrUge64,
        Code::CmpIBrUle64 => Code::StepCmpIBrUle64,
        Code::CmpIBrUgt64 => Code::StepCmpIBrUgt64,
        Code::CmpIBrSlt64 => Code::StepCmpIBrSlt64,
        Code::CmpIBrSge64 => Code::StepCmpIBrSge64,
        Code::CmpIBrSle64 => Code::StepCmpIBrSle64,
        Code::CmpIBrSgt64 => Code::StepCmpIBrSgt64,
        _ => return None,
    })
}
