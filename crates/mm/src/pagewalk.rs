//! Walking page tables with callbacks: `walk_page_range()`, `walk_page_range_vma()`, and the
//! walk without them, `folio_walk_start()`.
//!
//! A caller says by [`MmWalkOps::CALLBACKS`] which callbacks it has, as Linux does by leaving
//! the other pointers empty; each call of one is counted, since an indirect call is what a walk
//! through callbacks costs more than a loop of its own. Source: Linux mm/pagewalk.c.

use crate::folio::Folio;
use crate::vma::VmaId;
use crate::{Mm, huge_memory};
use arch::{MmId, Platform, Pmdp, Pte, Ptep, SwapApi, Table, TableLevel};
use events::Event;
use std::ops::ControlFlow;
use units::{NrPages, Pfn, PhysAddr, VirtAddr};

bitflags::bitflags! {
    /// Which callbacks of `struct mm_walk_ops` are set.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub(crate) struct Callbacks: u16 {
        const PGD_ENTRY = 1 << 0;
        const P4D_ENTRY = 1 << 1;
        const PUD_ENTRY = 1 << 2;
        const PMD_ENTRY = 1 << 3;
        const PTE_ENTRY = 1 << 4;
        const PTE_HOLE = 1 << 5;
        const TEST_WALK = 1 << 6;
        const PRE_VMA = 1 << 7;
        const POST_VMA = 1 << 8;
    }
}

/// A walk under way (`struct mm_walk`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct MmWalk {
    pub(crate) mm: MmId,
    /// The VMA that is walked; none between VMAs.
    pub(crate) vma: Option<VmaId>,
}

/// What the walk does after an entry of an upper level (`enum page_walk_action`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Action {
    /// Walk what is below it, if a callback is there for that.
    Subtree,
    /// Go on behind it.
    Continue,
    /// Look at it again.
    Again,
}

/// What a callback returns: how to go on, or what to end the walk with.
pub(crate) type Step<S> = ControlFlow<S, Action>;

/// The addresses that an entry covers, as far as they are walked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Span {
    pub(crate) start: VirtAddr,
    pub(crate) end: VirtAddr,
}

impl Span {
    /// The start of it that one entry of `level` covers (`pgd_addr_end()` and its like).
    fn first(self, level: TableLevel) -> Span {
        let size = 1 << level.shift();
        // The last entry of the address space ends where addresses wrap.
        let next = self.start.align_down(size).checked_add(size);
        Span { end: next.map_or(self.end, |next| next.min(self.end)), ..self }
    }

    pub(crate) fn pages(self) -> NrPages {
        NrPages::covering(self.end.bytes_since(self.start))
    }
}

/// The callbacks of a walk (`struct mm_walk_ops`); those not named in `CALLBACKS` are never
/// called.
pub(crate) trait MmWalkOps<P: Platform> {
    /// What a walk can end early with.
    type Stop;
    /// The callbacks that are there.
    const CALLBACKS: Callbacks;

    /// Whether to walk a VMA: `Continue` skips it.
    fn test_walk(&mut self, _: &mut Mm<P>, _: &MmWalk, _: Span) -> Step<Self::Stop> {
        Step::Continue(Action::Subtree)
    }
    /// Before a VMA.
    fn pre_vma(&mut self, _: &mut Mm<P>, _: &MmWalk, _: Span) -> Step<Self::Stop> {
        Step::Continue(Action::Subtree)
    }
    /// After a VMA.
    fn post_vma(&mut self, _: &mut Mm<P>, _: &MmWalk) {}
    /// A present entry of the top level.
    fn pgd_entry(&mut self, _: &mut Mm<P>, _: &MmWalk, _: PhysAddr, _: Span) -> Step<Self::Stop> {
        Step::Continue(Action::Subtree)
    }
    /// The same of the level that is folded into it.
    fn p4d_entry(&mut self, _: &mut Mm<P>, _: &MmWalk, _: PhysAddr, _: Span) -> Step<Self::Stop> {
        Step::Continue(Action::Subtree)
    }
    /// A PUD entry that is not empty.
    fn pud_entry(&mut self, _: &mut Mm<P>, _: &MmWalk, _: PhysAddr, _: Span) -> Step<Self::Stop> {
        Step::Continue(Action::Subtree)
    }
    /// A PMD entry that is not empty: a table or a leaf.
    fn pmd_entry(&mut self, _: &mut Mm<P>, _: &MmWalk, _: Pmdp, _: Span) -> Step<Self::Stop> {
        Step::Continue(Action::Subtree)
    }
    /// A PTE, empty or not, with the page-table lock held.
    fn pte_entry(&mut self, _: &mut Mm<P>, _: &MmWalk, _: Ptep) -> Step<Self::Stop> {
        Step::Continue(Action::Subtree)
    }
    /// A range without page tables, or between VMAs.
    fn pte_hole(&mut self, _: &mut Mm<P>, _: &MmWalk, _: Span) -> Step<Self::Stop> {
        Step::Continue(Action::Subtree)
    }
}

