//! From the ops of one block to host code, in one pass: what happens around ops. The ops are in [`super::ops`] and
//! [`super::memory`].
//!
//! An op that is not emitted natively is run by the interpreter's function for it, from inside the block, with every
//! slot at home. That function is also the slow path of every memory op. So each op has one definition, and
//! what is emitted here is a short cut for the usual case.
//!
//! A block begins with the instruction budget (`sub rbp, n; js`), and ends in a jump through its link: a word that holds the
//! address of the next block, or of a stub that leaves native code.

use super::asm::{Alu, Asm, Cc, Gpr, Label, Mem, RAX, RBP, RCX, RDX, RSI};
use super::regs::{Cache, Pin, Uses, state};
use cpu::CpuState;
use cpu::exec::Flow;
use cpu::ir::{CcKind, CcOp, Op, Width};
use cpu::native::NativeBlock;
use mmu::hit::HitShape;
use std::mem::offset_of;

/// What [`super::run`] makes of the number that native code returns: the reason in the low two bits, 0 and 1 being the slot of a
/// link, and the block above them.
pub(super) const BEFORE: u32 = 2;
/// See [`BEFORE`]: an op left its block; which one, the frame says.
pub(super) const AT: u32 = 3;

/// What all blocks have in common.
#[derive(Clone, Copy, Debug)]
pub(super) struct Surroundings {
    /// Address of the code that has one op interpreted.
    pub(super) interpret: usize,
    /// Address of the code that leaves native code.
    pub(super) leave: usize,
    pub(super) shape: HitShape,
    pub(super) features: Features,
}

/// Instructions of the host beyond the baseline.
#[derive(Clone, Copy, Debug)]
pub(super) struct Features {
    pub(super) lzcnt: bool,
    pub(super) bmi1: bool,
    pub(super) popcnt: bool,
}

/// The code of a block.
#[derive(Debug)]
pub(super) struct Emitted {
    pub(super) code: Vec<u8>,
    /// Where in it the stubs are that leave by either link.
    pub(super) stubs: [usize; 2],
}

/// Code out of the way of the usual case.
#[derive(Debug)]
pub(super) enum Cold {
    /// The interpreter runs op `op`.
    Interpret { from: Label, back: Label, before: Cache, after: Cache, op: usize },
    /// Whether the frame of the fast entry in RCX is watched.
    Watched { from: Label, back: Label, slow: Label },
}

/// A block being emitted.
#[derive(Debug)]
pub(super) struct Emitter<'a> {
    pub(super) asm: Asm,
    pub(super) cache: Cache,
    pub(super) uses: Uses,
    pub(super) around: &'a Surroundings,
    pub(super) cold: Vec<Cold>,
    /// Index of the current op.
    pub(super) at: usize,
    id: u32,
    loops: [bool; 2],
    links: [usize; 2],
    head: Label,
    leave: Label,
}

/// Whether an op was emitted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Native {
    Yes,
    No,
}

/// Emits block `id`, whose two links are at the addresses `links`.
pub(super) fn block(
    around: &Surroundings,
    id: u32,
    block: &NativeBlock,
    links: [usize; 2],
) -> Emitted {
    let first = Emitter::new(around, id, block.loops, links).run(block, &[]);
    if block.loops == [false; 2] {
        return first.finish();
    }
    let pins = first.uses.pins();
    if pins.is_empty() {
        return first.finish();
    }
    Emitter::new(around, id, block.loops, links).run(block, &pins).finish()
}

impl<'a> Emitter<'a> {
    fn new(around: &'a Surroundings, id: u32, loops: [bool; 2], links: [usize; 2]) -> Self {
        let mut asm = Asm::default();
        let (head, leave) = (asm.label(), asm.label());
        Emitter {
            asm,
            cache: Cache::default(),
            uses: Uses::new(),
            around,
            cold: Vec::new(),
            at: 0,
            id,
            loops,
            links,
            head,
            leave,
        }
    }

