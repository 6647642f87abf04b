//! The engine: block cache, chaining, exact instruction counts, exits.
//!
//! Blocks are keyed by physical and virtual address of their first byte (the virtual one because
//! PC-relative values are folded into constants) and never leave their page, except that an instruction
//! which crosses into the next page is a block of its own. While control stays on one page its translation
//! cannot change (only the kernel layer changes mappings, between calls of `run`), so links within a
//! page are followed without asking; a change of page asks [`Bus::fetch`], which is also the access that the
//! instruction TLB sees.
//!
//! Blocks that are entered often are handed to a [`Native`] compiler, if the CPU was given one; what it does not make
//! is interpreted.
//!
//! FIDELITY: self-modifying-code stores to code are noticed at the end of a block, not at the next instruction.

use crate::block::{Builder, Finished, Step};
use crate::bus::Bus;
use crate::exec::{self, Core, Flow, Handler, Threaded};
use crate::native::{Compiled, Left, Native, NativeBlock, Place};
use crate::state::CpuState;
use std::collections::BTreeMap;
use units::{ArchId, PAGE_SIZE, PhysAddr, VirtAddr};

/// Longest instruction of either instruction set.
pub const INSN_BYTES_MAX: usize = 15;
/// Instructions in a block at most.
const INSNS_MAX: usize = 64;
/// Micro-ops after which no further instruction is added.
const OPS_MAX: usize = 256;
/// Blocks kept before the cache starts afresh.
const BLOCKS_MAX: usize = 1 << 16;
/// Entries of a block after which it is compiled.
pub const HOT: u32 = 64;
const JUMP_CACHE_NR: usize = 4096;
const NO_BLOCK: u32 = u32::MAX;
/// Not the address of any page.
const NO_PAGE: u64 = 1;

/// The bytes of an instruction, for messages.
#[derive(Clone, Copy, PartialEq, Eq, Default)]
pub struct InsnBytes {
    bytes: [u8; INSN_BYTES_MAX],
    len: u8,
}

impl InsnBytes {
    /// The bytes.
    pub fn as_slice(&self) -> &[u8] {
        self.bytes.get(..usize::from(self.len)).unwrap_or(&[])
    }
}

impl std::fmt::Debug for InsnBytes {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{self}")
    }
}

impl std::fmt::Display for InsnBytes {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        for (i, byte) in self.as_slice().iter().enumerate() {
            let space = if i == 0 { "" } else { " " };
            write!(f, "{space}{byte:02x}")?;
        }
        Ok(())
    }
}

/// Why [`Cpu::run`] returned. The state's `pc` is set in all cases.
#[derive(Clone, Debug, PartialEq)]
pub enum Exit<F> {
    /// A system call. `pc` is the next instruction; on x86-64 RCX and R11 are set as the instruction does.
    Syscall,
    /// A memory access or instruction fetch failed. `pc` is the instruction to restart.
    Fault {
        /// What the bus reported.
        fault: F,
        /// The instruction.
        pc: VirtAddr,
    },
    /// An architecturally undefined instruction (SIGILL); `pc` is at it.
    Undefined {
        /// The instruction.
        pc: VirtAddr,
        /// Its bytes, as far as known.
        bytes: InsnBytes,
    },
    /// A valid instruction that is not implemented: the run must end and name it. `pc` is at it.
    Unsupported {
        /// The instruction.
        pc: VirtAddr,
        /// Its bytes.
        bytes: InsnBytes,
        /// Its mnemonic.
        mnemonic: String,
    },
    /// A breakpoint instruction; x86 `int3`: `pc` is after it, arm64 `brk`: at it.
    Breakpoint {
        /// The instruction.
        pc: VirtAddr,
    },
    /// x86 #DE (SIGFPE); `pc` is at the instruction.
    DivideError {
        /// The instruction.
        pc: VirtAddr,
    },
    /// x86 #GP (SIGSEGV): a misaligned 128-bit operand, or a privileged instruction; `pc` is at the instruction.
    Misaligned {
        /// The instruction.
        pc: VirtAddr,
    },
    /// The instruction limit was reached.
    Limit,
}

