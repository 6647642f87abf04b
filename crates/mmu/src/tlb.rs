//! The TLBs of one CPU: an exact two-level model behind a small direct-mapped cache.
//!
//! [`CpuTlb::translate`] is the hot path. It compares one tag in a cache of 256 recent translations
//! per kind of access; a hit stores the access count into the *stamp* of the first-level way that
//! holds the translation, which is all that LRU and tree-PLRU need to know (`assoc.rs`), and
//! returns the physical address. The cache only ever holds translations that the first level holds
//! too, whose rights were checked for that kind of access; what leaves the first level leaves the
//! cache. A full flush is a new generation in the tags. Everything else is the slow path: first
//! level, second level, walk caches, walk, fill.
//!
//! Left out: prefetching, speculative fills, and timing.

use crate::assoc::{Cached, Key};
use crate::geometry::{Arrays, Geometry, OnDenial};
use crate::hit::{FAST_ENTRIES, Fast, HitPath, HitShape, HitTables, Stamps, WAY_MASK, fast_index};
use crate::level::{Displaced, Level, Match, Pages, Place};
use crate::spaces::{Held, Live, Spaces};
use crate::stats::{FlushKind, TlbStats};
use crate::walk::{
    Controls, DirtyState, HwWalk, LEVELS, Leaf, Rights, Scope, Start, Trail, WalkStats, walk,
};
use crate::{Access, Fault, FaultKind};
use arch::{PteChange, SwitchKind, TableLevel};
use events::Op;
use phys::Ram;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Debug;
use std::marker::PhantomData;
use units::{Asid, CpuId, PAGE_SHIFT, PhysAddr, Reach, VirtAddr};

/// Whether TLBs are modelled. A type, so that the hot path of each is bare.
pub trait Model: Debug + 'static {
    /// Whether the exact model stands behind the cache of translations.
    const EXACT: bool;
}

/// The exact model.
#[derive(Debug)]
pub enum Exact {}

/// Only the cache of translations, in front of walks: what an emulator without a TLB model does.
/// For measuring what the model costs.
#[derive(Debug)]
pub enum Untracked {}

impl Model for Exact {
    const EXACT: bool = true;
}
impl Model for Untracked {
    const EXACT: bool = false;
}

const GENERATION_SHIFT: u32 = 52;
const GENERATION_MAX: u64 = (1 << (64 - GENERATION_SHIFT)) - 2;

/// Empties the entries that point to `way`, which holds `key`.
#[inline]
fn clear_way(entries: &mut [Fast; FAST_ENTRIES], key: Key, way: u64) {
    let clear = |fast: &mut Fast| {
        if fast.page_way & WAY_MASK == way {
            *fast = Fast::EMPTY;
        }
    };
    match key.pages() {
        1 => clear(&mut entries[fast_index(key.first_page())]),
        pages if pages < FAST_ENTRIES as u64 => {
            for page in key.first_page()..key.first_page() + pages {
                clear(&mut entries[fast_index(page)]);
            }
        }
        _ => entries.iter_mut().for_each(clear),
    }
}

/// Removes the fast entries that point to an entry of a first level.
#[inline]
fn clear_fast(
    fast: &mut [[Fast; FAST_ENTRIES]; 3],
    first: [usize; 3],
    (level, entries): (usize, &mut Level),
    at: Place,
) {
    if !entries.entry(at).has(Cached::FAST) {
        return;
    }
    let (key, way) = (entries.key(at), entries.stamp_at(at) as u64);
    entries.entry_mut(at).flags &= !Cached::FAST;
    for (fast, first) in fast.iter_mut().zip(first) {
        if first == level {
            clear_way(fast, key, way);
        }
    }
}

/// A stale translation was used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StaleUse {
    /// Where.
    pub cpu: CpuId,
    /// The address.
    pub va: VirtAddr,
    /// What it was used for.
    pub access: Access,
    /// The op that changed the table entry and owed a flush.
    pub owed_by: Op,
}

impl std::fmt::Display for StaleUse {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let access = match self.access {
            Access::Read => "read",
            Access::Write => "wrote",
            Access::Exec => "fetched from",
        };
        write!(
            f,
            "CPU {} {access} {} through a TLB entry that {} changed in the page table and did not flush",
            self.cpu.index(),
            self.va,
            self.owed_by.name()
        )
    }
}

/// Which pages of an entry are stale, and whose fault it is.
#[derive(Clone, Copy, Debug)]
struct StaleMark {
    pages: Pages,
    owed_by: Op,
}

/// Stale uses kept word for word; the rest are only counted.
const STALE_USES_KEPT: usize = 256;

