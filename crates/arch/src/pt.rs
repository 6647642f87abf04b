//! What `mm` holds to touch page tables and TLBs: [`Pt`].

use crate::hugetlb::{HugeSize, Hugep};
use crate::pte::{ClearYoungDirty, Pmd, Pte};
use crate::tlbport::{PteChange, TlbOp, TlbPort};
use crate::{Arch, FaultAccess, Hw, KernelConfig, LeafOnly, Platform, Teardown};
use events::{Event, Op, Sink, Span};
use phys::{LINE_SIZE, Lines, MemMap, Ram};
use units::{CpuId, NrPages, PTRS_PER_TABLE, PhysAddr, Reach, VirtAddr};

/// Index of an address space (`mm_struct`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MmId(u32);

impl MmId {
    /// The index, for arrays.
    #[inline]
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

/// Where a PTE is: which entry of which address space (`pte_t *`, with what Linux passes beside).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ptep {
    /// Physical address of the entry.
    pub slot: PhysAddr,
    /// First address that it translates.
    pub va: VirtAddr,
    /// The address space.
    pub mm: MmId,
}

impl Ptep {
    /// The entry `n` further in the same table.
    #[expect(clippy::should_implement_trait, reason = "pointer arithmetic, as `pte + n` in Linux")]
    #[inline(always)]
    pub fn add(self, n: u64) -> Ptep {
        Ptep {
            slot: PhysAddr::new(self.slot.get() + n * 8),
            va: VirtAddr::new(self.va.get() + n * units::PAGE_SIZE),
            mm: self.mm,
        }
    }

    /// Position in its table, 0–511.
    #[inline(always)]
    pub fn index(self) -> u64 {
        self.va.vpn().get() & (PTRS_PER_TABLE as u64 - 1)
    }
}

/// Where a PMD entry is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pmdp {
    /// Physical address of the entry.
    pub slot: PhysAddr,
    /// First address that it translates, 2 MiB aligned.
    pub va: VirtAddr,
    /// The address space.
    pub mm: MmId,
}

/// A level of the page table, by the name of its entries.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum TableLevel {
    /// PML4E; level 0.
    Pgd,
    /// PDPTE; level 1.
    Pud,
    /// PDE; level 2.
    Pmd,
    /// PTE; level 3.
    Pte,
}

impl TableLevel {
    /// log2 of what one entry spans.
    pub const fn shift(self) -> u32 {
        match self {
            TableLevel::Pgd => 39,
            TableLevel::Pud => 30,
            TableLevel::Pmd => 21,
            TableLevel::Pte => 12,
        }
    }

    /// Address of the entry for `va` in the table at `table`.
    #[inline]
    pub const fn slot(self, table: PhysAddr, va: VirtAddr) -> PhysAddr {
        PhysAddr::new(table.get() + (va.get() >> self.shift() & 511) * 8)
    }
}

/// What an upper-level slot leads to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Table {
    /// Nothing.
    None,
    /// The next table.
    Next(PhysAddr),
    /// A leaf.
    Leaf,
}

/// What a range flush is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FlushRange {
    /// First address.
    pub start: VirtAddr,
    /// First address after the range.
    pub end: VirtAddr,
    /// What one entry in the range covers: 4 KiB or 2 MiB.
    pub stride: Reach,
    /// Whether walk-cache entries may stay.
    pub leaf_only: LeafOnly,
}

/// What an `mmu_gather` found that must be flushed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GatherFlush {
    /// First address of what was cleared.
    pub start: VirtAddr,
    /// First address after it.
    pub end: VirtAddr,
    /// Smallest cleared level.
    pub stride: Reach,
    /// Page tables are being freed.
    pub freed_tables: bool,
    /// The whole mm goes away.
    pub teardown: Teardown,
}

