//! `mmu_gather`: collects what was unmapped, so that pages are freed only after the TLBs forgot
//! them, with as few flushes as the batches allow.
//!
//! Source: Linux mm/mmu_gather.c, include/asm-generic/tlb.h.

use crate::{Mm, Page};
use arch::{Arch, GatherFlush, HugeSize, MmId, Platform, TableLevel, Teardown};
use events::{Event, Op};
use units::{NrPages, PAGE_SIZE, PhysAddr, Reach, VirtAddr};

/// Entries of the bundle inside the structure (`MMU_GATHER_BUNDLE`).
const BUNDLE: u64 = 8;
/// Entries of a batch page: what a page holds beside the batch's header.
const MAX_GATHER_BATCH: u64 = (PAGE_SIZE - 16) / 8;
/// Batch pages that may be chained.
const MAX_GATHER_BATCH_COUNT: u64 = 10_000 / MAX_GATHER_BATCH;

/// Whether the gather is full and must be flushed before more is added.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub(crate) enum Room {
    Left,
    Full,
}

/// An unmapping under way.
#[derive(Debug)]
pub(crate) struct MmuGather {
    pub(crate) mm: MmId,
    pub(crate) teardown: Teardown,
    start: VirtAddr,
    end: VirtAddr,
    cleared_ptes: bool,
    cleared_pmds: bool,
    cleared_puds: bool,
    freed_tables: bool,
    batch_entries: u64,
    batch_max: u64,
    batches: u64,
    delayed_rmap: bool,
    pages: Vec<(Page, u64)>,
    tables: Vec<PhysAddr>,
}

impl MmuGather {
    /// `tlb_gather_mmu()`, or `tlb_gather_mmu_fullmm()`.
    pub(crate) fn new(mm: MmId, teardown: Teardown) -> Self {
        MmuGather {
            mm,
            teardown,
            start: VirtAddr::new(u64::MAX),
            end: VirtAddr::ZERO,
            cleared_ptes: false,
            cleared_pmds: false,
            cleared_puds: false,
            freed_tables: false,
            batch_entries: 0,
            batch_max: BUNDLE,
            batches: 0,
            delayed_rmap: false,
            pages: Vec::new(),
            tables: Vec::new(),
        }
    }

    fn adjust_range(&mut self, at: VirtAddr, bytes: u64) {
        self.start = self.start.min(at);
        self.end = self.end.max(at.wrapping_add(bytes));
    }

    /// `tlb_remove_tlb_entries()`: `nr` PTEs from `at` on were cleared.
    pub(crate) fn remove_tlb_entries(&mut self, at: VirtAddr, nr: NrPages) {
        self.adjust_range(at, nr.bytes());
        self.cleared_ptes = true;
    }

    /// `tlb_remove_pmd_tlb_entry()`.
    pub(crate) fn remove_pmd_tlb_entry(&mut self, at: VirtAddr) {
        self.adjust_range(at, units::PMD_SIZE);
        self.cleared_pmds = true;
    }

    /// `tlb_remove_huge_tlb_entry()`: a huge page of hugetlb.
    pub(crate) fn remove_huge_tlb_entry(&mut self, at: VirtAddr, size: HugeSize) {
        self.adjust_range(at, size.bytes());
        match size.entry_reach() {
            Reach::G1 => self.cleared_puds = true,
            Reach::M2 => self.cleared_pmds = true,
            _ => self.cleared_ptes = true,
        }
    }

    /// `tlb_get_unmap_shift()`: the smallest cleared level.
    fn stride(&self) -> Reach {
        if self.cleared_ptes {
            Reach::K4
        } else if self.cleared_pmds {
            Reach::M2
        } else if self.cleared_puds {
            Reach::G1
        } else {
            Reach::K4
        }
    }

    /// `tlb_delay_rmap()`: dirty pages of a file are among those that were unmapped, so the TLBs
    /// must be flushed before the page-table lock is dropped.
    pub(crate) fn delay_rmap(&mut self) {
        self.delayed_rmap = true;
    }

