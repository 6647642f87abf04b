//! Faults, copy-on-write, zapping and copying page tables.
//!
//! Source: Linux mm/memory.c.

use crate::errno::Errno;
use crate::filemap::FileId;
use crate::folio::Folio;
use crate::gup::Foll;
use crate::mmu_gather::{MmuGather, Room};
use crate::pte_batch::Fpb;
use crate::rmap::Exclusive;
use crate::task_mmu::vma_soft_dirty_enabled;
use crate::vma::{VmFlags, Vma, VmaId};
use crate::{Mm, huge_memory, hugetlb};
use arch::{
    Arch, FaultAccess, MmId, Platform, Pmdp, Prot, Pte, PteFormat, Ptep, Softleaf, SoftleafKind,
    SwapApi, Table, TableLevel, Teardown,
};
use events::{Event, Op};
use phys::PageFlags;
use units::{NrPages, Order, PAGE_SIZE, PMD_SIZE, Pfn, PhysAddr, VirtAddr};

/// What an access wants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// A load.
    Read,
    /// A store.
    Write,
    /// An instruction fetch.
    Exec,
}

/// Why a fault cannot be served: the signal that the task gets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FaultSignal {
    /// SIGSEGV, SEGV_MAPERR: nothing is mapped there.
    SegvMapErr,
    /// SIGSEGV, SEGV_ACCERR: the mapping forbids it.
    SegvAccErr,
    /// SIGBUS, BUS_ADRERR: beyond the end of a file.
    Bus,
    /// SIGKILL by the OOM killer.
    OutOfMemory,
}

/// The counters of resident pages (MM_ANONPAGES, MM_FILEPAGES, MM_SHMEMPAGES).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RssKind {
    Anon,
    File,
    Shmem,
}

/// A fault being served (`struct vm_fault`).
#[derive(Clone, Copy, Debug)]
struct VmFault {
    id: VmaId,
    vma: Vma,
    va: VirtAddr,
    access: FaultAccess,
    pmdp: Pmdp,
}

impl<P: Platform> Mm<P> {
    /// `lock_page_table`: kernel operations are atomic, so only the event remains.
    #[inline]
    pub(crate) fn lock_ptl(&mut self) {
        self.pt.count(Event::PtlLock, 1);
    }

    fn base_prot(&self, vma: &Vma) -> Prot<P::Arch> {
        P::Arch::vm_get_page_prot(vma.page_prot())
    }

    /// Serves a hardware fault of user code at `va`.
    ///
    /// # Errors
    /// The signal to send. Source: Linux arch/*/mm/fault.c, mm/memory.c `handle_mm_fault()`.
    pub fn handle_user_fault(
        &mut self,
        id: MmId,
        va: VirtAddr,
        access: Access,
    ) -> Result<(), FaultSignal> {
        self.pt.count(Event::PageFaultTrap, 1);
        let found = self.find_vma(id, va).ok_or(FaultSignal::SegvMapErr)?;
        let vma_id = match self.vma(found).start <= va {
            true => found,
            false => self.expand_stack(id, va).ok_or(FaultSignal::SegvMapErr)?,
        };
        let needed = match access {
            Access::Read => VmFlags::READ | VmFlags::WRITE | VmFlags::EXEC,
            Access::Write => VmFlags::WRITE,
            Access::Exec => VmFlags::EXEC,
        };
        if !self.vma(vma_id).flags.intersects(needed) {
            return Err(FaultSignal::SegvAccErr);
        }
        P::Arch::count_user_fault(&mut self.pt);
        let kind = match access {
            Access::Write => FaultAccess::Write,
            Access::Read | Access::Exec => FaultAccess::Read,
        };
        handle_mm_fault(self, vma_id, va, kind)
    }

    pub(crate) fn add_rss_anon(&mut self, mm: MmId, nr: i64) {
        self.pt.count(Event::MmCounterUpdate, 1);
        let rss = &mut self.mm_mut(mm).rss;
        rss.anon = rss.anon.wrapping_add_signed(nr);
    }

    /// Which counter the pages of a folio belong to (`mm_counter()`).
    pub(crate) fn rss_kind(&self, folio: Folio) -> RssKind {
        let flags = self.pt.pages.page(folio.pfn).flags;
        match (flags.contains(PageFlags::ANON), flags.contains(PageFlags::SWAPBACKED)) {
            (true, _) => RssKind::Anon,
            (false, true) => RssKind::Shmem,
            (false, false) => RssKind::File,
        }
    }

    /// Counts `nr` pages of a folio from the page cache.
    pub(crate) fn add_rss_file(&mut self, mm: MmId, folio: Folio, nr: i64) {
        self.pt.count(Event::MmCounterUpdate, 1);
        let kind = self.rss_kind(folio);
        let rss = &mut self.mm_mut(mm).rss;
        let counter = if kind == RssKind::Shmem { &mut rss.shmem } else { &mut rss.file };
        *counter = counter.wrapping_add_signed(nr);
    }

    pub(crate) fn add_rss_swapents(&mut self, mm: MmId, nr: i64) {
        self.pt.count(Event::MmCounterUpdate, 1);
        let rss = &mut self.mm_mut(mm).rss;
        rss.swapents = rss.swapents.wrapping_add_signed(nr);
    }

    pub(crate) fn update_hiwater_rss(&mut self, mm: MmId) {
        let ms = self.mm_mut(mm);
        ms.hiwater_rss = ms.hiwater_rss.max(ms.resident());
    }

    /// `pmd_alloc()`: the PMD entry for `va`, with the tables above it.
    pub(crate) fn pmd_alloc(&mut self, id: MmId, va: VirtAddr) -> Option<Pmdp> {
        let levels = &[TableLevel::Pgd, TableLevel::Pud];
        let slot = TableLevel::Pmd.slot(self.tables_alloc(id, va, levels)?, va);
        Some(Pmdp { slot, va: va.align_down(PMD_SIZE), mm: id })
    }

    /// `pud_alloc()`: where the PUD entry for `va` is, with the table above it.
    pub(crate) fn pud_alloc(&mut self, id: MmId, va: VirtAddr) -> Option<PhysAddr> {
        Some(TableLevel::Pud.slot(self.tables_alloc(id, va, &[TableLevel::Pgd])?, va))
    }

    /// The table that the entries of `levels` for `va` lead to; `None` when memory has run out.
    fn tables_alloc(&mut self, id: MmId, va: VirtAddr, levels: &[TableLevel]) -> Option<PhysAddr> {
        let mut table = self.pt.root(id);
        for &level in levels {
            let slot = level.slot(table, va);
            table = match self.pt.table_at(slot) {
                Table::Next(next) => next,
                Table::Leaf => return None,
                Table::None => {
                    let new = self.alloc_table_reclaiming()?;
                    self.mm_mut(id).pgtables += 1;
                    self.pt.populate(level, slot, new);
                    new
                }
            };
        }
        Some(table)
    }

    /// `pte_alloc()`: the PTE for `va`, with its table; `None` when memory has run out.
    pub(crate) fn pte_alloc(&mut self, pmdp: Pmdp, va: VirtAddr) -> Option<Ptep> {
        if self.pt.pmdp_get(pmdp).is_none() {
            let table = self.alloc_table_reclaiming()?;
            self.mm_mut(pmdp.mm).pgtables += 1;
            self.pt.populate(TableLevel::Pmd, pmdp.slot, table);
        }
        self.pt.pte_offset(pmdp, va)
    }

