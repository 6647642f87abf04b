//! Native code against the interpreter: random blocks of all ops, run on two equal machines; registers, flags, vectors, memory,
//! faults, instruction and access counts and all counters of a small TLB must stay equal for thousands of blocks.

#![cfg(all(target_arch = "x86_64", unix))]
#![allow(
    clippy::allow_attributes,
    clippy::cast_possible_truncation,
    clippy::cast_possible_wrap,
    clippy::cast_sign_loss,
    dead_code,
    missing_docs,
    unreachable_pub,
    reason = "test code, some of it shared"
)]

mod common;

use arch::{Arm64, SwitchKind, X86_64};
use common::tables::Words;
use common::{BASE, Paged, READ_ONLY_PAGES, Random, WRITABLE_PAGES, frame};
use cpu::exec::{self, Core, Flow};
use cpu::ir::{CcKind, CcOp, Code, Cond, Op, Reg, Width};
use cpu::native::{Compiled, Left, NativeBlock};
use cpu::vector::ARM;
use cpu::{Bus, CpuState, flags};
use mmu::{Exact, Fault, Model, Untracked};
use units::{Asid, PAGE_SIZE, PhysAddr};

/// Slots that ops compute with; more than there are registers for.
const SLOTS: [u8; 14] = [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 20, 31];
/// Slots that hold addresses.
const POINTERS: [u8; 3] = [12, 13, 14];
const TEMPORARIES: [u8; 4] = [64, 65, 66, 95];
const ZERO: u8 = 254;
const SINK: u8 = 255;

struct Machine<A: Words, M: Model> {
    core: Core<Fault>,
    bus: Paged<A, M>,
}

/// How a block ended.
#[derive(Debug, PartialEq)]
struct End {
    left: Left,
    fault: Option<Fault>,
    retired_nr: u64,
}

/// What the engine does with the interpreter.
fn interpret<A: Words, M: Model>(
    m: &mut Machine<A, M>,
    id: u32,
    block: &NativeBlock,
    max_instructions: u64,
) -> Left {
    let (_, ops) = exec::bind::<Paged<A, M>>(&block.ops);
    let accesses = |ops: &[Op]| -> i64 { ops.iter().map(|op| i64::from(op.code.accesses())).sum() };
    loop {
        if m.core.retired_nr + block.insns_nr > max_instructions || m.bus.code_dirty() {
            return Left::Before { id };
        }
        m.core.retired_nr += block.insns_nr;
        m.bus.count_accesses(accesses(&block.ops));
        let flow = exec::run_match(&mut m.core, &mut m.bus, &ops);
        let slot = match flow {
            Flow::Link0 => 0,
            Flow::Link1 => 1,
            flow => {
                let op = ops.len() - 1 - m.core.left_nr;
                m.bus.count_accesses(-accesses(&block.ops[op + 1..]));
                return Left::At { id, op, flow };
            }
        };
        if !block.loops[slot] {
            return Left::Link { id, slot };
        }
    }
}

/// `Left` by the interpreted last op of a block is a link by another name.
fn plain(left: Left) -> Left {
    match left {
        Left::At { id, flow: Flow::Link0, .. } => Left::Link { id, slot: 0 },
        Left::At { id, flow: Flow::Link1, .. } => Left::Link { id, slot: 1 },
        Left::At { flow: Flow::Indirect, .. } => Left::Indirect,
        left => left,
    }
}

fn kind(r: &mut Random) -> CcKind {
    let ops = [
        CcOp::Add,
        CcOp::Sub,
        CcOp::Subs,
        CcOp::Adc,
        CcOp::Sbb,
        CcOp::Logic,
        CcOp::Inc,
        CcOp::Dec,
        CcOp::Shl,
        CcOp::Shr,
        CcOp::Sar,
    ];
    CcKind::new(r.pick(&ops), r.pick(&[Width::W8, Width::W16, Width::W32, Width::W64]))
}

fn is_memory(code: Code) -> bool {
    code.accesses() > 0 || code == Code::ZeroQuads
}

