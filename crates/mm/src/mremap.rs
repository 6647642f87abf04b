//! mremap(2): growing, shrinking and moving mappings with what they map.
//!
//! Source: Linux mm/mremap.c.

use crate::errno::Errno;
use crate::ksm::Switch;
use crate::mmap::{Backing, MAX_MAP_COUNT, MapFlags, page_align};
use crate::mseal::can_modify_vma;
use crate::pte_batch::Fpb;
use crate::vma::{VmFlags, Vma, VmaId};
use crate::{Mm, huge_memory, hugetlb, memory};
use arch::{Arch, FlushRange, LeafOnly, MmId, Platform, Pmdp, Pte, Ptep, TableLevel};
use events::{Event, Op};
use units::{NrPages, PAGE_SIZE, PMD_SIZE, Reach, VirtAddr};

bitflags::bitflags! {
    /// MREMAP_* of mremap(2).
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct MremapFlags: u32 {
        /// MREMAP_MAYMOVE: another address will do.
        const MAYMOVE = 1;
        /// MREMAP_FIXED: at the address given, whatever was there.
        const FIXED = 2;
        /// MREMAP_DONTUNMAP: leave an empty mapping behind.
        const DONTUNMAP = 4;
    }
}

/// What a call wants (`struct vma_remap_struct`).
#[derive(Clone, Copy, Debug)]
struct Remap {
    mm: MmId,
    addr: VirtAddr,
    old_len: u64,
    new_len: u64,
    flags: MremapFlags,
}

impl Remap {
    fn old_end(&self) -> VirtAddr {
        self.addr.wrapping_add(self.old_len)
    }
}

impl<P: Platform> Mm<P> {
    /// `mremap()`: the mapping at `addr` becomes `new_len` bytes long, and moves if it must and
    /// may. Returns where it is.
    ///
    /// # Errors
    /// EINVAL for flags that contradict each other, unaligned addresses, an empty result or
    /// overlapping ranges; EFAULT if the old range is not one mapping; ENOMEM if it cannot grow
    /// in place and may not move, or for want of space.
    pub fn mremap(
        &mut self,
        mm: MmId,
        addr: VirtAddr,
        old_len: u64,
        new_len: u64,
        flags: MremapFlags,
        new_addr: VirtAddr,
    ) -> Result<VirtAddr, Errno> {
        if flags.contains(MremapFlags::FIXED) && !flags.contains(MremapFlags::MAYMOVE) {
            return Err(Errno::EINVAL);
        }
        let dontunmap = flags.contains(MremapFlags::DONTUNMAP);
        if dontunmap && (!flags.contains(MremapFlags::MAYMOVE) || old_len != new_len) {
            return Err(Errno::EINVAL);
        }
        if !addr.is_aligned(PAGE_SIZE) {
            return Err(Errno::EINVAL);
        }
        let old_len = page_align(old_len).unwrap_or(0);
        let new_len = page_align(new_len).filter(|&len| len > 0).ok_or(Errno::EINVAL)?;
        let vma = self.vma_lookup(mm, addr).ok_or(Errno::EFAULT)?;
        let (mut old_len, mut new_len) = (old_len, new_len);
        if let Some(size) = self.vma(vma).huge {
            // No growing: reservations cannot be split.
            let align = |len: u64| len.div_ceil(size.bytes()) * size.bytes();
            (old_len, new_len) = (align(old_len), align(new_len));
            let aligned = |va: VirtAddr| va.is_aligned(size.bytes());
            if !aligned(addr) || !aligned(new_addr) || new_len > old_len {
                return Err(Errno::EINVAL);
            }
        }
        let remap = Remap { mm, addr, old_len, new_len, flags };
        if flags.intersects(MremapFlags::FIXED | MremapFlags::DONTUNMAP) {
            return self.mremap_to(remap, new_addr);
        }
        if old_len >= new_len {
            if addr.checked_add(old_len).is_none_or(|end| end > P::Arch::TASK_SIZE) {
                return Err(Errno::EINVAL);
            }
            if new_len < old_len {
                self.can_modify(mm, addr.wrapping_add(new_len), addr.wrapping_add(old_len))?;
                self.do_munmap(mm, addr.wrapping_add(new_len), addr.wrapping_add(old_len));
            }
            return Ok(addr);
        }
        self.vma_to_resize(vma, &remap)?;
        if self.expand_in_place(vma, &remap) {
            return Ok(addr);
        }
        if !flags.contains(MremapFlags::MAYMOVE) {
            return Err(Errno::ENOMEM);
        }
        let to = self.unmapped_area_like(vma, new_len)?;
        self.move_vma(vma, &remap, to)
    }

