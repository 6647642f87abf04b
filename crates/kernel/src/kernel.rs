//! [`Kernel`]: all state, the entries from user mode, and the life of tasks.

use crate::counts::CountsByScope;
use crate::creds::Creds;
use crate::errno::{self, EINTR, ENOSYS, ETIMEDOUT};
use crate::exec::{Program, STACK_LIMIT};
use crate::fd::{Fd, FdTable, FileRef, Open, OpenFile, OpenFiles};
use crate::futex::{FutexKey, Futexes};
use crate::host::{Host, Stream};
use crate::log::Log;
use crate::pipe::{PipeId, Pipes};
use crate::regs::UserRegs;
use crate::rng::Rng;
use crate::sched::{CpuMask, Sched};
use crate::signal::{self, AltStack, Exception, Pending, SigInfo, SigSet, Signal};
use crate::syscalls::{self, Call, Stop};
use crate::task::{
    ExitStatus, MmLayout, Process, ProcessId, Resume, Rlimits, Task, TaskId, TaskState, Wait,
};
use crate::uring::Urings;
use crate::vdso;
use crate::vfs::{Follow, InodeId, Kind, MmEvents, Node, PseudoFile, Vfs, absolute};
use arch::{Arch, MmId, Platform};
use events::{Event, Sink};
use mm::Mm;
use std::collections::BTreeMap;
use std::sync::Arc;
use units::{CpuId, Pfn, VirtAddr};

/// What a kernel is told at boot.
#[derive(Clone, Debug)]
pub struct KernelOptions {
    /// What every random number follows from.
    pub seed: u64,
    /// `AT_HWCAP`: what the CPU can do, as the architecture encodes it.
    pub hwcap: u64,
    /// `AT_HWCAP2`.
    pub hwcap2: u64,
    /// `AT_MINSIGSTKSZ`.
    pub min_sigstack: u64,
    /// What `/proc/cpuinfo` says of the model.
    pub cpu_model: String,
    /// The only CPU that a program may use until it asks for others, as `taskset` would have it.
    pub first_cpu: Option<CpuId>,
    /// The user and the group of the first process.
    pub uid: u32,
}

/// What the machine does after a kernel entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It continues with this task.
    Resume,
    /// It asks [`Kernel::schedule`]: the task waits, yields or has moved to another CPU.
    Reschedule,
    /// The task has ended: it drops its registers and asks [`Kernel::schedule`].
    Exited,
    /// A new task exists: it gets registers as said, and this one continues; or waits, if
    /// [`Spawn::parent_waits`].
    Spawned(Spawn),
}

/// A new task: its registers are a copy of its parent's with these changes, and return value 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Spawn {
    /// The new task.
    pub child: TaskId,
    /// Another stack.
    pub sp: Option<VirtAddr>,
    /// Another thread pointer.
    pub tls: Option<u64>,
    /// The parent waits (`vfork`): the machine asks [`Kernel::schedule`].
    pub parent_waits: bool,
}

/// A system call that does not exist here, and how often it was made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnknownSyscall {
    /// Its number.
    pub nr: u64,
    /// Its name, if Linux has one of that number.
    pub name: Option<&'static str>,
    /// How often it was made.
    pub calls: u64,
}

/// The parent of orphans, and of the first process.
pub(crate) const INIT: ProcessId = ProcessId(1);
const FIRST_ID: u32 = 100;

