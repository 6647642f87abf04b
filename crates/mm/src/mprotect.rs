//! mprotect(2). Source: Linux mm/mprotect.c.

use crate::errno::Errno;
use crate::mmap::page_align;
use crate::mmu_gather::MmuGather;
use crate::mseal::can_modify_vma;
use crate::pte_batch::Fpb;
use crate::task_mmu::vma_soft_dirty_enabled;
use crate::vma::{VmFlags, VmProt, Vma, VmaId};
use crate::{Mm, huge_memory, hugetlb, memory};
use arch::{Arch, MmId, Platform, Pmdp, Pte, PteFormat, Ptep, Teardown};
use events::{Event, Op};
use phys::PageFlags;
use units::{NrPages, PAGE_SIZE, PMD_SIZE, VirtAddr};

impl<P: Platform> Mm<P> {
    /// `mprotect()`.
    ///
    /// # Errors
    /// EINVAL for an unaligned start, ENOMEM at the first hole, EACCES if a mapping may never
    /// allow what is asked, EPERM at one that is sealed.
    pub fn mprotect(
        &mut self,
        mm: MmId,
        start: VirtAddr,
        len: u64,
        prot: VmProt,
    ) -> Result<(), Errno> {
        if !start.is_aligned(PAGE_SIZE) {
            return Err(Errno::EINVAL);
        }
        let len = page_align(len).ok_or(Errno::ENOMEM)?;
        let end = start.checked_add(len).ok_or(Errno::ENOMEM)?;
        if len == 0 {
            return Ok(());
        }
        self.check_split(mm, start, end)?;
        let mut gather = MmuGather::new(mm, Teardown::Partial);
        let mut at = start;
        let mut result = Ok(());
        while at < end {
            let Some(id) = self.vma_lookup(mm, at) else {
                result = Err(Errno::ENOMEM);
                break;
            };
            let vma = self.vma(id);
            let to = vma.end.min(end);
            // What a mapping may become stands four bits above what it is.
            let may = VmFlags::from_bits_truncate(vma.flags.bits() >> 4);
            let (old, new) = (vma.flags, protected(vma.flags, prot));
            if !may.contains(prot.vm_flags()) || self.map_deny_write_exec(mm, old, new) {
                result = Err(Errno::EACCES);
                break;
            }
            result = can_modify_vma(self.vma(id));
            if result.is_err() {
                break;
            }
            mprotect_fixup(self, &mut gather, id, at, to, new);
            at = to;
        }
        gather.finish(self);
        result
    }
}

/// The flags of a mapping once it has the protection `prot`.
fn protected(flags: VmFlags, prot: VmProt) -> VmFlags {
    (flags - (VmFlags::READ | VmFlags::WRITE | VmFlags::EXEC)) | prot.vm_flags()
}

/// Source: Linux mm/mprotect.c `mprotect_fixup()`.
fn mprotect_fixup<P: Platform>(
    mm: &mut Mm<P>,
    gather: &mut MmuGather,
    id: VmaId,
    start: VirtAddr,
    end: VirtAddr,
    flags: VmFlags,
) {
    let old = *mm.vma(id);
    if flags == old.flags {
        return;
    }
    let part = mm.isolate_range(old.mm, start, end);
    for id in part {
        mm.vmas[id.index()].flags = flags;
        match old.huge {
            Some(size) => hugetlb::hugetlb_change_protection(mm, id, size),
            None => change_protection(mm, gather, id),
        }
        mm.merge_vma(id);
    }
}

/// Source: Linux mm/mprotect.c `change_protection()`, `change_protection_range()`.
fn change_protection<P: Platform>(mm: &mut Mm<P>, gather: &mut MmuGather, id: VmaId) {
    let mm = &mut *mm.enter(Op::ChangeProtection);
    let vma = *mm.vma(id);
    let mut va = vma.start;
    while va < vma.end {
        let next = memory::pmd_addr_end(va, vma.end);
        if let Some(pmdp) = mm.pt.pmd_offset(vma.mm, va) {
            change_pmd(mm, gather, id, pmdp, va, next);
        }
        va = next;
    }
    gather.end_vma(mm);
}

fn change_pmd<P: Platform>(
    mm: &mut Mm<P>,
    gather: &mut MmuGather,
    id: VmaId,
    pmdp: Pmdp,
    va: VirtAddr,
    next: VirtAddr,
) {
    let pmd = mm.pt.pmdp_get(pmdp);
    if pmd.is_none() {
        return;
    }
    if pmd.is_leaf() {
        if next.bytes_since(va) == PMD_SIZE {
            huge_memory::change_huge_pmd(mm, gather, id, pmdp);
            return;
        }
        huge_memory::split_huge_pmd(mm, id, pmdp);
    }
    change_pte_range(mm, gather, id, pmdp, va, next);
}

