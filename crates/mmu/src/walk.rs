//! The hardware page-table walk, written once over what an architecture says of an entry.
//!
//! [`walk`] reads like the manuals: one load per level, invalid before malformed, rights that only
//! narrow on the way down, the access flag before permissions, and the A and D updates that
//! hardware makes. [`HwWalk`] is the encoding: `x86_64.rs` (Intel SDM 3A, "4-Level Paging") and
//! `arm64.rs` (Arm DDI 0487, "The AArch64 Virtual Memory System Architecture"). Tables are the
//! bytes in guest RAM. Kernel mappings, nested paging and 57-bit addresses are left out.

use crate::{Access, Fault, FaultKind, Field};
use arch::TableLevel;
use phys::Ram;
use std::fmt::Debug;
use std::ops::{BitAnd, BitOr};
use units::{ArchId, PhysAddr, Reach, VirtAddr};

/// The levels in the order of a walk.
pub const LEVELS: [TableLevel; 4] =
    [TableLevel::Pgd, TableLevel::Pud, TableLevel::Pmd, TableLevel::Pte];

/// What user mode may do: a set of [`Access`]es.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Rights(u8);

impl Rights {
    /// Nothing.
    pub const NONE: Rights = Rights(0);
    /// Data reads.
    pub const READ: Rights = Rights(1);
    /// Data writes.
    pub const WRITE: Rights = Rights(2);
    /// Instruction fetches.
    pub const EXEC: Rights = Rights(4);
    /// Everything.
    pub const ALL: Rights = Rights(7);

    /// Whether `access` is in the set.
    #[inline]
    pub const fn allow(self, access: Access) -> bool {
        self.0 >> access as u8 & 1 != 0
    }
    /// The set without `other`.
    #[inline]
    pub const fn without(self, other: Rights) -> Rights {
        Rights(self.0 & !other.0)
    }
    pub(crate) const fn raw(self) -> u8 {
        self.0
    }
    pub(crate) const fn from_raw(raw: u8) -> Rights {
        Rights(raw & Rights::ALL.0)
    }
}

impl BitAnd for Rights {
    type Output = Rights;
    fn bitand(self, other: Rights) -> Rights {
        Rights(self.0 & other.0)
    }
}

impl BitOr for Rights {
    type Output = Rights;
    fn bitor(self, other: Rights) -> Rights {
        Rights(self.0 | other.0)
    }
}

impl std::fmt::Display for Rights {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let letter = |access, letter| if self.allow(access) { letter } else { '-' };
        let (r, w) = (letter(Access::Read, 'r'), letter(Access::Write, 'w'));
        write!(f, "{r}{w}{}", letter(Access::Exec, 'x'))
    }
}

/// Who sets the accessed and dirty state of entries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AccessDirty {
    /// The walker (x86-64 always; arm64 TCR.HA and TCR.HD).
    Hardware,
    /// The kernel, on access-flag and permission faults (arm64).
    Software,
}

/// Which descriptor of a contiguous block (arm64 CONT) a TLB entry for the block is made of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Contiguous {
    /// None: the bit is ignored, each descriptor is cached on its own.
    Ignored,
    /// The one that the access hit.
    Faulting,
    /// The first of the block, at the price of one more load unless it is the one that was hit.
    First,
}

/// What the walker looks at beside the tables: control registers and machine facts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Controls {
    /// Implemented physical address bits (MAXPHYADDR, TCR.IPS).
    pub pa_bits: u8,
    /// Size of RAM in bytes; entries that point beyond it fault.
    pub ram_bytes: u64,
    /// Who sets A and D.
    pub access_dirty: AccessDirty,
    /// What is done with the Contiguous bit.
    pub contiguous: Contiguous,
    /// Reach of groups of 4 KiB entries that the walker coalesces when they happen to be
    /// contiguous, aligned and alike (AMD PTE coalescing, Cortex-A76).
    pub coalesce: Option<Reach>,
    /// x86-64 PKRU: two bits per protection key, 0 allows everything.
    pub pkru: u32,
}

impl Controls {
    /// A walker over `ram_bytes` of RAM that sets A and D, honours the Contiguous bit and does not
    /// coalesce.
    pub const fn new(ram_bytes: u64) -> Controls {
        Controls {
            pa_bits: 48,
            ram_bytes,
            access_dirty: AccessDirty::Hardware,
            contiguous: Contiguous::Faulting,
            coalesce: None,
            pkru: 0,
        }
    }

    /// Whether `[base, base + bytes)` can be addressed and is RAM.
    #[inline]
    pub const fn is_ram(&self, base: PhysAddr, bytes: u64) -> bool {
        base.get() >> self.pa_bits == 0
            && bytes <= self.ram_bytes
            && base.get() <= self.ram_bytes - bytes
    }

