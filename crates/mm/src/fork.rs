//! Copying an address space for a child. Source: Linux kernel/fork.c `dup_mmap()`, mm/memory.c
//! `copy_page_range()`.

use crate::errno::Errno;
use crate::huge_memory::{self, CopyHuge};
use crate::pte_batch::Fpb;
use crate::vma::{Mdwe, VmFlags, Vma, VmaId};
use crate::{Mm, hugetlb, memory};
use arch::{MmId, Platform, Pmdp, Pte, Ptep, SoftleafKind};
use events::{Event, Op};
use phys::PageFlags;
use units::{NrPages, VirtAddr};

impl<P: Platform> Mm<P> {
    /// A copy of the address space `parent`, sharing its private pages until one side writes.
    ///
    /// # Errors
    /// ENOMEM; the half-made copy is gone then.
    pub fn dup_mmap(&mut self, parent: MmId) -> Result<MmId, Errno> {
        let child = self.mm_alloc()?;
        let from = self.mm_struct(parent).clone();
        {
            let to = self.mm_mut(child);
            to.memlock_limit = from.memlock_limit;
            if !from.mdwe.contains(Mdwe::NO_INHERIT) {
                to.mdwe = from.mdwe;
            }
            (to.start_brk, to.brk, to.mmap_base) = (from.start_brk, from.brk, from.mmap_base);
            if self.pt.kernel.fork_copies_tlb_batch {
                let to = &mut self.mms[child.index()];
                to.tlb_batch_pending = from.tlb_batch_pending;
                to.tlb_batch_flushed = from.tlb_batch_flushed;
            }
        }
        self.ksm_fork(parent, child);
        for id in from.tree.into_values() {
            let vma = *self.vma(id);
            if vma.flags.contains(VmFlags::DONTFORK) {
                continue;
            }
            let flags = vma.flags - (VmFlags::LOCKED | VmFlags::LOCKONFAULT);
            // The child has no reservations of its own (hugetlb_dup_vma_private()).
            let copy = Vma { mm: child, flags, anon_vma: None, resv: None, ..vma };
            let copy_id = self.insert_vma(copy);
            if vma.flags.contains(VmFlags::WIPEONFORK) {
                continue;
            }
            if vma.anon_vma.is_some() {
                self.anon_vma_fork(id, copy_id);
            }
            if let Err(error) = copy_page_range(self, id, copy_id) {
                self.mmput(child);
                return Err(error);
            }
        }
        // flush_tlb_mm() of the parent, whose entries became read-only.
        self.pt.flush_tlb_mm(parent);
        Ok(child)
    }
}

/// `vma_needs_copy()`: pages that a fault can bring back are left to it.
fn vma_needs_copy(vma: &Vma) -> bool {
    vma.anon_vma.is_some() || vma.flags.contains(VmFlags::PFNMAP)
}

fn copy_page_range<P: Platform>(mm: &mut Mm<P>, from: VmaId, to: VmaId) -> Result<(), Errno> {
    let mm = &mut *mm.enter(Op::CopyPageRange);
    let vma = *mm.vma(from);
    if !vma_needs_copy(&vma) {
        return Ok(());
    }
    if let Some(size) = vma.huge {
        return hugetlb::copy_hugetlb_page_range(mm, from, to, size);
    }
    let child = mm.vma(to).mm;
    let mut va = vma.start;
    while va < vma.end {
        let next = memory::pmd_addr_end(va, vma.end);
        if let Some(source) = mm.pt.pmd_offset(vma.mm, va)
            && !mm.pt.pmdp_get(source).is_none()
        {
            let target = mm.pmd_alloc(child, va).ok_or(Errno::ENOMEM)?;
            copy_pmd(mm, from, source, target, va, next)?;
        }
        va = next;
    }
    Ok(())
}

fn copy_pmd<P: Platform>(
    mm: &mut Mm<P>,
    from: VmaId,
    source: Pmdp,
    target: Pmdp,
    start: VirtAddr,
    end: VirtAddr,
) -> Result<(), Errno> {
    if mm.pt.pmdp_get(source).is_leaf()
        && huge_memory::copy_huge_pmd(mm, source, target, from)? == CopyHuge::Copied
    {
        return Ok(());
    }
    copy_pte_range(mm, from, source, target, start, end)
}

/// Source: Linux mm/memory.c `copy_pte_range()`.
fn copy_pte_range<P: Platform>(
    mm: &mut Mm<P>,
    from: VmaId,
    source: Pmdp,
    target: Pmdp,
    start: VirtAddr,
    end: VirtAddr,
) -> Result<(), Errno> {
    let first_to = mm.pte_alloc(target, start).ok_or(Errno::ENOMEM)?;
    let Some(first) = mm.pt.pte_offset(source, start) else { return Ok(()) };
    mm.lock_ptl();
    let pages = NrPages::covering(end.bytes_since(start)).get();
    let mut i = 0;
    while i < pages {
        let (at, to) = (first.add(i), first_to.add(i));
        let pte = mm.pt.ptep_get(at);
        let max = NrPages::new(pages - i);
        i += if pte.is_none() {
            1
        } else if pte.is_present() {
            copy_present_ptes(mm, from, at, to, pte, max)?.get()
        } else {
            copy_nonpresent_pte(mm, at, to);
            1
        };
    }
    Ok(())
}

