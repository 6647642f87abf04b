//! Memory that stays: mlock(2), mlockall(2) and their opposites. Source: Linux mm/mlock.c.
//
// FIDELITY: mlock-lru locked folios stay on their LRU list: reclaim finds out when it asks the VMA

use crate::errno::Errno;
use crate::mmap::page_align;
use crate::pagewalk::{Action, Callbacks, MmWalk, MmWalkOps, Span, Step, walk_page_range};
use crate::vma::{VmFlags, Vma, VmaId};
use crate::{Mm, memory};
use arch::{Arch, MmId, Platform, Pmdp};
use std::convert::Infallible;
use std::ops::ControlFlow;
use units::{PAGE_SIZE, VirtAddr};

bitflags::bitflags! {
    /// MCL_* of mlockall.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct Mcl: u32 {
        /// MCL_CURRENT
        const CURRENT = 1;
        /// MCL_FUTURE
        const FUTURE = 2;
        /// MCL_ONFAULT
        const ONFAULT = 4;
    }
}

/// Whether pages are brought in at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lock {
    /// All of them now.
    Now,
    /// Each when it is touched (MLOCK_ONFAULT).
    OnFault,
}

/// VM_LOCKED_MASK.
const LOCKED_MASK: VmFlags = VmFlags::LOCKED.union(VmFlags::LOCKONFAULT);

impl Lock {
    fn flags(self) -> VmFlags {
        match self {
            Lock::Now => VmFlags::LOCKED,
            Lock::OnFault => LOCKED_MASK,
        }
    }
}

impl<P: Platform> Mm<P> {
    /// How many bytes the address space may lock: RLIMIT_MEMLOCK, or `u64::MAX` for who has
    /// CAP_IPC_LOCK.
    pub fn set_memlock_limit(&mut self, mm: MmId, bytes: u64) {
        self.mm_mut(mm).memlock_limit = bytes;
    }

    /// `can_do_mlock()`.
    pub fn may_lock(&self, mm: MmId) -> bool {
        self.mm_struct(mm).memlock_limit > 0
    }

    /// `mm->locked_vm`: pages that are locked.
    pub fn locked_vm(&self, mm: MmId) -> u64 {
        let locked = self.vmas(mm).filter(|vma| vma.flags.contains(VmFlags::LOCKED));
        locked.map(|vma| vma.pages().get()).sum()
    }

    /// Whether `bytes` more may be locked, if such a mapping is locked. Source: Linux mm/mmap.c
    /// `mlock_future_ok()`.
    pub(crate) fn mlock_future_ok(&self, mm: MmId, flags: VmFlags, bytes: u64) -> bool {
        let limit = self.mm_struct(mm).memlock_limit;
        if limit == u64::MAX || !flags.contains(VmFlags::LOCKED) {
            return true;
        }
        let locked = self.locked_vm(mm).saturating_add(bytes / PAGE_SIZE);
        locked <= limit / PAGE_SIZE
    }

    /// `mlock2()`.
    ///
    /// # Errors
    /// EPERM for who may lock nothing, ENOMEM beyond the limit, over a hole, or where memory
    /// cannot be accessed, EAGAIN when memory has run out.
    pub fn mlock(&mut self, mm: MmId, start: VirtAddr, len: u64, lock: Lock) -> Result<(), Errno> {
        let limit = self.mm_struct(mm).memlock_limit;
        if limit == 0 {
            return Err(Errno::EPERM);
        }
        let (start, end) = whole_pages(start, len)?;
        let len = end.bytes_since(start);
        let wanted = self.locked_vm(mm).saturating_add(len / PAGE_SIZE);
        let limit = limit / PAGE_SIZE;
        // What is locked already is not counted twice.
        if wanted > limit && wanted - self.count_mlocked(mm, start, end) > limit {
            return Err(Errno::ENOMEM);
        }
        self.apply_vma_lock_flags(mm, start, end, lock.flags())?;
        self.mm_populate(mm, start, end).map_err(|error| match error {
            Errno::EFAULT => Errno::ENOMEM,
            Errno::ENOMEM => Errno::EAGAIN,
            other => other,
        })
    }

    /// `munlock()`.
    ///
    /// # Errors
    /// ENOMEM over a hole, EINVAL for a range that wraps.
    pub fn munlock(&mut self, mm: MmId, start: VirtAddr, len: u64) -> Result<(), Errno> {
        let (start, end) = whole_pages(start, len)?;
        self.apply_vma_lock_flags(mm, start, end, VmFlags::empty())
    }

    /// `mlockall()`.
    ///
    /// # Errors
    /// EINVAL for flags that say nothing, EPERM for who may lock nothing, ENOMEM beyond the limit.
    pub fn mlockall(&mut self, mm: MmId, flags: Mcl) -> Result<(), Errno> {
        if !flags.intersects(Mcl::CURRENT | Mcl::FUTURE) {
            return Err(Errno::EINVAL);
        }
        let ms = self.mm_struct(mm);
        if ms.memlock_limit == 0 {
            return Err(Errno::EPERM);
        }
        let limit = ms.memlock_limit;
        if flags.contains(Mcl::CURRENT) && limit != u64::MAX && ms.total_vm > limit / PAGE_SIZE {
            return Err(Errno::ENOMEM);
        }
        self.apply_mlockall_flags(mm, flags);
        if flags.contains(Mcl::CURRENT) {
            // mm_populate() ignores failure.
            let _ = self.mm_populate(mm, VirtAddr::ZERO, P::Arch::TASK_SIZE);
        }
        Ok(())
    }

    /// `munlockall()`.
    pub fn munlockall(&mut self, mm: MmId) {
        self.apply_mlockall_flags(mm, Mcl::empty());
    }