    /// The PTE for `va`, if its table exists.
    pub(crate) fn pte_at(&self, id: MmId, va: VirtAddr) -> Option<Ptep> {
        let pmdp = self.pt.pmd_offset(id, va)?;
        self.pt.pte_offset(pmdp, va)
    }
}

// ---- faults

/// Source: Linux mm/memory.c `handle_mm_fault()`, `__handle_mm_fault()`.
pub(crate) fn handle_mm_fault<P: Platform>(
    mm: &mut Mm<P>,
    id: VmaId,
    va: VirtAddr,
    access: FaultAccess,
) -> Result<(), FaultSignal> {
    let mm = &mut *mm.enter(Op::HandleMmFault);
    // mm_account_fault()
    mm.vmstat.pgfault += 1;
    let vma = *mm.vma(id);
    let va = va.align_down(PAGE_SIZE);
    if let Some(size) = vma.huge {
        return hugetlb::hugetlb_fault(mm, id, size, va, access);
    }
    let pmdp = mm.pmd_alloc(vma.mm, va).ok_or(FaultSignal::OutOfMemory)?;
    let pmd = mm.pt.pmdp_get(pmdp);
    if pmd.is_none() && vma.is_anonymous() && mm.thp.anon_pmd(&vma, va) {
        match huge_memory::do_huge_pmd_anonymous_page(mm, id, pmdp, access) {
            huge_memory::HugeFault::Done => return Ok(()),
            huge_memory::HugeFault::Fallback => {}
        }
    } else if pmd.is_leaf() {
        match huge_memory::huge_pmd_fault(mm, id, pmdp, pmd, access) {
            huge_memory::HugeFault::Done => return Ok(()),
            huge_memory::HugeFault::Fallback => {}
        }
    }
    handle_pte_fault(mm, id, va, access, pmdp)
}

/// Source: Linux mm/memory.c `handle_pte_fault()`.
fn handle_pte_fault<P: Platform>(
    mm: &mut Mm<P>,
    id: VmaId,
    va: VirtAddr,
    access: FaultAccess,
    pmdp: Pmdp,
) -> Result<(), FaultSignal> {
    let mm = &mut *mm.enter(Op::HandlePteFault);
    let vma = *mm.vma(id);
    let pte = mm.pt.pte_offset(pmdp, va).map(|at| (at, mm.pt.ptep_get_lockless(at)));
    let vmf = VmFault { id, vma, va, access, pmdp };
    let (at, entry) = match pte {
        Some((at, entry)) if !entry.is_none() => (at, entry),
        _ if vma.is_anonymous() => return do_anonymous_page(mm, vmf),
        _ => return do_fault(mm, vmf),
    };
    if !entry.is_present() {
        return do_swap_page(mm, vmf, at, entry);
    }
    mm.lock_ptl();
    if mm.pt.ptep_get(at) != entry {
        return Ok(());
    }
    let mut wanted = entry;
    if access != FaultAccess::Read && !entry.is_write() {
        return do_wp_page(mm, vmf, at, entry);
    }
    if access == FaultAccess::Write {
        wanted = wanted.mkdirty();
    }
    wanted = wanted.mkyoung();
    if !mm.pt.ptep_set_access_flags(at, wanted, access) && access == FaultAccess::Write {
        mm.pt.flush_tlb_fix_spurious_fault(at);
    }
    Ok(())
}

/// A fault on an empty PTE of anonymous memory.
/// Source: Linux mm/memory.c `do_anonymous_page()`.
fn do_anonymous_page<P: Platform>(mm: &mut Mm<P>, vmf: VmFault) -> Result<(), FaultSignal> {
    let mm = &mut *mm.enter(Op::DoAnonymousPage);
    let at = mm.pte_alloc(vmf.pmdp, vmf.va).ok_or(FaultSignal::OutOfMemory)?;
    let prot = mm.base_prot(&vmf.vma);
    if vmf.access != FaultAccess::Write {
        let entry = Pte::new(mm.zero_page, prot).mkspecial();
        mm.lock_ptl();
        if mm.pt.ptep_get(at).is_none() {
            mm.pt.set_pte_at(at, entry);
        }
        return Ok(());
    }
    let folio = alloc_anon_folio(mm, &vmf, at).ok_or(FaultSignal::OutOfMemory)?;
    let nr = folio.nr_pages();
    let va = vmf.va.align_down(folio.order.bytes());
    let at = mm.pte_at(vmf.vma.mm, va).ok_or(FaultSignal::OutOfMemory)?;
    mm.lock_ptl();
    let changed = match nr {
        NrPages::ONE => !mm.pt.ptep_get(at).is_none(),
        _ => !mm.pte_range_none(at, nr),
    };
    if changed {
        mm.folio_put_refs(folio, 1);
        return Ok(());
    }
    map_anon_folio_pte(mm, &vmf, folio, at, va);
    Ok(())
}

/// Source: Linux mm/memory.c `map_anon_folio_pte_nopf()`.
fn map_anon_folio_pte<P: Platform>(
    mm: &mut Mm<P>,
    vmf: &VmFault,
    folio: Folio,
    at: Ptep,
    va: VirtAddr,
) {
    let nr = folio.nr_pages();
    let mut entry = Pte::new(folio.pfn, mm.base_prot(&vmf.vma)).mkyoung();
    if vmf.vma.flags.contains(VmFlags::WRITE) {
        entry = entry.mkdirty().mkwrite();
    }
    if nr > NrPages::ONE {
        mm.folio_ref_add(folio, nr.get() - 1);
    }
    mm.add_rss_anon(vmf.vma.mm, nr.get().cast_signed());
    mm.folio_add_new_anon_rmap(folio, vmf.id, va);
    mm.folio_add_lru(folio);
    mm.pt.set_ptes(at, entry, nr);
    if let Some(stats) = mm.thp.stats(folio.order) {
        stats.anon_fault_alloc += 1;
    }
}

/// The largest enabled folio whose PTEs are all empty, cleared.
/// Source: Linux mm/memory.c `alloc_anon_folio()`.
fn alloc_anon_folio<P: Platform>(mm: &mut Mm<P>, vmf: &VmFault, at: Ptep) -> Option<Folio> {
    let armed = vmf.vma.flags.contains(VmFlags::UFFD_ARMED);
    if mm.pt.kernel.anon_mthp && !armed {
        let orders: Vec<Order> = mm.thp.anon_orders(&vmf.vma, vmf.va).collect();
        let mut fitting = orders.iter().copied().skip_while(|&order| {
            let start = at.index() & !(order.pages() - 1);
            let first = mm.pte_at(vmf.vma.mm, vmf.va.align_down(order.bytes()));
            debug_assert_eq!(first.map(Ptep::index), Some(start));
            !first.is_some_and(|first| mm.pte_range_none(first, order.nr_pages()))
        });
        // The largest that fits is known; the smaller ones fit then too.
        let candidates: Vec<Order> = fitting.by_ref().collect();
        for order in candidates {
            if let Some(folio) = mm.folio_alloc(order) {
                mm.folio_zero(folio);
                return Some(folio);
            }
            if let Some(stats) = mm.thp.stats(order) {
                stats.anon_fault_fallback += 1;
            }
        }
    }
    let folio = mm.folio_alloc_reclaiming(Order::ZERO)?;
    mm.folio_zero(folio);
    Some(folio)
}

