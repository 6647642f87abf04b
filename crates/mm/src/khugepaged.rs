//! Pages become huge pages afterwards: khugepaged, and madvise(MADV_COLLAPSE).
//!
//! Source: Linux mm/khugepaged.c (6.12).
//
// FIDELITY: collapse-file only private anonymous memory is collapsed

use crate::errno::Errno;
use crate::folio::Folio;
use crate::huge_memory::{self, Mapping};
use crate::thp::{Thp, ThpGlobal, ThpSize};
use crate::vma::{VmFlags, Vma, VmaId};
use crate::{Mm, memory};
use arch::{
    FaultAccess, FlushRange, LeafOnly, MmId, Platform, Pmd, Pmdp, Pte, PteFormat, Ptep, TableLevel,
};
use events::{Event, Op};
use phys::PageFlags;
use units::{NrPages, PAGE_SIZE, PMD_ORDER, PMD_SIZE, Reach, VirtAddr};

/// Pages of a huge page (`HPAGE_PMD_NR`).
const HPAGE_PMD_NR: u64 = 512;

/// Knobs of khugepaged, under their names in sysfs, and where its scan has come to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Khugepaged {
    /// Whether it allocates as hard as a fault with direct compaction; only remembered.
    pub defrag: u64,
    /// Pages looked at before it sleeps.
    pub pages_to_scan: u64,
    /// How long it sleeps then.
    pub scan_sleep_millisecs: u64,
    /// How long it sleeps when there is no memory for a huge page; only remembered.
    pub alloc_sleep_millisecs: u64,
    /// Empty entries that it fills.
    pub max_ptes_none: u64,
    /// Swapped pages that it brings back.
    pub max_ptes_swap: u64,
    /// Pages shared with other processes that it copies.
    pub max_ptes_shared: u64,
    /// Huge pages made.
    pub pages_collapsed: u64,
    /// Rounds over all of memory.
    pub full_scans: u64,
    cursor: (usize, VirtAddr),
}

impl Default for Khugepaged {
    /// As Linux boots.
    fn default() -> Self {
        Khugepaged {
            defrag: 1,
            pages_to_scan: HPAGE_PMD_NR * 8,
            scan_sleep_millisecs: 10_000,
            alloc_sleep_millisecs: 60_000,
            max_ptes_none: HPAGE_PMD_NR - 1,
            max_ptes_swap: HPAGE_PMD_NR / 8,
            max_ptes_shared: HPAGE_PMD_NR / 2,
            pages_collapsed: 0,
            full_scans: 0,
            cursor: (0, VirtAddr::ZERO),
        }
    }
}

/// Who asks (`collapse_control`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Collapse {
    /// The daemon: its knobs hold.
    Khugepaged,
    /// `MADV_COLLAPSE`.
    Madvise,
}

/// Why a range did not become a huge page (`enum scan_result`, as far as callers tell them apart).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fail {
    /// It is one already.
    PmdMapped,
    /// Trying again may help: a page is in use or locked.
    Busy,
    /// No memory for a huge page.
    NoMemory,
    /// Nothing that time changes.
    Unsuitable,
}

impl Fail {
    /// Source: Linux mm/khugepaged.c `madvise_collapse_errno()`.
    fn errno(self) -> Errno {
        match self {
            Fail::NoMemory => Errno::ENOMEM,
            Fail::Busy => Errno::EAGAIN,
            Fail::PmdMapped | Fail::Unsuitable => Errno::EINVAL,
        }
    }
}

/// What a look at a range found.
#[derive(Clone, Copy, Debug, Default)]
struct Found {
    none_or_zero: u64,
    unmapped: u64,
    shared: u64,
    referenced: u64,
    writable: bool,
}

impl Thp {
    /// `hugepage_pmd_enabled()`, for anonymous memory.
    fn pmd_enabled(&self) -> bool {
        match self.size(PMD_ORDER).enabled {
            ThpSize::Always | ThpSize::Madvise => true,
            ThpSize::Inherit => self.enabled != ThpGlobal::Never,
            ThpSize::Never => false,
        }
    }
}