/// Which interpreter runs the blocks; results are the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Engine {
    /// A match loop: the oracle, and the default of debug builds.
    Match,
    /// Direct threading: the default of release builds.
    Threaded,
}

impl Default for Engine {
    fn default() -> Self {
        if cfg!(debug_assertions) { Engine::Match } else { Engine::Threaded }
    }
}

struct Block<B: Bus> {
    pc: u64,
    pa: u64,
    /// Second page of an instruction that crosses pages: virtual page and physical page.
    second: Option<(u64, u64)>,
    /// Handler of the first op.
    entry: Handler<B>,
    ops: Box<[Threaded<B>]>,
    insns_nr: u64,
    accesses_nr: i64,
    targets: [u64; 2],
    links: [u32; 2],
    valid: bool,
    /// Whether native code of it exists.
    is_native: bool,
    /// Times it was entered in the interpreter, up to [`HOT`].
    heat: u32,
    marks: Box<[(u32, u64)]>,
    note: Option<String>,
}

#[derive(Clone, Copy)]
struct Jump {
    pc: u64,
    pa: u64,
    block: u32,
}

const NO_JUMP: Jump = Jump { pc: NO_PAGE, pa: NO_PAGE, block: NO_BLOCK };

/// Counters of the engine itself, for reports and tests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EngineStats {
    /// Blocks translated.
    pub translated_nr: u64,
    /// Blocks dropped because their page was written or invalidated.
    pub dropped_nr: u64,
    /// Blocks compiled to native code.
    pub compiled_nr: u64,
}

/// One virtual CPU: state of the running thread, and the block cache.
pub struct Cpu<B: Bus> {
    core: Core<B::Fault>,
    arch: ArchId,
    engine: Engine,
    native: Option<Box<dyn Native<B>>>,
    hot: u32,
    blocks: Vec<Block<B>>,
    by_addr: BTreeMap<(u64, u64), u32>,
    by_page: BTreeMap<u64, Vec<u32>>,
    jumps: Box<[Jump]>,
    stats: EngineStats,
}

impl<B: Bus> std::fmt::Debug for Cpu<B> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Cpu")
            .field("arch", &self.arch)
            .field("pc", &self.core.s.pc)
            .field("blocks", &self.blocks.len())
            .finish_non_exhaustive()
    }
}

/// Where control is: the page whose translation is known.
#[derive(Clone, Copy)]
struct Page {
    va: u64,
    pa: u64,
}

/// How the inner loop ended.
enum Stop<F> {
    Exit(Exit<F>),
    /// Go on at `pc`, after a look at the page; link the block's slot there if it is on the same page.
    Goto(u64, Option<(u32, usize)>),
}

/// How the data accesses of a block that is left half way were counted.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Counted {
    /// All of the block's, before it ran.
    Ahead,
    /// One by one.
    Exactly,
}

const PAGE_MASK: u64 = PAGE_SIZE - 1;

impl<B: Bus> Cpu<B> {
    /// A CPU in its reset state.
    pub fn new(arch: ArchId) -> Self {
        Cpu {
            core: Core::new(CpuState::default()),
            arch,
            engine: Engine::default(),
            native: None,
            hot: HOT,
            blocks: Vec::new(),
            by_addr: BTreeMap::new(),
            by_page: BTreeMap::new(),
            jumps: vec![NO_JUMP; JUMP_CACHE_NR].into_boxed_slice(),
            stats: EngineStats::default(),
        }
    }

    /// The instruction set.
    pub fn arch(&self) -> ArchId {
        self.arch
    }
    /// State of the running thread.
    pub fn state(&self) -> &CpuState {
        &self.core.s
    }
    /// State of the running thread; replacing it is a thread switch.
    pub fn state_mut(&mut self) -> &mut CpuState {
        &mut self.core.s
    }
    /// Instructions retired by the last [`run`](Cpu::run).
    pub fn retired_nr(&self) -> u64 {
        self.core.retired_nr
    }
    /// Counters of the engine.
    pub fn stats(&self) -> EngineStats {
        self.stats
    }
    /// Chooses the interpreter.
    pub fn set_engine(&mut self, engine: Engine) {
        self.engine = engine;
    }
    /// Has blocks compiled to native code when they have been entered `hot` times ([`HOT`] is a good number; at
    /// least 1). Results do not depend on it.
    pub fn set_native(&mut self, native: Box<dyn Native<B>>, hot: u32) {
        self.invalidate_all();
        (self.native, self.hot) = (Some(native), hot.max(1));
    }