/// A fault on a swap entry, migration entry or marker.
/// Source: Linux mm/memory.c `do_swap_page()`.
fn do_swap_page<P: Platform>(
    mm: &mut Mm<P>,
    vmf: VmFault,
    at: Ptep,
    orig: Pte<P::Arch>,
) -> Result<(), FaultSignal> {
    let mm = &mut *mm.enter(Op::DoSwapPage);
    let leaf = orig.softleaf();
    match leaf.kind() {
        SoftleafKind::Swap => {}
        SoftleafKind::Marker if leaf.offset & Softleaf::MARKER_GUARD != 0 => {
            return Err(FaultSignal::SegvMapErr);
        }
        _ => return Err(FaultSignal::Bus),
    }
    if !mm.swap_entry_is_valid(leaf) {
        return Err(FaultSignal::Bus);
    }
    let folio = match mm.swap.cached(leaf.offset) {
        Some(pfn) if ksm_needs_to_copy(mm, &vmf, pfn) => {
            return do_swap_copy(mm, &vmf, at, orig, pfn);
        }
        Some(pfn) => mm.page_folio(pfn),
        None => swapin_sync(mm, &vmf, at, orig).ok_or(FaultSignal::OutOfMemory)?,
    };
    mm.lock_ptl();
    if mm.pt.ptep_get(at) != orig {
        return Ok(());
    }
    let (first, page, nr) = swapin_run(mm, &vmf, at, orig, folio);
    let exclusive = match orig.is_swp_exclusive() {
        true => Exclusive::Yes,
        false => Exclusive::No,
    };
    do_swap_map(mm, &vmf, first, orig, folio, page, nr, exclusive);
    let entry = mm.pt.ram.load_u64(at.slot);
    let entry = Pte::<P::Arch>::from_raw(entry);
    if vmf.access == FaultAccess::Write && !entry.is_write() {
        return do_wp_page(mm, vmf, at, entry);
    }
    Ok(())
}

/// Whether a page in the swap cache cannot be mapped at the faulting address, because from there
/// it would not be found again: pages that were merged share a slot, from anywhere.
/// Source: Linux mm/ksm.c `ksm_might_need_to_copy()`.
fn ksm_needs_to_copy<P: Platform>(mm: &Mm<P>, vmf: &VmFault, page: Pfn) -> bool {
    let folio = mm.page_folio(page);
    if mm.folio_test_ksm(folio) {
        return !mm.ksm_page_is_stable(folio);
    }
    mm.folio_test(folio, PageFlags::ANON) && !mm.rmap_finds(folio, page, vmf.id, vmf.va)
}

/// A copy of a page in the swap cache, which its slot has no more to do with.
/// Source: Linux mm/memory.c `do_swap_page()`.
fn do_swap_copy<P: Platform>(
    mm: &mut Mm<P>,
    vmf: &VmFault,
    at: Ptep,
    orig: Pte<P::Arch>,
    page: Pfn,
) -> Result<(), FaultSignal> {
    let cached = mm.page_folio(page);
    // Held while the allocation may reclaim what it finds.
    mm.folio_ref_add(cached, 1);
    let copy = mm.folio_alloc_reclaiming(Order::ZERO);
    let Some(copy) = copy else {
        mm.folio_put_refs(cached, 1);
        return Err(FaultSignal::OutOfMemory);
    };
    mm.pt.count(Event::PageCopy, 1);
    mm.pt.ram.copy_frame(copy.pfn, page);
    mm.vmstat.ksm_swpin_copy += 1;
    mm.lock_ptl();
    debug_assert_eq!(Pte::<P::Arch>::from_raw(mm.pt.ram.load_u64(at.slot)), orig);
    mm.add_rss_anon(vmf.vma.mm, 1);
    mm.add_rss_swapents(vmf.vma.mm, -1);
    let young = Pte::new(copy.pfn, mm.base_prot(&vmf.vma)).mkyoung();
    let mut pte = match vmf.access == FaultAccess::Write && !orig.is_swp_uffd_wp() {
        true => maybe_mkwrite(young.mkdirty(), &vmf.vma),
        false => young,
    };
    if orig.is_swp_soft_dirty() {
        pte = pte.mksoft_dirty();
    }
    if orig.is_swp_uffd_wp() {
        pte = pte.mkuffd_wp();
    }
    mm.folio_add_new_anon_rmap(copy, vmf.id, vmf.va);
    mm.folio_add_lru(copy);
    // Nothing on the device holds its contents.
    mm.folio_set(copy, PageFlags::DIRTY);
    mm.folio_put_swap(cached, page, NrPages::ONE);
    mm.folio_free_swap(cached);
    mm.pt.set_pte_at(at, pte);
    mm.folio_put_refs(cached, 1);
    Ok(())
}

/// Which PTEs a swapped-in folio fills: all of its own if each still holds its slot, else the
/// one that faulted. Returns the first PTE, its page and how many.
fn swapin_run<P: Platform>(
    mm: &mut Mm<P>,
    vmf: &VmFault,
    at: Ptep,
    orig: Pte<P::Arch>,
    folio: Folio,
) -> (Ptep, Pfn, NrPages) {
    let n = folio.nr_pages();
    let idx = orig.softleaf().offset - mm.folio_swap(folio).offset;
    let page = folio.pfn.add(idx);
    let single = (at, page, NrPages::ONE);
    if n == NrPages::ONE || at.index() < idx || at.index() - idx + n.get() > 512 {
        return single;
    }
    let start = VirtAddr::new(vmf.va.get() - idx * PAGE_SIZE);
    let end = start.wrapping_add(n.bytes());
    if start < vmf.vma.start || end > vmf.vma.end {
        return single;
    }
    let Some(first) = mm.pte_at(vmf.vma.mm, start) else { return single };
    let entry = mm.pt.ptep_get(first);
    if entry.is_none() || entry.is_present() || entry.softleaf() != mm.folio_swap(folio) {
        return single;
    }
    if entry.is_swp_exclusive() != orig.is_swp_exclusive() {
        return single;
    }
    if mm.swap_pte_batch(first, entry, n) != n {
        return single;
    }
    (first, folio.pfn, n)
}

