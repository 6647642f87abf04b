//! Entering and leaving native code, and the way from it to the interpreter.
//!
//! Native code is called with a pointer to a [`Frame`], which leads to everything it may touch. While it runs, and
//! while [`interpret`] runs below it, nobody else uses the CPU's state and the bus: [`Jit::run`] has borrowed them.

use super::asm::{Asm, Gpr, Mem, R12, R13, R14, R15, RBP, RBX, RDI, RSI, RSP};
use super::code::{CodeMemory, NoRoom};
use super::emit::{
    self, AT, BEFORE, Features, INDIRECT, NO_FRAME, Surroundings, TARGETS_NR, Target,
};
use super::regs::STATE_BIAS;
use crate::HitBus;
use cpu::exec::{self, Core, Flow};
use cpu::ir::{Op, Width};
use cpu::native::{Compiled, Left, Native, NativeBlock, Place};
use mmu::HitTables;
use mmu::hit::CLOCK_AT;
use std::marker::PhantomData;
use std::mem::offset_of;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};
use units::PAGE_SIZE;

/// Blocks that can be linked; the engine has no more.
const BLOCKS_MAX: usize = 1 << 16;
/// Budgets are kept below, so that arithmetic on them cannot overflow.
const BUDGET_MAX: u64 = 1 << 62;
/// What the stack holds below the saved registers: the frame's address, and padding to 16 bytes.
const STACK_BYTES: i32 = 24;
const SAVED: [Gpr; 6] = [RBX, RBP, R12, R13, R14, R15];

/// What native code is given.
#[repr(C)]
struct Frame<B: HitBus> {
    /// Instructions that may still be retired, after the current block.
    budget: i64,
    tables: *mut HitTables,
    /// The state, plus [`STATE_BIAS`].
    state: *mut u8,
    interpret: extern "sysv64" fn(*mut Frame<B>, u32, u32) -> u32,

    core: *mut Core<B::Fault>,
    bus: *mut B,
    blocks: *const [Option<Block>],
    max_instructions: u64,
    /// The real budget, while `budget` is negative to stop native code at the end of the block.
    withheld: Option<i64>,
    /// The clock up to which accesses were counted.
    counted: u64,
    /// What left its block, and how.
    left: (u32, u32, Flow),
}

impl<B: HitBus> Frame<B> {
    fn remaining(&self) -> i64 {
        self.withheld.unwrap_or(self.budget)
    }
    /// Instructions retired, the current block included.
    fn retired_nr(&self) -> u64 {
        self.max_instructions.saturating_add_signed(self.remaining().saturating_neg())
    }
}

/// A compiled block.
#[derive(Debug)]
struct Block {
    entry: usize,
    ops: Box<[Op]>,
    place: Option<Place>,
}

/// The links of so many blocks are allocated at once.
const LINKS_NR: usize = 256;

/// Addresses of the code around all blocks.
#[derive(Clone, Copy, Debug)]
struct Stubs {
    enter: usize,
    surroundings: Surroundings,
}

/// The compiler, with its code.
pub(crate) struct Jit<B> {
    code: CodeMemory,
    stubs: Option<Stubs>,
    blocks: Vec<Option<Block>>,
    /// Where each block goes on, by block and slot, [`LINKS_NR`] at a time; native code reads them.
    links: Vec<Box<[[AtomicUsize; 2]]>>,
    /// Where jumps through registers lead; native code reads them.
    targets: Box<[Target]>,
    marker: PhantomData<fn(B)>,
}

impl<B> std::fmt::Debug for Jit<B> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Jit").field("blocks", &self.blocks.len()).finish_non_exhaustive()
    }
}

impl<B: HitBus + 'static> Jit<B> {
    /// A compiler; `None` if the host does not let code be made.
    pub(crate) fn new() -> Option<Self> {
        let none = || Target {
            pc: AtomicU64::new(0),
            page: AtomicU64::new(NO_FRAME),
            entry: AtomicUsize::new(0),
        };
        let mut jit = Jit {
            code: CodeMemory::default(),
            stubs: None,
            blocks: Vec::new(),
            links: Vec::new(),
            targets: (0..TARGETS_NR).map(|_| none()).collect(),
            marker: PhantomData,
        };
        jit.make_stubs();
        jit.stubs.is_some().then_some(jit)
    }

    fn make_stubs(&mut self) {
        let mut add = |code: Asm| self.code.add(&code.finish()).ok();
        let made = (add(enter::<B>()), add(interpreter::<B>()), add(leave::<B>()));
        self.stubs = match made {
            (Some(enter), Some(interpret), Some(leave)) => {
                let features = Features {
                    lzcnt: is_x86_feature_detected!("lzcnt"),
                    bmi1: is_x86_feature_detected!("bmi1"),
                    popcnt: is_x86_feature_detected!("popcnt"),
                };
                let targets = self.targets.as_ptr().expose_provenance();
                let shape = B::SHAPE;
                let surroundings = Surroundings { interpret, leave, shape, features, targets };
                Some(Stubs { enter, surroundings })
            }
            _ => None,
        };
    }

    /// The links of block `id`, made if they are not there yet; `None` if there are none for so many blocks.
    fn links_of(&mut self, id: usize) -> Option<&[AtomicUsize; 2]> {
        if id >= BLOCKS_MAX {
            return None;
        }
        while self.links.len() * LINKS_NR <= id {
            self.links.push((0..LINKS_NR).map(|_| Default::default()).collect());
        }
        self.links.get(id / LINKS_NR)?.get(id % LINKS_NR)
    }
}