/// Which arrays an entry is in: one of the levels, or the walk caches.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Where {
    Tlb(usize),
    Walk,
}

/// Which walk-cache entries a flush takes along.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Tables {
    /// None.
    Keep,
    /// Those on the way to the addresses.
    Covering,
    /// All of the address space.
    All,
}

/// What the rights of a cached translation say to an access.
enum Verdict {
    Allowed,
    NeedsDirty,
    Denied(FaultKind),
}

/// A cached translation, for checks and dumps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CachedTranslation {
    /// Tag it was cached under.
    pub tag: Asid,
    /// First address it translates.
    pub va: VirtAddr,
    /// What it yields and allows.
    pub leaf: Leaf,
}

/// The TLBs, walk caches and walker of one CPU.
#[derive(Debug)]
pub struct CpuTlb<A, M = Exact> {
    /// Fast cache, stamps and clock.
    hit: HitTables,
    fetches: u64,
    data_accesses: u64,

    /// First-level TLBs, then second-level ones.
    levels: Vec<Level>,
    first_levels_nr: usize,
    /// Index of the first level by kind of access.
    first: [usize; 3],
    /// Index of the second level by kind of access.
    second: [Option<usize>; 3],
    walk_caches: Level,
    lower_stamps: Vec<u64>,
    lower_clock: u64,
    spaces: Spaces,

    cpu: CpuId,
    root: PhysAddr,
    tag: Asid,
    own: Match,
    controls: Controls,
    geometry: Geometry,
    stats: TlbStats,
    walk_stats: WalkStats,
    /// Accesses refused before any lookup, by kind.
    rejected: [u64; 3],
    found: Vec<Place>,
    /// Untracked: a leaf above 4 KiB is in the fast cache.
    untracked_large: bool,

    /// Address spaces by root, for the stale-use oracle.
    tags_of_root: BTreeSet<(PhysAddr, Asid)>,
    root_of_tag: BTreeMap<Asid, PhysAddr>,
    marks: BTreeMap<(Where, Place), StaleMark>,
    stale_uses: Vec<StaleUse>,
    marker: PhantomData<(A, M)>,
}

impl<A: HwWalk, M: Model> CpuTlb<A, M> {
    /// Empty TLBs. The root must be loaded ([`CpuTlb::switch`]) before the first translation.
    ///
    /// # Panics
    /// If the geometry does not pass [`Geometry::check`].
    pub fn new(cpu: CpuId, geometry: Geometry, controls: Controls) -> Self {
        geometry.check().expect("the geometry was checked");
        let spaces = Spaces::new();
        let mut cpu = CpuTlb {
            hit: HitTables::new(),
            fetches: 0,
            data_accesses: 0,
            levels: Vec::new(),
            first_levels_nr: 0,
            first: [0; 3],
            second: [None; 3],
            walk_caches: Level::new(Held::Table, &geometry.walk, &mut 0),
            lower_stamps: Vec::new(),
            lower_clock: 0,
            own: Match { own: spaces.global(), global: spaces.global() },
            spaces,
            cpu,
            root: PhysAddr::ZERO,
            tag: Asid::default(),
            controls,
            geometry,
            stats: TlbStats::default(),
            walk_stats: WalkStats::default(),
            rejected: [0; 3],
            found: Vec::new(),
            untracked_large: false,
            tags_of_root: BTreeSet::new(),
            root_of_tag: BTreeMap::new(),
            marks: BTreeMap::new(),
            stale_uses: Vec::new(),
            marker: PhantomData,
        };
        cpu.build();
        cpu.enter_space();
        cpu
    }

    /// Makes all arrays anew, empty.
    fn build(&mut self) {
        let Geometry { load, store, fetch, l2, l2_fetch, walk, .. } = &self.geometry;
        let (mut upper, mut lower) = (0, 0);
        let mut levels = vec![Level::new(Held::Leaf, load, &mut upper)];
        let mut own_level = |arrays: &Option<Arrays>| match arrays {
            Some(arrays) => {
                levels.push(Level::new(Held::Leaf, arrays, &mut upper));
                levels.len() - 1
            }
            None => 0,
        };
        self.first = [0, own_level(store), own_level(fetch)];
        self.first_levels_nr = levels.len();
        let mut second = None;
        if !l2.is_empty() {
            levels.push(Level::new(Held::Leaf, l2, &mut lower));
            second = Some(levels.len() - 1);
        }
        self.second = [second; 3];
        if let Some(arrays) = l2_fetch {
            levels.push(Level::new(Held::Leaf, arrays, &mut lower));
            self.second[Access::Exec as usize] = Some(levels.len() - 1);
        }
        self.walk_caches = Level::new(Held::Table, walk, &mut lower);
        self.levels = levels;
        self.lower_stamps = vec![0; lower];
    }