/// Walks what is mapped in `[start, end)`, VMA by VMA.
/// Source: Linux mm/pagewalk.c `walk_page_range()`.
///
/// **Events**: one `page_walk`; one `page_walk_callback` for each callback.
pub(crate) fn walk_page_range<P: Platform, O: MmWalkOps<P>>(
    mm: &mut Mm<P>,
    id: MmId,
    span: Span,
    ops: &mut O,
) -> ControlFlow<O::Stop> {
    if mm.pt.kernel.swap_api == SwapApi::SlotCache {
        mm.fentry(Event::FnWalkPageRange);
    }
    mm.pt.count(Event::PageWalk, 1);
    let mut at = span.start;
    while at < span.end {
        let next = mm.find_vma(id, at);
        let start = next.map_or(span.end, |vma| mm.vma(vma).start.min(span.end));
        if start > at {
            let walk = MmWalk { mm: id, vma: None };
            hole(mm, ops, &walk, Span { start: at, end: start })?;
            at = start;
            continue;
        }
        let Some(vma) = next else { break };
        let here = Span { start: at, end: mm.vma(vma).end.min(span.end) };
        at = here.end;
        let walk = MmWalk { mm: id, vma: Some(vma) };
        if O::CALLBACKS.contains(Callbacks::TEST_WALK) {
            mm.pt.count(Event::PageWalkCallback, 1);
            if ops.test_walk(mm, &walk, here)? == Action::Continue {
                continue;
            }
        }
        walk_vma(mm, ops, &walk, here)?;
    }
    ControlFlow::Continue(())
}

/// Walks a part of one VMA, untested.
/// Source: Linux mm/pagewalk.c `walk_page_range_vma()`.
///
/// **Events**: one `page_walk`; one `page_walk_callback` for each callback.
pub(crate) fn walk_page_range_vma<P: Platform, O: MmWalkOps<P>>(
    mm: &mut Mm<P>,
    vma: VmaId,
    span: Span,
    ops: &mut O,
) -> ControlFlow<O::Stop> {
    debug_assert!(mm.vma(vma).start <= span.start && span.end <= mm.vma(vma).end);
    mm.pt.count(Event::PageWalk, 1);
    let walk = MmWalk { mm: mm.vma(vma).mm, vma: Some(vma) };
    walk_vma(mm, ops, &walk, span)
}

/// Source: Linux mm/pagewalk.c `__walk_page_range()`.
fn walk_vma<P: Platform, O: MmWalkOps<P>>(
    mm: &mut Mm<P>,
    ops: &mut O,
    walk: &MmWalk,
    span: Span,
) -> ControlFlow<O::Stop> {
    if O::CALLBACKS.contains(Callbacks::PRE_VMA) {
        mm.pt.count(Event::PageWalkCallback, 1);
        ops.pre_vma(mm, walk, span)?;
    }
    // hugetlb has a callback of its own, which nobody has here.
    let hugetlb = walk.vma.is_some_and(|vma| mm.vma(vma).huge.is_some());
    let result = match hugetlb {
        true => ControlFlow::Continue(()),
        false => walk_pgd_range(mm, ops, walk, span),
    };
    if O::CALLBACKS.contains(Callbacks::POST_VMA) {
        mm.pt.count(Event::PageWalkCallback, 1);
        ops.post_vma(mm, walk);
    }
    result
}

fn hole<P: Platform, O: MmWalkOps<P>>(
    mm: &mut Mm<P>,
    ops: &mut O,
    walk: &MmWalk,
    span: Span,
) -> ControlFlow<O::Stop> {
    if O::CALLBACKS.contains(Callbacks::PTE_HOLE) {
        mm.pt.count(Event::PageWalkCallback, 1);
        ops.pte_hole(mm, walk, span)?;
    }
    ControlFlow::Continue(())
}