/// An op over all slots but temporaries other than `temporaries`, which the block has written.
fn random_op(r: &mut Random, code: Code, temporaries: &[u8]) -> Op {
    let source = |r: &mut Random| match r.below(12) {
        0 => ZERO,
        1 => r.pick(&POINTERS),
        2 | 3 if !temporaries.is_empty() => r.pick(temporaries),
        _ => r.pick(&SLOTS),
    };
    let d = match r.below(10) {
        0 => SINK,
        1 | 2 if !temporaries.is_empty() => r.pick(temporaries),
        _ => r.pick(&SLOTS),
    };
    let mut op = Op {
        code,
        x: r.below(80) as u16,
        d,
        a: source(r),
        b: source(r),
        c: source(r),
        imm: r.value() as i64,
    };
    if is_memory(code) {
        op.a = r.pick(&POINTERS);
        op.imm = r.below(600) as i64 - 100;
        // An index that leads nowhere far.
        op.b = ZERO;
        op.x = r.below(16) as u16 + 1;
        if op.d == op.a || op.c == op.a {
            op.d = SLOTS[0];
        }
    }
    match code {
        Code::Cc | Code::CcI | Code::CcIf => op.x = kind(r).raw(),
        Code::CcIncDec => op.x = CcKind::new(CcOp::Inc, Width::W32).raw(),
        Code::CcShift => op.x = CcKind::new(CcOp::Shl, Width::W32).raw(),
        Code::CcRol | Code::CcRor | Code::CcBit | Code::CcMulS | Code::CcMulU => {
            op.x = r.pick(&[8, 16, 32, 64]);
        }
        Code::CheckAlign => op.x = 16,
        _ if code >= Code::FAdd64 && code <= Code::FDiv32 => {
            op.x = r.pick(&[0, ARM]);
            op.c = r.below(2) as u8;
        }
        _ if code >= Code::VAnd && code <= Code::VUmin8 => op.c = r.below(2) as u8,
        _ if code >= Code::CmpBrEq32 && code <= Code::StepCmpIBrSgt64 => {
            let w = if r.one_in(2) { Width::W32 } else { Width::W64 };
            op.x = CcKind::new(r.pick(&[CcOp::Sub, CcOp::Subs, CcOp::Logic]), w).raw();
            op.c = r.next() as u8;
            // So that loops go round.
            op.imm = r.pick(&[op.imm, 5, 0, -1]);
        }
        _ => {}
    }
    if matches!(code, Code::Br | Code::SetCond | Code::Csel32 | Code::Csel64 | Code::CcIf) {
        op.c = r.below(Cond::Al as u64 + 1) as u8;
    }
    op
}

/// Ops that a random block does not have: they depend on more than their fields can say.
fn is_left_out(code: Code) -> bool {
    let helpers = matches!(
        code,
        Code::X86
            | Code::A64
            | Code::Vec
            | Code::VecAcc
            | Code::VecToR
            | Code::VecFromR
            | Code::VecCc
    );
    helpers || code.ends_block() || matches!(code, Code::SetEflags)
}

fn random_block(r: &mut Random) -> NativeBlock {
    let inner: Vec<Code> = Code::ALL.iter().copied().filter(|&c| !is_left_out(c)).collect();
    let memory: Vec<Code> = inner.iter().copied().filter(|&c| is_memory(c)).collect();
    let simple = [Code::AddI64, Code::Mov, Code::Xor32, Code::Add64, Code::MovI, Code::XorShr64];
    let ends: Vec<Code> = Code::ALL.iter().copied().filter(|c| c.ends_block()).collect();
    let branches: Vec<Code> = ends
        .iter()
        .copied()
        .filter(|&c| c >= Code::Jump && c <= Code::StepCmpIBrSgt64 && c != Code::JumpInd)
        .collect();
    let loops = match r.below(4) {
        0 => [true, false],
        1 => [false, true],
        _ => [false, false],
    };
    // In half of the loops only ops that leave the registers alone.
    let calm = r.one_in(2);
    let temporaries = &TEMPORARIES[..r.below(TEMPORARIES.len() as u64 + 1) as usize];
    let set = |&t: &u8| Op::new(Code::MovI).d(Reg(t)).imm(i64::from(t) * 1_000_003);
    let mut ops: Vec<Op> = temporaries.iter().map(set).collect();
    for _ in 0..r.below(12) {
        let code = match r.below(4) {
            0 => r.pick(&memory[..memory.iter().position(|&c| c == Code::Rmw8).unwrap_or(1)]),
            1 if !calm => r.pick(&inner),
            1 => r.pick(&inner[..100]),
            _ if calm => r.pick(&simple),
            _ => r.pick(&inner),
        };
        ops.push(random_op(r, code, temporaries));
    }
    let end = if loops == [false; 2] { r.pick(&ends) } else { r.pick(&branches) };
    ops.push(random_op(r, end, temporaries));
    NativeBlock { ops, insns_nr: r.below(6) + 1, loops, place: None }
}