/// RAM, `struct page`, counting, TLBs and configuration, with Linux's primitives as methods.
#[derive(Debug)]
pub struct Pt<P: Platform> {
    /// Guest RAM; page tables live in it.
    pub ram: Ram,
    /// `struct page` of every frame.
    pub pages: MemMap,
    /// Where events go.
    pub sink: P::Sink,
    /// The TLBs.
    pub tlb: P::Tlb,
    /// The kernel that is modelled.
    pub kernel: KernelConfig,
    /// The machine that it runs on.
    pub hw: Hw,
    /// The CPU that executes kernel code now.
    pub cpu: CpuId,
    /// The innermost op, for the oracles.
    pub op: Op,
    /// Timer ticks, 100 per second; the owner of the clock keeps it.
    pub jiffies: u64,
    /// Forbidden changes of live descriptors that were seen; they end a checked run.
    pub violations: Vec<String>,
    pub(crate) roots: Vec<PhysAddr>,
    pub(crate) contexts: Vec<Option<<P::Arch as Arch>::MmContext>>,
    pub(crate) cpus: Vec<<P::Arch as Arch>::CpuState>,
    pub(crate) global: <P::Arch as Arch>::Global,
    pub(crate) batch: <P::Arch as Arch>::TlbBatch,
    /// Cache lines of page tables that were touched and not yet counted.
    pte_lines: Lines,
    /// Entries that `modify_prot_start_ptes()` cleared; empty unless an oracle watches.
    prot_window: Vec<u64>,
}

type A<P> = <P as Platform>::Arch;

/// Timer ticks per second of the modelled kernels.
pub(crate) const HZ: u64 = 100;
/// Violations kept; a run with more has long been lost.
const VIOLATIONS_MAX: usize = 64;

impl GatherFlush {
    /// The range to flush; walk-cache entries stay unless tables go.
    #[inline]
    pub(crate) fn range(&self) -> FlushRange {
        let GatherFlush { start, end, stride, freed_tables, .. } = *self;
        let leaf_only = if freed_tables { LeafOnly::No } else { LeafOnly::Yes };
        FlushRange { start, end, stride, leaf_only }
    }
}

impl<P: Platform> Pt<P> {
    /// Everything at rest: no address space, nothing loaded.
    pub fn new(ram: Ram, sink: P::Sink, tlb: P::Tlb, kernel: KernelConfig, hw: Hw) -> Self {
        let pages = MemMap::new(ram.frames());
        let cpus = (0..hw.cpus).map(|_| A::<P>::cpu_state(&hw)).collect();
        let global = A::<P>::global(&hw);
        Pt {
            ram,
            pages,
            sink,
            tlb,
            kernel,
            hw,
            cpu: CpuId::default(),
            op: Op::HandleMmFault,
            jiffies: 0,
            violations: Vec::new(),
            pte_lines: Lines::default(),
            prot_window: Vec::new(),
            roots: Vec::new(),
            contexts: Vec::new(),
            cpus,
            global,
            batch: Default::default(),
        }
    }

    /// Registers an address space whose root table (zeroed) is at `root`.
    pub fn mm_init(&mut self, root: PhysAddr) -> MmId {
        let id = MmId(u32::try_from(self.roots.len()).expect("address spaces are few"));
        self.roots.push(root);
        self.contexts.push(None);
        let context = A::<P>::mm_context(self, id);
        self.contexts[id.index()] = Some(context);
        id
    }

    /// The address space is gone; its root table may be freed.
    pub fn mm_destroy(&mut self, mm: MmId) {
        A::<P>::mm_destroy(self, mm);
        self.contexts[mm.index()] = None;
    }

    /// Root table of an address space.
    #[inline]
    pub fn root(&self, mm: MmId) -> PhysAddr {
        self.roots[mm.index()]
    }

    pub(crate) fn context(&mut self, mm: MmId) -> &mut <P::Arch as Arch>::MmContext {
        self.contexts[mm.index()].as_mut().expect("the mm is alive")
    }