fn field(offset: usize) -> Mem {
    Mem::at(RDI, i32::try_from(offset).expect("the frame is small"))
}

fn clock() -> Mem {
    Mem::at(R13, i32::try_from(CLOCK_AT).expect("the tables are small"))
}

/// `extern "sysv64" fn(frame, entry) -> code`
fn enter<B: HitBus>() -> Asm {
    let mut asm = Asm::default();
    for reg in SAVED {
        asm.push(reg);
    }
    asm.alui(super::asm::Alu::Sub, Width::W64, RSP, STACK_BYTES);
    asm.store(Width::W64, Mem::at(RSP, 0), RDI);
    asm.load(Width::W64, R15, field(offset_of!(Frame<B>, state)));
    load_registers::<B>(&mut asm);
    asm.jmp_to(RSI);
    asm
}

fn load_registers<B: HitBus>(asm: &mut Asm) {
    asm.load(Width::W64, R13, field(offset_of!(Frame<B>, tables)));
    asm.load(Width::W64, R14, clock());
    asm.load(Width::W64, RBP, field(offset_of!(Frame<B>, budget)));
}

fn store_registers<B: HitBus>(asm: &mut Asm) {
    asm.store(Width::W64, field(offset_of!(Frame<B>, budget)), RBP);
    asm.store(Width::W64, clock(), R14);
}

/// Called by blocks: has op ESI of block EDX interpreted; its flow is in EAX.
fn interpreter<B: HitBus>() -> Asm {
    let mut asm = Asm::default();
    asm.load(Width::W64, RDI, Mem::at(RSP, 8));
    store_registers::<B>(&mut asm);
    asm.push(RDI);
    asm.call(field(offset_of!(Frame<B>, interpret)));
    asm.pop(RDI);
    load_registers::<B>(&mut asm);
    asm.ret();
    asm
}

/// Jumped to by blocks: returns EAX to the caller of [`enter`].
fn leave<B: HitBus>() -> Asm {
    let mut asm = Asm::default();
    asm.load(Width::W64, RDI, Mem::at(RSP, 0));
    store_registers::<B>(&mut asm);
    asm.alui(super::asm::Alu::Add, Width::W64, RSP, STACK_BYTES);
    for reg in SAVED.into_iter().rev() {
        asm.pop(reg);
    }
    asm.ret();
    asm
}

/// Interprets one op for native code, and counts its accesses.
#[expect(unsafe_code, reason = "native code can only hand over what it was given: an address")]
extern "sysv64" fn interpret<B: HitBus>(frame: *mut Frame<B>, op: u32, id: u32) -> u32 {
    // SAFETY:
    // - `frame` is the pointer that `run` passed in; the frame lives until native code has returned to it.
    // - `run` does not touch the frame, the core, the bus or the blocks meanwhile: it waits for us. What it had
    //   borrowed, it reached these pointers from.
    // - Native code holds pointers into the bus's tables, but uses them only after it has loaded them anew from `frame.tables`.
    // Reached by `tests/blocks.rs`, by every miss.
    let (frame, core, bus, blocks) = unsafe {
        let frame = &mut *frame;
        let (core, bus, blocks) = (&mut *frame.core, &mut *frame.bus, &*frame.blocks);
        (frame, core, bus, blocks)
    };
    let Some(block) = blocks.get(id as usize).and_then(Option::as_ref) else {
        unreachable!("a block names itself (test: `blocks_agree_with_the_interpreter`)")
    };
    let op_ref = &block.ops[op as usize];
    count_hits(frame, bus);
    core.retired_nr = frame.retired_nr();
    let flow = exec::run_one(core, bus, op_ref);
    bus.count_accesses(i64::from(op_ref.code.accesses()));
    if bus.code_dirty() && frame.withheld.is_none() {
        frame.withheld = Some(frame.budget);
        frame.budget = -1;
    }
    frame.left = (id, op, flow);
    let path = bus.hit_path();
    frame.counted = path.clock();
    frame.tables = path.tables();
    flow as u32
}

/// Counts the accesses that native code made since it was last done: every one moved the clock.
fn count_hits<B: HitBus>(frame: &mut Frame<B>, bus: &mut B) {
    let clock = bus.hit_path().clock();
    bus.count_accesses(clock.wrapping_sub(frame.counted).cast_signed());
    frame.counted = clock;
}