    fn run(mut self, block: &NativeBlock, pins: &[Pin]) -> Self {
        self.cache.pin(&mut self.asm, pins);
        self.asm.bind(self.head);
        let before = self.asm.label();
        let insns_nr = i32::try_from(block.insns_nr).expect("blocks are short");
        self.asm.alui(Alu::Sub, Width::W64, RBP, insns_nr);
        self.asm.jcc(Cc::S, before);
        let at_head = self.cache;
        for (at, op) in block.ops.iter().enumerate() {
            self.at = at;
            self.cache.next_op();
            if self.op(op) == Native::No {
                self.interpret(at + 1 == block.ops.len());
            }
        }
        let ends = block.ops.last().is_some_and(|op| op.code.ends_block());
        if !ends {
            self.go(0);
        }
        self.asm.bind(before);
        self.asm.alui(Alu::Add, Width::W64, RBP, insns_nr);
        at_head.write_back_at_exit(&mut self.asm);
        self.leave_with(self.id << 2 | BEFORE);
        self
    }

    fn finish(mut self) -> Emitted {
        for cold in std::mem::take(&mut self.cold) {
            self.cold(cold);
        }
        self.asm.bind(self.leave);
        self.leave_with(AT);
        let stubs = [0, 1].map(|slot| {
            let stub = self.asm.label();
            self.asm.bind(stub);
            self.leave_with(self.id << 2 | slot);
            self.asm.place(stub)
        });
        Emitted { code: self.asm.finish(), stubs }
    }

    fn leave_with(&mut self, code: u32) {
        self.asm.movi_keep(RAX, code);
        self.asm.movi(RCX, self.around.leave as u64);
        self.asm.jmp_to(RCX);
    }

    // ---- the interpreter

    /// Has op `at` interpreted, all slots being at home; its flow is in EAX.
    fn call_interpreter(&mut self, at: usize) {
        self.asm.movi_keep(RSI, u32::try_from(at).expect("blocks are short"));
        self.asm.movi_keep(RDX, self.id);
        self.asm.movi(RAX, self.around.interpret as u64);
        self.asm.call(RAX);
    }

    /// The current op, by the interpreter.
    fn interpret(&mut self, is_last: bool) {
        self.uses.interpreted = true;
        self.cache.write_back(&mut self.asm);
        self.cache.forget();
        self.call_interpreter(self.at);
        if !is_last {
            self.asm.test(Width::W32, RAX, RAX);
            self.asm.jcc(Cc::Ne, self.leave);
            return;
        }
        for (slot, flow) in [(0, Flow::Link0), (1, Flow::Link1)] {
            let other = self.asm.label();
            self.asm.alui(Alu::Cmp, Width::W32, RAX, flow as i32);
            self.asm.jcc(Cc::Ne, other);
            self.go(slot);
            self.asm.bind(other);
        }
        self.asm.jmp(self.leave);
    }

    fn cold(&mut self, cold: Cold) {
        match cold {
            Cold::Interpret { from, back, before, after, op } => {
                self.asm.bind(from);
                before.write_back(&mut self.asm);
                self.call_interpreter(op);
                self.asm.test(Width::W32, RAX, RAX);
                self.asm.jcc(Cc::Ne, self.leave);
                after.reload(&mut self.asm);
                self.asm.jmp(back);
            }
            Cold::Watched { from, back, slow } => self.watched(from, back, slow),
        }
    }

    // ---- slots

    /// The register with the value of `slot`.
    pub(super) fn source(&mut self, slot: u8) -> Gpr {
        self.uses.read(slot);
        self.cache.source(&mut self.asm, slot)
    }
    /// The register that `slot` is written to.
    pub(super) fn target(&mut self, slot: u8) -> Gpr {
        self.uses.write(slot);
        self.cache.target(&mut self.asm, slot)
    }
    /// `slot` becomes the value of a scratch register.
    pub(super) fn put(&mut self, slot: u8, from: Gpr) {
        let d = self.target(slot);
        self.asm.mov(Width::W64, d, from);
        self.cache.wrote(slot);
    }

    // ---- flags

    /// Stores a flag record; what its kind does not look at is left as it is.
    pub(super) fn record(&mut self, kind: CcKind, a: Gpr, b: Value, c: Value) {
        let (uses_b, uses_c) = operands(kind);
        self.asm.store(Width::W64, state(offset_of!(CpuState, cc_a)), a);
        if uses_b {
            self.store_value(state(offset_of!(CpuState, cc_b)), b);
        }
        if uses_c {
            self.store_value(state(offset_of!(CpuState, cc_c)), c);
        }
        self.asm.store_imm16(state(offset_of!(CpuState, cc_kind)), kind.raw());
    }