    /// Counts `n` of `event`. For this crate's primitives and the structure accessors of `mm`.
    #[inline(always)]
    pub fn count(&mut self, event: Event, n: u64) {
        self.sink.add(event, n);
    }

    /// The entry at `slot` is read or written.
    #[inline(always)]
    pub(crate) fn touch(&self, slot: PhysAddr) {
        self.pte_lines.touch(slot.get() / LINE_SIZE);
    }

    /// Counts the cache lines that were touched since the last call. Whoever changes what events
    /// are attributed to calls this first. Events: `pte_line`, `folio_line`, `page_line`.
    #[inline(always)]
    pub fn count_lines(&mut self) {
        let (ptes, (folios, pages)) = (self.pte_lines.take(), self.pages.take_lines());
        if ptes | folios | pages != 0 {
            self.count(Event::PteLine, ptes);
            self.count(Event::FolioLine, folios);
            self.count(Event::PageLine, pages);
        }
    }

    /// Whether somebody looks at every change of an entry: the stale-use oracle, or a trace.
    #[inline(always)]
    pub(crate) fn watches_ptes(&self) -> bool {
        self.tlb.watches_ptes() || self.sink.watches_ptes()
    }

    /// `cpu` executes a TLB maintenance instruction.
    pub(crate) fn flush_tlb(&mut self, cpu: CpuId, op: TlbOp) {
        if self.sink.watches_ptes() {
            self.sink.flushed(&op.traced(cpu));
        }
        self.tlb.flush(cpu, op);
    }

    /// Tells the stale-use oracle and the trace that a live entry lost rights or its frame.
    #[inline(always)]
    pub(crate) fn pte_changed(&mut self, mm: MmId, va: VirtAddr, reach: Reach) {
        if self.sink.watches_ptes() {
            self.sink.pte_changed(Span { start: va, bytes: reach.bytes() });
        }
        if self.tlb.watches_ptes() {
            let change = PteChange { root: self.root(mm), va, reach, owed_by: self.op };
            self.tlb.pte_changed(change);
        }
    }

    /// Runs `body` as `op`.
    #[inline]
    pub fn within<R>(&mut self, op: Op, body: impl FnOnce(&mut Self) -> R) -> R {
        let outer = std::mem::replace(&mut self.op, op);
        self.sink.enter(op);
        let result = body(self);
        self.sink.exit();
        self.op = outer;
        result
    }

    /// Notes a forbidden change of a live descriptor.
    #[cold]
    pub(crate) fn violation(&mut self, what: String) {
        if self.violations.len() < VIOLATIONS_MAX {
            self.violations.push(what);
        }
    }

    /// Remembers what `modify_prot_start_ptes()` is about to clear, for the stale-use oracle:
    /// entries that come back with the same rights need no flush.
    #[inline(always)]
    pub(crate) fn open_prot_window(&mut self, at: Ptep, nr: NrPages) {
        if self.watches_ptes() {
            self.prot_window.clear();
            for i in 0..nr.get() {
                let raw = self.ram.load_u64(at.add(i).slot);
                self.prot_window.push(raw);
            }
        }
    }

    /// Tells the oracle about the remembered entries that came back with less.
    #[inline(always)]
    pub(crate) fn close_prot_window(&mut self, at: Ptep, loses: impl Fn(u64, u64) -> bool) {
        let mut window = std::mem::take(&mut self.prot_window);
        for (i, &old) in (0u64..).zip(&window) {
            let at = at.add(i);
            if loses(old, self.ram.load_u64(at.slot)) {
                self.pte_changed(at.mm, at.va, Reach::K4);
            }
        }
        window.clear();
        self.prot_window = window;
    }

    // ---- walking, uncounted: upper levels are read once per operation, not per entry

    /// What the entry at `slot` of an upper level leads to.
    #[inline]
    pub fn table_at(&self, slot: PhysAddr) -> Table {
        let pmd = Pmd::<P::Arch>::from_raw(self.ram.load_u64(slot));
        if pmd.is_none() {
            return Table::None;
        }
        match pmd.table() {
            Some(next) => Table::Next(next),
            None => Table::Leaf,
        }
    }

