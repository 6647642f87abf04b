//! Clocks and sleeping. All time is virtual.

#![deny(clippy::unwrap_used, clippy::indexing_slicing, clippy::arithmetic_side_effects)]

use super::{Call, Stop, SysResult};
use crate::abi::{BOOT_TIME_S, USER_HZ};
use crate::counts::CountsByScope;
use crate::errno::EINVAL;
use crate::kernel::Kernel;
use crate::task::{TaskId, Wait};
use arch::Platform;
use mm::Errno;
use units::VirtAddr;

const NS: u64 = 1_000_000_000;
const BOOT_NS: u64 = match BOOT_TIME_S.checked_mul(NS) {
    Some(ns) => ns,
    None => panic!("boot is in this era"),
};

/// What a timeout counts from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Base {
    /// The call.
    Now,
    /// Boot: CLOCK_MONOTONIC.
    Boot,
    /// 1970: CLOCK_REALTIME.
    Realtime,
}

fn now<P: Platform>(k: &Kernel<P>, c: &mut Call<'_, P::Sink>) -> u64 {
    c.host.now_ns(&k.mm.pt.sink)
}

/// A `struct timespec` in nanoseconds.
pub(super) fn timespec<P: Platform>(
    k: &mut Kernel<P>,
    task: TaskId,
    at: VirtAddr,
) -> Result<u64, Errno>
where
    P::Sink: CountsByScope,
{
    let (s, ns) = k.read_pair(task, at)?;
    let (Ok(s), Ok(ns)) = (u64::try_from(s), u64::try_from(ns)) else { return Err(EINVAL) };
    if ns >= NS {
        return Err(EINVAL);
    }
    Ok(s.saturating_mul(NS).saturating_add(ns))
}

/// The point in virtual time that the timespec at `at` stands for.
pub(super) fn deadline<P: Platform>(
    k: &mut Kernel<P>,
    c: &mut Call<'_, P::Sink>,
    at: VirtAddr,
    base: Base,
) -> Result<u64, Errno>
where
    P::Sink: CountsByScope,
{
    let time = timespec(k, c.task, at)?;
    Ok(match base {
        Base::Now => now(k, c).saturating_add(time),
        Base::Boot => time,
        Base::Realtime => time.saturating_sub(BOOT_NS),
    })
}

fn write_time<P: Platform>(
    k: &mut Kernel<P>,
    task: TaskId,
    at: VirtAddr,
    first: u64,
    second: u64,
) -> Result<(), Errno>
where
    P::Sink: CountsByScope,
{
    let mut bytes = [0; 16];
    for (to, from) in
        bytes.iter_mut().zip(first.to_le_bytes().into_iter().chain(second.to_le_bytes()))
    {
        *to = from;
    }
    k.write_user(task, at, &bytes)
}

/// Whole seconds and the rest.
fn split(ns: u64) -> (u64, u64) {
    (ns / NS, ns % NS)
}

fn base_of(clock: i32) -> Result<Base, Errno> {
    match clock {
        // REALTIME, REALTIME_COARSE, TAI
        0 | 5 | 11 => Ok(Base::Realtime),
        // MONOTONIC, PROCESS_CPUTIME, THREAD_CPUTIME, MONOTONIC_RAW, MONOTONIC_COARSE, BOOTTIME
        1..=4 | 6 | 7 => Ok(Base::Boot),
        _ => Err(EINVAL),
    }
}

