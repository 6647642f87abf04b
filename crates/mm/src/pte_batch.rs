//! Runs of PTEs that map consecutive pages of one folio, or consecutive swap slots.
//!
//! Source: Linux mm/internal.h and mm/util.c `folio_pte_batch_flags()`, `swap_pte_batch()`.

use crate::Mm;
use crate::folio::Folio;
use arch::{Platform, Pte, Ptep};
use events::Event;
use units::NrPages;

bitflags::bitflags! {
    /// What tells two PTEs of a run apart, and what is merged (`fpb_t`).
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub(crate) struct Fpb: u8 {
        /// Dirty must agree.
        const RESPECT_DIRTY = 1;
        /// Soft-dirty must agree.
        const RESPECT_SOFT_DIRTY = 2;
        /// Write must agree.
        const RESPECT_WRITE = 4;
    }
}

/// A run of PTEs.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Run {
    /// How many.
    pub(crate) nr: NrPages,
    /// Whether any is young.
    pub(crate) any_young: bool,
    /// Whether any is dirty.
    pub(crate) any_dirty: bool,
    /// Whether any is writable.
    pub(crate) any_writable: bool,
}

fn clear_ignored<A: arch::Arch>(mut pte: Pte<A>, flags: Fpb) -> Pte<A> {
    if !flags.contains(Fpb::RESPECT_DIRTY) {
        pte = pte.mkclean();
    }
    if !flags.contains(Fpb::RESPECT_SOFT_DIRTY) {
        pte = pte.clear_soft_dirty();
    }
    if !flags.contains(Fpb::RESPECT_WRITE) {
        pte = pte.wrprotect();
    }
    pte.mkold()
}

impl<P: Platform> Mm<P> {
    /// `folio_pte_batch_flags()`: how many PTEs from `at` on (whose value is `pte`) map
    /// consecutive pages of `folio`, at most `max`. Events: one `ptep_get` per contiguous block
    /// or entry after the first.
    pub(crate) fn folio_pte_batch(
        &mut self,
        folio: Folio,
        at: Ptep,
        pte: Pte<P::Arch>,
        max: NrPages,
        flags: Fpb,
    ) -> Run {
        self.fentry_since(Event::FnFolioPteBatch, Event::FnFolioPteBatchFlags);
        let run = self.pte_run(folio, at, pte, max, flags);
        self.pt.count(Event::FolioPteBatchNr, run.nr.get());
        run
    }

    /// The loop of [`Mm::folio_pte_batch`], for who has it in a function of its own.
    pub(crate) fn pte_run(
        &mut self,
        folio: Folio,
        at: Ptep,
        pte: Pte<P::Arch>,
        max: NrPages,
        flags: Fpb,
    ) -> Run {
        let left = folio.nr_pages().get() - folio.index_of(pte.pfn());
        let max = max.get().min(left);
        let mut run = Run {
            nr: NrPages::ONE,
            any_young: pte.is_young(),
            any_dirty: pte.is_dirty(),
            any_writable: pte.is_write(),
        };
        let mut nr = self.pt.pte_batch_hint(at, pte).get();
        let first = clear_ignored(pte, flags);
        while nr < max {
            let here = at.add(nr);
            let found = self.pt.ptep_get(here);
            if clear_ignored(found, flags) != self.expected(first, nr) {
                break;
            }
            run.any_young |= found.is_young();
            run.any_dirty |= found.is_dirty();
            run.any_writable |= found.is_write();
            nr += self.pt.pte_batch_hint(here, found).get();
        }
        run.nr = NrPages::new(nr.min(max));
        run
    }

    #[inline]
    fn expected(&self, first: Pte<P::Arch>, nr: u64) -> Pte<P::Arch> {
        first.advance_pfn(nr)
    }

    /// `swap_pte_batch()`: how many PTEs from `at` on hold consecutive swap slots with equal
    /// flags, at most `max`.
    pub(crate) fn swap_pte_batch(&mut self, at: Ptep, pte: Pte<P::Arch>, max: NrPages) -> NrPages {
        self.fentry(Event::FnSwapPteBatch);
        let leaf = pte.softleaf();
        let mut nr = 1;
        while nr < max.get() {
            let found = self.pt.ptep_get(at.add(nr));
            if found.is_none() || found.is_present() {
                break;
            }
            let same = found.softleaf() == leaf.advance(nr)
                && found.is_swp_exclusive() == pte.is_swp_exclusive()
                && found.is_swp_soft_dirty() == pte.is_swp_soft_dirty()
                && found.is_swp_uffd_wp() == pte.is_swp_uffd_wp();
            if !same {
                break;
            }
            nr += 1;
        }
        NrPages::new(nr)
    }

    /// `pte_range_none()`: whether `nr` PTEs from `at` on are empty. Events: one
    /// `ptep_get_lockless` per entry, up to the first that is not.
    pub(crate) fn pte_range_none(&mut self, at: Ptep, nr: NrPages) -> bool {
        (0..nr.get()).all(|i| self.pt.ptep_get_lockless(at.add(i)).is_none())
    }
}
