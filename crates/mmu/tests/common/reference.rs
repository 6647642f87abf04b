//! The slow TLB model: plain vectors, entries with the time of their last use, tree bits where a
//! tree is called for, flushes by looking at everything. It shares the walker with the fast
//! model (which has tests of its own) and nothing else.

#![expect(clippy::cast_possible_truncation, reason = "sets, ways and shifts are small")]

use arch::{Broadcast, LeafOnly, SwitchKind, TableLevel, TlbOp};
use mmu::{
    Access, ArrayGeometry, Controls, Covers, DirtyState, Fault, FaultKind, FlushKind, Geometry,
    HwWalk, Leaf, OnDenial, Policy, Rights, Scope, Start, TlbStats, Trail, WalkStats, walk,
};
use phys::Ram;
use std::collections::BTreeMap;
use std::marker::PhantomData;
use units::{Asid, PhysAddr, Reach, VirtAddr};

#[derive(Clone, Copy, Debug)]
enum What {
    Leaf(Leaf),
    Table(PhysAddr, Rights),
}

#[derive(Clone, Copy, Debug)]
struct Entry {
    first_page: u64,
    shift: u32,
    tag: Asid,
    global: bool,
    what: What,
    used: u64,
}

impl Entry {
    fn matches(&self, tag: Asid, with_global: bool) -> bool {
        if self.global { with_global } else { self.tag == tag }
    }
    /// The pages of the leaf that the entry is made of, wholly or a piece.
    fn pages(&self) -> (u64, u64) {
        let shift = match self.what {
            What::Leaf(leaf) => self.shift.max(leaf.span.shift()),
            What::Table(..) => self.shift,
        };
        let pages = 1 << (shift - 12);
        (self.first_page / pages * pages, pages)
    }
    fn overlaps(&self, first: u64, count: u64) -> bool {
        let (at, pages) = self.pages();
        at < first + count && first < at + pages
    }
}

struct Array {
    shifts: Vec<u32>,
    policy: Policy,
    sets: Vec<Vec<Option<Entry>>>,
    /// Per set: whether the right half of a node was used longer ago.
    trees: Vec<BTreeMap<(usize, usize), bool>>,
}

impl Array {
    fn new<T: Covers>(geometry: &ArrayGeometry<T>) -> Array {
        let sets = (geometry.entries / geometry.ways) as usize;
        Array {
            shifts: geometry.holds.iter().map(|h| h.shift()).collect(),
            policy: geometry.policy,
            sets: vec![vec![None; geometry.ways as usize]; sets],
            trees: vec![BTreeMap::new(); sets],
        }
    }

    fn touch(&mut self, set: usize, way: usize, now: u64) {
        self.sets[set][way].as_mut().expect("touched entries exist").used = now;
        let (mut first, mut len) = (0, self.sets[set].len());
        while len > 1 {
            let mut left = 1;
            while left * 2 < len {
                left *= 2;
            }
            let went_left = way < first + left;
            self.trees[set].insert((first, len), went_left);
            if went_left {
                len = left;
            } else {
                first += left;
                len -= left;
            }
        }
    }