/// Calls a callback if it is there.
macro_rules! call {
    ($mm:ident, $ops:ident.$name:ident($walk:expr, $entry:expr, $span:expr), $flag:ident) => {
        if O::CALLBACKS.contains(Callbacks::$flag) {
            $mm.pt.count(Event::PageWalkCallback, 1);
            $ops.$name($mm, $walk, $entry, $span)?
        } else {
            Action::Subtree
        }
    };
}

fn walk_pgd_range<P: Platform, O: MmWalkOps<P>>(
    mm: &mut Mm<P>,
    ops: &mut O,
    walk: &MmWalk,
    mut span: Span,
) -> ControlFlow<O::Stop> {
    let below = Callbacks::P4D_ENTRY | Callbacks::PUD_ENTRY | Callbacks::PMD_ENTRY;
    let root = mm.pt.root(walk.mm);
    while span.start < span.end {
        let here = span.first(TableLevel::Pgd);
        span.start = here.end;
        let slot = TableLevel::Pgd.slot(root, here.start);
        let Table::Next(table) = mm.pt.table_at(slot) else {
            hole(mm, ops, walk, here)?;
            continue;
        };
        let action = call!(mm, ops.pgd_entry(walk, slot, here), PGD_ENTRY);
        if action != Action::Continue && O::CALLBACKS.intersects(below | Callbacks::PTE_ENTRY) {
            walk_p4d_range(mm, ops, walk, slot, table, here)?;
        }
    }
    ControlFlow::Continue(())
}

/// The level is folded: its one entry is that of the PGD.
fn walk_p4d_range<P: Platform, O: MmWalkOps<P>>(
    mm: &mut Mm<P>,
    ops: &mut O,
    walk: &MmWalk,
    slot: PhysAddr,
    table: PhysAddr,
    span: Span,
) -> ControlFlow<O::Stop> {
    let below = Callbacks::PUD_ENTRY | Callbacks::PMD_ENTRY | Callbacks::PTE_ENTRY;
    let action = call!(mm, ops.p4d_entry(walk, slot, span), P4D_ENTRY);
    if action != Action::Continue && O::CALLBACKS.intersects(below) {
        walk_pud_range(mm, ops, walk, table, span)?;
    }
    ControlFlow::Continue(())
}

fn walk_pud_range<P: Platform, O: MmWalkOps<P>>(
    mm: &mut Mm<P>,
    ops: &mut O,
    walk: &MmWalk,
    table: PhysAddr,
    mut span: Span,
) -> ControlFlow<O::Stop> {
    while span.start < span.end {
        let here = span.first(TableLevel::Pud);
        let slot = TableLevel::Pud.slot(table, here.start);
        if mm.pt.table_at(slot) == Table::None {
            hole(mm, ops, walk, here)?;
            span.start = here.end;
            continue;
        }
        let action = call!(mm, ops.pud_entry(walk, slot, here), PUD_ENTRY);
        if action == Action::Again {
            continue;
        }
        span.start = here.end;
        if action == Action::Subtree
            && O::CALLBACKS.intersects(Callbacks::PMD_ENTRY | Callbacks::PTE_ENTRY)
            && let Table::Next(next) = mm.pt.table_at(slot)
        {
            walk_pmd_range(mm, ops, walk, next, here)?;
        }
    }
    ControlFlow::Continue(())
}

fn walk_pmd_range<P: Platform, O: MmWalkOps<P>>(
    mm: &mut Mm<P>,
    ops: &mut O,
    walk: &MmWalk,
    table: PhysAddr,
    mut span: Span,
) -> ControlFlow<O::Stop> {
    while span.start < span.end {
        let here = span.first(TableLevel::Pmd);
        let va = here.start.align_down(units::PMD_SIZE);
        let pmdp = Pmdp { slot: TableLevel::Pmd.slot(table, va), va, mm: walk.mm };
        if mm.pt.pmdp_get(pmdp).is_none() {
            hole(mm, ops, walk, here)?;
            span.start = here.end;
            continue;
        }
        // The callback must know what to do with a leaf.
        let action = call!(mm, ops.pmd_entry(walk, pmdp, here), PMD_ENTRY);
        if action == Action::Again {
            continue;
        }
        span.start = here.end;
        if action == Action::Continue || !O::CALLBACKS.contains(Callbacks::PTE_ENTRY) {
            continue;
        }
        if mm.pt.pmdp_get(pmdp).is_leaf() {
            let Some(vma) = walk.vma else { continue };
            huge_memory::split_huge_pmd(mm, vma, pmdp);
        }
        walk_pte_range(mm, ops, walk, pmdp, here)?;
    }
    ControlFlow::Continue(())
}

