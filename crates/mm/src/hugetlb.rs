//! Huge pages from pools of their own: the pools, what mappings have reserved in them, and
//! faults, copies and changes of such mappings.
//!
//! A mapping reserves its pages when it is made, so that its faults cannot fail: a private one
//! for its owner alone, which notes what it has used up; a shared one in its file, for everyone.
//! Whoever has no reservation (a child after fork, MAP_NORESERVE) gets what is left, or SIGBUS.
//!
//! Source: Linux mm/hugetlb.c (6.12), fs/hugetlbfs/inode.c.
//
// FIDELITY: hugetlb-pmd-share — page tables of shared mappings of 1 GiB and more are not shared;
// no subpools, cgroups, vmemmap optimisation, hwpoison or migration of huge pages. Pages above
// the largest block of the page allocator come from free memory only, nothing is moved for them.

mod fault;
mod pool;
mod range;

pub(crate) use fault::hugetlb_fault;
pub use pool::HugePool;
pub(crate) use pool::Hugetlb;
pub(crate) use range::{
    copy_hugetlb_page_range, hugetlb_change_protection, move_hugetlb_page_tables,
    unmap_hugepage_range,
};

use crate::Mm;
use crate::errno::Errno;
use crate::filemap::FileId;
use crate::folio::Folio;
use crate::vma::{VmFlags, Vma, VmaId};
use arch::{HugeSize, Hugep, MmId, Platform};
use events::Event;
use phys::PageFlags;
use std::collections::BTreeSet;
use units::VirtAddr;

/// Which reservations of a private mapping its owner has used up, by page of the file
/// (`struct resv_map`).
#[derive(Debug, Default)]
pub(crate) struct ResvMap {
    /// VMAs that share it: the parts of the mapping it was made for.
    refs: u32,
    consumed: BTreeSet<u64>,
}

/// Identity of a `ResvMap`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ResvId(u32);

/// Whose reservation an allocation may use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Cow {
    /// The mapping's, if it has one.
    No,
    /// None: the owner's was used for the page that is copied now (`cow_from_owner`).
    FromOwner,
}

/// Pages of the pool and of the file, in the size of the mapping.
fn index_of(vma: &Vma, size: HugeSize, va: VirtAddr) -> u64 {
    vma.pgoff_of(va) >> size.order().get()
}

impl Vma {
    /// The first page of the mapping in its file, and the page after its last one.
    fn huge_range(&self, size: HugeSize) -> (u64, u64) {
        let first = index_of(self, size, self.start);
        (first, first + self.len() / size.bytes())
    }

    /// Whether `va` is where the mapping may be cut (`hugetlb_vm_op_split()`).
    pub(crate) fn may_split(&self, va: VirtAddr) -> bool {
        self.huge.is_none_or(|size| va.is_aligned(size.bytes()))
    }
}

impl<P: Platform> Mm<P> {
    /// Whether cutting the address space at `start` and `end` would cut no huge page.
    ///
    /// # Errors
    /// EINVAL.
    pub(crate) fn check_split(
        &self,
        mm: MmId,
        start: VirtAddr,
        end: VirtAddr,
    ) -> Result<(), Errno> {
        let allowed =
            |va: VirtAddr| self.vma_lookup(mm, va).is_none_or(|id| self.vma(id).may_split(va));
        if allowed(start) && allowed(end) { Ok(()) } else { Err(Errno::EINVAL) }
    }

    // ---- reservations