    /// Whether PKRU denies `access` to pages of `key`. Fetches are never checked.
    #[inline]
    pub const fn key_denies(&self, key: u8, access: Access) -> bool {
        let bits = self.pkru >> (2 * key) & 3;
        match access {
            Access::Read => bits & 1 != 0,
            Access::Write => bits != 0,
            Access::Exec => false,
        }
    }
}

/// Whether the entry's tag is compared with the current address space.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    /// Only there (x86-64 G=0, arm64 nG=1).
    AddressSpace,
    /// In every address space.
    Global,
}

/// Whether the walker still owes the entry a dirty update.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DirtyState {
    /// The first write sets D (x86-64) or clears `AP[2]` (arm64 with DBM).
    Clean,
    /// A write changes nothing in the entry.
    Dirty,
}

/// A leaf entry, decoded: what it says by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LeafEntry {
    /// Output address, aligned to the level's span.
    pub base: PhysAddr,
    /// What it allows user mode to do.
    pub rights: Rights,
    /// Whether the accessed state is set.
    pub accessed: bool,
    /// Dirty state.
    pub dirty: DirtyState,
    /// Global or not.
    pub scope: Scope,
    /// x86-64 protection key; 0 on arm64.
    pub key: u8,
    /// arm64 Contiguous bit.
    pub contiguous: bool,
}

/// An entry, decoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Entry {
    /// Not valid: a translation fault.
    Invalid,
    /// Valid, but no hardware would accept it: reserved bits, or an address that is not there.
    Malformed,
    /// Points to the next table.
    Table {
        /// The table.
        next: PhysAddr,
        /// What the entry still allows to user mode below it.
        limit: Rights,
    },
    /// Yields a physical address.
    Leaf(LeafEntry),
}

/// How an entry was used, for the updates that hardware makes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EntryUse {
    /// To find the next table.
    Table,
    /// As a leaf, for this access.
    Leaf(Access),
}

/// The walker's side of an architecture: pure decoding, and the updates hardware makes.
pub trait HwWalk: Copy + Debug + Default + 'static {
    /// Which architecture.
    const ID: ArchId;
    /// Whether a page fault drops the TLB and walk-cache entries for its address (x86-64).
    const FAULT_DROPS_ENTRIES: bool;

    /// Bits of an address that take part in translation, counted from bit 0: [`HwWalk::page_tag`] drops those above.
    const VA_BITS: u32;

    /// Page number of `va` with the bits that address comparison ignores removed, below 2^52.
    fn page_tag(va: VirtAddr) -> u64;
    /// The address to translate, ignored bits removed.
    ///
    /// # Errors
    /// If no table could translate it.
    fn input_address(va: VirtAddr) -> Result<VirtAddr, FaultKind>;
    /// Decodes any word at any level; no table at the last one.
    fn decode(raw: u64, level: TableLevel, controls: &Controls) -> Entry;
    /// The fault of a malformed entry.
    fn malformed(level: TableLevel) -> FaultKind;
    /// The word that the walker leaves behind after using the entry with hardware A and D.
    fn used(raw: u64, usage: EntryUse) -> u64;
    /// The fields of the word at `level`, high bits first, for [`explain_walk`](crate::explain_walk).
    fn fields(raw: u64, level: TableLevel) -> Vec<Field>;
}

/// A translation, as a TLB may cache it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Leaf {
    /// First byte of what is covered.
    pub base: PhysAddr,
    /// What is covered: the entry's span, or that of its contiguous or coalesced group.
    pub reach: Reach,
    /// What the one entry spans.
    pub span: Reach,
    /// What user mode may do, combined over the levels.
    pub rights: Rights,
    /// Dirty state after the walk.
    pub dirty: DirtyState,
    /// Global or not.
    pub scope: Scope,
    /// x86-64 protection key.
    pub key: u8,
}

impl Leaf {
    /// The physical address of `va`, which the translation must cover.
    #[inline]
    pub const fn translate(&self, va: VirtAddr) -> PhysAddr {
        self.base.wrapping_add(va.get() & (self.reach.bytes() - 1))
    }

    /// The level of the entry.
    pub const fn level(&self) -> TableLevel {
        match self.span.shift() {
            30.. => TableLevel::Pud,
            21.. => TableLevel::Pmd,
            _ => TableLevel::Pte,
        }
    }
}

/// Counts of the walker.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct WalkStats {
    /// Walks begun.
    pub walks: u64,
    /// Entries loaded, by level.
    pub loads: [u64; 4],
    /// Walks that ended in a fault.
    pub faults: u64,
    /// Entries in which the accessed state was set.
    pub accessed_writes: u64,
    /// Entries in which the dirty state was set.
    pub dirty_writes: u64,
}

