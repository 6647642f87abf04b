//! The life of processes and threads.
//!
//! Source: Linux kernel/fork.c `kernel_clone()`, kernel/exit.c, include/uapi/linux/sched.h.

#![deny(clippy::unwrap_used, clippy::indexing_slicing, clippy::arithmetic_side_effects)]

use super::{Call, Stop, SysResult};
use crate::counts::CountsByScope;
use crate::errno::{E2BIG, EAGAIN, EBUSY, ECHILD, EINVAL, EPERM, ESRCH};
use crate::kernel::{Kernel, Spawn};
use crate::regs::UserRegs;
use crate::signal::{AltStack, Pending, SigInfo, Signal};
use crate::task::{ExitStatus, Process, ProcessId, Resume, Rseq, Task, TaskId, Wait};
use arch::{Arch, Platform};
use mm::Errno;
use units::{ArchId, VirtAddr};

const CLONE_VM: u64 = 0x100;
const CLONE_SIGHAND: u64 = 0x800;
const CLONE_PIDFD: u64 = 0x1000;
const CLONE_VFORK: u64 = 0x4000;
const CLONE_THREAD: u64 = 0x1_0000;
const CLONE_SETTLS: u64 = 0x8_0000;
const CLONE_PARENT_SETTID: u64 = 0x10_0000;
const CLONE_CHILD_CLEARTID: u64 = 0x20_0000;
const CLONE_CHILD_SETTID: u64 = 0x100_0000;
/// Namespaces: mount, cgroup, UTS, IPC, user, PID, network, time.
const CLONE_NEW: u64 = 0x7e02_0000 | 0x80;
/// Tasks alive at the same time, in all.
const TASKS_MAX: usize = 4096;

/// What a new task is to be.
#[derive(Clone, Copy, Debug, Default)]
struct CloneArgs {
    flags: u64,
    exit_signal: u64,
    stack: Option<VirtAddr>,
    parent_tid: VirtAddr,
    child_tid: VirtAddr,
    tls: u64,
}

