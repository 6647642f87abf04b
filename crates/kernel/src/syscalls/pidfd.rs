//! Processes by descriptor.
//!
//! Source: Linux kernel/pid.c, kernel/signal.c, mm/oom_kill.c `process_mrelease()`.

#![deny(clippy::unwrap_used, clippy::indexing_slicing, clippy::arithmetic_side_effects)]

use super::file::{as_value, file_of, install};
use super::{Call, SysResult};
use crate::abi::O_NONBLOCK;
use crate::counts::CountsByScope;
use crate::errno::{EBADF, EINVAL, ESRCH};
use crate::fd::{Open, OpenFile};
use crate::kernel::Kernel;
use crate::signal::{About, SI_USER, SigInfo, Signal};
use crate::task::{ProcessId, TaskId};
use arch::Platform;
use mm::Errno;
use units::VirtAddr;

pub(super) fn pidfd_open<P: Platform>(k: &mut Kernel<P>, c: &mut Call<'_, P::Sink>) -> SysResult
where
    P::Sink: CountsByScope,
{
    if c.int::<0>() <= 0 || c.uint::<1>() & !O_NONBLOCK != 0 {
        return Err(EINVAL.into());
    }
    let process = ProcessId(c.uint::<0>());
    if !k.processes.contains_key(&process) {
        let thread = k.tasks.contains_key(&TaskId(process.get()));
        return Err(if thread { EINVAL } else { ESRCH }.into());
    }
    let file = OpenFile::new(Open::Pidfd(process), c.uint::<1>() | 2, String::new());
    Ok(as_value(install(k, c.task, file, true)?))
}

/// The process behind a descriptor.
pub(super) fn process<P: Platform>(k: &Kernel<P>, task: TaskId, fd: i32) -> Result<ProcessId, Errno>
where
    P::Sink: CountsByScope,
{
    match k.files.get(file_of(k, task, fd)?)?.open {
        Open::Pidfd(process) => Ok(process),
        _ => Err(EBADF),
    }
}

pub(super) fn pidfd_send_signal<P: Platform>(
    k: &mut Kernel<P>,
    c: &mut Call<'_, P::Sink>,
) -> SysResult
where
    P::Sink: CountsByScope,
{
    let target = process(k, c.task, c.int::<0>())?;
    if c.uint::<3>() != 0 || c.addr::<2>() != VirtAddr::ZERO {
        return Err(EINVAL.into());
    }
    if !k.processes.contains_key(&target) {
        return Err(ESRCH.into());
    }
    let number = c.uint::<1>();
    if number == 0 {
        return Ok(0);
    }
    let signal = Signal::new(u64::from(number)).ok_or(EINVAL)?;
    let about = About::Sender(k.task(c.task).process);
    k.signal_process(target, SigInfo { signal, code: SI_USER, about });
    Ok(0)
}

/// Frees the memory of a process that is about to end of SIGKILL.
pub(super) fn process_mrelease<P: Platform>(
    k: &mut Kernel<P>,
    c: &mut Call<'_, P::Sink>,
) -> SysResult
where
    P::Sink: CountsByScope,
{
    if c.uint::<1>() != 0 {
        return Err(EINVAL.into());
    }
    let target = process(k, c.task, c.int::<0>())?;
    let process = k.processes.get(&target).ok_or(ESRCH)?;
    let mm = process.mm.ok_or(ESRCH)?;
    let dies = |p: &crate::signal::Pending| p.set() & Signal::SIGKILL.bit() != 0;
    let shared = k.processes.values().any(|p| p.id != target && p.mm == Some(mm));
    if shared || !dies(&process.pending) {
        return Err(EINVAL.into());
    }
    k.mm.oom_reap_task_mm(mm);
    Ok(0)
}
