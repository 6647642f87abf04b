//! User and group ids, and capabilities.
//!
//! Source: Linux kernel/sys.c, kernel/capability.c, include/uapi/linux/capability.h.

#![deny(clippy::unwrap_used, clippy::indexing_slicing, clippy::arithmetic_side_effects)]

use super::{Call, SysResult};
use crate::counts::CountsByScope;
use crate::creds::{Cap, Caps, Creds};
use crate::errno::{EFAULT, EINVAL, EPERM, ESRCH};
use crate::kernel::Kernel;
use crate::task::TaskId;
use arch::Platform;
use mm::Errno;
use units::VirtAddr;

/// An id that is left as it is.
const KEEP: u32 = u32::MAX;
const VERSION_1: u32 = 0x1998_0330;
const VERSION_2: u32 = 0x2007_1026;
const VERSION_3: u32 = 0x2008_0522;

fn creds<P: Platform>(k: &Kernel<P>, task: TaskId) -> Creds
where
    P::Sink: CountsByScope,
{
    k.process_of(task).creds
}

pub(super) fn getuid<P: Platform>(k: &mut Kernel<P>, c: &mut Call<'_, P::Sink>) -> SysResult
where
    P::Sink: CountsByScope,
{
    Ok(u64::from(creds(k, c.task).uid[0]))
}

pub(super) fn geteuid<P: Platform>(k: &mut Kernel<P>, c: &mut Call<'_, P::Sink>) -> SysResult
where
    P::Sink: CountsByScope,
{
    Ok(u64::from(creds(k, c.task).uid[1]))
}

pub(super) fn getgid<P: Platform>(k: &mut Kernel<P>, c: &mut Call<'_, P::Sink>) -> SysResult
where
    P::Sink: CountsByScope,
{
    Ok(u64::from(creds(k, c.task).gid[0]))
}

pub(super) fn getegid<P: Platform>(k: &mut Kernel<P>, c: &mut Call<'_, P::Sink>) -> SysResult
where
    P::Sink: CountsByScope,
{
    Ok(u64::from(creds(k, c.task).gid[1]))
}

/// Writes three ids to where three arguments point.
fn put_ids<P: Platform>(k: &mut Kernel<P>, c: &Call<'_, P::Sink>, ids: [u32; 3]) -> SysResult
where
    P::Sink: CountsByScope,
{
    for (at, id) in [c.addr::<0>(), c.addr::<1>(), c.addr::<2>()].into_iter().zip(ids) {
        k.write_u32(c.task, at, id)?;
    }
    Ok(0)
}

pub(super) fn getresuid<P: Platform>(k: &mut Kernel<P>, c: &mut Call<'_, P::Sink>) -> SysResult
where
    P::Sink: CountsByScope,
{
    put_ids(k, c, creds(k, c.task).uid)
}

pub(super) fn getresgid<P: Platform>(k: &mut Kernel<P>, c: &mut Call<'_, P::Sink>) -> SysResult
where
    P::Sink: CountsByScope,
{
    put_ids(k, c, creds(k, c.task).gid)
}

/// The ids after `setres[ug]id()`: without the capability, each must be one of those there are.
fn changed(old: [u32; 3], wanted: [u32; 3], free: bool) -> Result<[u32; 3], Errno> {
    let mut new = old;
    for (id, wanted) in new.iter_mut().zip(wanted).filter(|(_, wanted)| *wanted != KEEP) {
        if !free && !old.contains(&wanted) {
            return Err(EPERM);
        }
        *id = wanted;
    }
    Ok(new)
}

/// What `setuid(id)` asks for: with the capability all three ids, without it the effective one.
fn all_or_effective(id: u32, free: bool) -> [u32; 3] {
    if free { [id; 3] } else { [KEEP, id, KEEP] }
}

fn set_uids<P: Platform>(k: &mut Kernel<P>, task: TaskId, wanted: [u32; 3]) -> SysResult
where
    P::Sink: CountsByScope,
{
    let now = creds(k, task);
    let new = changed(now.uid, wanted, now.capable(Cap::SetUid))?;
    k.process_of_mut(task).creds.set_uid(new);
    Ok(0)
}

fn set_gids<P: Platform>(k: &mut Kernel<P>, task: TaskId, wanted: [u32; 3]) -> SysResult
where
    P::Sink: CountsByScope,
{
    let now = creds(k, task);
    k.process_of_mut(task).creds.gid = changed(now.gid, wanted, now.capable(Cap::SetGid))?;
    Ok(0)
}

pub(super) fn setuid<P: Platform>(k: &mut Kernel<P>, c: &mut Call<'_, P::Sink>) -> SysResult
where
    P::Sink: CountsByScope,
{
    let free = creds(k, c.task).capable(Cap::SetUid);
    set_uids(k, c.task, all_or_effective(c.uint::<0>(), free))
}

pub(super) fn setgid<P: Platform>(k: &mut Kernel<P>, c: &mut Call<'_, P::Sink>) -> SysResult
where
    P::Sink: CountsByScope,
{
    let free = creds(k, c.task).capable(Cap::SetGid);
    set_gids(k, c.task, all_or_effective(c.uint::<0>(), free))
}

pub(super) fn setresuid<P: Platform>(k: &mut Kernel<P>, c: &mut Call<'_, P::Sink>) -> SysResult
where
    P::Sink: CountsByScope,
{
    set_uids(k, c.task, [c.uint::<0>(), c.uint::<1>(), c.uint::<2>()])
}

pub(super) fn setresgid<P: Platform>(k: &mut Kernel<P>, c: &mut Call<'_, P::Sink>) -> SysResult
where
    P::Sink: CountsByScope,
{
    set_gids(k, c.task, [c.uint::<0>(), c.uint::<1>(), c.uint::<2>()])
}

/// How many 32-bit words a set has in this version of the structure; for another version, the
/// kernel's own is written back.
fn words<P: Platform>(k: &mut Kernel<P>, c: &Call<'_, P::Sink>) -> Result<u32, Errno>
where
    P::Sink: CountsByScope,
{
    match k.read_u32(c.task, c.addr::<0>())? {
        VERSION_1 => Ok(1),
        VERSION_2 | VERSION_3 => Ok(2),
        _ => {
            k.write_u32(c.task, c.addr::<0>(), VERSION_3)?;
            Err(EINVAL)
        }
    }
}

/// The process that the header names: `capget()` reads any, `capset()` changes the caller.
fn subject<P: Platform>(k: &mut Kernel<P>, c: &Call<'_, P::Sink>) -> Result<TaskId, Errno>
where
    P::Sink: CountsByScope,
{
    match k.read_u32(c.task, c.addr::<0>().wrapping_add(4))? {
        0 => Ok(c.task),
        tid if k.tasks.contains_key(&TaskId(tid)) => Ok(TaskId(tid)),
        _ => Err(ESRCH),
    }
}

pub(super) fn capget<P: Platform>(k: &mut Kernel<P>, c: &mut Call<'_, P::Sink>) -> SysResult
where
    P::Sink: CountsByScope,
{
    let data = c.addr::<1>();
    let words = match words(k, c) {
        // A program asks for the version by a wrong one.
        Err(EINVAL) if data == VirtAddr::ZERO => return Ok(0),
        words => words?,
    };
    let task = subject(k, c)?;
    if data == VirtAddr::ZERO {
        return Err(EFAULT.into());
    }
    let caps = creds(k, task).caps;
    let mut at = data;
    for word in 0..words {
        for set in [caps.effective, caps.permitted, caps.inheritable] {
            let [a, b, c2, d, e, f, g, h] = set.to_le_bytes();
            let part = if word == 0 { [a, b, c2, d] } else { [e, f, g, h] };
            k.write_user(c.task, at, &part)?;
            at = at.wrapping_add(4);
        }
    }
    Ok(0)
}

pub(super) fn capset<P: Platform>(k: &mut Kernel<P>, c: &mut Call<'_, P::Sink>) -> SysResult
where
    P::Sink: CountsByScope,
{
    let words = words(k, c)?;
    if subject(k, c)? != c.task {
        return Err(EPERM.into());
    }
    let mut sets = [0u64; 3];
    let mut at = c.addr::<1>();
    for word in 0..words {
        for set in &mut sets {
            let part = u64::from(k.read_u32(c.task, at)?);
            *set |= if word == 0 { part } else { part << 32 };
            at = at.wrapping_add(4);
        }
    }
    let [effective, permitted, inheritable] = sets;
    let new = Caps { effective, permitted, inheritable };
    if k.process_of_mut(c.task).creds.set_caps(new) { Ok(0) } else { Err(EPERM.into()) }
}