    /// Runs from the state's `pc` until something needs attention, at most `max_instructions`
    /// instructions, exactly. [`retired_nr`](Cpu::retired_nr) tells how many completed.
    pub fn run(&mut self, bus: &mut B, max_instructions: u64) -> Exit<B::Fault> {
        self.core.retired_nr = 0;
        let mut page = Page { va: NO_PAGE, pa: 0 };
        let mut pc = self.core.s.pc;
        let mut from = None;
        loop {
            if bus.code_dirty() {
                self.drop_dirty(bus);
                from = None;
            }
            if pc & !PAGE_MASK == page.va {
                // Still there.
            } else {
                from = None;
                match bus.fetch(VirtAddr::new(pc)) {
                    Ok(pa) => page = Page { va: pc & !PAGE_MASK, pa: pa.get() & !PAGE_MASK },
                    Err(fault) => return self.leave(pc, |pc| Exit::Fault { fault, pc }),
                }
            }
            let pa = page.pa | pc & PAGE_MASK;
            let id = match self.find(bus, pc, pa, &mut page) {
                Ok(id) => id,
                Err(fault) => return self.leave(pc, |pc| Exit::Fault { fault, pc }),
            };
            self.link(from, id);
            if from.is_none() {
                self.tell_found(id);
            }
            match self.run_chain(bus, id, page.va, max_instructions) {
                Stop::Exit(exit) => return exit,
                Stop::Goto(to, slot) => (pc, from) = (to, slot),
            }
        }
    }

    fn leave(&mut self, pc: u64, exit: impl FnOnce(VirtAddr) -> Exit<B::Fault>) -> Exit<B::Fault> {
        self.core.s.pc = pc;
        exit(VirtAddr::new(pc))
    }

    /// Lets a block's slot lead straight to the next block, both being on one page.
    fn link(&mut self, from: Option<(u32, usize)>, to: u32) {
        let Some((from, slot)) = from else { return };
        let crosses = self.blocks.get(to as usize).is_none_or(|b| b.second.is_some());
        if crosses {
            return;
        }
        if let Some(link) = self.blocks.get_mut(from as usize).and_then(|b| b.links.get_mut(slot)) {
            *link = to;
        }
    }

    /// Tells the compiler which block is here.
    fn tell_found(&mut self, id: u32) {
        let is_native = self.blocks.get(id as usize).is_some_and(|b| b.is_native);
        if is_native && let Some(native) = &mut self.native {
            native.found(id);
        }
    }

    /// Runs block `id` and whatever it is linked to.
    #[inline]
    fn run_chain(
        &mut self,
        bus: &mut B,
        mut id: u32,
        page: u64,
        max_instructions: u64,
    ) -> Stop<B::Fault> {
        loop {
            self.compile_if_hot(id);
            let is_native = self.blocks.get(id as usize).is_some_and(|b| b.is_native);
            let left = if is_native {
                self.run_native(bus, id, max_instructions)
            } else {
                self.interpret(bus, id, max_instructions)
            };
            let (from, slot) = match left {
                Ok(left) => left,
                Err(stop) => return stop,
            };
            let Some(block) = self.blocks.get(from as usize) else {
                return Stop::Goto(self.core.s.pc, None);
            };
            let (target, next) = (block.targets[slot], block.links[slot]);
            if next == NO_BLOCK || target & !PAGE_MASK != page || bus.code_dirty() {
                return Stop::Goto(target, Some((from, slot)));
            }
            let both = block.is_native
                && self.blocks.get(next as usize).is_some_and(|next| next.is_native);
            if both && let Some(native) = &mut self.native {
                native.link(from, slot, next);
            }
            id = next;
        }
    }