    fn victim(&self, set: usize) -> usize {
        let ways = &self.sets[set];
        if let Some(empty) = ways.iter().position(Option::is_none) {
            return empty;
        }
        if self.policy == Policy::Lru {
            let oldest = ways.iter().flatten().map(|e| e.used).min();
            return ways.iter().position(|e| e.map(|e| e.used) == oldest).expect("a minimum");
        }
        let (mut first, mut len) = (0, ways.len());
        while len > 1 {
            let mut left = 1;
            while left * 2 < len {
                left *= 2;
            }
            if self.trees[set].get(&(first, len)).copied().unwrap_or(false) {
                first += left;
                len -= left;
            } else {
                len = left;
            }
        }
        first
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct At {
    array: usize,
    set: usize,
    way: usize,
}

struct Level {
    arrays: Vec<Array>,
}

impl Level {
    fn new<T: Covers>(geometry: &[ArrayGeometry<T>]) -> Level {
        Level { arrays: geometry.iter().map(Array::new).collect() }
    }

    fn shifts(&self) -> Vec<u32> {
        let mut shifts: Vec<u32> = self.arrays.iter().flat_map(|a| a.shifts.clone()).collect();
        shifts.sort_unstable();
        shifts.dedup();
        shifts
    }

    fn home(&self, page: u64, shift: u32) -> (usize, usize) {
        let holding: Vec<usize> =
            (0..self.arrays.len()).filter(|&a| self.arrays[a].shifts.contains(&shift)).collect();
        let unit = page >> (shift - 12);
        let turns = holding.len() as u64;
        let array = holding[(unit % turns) as usize];
        (array, (unit / turns % self.arrays[array].sets.len() as u64) as usize)
    }

    /// The entry for `page`: of the smallest reach, and of two of one reach the one that is not
    /// global.
    fn find(&self, page: u64, tag: Asid) -> Option<(At, Entry)> {
        for shift in self.shifts() {
            let (array, set) = self.home(page, shift);
            let first_page = page >> (shift - 12) << (shift - 12);
            let ways = self.arrays[array].sets[set].iter().enumerate();
            let found = ways
                .filter_map(|(way, entry)| Some((At { array, set, way }, (*entry)?)))
                .filter(|(_, entry)| entry.shift == shift && entry.first_page == first_page)
                .filter(|(_, entry)| entry.matches(tag, true))
                .min_by_key(|(_, entry)| entry.global);
            if found.is_some() {
                return found;
            }
        }
        None
    }

    fn touch(&mut self, at: At, now: u64) {
        self.arrays[at.array].touch(at.set, at.way, now);
    }

    /// Returns whether a valid entry was evicted.
    fn insert(&mut self, entry: Entry, now: u64) -> bool {
        let (array, set) = self.home(entry.first_page, entry.shift);
        let way = self.arrays[array].victim(set);
        let evicted = self.arrays[array].sets[set][way].replace(entry).is_some();
        self.arrays[array].touch(set, way, now);
        evicted
    }

    /// Drops the entries that `gone` picks; says how many.
    fn drop_if(&mut self, gone: impl Fn(&Entry) -> bool) -> u64 {
        let mut dropped = 0;
        for slot in self.arrays.iter_mut().flat_map(|a| a.sets.iter_mut()).flatten() {
            if slot.as_ref().is_some_and(&gone) {
                *slot = None;
                dropped += 1;
            }
        }
        dropped
    }
}

/// One CPU of the slow model.
pub struct ReferenceCpu<A> {
    levels: Vec<Level>,
    firsts_nr: usize,
    first: [usize; 3],
    second: [Option<usize>; 3],
    walk_caches: Level,
    on_denial: OnDenial,
    controls: Controls,
    root: PhysAddr,
    tag: Asid,
    now: u64,
    stats: TlbStats,
    walks: WalkStats,
    marker: PhantomData<A>,
}

enum Verdict {
    Allowed,
    NeedsDirty,
    Denied(FaultKind),
}

fn level_of(leaf: &Leaf) -> TableLevel {
    match leaf.span {
        Reach::G1 => TableLevel::Pud,
        Reach::M2 => TableLevel::Pmd,
        _ => TableLevel::Pte,
    }
}

impl<A: HwWalk> ReferenceCpu<A> {
    pub fn new(geometry: &Geometry, controls: Controls) -> Self {
        let mut levels = vec![Level::new(&geometry.load)];
        let mut first = [0; 3];
        for (access, arrays) in [(1, &geometry.store), (2, &geometry.fetch)] {
            if let Some(arrays) = arrays {
                first[access] = levels.len();
                levels.push(Level::new(arrays));
            }
        }
        let firsts_nr = levels.len();
        let mut second = [None; 3];
        if !geometry.l2.is_empty() {
            second = [Some(levels.len()); 3];
            levels.push(Level::new(&geometry.l2));
        }
        if let Some(arrays) = &geometry.l2_fetch {
            second[2] = Some(levels.len());
            levels.push(Level::new(arrays));
        }
        ReferenceCpu {
            levels,
            firsts_nr,
            first,
            second,
            walk_caches: Level::new(&geometry.walk),
            on_denial: geometry.on_denial,
            controls,
            root: PhysAddr::ZERO,
            tag: Asid::default(),
            now: 0,
            stats: TlbStats::default(),
            walks: WalkStats::default(),
            marker: PhantomData,
        }
    }

    pub fn stats(&self) -> TlbStats {
        let mut stats = self.stats;
        stats.l1d_misses = stats.l1d_read_misses + stats.l1d_write_misses;
        stats.walks = self.walks.walks;
        stats.walk_faults = self.walks.faults;
        stats.walk_loads = self.walks.loads.iter().sum();
        [stats.walk_loads_l0, stats.walk_loads_l1, stats.walk_loads_l2, stats.walk_loads_l3] =
            self.walks.loads;
        stats.accessed_writes = self.walks.accessed_writes;
        stats.dirty_writes = self.walks.dirty_writes;
        stats
    }

    /// What is in the TLBs: tag, first page, shift, by level.
    pub fn cached(&self) -> Vec<(u16, u64, u32, Leaf)> {
        let slots =
            self.levels.iter().flat_map(|l| &l.arrays).flat_map(|a| a.sets.iter().flatten());
        let leaves = slots.flatten().filter_map(|e| match e.what {
            What::Leaf(leaf) => Some((e.tag.get(), e.first_page, e.shift, leaf)),
            What::Table(..) => None,
        });
        leaves.collect()
    }

    fn tick(&mut self) -> u64 {
        self.now += 1;
        self.now
    }

    pub fn translate(
        &mut self,
        ram: &mut Ram,
        va: VirtAddr,
        access: Access,
    ) -> Result<PhysAddr, Fault> {
        let fault = |kind| Fault { va, access, kind };
        match access {
            Access::Exec => self.stats.fetches += 1,
            _ => self.stats.data_accesses += 1,
        }
        let input = A::input_address(va).map_err(fault)?;
        let page = input.get() >> 12;
        let level = self.first[access as usize];
        if let Some((at, _)) = self.levels[level].find(page, self.tag) {
            let now = self.tick();
            self.levels[level].touch(at, now);
            *self.l1_hits(access) += 1;
        } else {
            match access {
                Access::Read => self.stats.l1d_read_misses += 1,
                Access::Write => self.stats.l1d_write_misses += 1,
                Access::Exec => self.stats.l1i_misses += 1,
            }
            let leaf = self.beyond_first(ram, va, page, access)?;
            self.fill(level, page, &leaf);
        }
        let leaf = self.first_level_leaf(level, page);
        match self.verdict(&leaf, access) {
            Verdict::Allowed => {}
            Verdict::NeedsDirty => {
                self.stats.dirty_walks += 1;
                self.walk_again(ram, va, page, access)?;
            }
            Verdict::Denied(_) if self.on_denial == OnDenial::Rewalk => {
                self.stats.denial_walks += 1;
                self.walk_again(ram, va, page, access)?;
            }
            Verdict::Denied(kind) => {
                self.stats.tlb_denials += 1;
                self.page_fault(page);
                return Err(fault(kind));
            }
        }
        Ok(self.first_level_leaf(level, page).translate(input))
    }

    fn first_level_leaf(&self, level: usize, page: u64) -> Leaf {
        match self.levels[level].find(page, self.tag) {
            Some((_, Entry { what: What::Leaf(leaf), .. })) => leaf,
            other => panic!("no first-level entry after a fill: {other:?}"),
        }
    }

    fn l1_hits(&mut self, access: Access) -> &mut u64 {
        match access {
            Access::Exec => &mut self.stats.l1i_hits,
            _ => &mut self.stats.l1d_hits,
        }
    }

    fn beyond_first(
        &mut self,
        ram: &mut Ram,
        va: VirtAddr,
        page: u64,
        access: Access,
    ) -> Result<Leaf, Fault> {
        let is_fetch = u64::from(access == Access::Exec);
        let second = self.second[access as usize];
        if let Some(level) = second
            && let Some((at, Entry { what: What::Leaf(leaf), shift, .. })) =
                self.levels[level].find(page, self.tag)
        {
            let now = self.tick();
            self.levels[level].touch(at, now);
            self.stats.l2_hits += 1;
            self.stats.l2_fetch_hits += is_fetch;
            match shift {
                12 => self.stats.l2_hits_4k += 1,
                14 => self.stats.l2_hits_16k += 1,
                16 => self.stats.l2_hits_64k += 1,
                21 => self.stats.l2_hits_2m += 1,
                25 => self.stats.l2_hits_32m += 1,
                _ => self.stats.l2_hits_1g += 1,
            }
            return Ok(leaf);
        }
        self.stats.l2_misses += 1;
        self.stats.l2_fetch_misses += is_fetch;
        let leaf = self.walk(ram, va, page, access)?;
        if let Some(level) = second {
            self.fill(level, page, &leaf);
        }
        Ok(leaf)
    }

    fn walk(
        &mut self,
        ram: &mut Ram,
        va: VirtAddr,
        page: u64,
        access: Access,
    ) -> Result<Leaf, Fault> {
        let mut start = Start::root(self.root);
        match self.walk_caches.find(page, self.tag) {
            Some((at, Entry { what: What::Table(table, rights), shift, .. })) => {
                let now = self.tick();
                self.walk_caches.touch(at, now);
                let level = match shift {
                    39 => TableLevel::Pud,
                    30 => TableLevel::Pmd,
                    _ => TableLevel::Pte,
                };
                match shift {
                    39 => self.stats.walk_cache_hits_l0 += 1,
                    30 => self.stats.walk_cache_hits_l1 += 1,
                    _ => self.stats.walk_cache_hits_l2 += 1,
                }
                start = Start { level, table, rights };
            }
            _ => self.stats.walk_cache_misses += 1,
        }
        let mut trail = Trail::default();
        let result =
            walk::<A>(ram, &self.controls, start, (va, access), &mut trail, &mut self.walks);
        for (table, shift) in trail.tables.into_iter().zip([39, 30, 21]) {
            let Some((next, rights)) = table else { continue };
            if !self.walk_caches.shifts().contains(&shift) {
                continue;
            }
            let now = self.tick();
            let entry = Entry {
                first_page: page >> (shift - 12) << (shift - 12),
                shift,
                tag: self.tag,
                global: false,
                what: What::Table(next, rights),
                used: now,
            };
            self.stats.walk_cache_inserts += 1;
            self.stats.walk_cache_evictions += u64::from(self.walk_caches.insert(entry, now));
        }
        match &result {
            Err(_) => self.page_fault(page),
            Ok(leaf) => match leaf.reach {
                Reach::K4 => self.stats.walks_4k += 1,
                Reach::K16 => self.stats.walks_16k += 1,
                Reach::K64 => self.stats.walks_64k += 1,
                Reach::M2 => self.stats.walks_2m += 1,
                Reach::M32 => self.stats.walks_32m += 1,
                _ => self.stats.walks_1g += 1,
            },
        }
        result
    }

    fn walk_again(
        &mut self,
        ram: &mut Ram,
        va: VirtAddr,
        page: u64,
        access: Access,
    ) -> Result<(), Fault> {
        let leaf = self.walk(ram, va, page, access)?;
        let tag = self.tag;
        for level in self.second[access as usize].into_iter().chain([self.first[access as usize]]) {
            self.levels[level].drop_if(|e| {
                let covers = (e.first_page..e.first_page + (1 << (e.shift - 12))).contains(&page);
                e.matches(tag, true) && covers
            });
            self.fill(level, page, &leaf);
        }
        Ok(())
    }

    fn fill(&mut self, level: usize, page: u64, leaf: &Leaf) {
        let held = self.levels[level].shifts();
        let shift = held.into_iter().filter(|&s| s <= leaf.reach.shift()).max();
        let Some(shift) = shift.filter(|&s| s >= leaf.span.shift() || level < self.firsts_nr)
        else {
            return;
        };
        let first_page = page >> (shift - 12) << (shift - 12);
        let piece = Leaf {
            base: leaf.translate(VirtAddr::new(first_page << 12)),
            reach: Reach::from_shift(shift as u8).expect("a reach"),
            ..*leaf
        };
        let now = self.tick();
        let entry = Entry {
            first_page,
            shift,
            tag: self.tag,
            global: leaf.scope == Scope::Global,
            what: What::Leaf(piece),
            used: now,
        };
        let evicted = u64::from(self.levels[level].insert(entry, now));
        let (inserts, evictions) = if level >= self.firsts_nr {
            (&mut self.stats.l2_inserts, &mut self.stats.l2_evictions)
        } else if level != 0 && level == self.first[2] {
            (&mut self.stats.l1i_inserts, &mut self.stats.l1i_evictions)
        } else {
            (&mut self.stats.l1d_inserts, &mut self.stats.l1d_evictions)
        };
        *inserts += 1;
        *evictions += evicted;
    }

    fn verdict(&self, leaf: &Leaf, access: Access) -> Verdict {
        if self.controls.key_denies(leaf.key, access) {
            return Verdict::Denied(FaultKind::ProtectionKey(level_of(leaf)));
        }
        if !leaf.rights.allow(access) {
            return Verdict::Denied(FaultKind::Permission(level_of(leaf)));
        }
        match (access, leaf.dirty) {
            (Access::Write, DirtyState::Clean) => Verdict::NeedsDirty,
            _ => Verdict::Allowed,
        }
    }

    fn page_fault(&mut self, page: u64) {
        if A::FAULT_DROPS_ENTRIES {
            let tag = self.tag;
            self.drop_pages(FlushKind::PageFault, page, 1, tag, true, |e| e.overlaps(page, 1));
        }
    }

    fn drop_pages(
        &mut self,
        kind: FlushKind,
        first: u64,
        count: u64,
        tag: Asid,
        with_global: bool,
        table_gone: impl Fn(&Entry) -> bool,
    ) {
        let gone = |e: &Entry| e.matches(tag, with_global) && e.overlaps(first, count);
        let leaves: u64 = self.levels.iter_mut().map(|level| level.drop_if(gone)).sum();
        let tables = self.walk_caches.drop_if(|e| e.tag == tag && table_gone(e));
        self.count_flush(kind, leaves, tables);
    }

    fn drop_space(&mut self, kind: FlushKind, gone: impl Fn(&Entry) -> bool) {
        let leaves = self.levels.iter_mut().map(|level| level.drop_if(&gone)).sum();
        let tables = self.walk_caches.drop_if(&gone);
        self.count_flush(kind, leaves, tables);
    }

    fn count_flush(&mut self, kind: FlushKind, leaves: u64, tables: u64) {
        let flush = &mut self.stats.flushes[kind as usize];
        flush.ops += 1;
        flush.entries += leaves;
        flush.walk_entries += tables;
    }

    pub fn switch(&mut self, root: PhysAddr, tag: Asid, kind: SwitchKind) {
        if kind == SwitchKind::Flush {
            self.drop_space(FlushKind::Switch, |e| e.matches(tag, false));
        }
        self.root = root;
        self.tag = tag;
    }

    pub fn flush(&mut self, op: TlbOp) {
        let page = |va: VirtAddr| A::page_tag(va);
        let own = self.tag;
        match op {
            TlbOp::Invlpg { va } => {
                self.drop_pages(FlushKind::Invlpg, page(va), 1, own, true, |_| true);
            }
            TlbOp::Cr3Reload => self.drop_space(FlushKind::Cr3Reload, |e| e.matches(own, false)),
            TlbOp::InvpcidAddr { pcid, va } => {
                self.drop_pages(FlushKind::InvpcidAddr, page(va), 1, pcid, false, |_| true);
            }
            TlbOp::InvpcidSingle { pcid } => {
                self.drop_space(FlushKind::InvpcidSingle, |e| e.matches(pcid, false));
            }
            TlbOp::InvpcidAll => self.drop_space(FlushKind::InvpcidAll, |_| true),
            TlbOp::TlbiVa { asid, va, leaf_only, .. } => {
                let (first, tables) = (page(va), leaf_only == LeafOnly::No);
                self.drop_pages(FlushKind::TlbiVa, first, 1, asid, true, |e| {
                    tables && e.overlaps(first, 1)
                });
            }
            TlbOp::TlbiRange { asid, va, pages, leaf_only, .. } => {
                let (first, count) = (page(va), pages.get());
                let tables = leaf_only == LeafOnly::No;
                self.drop_pages(FlushKind::TlbiRange, first, count, asid, true, |e| {
                    tables && e.overlaps(first, count)
                });
            }
            TlbOp::TlbiAsid { asid, .. } => {
                self.drop_space(FlushKind::TlbiAsid, |e| e.matches(asid, false));
            }
            TlbOp::TlbiAll { .. } => self.drop_space(FlushKind::TlbiAll, |_| true),
        }
    }
}

/// Whether every CPU hears the operation.
pub fn is_broadcast(op: TlbOp) -> bool {
    match op {
        TlbOp::TlbiVa { broadcast, .. }
        | TlbOp::TlbiRange { broadcast, .. }
        | TlbOp::TlbiAsid { broadcast, .. }
        | TlbOp::TlbiAll { broadcast } => broadcast == Broadcast::Yes,
        _ => false,
    }
}