    /// The PMD entry for `va`, if the tables above it exist.
    #[inline]
    pub fn pmd_offset(&self, mm: MmId, va: VirtAddr) -> Option<Pmdp> {
        let mut table = self.root(mm);
        for level in [TableLevel::Pgd, TableLevel::Pud] {
            match self.table_at(level.slot(table, va)) {
                Table::Next(next) => table = next,
                Table::None | Table::Leaf => return None,
            }
        }
        let slot = TableLevel::Pmd.slot(table, va);
        Some(Pmdp { slot, va: va.align_down(units::PMD_SIZE), mm })
    }

    /// The PTE for `va` under a PMD entry that is a table.
    #[inline]
    pub fn pte_offset(&self, pmdp: Pmdp, va: VirtAddr) -> Option<Ptep> {
        let table = self.pmdp_get(pmdp).table()?;
        let va = va.align_down(units::PAGE_SIZE);
        Some(Ptep { slot: TableLevel::Pte.slot(table, va), va, mm: pmdp.mm })
    }

    /// Where the entry is that would map `va`, and at which level: a leaf, or a last-level entry
    /// whatever is in it; `None` if a table is missing.
    pub fn leaf_slot(&self, mm: MmId, va: VirtAddr) -> Option<(PhysAddr, TableLevel)> {
        let mut table = self.root(mm);
        for level in [TableLevel::Pgd, TableLevel::Pud, TableLevel::Pmd] {
            let slot = level.slot(table, va);
            match self.table_at(slot) {
                Table::Next(next) => table = next,
                Table::Leaf => return Some((slot, level)),
                Table::None => return None,
            }
        }
        Some((TableLevel::Pte.slot(table, va), TableLevel::Pte))
    }

    /// `pmdp_get()`; not counted, as Linux does not instrument it.
    #[inline]
    pub fn pmdp_get(&self, at: Pmdp) -> Pmd<P::Arch> {
        Pmd::from_raw(self.ram.load_u64(at.slot))
    }

    // ---- PTE primitives