impl<P: Platform> Mm<P> {
    /// `MADV_COLLAPSE`: every aligned 2 MiB in the range becomes a huge page, whatever the knobs say.
    ///
    /// # Errors
    /// EINVAL where it cannot be, EAGAIN where it could be later, ENOMEM.
    pub(crate) fn madvise_collapse(
        &mut self,
        id: VmaId,
        start: VirtAddr,
        end: VirtAddr,
    ) -> Result<(), Errno> {
        let vma = *self.vma(id);
        if !collapsible(&vma) {
            return Err(Errno::EINVAL);
        }
        let Some(mut at) = start.checked_align_up(PMD_SIZE) else { return Err(Errno::EINVAL) };
        let mut last = Ok(());
        while at.checked_add(PMD_SIZE).is_some_and(|next| next <= end.align_down(PMD_SIZE)) {
            match self.collapse_scan_pmd(id, at, Collapse::Madvise) {
                Ok(()) | Err(Fail::PmdMapped) => {}
                Err(why) => last = Err(why.errno()),
            }
            at = at.wrapping_add(PMD_SIZE);
        }
        last
    }

    /// Whether the daemon has anything to do.
    pub fn khugepaged_runs(&self) -> bool {
        self.thp.pmd_enabled()
    }

    /// What the daemon does before it sleeps again: `pages_to_scan` pages.
    /// Source: Linux mm/khugepaged.c `khugepaged_do_scan()`, `khugepaged_scan_mm_slot()`.
    pub fn khugepaged_do_scan(&mut self) {
        let mut progress = 0;
        let mut restarted = false;
        while progress < self.khugepaged.pages_to_scan {
            let Some((id, at)) = self.khugepaged_next() else {
                self.khugepaged.cursor = (0, VirtAddr::ZERO);
                self.khugepaged.full_scans += 1;
                if std::mem::replace(&mut restarted, true) || progress > 0 {
                    return;
                }
                continue;
            };
            if self.collapse_scan_pmd(id, at, Collapse::Khugepaged).is_ok() {
                self.khugepaged.pages_collapsed += 1;
            }
            self.khugepaged.cursor.1 = at.wrapping_add(PMD_SIZE);
            progress += HPAGE_PMD_NR;
        }
    }

    /// The next range from the cursor on that may become a huge page.
    fn khugepaged_next(&self) -> Option<(VmaId, VirtAddr)> {
        let (first, from) = self.khugepaged.cursor;
        for (index, ms) in self.mms.iter().enumerate().skip(first) {
            let from = if index == first { from } else { VirtAddr::ZERO };
            for &id in ms.tree.values() {
                let vma = self.vma(id);
                let at = vma.start.max(from).checked_align_up(PMD_SIZE);
                let fits =
                    |at: &VirtAddr| at.checked_add(PMD_SIZE).is_some_and(|next| next <= vma.end);
                let Some(at) = at.filter(fits) else { continue };
                if collapsible(vma) && self.thp.anon_pmd(vma, at) {
                    return Some((id, at));
                }
            }
        }
        None
    }

    /// Whether an entry is one too many, and if not, counted. Source: Linux mm/khugepaged.c
    /// `hpage_collapse_scan_pmd()`.
    fn collapse_scan_pte(
        &mut self,
        found: &mut Found,
        pte: Pte<P::Arch>,
        by: Collapse,
    ) -> Result<(), Fail> {
        let within = |nr: u64, max: u64| match by == Collapse::Madvise || nr <= max {
            true => Ok(()),
            false => Err(Fail::Unsuitable),
        };
        let knobs = &self.khugepaged;
        if pte.is_none() || pte.is_present() && pte.pfn() == self.zero_page {
            found.none_or_zero += 1;
            return within(found.none_or_zero, knobs.max_ptes_none);
        }
        if !pte.is_present() {
            found.unmapped += 1;
            let swapped = pte.softleaf().is_swap() && !pte.is_swp_uffd_wp();
            return if swapped {
                within(found.unmapped, knobs.max_ptes_swap)
            } else {
                Err(Fail::Unsuitable)
            };
        }
        if pte.is_uffd_wp() {
            return Err(Fail::Unsuitable);
        }
        found.writable |= pte.is_write();
        let folio = self.vm_normal_folio(pte).ok_or(Fail::Unsuitable)?;
        if !self.folio_test(folio, PageFlags::ANON) {
            return Err(Fail::Unsuitable);
        }
        if self.folio_maybe_mapped_shared(folio) {
            found.shared += 1;
            within(found.shared, self.khugepaged.max_ptes_shared)?;
        }
        if !self.folio_test(folio, PageFlags::LRU)
            || self.folio_test(folio, PageFlags::LOCKED)
            || !self.is_refcount_suitable(folio)
        {
            return Err(Fail::Busy);
        }
        let referenced = pte.is_young() || self.folio_test(folio, PageFlags::REFERENCED);
        found.referenced += u64::from(referenced);
        Ok(())
    }