    fn store_value(&mut self, to: Mem, value: Value) {
        match value {
            Value::Reg(r) => self.asm.store(Width::W64, to, r),
            Value::Imm(v) => match i32::try_from(v) {
                Ok(v) => self.asm.store_imm64(to, v),
                Err(_) => {
                    self.asm.movi(RAX, v.cast_unsigned());
                    self.asm.store(Width::W64, to, RAX);
                }
            },
        }
    }

    // ---- ends

    /// Goes to target `slot`.
    pub(super) fn go(&mut self, slot: usize) {
        if self.loops[slot] {
            self.cache.write_back_unpinned(&mut self.asm);
            self.asm.jmp(self.head);
        } else {
            self.cache.write_back_at_exit(&mut self.asm);
            self.follow(slot);
        }
    }

    /// Jumps through a link.
    fn follow(&mut self, slot: usize) {
        self.asm.movi(RAX, self.links[slot] as u64);
        self.asm.jmp_to(Mem::at(RAX, 0));
    }

    /// Goes to target 0 if `cc` holds after `compare`, else to target 1. `compare` asks for no slots.
    pub(super) fn go_if(&mut self, cc: Cc, compare: impl FnOnce(&mut Asm)) {
        if self.loops == [false; 2] {
            self.cache.write_back_at_exit(&mut self.asm);
            compare(&mut self.asm);
            let taken = self.asm.label();
            self.asm.jcc(cc, taken);
            self.follow(1);
            self.asm.bind(taken);
            self.follow(0);
            return;
        }
        self.cache.write_back_unpinned(&mut self.asm);
        compare(&mut self.asm);
        let (cc, out) = if self.loops[0] { (cc, 1) } else { (cc.not(), 0) };
        self.asm.jcc(cc, self.head);
        self.go(out);
    }

    /// The current op, once its registers are settled: `fast` is emitted with a label that leads to the interpreter.
    /// `before` is what is where when that label is jumped to.
    pub(super) fn or_interpret(&mut self, before: Cache, fast: impl FnOnce(&mut Self, Label)) {
        let (from, back) = (self.asm.label(), self.asm.label());
        fast(self, from);
        self.asm.bind(back);
        let (after, op) = (self.cache, self.at);
        self.cold.push(Cold::Interpret { from, back, before, after, op });
    }
}

/// Whether a kind of flag record looks at its second operand, and at the carry.
pub(super) const fn operands(kind: CcKind) -> (bool, bool) {
    match kind.op() {
        CcOp::Flags | CcOp::Nzcv | CcOp::Logic => (false, false),
        CcOp::Add | CcOp::Sub | CcOp::Subs | CcOp::Shl | CcOp::Shr | CcOp::Sar => (true, false),
        CcOp::Adc | CcOp::Sbb => (true, true),
        CcOp::Inc | CcOp::Dec => (false, true),
    }
}

/// A register or a constant.
#[derive(Clone, Copy, Debug)]
pub(super) enum Value {
    Reg(Gpr),
    Imm(i64),
}

pub(super) fn is_i32(v: i64) -> bool {
    i32::try_from(v).is_ok()
}

/// The immediate of an op as an operand, or moved to `scratch`.
pub(super) fn alu_imm(asm: &mut Asm, alu: Alu, w: Width, to: Gpr, imm: i64, scratch: Gpr) {
    let imm = if w == Width::W64 { imm } else { i64::from(low32(imm)) };
    match i32::try_from(imm) {
        Ok(v) => asm.alui(alu, w, to, v),
        Err(_) => {
            asm.movi(scratch, imm.cast_unsigned());
            asm.alu(alu, w, to, scratch);
        }
    }
}

/// The low 32 bits, as a signed number.
#[expect(clippy::cast_possible_truncation, reason = "that is what it is for")]
pub(super) const fn low32(v: i64) -> i32 {
    v as i32
}

/// Whether the last source of `op` is an immediate.
pub(super) fn value_of(reg: Option<Gpr>, op: &Op) -> Value {
    reg.map_or(Value::Imm(op.imm), Value::Reg)
}
