//! Which guest slots are in host registers.
//!
//! A cache over one block: a slot is loaded at its first use, kept until the register is needed for another, and
//! written back at the exits if it was changed. In a block that loops to itself the slots used most are *pinned*:
//! loaded before the loop, and in their registers at every point of it.
//!
//! Fixed: RSP, RBP (instruction budget), R13 (the hit path's tables), R14 (their clock), R15 (the state, plus
//! [`STATE_BIAS`]). RAX, RCX and RDX are free within an op.

use super::asm::{Asm, Gpr, Mem, R8, R9, R10, R11, R12, R15, RBX, RDI, RSI};
use cpu::CpuState;
use cpu::ir::Width;
use std::mem::offset_of;

/// R15 points so far into the state that slots 0–31 are reached with 8-bit displacements.
pub(super) const STATE_BIAS: i32 = 128;
const _: () = assert!(offset_of!(CpuState, r) == 0);
/// Slots from here on are temporaries: they live for one guest instruction, so exits need not write them back.
const TEMPORARIES: u8 = 64;

/// Host registers that hold slots. The callee-saved ones first.
pub(super) const POOL: [Gpr; 8] = [RBX, R12, RSI, RDI, R8, R9, R10, R11];

/// A byte offset into the state as an operand.
pub(super) fn state(offset: usize) -> Mem {
    let disp = i32::try_from(offset).expect("the state is small") - STATE_BIAS;
    Mem::at(R15, disp)
}

/// The home of an integer slot.
pub(super) fn home(slot: u8) -> Mem {
    state(offset_of!(CpuState, r) + usize::from(slot) * 8)
}

/// The home of a vector slot.
pub(super) fn vector_home(slot: u8) -> Mem {
    state(offset_of!(CpuState, v) + usize::from(slot & 127) * 16)
}

/// A slot in a register.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Held {
    slot: u8,
    /// Whether the register has the slot's value; else it is only reserved.
    valid: bool,
    /// Whether the home is older than the register.
    dirty: bool,
    pinned: bool,
    /// When it was last asked for.
    used: u32,
}

/// What is where at some point of the block.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Cache {
    held: [Option<Held>; POOL.len()],
    /// Registers that the current op uses.
    locked: [bool; POOL.len()],
    now: u32,
}

impl Cache {
    /// Loads `slots` and keeps them for good.
    pub(super) fn pin(&mut self, asm: &mut Asm, slots: &[Pin]) {
        for ((held, &reg), pin) in self.held.iter_mut().zip(&POOL).zip(slots) {
            asm.load(Width::W64, reg, home(pin.slot));
            let dirty = pin.written;
            *held = Some(Held { slot: pin.slot, valid: true, dirty, pinned: true, used: 0 });
        }
    }

    /// A new op begins: the registers of the last one may be taken.
    pub(super) fn next_op(&mut self) {
        self.locked = [false; POOL.len()];
        self.now += 1;
    }

    fn find(&self, slot: u8) -> Option<usize> {
        self.held.iter().position(|h| h.is_some_and(|h| h.slot == slot))
    }

    /// The register with the value of `slot`.
    pub(super) fn source(&mut self, asm: &mut Asm, slot: u8) -> Gpr {
        let at = self.take(asm, slot);
        if let Some(held) = &mut self.held[at]
            && !held.valid
        {
            asm.load(Width::W64, POOL[at], home(slot));
            held.valid = true;
        }
        POOL[at]
    }

    /// The register that `slot` will be written to; [`Cache::wrote`] follows.
    pub(super) fn target(&mut self, asm: &mut Asm, slot: u8) -> Gpr {
        POOL[self.take(asm, slot)]
    }

    /// The register of `slot` has its new value.
    pub(super) fn wrote(&mut self, slot: u8) {
        let at = self.find(slot).expect("the target was reserved");
        if let Some(held) = &mut self.held[at] {
            (held.valid, held.dirty) = (true, true);
        }
    }

    fn take(&mut self, asm: &mut Asm, slot: u8) -> usize {
        let at = self.find(slot).unwrap_or_else(|| {
            let at = self.make_room(asm);
            let used = self.now;
            let new = Held { slot, valid: false, dirty: false, pinned: false, used };
            self.held[at] = Some(new);
            at
        });
        self.locked[at] = true;
        if let Some(held) = &mut self.held[at] {
            held.used = self.now;
        }
        at
    }