// FIDELITY: cpu-clocks — CLOCK_PROCESS_CPUTIME_ID and CLOCK_THREAD_CPUTIME_ID show the time since
// boot, as CLOCK_MONOTONIC does.
pub(super) fn clock_gettime<P: Platform>(k: &mut Kernel<P>, c: &mut Call<'_, P::Sink>) -> SysResult
where
    P::Sink: CountsByScope,
{
    let since = match base_of(c.int::<0>())? {
        Base::Realtime => BOOT_NS,
        Base::Boot | Base::Now => 0,
    };
    let (s, ns) = split(now(k, c).saturating_add(since));
    write_time(k, c.task, c.addr::<1>(), s, ns)?;
    Ok(0)
}

pub(super) fn clock_getres<P: Platform>(k: &mut Kernel<P>, c: &mut Call<'_, P::Sink>) -> SysResult
where
    P::Sink: CountsByScope,
{
    base_of(c.int::<0>())?;
    if c.addr::<1>() != VirtAddr::ZERO {
        write_time(k, c.task, c.addr::<1>(), 0, 1)?;
    }
    Ok(0)
}

pub(super) fn gettimeofday<P: Platform>(k: &mut Kernel<P>, c: &mut Call<'_, P::Sink>) -> SysResult
where
    P::Sink: CountsByScope,
{
    let (s, ns) = split(now(k, c).saturating_add(BOOT_NS));
    if c.addr::<0>() != VirtAddr::ZERO {
        write_time(k, c.task, c.addr::<0>(), s, ns / 1000)?;
    }
    if c.addr::<1>() != VirtAddr::ZERO {
        k.write_u64(c.task, c.addr::<1>(), 0)?;
    }
    Ok(0)
}

pub(super) fn time<P: Platform>(k: &mut Kernel<P>, c: &mut Call<'_, P::Sink>) -> SysResult
where
    P::Sink: CountsByScope,
{
    let (s, _) = split(now(k, c).saturating_add(BOOT_NS));
    if c.addr::<0>() != VirtAddr::ZERO {
        k.write_u64(c.task, c.addr::<0>(), s)?;
    }
    Ok(s)
}

pub(super) fn nanosleep<P: Platform>(k: &mut Kernel<P>, c: &mut Call<'_, P::Sink>) -> SysResult
where
    P::Sink: CountsByScope,
{
    sleep(k, c, c.addr::<0>(), Base::Now)
}

pub(super) fn clock_nanosleep<P: Platform>(
    k: &mut Kernel<P>,
    c: &mut Call<'_, P::Sink>,
) -> SysResult
where
    P::Sink: CountsByScope,
{
    const TIMER_ABSTIME: u32 = 1;
    let base = base_of(c.int::<0>())?;
    let base = if c.uint::<1>() & TIMER_ABSTIME != 0 { base } else { Base::Now };
    sleep(k, c, c.addr::<2>(), base)
}

fn sleep<P: Platform>(
    k: &mut Kernel<P>,
    c: &mut Call<'_, P::Sink>,
    at: VirtAddr,
    base: Base,
) -> SysResult
where
    P::Sink: CountsByScope,
{
    let until = deadline(k, c, at, base)?;
    if until <= now(k, c) {
        return Ok(0);
    }
    k.task_mut(c.task).deadline = Some(until);
    Err(Stop::Block(Wait::Sleep))
}

pub(super) fn getrusage<P: Platform>(k: &mut Kernel<P>, c: &mut Call<'_, P::Sink>) -> SysResult
where
    P::Sink: CountsByScope,
{
    if !(-1..=1).contains(&c.int::<0>()) {
        return Err(EINVAL.into());
    }
    let (s, ns) = split(now(k, c));
    k.write_user(c.task, c.addr::<1>(), &[0; 144])?;
    write_time(k, c.task, c.addr::<1>(), s, ns / 1000)?;
    Ok(0)
}

pub(super) fn times<P: Platform>(k: &mut Kernel<P>, c: &mut Call<'_, P::Sink>) -> SysResult
where
    P::Sink: CountsByScope,
{
    let ticks = now(k, c) / (NS / USER_HZ);
    if c.addr::<0>() != VirtAddr::ZERO {
        k.write_user(c.task, c.addr::<0>(), &[0; 32])?;
        k.write_u64(c.task, c.addr::<0>(), ticks)?;
    }
    Ok(ticks)
}
