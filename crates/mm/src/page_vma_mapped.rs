//! `page_vma_mapped_walk()`: the entries by which one VMA maps one folio, one after the other.
//!
//! Source: Linux mm/page_vma_mapped.c.

use crate::Mm;
use crate::folio::Folio;
use crate::vma::Vma;
use arch::{Platform, Pmdp, Ptep};
use events::Event;
use units::{NrPages, PMD_SIZE, VirtAddr};

/// Whether the walk may rely on the page-table lock alone (`PVMW_SYNC`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Pvmw {
    /// Take the lock at once, read nothing before.
    Sync,
    /// Look without the lock first.
    Racy,
    /// As [`Pvmw::Sync`], for the migration entries that stand for the folio's pages
    /// (`PVMW_SYNC | PVMW_MIGRATION`).
    Migration,
}

/// An entry that maps (part of) the folio.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mapped {
    /// A PTE.
    Pte(Ptep),
    /// A PMD leaf.
    Pmd(Pmdp),
}

/// A walk under way.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PageVmaMappedWalk {
    folio: Folio,
    mode: Pvmw,
    mm: arch::MmId,
    next: VirtAddr,
    end: VirtAddr,
    /// The PTE that was returned last, in the table that is locked.
    pte: Option<Ptep>,
    /// A PMD leaf was returned: there is no more.
    done: bool,
    /// The walk left a page table (`PVMW_PGTABLE_CROSSED`).
    pub(crate) crossed: bool,
    /// Pages returned so far.
    seen: u64,
}

impl PageVmaMappedWalk {
    /// A walk over where `vma` maps `folio`, starting at `address`.
    pub(crate) fn new(folio: Folio, vma: &Vma, address: VirtAddr, mode: Pvmw) -> Self {
        let end = address.wrapping_add(folio.order.bytes()).min(vma.end);
        PageVmaMappedWalk {
            folio,
            mode,
            mm: vma.mm,
            next: address,
            end,
            pte: None,
            done: false,
            crossed: false,
            seen: 0,
        }
    }

    /// The next entry, or `None` at the end.
    pub(crate) fn next<P: Platform>(&mut self, mm: &mut Mm<P>) -> Option<Mapped> {
        mm.fentry(Event::FnPageVmaMappedWalk);
        if self.done || self.saw_all(mm) {
            return None;
        }
        match self.pte {
            None => self.descend(mm),
            Some(at) => self.next_pte(mm, at),
        }
    }

    /// 7.2 stops once all pages of the folio were seen; before, the end of the range did.
    fn saw_all<P: Platform>(&self, mm: &Mm<P>) -> bool {
        mm.pt.kernel.pvmw_lockless_precheck && self.seen == self.folio.nr_pages().get()
    }

    /// Starts the walk over, after a split of the PMD leaf (`page_vma_mapped_walk_restart`).
    pub(crate) fn restart(&mut self) {
        self.done = false;
        self.pte = None;
    }

    /// Skips what a batch covered: `nr` entries from the one returned last.
    pub(crate) fn advance(&mut self, nr: NrPages) {
        let more = nr.get() - 1;
        self.seen += more;
        if let Some(at) = &mut self.pte {
            *at = at.add(more);
        }
    }

    fn descend<P: Platform>(&mut self, mm: &mut Mm<P>) -> Option<Mapped> {
        while self.next < self.end {
            let Some(pmdp) = mm.pt.pmd_offset(self.mm, self.next) else {
                self.step_forward(PMD_SIZE);
                continue;
            };
            let pmd = mm.pt.pmdp_get(pmdp);
            if pmd.is_leaf() {
                mm.lock_ptl();
                self.done = true;
                return self.folio.contains(pmd.pfn()).then_some(Mapped::Pmd(pmdp));
            }
            let Some(at) = mm.pt.pte_offset(pmdp, self.next) else {
                self.step_forward(PMD_SIZE);
                continue;
            };
            if self.map_pte(mm, at) {
                self.pte = Some(at);
                if self.check_pte(mm, at) {
                    self.seen += 1;
                    return Some(Mapped::Pte(at));
                }
            }
            self.next = at.va;
            return self.next_pte(mm, at);
        }
        None
    }

    fn step_forward(&mut self, size: u64) {
        self.next = self.next.align_down(size).wrapping_add(size);
    }

    /// `map_pte()`: takes the page-table lock, unless a look before shows nothing to map.
    fn map_pte<P: Platform>(&mut self, mm: &mut Mm<P>, at: Ptep) -> bool {
        mm.fentry(Event::FnMapPte);
        if self.mode == Pvmw::Racy {
            let pte = if mm.pt.kernel.pvmw_lockless_precheck {
                mm.pt.ptep_get_lockless(at)
            } else {
                mm.pt.ptep_get(at)
            };
            if !pte.is_present() {
                return false;
            }
        }
        mm.lock_ptl();
        true
    }

    /// `check_pte()`: whether the entry maps, or stands for, a page of the folio.
    fn check_pte<P: Platform>(&self, mm: &mut Mm<P>, at: Ptep) -> bool {
        mm.fentry(Event::FnCheckPte);
        let pte = mm.pt.ptep_get(at);
        if self.mode == Pvmw::Migration {
            let stands_in = !pte.is_none() && !pte.is_present() && pte.softleaf().is_migration();
            return stands_in && self.folio.contains(pte.softleaf().pfn());
        }
        pte.is_present() && self.folio.contains(pte.pfn())
    }

    /// Goes on from `at`: skips empty entries, enters the next table at its boundary.
    fn next_pte<P: Platform>(&mut self, mm: &mut Mm<P>, mut at: Ptep) -> Option<Mapped> {
        loop {
            self.next = at.va.wrapping_add(units::PAGE_SIZE);
            if self.next >= self.end {
                self.pte = None;
                self.done = true;
                return None;
            }
            if self.next.is_aligned(PMD_SIZE) {
                self.crossed |= self.pte.is_some();
                self.pte = None;
                return self.descend(mm);
            }
            at = at.add(1);
            if mm.pt.ptep_get(at).is_none() {
                continue;
            }
            self.pte = Some(at);
            if self.check_pte(mm, at) {
                self.seen += 1;
                return Some(Mapped::Pte(at));
            }
        }
    }
}