    /// Whether the flush for them is due, asked once.
    pub(crate) fn take_delayed_rmap(&mut self) -> bool {
        std::mem::take(&mut self.delayed_rmap)
    }

    /// `tlb_flush_pte_range()` for a changed protection.
    pub(crate) fn flush_pte_range(&mut self, at: VirtAddr, bytes: u64) {
        self.adjust_range(at, bytes);
        self.cleared_ptes = true;
    }

    /// `tlb_flush_pmd_range()` for a changed protection.
    pub(crate) fn flush_pmd_range(&mut self, at: VirtAddr, bytes: u64) {
        self.adjust_range(at, bytes);
        self.cleared_pmds = true;
    }

    /// `__tlb_remove_folio_pages()`: `nr` pages of one folio lose a reference each, after the
    /// flush.
    pub(crate) fn remove_pages(&mut self, page: Page, nr: NrPages) -> Room {
        self.pages.push((page, nr.get()));
        self.batch_entries += if nr.get() > 1 { 2 } else { 1 };
        // Room for two more entries must stay, as a run takes two.
        if self.batch_entries < self.batch_max - 1 {
            return Room::Left;
        }
        if self.batches == MAX_GATHER_BATCH_COUNT {
            return Room::Full;
        }
        self.batches += 1;
        self.batch_entries = 0;
        self.batch_max = MAX_GATHER_BATCH;
        Room::Left
    }

    /// `pte_free_tlb()` and its relatives: the table of `level` that translated `at` is free
    /// after the flush.
    pub(crate) fn free_table(&mut self, level: TableLevel, at: VirtAddr, table: PhysAddr) {
        self.adjust_range(at, PAGE_SIZE);
        self.freed_tables = true;
        if level == TableLevel::Pte {
            self.cleared_pmds = true;
        }
        self.tables.push(table);
    }

    fn is_empty(&self) -> bool {
        !(self.freed_tables || self.cleared_ptes || self.cleared_pmds || self.cleared_puds)
    }

    /// `tlb_flush_mmu_tlbonly()`.
    pub(crate) fn flush_tlb_only<P: Platform>(&mut self, mm: &mut Mm<P>) {
        mm.pt.count(Event::TlbFlushMmuTlbonly, 1);
        if self.is_empty() {
            return;
        }
        let flush = GatherFlush {
            start: self.start,
            end: self.end,
            stride: self.stride(),
            freed_tables: self.freed_tables,
            teardown: self.teardown,
        };
        {
            let mm = &mut *mm.enter(Op::TlbFlush);
            mm.pt.tlb_flush(self.mm, &flush);
        }
        self.start = VirtAddr::new(u64::MAX);
        self.end = VirtAddr::ZERO;
        (self.cleared_ptes, self.cleared_pmds, self.cleared_puds) = (false, false, false);
        self.freed_tables = false;
    }

    /// `tlb_flush_mmu()`: flush, then free tables and pages.
    pub(crate) fn flush<P: Platform>(&mut self, mm: &mut Mm<P>) {
        mm.fentry(Event::FnTlbFlushMmu);
        self.flush_tlb_only(mm);
        if !self.tables.is_empty() {
            if P::Arch::frees_tables_by_rcu(&mm.pt.kernel) {
                // tlb_table_flush() makes sure once more that no walker holds a table.
                self.flush_tlb_only(mm);
            }
            for table in std::mem::take(&mut self.tables) {
                mm.free_table(table);
            }
        }
        for (page, nr) in std::mem::take(&mut self.pages) {
            mm.free_page_and_swap_cache(page, nr);
        }
        (self.batch_entries, self.batch_max, self.batches) = (0, BUNDLE, 0);
    }

    /// `tlb_end_vma()`.
    pub(crate) fn end_vma<P: Platform>(&mut self, mm: &mut Mm<P>) {
        if self.teardown == Teardown::Partial && P::Arch::FLUSH_AT_VMA_END {
            self.flush_tlb_only(mm);
        }
    }

    /// `tlb_finish_mmu()`.
    pub(crate) fn finish<P: Platform>(mut self, mm: &mut Mm<P>) {
        mm.fentry(Event::FnTlbFinishMmu);
        self.flush(mm);
    }
}
