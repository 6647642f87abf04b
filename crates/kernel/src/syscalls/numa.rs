//! Memory policies, as a machine with one node answers.
//!
//! Source: Linux mm/mempolicy.c, mm/migrate.c.

#![deny(clippy::unwrap_used, clippy::indexing_slicing, clippy::arithmetic_side_effects)]

use super::{Call, SysResult};
use crate::counts::CountsByScope;
use crate::errno::{EFAULT, EINVAL, ENODEV, ENOENT, ESRCH};
use crate::kernel::Kernel;
use crate::residence::Resident;
use crate::task::{ProcessId, TaskId};
use arch::Platform;
use mm::Errno;
use units::{PAGE_SIZE, VirtAddr};

/// The only node, as a mask.
const NODES: u64 = 1;
/// MPOL_DEFAULT to MPOL_WEIGHTED_INTERLEAVE.
const MODES: u32 = 7;
const MPOL_DEFAULT: u32 = 0;
const MPOL_LOCAL: u32 = 4;
/// MPOL_F_STATIC_NODES, MPOL_F_RELATIVE_NODES, MPOL_F_NUMA_BALANCING.
const MODE_FLAGS: u32 = 7 << 13;

/// Reads a mode with its nodes, as set_mempolicy and mbind check them.
fn policy<P: Platform>(
    k: &mut Kernel<P>,
    task: TaskId,
    mode: u32,
    mask: VirtAddr,
    max: u64,
) -> Result<(), Errno>
where
    P::Sink: CountsByScope,
{
    let mode = mode & !MODE_FLAGS;
    if mode >= MODES {
        return Err(EINVAL);
    }
    let words = max.saturating_sub(1).div_ceil(64);
    if words > PAGE_SIZE {
        return Err(EINVAL);
    }
    let mut nodes = 0;
    if mask != VirtAddr::ZERO {
        for word in 0..words {
            let bits = k.read_u64(task, mask.wrapping_add(word.saturating_mul(8)))?;
            if word == 0 {
                nodes = bits
                    & !u64::MAX.unbounded_shl(u32::try_from(max.saturating_sub(1)).unwrap_or(64));
            } else if bits != 0 {
                return Err(EINVAL);
            }
        }
    }
    let takes_none = matches!(mode, MPOL_DEFAULT | MPOL_LOCAL);
    // MPOL_PREFERRED without nodes is MPOL_LOCAL.
    let fits = if takes_none { nodes == 0 } else { nodes & NODES != 0 || mode == 1 && nodes == 0 };
    if fits { Ok(()) } else { Err(EINVAL) }
}

pub(super) fn get_mempolicy<P: Platform>(k: &mut Kernel<P>, c: &mut Call<'_, P::Sink>) -> SysResult
where
    P::Sink: CountsByScope,
{
    const F_NODE: u64 = 1;
    const F_ADDR: u64 = 2;
    const F_MEMS_ALLOWED: u64 = 4;
    let (mode, mask, max) = (c.addr::<0>(), c.addr::<1>(), c.long::<2>());
    let (addr, flags) = (c.addr::<3>(), c.long::<4>());
    if flags & !(F_NODE | F_ADDR | F_MEMS_ALLOWED) != 0 || mask != VirtAddr::ZERO && max < 1 {
        return Err(EINVAL.into());
    }
    let allowed = flags & F_MEMS_ALLOWED != 0;
    if allowed && flags & (F_NODE | F_ADDR) != 0 || flags & F_ADDR == 0 && addr != VirtAddr::ZERO {
        return Err(EINVAL.into());
    }
    if flags & F_ADDR != 0 {
        let mm = k.mm_of(c.task)?;
        k.mm.vmas(mm).find(|vma| vma.contains(addr)).ok_or(EFAULT)?;
    }
    if mode != VirtAddr::ZERO {
        // MPOL_DEFAULT, or node 0.
        k.write_u32(c.task, mode, 0)?;
    }
    if mask != VirtAddr::ZERO {
        let words = max.div_ceil(64).min(PAGE_SIZE);
        for word in 0..words {
            let bits = if word == 0 && allowed { NODES } else { 0 };
            k.write_u64(c.task, mask.wrapping_add(word.saturating_mul(8)), bits)?;
        }
    }
    Ok(0)
}

pub(super) fn set_mempolicy<P: Platform>(k: &mut Kernel<P>, c: &mut Call<'_, P::Sink>) -> SysResult
where
    P::Sink: CountsByScope,
{
    policy(k, c.task, c.uint::<0>(), c.addr::<1>(), c.long::<2>())?;
    Ok(0)
}

pub(super) fn mbind<P: Platform>(k: &mut Kernel<P>, c: &mut Call<'_, P::Sink>) -> SysResult
where
    P::Sink: CountsByScope,
{
    // MPOL_MF_STRICT, MPOL_MF_MOVE, MPOL_MF_MOVE_ALL: every page is where it may be.
    const FLAGS: u32 = 7;
    if !c.addr::<0>().is_aligned(PAGE_SIZE) || c.uint::<5>() & !FLAGS != 0 {
        return Err(EINVAL.into());
    }
    policy(k, c.task, c.uint::<2>(), c.addr::<3>(), c.long::<4>())?;
    let len = c.long::<1>().checked_next_multiple_of(PAGE_SIZE).ok_or(EINVAL)?;
    let end = c.addr::<0>().checked_add(len).ok_or(EINVAL)?;
    let mm = k.mm_of(c.task)?;
    match super::memory::is_mapped(k, mm, c.addr::<0>(), end) {
        true => Ok(0),
        false => Err(EFAULT.into()),
    }
}

/// All pages are on node 0: nothing moves, and that is what each page is told.
pub(super) fn move_pages<P: Platform>(k: &mut Kernel<P>, c: &mut Call<'_, P::Sink>) -> SysResult
where
    P::Sink: CountsByScope,
{
    const MOVE_ALL: u32 = 4;
    const MOVE: u32 = 2;
    let (count, pages, nodes, status) =
        (c.long::<1>(), c.addr::<2>(), c.addr::<3>(), c.addr::<4>());
    if c.uint::<5>() & !(MOVE | MOVE_ALL) != 0 {
        return Err(EINVAL.into());
    }
    let mm = match c.uint::<0>() {
        0 => k.mm_of(c.task)?,
        pid => k.processes.get(&ProcessId(pid)).and_then(|p| p.mm).ok_or(ESRCH)?,
    };
    for i in 0..count {
        let page = k.read_u64(c.task, pages.wrapping_add(i.saturating_mul(8)))?;
        if nodes != VirtAddr::ZERO
            && k.read_u32(c.task, nodes.wrapping_add(i.saturating_mul(4)))? != 0
        {
            return Err(ENODEV.into());
        }
        let at = VirtAddr::new(page);
        let said = match k.resident(mm, at) {
            Resident::Page(_) => 0,
            _ if k.mm.vmas(mm).any(|vma| vma.contains(at)) => ENOENT.0.wrapping_neg(),
            _ => EFAULT.0.wrapping_neg(),
        };
        let to = status.wrapping_add(i.saturating_mul(4));
        k.write_user(c.task, to, &said.to_le_bytes())?;
    }
    Ok(0)
}