/// Maps `nr` pages of a folio that came back from swap.
#[expect(clippy::too_many_arguments, reason = "the locals of do_swap_page() at this point")]
fn do_swap_map<P: Platform>(
    mm: &mut Mm<P>,
    vmf: &VmFault,
    first: Ptep,
    orig: Pte<P::Arch>,
    folio: Folio,
    page: Pfn,
    nr: NrPages,
    exclusive: Exclusive,
) {
    let n = nr.get();
    let fresh = !mm.folio_test(folio, PageFlags::ANON);
    mm.add_rss_anon(vmf.vma.mm, n.cast_signed());
    mm.add_rss_swapents(vmf.vma.mm, -n.cast_signed());
    let mut pte = Pte::new(page, mm.base_prot(&vmf.vma)).mkyoung();
    if orig.is_swp_soft_dirty() {
        pte = pte.mksoft_dirty();
    }
    if orig.is_swp_uffd_wp() {
        pte = pte.mkuffd_wp();
    }
    let sole = exclusive == Exclusive::Yes;
    if sole
        && vmf.vma.flags.contains(VmFlags::WRITE)
        && !orig.is_swp_uffd_wp()
        && vmf.access == FaultAccess::Write
    {
        pte = pte.mkdirty().mkwrite();
    } else if sole
        && vmf.vma.flags.contains(VmFlags::WRITE)
        && !orig.is_swp_uffd_wp()
        && (!vma_soft_dirty_enabled::<P::Arch>(&vmf.vma) || pte.is_soft_dirty())
    {
        pte = pte.mkwrite();
    }
    if fresh {
        // The allocation's reference becomes that of the first mapping.
        if n > 1 {
            mm.folio_ref_add(folio, n - 1);
        }
        let va = VirtAddr::new(first.va.get() - folio.index_of(page) * PAGE_SIZE);
        if nr == folio.nr_pages() {
            mm.folio_add_new_anon_rmap(folio, vmf.id, va);
            if !sole {
                mm.adopt_anon_folio(folio, vmf.id, va);
                for i in 0..n {
                    mm.pt.pages.page_mut(page.add(i)).flags.remove(PageFlags::ANON_EXCLUSIVE);
                }
            }
        } else {
            mm.adopt_anon_folio(folio, vmf.id, va);
            mm.folio_add_anon_rmap_ptes(folio, page, nr, exclusive);
        }
        mm.folio_add_lru(folio);
    } else {
        mm.folio_ref_add(folio, n);
        mm.folio_add_anon_rmap_ptes(folio, page, nr, exclusive);
    }
    mm.folio_put_swap(folio, page, nr);
    if mm.pt.kernel.swap_api == SwapApi::Cluster {
        mm.folio_free_swap(folio);
    } else {
        mm.swap_cache_drop_if_unused(folio);
    }
    mm.pt.set_ptes(first, pte, nr);
}

/// Reads a folio back from the synchronous device: a large one if the entries around are
/// consecutive and the size is enabled. Source: Linux mm/memory.c `alloc_swap_folio()`,
/// `swapin_sync()`.
fn swapin_sync<P: Platform>(
    mm: &mut Mm<P>,
    vmf: &VmFault,
    at: Ptep,
    orig: Pte<P::Arch>,
) -> Option<Folio> {
    let leaf = orig.softleaf();
    if mm.pt.kernel.swap_api == SwapApi::Cluster {
        mm.fentry(Event::FnSwapinSync);
    }
    let folio = alloc_swap_folio(mm, vmf, at, leaf)?;
    let entry = Softleaf::swap(leaf.ty, leaf.offset & !(folio.nr_pages().get() - 1));
    let entry = if folio.is_large() { entry } else { leaf };
    if mm.pt.kernel.swap_api == SwapApi::SlotCache {
        mm.fentry(Event::FnUnderSwapDuplicate);
        mm.pt.count(Event::FnUnderSwapDuplicatePages, folio.nr_pages().get());
    }
    mm.swap_cache_add(folio, entry);
    mm.swap_read_folio(folio, entry);
    Some(folio)
}

fn alloc_swap_folio<P: Platform>(
    mm: &mut Mm<P>,
    vmf: &VmFault,
    at: Ptep,
    leaf: Softleaf,
) -> Option<Folio> {
    let orders: Vec<Order> = match mm.pt.kernel.anon_mthp {
        true => mm.thp.anon_orders(&vmf.vma, vmf.va).collect(),
        false => Vec::new(),
    };
    // thp_swapin_suitable_orders(): slot and address must be aligned alike.
    let alike = |o: &Order| leaf.offset % o.pages() == at.va.vpn().get() % o.pages();
    let orders: Vec<Order> = orders.into_iter().filter(alike).collect();
    let mut rest = orders.iter().copied().skip_while(|&order| {
        let start = vmf.va.align_down(order.bytes());
        !mm.pte_at(vmf.vma.mm, start)
            .is_some_and(|first| can_swapin_thp(mm, first, at, leaf, order.nr_pages()))
    });
    let candidates: Vec<Order> = rest.by_ref().collect();
    for order in candidates {
        if let Some(folio) = mm.folio_alloc(order) {
            return Some(folio);
        }
        if let Some(stats) = mm.thp.stats(order) {
            stats.swpin_fallback += 1;
        }
    }
    mm.folio_alloc_reclaiming(Order::ZERO)
}

/// Source: Linux mm/memory.c `can_swapin_thp()`.
fn can_swapin_thp<P: Platform>(
    mm: &mut Mm<P>,
    first: Ptep,
    at: Ptep,
    leaf: Softleaf,
    nr: NrPages,
) -> bool {
    let idx = at.va.vpn().get() - first.va.vpn().get();
    let pte = mm.pt.ptep_get(first);
    if pte.is_none() || pte.is_present() {
        return false;
    }
    let Some(start) = leaf.offset.checked_sub(idx) else { return false };
    if pte.softleaf() != Softleaf::swap(leaf.ty, start) || mm.swap_pte_batch(first, pte, nr) != nr {
        return false;
    }
    (0..nr.get()).all(|i| mm.swap.cached(start + i).is_none())
}

impl<P: Platform> Mm<P> {
    /// Makes a folio from swap anonymous without mapping it, to be found by all who may share
    /// it (`__folio_set_anon()` of a folio that is not exclusive).
    fn adopt_anon_folio(&mut self, folio: Folio, id: VmaId, va: VirtAddr) {
        let anon_vma = self.anon_vma_root(id);
        let index = self.vma(id).pgoff_of(va);
        self.set_anon_mapping(folio, anon_vma, index);
    }

    /// 6.12 takes a synchronous page out of the swap cache without a function of its own.
    fn swap_cache_drop_if_unused(&mut self, folio: Folio) {
        let first = self.folio_swap(folio).offset;
        if (0..folio.nr_pages().get()).all(|i| self.swap.count(first + i) == 0) {
            self.swap_cache_detach(folio);
        }
    }
}

/// A write to a present, read-only PTE.
/// Source: Linux mm/memory.c `do_wp_page()`.
fn do_wp_page<P: Platform>(
    mm: &mut Mm<P>,
    vmf: VmFault,
    at: Ptep,
    orig: Pte<P::Arch>,
) -> Result<(), FaultSignal> {
    let mm = &mut *mm.enter(Op::DoWpPage);
    let unshare = vmf.access == FaultAccess::Unshare;
    if !unshare {
        let uffd = mm.pt.ptep_get(at).is_uffd_wp();
        debug_assert!(!uffd, "uffd-wp faults are not delivered yet");
    }
    let folio = mm.vm_normal_folio(orig);
    if vmf.vma.flags.contains(VmFlags::SHARED) {
        wp_page_reuse(mm, &vmf, at, orig);
        return Ok(());
    }
    if let Some(folio) = folio
        && mm.folio_test(folio, PageFlags::ANON)
        && (mm.page_anon_exclusive(orig.pfn()) || wp_can_reuse_anon_folio(mm, folio))
    {
        if !mm.page_anon_exclusive(orig.pfn()) {
            mm.set_page_anon_exclusive(orig.pfn());
        }
        if !unshare {
            wp_page_reuse(mm, &vmf, at, orig);
        }
        return Ok(());
    }
    if folio.is_some_and(|folio| mm.folio_test_ksm(folio)) {
        mm.vmstat.cow_ksm += 1;
    }
    wp_page_copy(mm, vmf, at, orig, folio)
}

