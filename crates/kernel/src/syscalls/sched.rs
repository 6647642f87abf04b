//! Scheduling as programs see it.

#![deny(clippy::unwrap_used, clippy::indexing_slicing, clippy::arithmetic_side_effects)]

use super::{Call, Stop, SysResult};
use crate::counts::CountsByScope;
use crate::errno::{EINVAL, ESRCH};
use crate::kernel::Kernel;
use crate::sched::CpuMask;
use crate::task::TaskId;
use arch::Platform;
use mm::Errno;
use units::VirtAddr;

/// The task that a pid argument means.
fn target<P: Platform>(k: &Kernel<P>, c: &Call<'_, P::Sink>) -> Result<TaskId, Errno> {
    let task = match c.uint::<0>() {
        0 => c.task,
        tid => TaskId(tid),
    };
    if k.tasks.contains_key(&task) { Ok(task) } else { Err(ESRCH) }
}

pub(super) fn sched_yield<P: Platform>(_: &mut Kernel<P>, _: &mut Call<'_, P::Sink>) -> SysResult {
    Err(Stop::Yield)
}

pub(super) fn sched_setaffinity<P: Platform>(
    k: &mut Kernel<P>,
    c: &mut Call<'_, P::Sink>,
) -> SysResult
where
    P::Sink: CountsByScope,
{
    let task = target(k, c)?;
    let len = usize::try_from(c.uint::<1>()).map_err(|_| EINVAL)?.min(CpuMask::BYTES);
    let mut bytes = vec![0; len];
    k.read_user(c.task, c.addr::<2>(), &mut bytes)?;
    let online = CpuMask::first(k.mm.pt.hw.cpus.max(1));
    let mask = CpuMask::from_bytes(&bytes).and(&online);
    if mask.is_empty() {
        return Err(EINVAL.into());
    }
    k.task_mut(task).affinity = mask;
    let it = k.task(task);
    if !mask.contains(it.cpu) && it.wait.is_none() {
        k.sched.remove(task);
        let cpu = k.sched.place(&mask, k.task(task).cpu);
        k.sched.enqueue(cpu, task);
        k.need_resched |= task == c.task;
    }
    Ok(0)
}

pub(super) fn sched_getaffinity<P: Platform>(
    k: &mut Kernel<P>,
    c: &mut Call<'_, P::Sink>,
) -> SysResult
where
    P::Sink: CountsByScope,
{
    let task = target(k, c)?;
    let len = usize::try_from(c.uint::<1>()).map_err(|_| EINVAL)?;
    let cpus = usize::from(k.mm.pt.hw.cpus.max(1));
    let needed = cpus.div_ceil(64).saturating_mul(8);
    if len < needed || !len.is_multiple_of(8) {
        return Err(EINVAL.into());
    }
    let bytes = k.task(task).affinity.to_bytes();
    k.write_user(c.task, c.addr::<2>(), bytes.get(..needed).unwrap_or(&bytes))?;
    Ok(needed as u64)
}

pub(super) fn sched_getparam<P: Platform>(k: &mut Kernel<P>, c: &mut Call<'_, P::Sink>) -> SysResult
where
    P::Sink: CountsByScope,
{
    target(k, c)?;
    k.write_u32(c.task, c.addr::<1>(), 0)?;
    Ok(0)
}

pub(super) fn sched_setscheduler<P: Platform>(
    k: &mut Kernel<P>,
    c: &mut Call<'_, P::Sink>,
) -> SysResult
where
    P::Sink: CountsByScope,
{
    target(k, c)?;
    if c.uint::<1>() == 0 { Ok(0) } else { Err(EINVAL.into()) }
}

pub(super) fn priority_max<P: Platform>(_: &mut Kernel<P>, c: &mut Call<'_, P::Sink>) -> SysResult {
    priority(c, 99)
}

pub(super) fn priority_min<P: Platform>(_: &mut Kernel<P>, c: &mut Call<'_, P::Sink>) -> SysResult {
    priority(c, 1)
}

/// SCHED_FIFO and SCHED_RR have priorities 1–99, the others only 0.
fn priority<S>(c: &Call<'_, S>, real_time: u64) -> SysResult {
    match c.uint::<0>() {
        1 | 2 => Ok(real_time),
        0 | 3 | 5 | 6 => Ok(0),
        _ => Err(EINVAL.into()),
    }
}

pub(super) fn getcpu<P: Platform>(k: &mut Kernel<P>, c: &mut Call<'_, P::Sink>) -> SysResult
where
    P::Sink: CountsByScope,
{
    let cpu = k.cpu_nr(c.task);
    for (at, value) in [(c.addr::<0>(), cpu), (c.addr::<1>(), 0)] {
        if at != VirtAddr::ZERO {
            k.write_u32(c.task, at, value)?;
        }
    }
    Ok(0)
}
