//! Limits, identity, random numbers: what fits nowhere else.

#![deny(clippy::unwrap_used, clippy::indexing_slicing, clippy::arithmetic_side_effects)]

use super::{Call, SysResult};
use crate::counts::CountsByScope;
use crate::creds::{Cap, Creds};
use crate::errno::{EINVAL, EPERM, ESRCH};
use crate::kernel::Kernel;
use crate::task::TaskId;
use crate::user::CHUNK;
use crate::vfs;
use arch::{Arch, Platform};
use mm::Mdwe;
use units::{PAGE_SIZE, VirtAddr};

pub(super) fn zero<P: Platform>(_: &mut Kernel<P>, _: &mut Call<'_, P::Sink>) -> SysResult {
    Ok(0)
}

pub(super) fn umask<P: Platform>(k: &mut Kernel<P>, c: &mut Call<'_, P::Sink>) -> SysResult
where
    P::Sink: CountsByScope,
{
    let new = c.uint::<0>() & 0o777;
    Ok(u64::from(std::mem::replace(&mut k.process_of_mut(c.task).umask, new)))
}

pub(super) fn membarrier<P: Platform>(_: &mut Kernel<P>, c: &mut Call<'_, P::Sink>) -> SysResult {
    // GLOBAL, PRIVATE_EXPEDITED and its registration, PRIVATE_EXPEDITED_SYNC_CORE and its own.
    const SUPPORTED: u32 = 1 | 8 | 16 | 32 | 64;
    match c.uint::<0>() {
        0 => Ok(u64::from(SUPPORTED)),
        command if command.is_power_of_two() && command & SUPPORTED != 0 => Ok(0),
        _ => Err(EINVAL.into()),
    }
}

pub(super) fn getrandom<P: Platform>(k: &mut Kernel<P>, c: &mut Call<'_, P::Sink>) -> SysResult
where
    P::Sink: CountsByScope,
{
    const NONBLOCK_RANDOM_INSECURE: u32 = 7;
    const MAX: u64 = 32 << 20;
    if c.uint::<2>() & !NONBLOCK_RANDOM_INSECURE != 0 {
        return Err(EINVAL.into());
    }
    let len = c.long::<1>().min(MAX);
    let mut done = 0u64;
    while done < len {
        let part = len.saturating_sub(done).min(CHUNK);
        let mut bytes = vec![0; usize::try_from(part).map_err(|_| EINVAL)?];
        k.rng.fill(&mut bytes);
        k.write_user(c.task, c.addr::<0>().wrapping_add(done), &bytes)?;
        done = done.saturating_add(part);
    }
    Ok(len)
}

pub(super) fn uname<P: Platform>(k: &mut Kernel<P>, c: &mut Call<'_, P::Sink>) -> SysResult
where
    P::Sink: CountsByScope,
{
    const FIELD: usize = 65;
    let mut bytes = Vec::new();
    for field in vfs::uname(k) {
        let mut field = field.into_bytes();
        field.resize(FIELD, 0);
        bytes.extend(field);
    }
    k.write_user(c.task, c.addr::<0>(), &bytes)?;
    Ok(0)
}

pub(super) fn sysinfo<P: Platform>(k: &mut Kernel<P>, c: &mut Call<'_, P::Sink>) -> SysResult
where
    P::Sink: CountsByScope,
{
    let info = k.mm.meminfo();
    let uptime = c.host.now_ns(&k.mm.pt.sink) / 1_000_000_000;
    let bytes_of = |pages: u64| pages.saturating_mul(PAGE_SIZE);
    let words = [
        uptime,
        0,
        0,
        0,
        bytes_of(info.total),
        bytes_of(info.free),
        0,
        0,
        bytes_of(info.swap_total),
        bytes_of(info.swap_free),
        k.tasks.len() as u64,
        0,
        0,
        1,
    ];
    let bytes: Vec<u8> = words.iter().flat_map(|w| w.to_le_bytes()).collect();
    k.write_user(c.task, c.addr::<0>(), &bytes)?;
    Ok(0)
}

/// Reads, and then sets, one limit.
fn limit<P: Platform>(
    k: &mut Kernel<P>,
    task: TaskId,
    resource: u32,
    new: VirtAddr,
    old: VirtAddr,
) -> SysResult
where
    P::Sink: CountsByScope,
{
    let index = usize::try_from(resource).map_err(|_| EINVAL)?;
    let now = *k.process_of(task).rlimits.0.get(index).ok_or(EINVAL)?;
    if new != VirtAddr::ZERO {
        let soft = k.read_u64(task, new)?;
        let hard = k.read_u64(task, new.wrapping_add(8))?;
        if soft > hard {
            return Err(EINVAL.into());
        }
        if hard > now.1 && !k.process_of(task).creds.capable(Cap::SysResource) {
            return Err(EPERM.into());
        }
        if let Some(limit) = k.process_of_mut(task).rlimits.0.get_mut(index) {
            *limit = (soft, hard);
        }
    }
    if old != VirtAddr::ZERO {
        k.write_u64(task, old, now.0)?;
        k.write_u64(task, old.wrapping_add(8), now.1)?;
    }
    Ok(0)
}

pub(super) fn prlimit64<P: Platform>(k: &mut Kernel<P>, c: &mut Call<'_, P::Sink>) -> SysResult
where
    P::Sink: CountsByScope,
{
    let own = k.task(c.task).process.get();
    match c.uint::<0>() {
        0 => {}
        pid if pid == own => {}
        pid if k.tasks.contains_key(&TaskId(pid)) => return Err(EPERM.into()),
        _ => return Err(ESRCH.into()),
    }
    limit(k, c.task, c.uint::<1>(), c.addr::<2>(), c.addr::<3>())
}

pub(super) fn getrlimit<P: Platform>(k: &mut Kernel<P>, c: &mut Call<'_, P::Sink>) -> SysResult
where
    P::Sink: CountsByScope,
{
    limit(k, c.task, c.uint::<0>(), VirtAddr::ZERO, c.addr::<1>())
}

pub(super) fn setrlimit<P: Platform>(k: &mut Kernel<P>, c: &mut Call<'_, P::Sink>) -> SysResult
where
    P::Sink: CountsByScope,
{
    limit(k, c.task, c.uint::<0>(), c.addr::<1>(), VirtAddr::ZERO)
}

pub(super) fn arch_prctl<P: Platform>(k: &mut Kernel<P>, c: &mut Call<'_, P::Sink>) -> SysResult
where
    P::Sink: CountsByScope,
{
    const SET_GS: u32 = 0x1001;
    const SET_FS: u32 = 0x1002;
    const GET_FS: u32 = 0x1003;
    const GET_GS: u32 = 0x1004;
    let value = c.long::<1>();
    match c.uint::<0>() {
        SET_FS | SET_GS if value >= P::Arch::TASK_SIZE.get() => return Err(EPERM.into()),
        SET_FS => c.regs.set_tls(value),
        SET_GS => c.regs.set_gs_base(value),
        GET_FS => k.write_u64(c.task, c.addr::<1>(), c.regs.tls())?,
        GET_GS => k.write_u64(c.task, c.addr::<1>(), c.regs.gs_base())?,
        _ => return Err(EINVAL.into()),
    }
    Ok(0)
}

/// Source: Linux kernel/sys.c `prctl_set_mdwe()`.
fn set_mdwe<P: Platform>(k: &mut Kernel<P>, c: &mut Call<'_, P::Sink>) -> SysResult
where
    P::Sink: CountsByScope,
{
    if [c.long::<2>(), c.long::<3>(), c.long::<4>()] != [0; 3] {
        return Err(EINVAL.into());
    }
    let bits = u32::try_from(c.long::<1>()).ok().and_then(Mdwe::from_bits).ok_or(EINVAL)?;
    if bits.contains(Mdwe::NO_INHERIT) && !bits.contains(Mdwe::REFUSE_EXEC_GAIN) {
        return Err(EINVAL.into());
    }
    let mm = k.mm_of(c.task)?;
    let now = k.mm.mm_struct(mm).mdwe;
    if !now.is_empty() && now != bits {
        return Err(EPERM.into());
    }
    k.mm.set_mdwe(mm, bits);
    Ok(0)
}

pub(super) fn prctl<P: Platform>(k: &mut Kernel<P>, c: &mut Call<'_, P::Sink>) -> SysResult
where
    P::Sink: CountsByScope,
{
    const GET_DUMPABLE: u32 = 3;
    const SET_DUMPABLE: u32 = 4;
    const SET_NAME: u32 = 15;
    const CAPBSET_READ: u32 = 23;
    const GET_NAME: u32 = 16;
    const SET_MDWE: u32 = 65;
    const GET_MDWE: u32 = 66;
    const SET_PDEATHSIG: u32 = 1;
    const SET_THP_DISABLE: u32 = 41;
    const GET_THP_DISABLE: u32 = 42;
    const SET_MEMORY_MERGE: u32 = 67;
    const GET_MEMORY_MERGE: u32 = 68;
    match c.uint::<0>() {
        // FIDELITY: pdeathsig — a parent's death sends no signal.
        SET_PDEATHSIG if c.long::<1>() <= 64 => Ok(0),
        SET_MDWE => set_mdwe(k, c),
        GET_MDWE if [c.long::<1>(), c.long::<2>(), c.long::<3>(), c.long::<4>()] == [0; 4] => {
            let mm = k.mm_of(c.task)?;
            Ok(u64::from(k.mm.mm_struct(mm).mdwe.bits()))
        }
        GET_DUMPABLE => Ok(1),
        SET_DUMPABLE if c.long::<1>() <= 1 => Ok(0),
        SET_NAME => {
            let mut comm = [0; 16];
            let name = k.read_string(c.task, c.addr::<1>())?;
            for (to, from) in comm.iter_mut().take(15).zip(name) {
                *to = from;
            }
            k.task_mut(c.task).comm = comm;
            Ok(0)
        }
        GET_NAME => {
            let comm = k.task(c.task).comm;
            k.write_user(c.task, c.addr::<1>(), &comm)?;
            Ok(0)
        }
        CAPBSET_READ => Ok(u64::from(Creds::bounds(c.long::<1>()).ok_or(EINVAL)?)),
        // FIDELITY: prctl-thp-disable — large folios cannot be disabled for one process.
        SET_THP_DISABLE if c.long::<1>() == 0 => Ok(0),
        GET_THP_DISABLE => Ok(0),
        SET_MEMORY_MERGE => set_memory_merge(k, c),
        GET_MEMORY_MERGE => {
            if (c.long::<1>(), c.long::<2>(), c.long::<3>(), c.long::<4>()) != (0, 0, 0, 0) {
                return Err(EINVAL.into());
            }
            let mm = k.mm_of(c.task)?;
            Ok(u64::from(k.mm.mm_struct(mm).ksm.merge_any))
        }
        _ => Err(EINVAL.into()),
    }
}

fn set_memory_merge<P: Platform>(k: &mut Kernel<P>, c: &mut Call<'_, P::Sink>) -> SysResult
where
    P::Sink: CountsByScope,
{
    if (c.long::<2>(), c.long::<3>(), c.long::<4>()) != (0, 0, 0) {
        return Err(EINVAL.into());
    }
    let mm = k.mm_of(c.task)?;
    match c.long::<1>() {
        0 => k.mm.ksm_disable_merge_any(mm)?,
        _ => k.mm.ksm_enable_merge_any(mm),
    }
    Ok(0)
}
