//! Ranges of huge pages: unmapping, copying for a child, changing protection, moving.

use super::Cow;
use super::fault::{Mkwrite, copy_user_large_folio, make_huge_pte};
use crate::Mm;
use crate::errno::Errno;
use crate::folio::Folio;
use crate::mmu_gather::{MmuGather, Room};
use crate::vma::{VmFlags, Vma, VmaId};
use arch::{Arch, HugeSize, Hugep, MmId, Platform, PteFormat, Teardown};
use events::Op;
use phys::PageFlags;
use units::{NrPages, VirtAddr};

/// Bytes of address space that lack an entry together, where a table is missing
/// (`hugetlb_mask_last_page()`).
fn span_without_table(size: HugeSize) -> u64 {
    match size {
        HugeSize::ContPte => HugeSize::Pmd.bytes(),
        HugeSize::Pmd | HugeSize::ContPmd => HugeSize::Pud.bytes(),
        HugeSize::Pud => HugeSize::Pud.bytes() << 9,
    }
}

/// Calls `each` for the entry of every page in `[start, end)` whose table exists.
///
/// # Errors
/// The first of `each`.
fn for_each_entry<P: Platform>(
    mm: &mut Mm<P>,
    id: MmId,
    size: HugeSize,
    (start, end): (VirtAddr, VirtAddr),
    mut each: impl FnMut(&mut Mm<P>, Hugep) -> Result<(), Errno>,
) -> Result<(), Errno> {
    let mut va = start;
    while va < end {
        // hugetlb_walk()
        va = match mm.pt.huge_pte_offset(id, va, size) {
            Some(at) => {
                each(mm, at)?;
                va.wrapping_add(size.bytes())
            }
            None => {
                let span = span_without_table(size);
                va.align_down(span).wrapping_add(span)
            }
        };
    }
    Ok(())
}

/// Unmaps `[start, end)` of a mapping of huge pages.
/// Source: Linux mm/hugetlb.c `__unmap_hugepage_range()`.
///
/// Events: for each page there one look, one exchange for each of its entries, a rmap removal.
pub(crate) fn unmap_hugepage_range<P: Platform>(
    mm: &mut Mm<P>,
    gather: &mut MmuGather,
    id: VmaId,
    size: HugeSize,
    start: VirtAddr,
    end: VirtAddr,
) {
    let mm = &mut *mm.enter(Op::UnmapHugepageRange);
    let owner = mm.vma(id).mm;
    let done = for_each_entry(mm, owner, size, (start, end), |mm, at| {
        unmap_entry(mm, gather, id, at, None);
        Ok(())
    });
    debug_assert!(done.is_ok(), "unmapping does not fail");
    gather.end_vma(mm);
}

/// One entry of [`unmap_hugepage_range`]; with `only`, if it maps that page.
fn unmap_entry<P: Platform>(
    mm: &mut Mm<P>,
    gather: &mut MmuGather,
    id: VmaId,
    at: Hugep,
    only: Option<Folio>,
) {
    let vma = *mm.vma(id);
    mm.lock_ptl();
    let pte = mm.pt.huge_ptep_get(at);
    if pte.is_none() || !pte.is_present() {
        return;
    }
    let folio = mm.page_folio(pte.pfn());
    if let Some(only) = only {
        if only != folio {
            return;
        }
        mm.vmas[id.index()].flags |= VmFlags::RESV_UNMAPPED;
    }
    let pte = mm.pt.huge_ptep_get_and_clear(at);
    gather.remove_huge_tlb_entry(at.va, at.size);
    if pte.is_dirty() {
        mm.folio_set(folio, PageFlags::DIRTY);
    }
    mm.hugetlb_count_add(vma.mm, at.size, -1);
    mm.hugetlb_remove_rmap(folio);
    restore_reservation(mm, &vma, at, folio);
    if gather.remove_pages(folio.pfn, NrPages::ONE) == Room::Full {
        gather.flush(mm);
    }
}

/// The owner of a private mapping gets its promise back with the last mapping of the page, as
/// long as the pool holds no surplus.
fn restore_reservation<P: Platform>(mm: &mut Mm<P>, vma: &Vma, at: Hugep, folio: Folio) {
    let surplus = mm.huge_pool(at.size).is_some_and(|pool| pool.surplus > 0);
    if !mm.pt.kernel.hugetlb_restore_reserve
        || surplus
        || vma.resv.is_none()
        || mm.folio_mapped(folio)
        || !mm.folio_test(folio, PageFlags::ANON)
    {
        return;
    }
    mm.folio_set(folio, PageFlags::RESTORE_RESERVE);
    mm.vma_add_reservation(vma, at.size, at.va);
}

/// Unmaps `page` at `va`, if it is there, from a mapping that has no promise.
/// Source: Linux mm/hugetlb.c `unmap_hugepage_range()`.
pub(super) fn unmap_one_page<P: Platform>(
    mm: &mut Mm<P>,
    id: VmaId,
    size: HugeSize,
    va: VirtAddr,
    page: Folio,
) {
    let mm = &mut *mm.enter(Op::UnmapHugepageRange);
    let owner = mm.vma(id).mm;
    let mut gather = MmuGather::new(owner, Teardown::Partial);
    if let Some(at) = mm.pt.huge_pte_offset(owner, va, size) {
        unmap_entry(mm, &mut gather, id, at, Some(page));
    }
    gather.end_vma(mm);
    gather.finish(mm);
}

