//! From the ops of one block to host code, in one pass: what happens around ops. The ops are in [`super::ops`] and
//! [`super::memory`].
//!
//! An op that is not emitted natively is run by the interpreter's function for it, from inside the block, with every
//! slot at home. That function is also the slow path of every memory op. So each op has one definition, and
//! what is emitted here is a short cut for the usual case.
//!
//! A block begins with the instruction budget (`sub rbp, n; js`), and ends in a jump through its link: a word that holds the
//! address of the next block, or of a stub that leaves native code.

use super::asm::{Alu, Asm, Cc, Gpr, Label, Mem, RAX, RBP, RCX, RDX, RSI, Shift};
use super::regs::{Cache, Pin, Uses, state};
use cpu::CpuState;
use cpu::exec::Flow;
use cpu::ir::{CcKind, CcOp, Op, Width};
use cpu::native::{NativeBlock, Place};
use mmu::hit::HitShape;
use std::mem::offset_of;
use std::sync::atomic::{AtomicU64, AtomicUsize};
use units::{PAGE_SHIFT, PAGE_SIZE};

/// What [`super::run`] makes of the number that native code returns: the reason in the low two bits, 0 and 1 being the slot of a
/// link, and the block above them.
pub(super) const BEFORE: u32 = 2;
/// See [`BEFORE`]: an op left its block; which one, the frame says.
pub(super) const AT: u32 = 3;
/// See [`BEFORE`]: a jump through a register left its block; the state's `pc` says where to.
pub(super) const INDIRECT: u32 = 1 << 2 | AT;

/// Where jumps through registers find blocks: a table of [`Target`]s, indexed by the low bits of the address.
pub(super) const TARGETS_NR: usize = 1024;

/// A block that a jump through a register may lead to.
#[derive(Debug)]
#[repr(C, align(32))]
pub(super) struct Target {
    /// Address of its first byte.
    pub(super) pc: AtomicU64,
    /// Physical page of its first byte; [`NO_FRAME`] if there is no block.
    pub(super) page: AtomicU64,
    /// Its code.
    pub(super) entry: AtomicUsize,
}

/// Not the address of a page.
pub(super) const NO_FRAME: u64 = u64::MAX;
const _: () = assert!(size_of::<Target>() == 32);

/// What all blocks have in common.
#[derive(Clone, Copy, Debug)]
pub(super) struct Surroundings {
    /// Address of the code that has one op interpreted.
    pub(super) interpret: usize,
    /// Address of the code that leaves native code.
    pub(super) leave: usize,
    pub(super) shape: HitShape,
    pub(super) features: Features,
    /// Address of the [`Target`]s.
    pub(super) targets: usize,
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
    place: Option<Place>,
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
    let first = Emitter::new(around, id, block, links).run(block, &[]);
    if block.loops == [false; 2] {
        return first.finish();
    }
    let pins = first.uses.pins();
    if pins.is_empty() {
        return first.finish();
    }
    Emitter::new(around, id, block, links).run(block, &pins).finish()
}

impl<'a> Emitter<'a> {
    fn new(around: &'a Surroundings, id: u32, block: &NativeBlock, links: [usize; 2]) -> Self {
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
            loops: block.loops,
            place: block.place,
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

    /// Goes to the address in slot `a`: to the block there, if it was found before and is on this page.
    pub(super) fn go_to(&mut self, a: u8) {
        let a = self.source(a);
        self.asm.mov(Width::W64, RAX, a);
        self.cache.write_back_at_exit(&mut self.asm);
        self.asm.store(Width::W64, state(offset_of!(CpuState, pc)), RAX);
        let out = self.asm.label();
        if let Some(Place { pc, pa }) = self.place {
            let in_page = PAGE_SIZE - 1;
            self.asm.movi(RCX, pc & !in_page);
            self.asm.alu(Alu::Xor, Width::W64, RCX, RAX);
            self.asm.shifti(Shift::Shr, Width::W64, RCX, PAGE_SHIFT.to_le_bytes()[0]);
            self.asm.jcc(Cc::Ne, out);
            let last = i32::try_from(TARGETS_NR - 1).expect("a small table");
            self.asm.mov(Width::W32, RDX, RAX);
            self.asm.alui(Alu::And, Width::W32, RDX, last);
            self.asm.shifti(
                Shift::Shl,
                Width::W32,
                RDX,
                size_of::<Target>().ilog2().to_le_bytes()[0],
            );
            self.asm.movi(RCX, self.around.targets as u64);
            self.asm.alu(Alu::Add, Width::W64, RDX, RCX);
            self.asm.alu(Alu::Cmp, Width::W64, RAX, target(RDX, offset_of!(Target, pc)));
            self.asm.jcc(Cc::Ne, out);
            self.asm.movi(RCX, pa & !in_page);
            self.asm.alu(Alu::Cmp, Width::W64, RCX, target(RDX, offset_of!(Target, page)));
            self.asm.jcc(Cc::Ne, out);
            self.asm.jmp_to(target(RDX, offset_of!(Target, entry)));
        }
        self.asm.bind(out);
        self.leave_with(INDIRECT);
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

fn target(base: Gpr, offset: usize) -> Mem {
    Mem::at(base, i32::try_from(offset).expect("a small table"))
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

#[cfg(test)]
mod tests {
    use super::*;
    use cpu::ir::{Code, Reg};
    use iced_x86::{Decoder, DecoderOptions, FlowControl};
    use mmu::hit::{HitShape, Stamps};
    use std::collections::BTreeSet;

    fn around() -> Surroundings {
        Surroundings {
            interpret: 0x7fff_1234_5670,
            leave: 0x7fff_1234_5600,
            shape: HitShape { stamps: Stamps::Kept, va_bits: 56 },
            features: Features { lzcnt: true, bmi1: true, popcnt: true },
            targets: 0x7fff_0000_0000,
        }
    }

    /// Every op, on its own and in a loop, decodes to valid instructions whose jumps lead to instructions.
    #[test]
    fn every_block_decodes() {
        for &code in Code::ALL {
            for loops in [[false; 2], [true, false], [false, true]] {
                let op = Op::new(code)
                    .d(Reg(1))
                    .a(Reg(12))
                    .b(Reg(3))
                    .c(Reg(4))
                    .imm(0x1234_5678_9abc)
                    .x(2);
                let end = Op::new(Code::CmpBrNe64).a(Reg(1)).b(Reg(2));
                let ops = if code.ends_block() { vec![op] } else { vec![op, end] };
                let place = Some(Place { pc: 0x40_0010, pa: 0x1_0010 });
                let made =
                    block(&around(), 7, &NativeBlock { ops, insns_nr: 2, loops, place }, [64, 128]);
                check(&made, code);
            }
        }
    }

    fn check(made: &Emitted, code: Code) {
        let mut starts = BTreeSet::new();
        let mut targets = Vec::new();
        for instruction in &mut Decoder::with_ip(64, &made.code, 0, DecoderOptions::NONE) {
            assert!(!instruction.is_invalid(), "{code:?} at {:#x}", instruction.ip());
            starts.insert(instruction.ip());
            let flow = instruction.flow_control();
            if matches!(flow, FlowControl::ConditionalBranch | FlowControl::UnconditionalBranch) {
                targets.push(instruction.near_branch_target());
            }
        }
        targets.extend(made.stubs.map(|stub| stub as u64));
        for target in targets {
            assert!(starts.contains(&target), "{code:?}: a jump to {target:#x}");
        }
    }
}