impl WalkStats {
    /// Entries loaded, all levels.
    pub fn loads_total(&self) -> u64 {
        self.loads.iter().sum()
    }
}

/// Where a walk begins: at the root, or below it if a walk cache knows a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Start {
    /// Level of the first entry to load.
    pub level: TableLevel,
    /// The table that holds it.
    pub table: PhysAddr,
    /// What the levels above allow.
    pub rights: Rights,
}

impl Start {
    /// At the root.
    pub const fn root(table: PhysAddr) -> Start {
        Start { level: TableLevel::Pgd, table, rights: Rights::ALL }
    }
}

/// The tables that a walk passed: for each level whose entry it loaded and found to be a table,
/// where that leads and what is still allowed there. Walk caches are filled from it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Trail {
    /// By level of the entry: Pgd, Pud, Pmd.
    pub tables: [Option<(PhysAddr, Rights)>; 3],
}

/// Memory as the walker uses it: RAM, or RAM that is only looked at.
pub(crate) trait Words {
    /// Loads an entry.
    fn load(&mut self, slot: PhysAddr) -> u64;
    /// Looks at a neighbour in a cache line that was loaded.
    fn peek(&self, slot: PhysAddr) -> u64;
    /// Updates an entry.
    fn store(&mut self, slot: PhysAddr, raw: u64);
}

impl Words for Ram {
    #[inline]
    fn load(&mut self, slot: PhysAddr) -> u64 {
        self.load_u64(slot)
    }
    #[inline]
    fn peek(&self, slot: PhysAddr) -> u64 {
        self.load_u64(slot)
    }
    #[inline]
    fn store(&mut self, slot: PhysAddr, raw: u64) {
        self.store_u64(slot, raw);
    }
}

/// Translates `va` as the hardware walker does, from `start` down.
///
/// One load per level is counted in `stats`. A and D are set in RAM as hardware sets them: A in
/// every entry that led on, A and D in the leaf only if the access is allowed.
///
/// # Errors
/// The architectural fault.
///
/// # Panics
/// If the start table is not in RAM: the kernel layer's bug.
pub fn walk<A: HwWalk>(
    ram: &mut Ram,
    controls: &Controls,
    start: Start,
    (va, access): (VirtAddr, Access),
    trail: &mut Trail,
    stats: &mut WalkStats,
) -> Result<Leaf, Fault> {
    walk_words::<A>(ram, controls, start, (va, access), trail, stats)
}

pub(crate) fn walk_words<A: HwWalk>(
    words: &mut impl Words,
    controls: &Controls,
    start: Start,
    (va, access): (VirtAddr, Access),
    trail: &mut Trail,
    stats: &mut WalkStats,
) -> Result<Leaf, Fault> {
    stats.walks += 1;
    descend::<A>(words, controls, start, (va, access), trail, stats).map_err(|kind| {
        stats.faults += 1;
        Fault { va, access, kind }
    })
}

fn descend<A: HwWalk>(
    words: &mut impl Words,
    controls: &Controls,
    start: Start,
    (va, access): (VirtAddr, Access),
    trail: &mut Trail,
    stats: &mut WalkStats,
) -> Result<Leaf, FaultKind> {
    let va = A::input_address(va)?;
    let (mut table, mut rights) = (start.table, start.rights);
    for &level in &LEVELS[start.level as usize..] {
        let slot = level.slot(table, va);
        stats.loads[level as usize] += 1;
        let raw = words.load(slot);
        match A::decode(raw, level, controls) {
            Entry::Invalid => return Err(FaultKind::Translation(level)),
            Entry::Malformed => return Err(A::malformed(level)),
            Entry::Table { next, limit } => {
                mark::<A>(words, slot, raw, EntryUse::Table, stats);
                (table, rights) = (next, rights & limit);
                trail.tables[level as usize] = Some((table, rights));
            }
            Entry::Leaf(entry) => {
                let found = Found { slot, raw, level, entry };
                return found
                    .chosen::<A>(words, controls, stats)
                    .finish::<A>(words, controls, rights, access, stats);
            }
        }
    }
    unreachable!("`decode` yields no table at the last level (test: `decode_is_total`)")
}

/// Leaves an entry as hardware leaves it, and returns the word.
#[inline]
fn mark<A: HwWalk>(
    words: &mut impl Words,
    slot: PhysAddr,
    raw: u64,
    usage: EntryUse,
    stats: &mut WalkStats,
) -> u64 {
    let marked = A::used(raw, usage);
    if marked != raw {
        let accessed = A::used(raw, EntryUse::Leaf(Access::Read));
        stats.accessed_writes += u64::from(accessed != raw);
        stats.dirty_writes += u64::from(marked != accessed);
        words.store(slot, marked);
    }
    marked
}