    /// Only page tables and the swap cache hold the folio.
    fn is_refcount_suitable(&self, folio: Folio) -> bool {
        let cached = match self.folio_test(folio, PageFlags::SWAPCACHE) {
            true => folio.nr_pages().get(),
            false => 0,
        };
        u64::from(self.folio_ref_count(folio)) == self.folio_mapcount(folio) + cached
    }

    /// Looks at the 512 entries at `at`, and makes a huge page of them if they allow it.
    /// Source: Linux mm/khugepaged.c `hpage_collapse_scan_pmd()`.
    fn collapse_scan_pmd(&mut self, id: VmaId, at: VirtAddr, by: Collapse) -> Result<(), Fail> {
        let mm = &mut *self.enter(Op::HpageCollapseScanPmd);
        let pmdp = mm.pt.pmd_offset(mm.vma(id).mm, at).ok_or(Fail::Unsuitable)?;
        let pmd = mm.pt.pmdp_get(pmdp);
        if pmd.is_leaf() {
            return Err(if pmd.is_present() { Fail::PmdMapped } else { Fail::Unsuitable });
        }
        let first = mm.pt.pte_offset(pmdp, at).ok_or(Fail::Unsuitable)?;
        mm.lock_ptl();
        let mut found = Found::default();
        for i in 0..HPAGE_PMD_NR {
            let pte = mm.pt.ptep_get(first.add(i));
            mm.collapse_scan_pte(&mut found, pte, by)?;
        }
        let cold =
            found.referenced == 0 || found.unmapped > 0 && found.referenced < HPAGE_PMD_NR / 2;
        if !found.writable || by == Collapse::Khugepaged && cold {
            return Err(Fail::Unsuitable);
        }
        collapse_huge_page(mm, id, pmdp, &found, by)
    }
}

/// Private anonymous memory that nobody kept from it (`thp_vma_allowable_order()`).
fn collapsible(vma: &Vma) -> bool {
    let barred = VmFlags::NOHUGEPAGE | VmFlags::SHARED | VmFlags::HUGETLB | VmFlags::STACK;
    vma.is_anonymous() && vma.anon_vma.is_some() && !vma.flags.intersects(barred)
}

/// Source: Linux mm/khugepaged.c `collapse_huge_page()`.
fn collapse_huge_page<P: Platform>(
    mm: &mut Mm<P>,
    id: VmaId,
    pmdp: Pmdp,
    found: &Found,
    by: Collapse,
) -> Result<(), Fail> {
    let mm = &mut *mm.enter(Op::CollapseHugePage);
    let Some(folio) = mm.folio_alloc(PMD_ORDER) else {
        mm.thp.size_mut(PMD_ORDER).stats.collapse_alloc_failed += 1;
        mm.vmstat.thp_collapse_alloc_failed += 1;
        return Err(Fail::NoMemory);
    };
    mm.thp.size_mut(PMD_ORDER).stats.collapse_alloc += 1;
    mm.vmstat.thp_collapse_alloc += 1;
    let result = if found.unmapped > 0 { collapse_swapin(mm, id, pmdp) } else { Ok(()) };
    let result = result.and_then(|()| collapse_into(mm, id, pmdp, folio, by));
    if result.is_err() {
        mm.folio_put_refs(folio, 1);
    }
    result
}

