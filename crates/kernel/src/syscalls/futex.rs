//! futex.
//!
//! Source: futex(2), Linux kernel/futex/syscalls.c, waitwake.c, requeue.c.

#![deny(clippy::unwrap_used, clippy::indexing_slicing, clippy::arithmetic_side_effects)]

use super::time::{Base, deadline};
use super::{Call, Stop, SysResult};
use crate::counts::CountsByScope;
use crate::errno::{EAGAIN, EINVAL, ENOSYS};
use crate::futex::FutexKey;
use crate::kernel::Kernel;
use crate::task::{TaskId, Wait};
use arch::Platform;
use mm::Errno;
use units::VirtAddr;

const PRIVATE: u32 = 128;
const CLOCK_REALTIME: u32 = 256;
const ANY: u32 = u32::MAX;

pub(super) fn futex<P: Platform>(k: &mut Kernel<P>, c: &mut Call<'_, P::Sink>) -> SysResult
where
    P::Sink: CountsByScope,
{
    let op = c.uint::<1>() & !PRIVATE;
    let key = key(k, c.task, c.addr::<0>())?;
    match op & !CLOCK_REALTIME {
        0 => wait(k, c, key, ANY, Base::Now),
        1 => Ok(wake(k, key, c.uint::<2>(), ANY)),
        3 => requeue(k, c, key, None),
        4 => requeue(k, c, key, Some(c.uint::<5>())),
        5 => wake_op(k, c, key),
        9 => {
            let base = if op & CLOCK_REALTIME != 0 { Base::Realtime } else { Base::Boot };
            wait(k, c, key, c.uint::<5>(), base)
        }
        10 => {
            let bits = c.uint::<5>();
            if bits == 0 { Err(EINVAL.into()) } else { Ok(wake(k, key, c.uint::<2>(), bits)) }
        }
        _ => Err(ENOSYS.into()),
    }
}

fn key<P: Platform>(k: &Kernel<P>, task: TaskId, at: VirtAddr) -> Result<FutexKey, Errno>
where
    P::Sink: CountsByScope,
{
    if !at.is_aligned(4) {
        return Err(EINVAL);
    }
    Ok(FutexKey { mm: k.mm_of(task)?, at })
}

fn wait<P: Platform>(
    k: &mut Kernel<P>,
    c: &mut Call<'_, P::Sink>,
    key: FutexKey,
    bits: u32,
    base: Base,
) -> SysResult
where
    P::Sink: CountsByScope,
{
    if bits == 0 {
        return Err(EINVAL.into());
    }
    let deadline = match c.addr::<3>() {
        VirtAddr::ZERO => None,
        at => Some(deadline(k, c, at, base)?),
    };
    if k.read_u32(c.task, key.at)? != c.uint::<2>() {
        return Err(EAGAIN.into());
    }
    k.futexes.wait(key, c.task);
    let it = k.task_mut(c.task);
    it.futex_bits = bits;
    it.deadline = deadline;
    Err(Stop::Block(Wait::Futex(key)))
}

fn wake<P: Platform>(k: &mut Kernel<P>, key: FutexKey, nr: u32, bits: u32) -> u64
where
    P::Sink: CountsByScope,
{
    // At least one, as in Linux.
    let tasks = &k.tasks;
    let wanted = |task| tasks.get(&task).is_some_and(|t| t.futex_bits & bits != 0);
    let woken = k.futexes.take(key, nr.max(1), wanted);
    for &task in &woken {
        k.wake_with(task, 0);
    }
    woken.len() as u64
}

fn requeue<P: Platform>(
    k: &mut Kernel<P>,
    c: &Call<'_, P::Sink>,
    from: FutexKey,
    expected: Option<u32>,
) -> SysResult
where
    P::Sink: CountsByScope,
{
    let to = key(k, c.task, c.addr::<4>())?;
    let (nr_wake, nr_requeue) = (c.int::<2>(), c.int::<3>());
    let (Ok(nr_wake), Ok(nr_requeue)) = (u32::try_from(nr_wake), u32::try_from(nr_requeue)) else {
        return Err(EINVAL.into());
    };
    if let Some(expected) = expected
        && k.read_u32(c.task, from.at)? != expected
    {
        return Err(EAGAIN.into());
    }
    let woken = if nr_wake == 0 { 0 } else { wake(k, from, nr_wake, ANY) };
    let moved = k.futexes.requeue(from, to, nr_requeue);
    for &task in &moved {
        k.task_mut(task).wait = Some(Wait::Futex(to));
    }
    Ok(woken.saturating_add(moved.len() as u64))
}

/// Changes the second word, wakes at the first, and at the second if its old value compares.
fn wake_op<P: Platform>(k: &mut Kernel<P>, c: &Call<'_, P::Sink>, first: FutexKey) -> SysResult
where
    P::Sink: CountsByScope,
{
    let second = key(k, c.task, c.addr::<4>())?;
    let code = c.uint::<5>();
    let signed = |bits: u32| (bits << 20).cast_signed() >> 20;
    let (op, compare) = (code >> 28 & 7, code >> 24 & 15);
    let mut arg = signed(code >> 12).cast_unsigned();
    let compare_to = signed(code);
    if code >> 31 != 0 {
        arg = 1u32.wrapping_shl(arg);
    }
    let old = k.read_u32(c.task, second.at)?;
    let new = match op {
        0 => arg,
        1 => old.wrapping_add(arg),
        2 => old | arg,
        3 => old & !arg,
        4 => old ^ arg,
        _ => return Err(ENOSYS.into()),
    };
    k.write_u32(c.task, second.at, new)?;
    let old = old.cast_signed();
    let also = match compare {
        0 => old == compare_to,
        1 => old != compare_to,
        2 => old < compare_to,
        3 => old <= compare_to,
        4 => old > compare_to,
        5 => old >= compare_to,
        _ => return Err(ENOSYS.into()),
    };
    let mut woken = wake(k, first, c.uint::<2>(), ANY);
    if also {
        woken = woken.saturating_add(wake(k, second, c.uint::<3>(), ANY));
    }
    Ok(woken)
}