/// A leaf entry and where it was found.
#[derive(Clone, Copy)]
struct Found {
    slot: PhysAddr,
    raw: u64,
    level: TableLevel,
    entry: LeafEntry,
}

impl Found {
    /// The descriptor that a TLB entry is made of: of a contiguous block, the policy's choice.
    fn chosen<A: HwWalk>(
        self,
        words: &mut impl Words,
        controls: &Controls,
        stats: &mut WalkStats,
    ) -> Found {
        if !self.entry.contiguous || controls.contiguous != Contiguous::First {
            return self;
        }
        let slot = self.slot.align_down(CONTIGUOUS_ENTRIES * 8);
        if slot == self.slot {
            return self;
        }
        stats.loads[self.level as usize] += 1;
        let raw = words.load(slot);
        match A::decode(raw, self.level, controls) {
            Entry::Leaf(entry) if entry.contiguous => {
                // The block's output address is the first descriptor's; the page's own follows.
                let span = 1 << self.level.shift();
                let index = (self.slot.get() - slot.get()) / 8;
                let base = entry.base.wrapping_add(index * span);
                let entry = LeafEntry { base, ..entry };
                if controls.is_ram(base, span) { Found { slot, raw, entry, ..self } } else { self }
            }
            // A block that is not uniform: one of the programmed translations will do.
            _ => self,
        }
    }

    /// The checks and updates at the leaf.
    fn finish<A: HwWalk>(
        self,
        words: &mut impl Words,
        controls: &Controls,
        rights: Rights,
        access: Access,
        stats: &mut WalkStats,
    ) -> Result<Leaf, FaultKind> {
        let Found { slot, raw, level, entry } = self;
        let hardware = controls.access_dirty == AccessDirty::Hardware;
        if !entry.accessed && !hardware {
            return Err(FaultKind::AccessFlag(level));
        }
        if controls.key_denies(entry.key, access) {
            return Err(FaultKind::ProtectionKey(level));
        }
        let rights = rights & entry.rights;
        if !rights.allow(access) {
            return Err(FaultKind::Permission(level));
        }
        let mut dirty = entry.dirty;
        let mut marked = raw;
        if hardware {
            marked = mark::<A>(words, slot, raw, EntryUse::Leaf(access), stats);
            if access == Access::Write {
                dirty = DirtyState::Dirty;
            }
        }
        let span = span_of(level);
        let reach = self.reach(words, controls, marked, span);
        Ok(Leaf {
            base: entry.base.align_down(reach.bytes()),
            reach,
            span,
            rights,
            dirty,
            scope: entry.scope,
            key: entry.key,
        })
    }

    /// What one TLB entry may cover: the contiguous block, a coalesced group, or the span.
    fn reach(&self, words: &impl Words, controls: &Controls, marked: u64, span: Reach) -> Reach {
        let block = |shift: u32| {
            let reach = u8::try_from(shift).ok().and_then(Reach::from_shift)?;
            let base = self.entry.base.align_down(reach.bytes());
            controls.is_ram(base, reach.bytes()).then_some(reach)
        };
        if self.entry.contiguous {
            if controls.contiguous == Contiguous::Ignored {
                return span;
            }
            return block(span.shift() + CONTIGUOUS_ENTRIES.ilog2()).unwrap_or(span);
        }
        match controls.coalesce {
            Some(group) if span == Reach::K4 && self.is_group(words, marked, group) => {
                block(group.shift()).unwrap_or(span)
            }
            _ => span,
        }
    }

    /// Whether the aligned group of `group` around the entry maps adjacent frames alike. Hardware
    /// compares entries of the cache line that it has loaded anyway, so no load is counted.
    fn is_group(&self, words: &impl Words, marked: u64, group: Reach) -> bool {
        let first = self.slot.align_down(group.pages() * 8);
        let index = (self.slot.get() - first.get()) / 8;
        let Some(head) = marked.checked_sub(index << units::PAGE_SHIFT) else { return false };
        let frame = self.entry.base.get() >> units::PAGE_SHIFT;
        frame % group.pages() == index
            && (0..group.pages()).all(|i| {
                let word = words.peek(first.wrapping_add(i * 8));
                i == index || word == head + (i << units::PAGE_SHIFT)
            })
    }
}

/// Descriptors of a contiguous block at either level (4 KiB granule).
const CONTIGUOUS_ENTRIES: u64 = 16;

/// What one entry of `level` spans; a PGD entry is never a leaf.
pub(crate) const fn span_of(level: TableLevel) -> Reach {
    match level {
        TableLevel::Pte => Reach::K4,
        TableLevel::Pmd => Reach::M2,
        TableLevel::Pud | TableLevel::Pgd => Reach::G1,
    }
}