    /// `ptep_get()`.
    #[inline]
    pub fn ptep_get(&mut self, at: Ptep) -> Pte<P::Arch> {
        A::<P>::ptep_get(self, at)
    }
    /// `ptep_get_lockless()`.
    #[inline]
    pub fn ptep_get_lockless(&mut self, at: Ptep) -> Pte<P::Arch> {
        A::<P>::ptep_get_lockless(self, at)
    }
    /// `pte_batch_hint()`.
    #[inline]
    pub fn pte_batch_hint(&self, at: Ptep, pte: Pte<P::Arch>) -> NrPages {
        A::<P>::pte_batch_hint(at, pte)
    }
    /// `set_ptes()`.
    #[inline]
    pub fn set_ptes(&mut self, at: Ptep, pte: Pte<P::Arch>, nr: NrPages) {
        A::<P>::set_ptes(self, at, pte, nr);
    }
    /// `set_pte_at()`.
    #[inline]
    pub fn set_pte_at(&mut self, at: Ptep, pte: Pte<P::Arch>) {
        A::<P>::set_ptes(self, at, pte, NrPages::ONE);
    }
    /// `pte_clear()`.
    #[inline]
    pub fn pte_clear(&mut self, at: Ptep) {
        A::<P>::pte_clear(self, at);
    }
    /// `ptep_get_and_clear()`.
    #[inline]
    pub fn ptep_get_and_clear(&mut self, at: Ptep) -> Pte<P::Arch> {
        A::<P>::ptep_get_and_clear(self, at)
    }
    /// `get_and_clear_full_ptes()`.
    #[inline]
    pub fn get_and_clear_full_ptes(
        &mut self,
        at: Ptep,
        nr: NrPages,
        teardown: Teardown,
    ) -> Pte<P::Arch> {
        A::<P>::get_and_clear_full_ptes(self, at, nr, teardown)
    }
    /// `get_and_clear_ptes()`.
    #[inline]
    pub fn get_and_clear_ptes(&mut self, at: Ptep, nr: NrPages) -> Pte<P::Arch> {
        A::<P>::get_and_clear_full_ptes(self, at, nr, Teardown::Partial)
    }
    /// `clear_full_ptes()`.
    #[inline]
    pub fn clear_full_ptes(&mut self, at: Ptep, nr: NrPages, teardown: Teardown) {
        A::<P>::clear_full_ptes(self, at, nr, teardown);
    }
    /// `wrprotect_ptes()`.
    #[inline]
    pub fn wrprotect_ptes(&mut self, at: Ptep, nr: NrPages) {
        A::<P>::wrprotect_ptes(self, at, nr);
    }
    /// `ptep_set_access_flags()`.
    #[inline]
    pub fn ptep_set_access_flags(
        &mut self,
        at: Ptep,
        entry: Pte<P::Arch>,
        access: FaultAccess,
    ) -> bool {
        A::<P>::ptep_set_access_flags(self, at, entry, access)
    }
    /// `flush_tlb_fix_spurious_fault()`.
    #[inline]
    pub fn flush_tlb_fix_spurious_fault(&mut self, at: Ptep) {
        A::<P>::flush_tlb_fix_spurious_fault(self, at);
    }
    /// `test_and_clear_young_ptes()`.
    #[inline]
    pub fn test_and_clear_young_ptes(&mut self, at: Ptep, nr: NrPages) -> bool {
        A::<P>::test_and_clear_young_ptes(self, at, nr)
    }
    /// `clear_flush_young_ptes()`.
    #[inline]
    pub fn clear_flush_young_ptes(&mut self, at: Ptep, nr: NrPages) -> bool {
        A::<P>::clear_flush_young_ptes(self, at, nr)
    }
    /// `clear_young_dirty_ptes()`.
    #[inline]
    pub fn clear_young_dirty_ptes(&mut self, at: Ptep, nr: NrPages, what: ClearYoungDirty) {
        A::<P>::clear_young_dirty_ptes(self, at, nr, what);
    }
    /// `modify_prot_start_ptes()`.
    #[inline]
    pub fn modify_prot_start_ptes(&mut self, at: Ptep, nr: NrPages) -> Pte<P::Arch> {
        A::<P>::modify_prot_start_ptes(self, at, nr)
    }
    /// `modify_prot_commit_ptes()`.
    #[inline]
    pub fn modify_prot_commit_ptes(&mut self, at: Ptep, pte: Pte<P::Arch>, nr: NrPages) {
        A::<P>::modify_prot_commit_ptes(self, at, pte, nr);
    }
    /// `ptep_clear_flush()`: clears one entry and flushes its page if it could be cached.
    /// Source: Linux mm/pgtable-generic.c `ptep_clear_flush()`.
    pub fn ptep_clear_flush(&mut self, at: Ptep) -> Pte<P::Arch> {
        self.count(Event::FnPtepClearFlush, 1);
        let pte = self.ptep_get_and_clear(at);
        if pte.is_accessible() {
            self.flush_tlb_page(at.mm, at.va);
        }
        pte
    }
    /// `set_softleaf_ptes()`: `nr` non-present entries, swap offsets advancing from that of
    /// `pte`, its flags kept (patch `anon-unmap-batch`).
    pub fn set_softleaf_ptes(&mut self, at: Ptep, pte: Pte<P::Arch>, nr: NrPages) {
        if nr == NrPages::ONE {
            return self.set_pte_at(at, pte);
        }
        let leaf = pte.softleaf();
        for i in 0..nr.get() {
            let mut entry = Pte::from_softleaf(leaf.advance(i));
            if pte.is_swp_exclusive() {
                entry = entry.swp_mkexclusive();
            }
            if pte.is_swp_soft_dirty() {
                entry = entry.swp_mksoft_dirty();
            }
            if pte.is_swp_uffd_wp() {
                entry = entry.swp_mkuffd_wp();
            }
            A::<P>::set_softleaf_pte(self, at.add(i), entry);
        }
    }

