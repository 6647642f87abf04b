//! poll and ppoll.

#![deny(clippy::unwrap_used, clippy::indexing_slicing, clippy::arithmetic_side_effects)]

use super::file::{fd_limit, file_of};
use super::time::{Base, deadline};
use super::{Call, Stop, SysResult};
use crate::counts::CountsByScope;
use crate::errno::EINVAL;
use crate::fd::Open;
use crate::kernel::Kernel;
use crate::pipe::PipeId;
use crate::signal::SigSet;
use crate::task::{TaskId, Wait};
use arch::Platform;
use units::VirtAddr;

const POLLIN: u16 = 1;
const POLLOUT: u16 = 4;
const POLLERR: u16 = 8;
const POLLHUP: u16 = 0x10;
const POLLNVAL: u16 = 0x20;
/// Always reported, asked for or not.
const ALWAYS: u16 = POLLERR | POLLHUP | POLLNVAL;
/// POLLRDNORM and POLLWRNORM go with POLLIN and POLLOUT.
const RDNORM: u16 = 0x40;
const WRNORM: u16 = 0x100;

pub(super) fn poll<P: Platform>(k: &mut Kernel<P>, c: &mut Call<'_, P::Sink>) -> SysResult
where
    P::Sink: CountsByScope,
{
    let until = match u64::try_from(c.int::<2>()) {
        Ok(ms) => {
            let now = c.host.now_ns(&k.mm.pt.sink);
            Some(now.saturating_add(ms.saturating_mul(1_000_000)))
        }
        Err(_) => None,
    };
    poll_until(k, c, until)
}

pub(super) fn ppoll<P: Platform>(k: &mut Kernel<P>, c: &mut Call<'_, P::Sink>) -> SysResult
where
    P::Sink: CountsByScope,
{
    let until = match c.addr::<2>() {
        VirtAddr::ZERO => None,
        at => Some(deadline(k, c, at, Base::Now)?),
    };
    if c.addr::<3>() != VirtAddr::ZERO {
        if c.long::<4>() != 8 {
            return Err(EINVAL.into());
        }
        let set = k.read_u64(c.task, c.addr::<3>())?;
        let it = k.task_mut(c.task);
        it.saved_mask.get_or_insert(it.blocked);
        it.blocked = SigSet::blockable(set);
    }
    poll_until(k, c, until)
}

fn poll_until<P: Platform>(
    k: &mut Kernel<P>,
    c: &mut Call<'_, P::Sink>,
    until: Option<u64>,
) -> SysResult
where
    P::Sink: CountsByScope,
{
    let nr = c.uint::<1>();
    if i32::try_from(nr).is_ok_and(|nr| nr <= fd_limit(k, c.task)) {
        let ready = scan(k, c.task, c.addr::<0>(), nr)?;
        // A retry keeps the time of the first try.
        let until = k.task(c.task).deadline.or(until);
        let expired = until.is_some_and(|at| at <= c.host.now_ns(&k.mm.pt.sink));
        if ready > 0 || expired {
            return Ok(ready);
        }
        k.task_mut(c.task).deadline = until;
        return Err(Stop::Block(Wait::Poll));
    }
    Err(EINVAL.into())
}

/// Fills in `revents`; how many files are ready.
fn scan<P: Platform>(k: &mut Kernel<P>, task: TaskId, at: VirtAddr, nr: u32) -> SysResult
where
    P::Sink: CountsByScope,
{
    const ENTRY: u64 = 8;
    let mut ready = 0u64;
    for i in 0..u64::from(nr) {
        let at = at.wrapping_add(i.saturating_mul(ENTRY));
        let [a, b, c, d, e, f, _, _] = k.read_bytes::<8>(task, at)?;
        let fd = i32::from_le_bytes([a, b, c, d]);
        let asked = u16::from_le_bytes([e, f]);
        let revents = if fd < 0 { 0 } else { state(k, task, fd) & (asked | ALWAYS) };
        k.write_user(task, at.wrapping_add(6), &revents.to_le_bytes())?;
        ready = ready.saturating_add(u64::from(revents != 0));
    }
    Ok(ready)
}

fn state<P: Platform>(k: &mut Kernel<P>, task: TaskId, fd: i32) -> u16
where
    P::Sink: CountsByScope,
{
    let open = file_of(k, task, fd).and_then(|file| k.files.get(file)).map(|file| file.open);
    let Ok(open) = open else { return POLLNVAL };
    match open {
        Open::Console(_) => POLLOUT | WRNORM,
        Open::PipeRead(pipe) => readable(k, pipe),
        Open::PipeWrite(pipe) => writable(k, pipe),
        Open::Socket(from, to) => readable(k, from) | writable(k, to),
        Open::Pidfd(process) => match k.processes.get(&process) {
            Some(process) if process.exit.is_none() => 0,
            _ => POLLIN | RDNORM,
        },
        _ => POLLIN | RDNORM | POLLOUT | WRNORM,
    }
}

fn readable<P: Platform>(k: &mut Kernel<P>, pipe: PipeId) -> u16 {
    let pipe = k.pipes.get(pipe);
    let data = if pipe.len() > 0 { POLLIN | RDNORM } else { 0 };
    data | if pipe.writers == 0 { POLLHUP } else { 0 }
}

fn writable<P: Platform>(k: &mut Kernel<P>, pipe: PipeId) -> u16 {
    let pipe = k.pipes.get(pipe);
    let room = if pipe.room() > 0 { POLLOUT | WRNORM } else { 0 };
    room | if pipe.readers == 0 { POLLERR } else { 0 }
}