pub(super) fn exit<P: Platform>(k: &mut Kernel<P>, c: &mut Call<'_, P::Sink>) -> SysResult
where
    P::Sink: CountsByScope,
{
    k.exit_thread(c.task, exited(c));
    Err(Stop::Exited)
}

pub(super) fn exit_group<P: Platform>(k: &mut Kernel<P>, c: &mut Call<'_, P::Sink>) -> SysResult
where
    P::Sink: CountsByScope,
{
    let process = k.task(c.task).process;
    k.exit_group(process, exited(c));
    Err(Stop::Exited)
}

fn exited<S>(c: &Call<'_, S>) -> ExitStatus {
    let [low, ..] = c.uint::<0>().to_le_bytes();
    ExitStatus::Exited(low)
}

pub(super) fn clone<P: Platform>(k: &mut Kernel<P>, c: &mut Call<'_, P::Sink>) -> SysResult
where
    P::Sink: CountsByScope,
{
    let (fourth, fifth) = (c.long::<3>(), c.long::<4>());
    let (child_tid, tls) = match P::Arch::ID {
        ArchId::X86_64 => (fourth, fifth),
        ArchId::Arm64 => (fifth, fourth),
    };
    let args = CloneArgs {
        flags: u64::from(c.uint::<0>()) & !0xff,
        exit_signal: c.long::<0>() & 0xff,
        stack: Some(c.addr::<1>()).filter(|&sp| sp != VirtAddr::ZERO),
        parent_tid: c.addr::<2>(),
        child_tid: VirtAddr::new(child_tid),
        tls,
    };
    spawn(k, c.task, args)
}

pub(super) fn clone3<P: Platform>(k: &mut Kernel<P>, c: &mut Call<'_, P::Sink>) -> SysResult
where
    P::Sink: CountsByScope,
{
    const VERSION_0: u64 = 64;
    const KNOWN: u64 = 88;
    let (at, size) = (c.addr::<0>(), c.long::<1>());
    if size > units::PAGE_SIZE {
        return Err(E2BIG.into());
    }
    if size < VERSION_0 {
        return Err(EINVAL.into());
    }
    let mut words = [0u64; 11];
    for (word, i) in words.iter_mut().zip(0u64..) {
        let offset = i.saturating_mul(8);
        if offset < size.min(KNOWN) {
            *word = k.read_u64(c.task, at.wrapping_add(offset))?;
        }
    }
    let [
        flags,
        _pidfd,
        child_tid,
        parent_tid,
        exit_signal,
        stack,
        stack_size,
        tls,
        set_tid,
        set_tid_size,
        _,
    ] = words;
    if set_tid != 0 || set_tid_size != 0 || exit_signal > 64 || flags & 0xff != 0 {
        return Err(EINVAL.into());
    }
    if (stack == 0) != (stack_size == 0) {
        return Err(EINVAL.into());
    }
    let stack = (stack != 0).then(|| VirtAddr::new(stack).wrapping_add(stack_size));
    let args = CloneArgs {
        flags,
        exit_signal,
        stack,
        parent_tid: VirtAddr::new(parent_tid),
        child_tid: VirtAddr::new(child_tid),
        tls,
    };
    spawn(k, c.task, args)
}

pub(super) fn fork<P: Platform>(k: &mut Kernel<P>, c: &mut Call<'_, P::Sink>) -> SysResult
where
    P::Sink: CountsByScope,
{
    let exit_signal = u64::from(Signal::SIGCHLD.get());
    spawn(k, c.task, CloneArgs { exit_signal, ..CloneArgs::default() })
}

pub(super) fn vfork<P: Platform>(k: &mut Kernel<P>, c: &mut Call<'_, P::Sink>) -> SysResult
where
    P::Sink: CountsByScope,
{
    let exit_signal = u64::from(Signal::SIGCHLD.get());
    let flags = CLONE_VFORK | CLONE_VM;
    spawn(k, c.task, CloneArgs { flags, exit_signal, ..CloneArgs::default() })
}

fn check(flags: u64) -> Result<(), Errno> {
    let has = |flag| flags & flag != 0;
    if has(CLONE_THREAD) && !has(CLONE_SIGHAND) || has(CLONE_SIGHAND) && !has(CLONE_VM) {
        return Err(EINVAL);
    }
    if has(CLONE_NEW) || has(CLONE_PIDFD) { Err(EINVAL) } else { Ok(()) }
}

fn spawn<P: Platform>(k: &mut Kernel<P>, parent: TaskId, args: CloneArgs) -> SysResult
where
    P::Sink: CountsByScope,
{
    check(args.flags)?;
    if k.tasks.len() >= TASKS_MAX {
        return Err(EAGAIN.into());
    }
    let has = |flag| args.flags & flag != 0;
    let process = match has(CLONE_THREAD) {
        true => k.task(parent).process,
        false => spawn_process(k, parent, &args)?,
    };
    let child = match has(CLONE_THREAD) {
        true => TaskId(k.new_id()),
        false => TaskId(process.get()),
    };
    let it = k.task(parent);
    let rseq = if has(CLONE_VM) { None } else { it.rseq };
    let altstack = match has(CLONE_VM) && !has(CLONE_VFORK) {
        true => AltStack::default(),
        false => it.altstack,
    };
    let optional = |flag, at| if has(flag) { at } else { VirtAddr::ZERO };
    let affinity = it.affinity;
    let cpu = k.sched.place(&affinity, it.cpu);
    let task = Task {
        id: child,
        process,
        wait: None,
        deadline: None,
        resume: None,
        cpu,
        saved_mask: None,
        pending: Pending::default(),
        altstack,
        set_child_tid: optional(CLONE_CHILD_SETTID, args.child_tid),
        clear_child_tid: optional(CLONE_CHILD_CLEARTID, args.child_tid),
        robust_list: VirtAddr::ZERO,
        rseq,
        rseq_stale: false,
        ..it.clone()
    };
    k.tasks.insert(child, task);
    if let Some(it) = k.processes.get_mut(&process) {
        it.threads.push(child);
    }
    if has(CLONE_PARENT_SETTID) {
        // As in Linux, a bad address here is not an error.
        let _ = k.write_u32(parent, args.parent_tid, child.get());
    }
    k.sched.enqueue(cpu, child);
    let parent_waits = has(CLONE_VFORK);
    if parent_waits {
        k.task_mut(parent).wait = Some(Wait::Vfork(process));
        k.sched.remove(parent);
    }
    let tls = has(CLONE_SETTLS).then_some(args.tls);
    Err(Stop::Spawned(Spawn { child, sp: args.stack, tls, parent_waits }))
}

/// A copy of the parent's process without threads.
// FIDELITY: clone-files — a new process has copies of its parent's descriptors, handlers and
// working directory also where CLONE_FILES, CLONE_SIGHAND or CLONE_FS ask to share them.
fn spawn_process<P: Platform>(
    k: &mut Kernel<P>,
    parent: TaskId,
    args: &CloneArgs,
) -> Result<ProcessId, Errno>
where
    P::Sink: CountsByScope,
{
    let parent_mm = k.mm_of(parent)?;
    let mm = match args.flags & CLONE_VM != 0 {
        true => parent_mm,
        false => k.mm.dup_mmap(parent_mm)?,
    };
    let users = k.mm_users.entry(mm).or_default();
    *users = users.saturating_add(1);
    let id = ProcessId(k.new_id());
    let it = k.process_of(parent);
    let process = Process {
        id,
        parent: it.id,
        mm: Some(mm),
        threads: Vec::new(),
        pending: Pending::default(),
        itimer: None,
        exit: None,
        exit_signal: u8::try_from(args.exit_signal).unwrap_or_default(),
        ..it.clone()
    };
    let files: Vec<_> = process.fds.iter().map(|(_, fd)| fd.file).collect();
    for file in files {
        k.files.acquire(file);
    }
    k.processes.insert(id, process);
    Ok(id)
}

/// Which children a wait is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Children {
    Any,
    /// Those of a process group.
    Group(ProcessId),
    One(ProcessId),
}

const WNOHANG: u32 = 1;
const WEXITED: u32 = 4;
const WNOWAIT: u32 = 0x0100_0000;

/// The child that has ended, or how to wait for one.
fn ended<P: Platform>(
    k: &Kernel<P>,
    task: TaskId,
    which: Children,
    options: u32,
) -> Result<Option<(ProcessId, ExitStatus)>, Stop>
where
    P::Sink: CountsByScope,
{
    let parent = k.task(task).process;
    let wanted = |p: &&Process| match which {
        Children::Any => true,
        Children::Group(group) => p.pgid == group,
        Children::One(id) => p.id == id,
    };
    let children = k.processes.values().filter(|p| p.parent == parent);
    let mut children = children.filter(wanted).peekable();
    if children.peek().is_none() {
        return Err(ECHILD.into());
    }
    let found = children.find_map(|p| Some((p.id, p.exit?)));
    if found.is_none() && options & WNOHANG == 0 {
        return Err(Stop::Block(Wait::Child));
    }
    Ok(found)
}

pub(super) fn wait4<P: Platform>(k: &mut Kernel<P>, c: &mut Call<'_, P::Sink>) -> SysResult
where
    P::Sink: CountsByScope,
{
    let which = match c.int::<0>() {
        -1 => Children::Any,
        0 => Children::Group(k.process_of(c.task).pgid),
        pid if pid > 0 => Children::One(ProcessId(pid.unsigned_abs())),
        group => Children::Group(ProcessId(group.unsigned_abs())),
    };
    let Some((child, exit)) = ended(k, c.task, which, c.uint::<2>())? else { return Ok(0) };
    k.processes.remove(&child);
    if c.addr::<1>() != VirtAddr::ZERO {
        k.write_u32(c.task, c.addr::<1>(), exit.wait_status())?;
    }
    if c.addr::<3>() != VirtAddr::ZERO {
        k.write_user(c.task, c.addr::<3>(), &[0; 144])?;
    }
    Ok(u64::from(child.get()))
}

pub(super) fn waitid<P: Platform>(k: &mut Kernel<P>, c: &mut Call<'_, P::Sink>) -> SysResult
where
    P::Sink: CountsByScope,
{
    let which = match c.uint::<0>() {
        0 => Children::Any,
        2 if c.uint::<1>() == 0 => Children::Group(k.process_of(c.task).pgid),
        2 => Children::Group(ProcessId(c.uint::<1>())),
        // P_PIDFD
        3 => Children::One(super::pidfd::process(k, c.task, c.int::<1>())?),
        1 => Children::One(ProcessId(c.uint::<1>())),
        _ => return Err(EINVAL.into()),
    };
    let options = c.uint::<3>();
    if options & WEXITED == 0 {
        return Err(EINVAL.into());
    }
    let found = ended(k, c.task, which, options)?;
    let info = found.map_or([0; 128], |(child, exit)| SigInfo::child(child, exit).to_bytes());
    if let Some((child, _)) = found
        && options & WNOWAIT == 0
    {
        k.processes.remove(&child);
    }
    if c.addr::<2>() != VirtAddr::ZERO {
        k.write_user(c.task, c.addr::<2>(), &info)?;
    }
    Ok(0)
}

pub(super) fn getpid<P: Platform>(k: &mut Kernel<P>, c: &mut Call<'_, P::Sink>) -> SysResult
where
    P::Sink: CountsByScope,
{
    Ok(u64::from(k.task(c.task).process.get()))
}

pub(super) fn gettid<P: Platform>(_: &mut Kernel<P>, c: &mut Call<'_, P::Sink>) -> SysResult {
    Ok(u64::from(c.task.get()))
}

pub(super) fn getppid<P: Platform>(k: &mut Kernel<P>, c: &mut Call<'_, P::Sink>) -> SysResult
where
    P::Sink: CountsByScope,
{
    Ok(u64::from(k.process_of(c.task).parent.get()))
}

pub(super) fn set_tid_address<P: Platform>(
    k: &mut Kernel<P>,
    c: &mut Call<'_, P::Sink>,
) -> SysResult
where
    P::Sink: CountsByScope,
{
    k.task_mut(c.task).clear_child_tid = c.addr::<0>();
    Ok(u64::from(c.task.get()))
}

/// Size of `struct robust_list_head`.
const ROBUST_HEAD: u64 = 24;

// FIDELITY: robust-futex — the list is remembered, but futexes that a thread holds when it dies
// are not marked and woken.
pub(super) fn set_robust_list<P: Platform>(
    k: &mut Kernel<P>,
    c: &mut Call<'_, P::Sink>,
) -> SysResult
where
    P::Sink: CountsByScope,
{
    if c.long::<1>() != ROBUST_HEAD {
        return Err(EINVAL.into());
    }
    k.task_mut(c.task).robust_list = c.addr::<0>();
    Ok(0)
}

pub(super) fn get_robust_list<P: Platform>(
    k: &mut Kernel<P>,
    c: &mut Call<'_, P::Sink>,
) -> SysResult
where
    P::Sink: CountsByScope,
{
    let task = match c.uint::<0>() {
        0 => c.task,
        tid => TaskId(tid),
    };
    let head = k.tasks.get(&task).ok_or(ESRCH)?.robust_list;
    k.write_u64(c.task, c.addr::<2>(), ROBUST_HEAD)?;
    k.write_u64(c.task, c.addr::<1>(), head.get())?;
    Ok(0)
}

/// Bytes of the original `struct rseq`, its alignment, and where its fields are.
const RSEQ_LEN: u32 = 32;
const RSEQ_CS: u64 = 8;

/// Registers restartable sequences. Source: Linux kernel/rseq.c.
pub(super) fn rseq<P: Platform>(k: &mut Kernel<P>, c: &mut Call<'_, P::Sink>) -> SysResult
where
    P::Sink: CountsByScope,
{
    const UNREGISTER: u32 = 1;
    let asked = Rseq { at: c.addr::<0>(), len: c.uint::<1>(), signature: c.uint::<3>() };
    let now = k.task(c.task).rseq;
    match (c.uint::<2>(), now) {
        (UNREGISTER, Some(now)) if now.at != asked.at || now.len != asked.len => Err(EINVAL.into()),
        (UNREGISTER, Some(now)) if now.signature != asked.signature => Err(EPERM.into()),
        (UNREGISTER, Some(_)) => {
            k.task_mut(c.task).rseq = None;
            Ok(0)
        }
        (0, Some(now)) if now == asked => Err(EBUSY.into()),
        (0, None) if asked.len >= RSEQ_LEN && asked.at.is_aligned(u64::from(RSEQ_LEN)) => {
            k.task_mut(c.task).rseq = Some(asked);
            let cpu = k.cpu_nr(c.task);
            k.write_u32(c.task, asked.at, cpu)?;
            k.write_u32(c.task, asked.at.wrapping_add(4), cpu)?;
            Ok(0)
        }
        _ => Err(EINVAL.into()),
    }
}

impl<P: Platform> Kernel<P>
where
    P::Sink: CountsByScope,
{
    /// The CPU that a task is on, as user space numbers it.
    pub(crate) fn cpu_nr(&self, task: TaskId) -> u32 {
        u32::try_from(self.task(task).cpu.index()).unwrap_or_default()
    }

    /// Tells a task that was off its CPU where it is now, and aborts a critical section that it was
    /// in. Whether its memory allowed that.
    pub(crate) fn update_rseq(&mut self, task: TaskId, regs: &mut dyn UserRegs) -> bool {
        self.task_mut(task).rseq_stale = false;
        let Some(rseq) = self.task(task).rseq else { return true };
        let cpu = self.cpu_nr(task);
        self.abort_rseq(task, regs)
            && self.write_u32(task, rseq.at, cpu).is_ok()
            && self.write_u32(task, rseq.at.wrapping_add(4), cpu).is_ok()
    }

    /// Source: Linux kernel/rseq.c `rseq_ip_fixup()`.
    pub(crate) fn abort_rseq(&mut self, task: TaskId, regs: &mut dyn UserRegs) -> bool {
        let Some(rseq) = self.task(task).rseq else { return true };
        let field = rseq.at.wrapping_add(RSEQ_CS);
        let section = match self.read_u64(task, field) {
            Ok(0) => return true,
            Ok(section) => VirtAddr::new(section),
            Err(_) => return false,
        };
        let mut words = [0; 3];
        for (word, i) in words.iter_mut().zip([8, 16, 24]) {
            match self.read_u64(task, section.wrapping_add(i)) {
                Ok(value) => *word = value,
                Err(_) => return false,
            }
        }
        let [start, len, abort] = words;
        if regs.pc().get().wrapping_sub(start) < len {
            regs.set_pc(VirtAddr::new(abort));
        }
        self.write_u64(task, field, 0).is_ok()
    }

    /// The first thing a new task does: it tells its own memory who it is.
    pub(crate) fn announce_child(&mut self, task: TaskId) {
        let at = std::mem::take(&mut self.task_mut(task).set_child_tid);
        if at != VirtAddr::ZERO {
            let _ = self.write_u32(task, at, task.get());
        }
    }

    /// Wakes one waiter of a futex-like wait with a value.
    pub(crate) fn wake_with(&mut self, task: TaskId, value: u64) {
        self.wake(task, Resume::Return(value));
    }
}