    // ---- PMD primitives

    /// `pmdp_huge_get_and_clear()`, or its `_full` form.
    pub fn pmdp_huge_get_and_clear(&mut self, at: Pmdp, teardown: Teardown) -> Pmd<P::Arch> {
        A::<P>::pmdp_huge_get_and_clear(self, at, teardown)
    }
    /// `set_pmd_at()`.
    pub fn set_pmd_at(&mut self, at: Pmdp, pmd: Pmd<P::Arch>) {
        A::<P>::set_pmd_at(self, at, pmd);
    }
    /// `pmdp_invalidate()`.
    pub fn pmdp_invalidate(&mut self, at: Pmdp) -> Pmd<P::Arch> {
        A::<P>::pmdp_invalidate(self, at)
    }
    /// `pmdp_invalidate_ad()`: makes the leaf not valid, so that accessed and dirty stay put.
    pub fn pmdp_invalidate_ad(&mut self, at: Pmdp) -> Pmd<P::Arch> {
        A::<P>::pmdp_invalidate_ad(self, at)
    }
    /// `pmdp_huge_clear_flush()`.
    pub fn pmdp_huge_clear_flush(&mut self, at: Pmdp) -> Pmd<P::Arch> {
        if !self.kernel.has_6_12_names() {
            self.count(Event::FnPmdpHugeClearFlush, 1);
        }
        let old = self.pmdp_huge_get_and_clear(at, Teardown::Partial);
        let end = at.va.wrapping_add(units::PMD_SIZE);
        let (stride, leaf_only) = (Reach::M2, LeafOnly::No);
        self.flush_tlb_range(at.mm, FlushRange { start: at.va, end, stride, leaf_only });
        old
    }
    /// `pmd_populate()` of an entry on the kernel stack, by which a table is filled before it
    /// is published. Frame 0 stands for that stack.
    pub fn populate_on_stack(&mut self, level: TableLevel, table: PhysAddr) {
        A::<P>::populate(self, level, PhysAddr::ZERO, table);
    }
    /// What a store by user code does to the entry at `slot`: accessed and dirty become `raw`'s.
    pub fn hardware_set_dirty(&mut self, slot: PhysAddr, raw: u64) {
        self.ram.store_u64(slot, raw);
    }
    /// `pmdp_test_and_clear_young()`.
    pub fn pmdp_test_and_clear_young(&mut self, at: Pmdp) -> bool {
        A::<P>::pmdp_test_and_clear_young(self, at)
    }
    /// `pmdp_set_wrprotect()`.
    pub fn pmdp_set_wrprotect(&mut self, at: Pmdp) {
        A::<P>::pmdp_set_wrprotect(self, at);
    }
    /// `pmdp_set_access_flags()`.
    pub fn pmdp_set_access_flags(
        &mut self,
        at: Pmdp,
        entry: Pmd<P::Arch>,
        access: FaultAccess,
    ) -> bool {
        A::<P>::pmdp_set_access_flags(self, at, entry, access)
    }
    /// `pmd_populate()` and its relatives.
    pub fn populate(&mut self, level: TableLevel, slot: PhysAddr, table: PhysAddr) {
        A::<P>::populate(self, level, slot, table);
    }
    /// `pmd_clear()` and its relatives.
    pub fn clear_table(&mut self, level: TableLevel, slot: PhysAddr) {
        A::<P>::clear_table(self, level, slot);
    }

    // ---- huge pages of hugetlb