/// Copies the page tables of a mapping of huge pages for a child.
/// Source: Linux mm/hugetlb.c `copy_hugetlb_page_range()`.
///
/// # Errors
/// ENOMEM, also if a pinned page cannot be copied.
pub(crate) fn copy_hugetlb_page_range<P: Platform>(
    mm: &mut Mm<P>,
    from: VmaId,
    to: VmaId,
    size: HugeSize,
) -> Result<(), Errno> {
    let mm = &mut *mm.enter(Op::CopyHugetlbPageRange);
    let vma = *mm.vma(from);
    for_each_entry(mm, vma.mm, size, (vma.start, vma.end), |mm, source| {
        let child = mm.vma(to).mm;
        let target = mm.huge_pte_alloc(child, source.va, size).ok_or(Errno::ENOMEM)?;
        mm.lock_ptl();
        mm.lock_ptl();
        let entry = mm.pt.huge_ptep_get(source);
        if entry.is_none() || !entry.is_present() {
            return Ok(());
        }
        copy_entry(mm, (from, to), source, target)
    })
}

fn copy_entry<P: Platform>(
    mm: &mut Mm<P>,
    (from, to): (VmaId, VmaId),
    source: Hugep,
    target: Hugep,
) -> Result<(), Errno> {
    let vma = *mm.vma(from);
    let mut entry = mm.pt.huge_ptep_get(source);
    let folio = mm.page_folio(entry.pfn());
    mm.folio_ref_add(folio, 1);
    if !mm.folio_test(folio, PageFlags::ANON) {
        mm.hugetlb_add_file_rmap(folio);
    } else if mm.page_anon_exclusive(folio.pfn) && mm.folio_maybe_dma_pinned(folio) {
        return copy_pinned(mm, to, source, target, folio);
    } else {
        // hugetlb_try_dup_anon_rmap()
        if mm.page_anon_exclusive(folio.pfn) {
            mm.clear_page_anon_exclusive(folio.pfn);
        }
        mm.add_entire_mapcount(folio);
    }
    if vma.is_cow() {
        mm.pt.huge_ptep_set_wrprotect(source);
        entry = entry.wrprotect();
    }
    mm.pt.set_huge_pte_at(target, entry);
    mm.hugetlb_count_add(target.mm, target.size, 1);
    Ok(())
}

/// A page that may be pinned stays the parent's; the child gets a copy, if the pool has a page
/// that nobody was promised.
fn copy_pinned<P: Platform>(
    mm: &mut Mm<P>,
    to: VmaId,
    source: Hugep,
    target: Hugep,
    folio: Folio,
) -> Result<(), Errno> {
    let vma = *mm.vma(to);
    let new = mm.alloc_hugetlb_folio(&vma, target.size, target.va, Cow::No);
    let Some(new) = new else {
        mm.folio_put_refs(folio, 1);
        return Err(Errno::ENOMEM);
    };
    copy_user_large_folio(mm, new, folio);
    mm.folio_put_refs(folio, 1);
    mm.lock_ptl();
    mm.lock_ptl();
    mm.pt.huge_ptep_get(source);
    // hugetlb_install_folio()
    mm.hugetlb_add_new_anon_rmap(new, to, target.va);
    mm.pt.set_huge_pte_at(target, make_huge_pte(&vma, target.size, new, Mkwrite::Try));
    mm.hugetlb_count_add(target.mm, target.size, 1);
    Ok(())
}

/// Gives the entries of a whole VMA its protection.
/// Source: Linux mm/hugetlb.c `hugetlb_change_protection()`.
pub(crate) fn hugetlb_change_protection<P: Platform>(mm: &mut Mm<P>, id: VmaId, size: HugeSize) {
    let mm = &mut *mm.enter(Op::HugetlbChangeProtection);
    let vma = *mm.vma(id);
    let prot = P::Arch::vm_get_page_prot(vma.page_prot());
    let mut gather = MmuGather::new(vma.mm, Teardown::Partial);
    let done = for_each_entry(mm, vma.mm, size, (vma.start, vma.end), |mm, at| {
        mm.lock_ptl();
        let pte = mm.pt.huge_ptep_get(at);
        if pte.is_none() || !pte.is_present() {
            return Ok(());
        }
        // huge_ptep_modify_prot_start() and _commit()
        let old = mm.pt.huge_ptep_get_and_clear(at);
        mm.pt.set_huge_pte_at(at, P::Arch::arch_make_huge_pte(old.modify(prot), size));
        gather.remove_huge_tlb_entry(at.va, size);
        Ok(())
    });
    debug_assert!(done.is_ok(), "changing does not fail");
    gather.flush_tlb_only(mm);
    gather.finish(mm);
}

/// Moves the entries of `[from, from + len)` to `to`. Returns how many bytes were moved.
/// Source: Linux mm/hugetlb.c `move_hugetlb_page_tables()`.
pub(crate) fn move_hugetlb_page_tables<P: Platform>(
    mm: &mut Mm<P>,
    id: MmId,
    size: HugeSize,
    (from, to): (VirtAddr, VirtAddr),
    len: u64,
) -> u64 {
    let mm = &mut *mm.enter(Op::MoveHugetlbPageTables);
    let mut gather = MmuGather::new(id, Teardown::Partial);
    let mut moved = len;
    let end = from.wrapping_add(len);
    let result = for_each_entry(mm, id, size, (from, end), |mm, source| {
        if mm.pt.huge_ptep_get(source).is_none() {
            return Ok(());
        }
        let offset = source.va.bytes_since(from);
        let Some(target) = mm.huge_pte_alloc(id, to.wrapping_add(offset), size) else {
            moved = offset;
            return Err(Errno::ENOMEM);
        };
        // move_huge_pte()
        mm.lock_ptl();
        mm.lock_ptl();
        let pte = mm.pt.huge_ptep_get_and_clear(source);
        mm.pt.set_huge_pte_at(target, pte);
        gather.remove_huge_tlb_entry(source.va, size);
        Ok(())
    });
    gather.flush_tlb_only(mm);
    gather.finish(mm);
    if result.is_ok() { len } else { moved }
}