    // ---- the hot path

    /// Translates `va` for `access`, and counts the use. `access` should be a constant at the
    /// call: the function is inlined around it.
    ///
    /// Data accesses are counted by [`CpuTlb::count_accesses`], fetches here. Instruction
    /// addresses are translated once per block that begins on another page than the one before.
    /// An access that crosses a page boundary translates each page, and counts as two.
    ///
    /// # Errors
    /// The architectural fault. Nothing was changed but accessed bits of tables on the way.
    ///
    /// # Panics
    /// If no root was loaded and address 0 of RAM is no table.
    #[inline(always)]
    pub fn translate(
        &mut self,
        ram: &mut Ram,
        va: VirtAddr,
        access: Access,
    ) -> Result<PhysAddr, Fault> {
        if access as usize == Access::Exec as usize {
            self.fetches += 1;
        }
        let page = A::page_tag(va);
        let fast = self.hit.fast[access as usize][fast_index(page)];
        if fast.tag != page | self.hit.generation {
            return self.translate_slowly(ram, va, access);
        }
        if M::EXACT {
            self.hit.clock += 1;
            self.hit.stamps[(fast.page_way & WAY_MASK) as usize] = self.hit.clock;
        }
        Ok(PhysAddr::new(fast.page_way & !WAY_MASK | va.page_offset()))
    }

    /// [`CpuTlb::translate`] for a data access where the fast cache has the page; else `None`, with
    /// nothing done and nothing counted.
    #[inline(always)]
    pub fn translate_hit(&mut self, va: VirtAddr, access: Access) -> Option<PhysAddr> {
        let page = A::page_tag(va);
        let fast = self.hit.fast[access as usize][fast_index(page)];
        if fast.tag != page | self.hit.generation {
            return None;
        }
        if M::EXACT {
            self.hit.clock += 1;
            self.hit.stamps[(fast.page_way & WAY_MASK) as usize] = self.hit.clock;
        }
        Some(PhysAddr::new(fast.page_way & !WAY_MASK | va.page_offset()))
    }

    /// Counts `n` data accesses; negative if a block was left before all that were counted ahead
    /// were made.
    #[inline(always)]
    pub fn count_accesses(&mut self, n: i64) {
        self.data_accesses = self.data_accesses.wrapping_add_signed(n);
    }

    /// What the hit path is like.
    pub const HIT_SHAPE: HitShape = HitShape {
        stamps: if M::EXACT { Stamps::Kept } else { Stamps::None },
        va_bits: A::VA_BITS,
    };