fn shuffle_state(r: &mut Random, s: &mut CpuState) {
    for slot in SLOTS {
        s.set_reg(Reg(slot), r.value());
    }
    for slot in POINTERS {
        // Mostly where everything is allowed; at times near the end of a page, or astray.
        let beyond = if r.one_in(8) { READ_ONLY_PAGES + 2 } else { 0 };
        let page = r.below(WRITABLE_PAGES + beyond);
        let offset = if r.one_in(6) { PAGE_SIZE - 1 - r.below(20) } else { r.below(PAGE_SIZE) };
        let aligned = if r.one_in(2) { !15 } else { !0 };
        let mut at = (BASE + page * PAGE_SIZE + offset) & aligned;
        if r.one_in(10) {
            at |= r.below(256) << 56;
        }
        s.set_reg(Reg(slot), at);
    }
    for i in 0..32u8 {
        let pick = |r: &mut Random| match r.below(4) {
            0 => r.pick(&[0x7ff8_0000_0000_0001, 0xfff0_0000_7f80_0001, 0x7ff0_0000_ffc0_0002]),
            1 => (r.below(1000) as f64 / 8.0).to_bits(),
            2 => u64::from((r.below(1000) as f32 / 8.0).to_bits()),
            _ => r.next(),
        };
        s.v[usize::from(i)] = u128::from(pick(r)) << 64 | u128::from(pick(r));
    }
    let (kind, a, b, c) = (kind(r), r.value(), r.value(), r.below(2));
    s.set_cc(kind, a, b, c);
}

/// Everything of a state that a program can see.
fn visible(s: &CpuState) -> impl PartialEq + std::fmt::Debug {
    let monitor = s.monitor;
    let conditions: Vec<bool> =
        (0..=Cond::Al as u8).map(|c| flags::holds(s, Cond::from_raw(c))).collect();
    (
        s.pc,
        s.r[..64].to_vec(),
        s.v.to_vec(),
        flags::eflags(s),
        flags::nzcv(s),
        conditions,
        monitor,
        (s.fpsr, s.mxcsr),
    )
}

fn compare<A: Words, M: Model>(seed: u64, rounds: u32) {
    let mut r = Random(seed);
    let machine = || Machine { core: Core::new(CpuState::default()), bus: Paged::<A, M>::new() };
    let (mut native, mut plainly) = (machine(), machine());
    let mut jit = jit::native::<Paged<A, M>>().expect("this host can");
    for round in 0..rounds {
        let id = round % 1000;
        if id == 0 {
            jit.clear();
        }
        let block = random_block(&mut r);
        shuffle_state(&mut r, &mut native.core.s);
        plainly.core.s = native.core.s.clone();
        if r.one_in(4) {
            let watched = PhysAddr::new(frame(r.below(WRITABLE_PAGES))).pfn();
            native.bus.ram.watch(watched);
            plainly.bus.ram.watch(watched);
        }
        if r.one_in(50) {
            // A new generation, with other frames behind the same addresses of what is not flushed.
            for bus in [&mut native.bus, &mut plainly.bus] {
                let (root, kind) = (bus.tlb.root(), SwitchKind::Flush);
                bus.tlb.switch(root, Asid::new(1), kind);
            }
        }
        let copy = NativeBlock { ops: block.ops.clone(), ..block };
        assert_eq!(jit.compile(id, copy), Compiled::Yes);
        let max = r.below(60);
        let run = |m: &mut Machine<A, M>, run: &mut dyn FnMut(&mut Machine<A, M>) -> Left| {
            m.core.retired_nr = r.0 % 3;
            let left = plain(run(m));
            End { left, fault: m.core.fault.take(), retired_nr: m.core.retired_nr }
        };
        let a = run(&mut native, &mut |m| jit.run(id, &mut m.core, &mut m.bus, max + 3));
        let b = run(&mut plainly, &mut |m| interpret(m, id, &block, max + 3));
        let context = || format!("seed {seed:#x}, round {round}: {block:#?}");
        assert_eq!(a, b, "{}", context());
        assert_eq!(visible(&native.core.s), visible(&plainly.core.s), "{}", context());
        assert_eq!(native.bus.tlb.stats(), plainly.bus.tlb.stats(), "{}", context());
        loop {
            let (a, b) = (native.bus.ram.take_written(), plainly.bus.ram.take_written());
            assert_eq!(a, b, "{}", context());
            if a.is_none() {
                break;
            }
        }
        let all =
            |m: &Machine<A, M>| m.bus.ram.slice(PhysAddr::new(0), common::RAM as usize).to_vec();
        if round % 16 == 0 || round + 1 == rounds {
            assert!(all(&native) == all(&plainly), "memory differs, {}", context());
        }
    }
}

#[test]
fn blocks_agree_with_the_interpreter() {
    for seed in 1..=4 {
        compare::<X86_64, Exact>(seed * 0x9e37_79b9, 6000);
        compare::<Arm64, Exact>(seed * 0x51_7cc1, 6000);
    }
}

#[test]
fn blocks_agree_without_a_tlb_model() {
    compare::<X86_64, Untracked>(0x1234_5678, 3000);
    compare::<Arm64, Untracked>(0x8765_4321, 3000);
}
