//! Faults on huge pages. Source: Linux mm/hugetlb.c `hugetlb_fault()` and below.

use super::{Cow, index_of};
use crate::Mm;
use crate::folio::Folio;
use crate::memory::FaultSignal;
use crate::vma::{VmFlags, Vma, VmaId};
use arch::{Arch, FaultAccess, HugeSize, Hugep, Platform, Pte};
use events::{Event, Op};
use phys::PageFlags;
use units::VirtAddr;

/// A fault being served.
#[derive(Clone, Copy, Debug)]
struct HugeFault<A> {
    id: VmaId,
    vma: Vma,
    size: HugeSize,
    access: FaultAccess,
    at: Hugep,
    orig: Pte<A>,
}

impl<A> HugeFault<A> {
    fn va(&self) -> VirtAddr {
        self.at.va
    }
    fn is_shared(&self) -> bool {
        self.vma.flags.contains(VmFlags::MAYSHARE)
    }
}

/// Whether a fresh entry may be written at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mkwrite {
    /// If the mapping is writable.
    Try,
    No,
}

/// Source: Linux mm/hugetlb.c `make_huge_pte()`.
pub(super) fn make_huge_pte<A: Arch>(
    vma: &Vma,
    size: HugeSize,
    folio: Folio,
    mkwrite: Mkwrite,
) -> Pte<A> {
    let entry = Pte::new(folio.pfn, A::vm_get_page_prot(vma.page_prot()));
    let entry = match mkwrite == Mkwrite::Try && vma.flags.contains(VmFlags::WRITE) {
        true => entry.mkdirty().mkwrite(),
        false => entry.wrprotect(),
    };
    A::arch_make_huge_pte(entry.mkyoung(), size)
}

/// Serves a fault in a mapping of huge pages.
///
/// Events: for a first write to private memory four looks at the entry, one store of it and one
/// raise of its flags; the page cleared.
///
/// # Errors
/// SIGBUS if the pool is empty or the file ends before, out of memory for want of page tables.
pub(crate) fn hugetlb_fault<P: Platform>(
    mm: &mut Mm<P>,
    id: VmaId,
    size: HugeSize,
    va: VirtAddr,
    access: FaultAccess,
) -> Result<(), FaultSignal> {
    let mm = &mut *mm.enter(Op::HugetlbFault);
    let vma = *mm.vma(id);
    let at = mm.huge_pte_alloc(vma.mm, va, size).ok_or(FaultSignal::OutOfMemory)?;
    let orig = mm.pt.huge_ptep_get(at);
    let fault = HugeFault { id, vma, size, access, at, orig };
    if orig.is_none() {
        return hugetlb_no_page(mm, fault);
    }
    if !orig.is_present() {
        return Err(FaultSignal::Bus);
    }
    mm.lock_ptl();
    if mm.pt.huge_ptep_get(at) != orig {
        return Ok(());
    }
    if access != FaultAccess::Read && !orig.is_write() {
        let folio = mm.page_folio(orig.pfn());
        mm.folio_ref_add(folio, 1);
        let result = hugetlb_wp(mm, &fault);
        mm.folio_put_refs(folio, 1);
        return result;
    }
    let entry = if access == FaultAccess::Write { orig.mkdirty() } else { orig };
    mm.pt.huge_ptep_set_access_flags(at, entry.mkyoung(), access);
    Ok(())
}

/// Source: Linux mm/hugetlb.c `hugetlb_no_page()`.
fn hugetlb_no_page<P: Platform>(
    mm: &mut Mm<P>,
    fault: HugeFault<P::Arch>,
) -> Result<(), FaultSignal> {
    let mm = &mut *mm.enter(Op::HugetlbNoPage);
    let HugeFault { id, vma, size, access, at, orig } = fault;
    // The owner could not copy the page and took it away: what was there is lost.
    if vma.flags.contains(VmFlags::RESV_UNMAPPED) {
        return Err(FaultSignal::Bus);
    }
    let cached = mm.hugetlbfs_pagecache(&vma, fault.va());
    let folio = match cached {
        Some(folio) => {
            mm.folio_ref_add(folio, 1);
            folio
        }
        None => new_page(mm, &fault)?,
    };
    mm.lock_ptl();
    if mm.pt.huge_ptep_get(at) != orig {
        mm.folio_put_refs(folio, 1);
        return Ok(());
    }
    match cached.is_none() && !fault.is_shared() {
        true => mm.hugetlb_add_new_anon_rmap(folio, id, fault.va()),
        false => mm.hugetlb_add_file_rmap(folio),
    }
    let mkwrite = match vma.flags.contains(VmFlags::SHARED) {
        true => Mkwrite::Try,
        false => Mkwrite::No,
    };
    mm.pt.set_huge_pte_at(at, make_huge_pte(&vma, size, folio, mkwrite));
    mm.hugetlb_count_add(vma.mm, size, 1);
    if access == FaultAccess::Write && !vma.flags.contains(VmFlags::SHARED) {
        return hugetlb_wp(mm, &fault);
    }
    Ok(())
}