    /// What `mmap()` of a huge-page file does: reserves the pages of the mapping.
    /// Source: Linux fs/hugetlbfs/inode.c `hugetlbfs_file_mmap()`, mm/hugetlb.c
    /// `hugetlb_reserve_pages()`.
    ///
    /// # Errors
    /// ENOMEM if the pool cannot cover them.
    pub(crate) fn hugetlb_reserve_pages(&mut self, vma: &mut Vma) -> Result<(), Errno> {
        let (Some(size), Some(file)) = (vma.huge, vma.file) else { return Ok(()) };
        let (from, to) = vma.huge_range(size);
        if !vma.flags.contains(VmFlags::NORESERVE) {
            if vma.flags.contains(VmFlags::MAYSHARE) {
                let missing = self.huge_file(file).missing(from, to);
                self.hugetlb_acct_memory(size, missing)?;
                self.huge_file_mut(file).resv.extend(from..to);
            } else {
                self.hugetlb_acct_memory(size, to - from)?;
                let map = ResvMap { refs: 1, consumed: BTreeSet::new() };
                vma.resv = Some(self.hugetlb.add_resv_map(map));
            }
        }
        if vma.flags.contains(VmFlags::WRITE) {
            let it = self.huge_file_mut(file);
            it.len = it.len.max(to * size.bytes());
        }
        Ok(())
    }

    /// Another part of a private mapping shares its reservations (`hugetlb_vm_op_open()`).
    pub(crate) fn hugetlb_vm_op_open(&mut self, vma: &Vma) {
        if let Some(resv) = vma.resv {
            self.hugetlb.resv_map_mut(resv).refs += 1;
        }
    }

    /// What the mapping reserved and never used goes back. Source: `hugetlb_vm_op_close()`.
    pub(crate) fn hugetlb_vm_op_close(&mut self, vma: &Vma) {
        let (Some(size), Some(resv)) = (vma.huge, vma.resv) else { return };
        let (from, to) = vma.huge_range(size);
        let map = self.hugetlb.resv_map_mut(resv);
        let used = map.consumed.range(from..to).count() as u64;
        map.refs -= 1;
        if map.refs == 0 {
            self.hugetlb.remove_resv_map(resv);
        }
        self.return_unused_surplus_pages(size, to - from - used);
    }

    /// Whether the pool must be asked for the page: there is no reservation for it, or it was
    /// used. Source: `vma_needs_reservation()`.
    fn vma_needs_reservation(&self, vma: &Vma, size: HugeSize, va: VirtAddr) -> bool {
        let index = index_of(vma, size, va);
        match (vma.flags.contains(VmFlags::MAYSHARE), vma.file, vma.resv) {
            (true, Some(file), _) => !self.huge_file(file).resv.contains(&index),
            (false, _, Some(resv)) => self.hugetlb.resv_map(resv).consumed.contains(&index),
            _ => true,
        }
    }

    /// The page is there: noted where reservations are kept. Source:
    /// `vma_commit_reservation()`.
    fn vma_commit_reservation(&mut self, vma: &Vma, size: HugeSize, va: VirtAddr) {
        let index = index_of(vma, size, va);
        match (vma.flags.contains(VmFlags::MAYSHARE), vma.file, vma.resv) {
            (true, Some(file), _) => {
                self.huge_file_mut(file).resv.insert(index);
            }
            (false, _, Some(resv)) => {
                self.hugetlb.resv_map_mut(resv).consumed.insert(index);
            }
            _ => {}
        }
    }

    /// Source: `vma_add_reservation()` for a private mapping.
    fn vma_add_reservation(&mut self, vma: &Vma, size: HugeSize, va: VirtAddr) {
        if let Some(resv) = vma.resv {
            self.hugetlb.resv_map_mut(resv).consumed.remove(&index_of(vma, size, va));
        }
    }

    /// A page for the mapping, with one reference and undefined contents; `None` if the pool has
    /// none for it. Source: Linux mm/hugetlb.c `alloc_hugetlb_folio()`,
    /// `dequeue_hugetlb_folio_vma()`.
    fn alloc_hugetlb_folio(
        &mut self,
        vma: &Vma,
        size: HugeSize,
        va: VirtAddr,
        cow: Cow,
    ) -> Option<Folio> {
        let reserved = !self.vma_needs_reservation(vma, size, va) && cow == Cow::No;
        let uses = reserved && (vma.resv.is_some() || vma.flags.contains(VmFlags::MAYSHARE));
        let folio = self.dequeue_hugetlb_folio(size, uses)?;
        if uses {
            self.hugetlb.state_mut(size).resv -= 1;
            self.folio_set(folio, PageFlags::RESTORE_RESERVE);
        }
        self.vma_commit_reservation(vma, size, va);
        Some(folio)
    }