/// The kernel: `mm`, tasks, files.
#[derive(Debug)]
pub struct Kernel<P: Platform> {
    /// The memory manager.
    pub mm: Mm<P>,
    pub(crate) options: KernelOptions,
    pub(crate) rng: Rng,
    pub(crate) tasks: BTreeMap<TaskId, Task>,
    pub(crate) processes: BTreeMap<ProcessId, Process>,
    pub(crate) mm_users: BTreeMap<MmId, u32>,
    pub(crate) sched: Sched,
    pub(crate) futexes: Futexes,
    pub(crate) pipes: Pipes,
    pub(crate) urings: Urings,
    pub(crate) files: OpenFiles,
    pub(crate) vfs: Vfs,
    pub(crate) vdso: Option<vdso::Parts>,
    pub(crate) pseudo: Vec<Arc<dyn PseudoFile<P>>>,
    pub(crate) events: MmEvents,
    pub(crate) log: Log,
    /// What `PIN_LONGTERM_TEST_START` pinned.
    pub(crate) pin_longterm_test: Option<Vec<Pfn>>,
    /// Until when khugepaged sleeps.
    khugepaged_sleeps_until_ns: u64,
    /// Until when ksmd sleeps.
    ksmd_sleeps_until_ns: u64,
    /// Index into the table, by system call number of this architecture.
    handlers: Vec<Option<u16>>,
    unknown: BTreeMap<u64, u64>,
    next_id: u32,
    main: Option<ProcessId>,
    main_exit: Option<ExitStatus>,
    /// Which address space each CPU has loaded, and whether only lazily.
    loaded: Vec<(Option<MmId>, Lazy)>,
    /// The current task must leave its CPU.
    pub(crate) need_resched: bool,
}

/// How a system call came to be run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Entry {
    /// The task made it.
    Trap,
    /// It waited in the kernel, and tries again.
    Again,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Lazy {
    Yes,
    No,
}