    /// The entry of a page of `size` that holds `va`, if the tables above it exist. A PUD or PMD
    /// entry counts whatever is in it (`huge_pte_offset()`).
    pub fn huge_pte_offset(&self, mm: MmId, va: VirtAddr, size: HugeSize) -> Option<Hugep> {
        let va = va.align_down(size.bytes());
        let mut table = self.root(mm);
        for level in [TableLevel::Pgd, TableLevel::Pud, TableLevel::Pmd, TableLevel::Pte] {
            let slot = level.slot(table, va);
            if level == size.level() {
                return Some(Hugep { slot, va, mm, size });
            }
            match self.table_at(slot) {
                Table::Next(next) => table = next,
                Table::None | Table::Leaf => return None,
            }
        }
        None
    }
    /// `huge_ptep_get()`.
    pub fn huge_ptep_get(&mut self, at: Hugep) -> Pte<P::Arch> {
        A::<P>::huge_ptep_get(self, at)
    }
    /// `set_huge_pte_at()`.
    pub fn set_huge_pte_at(&mut self, at: Hugep, pte: Pte<P::Arch>) {
        A::<P>::set_huge_pte_at(self, at, pte);
    }
    /// `huge_ptep_get_and_clear()`.
    pub fn huge_ptep_get_and_clear(&mut self, at: Hugep) -> Pte<P::Arch> {
        A::<P>::huge_ptep_get_and_clear(self, at)
    }
    /// `huge_ptep_clear_flush()`.
    pub fn huge_ptep_clear_flush(&mut self, at: Hugep) -> Pte<P::Arch> {
        A::<P>::huge_ptep_clear_flush(self, at)
    }
    /// `huge_ptep_set_wrprotect()`.
    pub fn huge_ptep_set_wrprotect(&mut self, at: Hugep) {
        A::<P>::huge_ptep_set_wrprotect(self, at);
    }
    /// `huge_ptep_set_access_flags()`.
    pub fn huge_ptep_set_access_flags(
        &mut self,
        at: Hugep,
        pte: Pte<P::Arch>,
        access: FaultAccess,
    ) -> bool {
        A::<P>::huge_ptep_set_access_flags(self, at, pte, access)
    }

    // ---- flushes

    /// `flush_tlb_page()`.
    #[inline]
    pub fn flush_tlb_page(&mut self, mm: MmId, va: VirtAddr) {
        A::<P>::flush_tlb_page(self, mm, va);
    }
    /// `flush_tlb_range()`.
    #[inline]
    pub fn flush_tlb_range(&mut self, mm: MmId, range: FlushRange) {
        A::<P>::flush_tlb_range(self, mm, range);
    }
    /// `flush_tlb_mm()`.
    pub fn flush_tlb_mm(&mut self, mm: MmId) {
        A::<P>::flush_tlb_mm(self, mm);
    }
    /// `tlb_flush()`.
    pub fn tlb_flush(&mut self, mm: MmId, gather: &GatherFlush) {
        A::<P>::tlb_flush(self, mm, gather);
    }
    /// `arch_tlbbatch_should_defer()`.
    #[inline]
    pub fn tlbbatch_should_defer(&self, mm: MmId) -> bool {
        A::<P>::tlbbatch_should_defer(self, mm)
    }
    /// `arch_tlbbatch_add_pending()`.
    pub fn tlbbatch_add_pending(&mut self, mm: MmId, start: VirtAddr, nr: NrPages) {
        A::<P>::tlbbatch_add_pending(self, mm, start, nr);
    }
    /// `arch_tlbbatch_flush()`.
    pub fn tlbbatch_flush(&mut self) {
        A::<P>::tlbbatch_flush(self);
    }
    /// `switch_mm()` on `cpu`.
    pub fn switch_mm(&mut self, cpu: CpuId, next: MmId) {
        A::<P>::switch_mm(self, cpu, next);
    }
    /// `enter_lazy_tlb()` on `cpu`.
    pub fn enter_lazy_tlb(&mut self, cpu: CpuId) {
        A::<P>::enter_lazy_tlb(self, cpu);
    }
}