    /// A free register, or the one used least recently, its slot written back.
    fn make_room(&mut self, asm: &mut Asm) -> usize {
        let age = |at: usize| match self.held[at] {
            None => Some(0),
            Some(h) if h.pinned || self.locked[at] => None,
            Some(h) => Some(h.used + 1),
        };
        let at = (0..POOL.len()).filter_map(|at| Some((age(at)?, at))).min();
        let (_, at) =
            at.expect("an op has at most four slots, and as many registers are never pinned");
        self.write_back_one(asm, at);
        at
    }

    fn write_back_one(&self, asm: &mut Asm, at: usize) {
        if let Some(held) = self.held[at]
            && held.dirty
        {
            asm.store(Width::W64, home(held.slot), POOL[at]);
        }
    }

    /// Writes every changed slot home; the registers stay as they are. For the cold paths, where the interpreter
    /// goes on.
    pub(super) fn write_back(&self, asm: &mut Asm) {
        (0..POOL.len()).for_each(|at| self.write_back_one(asm, at));
    }

    /// Writes home what outlives the block; the registers stay as they are.
    pub(super) fn write_back_at_exit(&self, asm: &mut Asm) {
        for at in 0..POOL.len() {
            if self.held[at].is_some_and(|h| h.slot < TEMPORARIES) {
                self.write_back_one(asm, at);
            }
        }
    }

    /// The same for the slots that are not pinned.
    pub(super) fn write_back_unpinned(&self, asm: &mut Asm) {
        for at in 0..POOL.len() {
            if self.held[at].is_some_and(|h| h.slot < TEMPORARIES && !h.pinned) {
                self.write_back_one(asm, at);
            }
        }
    }

    /// Loads every register anew, after the interpreter has run an op.
    pub(super) fn reload(&self, asm: &mut Asm) {
        for (held, &reg) in self.held.iter().zip(&POOL) {
            if let Some(held) = held
                && held.valid
            {
                asm.load(Width::W64, reg, home(held.slot));
            }
        }
    }

    /// Everything is at home: forgets the registers. Nothing may be pinned.
    pub(super) fn forget(&mut self) {
        debug_assert!(self.held.iter().flatten().all(|h| !h.pinned), "pinned slots stay");
        self.held = [None; POOL.len()];
    }
}

/// A slot that stays in a register for a whole loop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Pin {
    pub(super) slot: u8,
    /// Whether the loop changes it.
    pub(super) written: bool,
}

/// How often the ops of a block use each slot.
#[derive(Debug)]
pub(super) struct Uses {
    nr: [u32; 256],
    written: [bool; 256],
    /// Some op was left to the interpreter.
    pub(super) interpreted: bool,
}

impl Uses {
    pub(super) fn new() -> Uses {
        Uses { nr: [0; 256], written: [false; 256], interpreted: false }
    }
    pub(super) fn read(&mut self, slot: u8) {
        self.nr[usize::from(slot)] += 1;
    }
    pub(super) fn write(&mut self, slot: u8) {
        self.nr[usize::from(slot)] += 1;
        self.written[usize::from(slot)] = true;
    }

    /// The slots to pin in a loop: all, if there are registers for all; else the ones used most, with
    /// enough registers left for any op.
    pub(super) fn pins(&self) -> Vec<Pin> {
        if self.interpreted {
            return Vec::new();
        }
        let used = |slot: &u8| self.nr[usize::from(*slot)] > 0;
        let mut slots: Vec<u8> = (0..TEMPORARIES).filter(used).collect();
        let temporaries = (TEMPORARIES..=u8::MAX).filter(used).count();
        let room =
            if slots.len() + temporaries <= POOL.len() { POOL.len() } else { POOL.len() - 4 };
        slots.sort_by_key(|&slot| std::cmp::Reverse(self.nr[usize::from(slot)]));
        slots.truncate(room);
        let pin = |slot: u8| Pin { slot, written: self.written[usize::from(slot)] };
        slots.into_iter().map(pin).collect()
    }
}