impl<P: Platform> Kernel<P>
where
    P::Sink: CountsByScope,
{
    /// A kernel without tasks. The machine's CPUs are those of `mm.pt.hw`.
    pub fn new(mm: Mm<P>, options: KernelOptions) -> Kernel<P> {
        let cpus = mm.pt.hw.cpus.max(1);
        let (vfs, pseudo) = crate::vfs::build::<P>();
        Kernel {
            rng: Rng::new(options.seed),
            options,
            tasks: BTreeMap::new(),
            processes: BTreeMap::new(),
            mm_users: BTreeMap::new(),
            sched: Sched::new(cpus),
            futexes: Futexes::default(),
            pipes: Pipes::default(),
            urings: Urings::default(),
            files: OpenFiles::default(),
            vfs,
            vdso: None,
            pseudo,
            events: MmEvents::default(),
            log: Log::default(),
            pin_longterm_test: None,
            khugepaged_sleeps_until_ns: 10_000_000_000,
            ksmd_sleeps_until_ns: 0,
            handlers: syscalls::index(P::Arch::ID),
            unknown: BTreeMap::new(),
            next_id: FIRST_ID,
            main: None,
            main_exit: None,
            loaded: vec![(None, Lazy::Yes); usize::from(cpus)],
            need_resched: false,
            mm,
        }
    }

    // ---- what the machine asks

    /// Writes to a file as an init script would, before there is a program.
    ///
    /// # Errors
    /// As `open()` and `write()`; EACCES for a file that is not one of the kernel's own.
    pub fn boot_write(&mut self, path: &str, text: &[u8]) -> Result<(), mm::Errno> {
        let node = self.vfs.resolve(path, Follow::Yes, INIT, &self.processes)?;
        let Node::Inode(inode) = node else { return Err(errno::EACCES) };
        let Kind::Pseudo(id) = self.vfs.inode(inode)?.kind else { return Err(errno::EACCES) };
        let file = self.pseudo.get(id.index()).cloned().ok_or(errno::EACCES)?;
        file.write(self, INIT, text)
    }

    /// How the first program ended, once it has: the run is over.
    pub fn exit_status(&self) -> Option<ExitStatus> {
        self.main_exit
    }

    /// The kernel's log, a line for each message, as dmesg(1) shows it.
    pub fn dmesg(&self) -> Vec<String> {
        self.log.dmesg()
    }

    /// System calls that were made but do not exist here, by number.
    pub fn unknown_syscalls(&self) -> Vec<UnknownSyscall> {
        let describe =
            |(&nr, &calls)| UnknownSyscall { nr, name: syscalls::name(P::Arch::ID, nr), calls };
        self.unknown.iter().map(describe).collect()
    }

    /// What a task does; [`TaskState::Dead`] for one that does not exist any more.
    pub fn task_state(&self, task: TaskId) -> TaskState {
        match self.tasks.get(&task) {
            None => TaskState::Dead,
            Some(it) if it.wait.is_some() => TaskState::Blocked,
            Some(_) => TaskState::Runnable,
        }
    }

    /// The address space that a live task runs in.
    pub fn task_mm(&self, task: TaskId) -> Option<MmId> {
        self.processes.get(&self.tasks.get(&task)?.process)?.mm
    }

    /// The task that `cpu` runs.
    pub fn current(&self, cpu: CpuId) -> Option<TaskId> {
        self.sched.current(cpu)
    }

    /// Lets the next task have `cpu`, loads its address space, and says which it is. `None`: the
    /// CPU idles.
    pub fn schedule(&mut self, cpu: CpuId) -> Option<TaskId> {
        let previous = self.sched.current(cpu);
        let tasks = &self.tasks;
        let next =
            self.sched.next(cpu, |t| tasks.get(&t).is_some_and(|t| t.affinity.contains(cpu)));
        if previous != next
            && let Some(it) = previous.and_then(|t| self.tasks.get_mut(&t))
        {
            it.rseq_stale = true;
        }
        match next {
            Some(task) => self.switch_to(cpu, task),
            None => self.enter_lazy(cpu),
        }
        next
    }

    /// The next point in virtual time at which a wait ends by itself.
    pub fn next_deadline(&self) -> Option<u64> {
        let waits = self.tasks.values().filter(|t| t.wait.is_some()).filter_map(|t| t.deadline);
        let timers = self.processes.values().filter_map(|p| Some(p.itimer?.at));
        waits.chain(timers).min()
    }

    /// Ends the waits whose time has come and fires timers; says whether there were any.
    pub fn wake_expired(&mut self, now_ns: u64) -> bool {
        let fired = self.fire_timers(now_ns);
        self.run_khugepaged(now_ns);
        let due = |t: &&Task| t.wait.is_some() && t.deadline.is_some_and(|at| at <= now_ns);
        let expired: Vec<TaskId> = self.tasks.values().filter(due).map(|t| t.id).collect();
        let any = fired || !expired.is_empty();
        for task in expired {
            let value = match self.task(task).wait {
                Some(Wait::Futex(_)) => errno::as_return(ETIMEDOUT),
                Some(Wait::SignalIn(_)) => errno::as_return(errno::EAGAIN),
                _ => 0,
            };
            self.wake(task, Resume::Return(value));
        }
        any
    }

    /// Gives khugepaged its turn if it has slept long enough: a kernel thread of CPU 0.
    /// Source: Linux mm/khugepaged.c `khugepaged()`.
    //
    // FIDELITY: khugepaged-turn — it runs between the quanta of others, and catches up with at most
    // a few of the turns that it would have had while nobody ran.
    fn run_khugepaged(&mut self, now_ns: u64) {
        const TURNS: u64 = 8;
        if !self.mm.khugepaged_runs() {
            return;
        }
        let sleep = self.mm.khugepaged.scan_sleep_millisecs.saturating_mul(1_000_000).max(1);
        let Some(due) = now_ns.checked_sub(self.khugepaged_sleeps_until_ns) else { return };
        self.khugepaged_sleeps_until_ns = now_ns.saturating_add(sleep);
        self.mm.pt.cpu = CpuId::new(0);
        self.events.attribute_to_nobody(&self.mm.pt.sink);
        self.mm.pt.sink.begin("khugepaged");
        for _ in 0..(due / sleep).clamp(1, TURNS) {
            self.mm.khugepaged_do_scan();
        }
        self.mm.pt.sink.end();
    }

    /// Ends the sleep of khugepaged.
    pub(crate) fn wake_khugepaged(&mut self) {
        self.khugepaged_sleeps_until_ns = 0;
    }

    /// Sends SIGALRM to processes whose timer is due; says whether there were any. Source: Linux kernel/time/itimer.c
    /// `it_real_fn()`.
    fn fire_timers(&mut self, now_ns: u64) -> bool {
        let due = |p: &&Process| p.itimer.is_some_and(|timer| timer.at <= now_ns);
        let due: Vec<ProcessId> = self.processes.values().filter(due).map(|p| p.id).collect();
        let any = !due.is_empty();
        for id in due {
            let Some(process) = self.processes.get_mut(&id) else { continue };
            process.itimer = process.itimer.and_then(|timer| timer.next(now_ns));
            let about = signal::About::Sender(ProcessId(0));
            let info = SigInfo { signal: Signal::SIGALRM, code: signal::SI_KERNEL, about };
            self.signal_process(id, info);
        }
        any
    }

    /// Gives `ksmd` its turn, if it is awake: a kernel thread on the CPU with the least to do.
    /// Returns how many pages it looked at. Source: Linux mm/ksm.c `ksm_scan_thread()`.
    //
    // FIDELITY: ksmd-turn — while others run a quantum, ksmd looks at a number of pages; the time that
    // both take is added up, also where they run on CPUs of their own.
    pub fn run_ksmd(&mut self, host: &mut dyn Host<P::Sink>) -> u64 {
        /// Pages of a turn, unless it sleeps before: about what a scheduling slice is enough for.
        const TURN: u64 = 2048;
        if !self.mm.ksm.should_run() {
            return 0;
        }
        let now = host.now_ns(&self.mm.pt.sink);
        if now < self.ksmd_sleeps_until_ns {
            return 0;
        }
        let cpus = CpuMask::first(self.mm.pt.hw.cpus.max(1));
        let cpu = self.sched.place(&cpus, CpuId::new(0));
        self.enter_lazy(cpu);
        self.mm.pt.cpu = cpu;
        self.events.attribute_to_nobody(&self.mm.pt.sink);
        self.mm.pt.sink.begin("ksmd");
        let knobs = &self.mm.ksm.knobs;
        let (batch, sleep_ns) =
            (knobs.pages_to_scan, knobs.sleep_millisecs.saturating_mul(1_000_000));
        let (mut pages, mut wakes) = (0u64, 0u64);
        while pages < TURN && wakes < TURN && self.mm.ksm.should_run() {
            pages = pages.saturating_add(self.mm.ksm_do_scan(batch, now));
            wakes = wakes.saturating_add(1);
            if sleep_ns > 0 {
                break;
            }
        }
        self.mm.pt.sink.end();
        let now = host.now_ns(&self.mm.pt.sink);
        self.ksmd_sleeps_until_ns = now.saturating_add(sleep_ns);
        pages
    }

    /// When `ksmd` goes on; `None` if it has nothing to do.
    pub fn ksmd_wakes_ns(&self) -> Option<u64> {
        self.mm.ksm.should_run().then_some(self.ksmd_sleeps_until_ns)
    }

    /// Ends the sleep of `ksmd`.
    pub(crate) fn wake_ksmd(&mut self) {
        self.ksmd_sleeps_until_ns = 0;
    }

    /// Called before a task that [`Kernel::schedule`] chose runs user code: finishes the system call that
    /// it waited in, and delivers signals.
    pub fn return_to_user(
        &mut self,
        task: TaskId,
        regs: &mut dyn UserRegs,
        host: &mut dyn Host<P::Sink>,
    ) -> Outcome {
        self.enter(task);
        self.announce_child(task);
        match self.task_mut(task).resume.take() {
            Some(Resume::Return(value)) => regs.set_ret(value),
            Some(Resume::Retry) => return self.dispatch(task, Entry::Again, regs, host),
            Some(Resume::Interrupted(wait)) => {
                if self.restarts_call(task, wait) {
                    regs.rewind_syscall();
                } else {
                    regs.set_ret(errno::as_return(EINTR));
                }
            }
            None => {}
        }
        self.leave(task, regs)
    }

    /// The task made a system call.
    pub fn syscall(
        &mut self,
        task: TaskId,
        regs: &mut dyn UserRegs,
        host: &mut dyn Host<P::Sink>,
    ) -> Outcome {
        self.enter(task);
        self.task_mut(task).deadline = None;
        self.dispatch(task, Entry::Trap, regs, host)
    }

    /// The task's access to `va` faulted in the page tables.
    pub fn page_fault(
        &mut self,
        task: TaskId,
        va: VirtAddr,
        access: mm::Access,
        regs: &mut dyn UserRegs,
    ) -> Outcome {
        self.enter(task);
        let Some(mm) = self.process_of(task).mm else { return Outcome::Exited };
        self.mm.pt.count_lines();
        self.mm.pt.sink.begin("fault");
        let result = self.mm.handle_user_fault(mm, va, access);
        self.mm.pt.count_lines();
        self.mm.pt.sink.end();
        let Err(why) = result else { return Outcome::Resume };
        match signal::fault_info(why, va, access) {
            Some(info) => {
                self.force_signal(task, info);
                self.leave(task, regs)
            }
            // FIDELITY: oom-victim — out of memory kills the process that asked last, not the
            // one that a score points at.
            None => {
                let process = self.task(task).process;
                self.exit_group(process, ExitStatus::Signaled(Signal::SIGKILL.get()));
                Outcome::Exited
            }
        }
    }

    /// The task's instruction trapped otherwise.
    pub fn exception(
        &mut self,
        task: TaskId,
        exception: Exception,
        regs: &mut dyn UserRegs,
    ) -> Outcome {
        self.enter(task);
        let info = self.exception_info(exception, regs.pc());
        self.force_signal(task, info);
        self.leave(task, regs)
    }

    // ---- entries

    /// Kernel code runs for `task` from now on.
    fn enter(&mut self, task: TaskId) {
        let it = self.task(task);
        let (cpu, process) = (it.cpu, it.process);
        self.mm.pt.cpu = cpu;
        self.events.attribute(process, &self.mm.pt.sink);
    }

    fn dispatch(
        &mut self,
        task: TaskId,
        entry: Entry,
        regs: &mut dyn UserRegs,
        host: &mut dyn Host<P::Sink>,
    ) -> Outcome {
        let (nr, args) = (regs.syscall_nr(), regs.syscall_args());
        let known =
            usize::try_from(nr).ok().and_then(|nr| self.handlers.get(nr).copied().flatten());
        let Some(index) = known else {
            let calls = self.unknown.entry(nr).or_default();
            *calls = calls.saturating_add(1);
            regs.set_ret(errno::as_return(ENOSYS));
            return self.leave(task, regs);
        };
        self.mm.pt.count_lines();
        self.mm.pt.sink.begin(syscalls::context(index, &args));
        if entry == Entry::Trap {
            self.mm.pt.sink.add(Event::SyscallTrap, 1);
        }
        let mut call = Call { task, args, regs: &mut *regs, host };
        let result = syscalls::run(self, index, &mut call);
        self.mm.pt.count_lines();
        self.mm.pt.sink.end();
        self.finish(task, regs, result)
    }

    fn finish(
        &mut self,
        task: TaskId,
        regs: &mut dyn UserRegs,
        result: Result<u64, Stop>,
    ) -> Outcome {
        match result {
            Ok(value) => regs.set_ret(value),
            Err(Stop::Errno(error)) => regs.set_ret(errno::as_return(error)),
            Err(Stop::Sigreturn) => {}
            Err(Stop::Exited) => return Outcome::Exited,
            Err(Stop::Yield) => {
                regs.set_ret(0);
                let cpu = self.task(task).cpu;
                self.sched.give_up(cpu);
                self.need_resched = true;
            }
            Err(Stop::Block(wait)) => return self.block(task, regs, wait),
            Err(Stop::Spawned(spawn)) => {
                regs.set_ret(u64::from(spawn.child.get()));
                return Outcome::Spawned(spawn);
            }
        }
        self.leave(task, regs)
    }

    fn block(&mut self, task: TaskId, regs: &mut dyn UserRegs, wait: Wait) -> Outcome {
        if self.signal_pending(task) && !matches!(wait, Wait::Vfork(_)) {
            self.futexes.forget(task);
            if self.restarts_call(task, wait) {
                regs.rewind_syscall();
            } else {
                regs.set_ret(errno::as_return(EINTR));
            }
            return self.leave(task, regs);
        }
        self.task_mut(task).wait = Some(wait);
        self.sched.remove(task);
        self.task_mut(task).rseq_stale = true;
        Outcome::Reschedule
    }

    /// The last things before user code runs.
    fn leave(&mut self, task: TaskId, regs: &mut dyn UserRegs) -> Outcome {
        if self.task(task).rseq_stale && !self.update_rseq(task, regs) {
            self.force_segv(task);
        }
        if self.signal_pending(task) || self.task(task).saved_mask.is_some() {
            self.abort_rseq(task, regs);
            if !self.deliver_signals(task, regs) {
                return Outcome::Exited;
            }
        }
        if std::mem::take(&mut self.need_resched) { Outcome::Reschedule } else { Outcome::Resume }
    }

    pub(crate) fn force_segv(&mut self, task: TaskId) {
        let trap = signal::Trap { addr: VirtAddr::ZERO, vector: 13, error: 0, esr: 0 };
        let about = signal::About::Fault(trap);
        self.force_signal(task, SigInfo { signal: Signal::SIGSEGV, code: 0x80, about });
    }

    // ---- tasks

    pub(crate) fn task(&self, task: TaskId) -> &Task {
        self.tasks.get(&task).expect("the task is alive")
    }
    pub(crate) fn task_mut(&mut self, task: TaskId) -> &mut Task {
        self.tasks.get_mut(&task).expect("the task is alive")
    }
    pub(crate) fn process_of(&self, task: TaskId) -> &Process {
        self.processes.get(&self.task(task).process).expect("a task has a process")
    }
    pub(crate) fn process_of_mut(&mut self, task: TaskId) -> &mut Process {
        let process = self.task(task).process;
        self.processes.get_mut(&process).expect("a task has a process")
    }

    pub(crate) fn new_id(&mut self) -> u32 {
        let id = self.next_id;
        self.next_id = self.next_id.checked_add(1).expect("fewer than 4 billion tasks");
        id
    }

    /// The first process of a program, with one thread.
    pub(crate) fn spawn_process(
        &mut self,
        program: &Program<'_>,
        mm: MmId,
        layout: MmLayout,
    ) -> TaskId {
        let id = self.new_id();
        let (task, process) = (TaskId(id), ProcessId(id));
        let mut cmdline = program.argv.join(&0);
        cmdline.push(0);
        let exe = absolute("/", program.path);
        let fds = self.standard_files();
        self.processes.insert(
            process,
            Process {
                id: process,
                parent: INIT,
                mm: Some(mm),
                threads: vec![task],
                fds,
                cwd: "/".to_owned(),
                creds: Creds::of(self.options.uid),
                umask: 0o022,
                actions: BTreeMap::new(),
                pending: Pending::default(),
                exit: None,
                exit_signal: Signal::SIGCHLD.get(),
                pgid: process,
                sid: process,
                itimer: None,
                exe,
                cmdline,
                rlimits: Rlimits::new(STACK_LIMIT),
                layout,
            },
        );
        self.mm_users.insert(mm, 1);
        let affinity = match self.options.first_cpu {
            Some(cpu) => {
                let mut only = CpuMask::first(0);
                only.insert(cpu);
                only
            }
            None => CpuMask::first(self.mm.pt.hw.cpus.max(1)),
        };
        // CPU 0 is where Linux boots and does its housekeeping; programs start on the next one.
        let cpu = self.sched.place(&affinity, CpuId::new(1));
        self.tasks.insert(
            task,
            Task {
                id: task,
                process,
                wait: None,
                deadline: None,
                resume: None,
                cpu,
                affinity,
                blocked: SigSet::default(),
                saved_mask: None,
                pending: Pending::default(),
                altstack: AltStack::default(),
                set_child_tid: VirtAddr::ZERO,
                clear_child_tid: VirtAddr::ZERO,
                robust_list: VirtAddr::ZERO,
                rseq: None,
                rseq_stale: false,
                futex_bits: 0,
                comm: comm(program.path),
            },
        );
        self.sched.enqueue(cpu, task);
        self.main.get_or_insert(process);
        task
    }

    fn standard_files(&mut self) -> FdTable {
        let mut fds = FdTable::default();
        let console = |stream| Open::Console(stream);
        let files = [(Open::Stdin, 0), (console(Stream::Stdout), 1), (console(Stream::Stderr), 1)];
        for (fd, (open, flags)) in (0..).zip(files) {
            let file = self.files.insert(OpenFile::new(open, flags, String::new()));
            fds.replace(fd, Fd { file, cloexec: false });
        }
        fds
    }

    /// The task waits no more, and is runnable.
    pub(crate) fn wake(&mut self, task: TaskId, resume: Resume) {
        let Some(it) = self.tasks.get_mut(&task) else { return };
        let Some(wait) = it.wait.take() else { return };
        if matches!(wait, Wait::Futex(_)) {
            self.futexes.forget(task);
        }
        it.resume = Some(resume);
        let cpu = self.sched.place(&it.affinity, it.cpu);
        self.sched.enqueue(cpu, task);
    }

    /// Wakes every task whose wait `wanted` accepts, to try again.
    pub(crate) fn wake_all(&mut self, wanted: impl Fn(&Task, Wait) -> bool) {
        let waits = |t: &&Task| t.wait.is_some_and(|wait| wanted(t, wait));
        let tasks: Vec<TaskId> = self.tasks.values().filter(waits).map(|t| t.id).collect();
        for task in tasks {
            self.wake(task, Resume::Retry);
        }
    }

    fn switch_to(&mut self, cpu: CpuId, task: TaskId) {
        let it = self.task_mut(task);
        if it.cpu != cpu {
            it.cpu = cpu;
            it.rseq_stale = true;
        }
        let process = it.process;
        let Some(mm) = self.process_of(task).mm else { return };
        if self.loaded.get(cpu.index()) == Some(&(Some(mm), Lazy::No)) {
            return;
        }
        self.mm.pt.cpu = cpu;
        self.events.attribute(process, &self.mm.pt.sink);
        self.mm.pt.count_lines();
        self.mm.pt.sink.begin("switch_mm");
        self.mm.pt.switch_mm(cpu, mm);
        self.mm.pt.count_lines();
        self.mm.pt.sink.end();
        if let Some(loaded) = self.loaded.get_mut(cpu.index()) {
            *loaded = (Some(mm), Lazy::No);
        }
    }

    fn enter_lazy(&mut self, cpu: CpuId) {
        let Some((_, lazy)) = self.loaded.get_mut(cpu.index()) else { return };
        if std::mem::replace(lazy, Lazy::Yes) == Lazy::No {
            self.mm.pt.cpu = cpu;
            self.mm.pt.count_lines();
            self.mm.pt.sink.begin("enter_lazy_tlb");
            self.mm.pt.enter_lazy_tlb(cpu);
            self.mm.pt.count_lines();
            self.mm.pt.sink.end();
        }
    }

    // ---- the end of tasks

    /// Ends one thread; the process with it, if it was the last.
    pub(crate) fn exit_thread(&mut self, task: TaskId, status: ExitStatus) {
        let process = self.task(task).process;
        if self.process_of(task).threads.len() == 1 {
            return self.exit_group(process, status);
        }
        self.release_child_tid(task);
        self.remove_task(task);
        if let Some(it) = self.processes.get_mut(&process) {
            it.threads.retain(|&t| t != task);
        }
    }

    /// `mm_release()`: tells who waits for the thread's end.
    fn release_child_tid(&mut self, task: TaskId) {
        let at = self.task(task).clear_child_tid;
        if at == VirtAddr::ZERO || self.write_u32(task, at, 0).is_err() {
            return;
        }
        let Ok(mm) = self.mm_of(task) else { return };
        for waiter in self.futexes.take(FutexKey { mm, at }, 1, |_| true) {
            self.wake(waiter, Resume::Return(0));
        }
    }

    fn remove_task(&mut self, task: TaskId) {
        self.sched.remove(task);
        self.futexes.forget(task);
        self.tasks.remove(&task);
    }

    /// Ends a process with all its threads.
    /// Source: Linux kernel/exit.c `do_group_exit()`, `do_exit()`, `exit_notify()`.
    pub(crate) fn exit_group(&mut self, process: ProcessId, status: ExitStatus) {
        let Some(it) = self.processes.get_mut(&process) else { return };
        let threads = std::mem::take(&mut it.threads);
        let fds = std::mem::take(&mut it.fds);
        let mm = it.mm.take();
        it.exit = Some(status);
        for task in threads {
            self.remove_task(task);
        }
        if let Some(mm) = mm {
            self.put_mm(mm);
        }
        for (_, fd) in fds.iter() {
            self.close_file(fd.file);
        }
        if self.main == Some(process) {
            self.main_exit = Some(status);
        }
        self.adopt_children(process);
        self.notify_parent(process, status);
    }

    fn put_mm(&mut self, mm: MmId) {
        let users = self.mm_users.entry(mm).or_insert(1);
        *users = users.saturating_sub(1);
        if *users > 0 {
            return;
        }
        self.mm_users.remove(&mm);
        let cpus: Vec<CpuId> = self.sched.cpus().collect();
        for cpu in cpus {
            if self.loaded.get(cpu.index()) == Some(&(Some(mm), Lazy::No)) {
                self.enter_lazy(cpu);
            }
        }
        self.mm.mmput(mm);
    }

    fn adopt_children(&mut self, process: ProcessId) {
        for child in self.processes.values_mut().filter(|p| p.parent == process) {
            child.parent = INIT;
        }
        self.processes.retain(|_, p| p.parent != INIT || p.exit.is_none() || p.id == process);
    }

    fn notify_parent(&mut self, process: ProcessId, status: ExitStatus) {
        self.wake_vfork_parent(process);
        let Some(it) = self.processes.get(&process) else { return };
        let (parent, exit_signal) = (it.parent, it.exit_signal);
        if !self.processes.contains_key(&parent) || parent == INIT {
            self.processes.remove(&process);
            return;
        }
        if let Some(signal) = Signal::new(u64::from(exit_signal)) {
            let info = SigInfo { signal, ..SigInfo::child(process, status) };
            self.signal_process(parent, info);
        }
        self.wake_all(|task, wait| task.process == parent && wait == Wait::Child);
    }

    /// The child needs its parent's address space no more.
    fn wake_vfork_parent(&mut self, child: ProcessId) {
        let waits = |t: &&Task| t.wait == Some(Wait::Vfork(child));
        let parent = self.tasks.values().find(waits).map(|t| t.id);
        if let Some(parent) = parent {
            self.wake(parent, Resume::Return(u64::from(child.get())));
        }
    }

    /// Drops a reference to each of these pages.
    pub(crate) fn put_pages(&mut self, pages: &[Pfn]) {
        for &page in pages {
            self.mm.put_page(page);
        }
    }

    /// Drops a reference to an open file.
    pub(crate) fn close_file(&mut self, file: FileRef) {
        match self.files.release(file) {
            Some(Open::PipeRead(pipe)) => self.close_pipe(pipe, 1, 0),
            Some(Open::PipeWrite(pipe)) => self.close_pipe(pipe, 0, 1),
            Some(Open::IoUring(id)) => {
                if let Some(ring) = self.urings.remove(id) {
                    self.unpin_buffers(&ring.buffers);
                }
            }
            Some(Open::Socket(from, to)) => {
                self.close_pipe(from, 1, 0);
                self.close_pipe(to, 0, 1);
            }
            Some(Open::Pseudo(id, _)) => {
                if let Some(file) = self.pseudo.get(id.index()).cloned() {
                    file.release(self);
                }
            }
            Some(Open::Inode(inode)) => self.collect_inode(inode),
            _ => {}
        }
    }

    /// So many readers and writers of a pipe are gone.
    fn close_pipe(&mut self, pipe: PipeId, readers: u32, writers: u32) {
        let it = self.pipes.get(pipe);
        it.readers = it.readers.saturating_sub(readers);
        it.writers = it.writers.saturating_sub(writers);
        self.wake_all(|_, wait| wait == Wait::Pipe(pipe) || wait == Wait::Poll);
        let pages = self.pipes.collect(pipe);
        self.put_pages(&pages);
    }

    /// Drops a file of the tmpfs that has neither a name nor a descriptor any more; mappings keep
    /// its pages.
    pub(crate) fn collect_inode(&mut self, inode: InodeId) {
        let file = match self.vfs.inode(inode).map(|it| &it.kind) {
            Ok(Kind::File(file)) => *file,
            _ => return,
        };
        if !self.files.refers_to(Open::Inode(inode)) && !self.vfs.is_linked(inode) {
            self.vfs.forget(inode);
            self.mm.file_put(file);
        }
    }
}

/// The last component of a path, cut to what `comm` holds.
pub(crate) fn comm(path: &str) -> [u8; 16] {
    let name = path.rsplit('/').next().unwrap_or(path);
    let mut comm = [0; 16];
    for (to, &from) in comm.iter_mut().take(15).zip(name.as_bytes()) {
        *to = from;
    }
    comm
}