/// Source: Linux mm/memory.c `wp_can_reuse_anon_folio()`.
fn wp_can_reuse_anon_folio<P: Platform>(mm: &mut Mm<P>, folio: Folio) -> bool {
    if folio.is_large() {
        if !mm.pt.kernel.wp_reuse_large {
            return false;
        }
        // __wp_can_reuse_large_anon_folio(): every reference is a mapping, all from one mm.
        let mapped = mm.folio_mapcount(folio);
        return mapped <= folio.nr_pages().get()
            && !mm.folio_test(folio, PageFlags::SWAPCACHE)
            && mapped == u64::from(mm.folio_ref_count(folio))
            && !mm.folio_mapped_by_many(folio);
    }
    let cached = u32::from(mm.folio_test(folio, PageFlags::SWAPCACHE));
    if mm.folio_test_ksm(folio) || mm.folio_ref_count(folio) > 1 + cached {
        return false;
    }
    if cached == 1 {
        mm.folio_free_swap(folio);
    }
    mm.folio_ref_count(folio) == 1
}

/// `maybe_mkwrite()`: a write forced on a mapping that forbids it leaves the entry read-only.
fn maybe_mkwrite<A: Arch>(pte: Pte<A>, vma: &Vma) -> Pte<A> {
    if vma.flags.contains(VmFlags::WRITE) { pte.mkwrite() } else { pte }
}

/// An unshared page is no written page: what tracks writes stays as it was.
fn keep_tracking_bits<A: Arch>(mut pte: Pte<A>, orig: Pte<A>) -> Pte<A> {
    if orig.is_soft_dirty() {
        pte = pte.mksoft_dirty();
    }
    if orig.is_uffd_wp() {
        pte = pte.mkuffd_wp();
    }
    pte
}

/// Source: Linux mm/memory.c `wp_page_reuse()`.
fn wp_page_reuse<P: Platform>(mm: &mut Mm<P>, vmf: &VmFault, at: Ptep, orig: Pte<P::Arch>) {
    mm.fentry(Event::FnWpPageReuse);
    let entry = maybe_mkwrite(orig.mkyoung().mkdirty(), &vmf.vma);
    mm.pt.ptep_set_access_flags(at, entry, FaultAccess::Write);
}

/// Source: Linux mm/memory.c `wp_page_copy()`.
fn wp_page_copy<P: Platform>(
    mm: &mut Mm<P>,
    vmf: VmFault,
    at: Ptep,
    orig: Pte<P::Arch>,
    old: Option<Folio>,
) -> Result<(), FaultSignal> {
    mm.fentry(Event::FnWpPageCopy);
    // Held while the allocation may reclaim or split what it finds.
    if let Some(folio) = old {
        mm.folio_ref_add(folio, 1);
    }
    let result = wp_page_copy_held(mm, &vmf, at, orig, old);
    if let Some(folio) = old {
        mm.folio_put_refs(folio, 1);
    }
    result
}

fn wp_page_copy_held<P: Platform>(
    mm: &mut Mm<P>,
    vmf: &VmFault,
    at: Ptep,
    orig: Pte<P::Arch>,
    old: Option<Folio>,
) -> Result<(), FaultSignal> {
    let new = mm.folio_alloc_reclaiming(Order::ZERO).ok_or(FaultSignal::OutOfMemory)?;
    match old {
        Some(_) => {
            mm.pt.count(Event::PageCopy, 1);
            mm.pt.ram.copy_frame(new.pfn, orig.pfn());
        }
        None => mm.folio_zero(new),
    }
    mm.lock_ptl();
    if mm.pt.ptep_get(at) != orig {
        mm.folio_put_refs(new, 1);
        return Ok(());
    }
    match old {
        Some(folio) if !mm.folio_test(folio, PageFlags::ANON) => {
            mm.add_rss_file(vmf.vma.mm, folio, -1);
            mm.add_rss_anon(vmf.vma.mm, 1);
        }
        Some(_) => {}
        None => {
            mm.ksm_might_unmap_zero_page(vmf.vma.mm, orig);
            mm.add_rss_anon(vmf.vma.mm, 1);
        }
    }
    let young = Pte::new(new.pfn, mm.base_prot(&vmf.vma)).mkyoung();
    let entry = match vmf.access {
        FaultAccess::Unshare => keep_tracking_bits(young, orig),
        FaultAccess::Read | FaultAccess::Write => maybe_mkwrite(young.mkdirty(), &vmf.vma),
    };
    mm.pt.ptep_clear_flush(at);
    mm.folio_add_new_anon_rmap(new, vmf.id, at.va);
    mm.folio_add_lru(new);
    mm.pt.set_pte_at(at, entry);
    if let Some(folio) = old {
        mm.folio_remove_rmap_ptes(folio, orig.pfn(), NrPages::ONE);
        mm.free_page_and_swap_cache(orig.pfn(), 1);
    }
    Ok(())
}

/// A fault on an empty PTE of a file mapping.
/// Source: Linux mm/memory.c `do_fault()`.
fn do_fault<P: Platform>(mm: &mut Mm<P>, vmf: VmFault) -> Result<(), FaultSignal> {
    let mm = &mut *mm.enter(Op::DoFault);
    let Some(file) = vmf.vma.file else { return Err(FaultSignal::Bus) };
    let index = vmf.vma.pgoff_of(vmf.va);
    if index >= mm.file_pages(file) {
        return Err(FaultSignal::Bus);
    }
    let at = mm.pte_alloc(vmf.pmdp, vmf.va).ok_or(FaultSignal::OutOfMemory)?;
    if vmf.access != FaultAccess::Write && should_fault_around(mm, file) {
        do_fault_around(mm, &vmf, file);
        if !Pte::<P::Arch>::from_raw(mm.pt.ram.load_u64(at.slot)).is_none() {
            return Ok(());
        }
    }
    let page = mm.filemap_read(file, index).ok_or(FaultSignal::OutOfMemory)?;
    let cow = vmf.access == FaultAccess::Write && !vmf.vma.flags.contains(VmFlags::SHARED);
    if !cow {
        return finish_file_fault(mm, &vmf, at, page);
    }
    let copy = mm.folio_alloc_reclaiming(Order::ZERO).ok_or(FaultSignal::OutOfMemory)?;
    mm.pt.count(Event::PageCopy, 1);
    mm.pt.ram.copy_frame(copy.pfn, page.pfn);
    mm.lock_ptl();
    if !mm.pt.ptep_get(at).is_none() {
        mm.folio_put_refs(copy, 1);
        return Ok(());
    }
    let young = Pte::new(copy.pfn, mm.base_prot(&vmf.vma)).mkyoung();
    let entry = maybe_mkwrite(young.mkdirty(), &vmf.vma);
    mm.add_rss_anon(vmf.vma.mm, 1);
    mm.folio_add_new_anon_rmap(copy, vmf.id, at.va);
    mm.folio_add_lru(copy);
    mm.pt.set_pte_at(at, entry);
    Ok(())
}

