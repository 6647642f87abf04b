//! Memory that stays, that cannot change, and that is written back: mlock, mseal, msync.
//!
//! Source: Linux mm/mlock.c, mm/mseal.c, mm/msync.c.

#![deny(clippy::unwrap_used, clippy::indexing_slicing, clippy::arithmetic_side_effects)]

use super::memory::is_mapped;
use super::{Call, SysResult};
use crate::counts::CountsByScope;
use crate::creds::Cap;
use crate::errno::{EBUSY, EINVAL, ENOMEM};
use crate::kernel::Kernel;
use crate::task::{Rlimits, TaskId};
use arch::{MmId, Platform};
use mm::{Errno, Lock, Mcl, VmFlags};
use units::{PAGE_SIZE, VirtAddr};

/// The caller's address space, told what the caller may do with it now.
pub(super) fn limited_mm<P: Platform>(k: &mut Kernel<P>, task: TaskId) -> Result<MmId, Errno>
where
    P::Sink: CountsByScope,
{
    let mm = k.mm_of(task)?;
    let process = k.process_of(task);
    let limit = match process.creds.capable(Cap::IpcLock) {
        true => u64::MAX,
        false => process.rlimits.0.get(Rlimits::MEMLOCK).map_or(0, |limit| limit.0),
    };
    let low = process.creds.capable(Cap::SysRawio);
    k.mm.set_memlock_limit(mm, limit);
    k.mm.allow_low_mappings(mm, low);
    Ok(mm)
}

pub(super) fn mlock<P: Platform>(k: &mut Kernel<P>, c: &mut Call<'_, P::Sink>) -> SysResult
where
    P::Sink: CountsByScope,
{
    let mm = limited_mm(k, c.task)?;
    k.mm.mlock(mm, c.addr::<0>(), c.long::<1>(), Lock::Now)?;
    Ok(0)
}

pub(super) fn mlock2<P: Platform>(k: &mut Kernel<P>, c: &mut Call<'_, P::Sink>) -> SysResult
where
    P::Sink: CountsByScope,
{
    const MLOCK_ONFAULT: u32 = 1;
    let lock = match c.uint::<2>() {
        0 => Lock::Now,
        MLOCK_ONFAULT => Lock::OnFault,
        _ => return Err(EINVAL.into()),
    };
    let mm = limited_mm(k, c.task)?;
    k.mm.mlock(mm, c.addr::<0>(), c.long::<1>(), lock)?;
    Ok(0)
}

pub(super) fn munlock<P: Platform>(k: &mut Kernel<P>, c: &mut Call<'_, P::Sink>) -> SysResult
where
    P::Sink: CountsByScope,
{
    let mm = k.mm_of(c.task)?;
    k.mm.munlock(mm, c.addr::<0>(), c.long::<1>())?;
    Ok(0)
}

pub(super) fn mlockall<P: Platform>(k: &mut Kernel<P>, c: &mut Call<'_, P::Sink>) -> SysResult
where
    P::Sink: CountsByScope,
{
    let flags = Mcl::from_bits(c.uint::<0>()).ok_or(EINVAL)?;
    let mm = limited_mm(k, c.task)?;
    k.mm.mlockall(mm, flags)?;
    Ok(0)
}

pub(super) fn munlockall<P: Platform>(k: &mut Kernel<P>, c: &mut Call<'_, P::Sink>) -> SysResult
where
    P::Sink: CountsByScope,
{
    let mm = k.mm_of(c.task)?;
    k.mm.munlockall(mm);
    Ok(0)
}

pub(super) fn mseal<P: Platform>(k: &mut Kernel<P>, c: &mut Call<'_, P::Sink>) -> SysResult
where
    P::Sink: CountsByScope,
{
    let mm = k.mm_of(c.task)?;
    k.mm.mseal(mm, c.addr::<0>(), c.long::<1>(), c.long::<2>())?;
    Ok(0)
}

pub(super) fn msync<P: Platform>(k: &mut Kernel<P>, c: &mut Call<'_, P::Sink>) -> SysResult
where
    P::Sink: CountsByScope,
{
    const ASYNC: u32 = 1;
    const INVALIDATE: u32 = 2;
    const SYNC: u32 = 4;
    let (start, flags) = (c.addr::<0>(), c.uint::<2>());
    let both = ASYNC | SYNC;
    if flags & !(both | INVALIDATE) != 0 || flags & both == both || !start.is_aligned(PAGE_SIZE) {
        return Err(EINVAL.into());
    }
    let len = c.long::<1>().checked_next_multiple_of(PAGE_SIZE).ok_or(ENOMEM)?;
    let end: VirtAddr = start.checked_add(len).ok_or(ENOMEM)?;
    let mm = k.mm_of(c.task)?;
    let mut inside = k.mm.vmas(mm).filter(|vma| vma.start < end && vma.end > start);
    if flags & INVALIDATE != 0 && inside.any(|vma| vma.flags.contains(VmFlags::LOCKED)) {
        return Err(EBUSY.into());
    }
    if is_mapped(k, mm, start, end) { Ok(0) } else { Err(ENOMEM.into()) }
}