    /// Source: Linux mm/mremap.c `mremap_to()`.
    fn mremap_to(&mut self, mut remap: Remap, new_addr: VirtAddr) -> Result<VirtAddr, Errno> {
        let Remap { mm, addr, old_len, new_len, flags } = remap;
        let new_end = new_addr.checked_add(new_len).filter(|&end| end <= P::Arch::TASK_SIZE);
        let Some(new_end) = new_end.filter(|_| new_addr.is_aligned(PAGE_SIZE)) else {
            return Err(Errno::EINVAL);
        };
        let old_end = addr.checked_add(old_len).ok_or(Errno::EINVAL)?;
        if old_end > new_addr && new_end > addr {
            return Err(Errno::EINVAL);
        }
        if self.mm_struct(mm).tree.len() + 2 >= MAX_MAP_COUNT {
            return Err(Errno::ENOMEM);
        }
        let fixed = flags.contains(MremapFlags::FIXED);
        if fixed {
            self.can_modify(mm, new_addr, new_end)?;
            self.check_split(mm, new_addr, new_end)?;
            self.do_munmap(mm, new_addr, new_end);
        }
        if old_len > new_len {
            self.can_modify(mm, addr.wrapping_add(new_len), old_end)?;
            self.do_munmap(mm, addr.wrapping_add(new_len), old_end);
            remap.old_len = new_len;
        }
        let vma = self.vma_lookup(mm, addr).ok_or(Errno::EFAULT)?;
        self.vma_to_resize(vma, &remap)?;
        let to = match fixed {
            true => new_addr,
            false => self.unmapped_area_like(vma, new_len)?,
        };
        self.move_vma(vma, &remap, to)
    }

    /// Whether the VMA may become as long as asked for.
    /// Source: Linux mm/mremap.c `vma_to_resize()` (7.3: `check_prep_vma()`).
    fn vma_to_resize(&self, id: VmaId, remap: &Remap) -> Result<(), Errno> {
        let vma = self.vma(id);
        can_modify_vma(vma)?;
        // An old length of 0 asks for a second mapping of shared memory.
        if remap.old_len == 0 && !vma.flags.contains(VmFlags::SHARED) {
            return Err(Errno::EINVAL);
        }
        let fixed_size = vma.flags.contains(VmFlags::DONTEXPAND);
        if fixed_size && remap.flags.contains(MremapFlags::DONTUNMAP) {
            return Err(Errno::EINVAL);
        }
        if remap.old_len > vma.end.bytes_since(remap.addr)
            || (fixed_size && remap.new_len > remap.old_len)
        {
            return Err(Errno::EFAULT);
        }
        let pgoff = vma.pgoff_of(remap.addr);
        if pgoff.checked_add(remap.new_len / PAGE_SIZE).is_none() {
            return Err(Errno::EINVAL);
        }
        let grown = remap.new_len.saturating_sub(remap.old_len);
        if self.mlock_future_ok(remap.mm, vma.flags, grown) { Ok(()) } else { Err(Errno::EAGAIN) }
    }

    /// Grows the VMA where it is, if the range is its end and what follows is free.
    /// Source: Linux mm/mremap.c `vma_expandable()`, mm/vma.c `vma_merge_extend()`.
    fn expand_in_place(&mut self, id: VmaId, remap: &Remap) -> bool {
        let vma = *self.vma(id);
        if remap.old_end() != vma.end {
            return false;
        }
        let delta = remap.new_len - remap.old_len;
        let Some(end) = vma.end.checked_add(delta).filter(|&end| end <= P::Arch::TASK_SIZE) else {
            return false;
        };
        if !self.vmas_in(vma.mm, vma.end, end).is_empty() {
            return false;
        }
        self.vmas[id.index()].end = end;
        self.mm_mut(vma.mm).total_vm += delta / PAGE_SIZE;
        self.merge_vma(id);
        self.populate_locked(&vma, vma.end, end);
        true
    }

    fn populate_locked(&mut self, vma: &Vma, start: VirtAddr, end: VirtAddr) {
        if vma.flags.contains(VmFlags::LOCKED) && start < end {
            // mm_populate() ignores failure.
            let _ = self.mm_populate(vma.mm, start, end);
        }
    }

    fn unmapped_area_like(&self, id: VmaId, len: u64) -> Result<VirtAddr, Errno> {
        let vma = self.vma(id);
        let backing = match vma.file {
            Some(file) => Backing::File { file, offset: vma.pgoff * PAGE_SIZE },
            None => Backing::Anonymous,
        };
        self.mmap_address(vma.mm, VirtAddr::ZERO, len, MapFlags::empty(), backing)
    }