/// Source: Linux mm/memory.c `finish_fault()`, `set_pte_range()`.
fn finish_file_fault<P: Platform>(
    mm: &mut Mm<P>,
    vmf: &VmFault,
    at: Ptep,
    page: Folio,
) -> Result<(), FaultSignal> {
    mm.lock_ptl();
    if !mm.pt.ptep_get(at).is_none() {
        return Ok(());
    }
    if vmf.vma.flags.contains(VmFlags::PFNMAP) {
        // insert_pfn(): neither rmap nor reference.
        let entry = Pte::new(page.pfn, mm.base_prot(&vmf.vma)).mkspecial();
        mm.pt.set_pte_at(at, entry);
        return Ok(());
    }
    map_file_page(mm, vmf, at, page);
    Ok(())
}

/// Source: Linux mm/memory.c `should_fault_around()`; without `map_pages()` there is none.
fn should_fault_around<P: Platform>(mm: &Mm<P>, file: FileId) -> bool {
    mm.fault_around_bytes > PAGE_SIZE && mm.file_maps_pages(file)
}

/// Maps the cached pages of the window around a read fault. The window is aligned, but for what
/// the VMA lacks at its start.
/// Source: Linux mm/memory.c `do_fault_around()`, mm/filemap.c `filemap_map_pages()`.
fn do_fault_around<P: Platform>(mm: &mut Mm<P>, vmf: &VmFault, file: FileId) {
    let window = mm.fault_around_bytes;
    let table = vmf.va.align_down(PMD_SIZE);
    let start = vmf.va.align_down(window).max(vmf.vma.start).max(table);
    let end = start.wrapping_add(window).min(vmf.vma.end).min(table.wrapping_add(PMD_SIZE));
    let Some(first) = mm.pt.pte_offset(vmf.pmdp, start) else { return };
    let pages = mm.file_pages(file);
    mm.lock_ptl();
    for i in 0..end.bytes_since(start) / PAGE_SIZE {
        let here = first.add(i);
        let index = vmf.vma.pgoff_of(here.va);
        if index >= pages {
            return;
        }
        let Some(page) = mm.filemap_cached(file, index) else { continue };
        if mm.pt.ptep_get(here).is_none() {
            map_file_page(mm, vmf, here, page);
        }
    }
}

/// A neighbour is mapped old where hardware sets the flag by itself.
/// Source: Linux mm/memory.c `set_pte_range()`.
fn map_file_page<P: Platform>(mm: &mut Mm<P>, vmf: &VmFault, at: Ptep, page: Folio) {
    let old = at.va != vmf.va && mm.pt.hw.hw_access_dirty && P::Arch::PREFAULT_OLD;
    let mut entry = Pte::new(page.pfn, mm.base_prot(&vmf.vma));
    entry = if old { entry.mkold() } else { entry.mkyoung() };
    if vmf.access == FaultAccess::Write {
        entry = entry.mkdirty().mkwrite();
    }
    mm.folio_ref_add(page, 1);
    mm.add_mapcounts(page, page.pfn, NrPages::ONE);
    mm.add_rss_file(vmf.vma.mm, page, 1);
    mm.pt.set_pte_at(at, entry);
}

// ---- zapping

/// Unmaps everything in the VMAs `ids`, without freeing page tables.
/// Source: Linux mm/memory.c `unmap_vmas()`, mm/vma.c `unmap_region()`.
pub(crate) fn unmap_region<P: Platform>(mm: &mut Mm<P>, gather: &mut MmuGather, ids: &[VmaId]) {
    if mm.pt.kernel.swap_api == SwapApi::Cluster && gather.teardown == Teardown::Partial {
        mm.fentry(Event::FnUnmapRegion);
    }
    for &id in ids {
        let vma = *mm.vma(id);
        match vma.huge {
            Some(size) => hugetlb::unmap_hugepage_range(mm, gather, id, size, vma.start, vma.end),
            None => unmap_page_range(mm, gather, id, vma.start, vma.end, Reclaim::KeepTables),
        }
    }
}

/// Whether page tables that a zap emptied are freed at once (CONFIG_PT_RECLAIM).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reclaim {
    KeepTables,
    EmptyTables,
}

/// Source: Linux mm/memory.c `unmap_page_range()` (7.3: `__zap_vma_range()`).
pub(crate) fn unmap_page_range<P: Platform>(
    mm: &mut Mm<P>,
    gather: &mut MmuGather,
    id: VmaId,
    start: VirtAddr,
    end: VirtAddr,
    reclaim: Reclaim,
) {
    let op = match mm.pt.kernel.swap_api {
        SwapApi::SlotCache => Op::UnmapPageRange,
        SwapApi::Cluster => Op::ZapVmaRange,
    };
    let mm = &mut *mm.enter(op);
    let mm_id = mm.vma(id).mm;
    mm.update_hiwater_rss(mm_id);
    let mut va = start;
    while va < end {
        let next = pmd_addr_end(va, end);
        match mm.pt.pmd_offset(mm_id, va) {
            Some(pmdp) => zap_pmd(mm, gather, id, pmdp, va, next, reclaim),
            None => {
                va = skip_missing_tables(mm, mm_id, va, end);
                continue;
            }
        }
        va = next;
    }
    gather.end_vma(mm);
}

pub(crate) fn pmd_addr_end(va: VirtAddr, end: VirtAddr) -> VirtAddr {
    va.align_down(PMD_SIZE).wrapping_add(PMD_SIZE).min(end)
}

/// The next address that could have a PMD table.
fn skip_missing_tables<P: Platform>(mm: &Mm<P>, id: MmId, va: VirtAddr, end: VirtAddr) -> VirtAddr {
    let slot = TableLevel::Pgd.slot(mm.pt.root(id), va);
    let span = match mm.pt.table_at(slot) {
        Table::None => 1 << TableLevel::Pgd.shift(),
        Table::Next(_) | Table::Leaf => 1 << TableLevel::Pud.shift(),
    };
    va.align_down(span).wrapping_add(span).min(end)
}

fn zap_pmd<P: Platform>(
    mm: &mut Mm<P>,
    gather: &mut MmuGather,
    id: VmaId,
    pmdp: Pmdp,
    va: VirtAddr,
    next: VirtAddr,
    reclaim: Reclaim,
) {
    let pmd = mm.pt.pmdp_get(pmdp);
    if pmd.is_none() {
        return;
    }
    if pmd.is_leaf() {
        if next.bytes_since(va) == PMD_SIZE {
            huge_memory::zap_huge_pmd(mm, gather, pmdp);
            return;
        }
        huge_memory::split_huge_pmd(mm, id, pmdp);
    }
    zap_pte_range(mm, gather, pmdp, va, next, reclaim);
}