    /// Interprets block `id`, over and over while it loops to itself and stays cold. Yields the block and the slot
    /// by which control left.
    #[inline]
    fn interpret(
        &mut self,
        bus: &mut B,
        id: u32,
        max_instructions: u64,
    ) -> Result<(u32, usize), Stop<B::Fault>> {
        let threaded = self.engine == Engine::Threaded;
        let Some(block) = self.blocks.get_mut(id as usize) else {
            return Err(Stop::Goto(self.core.s.pc, None));
        };
        let mut retired_nr = self.core.retired_nr + block.insns_nr;
        if retired_nr > max_instructions {
            let pc = block.pc;
            return Err(self.run_part(bus, pc, max_instructions - self.core.retired_nr));
        }
        loop {
            block.heat = block.heat.saturating_add(1);
            self.core.retired_nr = retired_nr;
            bus.count_accesses(block.accesses_nr);
            let flow = if threaded {
                (block.entry)(&mut self.core, bus, &block.ops)
            } else {
                exec::run_match(&mut self.core, bus, &block.ops)
            };
            let slot = match flow {
                Flow::Link0 => 0,
                Flow::Link1 => 1,
                Flow::Indirect => return Err(Stop::Goto(self.core.s.pc, None)),
                other => {
                    let at = block.ops.len().saturating_sub(self.core.left_nr + 1);
                    return Err(self.stop(bus, (id, at), other, Counted::Ahead));
                }
            };
            retired_nr += block.insns_nr;
            let stays = block.links[slot] == id && block.heat != self.hot;
            if !stays || retired_nr > max_instructions || bus.code_dirty() {
                return Ok((id, slot));
            }
        }
    }

    /// Runs native code from block `id` on, as [`interpret`](Cpu::interpret) would interpret it.
    fn run_native(
        &mut self,
        bus: &mut B,
        id: u32,
        max_instructions: u64,
    ) -> Result<(u32, usize), Stop<B::Fault>> {
        let Some(native) = &mut self.native else { return Err(Stop::Exit(Exit::Limit)) };
        match native.run(id, &mut self.core, bus, max_instructions) {
            Left::Link { id, slot } => Ok((id, slot)),
            Left::Before { id } => {
                let Some(block) = self.blocks.get(id as usize) else {
                    return Err(Stop::Exit(Exit::Limit));
                };
                let pc = block.pc;
                if bus.code_dirty() {
                    return Err(Stop::Goto(pc, None));
                }
                Err(self.run_part(bus, pc, max_instructions - self.core.retired_nr))
            }
            Left::Indirect => Err(Stop::Goto(self.core.s.pc, None)),
            Left::At { id, op, flow } => match flow {
                Flow::Link0 => Ok((id, 0)),
                Flow::Link1 => Ok((id, 1)),
                Flow::Indirect => Err(Stop::Goto(self.core.s.pc, None)),
                other => Err(self.stop(bus, (id, op), other, Counted::Exactly)),
            },
        }
    }

    /// Compiles block `id` when it has just become hot.
    #[inline]
    fn compile_if_hot(&mut self, id: u32) {
        let Some(native) = &mut self.native else { return };
        let Some(block) = self.blocks.get_mut(id as usize) else { return };
        if block.heat != self.hot || block.is_native {
            return;
        }
        // Asked once.
        block.heat += 1;
        let ops: Vec<_> = block.ops.iter().map(|t| t.op).collect();
        let loops = block.targets.map(|to| block.second.is_none() && to == block.pc);
        let place = Place { pc: block.pc, pa: block.pa };
        let place = block.second.is_none().then_some(place);
        let made = native.compile(id, NativeBlock { ops, insns_nr: block.insns_nr, loops, place });
        match made {
            Compiled::Yes => {
                block.is_native = true;
                self.stats.compiled_nr += 1;
            }
            Compiled::No => {}
            Compiled::Full => {
                native.clear();
                for block in &mut self.blocks {
                    (block.is_native, block.heat) = (false, 0);
                }
            }
        }
    }

