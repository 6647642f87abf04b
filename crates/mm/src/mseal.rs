//! Mappings that cannot change any more: mseal(2). Source: Linux mm/mseal.c.

use crate::Mm;
use crate::errno::Errno;
use crate::madvise::advice;
use crate::mmap::page_align;
use crate::vma::{VmFlags, Vma};
use arch::{MmId, Platform};
use units::{PAGE_SIZE, VirtAddr};

impl<P: Platform> Mm<P> {
    /// `mseal()`.
    ///
    /// # Errors
    /// EINVAL for an unaligned start, a range that wraps or any flag, ENOMEM over a hole: then nothing is
    /// sealed.
    pub fn mseal(&mut self, mm: MmId, start: VirtAddr, len: u64, flags: u64) -> Result<(), Errno> {
        if flags != 0 || !start.is_aligned(PAGE_SIZE) {
            return Err(Errno::EINVAL);
        }
        let len = page_align(len).ok_or(Errno::EINVAL)?;
        let end = start.checked_add(len).ok_or(Errno::EINVAL)?;
        if len == 0 {
            return Ok(());
        }
        self.check_mm_seal(mm, start, end)?;
        for id in self.vmas_in(mm, start, end) {
            let vma = *self.vma(id);
            if vma.flags.contains(VmFlags::SEALED) {
                continue;
            }
            let (from, to) = (vma.start.max(start), vma.end.min(end));
            self.set_vma_flags(id, from, to, VmFlags::SEALED, VmFlags::empty());
        }
        Ok(())
    }

    /// Whether VMAs cover all of a range.
    fn check_mm_seal(&self, mm: MmId, start: VirtAddr, end: VirtAddr) -> Result<(), Errno> {
        let mut at = start;
        while at < end {
            let id = self.vma_lookup(mm, at).ok_or(Errno::ENOMEM)?;
            at = self.vma(id).end;
        }
        Ok(())
    }

    /// `can_modify_vma()` of all VMAs in a range.
    pub(crate) fn can_modify(&self, mm: MmId, start: VirtAddr, end: VirtAddr) -> Result<(), Errno> {
        self.vmas_in(mm, start, end).into_iter().try_for_each(|id| can_modify_vma(self.vma(id)))
    }
}

/// A sealed VMA may not be changed: EPERM.
pub(crate) fn can_modify_vma(vma: &Vma) -> Result<(), Errno> {
    if vma.flags.contains(VmFlags::SEALED) { Err(Errno::EPERM) } else { Ok(()) }
}

/// What throws contents away is refused where sealed memory cannot be written either.
/// Source: Linux mm/mseal.c `can_modify_vma_madv()`.
pub(crate) fn can_modify_vma_madv(vma: &Vma, behavior: i32) -> Result<(), Errno> {
    let discards = matches!(
        behavior,
        advice::FREE
            | advice::DONTNEED
            | advice::DONTNEED_LOCKED
            | advice::REMOVE
            | advice::DONTFORK
            | advice::WIPEONFORK
    );
    let is_ro_anon = vma.file.is_none()
        && !vma.flags.contains(VmFlags::SHARED)
        && !vma.flags.contains(VmFlags::WRITE);
    if discards && is_ro_anon { can_modify_vma(vma) } else { Ok(()) }
}