fn walk_pte_range<P: Platform, O: MmWalkOps<P>>(
    mm: &mut Mm<P>,
    ops: &mut O,
    walk: &MmWalk,
    pmdp: Pmdp,
    span: Span,
) -> ControlFlow<O::Stop> {
    let Some(first) = pte_offset_map_lock(mm, pmdp, span.start) else {
        return ControlFlow::Continue(());
    };
    for i in 0..span.pages().get() {
        mm.pt.count(Event::PageWalkCallback, 1);
        ops.pte_entry(mm, walk, first.add(i))?;
    }
    ControlFlow::Continue(())
}

/// `pte_offset_map_lock()`: the PTE for `va` with its lock; `None` for a leaf or no table.
pub(crate) fn pte_offset_map_lock<P: Platform>(
    mm: &mut Mm<P>,
    pmdp: Pmdp,
    va: VirtAddr,
) -> Option<Ptep> {
    let at = mm.pt.pte_offset(pmdp, va)?;
    mm.lock_ptl();
    Some(at)
}

bitflags::bitflags! {
    /// Flags of [`folio_walk_start`] (`folio_walk_flags_t`).
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub(crate) struct Fw: u8 {
        /// FW_MIGRATION: look through migration entries.
        const MIGRATION = 1;
        /// FW_ZEROPAGE: the zero pages count as folios.
        const ZEROPAGE = 2;
    }
}

/// What [`folio_walk_start`] found (`struct folio_walk`).
#[derive(Clone, Copy, Debug)]
pub(crate) struct FolioWalk<P: Platform> {
    pub(crate) page: Pfn,
    pub(crate) folio: Folio,
    pub(crate) entry: WalkedEntry<P>,
}

/// The entry that maps it.
#[derive(Clone, Copy, Debug)]
pub(crate) enum WalkedEntry<P: Platform> {
    Pte(Pte<P::Arch>),
    Pmd,
}

impl<P: Platform> FolioWalk<P> {
    /// The PTE, if one maps the folio.
    pub(crate) fn pte(&self) -> Option<Pte<P::Arch>> {
        match self.entry {
            WalkedEntry::Pte(pte) => Some(pte),
            WalkedEntry::Pmd => None,
        }
    }
}

/// Finds what maps `va` of a VMA, straight down and without a reference; the page-table lock
/// stands for the time until `folio_walk_end()`.
/// Source: Linux mm/pagewalk.c `folio_walk_start()`.
///
/// **Events**: one lock and one `ptep_get` if there is a page table.
pub(crate) fn folio_walk_start<P: Platform>(
    mm: &mut Mm<P>,
    vma: VmaId,
    va: VirtAddr,
    flags: Fw,
) -> Option<FolioWalk<P>> {
    mm.fentry(Event::FnFolioWalkStart);
    let id = mm.vma(vma).mm;
    let pmdp = mm.pt.pmd_offset(id, va)?;
    let pmd = mm.pt.pmdp_get(pmdp);
    if pmd.is_leaf() {
        mm.lock_ptl();
        if pmd.is_special() && !flags.contains(Fw::ZEROPAGE) {
            return None;
        }
        let page = pmd.pfn().add(va.vpn().get() - pmdp.va.vpn().get());
        let folio = mm.page_folio(page);
        return Some(FolioWalk { page, folio, entry: WalkedEntry::Pmd });
    }
    let at = pte_offset_map_lock(mm, pmdp, va)?;
    let pte = mm.pt.ptep_get(at);
    let page = if pte.is_present() {
        let found = !pte.is_special() || flags.contains(Fw::ZEROPAGE);
        found.then(|| pte.pfn())?
    } else {
        let through = flags.contains(Fw::MIGRATION) && !pte.is_none();
        through.then(|| pte.softleaf()).filter(|leaf| leaf.is_migration())?.pfn()
    };
    Some(FolioWalk { page, folio: mm.page_folio(page), entry: WalkedEntry::Pte(pte) })
}