    /// Runs the first `insns_nr` instructions at `pc`, fewer than its block has, and reports the limit.
    fn run_part(&mut self, bus: &mut B, pc: u64, insns_nr: u64) -> Stop<B::Fault> {
        if insns_nr == 0 {
            return Stop::Exit(self.leave(pc, |_| Exit::Limit));
        }
        // The block is built anew, shorter, and not kept.
        let limit = usize::try_from(insns_nr).unwrap_or(usize::MAX);
        let pa = match bus.fetch(VirtAddr::new(pc)) {
            Ok(pa) => pa.get(),
            Err(fault) => return Stop::Exit(self.leave(pc, |pc| Exit::Fault { fault, pc })),
        };
        let block = match self.translate(bus, pc, pa, limit) {
            Ok(block) => block,
            Err(fault) => return Stop::Exit(self.leave(pc, |pc| Exit::Fault { fault, pc })),
        };
        self.core.retired_nr += block.insns_nr;
        bus.count_accesses(block.accesses_nr);
        let targets = block.targets;
        let flow = exec::run_match(&mut self.core, bus, &block.ops);
        match flow {
            Flow::Link0 => Stop::Goto(targets[0], None),
            Flow::Link1 => Stop::Goto(targets[1], None),
            Flow::Indirect => Stop::Goto(self.core.s.pc, None),
            other => {
                let Ok(id) = u32::try_from(self.blocks.len()) else {
                    return Stop::Exit(self.leave(pc, |_| Exit::Limit));
                };
                let at = block.ops.len().saturating_sub(self.core.left_nr + 1);
                self.blocks.push(block);
                let stop = self.stop(bus, (id, at), other, Counted::Ahead);
                self.blocks.pop();
                stop
            }
        }
    }

    /// Corrects the counts of a block that was left in the middle, at an op, and makes the exit.
    #[cold]
    fn stop(
        &mut self,
        bus: &mut B,
        (id, at): (u32, usize),
        flow: Flow,
        counted: Counted,
    ) -> Stop<B::Fault> {
        let Some(block) = self.blocks.get(id as usize) else {
            return Stop::Exit(Exit::Limit);
        };
        let insn = block.marks.partition_point(|m| m.0 as usize <= at).saturating_sub(1);
        let pc = block.marks.get(insn).map_or(block.pc, |m| m.1);
        let completes = match flow {
            Flow::Syscall => return Stop::Exit(Exit::Syscall),
            Flow::ICache => return self.icache_invalidate(bus, id),
            Flow::Breakpoint => true,
            _ => false,
        };
        let done_nr = insn as u64 + u64::from(completes);
        self.core.retired_nr -= block.insns_nr - done_nr;
        if counted == Counted::Ahead {
            let accesses: u32 = block.ops.iter().take(at + 1).map(|t| t.op.code.accesses()).sum();
            bus.count_accesses(i64::from(accesses) - block.accesses_nr);
        }
        let note = block.note.clone();
        if flow != Flow::Breakpoint {
            self.core.s.pc = pc;
        }
        let va = VirtAddr::new(pc);
        Stop::Exit(match flow {
            Flow::Breakpoint => Exit::Breakpoint { pc: va },
            Flow::DivideError => Exit::DivideError { pc: va },
            Flow::Misaligned => Exit::Misaligned { pc: va },
            Flow::Unsupported => {
                let bytes = self.bytes_at(bus, id, insn);
                let mnemonic = note.unwrap_or_else(|| self.mnemonic(&bytes));
                Exit::Unsupported { pc: va, bytes, mnemonic }
            }
            Flow::Fault => match self.core.fault.take() {
                Some(fault) => Exit::Fault { fault, pc: va },
                None => Exit::Limit,
            },
            _ => Exit::Undefined { pc: va, bytes: self.bytes_at(bus, id, insn) },
        })
    }

