//! Kernel access to user memory. Source: Linux lib/usercopy.c, arch/*/lib.

use crate::Mm;
use crate::errno::Errno;
use crate::memory::{self, Access};
use crate::vma::VmFlags;
use arch::{FaultAccess, MmId, Platform, Pmd, Pte, TableLevel};
use events::Sink;
use units::{PAGE_SIZE, PhysAddr, VirtAddr};

impl<P: Platform> Mm<P> {
    /// Where `va` is in RAM, if the page tables allow `access` by user code right now.
    fn user_translate(&self, mm: MmId, va: VirtAddr, access: Access) -> Option<PhysAddr> {
        let (slot, level) = self.pt.leaf_slot(mm, va)?;
        let raw = self.pt.ram.load_u64(slot);
        let (present, protnone, write, pfn) = match level {
            TableLevel::Pte => {
                let pte = Pte::<P::Arch>::from_raw(raw);
                (pte.is_present(), pte.is_protnone(), pte.is_write(), pte.pfn())
            }
            _ => {
                let leaf = Pmd::<P::Arch>::from_raw(raw);
                (leaf.is_present(), leaf.is_protnone(), leaf.is_write(), leaf.pfn())
            }
        };
        let ok = present && !protnone && (access != Access::Write || write);
        let offset = va.get() & ((1 << level.shift()) - 1);
        ok.then(|| pfn.addr().wrapping_add(offset))
    }

    /// Whether user code could make `access` at `va` without a fault that the kernel serves.
    pub(crate) fn user_page_is_mapped(&self, mm: MmId, va: VirtAddr, access: Access) -> bool {
        self.user_translate(mm, va, access).is_some()
    }

    /// Where `va` is in RAM, faulting it in as an access by the kernel on the task's behalf.
    fn user_page(&mut self, mm: MmId, va: VirtAddr, access: Access) -> Result<PhysAddr, Errno> {
        if let Some(at) = self.user_translate(mm, va, access) {
            if access == Access::Write {
                self.mark_user_page_dirty(mm, va);
            }
            return Ok(at);
        }
        self.pt.count_lines();
        self.pt.sink.begin("fault");
        let served = self.fault_for_kernel(mm, va, access);
        self.pt.count_lines();
        self.pt.sink.end();
        served?;
        self.user_translate(mm, va, access).ok_or(Errno::EFAULT)
    }

    fn fault_for_kernel(&mut self, mm: MmId, va: VirtAddr, access: Access) -> Result<(), Errno> {
        let id = match self.vma_lookup(mm, va) {
            Some(id) => id,
            None => self.expand_stack(mm, va).ok_or(Errno::EFAULT)?,
        };
        let (needed, kind) = match access {
            Access::Write => (VmFlags::WRITE, FaultAccess::Write),
            Access::Read | Access::Exec => (VmFlags::READ, FaultAccess::Read),
        };
        if !self.vma(id).flags.intersects(needed) {
            return Err(Errno::EFAULT);
        }
        self.vmstat.pgfault += 1;
        memory::handle_mm_fault(self, id, va, kind).map_err(|_| Errno::EFAULT)
    }

    /// The CPU's store would set the dirty state; the kernel's copy goes through the same PTE.
    fn mark_user_page_dirty(&mut self, mm: MmId, va: VirtAddr) {
        let Some((slot, level)) = self.pt.leaf_slot(mm, va) else { return };
        let raw = self.pt.ram.load_u64(slot);
        let dirty = match level {
            TableLevel::Pte => Pte::<P::Arch>::from_raw(raw).mkyoung().mkdirty().raw(),
            _ => Pmd::<P::Arch>::from_raw(raw).mkyoung().mkdirty().raw(),
        };
        self.pt.hardware_set_dirty(slot, dirty);
    }

    /// Splits a user range at page boundaries.
    fn for_user_pages(
        &mut self,
        mm: MmId,
        va: VirtAddr,
        len: usize,
        access: Access,
        mut each: impl FnMut(&mut Mm<P>, PhysAddr, std::ops::Range<usize>),
    ) -> Result<(), Errno> {
        let end = va.checked_add(len as u64).ok_or(Errno::EFAULT)?;
        if end > <P::Arch as arch::Arch>::TASK_SIZE {
            return Err(Errno::EFAULT);
        }
        let mut done = 0;
        while done < len {
            let at = va.wrapping_add(done as u64);
            let room = (PAGE_SIZE - at.page_offset()) as usize;
            let n = room.min(len - done);
            let pa = self.user_page(mm, at, access)?;
            each(self, pa, done..done + n);
            done += n;
        }
        Ok(())
    }

    /// `copy_from_user()`.
    ///
    /// # Errors
    /// EFAULT; how much was copied is not said.
    pub fn copy_from_user(&mut self, mm: MmId, va: VirtAddr, buf: &mut [u8]) -> Result<(), Errno> {
        self.for_user_pages(mm, va, buf.len(), Access::Read, |mm, pa, part| {
            let n = part.len();
            buf[part].copy_from_slice(mm.pt.ram.slice(pa, n));
        })
    }

    /// `copy_to_user()`.
    ///
    /// # Errors
    /// EFAULT; how much was copied is not said.
    pub fn copy_to_user(&mut self, mm: MmId, va: VirtAddr, buf: &[u8]) -> Result<(), Errno> {
        self.for_user_pages(mm, va, buf.len(), Access::Write, |mm, pa, part| {
            let n = part.len();
            mm.pt.ram.slice_mut(pa, n).copy_from_slice(&buf[part]);
        })
    }
}
