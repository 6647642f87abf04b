//! Looking at and resetting what page tables remember of accesses. Source: Linux fs/proc/task_mmu.c.

use crate::Mm;
use crate::pagewalk::{Action, Callbacks, MmWalk, MmWalkOps, Span, Step, walk_page_range};
use crate::vma::{VmFlags, Vma};
use arch::{Arch, FlushRange, LeafOnly, MmId, Platform, Pmdp, Pte, Ptep};
use phys::PageFlags;
use std::convert::Infallible;
use std::ops::ControlFlow;
use units::{NrPages, Reach, VirtAddr};

/// What a number written to `clear_refs` asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClearRefs {
    /// 1: forget accesses.
    All,
    /// 2: those of anonymous memory.
    Anon,
    /// 3: those of mapped files.
    Mapped,
    /// 4: notice the next write to each page.
    SoftDirty,
    /// 5: the peak of resident memory is what there is now.
    MmHiwaterRss,
}

impl ClearRefs {
    /// What the number stands for.
    pub fn from_number(number: u64) -> Option<ClearRefs> {
        Some(match number {
            1 => ClearRefs::All,
            2 => ClearRefs::Anon,
            3 => ClearRefs::Mapped,
            4 => ClearRefs::SoftDirty,
            5 => ClearRefs::MmHiwaterRss,
            _ => return None,
        })
    }
}

/// Whether page tables have a bit for it (CONFIG_MEM_SOFT_DIRTY).
pub(crate) fn has_soft_dirty<A: Arch>() -> bool {
    Pte::<A>::from_raw(0).mksoft_dirty().is_soft_dirty()
}

/// `vma_soft_dirty_enabled()`: whether writes to the mapping are to be noticed.
pub(crate) fn vma_soft_dirty_enabled<A: Arch>(vma: &Vma) -> bool {
    has_soft_dirty::<A>() && !vma.flags.contains(VmFlags::SOFTDIRTY)
}

impl<P: Platform> Mm<P> {
    /// The VMA that contains `va`.
    pub fn vma_at(&self, mm: MmId, va: VirtAddr) -> Option<&Vma> {
        self.vma_lookup(mm, va).map(|id| self.vma(id))
    }

    /// Source: Linux fs/proc/task_mmu.c `clear_refs_write()`.
    pub fn clear_refs(&mut self, mm: MmId, what: ClearRefs) {
        if what == ClearRefs::MmHiwaterRss {
            let resident = self.mm_struct(mm).resident();
            self.mm_mut(mm).hiwater_rss = resident;
            return;
        }
        let top = <P::Arch as Arch>::TASK_SIZE;
        let ids = self.vmas_in(mm, VirtAddr::ZERO, top);
        if what == ClearRefs::SoftDirty {
            for &id in &ids {
                self.vmas[id.index()].flags.remove(VmFlags::SOFTDIRTY);
            }
        }
        for id in ids {
            let vma = *self.vma(id);
            let skipped = match what {
                ClearRefs::Anon => vma.file.is_some(),
                ClearRefs::Mapped => vma.file.is_none(),
                _ => false,
            };
            if skipped || vma.flags.contains(VmFlags::HUGETLB) {
                continue;
            }
            let span = Span { start: vma.start, end: vma.end };
            let mut ops = ClearRefsWalk { vma, what };
            let ControlFlow::Continue(()) = walk_page_range(self, mm, span, &mut ops);
        }
        if what == ClearRefs::SoftDirty {
            let (stride, leaf_only) = (Reach::K4, LeafOnly::No);
            let range = FlushRange { start: VirtAddr::ZERO, end: top, stride, leaf_only };
            self.pt.flush_tlb_range(mm, range);
        }
    }
}

/// `clear_refs_walk_ops`.
struct ClearRefsWalk {
    vma: Vma,
    what: ClearRefs,
}

impl<P: Platform> MmWalkOps<P> for ClearRefsWalk {
    type Stop = Infallible;
    const CALLBACKS: Callbacks = Callbacks::PMD_ENTRY;

    fn pmd_entry(
        &mut self,
        mm: &mut Mm<P>,
        _: &MmWalk,
        pmdp: Pmdp,
        span: Span,
    ) -> Step<Infallible> {
        clear_refs_pte_range(mm, &self.vma, pmdp, span, self.what);
        Step::Continue(Action::Subtree)
    }
}

/// Source: Linux fs/proc/task_mmu.c `clear_refs_pte_range()`.
fn clear_refs_pte_range<P: Platform>(
    mm: &mut Mm<P>,
    vma: &Vma,
    pmdp: Pmdp,
    span: Span,
    what: ClearRefs,
) {
    mm.lock_ptl();
    let soft_dirty = what == ClearRefs::SoftDirty;
    if mm.pt.pmdp_get(pmdp).is_leaf() {
        return match soft_dirty {
            true => clear_soft_dirty_pmd(mm, pmdp),
            false => forget_pmd(mm, pmdp),
        };
    }
    let Some(first) = mm.pt.pte_offset(pmdp, span.start) else { return };
    for i in 0..span.pages().get() {
        let at = first.add(i);
        let pte = mm.pt.ptep_get(at);
        if soft_dirty {
            clear_soft_dirty(mm, vma, at, pte);
        } else if pte.is_present()
            && let Some(folio) = mm.vm_normal_folio(pte)
        {
            mm.pt.test_and_clear_young_ptes(at, NrPages::ONE);
            mm.folio_clear(folio, PageFlags::REFERENCED);
        }
    }
}

fn forget_pmd<P: Platform>(mm: &mut Mm<P>, pmdp: Pmdp) {
    let pmd = mm.pt.pmdp_get(pmdp);
    if pmd.is_present() && !pmd.is_special() {
        mm.pt.pmdp_test_and_clear_young(pmdp);
        let folio = mm.page_folio(pmd.pfn());
        mm.folio_clear(folio, PageFlags::REFERENCED);
    }
}

/// Makes the next write fault. Source: Linux fs/proc/task_mmu.c `clear_soft_dirty()`.
fn clear_soft_dirty<P: Platform>(mm: &mut Mm<P>, vma: &Vma, at: Ptep, pte: Pte<P::Arch>) {
    if !has_soft_dirty::<P::Arch>() || pte.is_none() {
        return;
    }
    if !pte.is_present() {
        if pte.softleaf().is_swap() && pte.is_swp_soft_dirty() {
            mm.pt.set_pte_at(at, pte.swp_clear_soft_dirty());
        }
        return;
    }
    // pte_is_pinned(): whoever writes to it by DMA is not noticed anyway.
    let pinned = mm.vm_normal_folio(pte).is_some_and(|folio| mm.folio_maybe_dma_pinned(folio));
    if vma.is_cow() && pinned {
        return;
    }
    let old = mm.pt.modify_prot_start_ptes(at, NrPages::ONE);
    mm.pt.modify_prot_commit_ptes(at, old.wrprotect().clear_soft_dirty(), NrPages::ONE);
}

/// Source: Linux fs/proc/task_mmu.c `clear_soft_dirty_pmd()`.
fn clear_soft_dirty_pmd<P: Platform>(mm: &mut Mm<P>, pmdp: Pmdp) {
    if !has_soft_dirty::<P::Arch>() || !mm.pt.pmdp_get(pmdp).is_present() {
        return;
    }
    let old = mm.pt.pmdp_invalidate(pmdp);
    mm.pt.set_pmd_at(pmdp, old.wrprotect().clear_soft_dirty());
}