impl<B: HitBus + 'static> Native<B> for Jit<B> {
    fn compile(&mut self, id: u32, block: NativeBlock) -> Compiled {
        let Some(stubs) = self.stubs else { return Compiled::No };
        let at = id as usize;
        let Some(links) = self.links_of(at) else { return Compiled::No };
        let addresses = links.each_ref().map(|link| link.as_ptr().expose_provenance());
        let emitted = emit::block(&stubs.surroundings, id, &block, addresses);
        let entry = match self.code.add(&emitted.code) {
            Ok(entry) => entry,
            Err(NoRoom::Full) => return Compiled::Full,
            Err(NoRoom::Refused) => {
                self.stubs = None;
                return Compiled::Full;
            }
        };
        for (link, stub) in self.links_of(at).into_iter().flatten().zip(emitted.stubs) {
            link.store(entry + stub, Relaxed);
        }
        if self.blocks.len() <= at {
            self.blocks.resize_with(at + 1, || None);
        }
        let (ops, place) = (block.ops.into_boxed_slice(), block.place);
        self.blocks[at] = Some(Block { entry, ops, place });
        Compiled::Yes
    }

    #[expect(unsafe_code, reason = "calling code that was made at run time")]
    fn run(
        &mut self,
        id: u32,
        core: &mut Core<B::Fault>,
        bus: &mut B,
        max_instructions: u64,
    ) -> Left {
        let entry = self.blocks.get(id as usize).and_then(|b| Some(b.as_ref()?.entry));
        let (Some(entry), Some(stubs)) = (entry, self.stubs) else { return Left::Before { id } };
        let budget = max_instructions.saturating_sub(core.retired_nr).min(BUDGET_MAX);
        // What is beyond the budget is not missed: no run is as long.
        let max_instructions = core.retired_nr + budget;
        let path = bus.hit_path();
        let counted = path.clock();
        let tables = path.tables();
        let mut frame = Frame {
            budget: budget.cast_signed(),
            tables,
            state: (&raw mut core.s).cast::<u8>().wrapping_offset(STATE_BIAS as isize),
            interpret: interpret::<B>,
            core,
            bus,
            blocks: &raw const *self.blocks,
            max_instructions,
            withheld: None,
            counted,
            left: (id, 0, Flow::Next),
        };
        // SAFETY:
        // - `stubs.enter` is the address of what `enter` assembled, in memory that is executable and stays until
        //   `clear`; its signature is this one, and it saves what the ABI says. `entry` is a block in the same memory.
        // - Code reads and writes: the state (`core.s`, whole slots, through `frame.state`), which is borrowed here; the
        //   tables and RAM, as `mmu::hit` allows it, which `bus` is borrowed for; links and targets, which are atomic, never move,
        //   and lead to code that stays until `clear`, which empties them; its stack; the frame.
        // - Addresses in RAM come from fast entries, whose pages lie in RAM altogether (`mmu::hit`, 4).
        // - It leaves by returning; no panic unwinds through it (`extern "sysv64"` functions abort).
        // - The pointers in the frame are derived from this function's borrows, which are not used again until it has returned.
        // Reached by `tests/blocks.rs`; each instruction that can be in it is decoded by the test `encodings_decode_as_meant`.
        let code = unsafe {
            let enter = std::ptr::with_exposed_provenance::<()>(stubs.enter);
            let enter: extern "sysv64" fn(*mut Frame<B>, usize) -> u32 = std::mem::transmute(enter);
            enter(&raw mut frame, entry)
        };
        // SAFETY: native code has returned; these are the borrows that the frame was made from. Reached by the same tests.
        let (core, bus) = unsafe { (&mut *frame.core, &mut *frame.bus) };
        count_hits(&mut frame, bus);
        core.retired_nr = frame.retired_nr();
        let (id, op, flow) = frame.left;
        match code & 3 {
            _ if code == INDIRECT => Left::Indirect,
            AT => Left::At { id, op: op as usize, flow },
            BEFORE => Left::Before { id: code >> 2 },
            slot => Left::Link { id: code >> 2, slot: slot as usize },
        }
    }

    fn link(&mut self, from: u32, slot: usize, to: u32) {
        let entry = self.blocks.get(to as usize).and_then(|b| Some(b.as_ref()?.entry));
        let link = self.links_of(from as usize).and_then(|links| links.get(slot));
        if let (Some(entry), Some(link)) = (entry, link) {
            link.store(entry, Relaxed);
        }
    }

    fn found(&mut self, id: u32) {
        let Some(Some(Block { entry, place: Some(Place { pc, pa }), .. })) =
            self.blocks.get(id as usize)
        else {
            return;
        };
        #[expect(clippy::cast_possible_truncation, reason = "the low bits are what counts")]
        let target = &self.targets[*pc as usize % TARGETS_NR];
        target.pc.store(*pc, Relaxed);
        target.page.store(pa & !(PAGE_SIZE - 1), Relaxed);
        target.entry.store(*entry, Relaxed);
    }

    fn forget(&mut self) {
        for target in &self.targets {
            target.page.store(NO_FRAME, Relaxed);
        }
    }

    fn clear(&mut self) {
        self.blocks.clear();
        self.forget();
        if self.stubs.take().is_some() {
            self.code.clear();
            self.make_stubs();
        }
    }
}