/// Source: Linux mm/memory.c `copy_nonpresent_pte()`.
fn copy_nonpresent_pte<P: Platform>(mm: &mut Mm<P>, at: Ptep, to: Ptep) {
    let pte = mm.pt.ptep_get(at);
    let leaf = pte.softleaf();
    let mut entry = pte;
    if leaf.kind() == SoftleafKind::Swap {
        mm.swap_duplicate(leaf);
        mm.add_rss_swapents(to.mm, 1);
        if pte.is_swp_exclusive() {
            entry = pte.swp_clear_exclusive();
            mm.pt.set_pte_at(at, entry);
        }
    }
    mm.pt.set_pte_at(to, entry);
}

/// Source: Linux mm/memory.c `copy_present_ptes()`, `__copy_present_ptes()`.
fn copy_present_ptes<P: Platform>(
    mm: &mut Mm<P>,
    from: VmaId,
    at: Ptep,
    to: Ptep,
    pte: Pte<P::Arch>,
    max: NrPages,
) -> Result<NrPages, Errno> {
    mm.fentry(Event::FnCopyPresentPtes);
    let vma = *mm.vma(from);
    let Some(folio) = mm.vm_normal_folio(pte) else {
        write_child_ptes(mm, &vma, at, to, pte, NrPages::ONE, pte.is_write());
        return Ok(NrPages::ONE);
    };
    let anon = mm.folio_test(folio, PageFlags::ANON);
    let (mut nr, mut any_writable) = (NrPages::ONE, pte.is_write());
    if folio.is_large() && max > NrPages::ONE {
        let flags = match vma.flags.contains(VmFlags::SHARED) {
            true => Fpb::empty(),
            false => Fpb::RESPECT_DIRTY,
        };
        let run = mm.folio_pte_batch(folio, at, pte, max, flags);
        (nr, any_writable) = (run.nr, run.any_writable);
    }
    if anon && mm.folio_maybe_dma_pinned(folio) && mm.page_anon_exclusive(pte.pfn()) {
        return copy_present_page(mm, &vma, to, pte).map(|()| NrPages::ONE);
    }
    mm.folio_ref_add(folio, nr.get());
    mm.add_mapcounts(folio, pte.pfn(), nr);
    if anon {
        for i in 0..nr.get() {
            if mm.page_anon_exclusive(pte.pfn().add(i)) {
                mm.clear_page_anon_exclusive(pte.pfn().add(i));
            }
        }
        mm.add_rss_anon(to.mm, nr.get().cast_signed());
    } else {
        mm.add_rss_file(to.mm, folio, nr.get().cast_signed());
    }
    write_child_ptes(mm, &vma, at, to, pte, nr, any_writable);
    Ok(nr)
}

fn write_child_ptes<P: Platform>(
    mm: &mut Mm<P>,
    vma: &Vma,
    at: Ptep,
    to: Ptep,
    mut pte: Pte<P::Arch>,
    nr: NrPages,
    any_writable: bool,
) {
    mm.fentry(Event::FnUnderCopyPresentPtes);
    if vma.is_cow() && any_writable {
        mm.pt.wrprotect_ptes(at, nr);
        pte = pte.wrprotect();
    }
    if vma.flags.contains(VmFlags::SHARED) {
        pte = pte.mkclean();
    }
    mm.pt.set_ptes(to, pte.mkold(), nr);
}

/// A page that may be pinned stays the parent's; the child gets a copy.
/// Source: Linux mm/memory.c `copy_present_page()`.
fn copy_present_page<P: Platform>(
    mm: &mut Mm<P>,
    vma: &Vma,
    to: Ptep,
    pte: Pte<P::Arch>,
) -> Result<(), Errno> {
    let copy = mm.folio_alloc_reclaiming(units::Order::ZERO).ok_or(Errno::ENOMEM)?;
    mm.pt.count(Event::PageCopy, 1);
    mm.pt.ram.copy_frame(copy.pfn, pte.pfn());
    let child = mm.vma_lookup(to.mm, to.va).ok_or(Errno::ENOMEM)?;
    mm.folio_add_new_anon_rmap(copy, child, to.va);
    mm.folio_add_lru(copy);
    mm.add_rss_anon(to.mm, 1);
    let prot = <P::Arch as arch::PteFormat>::vm_get_page_prot(vma.page_prot());
    let mut entry = Pte::new(copy.pfn, prot).mkyoung();
    if vma.flags.contains(VmFlags::WRITE) {
        entry = entry.mkdirty().mkwrite();
    }
    mm.pt.set_pte_at(to, entry);
    Ok(())
}