    /// The hit path for native code, with the RAM it leads to.
    ///
    /// # Panics
    /// If `ram` is smaller than the walker was told.
    #[inline]
    pub fn hit_path(&mut self, ram: &mut Ram) -> HitPath<'_> {
        assert!(ram.len() >= self.controls.ram_bytes, "translations lead into RAM");
        self.hit.ram = ram.window();
        HitPath::new(&mut self.hit)
    }

    // ---- the slow path

    #[cold]
    #[inline(never)]
    fn translate_slowly(
        &mut self,
        ram: &mut Ram,
        va: VirtAddr,
        access: Access,
    ) -> Result<PhysAddr, Fault> {
        if let Err(kind) = A::input_address(va) {
            self.rejected[access as usize] += 1;
            return Err(Fault { va, access, kind });
        }
        if !M::EXACT {
            return self.translate_untracked(ram, va, access);
        }
        self.hit.clock += 1;
        let page = A::page_tag(va);
        let level = self.first[access as usize];
        let at = match self.levels[level].find(page, self.own) {
            Some(at) => {
                self.touch(level, at);
                at
            }
            None => self.refill(ram, va, access)?,
        };
        self.use_entry(ram, va, access, at)
    }

    /// Brings the translation into the first level, from the second or by a walk.
    fn refill(&mut self, ram: &mut Ram, va: VirtAddr, access: Access) -> Result<Place, Fault> {
        self.count_miss(access);
        let page = A::page_tag(va);
        let second = self.second[access as usize];
        let found =
            second.and_then(|level| Some((level, self.levels[level].find(page, self.own)?)));
        let mut mark = None;
        let leaf = match found {
            Some((level, at)) => {
                self.touch(level, at);
                self.check_stale(Where::Tlb(level), at, va, access);
                if self.levels[level].entry(at).has(Cached::STALE) {
                    mark = self.marks.get(&(Where::Tlb(level), at)).copied();
                }
                let leaf = self.leaf_at(level, at);
                self.stats.l2_hits += 1;
                self.stats.l2_fetch_hits += u64::from(access == Access::Exec);
                *self.stats.l2_hits_of(leaf.reach.shift()) += 1;
                leaf
            }
            None => {
                self.stats.l2_misses += 1;
                self.stats.l2_fetch_misses += u64::from(access == Access::Exec);
                let leaf = self.walk_tables(ram, va, access)?;
                if let Some(level) = second {
                    self.fill(level, page, &leaf);
                }
                leaf
            }
        };
        let first = self.first[access as usize];
        let at = self.fill(first, page, &leaf);
        let at = at.expect("first levels hold 4 KiB entries (`Geometry::check`)");
        if let Some(mark) = mark {
            mark_entry(&mut self.marks, Where::Tlb(first), at, &mut self.levels[first], mark);
        }
        Ok(at)
    }

    /// Uses a first-level entry: checks rights, updates the dirty state, makes it fast.
    fn use_entry(
        &mut self,
        ram: &mut Ram,
        va: VirtAddr,
        access: Access,
        at: Place,
    ) -> Result<PhysAddr, Fault> {
        let level = self.first[access as usize];
        self.check_stale(Where::Tlb(level), at, va, access);
        let at = match self.verdict(level, at, access) {
            Verdict::Allowed => at,
            Verdict::NeedsDirty => {
                self.stats.dirty_walks += 1;
                self.walk_again(ram, va, access)?
            }
            Verdict::Denied(_) if self.geometry.on_denial == OnDenial::Rewalk => {
                self.stats.denial_walks += 1;
                self.walk_again(ram, va, access)?
            }
            Verdict::Denied(kind) => {
                self.stats.tlb_denials += 1;
                self.drop_faulting(va);
                return Err(Fault { va, access, kind });
            }
        };
        Ok(self.make_fast(va, access, at))
    }

    fn verdict(&self, level: usize, at: Place, access: Access) -> Verdict {
        let entry = self.levels[level].entry(at);
        let leaf_level = || match entry.span {
            30.. => TableLevel::Pud,
            21.. => TableLevel::Pmd,
            _ => TableLevel::Pte,
        };
        if self.controls.key_denies(entry.key, access) {
            return Verdict::Denied(FaultKind::ProtectionKey(leaf_level()));
        }
        if !Rights::from_raw(entry.flags).allow(access) {
            return Verdict::Denied(FaultKind::Permission(leaf_level()));
        }
        if access == Access::Write && !entry.has(Cached::DIRTY) {
            return Verdict::NeedsDirty;
        }
        Verdict::Allowed
    }

    /// Replaces what is cached for `va` by what a new walk finds.
    fn walk_again(&mut self, ram: &mut Ram, va: VirtAddr, access: Access) -> Result<Place, Fault> {
        let leaf = self.walk_tables(ram, va, access)?;
        let page = A::page_tag(va);
        let (first, second) = (self.first[access as usize], self.second[access as usize]);
        for level in second.into_iter().chain([first]) {
            while let Some(at) = self.levels[level].find(page, self.own) {
                self.drop_entry(level, at);
            }
            self.fill(level, page, &leaf);
        }
        let at = self.levels[first].find(page, self.own);
        Ok(at.expect("the entry was just filled"))
    }

    /// Walks the tables, beginning below the deepest cached one, and fills the walk caches.
    fn walk_tables(&mut self, ram: &mut Ram, va: VirtAddr, access: Access) -> Result<Leaf, Fault> {
        let page = A::page_tag(va);
        let start = self.walk_start(va, access);
        let mut trail = Trail::default();
        let (controls, stats) = (&self.controls, &mut self.walk_stats);
        let result = walk::<A>(ram, controls, start, (va, access), &mut trail, stats);
        for (&level, table) in LEVELS.iter().zip(trail.tables) {
            if let Some((next, rights)) = table {
                self.fill_walk_cache(page, level, next, rights);
            }
        }
        match result {
            Ok(leaf) => *self.stats.walks_of(leaf.reach.shift()) += 1,
            Err(_) => self.drop_faulting(va),
        }
        result
    }

    fn walk_start(&mut self, va: VirtAddr, access: Access) -> Start {
        let Some(at) = self.walk_caches.find(A::page_tag(va), self.own) else {
            self.stats.walk_cache_misses += 1;
            return Start::root(self.root);
        };
        self.check_stale(Where::Walk, at, va, access);
        self.lower_clock += 1;
        self.lower_stamps[self.walk_caches.stamp_at(at)] = self.lower_clock;
        let entry = self.walk_caches.entry(at);
        let (hits, level) = match self.walk_caches.key(at).shift() {
            39 => (&mut self.stats.walk_cache_hits_l0, TableLevel::Pud),
            30 => (&mut self.stats.walk_cache_hits_l1, TableLevel::Pmd),
            _ => (&mut self.stats.walk_cache_hits_l2, TableLevel::Pte),
        };
        *hits += 1;
        Start { level, table: PhysAddr::new(entry.base), rights: Rights::from_raw(entry.flags) }
    }

    fn fill_walk_cache(&mut self, page: u64, level: TableLevel, next: PhysAddr, rights: Rights) {
        if self.walk_caches.reach_within(level.shift()) != Some(level.shift()) {
            return;
        }
        let key = Key::around(page, level.shift());
        let at = self.walk_caches.make_room(key, &self.lower_stamps, &self.spaces, self.own.own);
        let entry =
            Cached { base: next.get(), tag: self.tag, key: 0, flags: rights.raw(), span: 0 };
        let displaced = self.walk_caches.write(at, key, self.own.own, entry, &mut self.spaces);
        self.lower_clock += 1;
        self.lower_stamps[self.walk_caches.stamp_at(at)] = self.lower_clock;
        self.stats.walk_cache_inserts += 1;
        self.stats.walk_cache_evictions += u64::from(displaced == Displaced::Entry);
    }

    /// Caches `leaf`, or the piece of it around `page`, in a level; `None` if it does not hold such.
    fn fill(&mut self, level: usize, page: u64, leaf: &Leaf) -> Option<Place> {
        let into = &mut self.levels[level];
        let shift = into.reach_within(leaf.reach.shift())?;
        let is_first = level < self.first_levels_nr;
        if shift < leaf.span.shift() && !is_first {
            return None;
        }
        let (stamps, now) = if is_first {
            (&mut self.hit.stamps[..], self.hit.clock)
        } else {
            self.lower_clock += 1;
            (&mut self.lower_stamps[..], self.lower_clock)
        };
        let key = Key::around(page, shift);
        let at = into.make_room(key, stamps, &self.spaces, self.own.own);
        if is_first {
            clear_fast(&mut self.hit.fast, self.first, (level, into), at);
        }
        let (space, scope) = match leaf.scope {
            Scope::Global => (self.own.global, Cached::GLOBAL),
            Scope::AddressSpace => (self.own.own, 0),
        };
        let dirty = if leaf.dirty == DirtyState::Dirty { Cached::DIRTY } else { 0 };
        let offset = (page << PAGE_SHIFT) & (leaf.reach.bytes() - 1) & !((1 << shift) - 1);
        let entry = Cached {
            base: leaf.base.get() + offset,
            tag: self.tag,
            key: leaf.key,
            flags: leaf.rights.raw() | dirty | scope,
            span: leaf.span.shift().to_le_bytes()[0],
        };
        let displaced = into.write(at, key, space, entry, &mut self.spaces);
        stamps[into.stamp_at(at)] = now;
        self.count_fill(level, displaced);
        Some(at)
    }

    #[inline]
    fn touch(&mut self, level: usize, at: Place) {
        let stamp_at = self.levels[level].stamp_at(at);
        if level < self.first_levels_nr {
            self.hit.stamps[stamp_at] = self.hit.clock;
        } else {
            self.lower_clock += 1;
            self.lower_stamps[stamp_at] = self.lower_clock;
        }
    }

    fn leaf_at(&self, level: usize, at: Place) -> Leaf {
        leaf_of(self.levels[level].key(at), self.levels[level].entry(at))
    }

    fn count_miss(&mut self, access: Access) {
        match access {
            Access::Read => self.stats.l1d_read_misses += 1,
            Access::Write => self.stats.l1d_write_misses += 1,
            Access::Exec => self.stats.l1i_misses += 1,
        }
    }

    fn count_fill(&mut self, level: usize, displaced: Displaced) {
        let evicted = u64::from(displaced == Displaced::Entry);
        let stats = &mut self.stats;
        let (inserts, evictions) = if level >= self.first_levels_nr {
            (&mut stats.l2_inserts, &mut stats.l2_evictions)
        } else if level == self.first[Access::Exec as usize] && level != 0 {
            (&mut stats.l1i_inserts, &mut stats.l1i_evictions)
        } else {
            (&mut stats.l1d_inserts, &mut stats.l1d_evictions)
        };
        *inserts += 1;
        *evictions += evicted;
    }

    // ---- the fast cache

    /// Makes a first-level entry, checked for `access`, ready to use, and yields the address.
    fn make_fast(&mut self, va: VirtAddr, access: Access, at: Place) -> PhysAddr {
        let level = &mut self.levels[self.first[access as usize]];
        let way = level.stamp_at(at) as u64;
        let offset = va.get() & ((1 << level.key(at).shift()) - 1);
        let entry = level.entry_mut(at);
        let pa = PhysAddr::new(entry.base + offset);
        if !entry.has(Cached::STALE) {
            entry.flags |= Cached::FAST;
            let page = A::page_tag(va);
            self.hit.fast[access as usize][fast_index(page)] =
                Fast { tag: page | self.hit.generation, page_way: pa.pfn().addr().get() | way };
        }
        pa
    }

    /// Empties the fast cache.
    fn new_generation(&mut self) {
        if self.hit.generation >> GENERATION_SHIFT >= GENERATION_MAX {
            self.hit.fast = [[Fast::EMPTY; FAST_ENTRIES]; 3];
            self.hit.generation = 0;
        } else {
            self.hit.generation += 1 << GENERATION_SHIFT;
        }
        self.untracked_large = false;
    }

    #[cold]
    fn translate_untracked(
        &mut self,
        ram: &mut Ram,
        va: VirtAddr,
        access: Access,
    ) -> Result<PhysAddr, Fault> {
        let (mut trail, start) = (Trail::default(), Start::root(self.root));
        let (controls, stats) = (&self.controls, &mut self.walk_stats);
        let leaf = walk::<A>(ram, controls, start, (va, access), &mut trail, stats)?;
        self.untracked_large |= leaf.reach != Reach::K4;
        let pa = leaf.translate(VirtAddr::new(A::page_tag(va) << PAGE_SHIFT | va.page_offset()));
        let page = A::page_tag(va);
        self.hit.fast[access as usize][fast_index(page)] =
            Fast { tag: page | self.hit.generation, page_way: pa.pfn().addr().get() };
        Ok(pa)
    }

    fn drop_untracked(&mut self, pages: Pages) {
        if self.untracked_large || pages.count > FAST_ENTRIES as u64 {
            return self.new_generation();
        }
        for page in pages.first..pages.first + pages.count {
            for entries in self.hit.fast.iter_mut() {
                let fast = &mut entries[fast_index(page)];
                if fast.tag == page | self.hit.generation {
                    *fast = Fast::EMPTY;
                }
            }
        }
    }

    // ---- switching and flushing

    /// Loads the root `root`, tagged `tag` (CR3, TTBR0_EL1).
    pub fn switch(&mut self, root: PhysAddr, tag: Asid, kind: SwitchKind) {
        if kind == SwitchKind::Flush {
            let live = self.spaces.flush(tag);
            self.count_flush(FlushKind::Switch, live);
        }
        self.remember_root(root, tag);
        self.root = root;
        self.tag = tag;
        self.enter_space();
    }

    /// Takes up the number of the current tag, and empties the fast cache.
    fn enter_space(&mut self) {
        if self.spaces.exhausted() {
            self.build();
            self.spaces = Spaces::new();
            self.marks.clear();
        }
        self.own = Match { own: self.spaces.id(self.tag), global: self.spaces.global() };
        self.new_generation();
    }

    /// The spaces that a flush by `tag` matches: non-global entries, or global ones as well.
    pub(crate) fn matching(&self, tag: Asid, scope: Scope) -> Match {
        let own = self.spaces.existing(tag);
        let global = if scope == Scope::Global { self.own.global } else { own };
        Match { own, global }
    }

    /// Drops what translates any of `pages` for the given spaces.
    pub(crate) fn flush_pages(
        &mut self,
        kind: FlushKind,
        (va, count): (VirtAddr, u64),
        spaces: Match,
        tables: Tables,
    ) {
        let pages = Pages { first: A::page_tag(va), count };
        if !M::EXACT {
            return self.drop_untracked(pages);
        }
        let live = self.drop_pages(pages, spaces, tables);
        self.count_flush(kind, live);
    }

    fn drop_pages(&mut self, pages: Pages, spaces: Match, tables: Tables) -> Live {
        let mut live = Live::default();
        let mut found = std::mem::take(&mut self.found);
        for level in 0..self.levels.len() {
            self.levels[level].overlapping(pages, spaces, &mut found);
            for &at in &found {
                live.leaves += u64::from(self.drop_entry(level, at) == Displaced::Entry);
            }
        }
        match tables {
            Tables::Keep => found.clear(),
            Tables::Covering => self.walk_caches.overlapping(pages, spaces, &mut found),
            Tables::All => self.walk_caches.of_space(spaces.own, &mut found),
        }
        for &at in &found {
            let displaced = self.walk_caches.erase(at, &mut self.spaces);
            live.tables += u64::from(displaced == Displaced::Entry);
        }
        self.found = found;
        live
    }

    fn drop_entry(&mut self, level: usize, at: Place) -> Displaced {
        let from = &mut self.levels[level];
        if level < self.first_levels_nr {
            clear_fast(&mut self.hit.fast, self.first, (level, from), at);
        }
        from.erase(at, &mut self.spaces)
    }

    /// A page fault at `va` drops what was used for it, on x86-64.
    fn drop_faulting(&mut self, va: VirtAddr) {
        if !A::FAULT_DROPS_ENTRIES {
            return;
        }
        let pages = Pages { first: A::page_tag(va), count: 1 };
        let live = self.drop_pages(pages, self.own, Tables::Covering);
        self.count_flush(FlushKind::PageFault, live);
    }

    /// Drops the non-global entries of `tag`.
    pub(crate) fn flush_tag(&mut self, kind: FlushKind, tag: Asid) {
        let live = self.spaces.flush(tag);
        self.count_flush(kind, live);
        if tag == self.tag || self.spaces.exhausted() {
            self.enter_space();
        }
    }

    /// Drops everything.
    pub(crate) fn flush_all(&mut self, kind: FlushKind) {
        let live = self.spaces.flush_all();
        self.count_flush(kind, live);
        self.enter_space();
    }

    pub(crate) fn tag(&self) -> Asid {
        self.tag
    }

    fn count_flush(&mut self, kind: FlushKind, live: Live) {
        let stats = &mut self.stats.flushes[kind as usize];
        stats.ops += 1;
        stats.entries += live.leaves;
        stats.walk_entries += live.tables;
    }

    // ---- control registers and statistics

    /// x86-64 WRPKRU. Rights in the fast cache are judged anew.
    pub fn set_pkru(&mut self, pkru: u32) {
        if pkru != self.controls.pkru {
            self.controls.pkru = pkru;
            self.new_generation();
        }
    }

    /// What the walker looks at beside the tables.
    pub fn controls(&self) -> &Controls {
        &self.controls
    }

    /// The root that is loaded.
    pub fn root(&self) -> PhysAddr {
        self.root
    }

    /// The walker's counters so far.
    pub fn walk_stats(&self) -> WalkStats {
        self.walk_stats
    }

    /// The counters so far.
    pub fn stats(&self) -> TlbStats {
        let mut stats = self.stats;
        stats.data_accesses = self.data_accesses;
        stats.fetches = self.fetches;
        stats.l1d_misses = stats.l1d_read_misses + stats.l1d_write_misses;
        let [read, write, exec] = self.rejected;
        stats.l1d_hits = self.data_accesses.saturating_sub(stats.l1d_misses + read + write);
        stats.l1i_hits = self.fetches.saturating_sub(stats.l1i_misses + exec);
        let walks = &self.walk_stats;
        stats.walks = walks.walks;
        stats.walk_faults = walks.faults;
        stats.walk_loads = walks.loads_total();
        [stats.walk_loads_l0, stats.walk_loads_l1, stats.walk_loads_l2, stats.walk_loads_l3] =
            walks.loads;
        stats.accessed_writes = walks.accessed_writes;
        stats.dirty_writes = walks.dirty_writes;
        stats
    }

    /// Everything cached in the TLBs and valid, level by level.
    pub fn cached(&self) -> impl Iterator<Item = CachedTranslation> + '_ {
        self.levels.iter().flat_map(|level| level.live(&self.spaces)).map(|(key, tag, entry)| {
            let va = VirtAddr::new(key.first_page() << PAGE_SHIFT);
            CachedTranslation { tag, va, leaf: leaf_of(key, &entry) }
        })
    }

    // ---- the stale-use oracle

    fn remember_root(&mut self, root: PhysAddr, tag: Asid) {
        if let Some(old) = self.root_of_tag.insert(tag, root) {
            self.tags_of_root.remove(&(old, tag));
        }
        self.tags_of_root.insert((root, tag));
    }

    /// Marks cached copies of a changed entry.
    pub(crate) fn mark_stale(&mut self, change: &PteChange) {
        let pages = Pages { first: A::page_tag(change.va), count: change.reach.pages() };
        let mark = StaleMark { pages, owed_by: change.owed_by };
        let tags = (change.root, Asid::new(0))..=(change.root, Asid::new(u16::MAX));
        let tags: Vec<Asid> = self.tags_of_root.range(tags).map(|&(_, tag)| tag).collect();
        let mut found = std::mem::take(&mut self.found);
        for tag in tags {
            let spaces = self.matching(tag, Scope::Global);
            for level in 0..self.levels.len() {
                self.levels[level].overlapping(pages, spaces, &mut found);
                for &at in &found {
                    let marked = &mut self.levels[level];
                    if level < self.first_levels_nr {
                        clear_fast(&mut self.hit.fast, self.first, (level, marked), at);
                    }
                    mark_entry(&mut self.marks, Where::Tlb(level), at, marked, mark);
                }
            }
            self.walk_caches.overlapping(pages, spaces, &mut found);
            for &at in &found {
                let key = self.walk_caches.key(at);
                if pages.contains(key.first_page()) && pages.count >= key.pages() {
                    mark_entry(&mut self.marks, Where::Walk, at, &mut self.walk_caches, mark);
                }
            }
        }
        self.found = found;
    }

    /// Reports the use of an entry that is stale for `va`, once.
    #[inline]
    fn check_stale(&mut self, place: Where, at: Place, va: VirtAddr, access: Access) {
        if !self.marks.is_empty() {
            self.report_stale(place, at, va, access);
        }
    }

    fn report_stale(&mut self, place: Where, at: Place, va: VirtAddr, access: Access) {
        let level = match place {
            Where::Tlb(level) => &mut self.levels[level],
            Where::Walk => &mut self.walk_caches,
        };
        if !level.entry(at).has(Cached::STALE) {
            return;
        }
        let Some(mark) = self.marks.get(&(place, at)) else { return };
        if !mark.pages.contains(A::page_tag(va)) {
            return;
        }
        self.stats.stale_uses += 1;
        if self.stale_uses.len() < STALE_USES_KEPT {
            let (cpu, owed_by) = (self.cpu, mark.owed_by);
            self.stale_uses.push(StaleUse { cpu, va, access, owed_by });
        }
        level.entry_mut(at).flags &= !Cached::STALE;
        self.marks.remove(&(place, at));
    }

    pub(crate) fn take_stale_uses(&mut self) -> Vec<StaleUse> {
        std::mem::take(&mut self.stale_uses)
    }
}

