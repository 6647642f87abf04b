//! What the engine asks of a compiler to host code. A crate above implements it; the interpreters of this one stay the
//! definition of every op.

use crate::bus::Bus;
use crate::exec::{Core, Flow};
use crate::ir::Op;

/// A block to compile.
#[derive(Debug)]
pub struct NativeBlock {
    /// The ops, ending with one that leaves the block.
    pub ops: Vec<Op>,
    /// Guest instructions in the block.
    pub insns_nr: u64,
    /// Whether target 0, target 1 is the block itself.
    pub loops: [bool; 2],
    /// Where the block is; `None` if it crosses pages.
    pub place: Option<Place>,
}

/// Address of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// Virtual address of its first byte.
    pub pc: u64,
    /// Physical address of its first byte.
    pub pa: u64,
}

/// What came of [`Native::compile`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Compiled {
    /// The block can be run.
    Yes,
    /// It must be interpreted.
    No,
    /// There is no room: all code must be dropped first.
    Full,
}

/// How native code was left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Left {
    /// Block `id` is done and goes on at its target `slot`, to which it is not linked.
    Link {
        /// The block.
        id: u32,
        /// 0 or 1.
        slot: usize,
    },
    /// Block `id` was not begun: it has more instructions than may still be retired, or code was written.
    Before {
        /// The block.
        id: u32,
    },
    /// A block is done and goes on at the state's `pc`.
    Indirect,
    /// Op number `op` of block `id` left it.
    At {
        /// The block.
        id: u32,
        /// Index of the op.
        op: usize,
        /// Where to.
        flow: Flow,
    },
}

/// A compiler of blocks, with the code it has made.
///
/// Native code does what the interpreter does with the same blocks, and counts the same: state, memory, data
/// accesses ([`Bus::count_accesses`], exactly, also when a block is left half way), the order in which the TLB model sees
/// accesses, instructions ([`Core::retired_nr`], whole blocks ahead). After each block it looks whether code was
/// written. Blocks are named by numbers that the engine picks.
pub trait Native<B: Bus>: std::fmt::Debug {
    /// Makes code for a block.
    fn compile(&mut self, id: u32, block: NativeBlock) -> Compiled;

    /// Runs block `id`, which was compiled, and the blocks it is linked to, until [`Core::retired_nr`] would exceed
    /// `max_instructions`.
    fn run(
        &mut self,
        id: u32,
        core: &mut Core<B::Fault>,
        bus: &mut B,
        max_instructions: u64,
    ) -> Left;

    /// Lets target `slot` of block `from` lead to block `to`; both were compiled.
    fn link(&mut self, from: u32, slot: usize, to: u32);

    /// Block `id`, which was compiled, was found by its place: jumps through registers to there, from the same virtual and
    /// physical page, may lead to it directly.
    fn found(&mut self, id: u32);

    /// Blocks must be found anew: some of them are no more.
    fn forget(&mut self);

    /// Drops all code.
    fn clear(&mut self);
}
