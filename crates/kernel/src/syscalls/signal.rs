//! Signals as programs ask for them.

#![deny(clippy::unwrap_used, clippy::indexing_slicing, clippy::arithmetic_side_effects)]

use super::time::{Base, deadline};
use super::{Call, Stop, SysResult};
use crate::counts::CountsByScope;
use crate::errno::{EAGAIN, EINVAL, ENOMEM, EPERM, ESRCH};
use crate::kernel::Kernel;
use crate::signal::{About, Action, AltStack, SI_TKILL, SI_USER, SigInfo, SigSet, Signal};
use crate::task::{Process, ProcessId, TaskId, Wait};
use arch::{Arch, Platform};
use units::{ArchId, VirtAddr};

const SIGSET_BYTES: u64 = 8;

pub(super) fn rt_sigaction<P: Platform>(k: &mut Kernel<P>, c: &mut Call<'_, P::Sink>) -> SysResult
where
    P::Sink: CountsByScope,
{
    if c.long::<3>() != SIGSET_BYTES {
        return Err(EINVAL.into());
    }
    let signal = Signal::new(u64::from(c.uint::<0>())).ok_or(EINVAL)?;
    let (new_at, old_at) = (c.addr::<1>(), c.addr::<2>());
    let reserved = signal == Signal::SIGKILL || signal == Signal::SIGSTOP;
    if reserved && new_at != VirtAddr::ZERO {
        return Err(EINVAL.into());
    }
    let old = k.process_of(c.task).actions.get(&signal.get()).copied().unwrap_or_default();
    if new_at != VirtAddr::ZERO {
        let mut words = [0; 4];
        for (word, i) in words.iter_mut().zip([0, 8, 16, 24]) {
            *word = k.read_u64(c.task, new_at.wrapping_add(i))?;
        }
        let [handler, flags, restorer, mask] = words;
        let action = Action { handler, flags, restorer, mask };
        k.process_of_mut(c.task).actions.insert(signal.get(), action);
        let process = k.task(c.task).process;
        k.drop_ignored(process, signal);
    }
    if old_at != VirtAddr::ZERO {
        let words = [old.handler, old.flags, old.restorer, old.mask];
        let bytes: Vec<u8> = words.iter().flat_map(|w| w.to_le_bytes()).collect();
        k.write_user(c.task, old_at, &bytes)?;
    }
    Ok(0)
}

pub(super) fn rt_sigprocmask<P: Platform>(k: &mut Kernel<P>, c: &mut Call<'_, P::Sink>) -> SysResult
where
    P::Sink: CountsByScope,
{
    if c.long::<3>() != SIGSET_BYTES {
        return Err(EINVAL.into());
    }
    let old = k.task(c.task).blocked;
    if c.addr::<1>() != VirtAddr::ZERO {
        let set = k.read_u64(c.task, c.addr::<1>())?;
        let new = match c.uint::<0>() {
            0 => old.0 | set,
            1 => old.0 & !set,
            2 => set,
            _ => return Err(EINVAL.into()),
        };
        k.task_mut(c.task).blocked = SigSet::blockable(new);
    }
    if c.addr::<2>() != VirtAddr::ZERO {
        k.write_u64(c.task, c.addr::<2>(), old.0)?;
    }
    Ok(0)
}

pub(super) fn rt_sigreturn<P: Platform>(k: &mut Kernel<P>, c: &mut Call<'_, P::Sink>) -> SysResult
where
    P::Sink: CountsByScope,
{
    if k.sigreturn(c.task, c.regs).is_err() {
        k.force_segv(c.task);
    }
    Err(Stop::Sigreturn)
}

pub(super) fn rt_sigpending<P: Platform>(k: &mut Kernel<P>, c: &mut Call<'_, P::Sink>) -> SysResult
where
    P::Sink: CountsByScope,
{
    let it = k.task(c.task);
    let pending = (it.pending.set() | k.process_of(c.task).pending.set()) & it.blocked.0;
    k.write_u64(c.task, c.addr::<0>(), pending)?;
    Ok(0)
}

pub(super) fn rt_sigsuspend<P: Platform>(k: &mut Kernel<P>, c: &mut Call<'_, P::Sink>) -> SysResult
where
    P::Sink: CountsByScope,
{
    if c.long::<1>() != SIGSET_BYTES {
        return Err(EINVAL.into());
    }
    let set = k.read_u64(c.task, c.addr::<0>())?;
    let it = k.task_mut(c.task);
    it.saved_mask.get_or_insert(it.blocked);
    it.blocked = SigSet::blockable(set);
    Err(Stop::Block(Wait::Signal))
}

pub(super) fn pause<P: Platform>(_: &mut Kernel<P>, _: &mut Call<'_, P::Sink>) -> SysResult {
    Err(Stop::Block(Wait::Signal))
}

/// Waits for one of the signals in a set, without its handler.
pub(super) fn rt_sigtimedwait<P: Platform>(
    k: &mut Kernel<P>,
    c: &mut Call<'_, P::Sink>,
) -> SysResult
where
    P::Sink: CountsByScope,
{
    if c.long::<3>() != SIGSET_BYTES {
        return Err(EINVAL.into());
    }
    let set = SigSet::blockable(k.read_u64(c.task, c.addr::<0>())?).0;
    if let Some(info) = k.take_pending(c.task, set) {
        if c.addr::<1>() != VirtAddr::ZERO {
            k.write_user(c.task, c.addr::<1>(), &info.to_bytes())?;
        }
        return Ok(u64::from(info.signal.get()));
    }
    let known = k.task(c.task).deadline;
    let until = match (known, c.addr::<2>()) {
        (Some(_), _) | (None, VirtAddr::ZERO) => known,
        (None, at) => Some(deadline(k, c, at, Base::Now)?),
    };
    if until.is_some_and(|at| at <= c.host.now_ns(&k.mm.pt.sink)) {
        return Err(EAGAIN.into());
    }
    k.task_mut(c.task).deadline = until;
    Err(Stop::Block(Wait::SignalIn(set)))
}

pub(super) fn sigaltstack<P: Platform>(k: &mut Kernel<P>, c: &mut Call<'_, P::Sink>) -> SysResult
where
    P::Sink: CountsByScope,
{
    let min_size = match P::Arch::ID {
        ArchId::X86_64 => 2048,
        ArchId::Arm64 => 5120,
    };
    let sp = c.regs.sp();
    let old = k.task(c.task).altstack;
    if c.addr::<0>() != VirtAddr::ZERO {
        let at = c.addr::<0>();
        let stack = k.read_u64(c.task, at)?;
        let flags = k.read_u32(c.task, at.wrapping_add(8))?;
        let size = k.read_u64(c.task, at.wrapping_add(16))?;
        if old.holds(sp) {
            return Err(EPERM.into());
        }
        let new = match flags {
            AltStack::DISABLE => AltStack::default(),
            0 | AltStack::ONSTACK if size < min_size => return Err(ENOMEM.into()),
            0 | AltStack::ONSTACK => AltStack { sp: stack, size },
            _ => return Err(EINVAL.into()),
        };
        k.task_mut(c.task).altstack = new;
    }
    if c.addr::<1>() != VirtAddr::ZERO {
        k.write_user(c.task, c.addr::<1>(), &old.to_bytes(sp))?;
    }
    Ok(0)
}

/// The signal argument; `None` is 0: only whether the target exists.
fn wanted(raw: u32) -> Result<Option<Signal>, Stop> {
    match raw {
        0 => Ok(None),
        nr => Ok(Some(Signal::new(u64::from(nr)).ok_or(EINVAL)?)),
    }
}

pub(super) fn kill<P: Platform>(k: &mut Kernel<P>, c: &mut Call<'_, P::Sink>) -> SysResult
where
    P::Sink: CountsByScope,
{
    let sender = k.task(c.task).process;
    let pid = c.int::<0>();
    let own_group = k.process_of(c.task).pgid;
    let wanted_process = |p: &&Process| match pid {
        0 => p.pgid == own_group,
        -1 => p.id != sender,
        pid if pid > 0 => p.id.get() == pid.unsigned_abs(),
        group => p.pgid.get() == group.unsigned_abs(),
    };
    let targets: Vec<ProcessId> =
        k.processes.values().filter(wanted_process).map(|p| p.id).collect();
    let signal = wanted(c.uint::<1>())?;
    if targets.is_empty() {
        return Err(ESRCH.into());
    }
    let Some(signal) = signal else { return Ok(0) };
    for target in targets {
        k.signal_process(target, SigInfo { signal, code: SI_USER, about: About::Sender(sender) });
    }
    Ok(0)
}

pub(super) fn tkill<P: Platform>(k: &mut Kernel<P>, c: &mut Call<'_, P::Sink>) -> SysResult
where
    P::Sink: CountsByScope,
{
    to_thread(k, c.task, None, c.uint::<0>(), c.uint::<1>())
}

pub(super) fn tgkill<P: Platform>(k: &mut Kernel<P>, c: &mut Call<'_, P::Sink>) -> SysResult
where
    P::Sink: CountsByScope,
{
    to_thread(k, c.task, Some(c.uint::<0>()), c.uint::<1>(), c.uint::<2>())
}

fn to_thread<P: Platform>(
    k: &mut Kernel<P>,
    from: TaskId,
    process: Option<u32>,
    tid: u32,
    signal: u32,
) -> SysResult
where
    P::Sink: CountsByScope,
{
    let invalid = |id: u32| id == 0 || id.cast_signed() < 0;
    if invalid(tid) || process.is_some_and(invalid) {
        return Err(EINVAL.into());
    }
    let signal = wanted(signal)?;
    let task = k.tasks.get(&TaskId(tid)).ok_or(ESRCH)?;
    if process.is_some_and(|process| task.process != ProcessId(process)) {
        return Err(ESRCH.into());
    }
    let Some(signal) = signal else { return Ok(0) };
    let about = About::Sender(k.task(from).process);
    k.signal_task(TaskId(tid), SigInfo { signal, code: SI_TKILL, about });
    Ok(0)
}
