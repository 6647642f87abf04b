//! The timer of a process: alarm, setitimer, getitimer.
//!
//! Source: Linux kernel/time/itimer.c.

#![deny(clippy::unwrap_used, clippy::indexing_slicing, clippy::arithmetic_side_effects)]

use super::{Call, SysResult};
use crate::counts::CountsByScope;
use crate::errno::EINVAL;
use crate::kernel::Kernel;
use crate::task::{Itimer, TaskId};
use arch::Platform;
use mm::Errno;
use units::VirtAddr;

const NS: u64 = 1_000_000_000;
const US: u64 = 1_000;
const ITIMER_REAL: u32 = 0;

/// Sets the timer to go off in `value` ns and then every `interval`; 0 stops it. What was left of the old one.
fn set<P: Platform>(
    k: &mut Kernel<P>,
    c: &mut Call<'_, P::Sink>,
    value: u64,
    interval: u64,
) -> (u64, u64)
where
    P::Sink: CountsByScope,
{
    let now = c.host.now_ns(&k.mm.pt.sink);
    let left = remaining(k, c.task, now);
    let timer = (value > 0).then(|| Itimer { at: now.saturating_add(value), interval });
    k.process_of_mut(c.task).itimer = timer;
    left
}

fn remaining<P: Platform>(k: &Kernel<P>, task: TaskId, now: u64) -> (u64, u64)
where
    P::Sink: CountsByScope,
{
    match k.process_of(task).itimer {
        // One that is due has not gone off yet.
        Some(timer) => (timer.at.saturating_sub(now).max(US), timer.interval),
        None => (0, 0),
    }
}

pub(super) fn alarm<P: Platform>(k: &mut Kernel<P>, c: &mut Call<'_, P::Sink>) -> SysResult
where
    P::Sink: CountsByScope,
{
    let (left, _) = set(k, c, u64::from(c.uint::<0>()).saturating_mul(NS), 0);
    Ok(left.div_ceil(NS))
}

/// A `struct timeval` in nanoseconds.
fn timeval<P: Platform>(k: &mut Kernel<P>, task: TaskId, at: VirtAddr) -> Result<u64, Errno>
where
    P::Sink: CountsByScope,
{
    let (s, us) = k.read_pair(task, at)?;
    let (Ok(s), Ok(us)) = (u64::try_from(s), u64::try_from(us)) else { return Err(EINVAL) };
    if us >= 1_000_000 {
        return Err(EINVAL);
    }
    Ok(s.saturating_mul(NS).saturating_add(us.saturating_mul(US)))
}

fn put<P: Platform>(
    k: &mut Kernel<P>,
    task: TaskId,
    at: VirtAddr,
    (left, interval): (u64, u64),
) -> Result<(), Errno>
where
    P::Sink: CountsByScope,
{
    let words = [interval / NS, interval % NS / US, left / NS, left % NS / US];
    let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
    k.write_user(task, at, &bytes)
}

pub(super) fn setitimer<P: Platform>(k: &mut Kernel<P>, c: &mut Call<'_, P::Sink>) -> SysResult
where
    P::Sink: CountsByScope,
{
    if c.uint::<0>() != ITIMER_REAL {
        return Err(EINVAL.into());
    }
    let (new, old) = (c.addr::<1>(), c.addr::<2>());
    let (value, interval) = match new {
        VirtAddr::ZERO => (0, 0),
        new => (timeval(k, c.task, new.wrapping_add(16))?, timeval(k, c.task, new)?),
    };
    let left = set(k, c, value, interval);
    if old != VirtAddr::ZERO {
        put(k, c.task, old, left)?;
    }
    Ok(0)
}

pub(super) fn getitimer<P: Platform>(k: &mut Kernel<P>, c: &mut Call<'_, P::Sink>) -> SysResult
where
    P::Sink: CountsByScope,
{
    if c.uint::<0>() != ITIMER_REAL {
        return Err(EINVAL.into());
    }
    let now = c.host.now_ns(&k.mm.pt.sink);
    let left = remaining(k, c.task, now);
    put(k, c.task, c.addr::<1>(), left)?;
    Ok(0)
}