    /// The bytes of instruction `insn` of a block.
    fn bytes_at(&self, bus: &mut B, id: u32, insn: usize) -> InsnBytes {
        let mut out = InsnBytes::default();
        let Some(block) = self.blocks.get(id as usize) else { return out };
        let Some(&(_, pc)) = block.marks.get(insn) else { return out };
        let pa = block.pa.wrapping_add(pc.wrapping_sub(block.pc));
        let len = (PAGE_SIZE - (pa & PAGE_MASK)).min(INSN_BYTES_MAX as u64);
        let len = usize::try_from(len).unwrap_or(0);
        if let Some(into) = out.bytes.get_mut(..len) {
            bus.read_code(PhysAddr::new(pa), into);
        }
        let used = match self.arch {
            ArchId::X86_64 => crate::x86_64::length(out.bytes.get(..len).unwrap_or(&[])),
            ArchId::Arm64 => 4,
        };
        out.len = u8::try_from(used.min(len)).unwrap_or(0);
        out
    }

    fn mnemonic(&self, bytes: &InsnBytes) -> String {
        match self.arch {
            ArchId::X86_64 => crate::x86_64::mnemonic(bytes.as_slice()),
            ArchId::Arm64 => String::from("instruction"),
        }
    }

    fn icache_invalidate(&mut self, bus: &mut B, id: u32) -> Stop<B::Fault> {
        let target = self.blocks.get(id as usize).map_or(0, |b| b.targets[0]);
        if let Ok(pa) = bus.fetch(VirtAddr::new(self.core.icache)) {
            self.invalidate_page(pa);
        }
        Stop::Goto(target, None)
    }

    /// Drops all blocks on the page of `pa`: its content changed.
    pub fn invalidate_page(&mut self, pa: PhysAddr) {
        let Some(ids) = self.by_page.remove(&(pa.get() & !PAGE_MASK)) else { return };
        for id in ids {
            let Some(block) = self.blocks.get_mut(id as usize) else { continue };
            if !block.valid {
                continue;
            }
            block.valid = false;
            self.stats.dropped_nr += 1;
            self.by_addr.remove(&(block.pa, block.pc));
        }
        // Links into the page come only from the page itself, whose blocks are unreachable now, once
        // the jump cache is empty.
        self.jumps.fill(NO_JUMP);
        if let Some(native) = &mut self.native {
            native.forget();
        }
    }

    /// Drops all blocks.
    pub fn invalidate_all(&mut self) {
        if let Some(native) = &mut self.native {
            native.clear();
        }
        self.blocks.clear();
        self.by_addr.clear();
        self.by_page.clear();
        self.jumps.fill(NO_JUMP);
    }

    fn drop_dirty(&mut self, bus: &mut B) {
        while let Some(pa) = bus.take_dirty_code() {
            self.invalidate_page(pa);
        }
    }

    /// The block at `pc`, whose first byte is at `pa`. Moves `page` on if it crosses.
    fn find(&mut self, bus: &mut B, pc: u64, pa: u64, page: &mut Page) -> Result<u32, B::Fault> {
        let slot = usize::try_from((pc ^ pc >> 12) & (JUMP_CACHE_NR as u64 - 1)).unwrap_or(0);
        if let Some(jump) = self.jumps.get(slot)
            && jump.pc == pc
            && jump.pa == pa
        {
            return Ok(jump.block);
        }
        if let Some(&id) = self.by_addr.get(&(pa, pc)) {
            let second = self.blocks.get(id as usize).and_then(|b| b.second);
            let Some((va2, pa2)) = second else {
                self.remember(slot, pc, pa, id);
                return Ok(id);
            };
            let now = bus.fetch(VirtAddr::new(va2))?.get() & !PAGE_MASK;
            *page = Page { va: va2, pa: now };
            if now == pa2 {
                return Ok(id);
            }
        }
        let block = self.translate(bus, pc, pa, INSNS_MAX)?;
        if let Some((va2, pa2)) = block.second {
            *page = Page { va: va2, pa: pa2 };
        }
        Ok(self.insert(bus, slot, block))
    }

    fn remember(&mut self, slot: usize, pc: u64, pa: u64, block: u32) {
        if let Some(jump) = self.jumps.get_mut(slot) {
            *jump = Jump { pc, pa, block };
        }
    }