    // ---- reverse mapping, which knows huge pages as wholes

    /// Source: Linux mm/rmap.c `hugetlb_add_new_anon_rmap()`.
    fn hugetlb_add_new_anon_rmap(&mut self, folio: Folio, id: VmaId, at: VirtAddr) {
        let anon_vma = self.anon_vma_prepare(id);
        let index = self.vma(id).pgoff_of(at);
        self.folio_clear(folio, PageFlags::RESTORE_RESERVE);
        self.folio_set(folio, PageFlags::UPTODATE | PageFlags::ANON_EXCLUSIVE);
        self.set_anon_mapping(folio, anon_vma, index);
        self.add_entire_mapcount(folio);
    }

    /// `hugetlb_add_file_rmap()`.
    fn hugetlb_add_file_rmap(&mut self, folio: Folio) {
        self.folio_clear(folio, PageFlags::RESTORE_RESERVE);
        self.add_entire_mapcount(folio);
    }

    fn add_entire_mapcount(&mut self, folio: Folio) {
        self.pt.count(Event::MapcountRmw, 1);
        self.pt.count(Event::LargeMapcountLock, 1);
        let head = self.pt.pages.page_mut(folio.pfn);
        head.entire_mapcount += 1;
        head.large_mapcount += 1;
    }

    /// `hugetlb_remove_rmap()`.
    fn hugetlb_remove_rmap(&mut self, folio: Folio) {
        self.pt.count(Event::MapcountRmw, 1);
        self.pt.count(Event::LargeMapcountLock, 1);
        let head = self.pt.pages.page_mut(folio.pfn);
        head.entire_mapcount -= 1;
        head.large_mapcount -= 1;
    }

    // ---- page tables

    /// `huge_pte_alloc()`: the entry for `va`, with the tables above it; `None` when memory has
    /// run out.
    fn huge_pte_alloc(&mut self, mm: MmId, va: VirtAddr, size: HugeSize) -> Option<Hugep> {
        let va = va.align_down(size.bytes());
        let slot = match size {
            HugeSize::Pud => self.pud_alloc(mm, va)?,
            HugeSize::Pmd | HugeSize::ContPmd => self.pmd_alloc(mm, va)?.slot,
            HugeSize::ContPte => {
                let pmdp = self.pmd_alloc(mm, va)?;
                self.pte_alloc(pmdp, va)?.slot
            }
        };
        Some(Hugep { slot, va, mm, size })
    }

    /// `hugetlb_count_add()`, in pages; negative to take away.
    fn hugetlb_count_add(&mut self, mm: MmId, size: HugeSize, times: i64) {
        self.pt.count(Event::MmCounterUpdate, 1);
        let usage = &mut self.mm_mut(mm).hugetlb_usage;
        *usage = usage.wrapping_add_signed(times * size.order().pages().cast_signed());
    }

    /// The page of a huge-page file that holds `va` of the VMA, if it is in the page cache.
    /// Source: `hugetlbfs_pagecache_present()`.
    pub(crate) fn hugetlbfs_pagecache(&self, vma: &Vma, va: VirtAddr) -> Option<Folio> {
        let (size, file) = (vma.huge?, vma.file?);
        self.filemap_get(file, index_of(vma, size, va))
    }

    /// `hugetlb_unreserve_pages()`: the pages of a file from `from` on are gone, `freed` of them
    /// from the page cache; what was reserved beyond those goes back.
    pub(crate) fn hugetlb_unreserve_pages(&mut self, file: FileId, from: u64, freed: u64) {
        let it = self.huge_file_mut(file);
        let size = it.size;
        let gone = it.resv.split_off(&from).len() as u64;
        self.return_unused_surplus_pages(size, gone.saturating_sub(freed));
    }
}