/// Source: Linux mm/memory.c `zap_pte_range()`.
fn zap_pte_range<P: Platform>(
    mm: &mut Mm<P>,
    gather: &mut MmuGather,
    pmdp: Pmdp,
    start: VirtAddr,
    end: VirtAddr,
    reclaim: Reclaim,
) {
    let mut va = start;
    let mut interrupted = false;
    while va < end {
        let Some(mut at) = mm.pt.pte_offset(pmdp, va) else { return };
        mm.lock_ptl();
        mm.flush_tlb_batched_pending(pmdp.mm);
        let mut room = Room::Left;
        while va < end && room == Room::Left {
            let max = NrPages::covering(end.bytes_since(va));
            let (nr, left) = do_zap_pte(mm, gather, at, max, reclaim);
            room = left;
            va = va.wrapping_add(nr.bytes());
            if va < end {
                at = at.add(nr.get());
            }
        }
        interrupted |= room == Room::Full;
        if gather.take_delayed_rmap() || room == Room::Full {
            gather.flush_tlb_only(mm);
            gather.flush(mm);
        }
    }
    let whole = end.bytes_since(start) == PMD_SIZE;
    if reclaim == Reclaim::EmptyTables && mm.pt.kernel.pt_reclaim && whole {
        reclaim_pte_table(mm, gather, pmdp, start, interrupted);
    }
}

/// Frees a page table that the zap emptied; one whose loop was interrupted is looked at again.
/// Source: Linux mm/pt_reclaim.c `try_to_free_pte()`, `free_pte()`.
fn reclaim_pte_table<P: Platform>(
    mm: &mut Mm<P>,
    gather: &mut MmuGather,
    pmdp: Pmdp,
    start: VirtAddr,
    interrupted: bool,
) {
    if interrupted {
        let Some(first) = mm.pt.pte_offset(pmdp, start) else { return };
        if (0..512).any(|i| !mm.pt.ptep_get(first.add(i)).is_none()) {
            return;
        }
    }
    let Some(table) = mm.pt.pmdp_get(pmdp).table() else { return };
    let empty = (0..512).all(|i| {
        Pte::<P::Arch>::from_raw(mm.pt.ram.load_u64(PhysAddr::new(table.get() + i * 8))).is_none()
    });
    if !empty {
        return;
    }
    mm.pt.clear_table(TableLevel::Pmd, pmdp.slot);
    mm.mm_mut(pmdp.mm).pgtables -= 1;
    gather.free_table(TableLevel::Pte, start, table);
}

/// One run of PTEs. Source: Linux mm/memory.c `do_zap_pte_range()`.
fn do_zap_pte<P: Platform>(
    mm: &mut Mm<P>,
    gather: &mut MmuGather,
    at: Ptep,
    max: NrPages,
    reclaim: Reclaim,
) -> (NrPages, Room) {
    let pte = mm.pt.ptep_get(at);
    if pte.is_none() {
        return (NrPages::ONE, Room::Left);
    }
    if pte.is_present() {
        return zap_present_ptes(mm, gather, at, pte, max);
    }
    (zap_nonpresent_ptes(mm, at, pte, max, reclaim), Room::Left)
}

/// Source: Linux mm/memory.c `zap_present_ptes()`, `zap_present_folio_ptes()`.
fn zap_present_ptes<P: Platform>(
    mm: &mut Mm<P>,
    gather: &mut MmuGather,
    at: Ptep,
    pte: Pte<P::Arch>,
    max: NrPages,
) -> (NrPages, Room) {
    mm.fentry(Event::FnZapPresentPtes);
    let Some(folio) = mm.vm_normal_folio(pte) else {
        // The zero page: no rmap, no reference.
        mm.ksm_might_unmap_zero_page(at.mm, pte);
        mm.pt.get_and_clear_full_ptes(at, NrPages::ONE, gather.teardown);
        gather.remove_tlb_entries(at.va, NrPages::ONE);
        return (NrPages::ONE, Room::Left);
    };
    let nr = match folio.is_large() && max > NrPages::ONE {
        true => mm.folio_pte_batch(folio, at, pte, max, Fpb::empty()).nr,
        false => NrPages::ONE,
    };
    mm.fentry(Event::FnZapPresentFolioPtes);
    let n = nr.get().cast_signed();
    if mm.folio_test(folio, PageFlags::ANON) {
        mm.pt.clear_full_ptes(at, nr, gather.teardown);
        mm.add_rss_anon(at.mm, -n);
    } else {
        let old = mm.pt.get_and_clear_full_ptes(at, nr, gather.teardown);
        if old.is_dirty() {
            // Whoever cleans the page next must find no CPU that can still write it.
            mm.folio_set(folio, PageFlags::DIRTY);
            gather.delay_rmap();
        }
        mm.add_rss_file(at.mm, folio, -n);
    }
    gather.remove_tlb_entries(at.va, nr);
    mm.folio_remove_rmap_ptes(folio, pte.pfn(), nr);
    (nr, gather.remove_pages(pte.pfn(), nr))
}

/// Source: Linux mm/memory.c `zap_nonpresent_ptes()`.
fn zap_nonpresent_ptes<P: Platform>(
    mm: &mut Mm<P>,
    at: Ptep,
    pte: Pte<P::Arch>,
    max: NrPages,
    reclaim: Reclaim,
) -> NrPages {
    let leaf = pte.softleaf();
    let mut nr = NrPages::ONE;
    match leaf.kind() {
        SoftleafKind::Swap => {
            nr = mm.swap_pte_batch(at, pte, max);
            mm.add_rss_swapents(at.mm, -nr.get().cast_signed());
            mm.swap_put_entries_direct(leaf, nr);
        }
        // A guard region survives MADV_DONTNEED.
        SoftleafKind::Marker
            if leaf.offset & Softleaf::MARKER_GUARD != 0 && reclaim == Reclaim::EmptyTables =>
        {
            return nr;
        }
        _ => {}
    }
    clear_not_present_full_ptes(mm, at, nr);
    if reclaim == Reclaim::EmptyTables {
        zap_install_uffd_wp_if_needed(mm, at, nr);
    }
    nr
}

/// 6.12 asks first whether the VMA is anonymous, later kernels whether the entry is empty.
/// Source: Linux mm/memory.c `zap_install_uffd_wp_if_needed()`.
fn zap_install_uffd_wp_if_needed<P: Platform>(mm: &mut Mm<P>, at: Ptep, nr: NrPages) {
    if mm.pt.kernel.pte_marker_uffd_wp && mm.pt.kernel.swap_api == SwapApi::Cluster {
        mm.fentry(Event::FnCondInstallUffdWpPtes);
        mm.pt.count(Event::FnCondInstallUffdWpPtesPages, nr.get());
        mm.pt.ptep_get(at);
    }
}

fn clear_not_present_full_ptes<P: Platform>(mm: &mut Mm<P>, at: Ptep, nr: NrPages) {
    for i in 0..nr.get() {
        mm.pt.pte_clear(at.add(i));
    }
}

/// Frees the page tables that only the VMAs `ids`, ascending, needed: those that nothing below
/// `floor` or from `ceiling` on shares.
/// Source: Linux mm/memory.c `free_pgtables()`.
pub(crate) fn free_pgtables<P: Platform>(
    mm: &mut Mm<P>,
    gather: &mut MmuGather,
    ids: &[VmaId],
    floor: Option<VirtAddr>,
    ceiling: Option<VirtAddr>,
) {
    let mm = &mut *mm.enter(Op::FreePgtables);
    let floor = floor.unwrap_or(VirtAddr::ZERO);
    for (i, &id) in ids.iter().enumerate() {
        let vma = *mm.vma(id);
        let next = ids.get(i + 1).map(|&next| mm.vma(next).start);
        let bounds = (floor, next.or(ceiling).unwrap_or(VirtAddr::new(u64::MAX)));
        let root = mm.pt.root(gather.mm);
        free_pgd_range(mm, gather, (TableLevel::Pgd, root), vma.start, vma.end, bounds);
    }
}