    fn insert(&mut self, bus: &mut B, slot: usize, block: Block<B>) -> u32 {
        if self.blocks.len() >= BLOCKS_MAX {
            self.invalidate_all();
        }
        let id = u32::try_from(self.blocks.len()).unwrap_or(NO_BLOCK);
        self.by_addr.insert((block.pa, block.pc), id);
        self.note_page(bus, block.pa & !PAGE_MASK, id);
        match block.second {
            Some((_, pa2)) => self.note_page(bus, pa2, id),
            None => self.remember(slot, block.pc, block.pa, id),
        }
        self.blocks.push(block);
        self.stats.translated_nr += 1;
        id
    }

    fn note_page(&mut self, bus: &mut B, pa: u64, id: u32) {
        let ids = self.by_page.entry(pa).or_default();
        if ids.is_empty() {
            bus.note_code(PhysAddr::new(pa));
        }
        ids.push(id);
    }

    /// Decodes and lowers up to `limit` instructions at `pc`.
    fn translate(&self, bus: &mut B, pc: u64, pa: u64, limit: usize) -> Result<Block<B>, B::Fault> {
        let mut code = [0u8; INSNS_MAX * INSN_BYTES_MAX + INSN_BYTES_MAX];
        let on_page = usize::try_from(PAGE_SIZE - (pa & PAGE_MASK)).unwrap_or(0);
        let len = on_page.min(INSNS_MAX * INSN_BYTES_MAX);
        if let Some(into) = code.get_mut(..len) {
            bus.read_code(PhysAddr::new(pa), into);
        }
        let mut b = Builder::new();
        let mut second = None;
        let end = lower_run(self.arch, &mut b, pc, code.get(..len).unwrap_or(&[]), limit);
        if end == RunEnd::NeedsSecondPage {
            let va2 = (pc | PAGE_MASK).wrapping_add(1);
            let pa2 = bus.fetch(VirtAddr::new(va2))?.get();
            if let Some(into) = code.get_mut(len..len + INSN_BYTES_MAX) {
                bus.read_code(PhysAddr::new(pa2), into);
            }
            second = Some((va2, pa2 & !PAGE_MASK));
            let all = code.get(..len + INSN_BYTES_MAX).unwrap_or(&[]);
            if lower_run(self.arch, &mut b, pc, all, 1) == RunEnd::NeedsSecondPage {
                b.start(pc);
                b.undefined();
            }
        }
        Ok(bind(b.finish(), pc, pa, second))
    }
}

fn bind<B: Bus>(f: Finished, pc: u64, pa: u64, second: Option<(u64, u64)>) -> Block<B> {
    let (entry, ops) = exec::bind(&f.ops);
    Block {
        pc,
        pa,
        second,
        entry,
        ops,
        insns_nr: f.marks.len() as u64,
        accesses_nr: i64::from(f.accesses_nr),
        targets: f.targets,
        links: [NO_BLOCK; 2],
        valid: true,
        is_native: false,
        heat: 0,
        marks: f.marks.into_boxed_slice(),
        note: f.note,
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum RunEnd {
    Done,
    NeedsSecondPage,
}

/// Lowers instructions from `code` until the block ends.
fn lower_run(arch: ArchId, b: &mut Builder, pc: u64, code: &[u8], limit: usize) -> RunEnd {
    let mut at = 0usize;
    loop {
        let here = pc.wrapping_add(at as u64);
        let full = b.insns_nr() >= limit.min(INSNS_MAX) || b.ops_nr() >= OPS_MAX;
        let rest = code.get(at..).unwrap_or(&[]);
        if b.insns_nr() > 0 && (full || rest.is_empty()) {
            b.jump(here);
            return RunEnd::Done;
        }
        b.start(here);
        let step = match arch {
            ArchId::X86_64 => crate::x86_64::lower(b, here, rest),
            ArchId::Arm64 => crate::arm64::lower(b, here, rest),
        };
        match step {
            Step::Next(len) => at += len as usize,
            Step::End(_) => return RunEnd::Done,
            Step::Short => {
                b.unstart();
                if b.insns_nr() == 0 {
                    return RunEnd::NeedsSecondPage;
                }
                b.jump(here);
                return RunEnd::Done;
            }
        }
    }
}
