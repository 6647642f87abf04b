//! One translation, told level by level and field by field (`ptescope walk`).
//!
//! [`explain_walk`] runs the same walk as [`walk`](crate::walk()) over RAM that it does not
//! change, and keeps what was loaded and what hardware would have written.

use crate::walk::{
    Controls, Entry, HwWalk, LEVELS, Leaf, Start, Trail, WalkStats, Words, walk_words,
};
use crate::{Access, Fault, Rights};
use arch::TableLevel;
use phys::Ram;
use units::{PhysAddr, VirtAddr};

/// A field of an entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Field {
    /// Highest bit.
    pub high: u32,
    /// Lowest bit.
    pub low: u32,
    /// The manual's name; `ignored` where hardware does not look.
    pub name: &'static str,
    /// The bits, shifted down.
    pub value: u64,
    /// What they mean here.
    pub meaning: &'static str,
}

impl Field {
    pub(crate) fn list(raw: u64) -> FieldList {
        FieldList { raw, fields: Vec::new() }
    }
}

/// Collects the fields of one word, high bits first.
#[derive(Debug)]
pub(crate) struct FieldList {
    raw: u64,
    fields: Vec<Field>,
}

impl FieldList {
    pub(crate) fn add(&mut self, high: u32, low: u32, name: &'static str, meaning: &'static str) {
        let value = self.raw << (63 - high) >> (63 - high + low);
        self.fields.push(Field { high, low, name, value, meaning });
    }

    pub(crate) fn done(self) -> Vec<Field> {
        self.fields
    }
}

/// What an entry made of the walk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// It leads to the next table.
    Table {
        /// The table.
        next: PhysAddr,
        /// What is still allowed, all levels so far combined.
        rights: Rights,
    },
    /// It ends the walk with an address.
    Leaf {
        /// First byte of the page or block.
        base: PhysAddr,
        /// What is allowed, all levels combined.
        rights: Rights,
    },
    /// It is not valid.
    Invalid,
    /// Reserved bits, or an address that is not there.
    Malformed,
}

/// One level of a walk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LevelExplanation {
    /// The level; its number is that of arm64 (0 is the root).
    pub level: TableLevel,
    /// The table.
    pub table: PhysAddr,
    /// Which entry of it, from bits of the address.
    pub index: u64,
    /// Physical address of the entry.
    pub slot: PhysAddr,
    /// The word.
    pub raw: u64,
    /// Its fields, high bits first; together they cover all 64 bits.
    pub fields: Vec<Field>,
    /// What it made of the walk.
    pub step: Step,
    /// The word that hardware leaves behind, if it differs (A, D, AF, `AP[2]`).
    pub written: Option<u64>,
}

/// A whole translation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WalkExplanation {
    /// The address.
    pub va: VirtAddr,
    /// What it is wanted for.
    pub access: Access,
    /// The levels that were loaded, root first.
    pub levels: Vec<LevelExplanation>,
    /// The physical address and the leaf, or the fault.
    pub outcome: Result<(PhysAddr, Leaf), Fault>,
}

/// RAM that is only looked at: remembers loads, and keeps stores to itself.
struct Recorder<'a> {
    ram: &'a Ram,
    loads: Vec<(PhysAddr, u64)>,
    stores: Vec<(PhysAddr, u64)>,
}

impl Words for Recorder<'_> {
    fn load(&mut self, slot: PhysAddr) -> u64 {
        let raw = self.peek(slot);
        self.loads.push((slot, raw));
        raw
    }
    fn peek(&self, slot: PhysAddr) -> u64 {
        // Tables may point to themselves: a later level then sees what an earlier one wrote.
        let stored = self.stores.iter().rev().find(|(at, _)| *at == slot);
        stored.map_or_else(|| self.ram.load_u64(slot), |&(_, raw)| raw)
    }
    fn store(&mut self, slot: PhysAddr, raw: u64) {
        self.stores.push((slot, raw));
    }
}

/// Describes the walk for `va` from the table at `root`; changes nothing.
///
/// # Panics
/// If `root` is not in RAM.
pub fn explain_walk<A: HwWalk>(
    ram: &Ram,
    controls: &Controls,
    root: PhysAddr,
    va: VirtAddr,
    access: Access,
) -> WalkExplanation {
    let mut words = Recorder { ram, loads: Vec::new(), stores: Vec::new() };
    let (mut trail, mut stats) = (Trail::default(), WalkStats::default());
    let start = Start::root(root);
    let leaf = walk_words::<A>(&mut words, controls, start, (va, access), &mut trail, &mut stats);
    let (mut table, mut rights) = (root, Rights::ALL);
    let mut levels = Vec::new();
    for (&level, &(slot, raw)) in LEVELS.iter().zip(&words.loads) {
        let step = match A::decode(raw, level, controls) {
            Entry::Invalid => Step::Invalid,
            Entry::Malformed => Step::Malformed,
            Entry::Table { next, limit } => {
                rights = rights & limit;
                Step::Table { next, rights }
            }
            Entry::Leaf(leaf) => Step::Leaf { base: leaf.base, rights: rights & leaf.rights },
        };
        levels.push(LevelExplanation {
            level,
            table,
            index: (slot.get() - table.get()) / 8,
            slot,
            raw,
            fields: A::fields(raw, level),
            step,
            written: words.stores.iter().rev().find(|(at, _)| *at == slot).map(|&(_, raw)| raw),
        });
        match step {
            Step::Table { next, .. } => table = next,
            _ => break,
        }
    }
    WalkExplanation { va, access, levels, outcome: leaf.map(|leaf| (leaf.translate(va), leaf)) }
}