/// Source: Linux mm/mprotect.c `change_pte_range()`.
fn change_pte_range<P: Platform>(
    mm: &mut Mm<P>,
    gather: &mut MmuGather,
    id: VmaId,
    pmdp: Pmdp,
    start: VirtAddr,
    end: VirtAddr,
) {
    let vma = *mm.vma(id);
    let Some(first) = mm.pt.pte_offset(pmdp, start) else { return };
    mm.lock_ptl();
    if mm.pt.kernel.mprotect_batched {
        mm.fentry(Event::FnChangePteRange);
    }
    mm.flush_tlb_batched_pending(vma.mm);
    let pages = NrPages::covering(end.bytes_since(start)).get();
    let mut i = 0;
    while i < pages {
        let at = first.add(i);
        let pte = mm.pt.ptep_get(at);
        i += match pte.is_present() {
            true => change_present_ptes(mm, gather, &vma, at, pte, NrPages::new(pages - i)).get(),
            false => 1,
        };
    }
}

/// Source: Linux mm/mprotect.c `change_present_ptes()`.
fn change_present_ptes<P: Platform>(
    mm: &mut Mm<P>,
    gather: &mut MmuGather,
    vma: &Vma,
    at: Ptep,
    pte: Pte<P::Arch>,
    max: NrPages,
) -> NrPages {
    if mm.pt.kernel.mprotect_batched {
        mm.fentry(Event::FnChangePresentPtes);
    }
    let nr = match mm.pt.kernel.mprotect_batched {
        true => mprotect_folio_pte_batch(mm, at, pte, max),
        false => NrPages::ONE,
    };
    let old = mm.pt.modify_prot_start_ptes(at, nr);
    let entry = old.modify(P::Arch::vm_get_page_prot(vma.page_prot()));
    let mut done = 0;
    while done < nr.get() {
        let left = NrPages::new(nr.get() - done);
        let page = at.add(done);
        let mut value = entry.advance_pfn(done);
        let mut sub = left;
        if !value.is_write() && vma.flags.contains(VmFlags::WRITE) {
            let (writable, run) = can_change_ptes_writable(mm, vma, value, left);
            sub = run;
            if writable {
                value = value.mkwrite();
            }
        }
        mm.pt.modify_prot_commit_ptes(page, value, sub);
        let before = old.advance_pfn(done);
        if P::Arch::pte_needs_flush(&mm.pt.kernel, before, value) {
            gather.flush_pte_range(page.va, sub.bytes());
        }
        done += sub.get();
    }
    nr
}

/// How many entries from `at` on can be changed alike. Source: Linux mm/mprotect.c
/// `mprotect_folio_pte_batch()`.
fn mprotect_folio_pte_batch<P: Platform>(
    mm: &mut Mm<P>,
    at: Ptep,
    pte: Pte<P::Arch>,
    max: NrPages,
) -> NrPages {
    mm.fentry(Event::FnMprotectFolioPteBatch);
    match mm.vm_normal_folio(pte) {
        Some(folio) if folio.is_large() => {
            let flags = Fpb::RESPECT_WRITE | Fpb::RESPECT_SOFT_DIRTY;
            mm.folio_pte_batch(folio, at, pte, max, flags).nr
        }
        _ => NrPages::ONE,
    }
}

/// Whether write may be granted at once, without a fault, and for how many pages alike.
/// Source: Linux mm/mprotect.c `can_change_pte_writable()`.
fn can_change_ptes_writable<P: Platform>(
    mm: &mut Mm<P>,
    vma: &Vma,
    pte: Pte<P::Arch>,
    max: NrPages,
) -> (bool, NrPages) {
    mm.fentry(Event::FnCanChangePteWritable);
    if pte.is_protnone() || pte.is_uffd_wp() {
        return (false, max);
    }
    if vma_soft_dirty_enabled::<P::Arch>(vma) && !pte.is_soft_dirty() {
        return (false, max);
    }
    if vma.flags.contains(VmFlags::SHARED) {
        return (pte.is_dirty(), max);
    }
    let Some(folio) = mm.vm_normal_folio(pte) else { return (false, max) };
    if !mm.folio_test(folio, PageFlags::ANON) {
        return (false, max);
    }
    let first = mm.page_anon_exclusive(pte.pfn());
    let alike =
        (1..max.get()).take_while(|&i| mm.page_anon_exclusive(pte.pfn().add(i)) == first).count();
    (first, NrPages::new(1 + alike as u64))
}
