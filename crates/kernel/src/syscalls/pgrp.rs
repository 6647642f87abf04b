//! Process groups and sessions.
//!
//! Source: Linux kernel/sys.c; credentials(7).

#![deny(clippy::unwrap_used, clippy::indexing_slicing, clippy::arithmetic_side_effects)]

use super::{Call, SysResult};
use crate::counts::CountsByScope;
use crate::errno::{EINVAL, EPERM, ESRCH};
use crate::kernel::Kernel;
use crate::task::{Process, ProcessId, TaskId};
use arch::Platform;
use mm::Errno;

/// The process of that number; 0 is the caller's.
fn named<P: Platform>(k: &Kernel<P>, task: TaskId, pid: u32) -> Result<&Process, Errno>
where
    P::Sink: CountsByScope,
{
    match pid {
        0 => Ok(k.process_of(task)),
        pid => k.processes.get(&ProcessId(pid)).ok_or(ESRCH),
    }
}

pub(super) fn getpgrp<P: Platform>(k: &mut Kernel<P>, c: &mut Call<'_, P::Sink>) -> SysResult
where
    P::Sink: CountsByScope,
{
    Ok(u64::from(k.process_of(c.task).pgid.get()))
}

pub(super) fn getpgid<P: Platform>(k: &mut Kernel<P>, c: &mut Call<'_, P::Sink>) -> SysResult
where
    P::Sink: CountsByScope,
{
    Ok(u64::from(named(k, c.task, c.uint::<0>())?.pgid.get()))
}

pub(super) fn getsid<P: Platform>(k: &mut Kernel<P>, c: &mut Call<'_, P::Sink>) -> SysResult
where
    P::Sink: CountsByScope,
{
    Ok(u64::from(named(k, c.task, c.uint::<0>())?.sid.get()))
}

pub(super) fn setpgid<P: Platform>(k: &mut Kernel<P>, c: &mut Call<'_, P::Sink>) -> SysResult
where
    P::Sink: CountsByScope,
{
    let pgid = c.int::<1>();
    let caller = k.process_of(c.task);
    let (own, sid) = (caller.id, caller.sid);
    let target = named(k, c.task, c.uint::<0>())?;
    let pid = target.id;
    let group = match pgid {
        0 => pid,
        _ => ProcessId(u32::try_from(pgid).map_err(|_| EINVAL)?),
    };
    if pid != own && target.parent != own {
        return Err(ESRCH.into());
    }
    let foreign = target.sid != sid || target.sid == pid;
    let joins = |p: &&Process| p.pgid == group && p.sid == sid;
    if foreign || group != pid && !k.processes.values().any(|p| joins(&p)) {
        return Err(EPERM.into());
    }
    k.processes.get_mut(&pid).ok_or(ESRCH)?.pgid = group;
    Ok(0)
}

pub(super) fn setsid<P: Platform>(k: &mut Kernel<P>, c: &mut Call<'_, P::Sink>) -> SysResult
where
    P::Sink: CountsByScope,
{
    let id = k.process_of(c.task).id;
    if k.processes.values().any(|p| p.pgid == id) {
        return Err(EPERM.into());
    }
    let process = k.process_of_mut(c.task);
    (process.pgid, process.sid) = (id, id);
    Ok(u64::from(id.get()))
}