/// Brings swapped pages back. Source: Linux mm/khugepaged.c `__collapse_huge_page_swapin()`.
fn collapse_swapin<P: Platform>(mm: &mut Mm<P>, id: VmaId, pmdp: Pmdp) -> Result<(), Fail> {
    for i in 0..HPAGE_PMD_NR {
        let va = pmdp.va.wrapping_add(i * PAGE_SIZE);
        let at = mm.pt.pte_offset(pmdp, va).ok_or(Fail::Unsuitable)?;
        let pte = mm.pt.ptep_get_lockless(at);
        if pte.is_none() || pte.is_present() {
            continue;
        }
        memory::handle_mm_fault(mm, id, va, FaultAccess::Read).map_err(|_| Fail::Unsuitable)?;
    }
    Ok(())
}

/// Takes the page table away, and puts a huge page with the same contents in its place.
fn collapse_into<P: Platform>(
    mm: &mut Mm<P>,
    id: VmaId,
    pmdp: Pmdp,
    folio: Folio,
    by: Collapse,
) -> Result<(), Fail> {
    let table = mm.pt.pmdp_get(pmdp).table().ok_or(Fail::Unsuitable)?;
    let first = mm.pt.pte_offset(pmdp, pmdp.va).ok_or(Fail::Unsuitable)?;
    // pmdp_collapse_flush(): entries of the table, not of a leaf, are in the TLB.
    mm.lock_ptl();
    mm.pt.clear_table(TableLevel::Pmd, pmdp.slot);
    let end = pmdp.va.wrapping_add(PMD_SIZE);
    let (stride, leaf_only) = (Reach::K4, LeafOnly::No);
    mm.pt.flush_tlb_range(pmdp.mm, FlushRange { start: pmdp.va, end, stride, leaf_only });
    if let Err(why) = isolate(mm, first, by) {
        mm.pt.populate(TableLevel::Pmd, pmdp.slot, table);
        return Err(why);
    }
    copy(mm, pmdp.mm, first, folio);
    let vma = *mm.vma(id);
    mm.folio_set(folio, PageFlags::UPTODATE);
    let prot = P::Arch::vm_get_page_prot(vma.page_prot());
    let mut pmd = Pmd::new_leaf(folio.pfn, prot).mkdirty();
    if vma.flags.contains(VmFlags::WRITE) {
        pmd = pmd.mkwrite();
    }
    mm.folio_add_new_anon_rmap(folio, id, pmdp.va);
    mm.folio_add_lru(folio);
    mm.deposited.insert((pmdp.mm, pmdp.va), table);
    mm.pt.set_pmd_at(pmdp, pmd);
    huge_memory::deferred_split_folio(mm, folio, Mapping::Whole);
    Ok(())
}

/// A last look with the table out of reach. Source: Linux mm/khugepaged.c
/// `__collapse_huge_page_isolate()`.
fn isolate<P: Platform>(mm: &mut Mm<P>, first: Ptep, by: Collapse) -> Result<(), Fail> {
    let mut found = Found::default();
    for i in 0..HPAGE_PMD_NR {
        let pte = mm.pt.ptep_get(first.add(i));
        if !pte.is_none() && !pte.is_present() {
            return Err(Fail::Unsuitable);
        }
        mm.collapse_scan_pte(&mut found, pte, by)?;
    }
    if found.writable { Ok(()) } else { Err(Fail::Unsuitable) }
}

/// Source: Linux mm/khugepaged.c `__collapse_huge_page_copy()`, its part for success.
fn copy<P: Platform>(mm: &mut Mm<P>, id: MmId, first: Ptep, folio: Folio) {
    let mut filled = 0;
    for i in 0..HPAGE_PMD_NR {
        let (at, to) = (first.add(i), folio.pfn.add(i));
        let pte = mm.pt.ptep_get(at);
        if pte.is_none() || pte.pfn() == mm.zero_page {
            mm.folio_zero(Folio { pfn: to, order: units::Order::ZERO });
            filled += 1;
            if !pte.is_none() {
                mm.pt.pte_clear(at);
            }
            continue;
        }
        mm.pt.count(Event::PageCopy, 1);
        mm.pt.ram.copy_frame(to, pte.pfn());
        mm.pt.pte_clear(at);
        let source = mm.page_folio(pte.pfn());
        mm.folio_remove_rmap_ptes(source, pte.pfn(), NrPages::ONE);
        mm.free_page_and_swap_cache(pte.pfn(), 1);
    }
    mm.add_rss_anon(id, filled);
}