    /// Source: Linux mm/mremap.c `move_vma()`, mm/vma.c `copy_vma()`.
    fn move_vma(&mut self, id: VmaId, remap: &Remap, to: VirtAddr) -> Result<VirtAddr, Errno> {
        // Reservations go with what is moved, so that must be a VMA of its own.
        let id = match self.vma(id).resv {
            Some(_) => self.isolate_range(remap.mm, remap.addr, remap.old_end())[0],
            None => id,
        };
        let old = *self.vma(id);
        if self.mm_struct(remap.mm).tree.len() + 3 >= MAX_MAP_COUNT {
            return Err(Errno::ENOMEM);
        }
        // A merged page is found by the address that it was merged at.
        self.ksm_madvise(id, remap.addr, remap.old_end(), Switch::Off)?;
        // Memory that nobody has touched yet has no pages to be found by their old offset.
        let pgoff = match old.is_anonymous() && old.anon_vma.is_none() {
            true => to.vpn().get(),
            false => old.pgoff_of(remap.addr),
        };
        let end = to.wrapping_add(remap.new_len);
        let new = self.insert_vma(Vma { start: to, end, pgoff, ..old });
        self.clone_anon_vmas(id, new);
        let (from, len) = (remap.addr, remap.old_len);
        let moved = move_page_tables(self, id, from, new, to, len);
        if moved < len {
            // What was moved goes back, and the new mapping away.
            move_page_tables(self, new, to, id, from, moved);
            self.vmas[new.index()].resv = None;
            self.do_munmap(remap.mm, to, end);
            return Err(Errno::ENOMEM);
        }
        // clear_vma_resv_huge_pages(): the new VMA has taken them over.
        self.vmas[id.index()].resv = None;
        if remap.flags.contains(MremapFlags::DONTUNMAP) {
            self.vmas[id.index()].flags.remove(VmFlags::LOCKED | VmFlags::LOCKONFAULT);
            if old.start == from && old.end == remap.old_end() {
                self.unlink_anon_vmas(id);
                self.vmas[id.index()].anon_vma = None;
            }
        } else if len > 0 {
            self.do_munmap(remap.mm, from, remap.old_end());
        }
        self.merge_vma(new);
        self.populate_locked(&old, to.wrapping_add(len), end);
        Ok(to)
    }

    /// Whether a move may start at the PMD boundary before `at`: nothing else lies there.
    /// Source: Linux mm/mremap.c `can_align_down()`.
    fn can_align_down(&self, id: VmaId, at: VirtAddr) -> bool {
        let vma = self.vma(id);
        vma.start == at && self.vmas_in(vma.mm, at.align_down(PMD_SIZE), at).is_empty()
    }
}

/// How far a step of `PMD_SIZE` may go from `from` and `to` at once without crossing a table on
/// either side. Source: Linux mm/mremap.c `get_extent()`.
fn get_extent(from: VirtAddr, old_end: VirtAddr, to: VirtAddr) -> u64 {
    let old = memory::pmd_addr_end(from, old_end).bytes_since(from);
    let new = PMD_SIZE - (to.get() & (PMD_SIZE - 1));
    old.min(new)
}

/// Moves what `[from, from + len)` maps to `to`: whole page tables where both sides are
/// aligned, entries elsewhere. Returns how much was moved before memory ran out.
/// Source: Linux mm/mremap.c `move_page_tables()`.
fn move_page_tables<P: Platform>(
    mm: &mut Mm<P>,
    old_vma: VmaId,
    mut from: VirtAddr,
    new_vma: VmaId,
    mut to: VirtAddr,
    len: u64,
) -> u64 {
    if len == 0 {
        return 0;
    }
    let mm = &mut *mm.enter(Op::MovePageTables);
    let id = mm.vma(old_vma).mm;
    if let Some(size) = mm.vma(old_vma).huge {
        return hugetlb::move_hugetlb_page_tables(mm, id, size, (from, to), len);
    }
    let (start, old_end) = (from, from.wrapping_add(len));
    let offset = from.get() & (PMD_SIZE - 1);
    let crosses = len > PMD_SIZE - offset;
    let alike = offset != 0 && offset == to.get() & (PMD_SIZE - 1);
    if crosses && alike && mm.can_align_down(old_vma, from) && mm.can_align_down(new_vma, to) {
        (from, to) = (from.align_down(PMD_SIZE), to.align_down(PMD_SIZE));
    }
    while from < old_end {
        let extent = get_extent(from, old_end, to);
        let moved = match mm.pt.pmd_offset(id, from) {
            Some(old) if !mm.pt.pmdp_get(old).is_none() => {
                move_pmd(mm, old_vma, old, from, to, extent)
            }
            _ => Some(()),
        };
        if moved.is_none() {
            break;
        }
        (from, to) = (from.wrapping_add(extent), to.wrapping_add(extent));
    }
    from.get().saturating_sub(start.get()).min(len)
}