/// Marks one entry; marks of several changes merge into one range, owed by the last.
fn mark_entry(
    marks: &mut BTreeMap<(Where, Place), StaleMark>,
    place: Where,
    at: Place,
    level: &mut Level,
    mut mark: StaleMark,
) {
    if level.entry(at).has(Cached::STALE)
        && let Some(old) = marks.get(&(place, at))
    {
        let first = mark.pages.first.min(old.pages.first);
        let end = (mark.pages.first + mark.pages.count).max(old.pages.first + old.pages.count);
        mark.pages = Pages { first, count: end - first };
    }
    level.entry_mut(at).flags |= Cached::STALE;
    marks.insert((place, at), mark);
}

fn leaf_of(key: Key, entry: &Cached) -> Leaf {
    let reach = |shift: u32| u8::try_from(shift).ok().and_then(Reach::from_shift);
    let held = reach(key.shift()).expect("TLBs hold reaches");
    Leaf {
        base: PhysAddr::new(entry.base),
        reach: held,
        span: reach(u32::from(entry.span)).unwrap_or(held),
        rights: Rights::from_raw(entry.flags),
        dirty: if entry.has(Cached::DIRTY) { DirtyState::Dirty } else { DirtyState::Clean },
        scope: if entry.has(Cached::GLOBAL) { Scope::Global } else { Scope::AddressSpace },
        key: entry.key,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Machine;
    use arch::X86_64;

    #[test]
    fn running_out_of_space_numbers_erases_everything_and_goes_on() {
        let ram_bytes = 1 << 20;
        let mut ram = Ram::new(ram_bytes).expect("a megabyte");
        for (slot, word) in [(0x1000, 0x2007), (0x2000, 0x3007), (0x3000, 0x4007)] {
            ram.store_u64(PhysAddr::new(slot), word);
        }
        ram.store_u64(PhysAddr::new(0x4008), 0x5067);
        let machine = Machine::by_name("skylake").expect("a preset");
        let controls = machine.controls(ram_bytes);
        let mut cpu = CpuTlb::<X86_64>::new(CpuId::new(0), machine.geometry, controls);
        cpu.switch(PhysAddr::new(0x1000), Asid::new(1), SwitchKind::Keep);
        cpu.spaces.use_up();
        for round in 0..20u64 {
            let va = VirtAddr::new(0x1000 + round);
            let pa = cpu.translate(&mut ram, va, Access::Read);
            assert_eq!(pa, Ok(PhysAddr::new(0x5000 + round)));
            assert_eq!(cpu.cached().count(), 2, "one translation, at both levels");
            match round % 2 {
                0 => cpu.flush_tag(FlushKind::Cr3Reload, Asid::new(1)),
                _ => cpu.flush_all(FlushKind::InvpcidAll),
            }
            assert_eq!(cpu.cached().count(), 0);
        }
        assert_eq!(cpu.stats().walks, 20);
    }
}