/// Frees what hangs below the entries of one table for `[start, end)`, deepest first.
/// Source: Linux mm/memory.c `free_pgd_range()`, `free_pud_range()`, `free_pmd_range()`.
fn free_pgd_range<P: Platform>(
    mm: &mut Mm<P>,
    gather: &mut MmuGather,
    (level, table): (TableLevel, PhysAddr),
    start: VirtAddr,
    end: VirtAddr,
    bounds: (VirtAddr, VirtAddr),
) {
    let below = match level {
        TableLevel::Pgd => TableLevel::Pud,
        TableLevel::Pud => TableLevel::Pmd,
        TableLevel::Pmd | TableLevel::Pte => TableLevel::Pte,
    };
    let span = 1 << level.shift();
    let mut va = start;
    while va < end {
        let first = va.align_down(span);
        let after = first.wrapping_add(span);
        let slot = level.slot(table, va);
        if let Table::Next(child) = mm.pt.table_at(slot) {
            if below != TableLevel::Pte {
                free_pgd_range(mm, gather, (below, child), va, after.min(end), bounds);
            }
            if first >= bounds.0 && after <= bounds.1 {
                mm.pt.clear_table(level, slot);
                mm.mm_mut(gather.mm).pgtables -= 1;
                gather.free_table(below, first, child);
            }
        }
        va = after;
    }
}

/// The last user of an address space is gone. Source: Linux mm/mmap.c `exit_mmap()`.
pub(crate) fn exit_mmap<P: Platform>(mm: &mut Mm<P>, id: MmId) {
    let mm = &mut *mm.enter(Op::ExitMmap);
    let ids: Vec<VmaId> = mm.mm_struct(id).tree.values().copied().collect();
    let mut gather = MmuGather::new(id, Teardown::FullMm);
    unmap_region(mm, &mut gather, &ids);
    free_pgtables(mm, &mut gather, &ids, None, None);
    gather.finish(mm);
    for vma in ids {
        mm.remove_vma(vma);
    }
    let root = mm.pt.root(id);
    mm.pt.mm_destroy(id);
    mm.free_table(root);
    mm.mm_mut(id).pgtables = 0;
}

impl<P: Platform> Mm<P> {
    /// Frees the private memory of a process that will never run user code again.
    /// Source: Linux mm/oom_kill.c `__oom_reap_task_mm()`.
    pub fn oom_reap_task_mm(&mut self, id: MmId) {
        for vma_id in self.vmas_in(id, VirtAddr::ZERO, P::Arch::TASK_SIZE) {
            let vma = *self.vma(vma_id);
            let private = vma.is_anonymous() || !vma.flags.contains(VmFlags::SHARED);
            if vma.flags.contains(VmFlags::HUGETLB) || !private {
                continue;
            }
            let mut gather = MmuGather::new(id, Teardown::Partial);
            unmap_page_range(self, &mut gather, vma_id, vma.start, vma.end, Reclaim::KeepTables);
            gather.finish(self);
        }
    }
}

/// Source: Linux mm/memory.c `__access_remote_vm()`.
fn access_remote_vm<P: Platform>(
    mm: &mut Mm<P>,
    id: MmId,
    start: VirtAddr,
    len: usize,
    flags: Foll,
    mut each: impl FnMut(&mut Mm<P>, PhysAddr, std::ops::Range<usize>),
) -> usize {
    let mut done = 0;
    while done < len {
        let at = start.wrapping_add(done as u64);
        let room = (PAGE_SIZE - at.page_offset()) as usize;
        let part = done..done + room.min(len - done);
        let mut pages = Vec::new();
        let got = mm.get_user_pages(id, at, 1, flags | Foll::FORCE, Some(&mut pages));
        let (Ok(1), Some(&page)) = (got, pages.first()) else { break };
        done = part.end;
        each(mm, page.addr().wrapping_add(at.page_offset()), part);
        if flags.contains(Foll::WRITE) {
            let folio = mm.page_folio(page);
            mm.folio_set(folio, PageFlags::DIRTY);
        }
        mm.put_page(page);
    }
    done
}

impl<P: Platform> Mm<P> {
    /// Reads another address space as a debugger does, whatever its mappings allow; returns how
    /// many bytes could be had.
    pub fn read_remote_vm(&mut self, id: MmId, start: VirtAddr, into: &mut [u8]) -> usize {
        access_remote_vm(self, id, start, into.len(), Foll::empty(), |mm, from, part| {
            let len = part.len();
            into[part].copy_from_slice(mm.pt.ram.slice(from, len));
        })
    }

    /// The same for writing: private mappings get a copy of their own.
    pub fn write_remote_vm(&mut self, id: MmId, start: VirtAddr, from: &[u8]) -> usize {
        access_remote_vm(self, id, start, from.len(), Foll::WRITE, |mm, to, part| {
            let bytes = &from[part];
            mm.pt.ram.slice_mut(to, bytes.len()).copy_from_slice(bytes);
        })
    }
}

// ---- populate

/// Faults in `[start, end)` as GUP would. Source: Linux mm/gup.c `populate_vma_page_range()`,
/// `faultin_page_range()`.
///
/// # Errors
/// ENOMEM over a hole or when memory has run out, EFAULT where the VMA forbids the access.
pub(crate) fn populate_range<P: Platform>(
    mm: &mut Mm<P>,
    id: MmId,
    start: VirtAddr,
    end: VirtAddr,
    write: bool,
) -> Result<(), Errno> {
    let mut va = start;
    while va < end {
        let vma_id = mm.vma_lookup(id, va).ok_or(Errno::ENOMEM)?;
        let access = if write { Access::Write } else { Access::Read };
        if !mm.user_page_is_mapped(id, va, access) {
            let needed = match write {
                true => VmFlags::WRITE,
                false => VmFlags::READ,
            };
            if !mm.vma(vma_id).flags.contains(needed) {
                return Err(Errno::EFAULT);
            }
            let kind = if write { FaultAccess::Write } else { FaultAccess::Read };
            match handle_mm_fault(mm, vma_id, va, kind) {
                Ok(()) => {}
                Err(FaultSignal::OutOfMemory) => return Err(Errno::ENOMEM),
                Err(_) => return Err(Errno::EFAULT),
            }
            continue;
        }
        va = va.wrapping_add(PAGE_SIZE);
    }
    Ok(())
}

/// See [`huge_memory::split_huge_pmd`]: for the VMA layer, by address.
pub(crate) fn split_huge_pmd_address<P: Platform>(mm: &mut Mm<P>, id: MmId, va: VirtAddr) {
    let Some(pmdp) = mm.pt.pmd_offset(id, va) else { return };
    if mm.pt.pmdp_get(pmdp).is_leaf()
        && let Some(vma) = mm.vma_lookup(id, pmdp.va.max(va.align_down(PMD_SIZE)))
    {
        huge_memory::split_huge_pmd(mm, vma, pmdp);
    }
}