    /// Source: Linux mm/mlock.c `apply_mlockall_flags()`.
    fn apply_mlockall_flags(&mut self, mm: MmId, flags: Mcl) {
        let lock = if flags.contains(Mcl::ONFAULT) { Lock::OnFault } else { Lock::Now };
        let future = flags.contains(Mcl::FUTURE);
        self.mm_mut(mm).def_flags = if future { lock.flags() } else { VmFlags::empty() };
        if future && !flags.contains(Mcl::CURRENT) {
            return;
        }
        let current = flags.contains(Mcl::CURRENT);
        let flags = if current { lock.flags() } else { VmFlags::empty() };
        for id in self.vmas_in(mm, VirtAddr::ZERO, P::Arch::TASK_SIZE) {
            let Vma { start, end, .. } = *self.vma(id);
            self.mlock_fixup(id, start, end, flags);
        }
    }

    /// Source: Linux mm/mlock.c `apply_vma_lock_flags()`.
    fn apply_vma_lock_flags(
        &mut self,
        mm: MmId,
        start: VirtAddr,
        end: VirtAddr,
        flags: VmFlags,
    ) -> Result<(), Errno> {
        let mut at = start;
        while at < end {
            let id = self.vma_lookup(mm, at).ok_or(Errno::ENOMEM)?;
            let to = self.vma(id).end.min(end);
            self.mlock_fixup(id, at, to, flags);
            at = to;
        }
        Ok(())
    }

    /// Source: Linux mm/mlock.c `mlock_fixup()`.
    fn mlock_fixup(&mut self, id: VmaId, start: VirtAddr, end: VirtAddr, flags: VmFlags) {
        let vma = *self.vma(id);
        let new = (vma.flags - LOCKED_MASK) | flags;
        if new == vma.flags || vma.flags.contains(VmFlags::HUGETLB) {
            return;
        }
        let changes_pages = new.contains(VmFlags::LOCKED) != vma.flags.contains(VmFlags::LOCKED);
        for part in self.isolate_range(vma.mm, start, end) {
            self.vmas[part.index()].flags = new;
            if changes_pages {
                self.mlock_vma_pages_range(part);
            }
            self.merge_vma(part);
        }
    }

    /// Visits what is mapped already. Source: Linux mm/mlock.c `mlock_vma_pages_range()`.
    fn mlock_vma_pages_range(&mut self, id: VmaId) {
        let vma = *self.vma(id);
        let span = Span { start: vma.start, end: vma.end };
        let ControlFlow::Continue(()) = walk_page_range(self, vma.mm, span, &mut MlockWalk);
    }

    /// Pages of the range that are locked already. Source: Linux mm/mlock.c
    /// `count_mm_mlocked_page_nr()`.
    fn count_mlocked(&self, mm: MmId, start: VirtAddr, end: VirtAddr) -> u64 {
        let locked = self.vmas(mm).filter(|vma| vma.flags.contains(VmFlags::LOCKED));
        let bytes =
            locked.map(|vma| vma.end.min(end).get().saturating_sub(vma.start.max(start).get()));
        bytes.sum::<u64>() / PAGE_SIZE
    }

    /// Brings in what mappings of the range want to have at hand. Source: Linux mm/gup.c
    /// `__mm_populate()`, `populate_vma_page_range()`.
    pub(crate) fn mm_populate(
        &mut self,
        mm: MmId,
        start: VirtAddr,
        end: VirtAddr,
    ) -> Result<(), Errno> {
        for id in self.vmas_in(mm, start, end) {
            let vma = *self.vma(id);
            if vma.flags.contains(VmFlags::LOCKONFAULT) {
                continue;
            }
            let both = VmFlags::WRITE | VmFlags::SHARED;
            let write = vma.flags & both == VmFlags::WRITE;
            let (from, to) = (vma.start.max(start), vma.end.min(end));
            memory::populate_range(self, mm, from, to, write)?;
        }
        Ok(())
    }
}

/// `[start, start + len)` widened to whole pages.
fn whole_pages(start: VirtAddr, len: u64) -> Result<(VirtAddr, VirtAddr), Errno> {
    let len = len.checked_add(start.page_offset()).and_then(page_align).ok_or(Errno::EINVAL)?;
    let start = start.align_down(PAGE_SIZE);
    Ok((start, start.checked_add(len).ok_or(Errno::EINVAL)?))
}

/// `mlock_walk_ops`.
struct MlockWalk;

impl<P: Platform> MmWalkOps<P> for MlockWalk {
    type Stop = Infallible;
    const CALLBACKS: Callbacks = Callbacks::PMD_ENTRY;

    fn pmd_entry(
        &mut self,
        mm: &mut Mm<P>,
        _: &MmWalk,
        pmdp: Pmdp,
        span: Span,
    ) -> Step<Infallible> {
        mlock_pte_range(mm, pmdp, span);
        Step::Continue(Action::Subtree)
    }
}

/// Source: Linux mm/mlock.c `mlock_pte_range()`.
fn mlock_pte_range<P: Platform>(mm: &mut Mm<P>, pmdp: Pmdp, span: Span) {
    mm.lock_ptl();
    if mm.pt.pmdp_get(pmdp).is_leaf() {
        return;
    }
    let Some(first) = mm.pt.pte_offset(pmdp, span.start) else { return };
    let pages = span.pages().get();
    let mut i = 0;
    while i < pages {
        let at = first.add(i);
        let pte = mm.pt.ptep_get(at);
        i += match mm.vm_normal_folio(pte) {
            Some(folio) if pte.is_present() && folio.is_large() => {
                let left = folio.nr_pages().get() - folio.index_of(pte.pfn());
                left.min(pages - i)
            }
            _ => 1,
        };
    }
}