/// A cleared page for the fault, in the page cache of a shared mapping.
fn new_page<P: Platform>(mm: &mut Mm<P>, fault: &HugeFault<P::Arch>) -> Result<Folio, FaultSignal> {
    let HugeFault { vma, size, at, .. } = *fault;
    let index = index_of(&vma, size, fault.va());
    let file = vma.file.ok_or(FaultSignal::Bus)?;
    if index >= mm.huge_file(file).len / size.bytes() {
        return Err(FaultSignal::Bus);
    }
    let Some(folio) = mm.alloc_hugetlb_folio(&vma, size, fault.va(), Cow::No) else {
        // hugetlb_pte_stable()
        mm.lock_ptl();
        mm.pt.huge_ptep_get(at);
        return Err(FaultSignal::Bus);
    };
    mm.hugetlb_zero(folio);
    mm.folio_set(folio, PageFlags::UPTODATE);
    if fault.is_shared() {
        mm.folio_ref_add(folio, 1);
        mm.add_to_page_cache(file, index, folio);
    }
    Ok(folio)
}

/// Raises the entry to writable and dirty. Source: Linux mm/hugetlb.c `set_huge_ptep_writable()`.
fn set_huge_ptep_writable<P: Platform>(mm: &mut Mm<P>, at: Hugep) {
    let entry = mm.pt.huge_ptep_get(at).mkdirty().mkwrite();
    mm.pt.huge_ptep_set_access_flags(at, entry, FaultAccess::Write);
}

/// A write to, or the unsharing of, a read-only huge page.
/// Source: Linux mm/hugetlb.c `hugetlb_wp()`.
fn hugetlb_wp<P: Platform>(mm: &mut Mm<P>, fault: &HugeFault<P::Arch>) -> Result<(), FaultSignal> {
    let mm = &mut *mm.enter(Op::HugetlbWp);
    let HugeFault { vma, size, access, at, .. } = *fault;
    let unshare = access == FaultAccess::Unshare;
    let pte = mm.pt.huge_ptep_get(at);
    if !unshare && !vma.flags.contains(VmFlags::WRITE) {
        return Err(FaultSignal::SegvAccErr);
    }
    if fault.is_shared() {
        set_huge_ptep_writable(mm, at);
        return Ok(());
    }
    let old = mm.page_folio(pte.pfn());
    loop {
        let anon = mm.folio_test(old, PageFlags::ANON);
        // Not by references: whoever only looks at the page must not make this a copy.
        if anon && mm.folio_mapcount(old) == 1 {
            mm.set_page_anon_exclusive(old.pfn);
            if !unshare {
                set_huge_ptep_writable(mm, at);
            }
            return Ok(());
        }
        let cow = if vma.resv.is_some() && anon { Cow::FromOwner } else { Cow::No };
        mm.folio_ref_add(old, 1);
        if let Some(new) = mm.alloc_hugetlb_folio(&vma, size, fault.va(), cow) {
            copy_huge_page(mm, fault, pte, old, new);
            return Ok(());
        }
        mm.folio_put_refs(old, 1);
        if cow == Cow::No {
            return Err(FaultSignal::Bus);
        }
        unmap_ref_private(mm, fault, old);
        mm.lock_ptl();
        if mm.pt.huge_ptep_get(at) != pte {
            return Ok(());
        }
    }
}

/// The copying half of [`hugetlb_wp`]; drops the reference it holds on `old`, and that of the
/// mapping.
fn copy_huge_page<P: Platform>(
    mm: &mut Mm<P>,
    fault: &HugeFault<P::Arch>,
    pte: Pte<P::Arch>,
    old: Folio,
    new: Folio,
) {
    let HugeFault { id, vma, size, access, at, .. } = *fault;
    copy_user_large_folio(mm, new, old);
    mm.lock_ptl();
    let mkwrite = if access == FaultAccess::Unshare { Mkwrite::No } else { Mkwrite::Try };
    let mut gone = new;
    if mm.pt.huge_ptep_get(at) == pte {
        mm.pt.huge_ptep_clear_flush(at);
        mm.hugetlb_remove_rmap(old);
        mm.hugetlb_add_new_anon_rmap(new, id, fault.va());
        mm.pt.set_huge_pte_at(at, make_huge_pte(&vma, size, new, mkwrite));
        gone = old;
    }
    mm.folio_put_refs(gone, 1);
    mm.folio_put_refs(old, 1);
    mm.lock_ptl();
}

/// `copy_user_large_folio()`.
pub(super) fn copy_user_large_folio<P: Platform>(mm: &mut Mm<P>, new: Folio, old: Folio) {
    let pages = new.nr_pages().get();
    mm.pt.count(Event::PageCopy, pages);
    for i in 0..pages {
        mm.pt.ram.copy_frame(new.pfn.add(i), old.pfn.add(i));
    }
    mm.folio_set(new, PageFlags::UPTODATE | PageFlags::DIRTIED);
}

/// The owner of a private mapping cannot copy its page, as the pool is empty: whoever shares it
/// without a reservation loses it, so that the owner can go on.
/// Source: Linux mm/hugetlb.c `unmap_ref_private()`.
fn unmap_ref_private<P: Platform>(mm: &mut Mm<P>, fault: &HugeFault<P::Arch>, page: Folio) {
    let index = fault.vma.pgoff_of(fault.va());
    for id in mm.vmas_of_file(fault.vma.file) {
        let vma = *mm.vma(id);
        let shared = vma.flags.contains(VmFlags::MAYSHARE);
        if id == fault.id || shared || vma.resv.is_some() {
            continue;
        }
        if let Some(va) = vma.address_of(index) {
            super::range::unmap_one_page(mm, id, fault.size, va, page);
        }
    }
}