/// One step: all under one PMD entry on both sides. `None` when memory has run out.
fn move_pmd<P: Platform>(
    mm: &mut Mm<P>,
    id: VmaId,
    old: Pmdp,
    from: VirtAddr,
    to: VirtAddr,
    extent: u64,
) -> Option<()> {
    let new = mm.pmd_alloc(old.mm, to)?;
    if mm.pt.pmdp_get(old).is_leaf() {
        if extent == PMD_SIZE && huge_memory::move_huge_pmd(mm, old, new) {
            return Some(());
        }
        huge_memory::split_huge_pmd(mm, id, old);
    } else if extent == PMD_SIZE && move_normal_pmd(mm, old, new) {
        return Some(());
    }
    let target = mm.pte_alloc(new, to)?;
    move_ptes(mm, old, from, target, NrPages::covering(extent));
    Some(())
}

/// The page table itself changes its place. Returns whether it could.
/// Source: Linux mm/mremap.c `move_normal_pmd()`.
fn move_normal_pmd<P: Platform>(mm: &mut Mm<P>, old: Pmdp, new: Pmdp) -> bool {
    if !mm.pt.pmdp_get(new).is_none() {
        return false;
    }
    let Some(table) = mm.pt.pmdp_get(old).table() else { return false };
    mm.lock_ptl();
    mm.pt.clear_table(TableLevel::Pmd, old.slot);
    mm.pt.populate(TableLevel::Pmd, new.slot, table);
    let end = old.va.wrapping_add(PMD_SIZE);
    let (stride, leaf_only) = (Reach::K4, LeafOnly::No);
    mm.pt.flush_tlb_range(old.mm, FlushRange { start: old.va, end, stride, leaf_only });
    true
}

/// Source: Linux mm/mremap.c `move_ptes()`.
fn move_ptes<P: Platform>(mm: &mut Mm<P>, old: Pmdp, from: VirtAddr, target: Ptep, pages: NrPages) {
    mm.fentry(Event::FnMovePtes);
    let Some(first) = mm.pt.pte_offset(old, from) else { return };
    mm.lock_ptl();
    mm.flush_tlb_batched_pending(old.mm);
    let mut force_flush = false;
    let mut i = 0;
    while i < pages.get() {
        let (at, to) = (first.add(i), target.add(i));
        let pte = mm.pt.ptep_get(at);
        if pte.is_none() {
            i += 1;
            continue;
        }
        let mut nr = NrPages::ONE;
        if pte.is_present() {
            nr = mremap_folio_pte_batch(mm, at, pte, NrPages::new(pages.get() - i));
            force_flush = true;
        }
        let pte = match mm.pt.kernel.mremap_batched {
            true => mm.pt.get_and_clear_ptes(at, nr),
            false => mm.pt.ptep_get_and_clear(at),
        };
        mm.pt.set_ptes(to, move_soft_dirty_pte(pte), nr);
        i += nr.get();
    }
    if force_flush {
        let end = from.wrapping_add(pages.bytes());
        let (stride, leaf_only) = (Reach::K4, LeafOnly::No);
        mm.pt.flush_tlb_range(old.mm, FlushRange { start: from, end, stride, leaf_only });
    }
}

/// Moved entries count as written for whoever tracks memory by soft-dirty bits.
/// Source: Linux mm/mremap.c `move_soft_dirty_pte()`.
fn move_soft_dirty_pte<A: Arch>(pte: Pte<A>) -> Pte<A> {
    match pte.is_present() {
        true => pte.mksoft_dirty(),
        false if pte.softleaf().is_swap() => pte.swp_mksoft_dirty(),
        false => pte,
    }
}

/// How many entries move together: what the architecture says belongs together.
/// Source: Linux mm/mremap.c `mremap_folio_pte_batch()`.
fn mremap_folio_pte_batch<P: Platform>(
    mm: &mut Mm<P>,
    at: Ptep,
    pte: Pte<P::Arch>,
    max: NrPages,
) -> NrPages {
    if !mm.pt.kernel.mremap_batched {
        return NrPages::ONE;
    }
    mm.fentry(Event::FnMremapFolioPteBatch);
    if max == NrPages::ONE || mm.pt.pte_batch_hint(at, pte) == NrPages::ONE {
        return NrPages::ONE;
    }
    match mm.vm_normal_folio(pte) {
        Some(folio) if folio.is_large() => {
            mm.folio_pte_batch(folio, at, pte, max, Fpb::RESPECT_WRITE).nr
        }
        _ => NrPages::ONE,
    }
}
