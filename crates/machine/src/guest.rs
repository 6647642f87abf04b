//! A machine with a program on it, and the loop that runs it.

use crate::bus::World;
use crate::clock::{Outside, Priced, Pricing};
use crate::regs::Regs;
use crate::{Engine, Outcome, RunConfig, RunError, RunErrorKind};
use arch::{Arm64, Platform, X86_64};
use cpu::{Cpu, CpuState, Exit};
use events::{ByOp, Counters, Event, Sink, Tracer};
use kernel::{
    Console, CountsByScope, Exception, ExitStatus, Kernel, KernelOptions, Outcome as Next, Program,
    Spawn, TaskId,
};
use mm::{Mm, MmConfig, Thp};
use mmu::{CpuTlb, Exact, Fault, FaultKind, HwWalk, Mmu, Model, StaleUseOracle};
use std::collections::BTreeMap;
use std::marker::PhantomData;
use units::{ArchId, CpuId};

/// Instructions that a task runs before the next CPU has its turn.
pub const QUANTUM: u64 = 100_000;

/// A run: architecture, observer, and how exactly the TLBs are modelled.
#[derive(Debug)]
pub struct Emulated<A, S, M>(PhantomData<(A, S, M)>);

impl<A, S, M> Platform for Emulated<A, S, M>
where
    A: HwWalk + arch::Arch,
    S: Sink + 'static,
    M: Model,
{
    type Arch = A;
    type Sink = S;
    type Tlb = Mmu<A, M>;
}

/// Runs `elf` to its end, counting by op, with exact TLBs.
///
/// # Errors
/// [`RunError`]: the program cannot run, needs something that is missing, ran into a limit, or an
/// oracle saw a violation.
pub fn run(
    config: &RunConfig,
    elf: &[u8],
    pricing: &dyn Pricing,
    console: &mut dyn Console,
) -> Result<Outcome, RunError> {
    let mut sink = ByOp::new();
    if let Some(limits) = config.trace {
        sink.trace(Tracer::new(event_prices(pricing), limits));
    }
    match config.machine.arch {
        ArchId::Arm64 => run_with::<Arm64, ByOp, Exact>(config, elf, sink, pricing, console),
        ArchId::X86_64 => run_with::<X86_64, ByOp, Exact>(config, elf, sink, pricing, console),
    }
}

/// Picoseconds of one event of each kind.
fn event_prices(pricing: &dyn Pricing) -> Vec<u64> {
    const MANY: u64 = 1 << 20;
    let price = |&event: &Event| {
        let mut counts = Counters::new();
        counts.add(event, MANY);
        pricing.ns(&counts, 0).saturating_mul(1000) / MANY
    };
    Event::ALL.iter().map(price).collect()
}

/// A sink that a run can be made with.
pub trait Observer: Sink + CountsByScope + Priced + 'static {
    /// What it has counted, by op if it knows.
    fn finish(self) -> ByOp;
    /// The kernel is about to run on `cpu`, at `ns`; for sinks that write down what happens when.
    fn set_clock(&mut self, _: CpuId, _: u64) {}
}

impl Observer for ByOp {
    fn finish(self) -> ByOp {
        self
    }

    fn set_clock(&mut self, cpu: CpuId, ns: u64) {
        ByOp::set_clock(self, cpu, ns);
    }
}

impl Observer for Counters {
    fn finish(self) -> ByOp {
        ByOp::new()
    }
}

impl Observer for () {
    fn finish(self) -> ByOp {
        ByOp::new()
    }
}

/// [`run`] with another observer or TLB model: for benches.
///
/// # Errors
/// As [`run`].
pub fn run_with<A, S, M>(
    config: &RunConfig,
    elf: &[u8],
    sink: S,
    pricing: &dyn Pricing,
    console: &mut dyn Console,
) -> Result<Outcome, RunError>
where
    A: HwWalk + arch::Arch,
    S: Observer,
    M: Model,
{
    Guest::<A, S, M>::boot(config, elf, sink, pricing, console)?.run()
}

/// One virtual CPU.
struct Vcpu<A, S, M>
where
    A: HwWalk + arch::Arch,
    S: Observer,
    M: Model,
{
    cpu: Cpu<World<A, S, M>>,
    task: Option<TaskId>,
}

impl<A, S, M> Vcpu<A, S, M>
where
    A: HwWalk + arch::Arch,
    S: Observer,
    M: Model,
{
    fn new(engine: Engine) -> Self {
        let mut cpu = Cpu::new(arch_of::<A>());
        if engine == Engine::Jit
            && let Some(native) = jit::native()
        {
            cpu.set_native(native, cpu::engine::HOT);
        }
        Vcpu { cpu, task: None }
    }
}

struct Guest<'a, A, S, M>
where
    A: HwWalk + arch::Arch,
    S: Observer,
    M: Model,
{
    world: World<A, S, M>,
    vcpus: Vec<Vcpu<A, S, M>>,
    /// Registers of tasks that no CPU holds.
    saved: BTreeMap<TaskId, CpuState>,
    outside: Outside<'a>,
    config: &'a RunConfig,
}

/// Why a task left its CPU, or why the run is over.
enum Turn {
    /// The quantum is over, or the task waits.
    Next,
    /// The run is over.
    Over(Result<(), RunError>),
}

impl<'a, A, S, M> Guest<'a, A, S, M>
where
    A: HwWalk + arch::Arch,
    S: Observer,
    M: Model,
{
    fn boot(
        config: &'a RunConfig,
        elf: &[u8],
        sink: S,
        pricing: &'a dyn Pricing,
        console: &'a mut dyn Console,
    ) -> Result<Self, RunError> {
        let controls = config.machine.controls(config.mem_bytes);
        let mut tlb = config.machine.mmu::<A, M>(config.mem_bytes);
        if config.check {
            tlb.set_oracle(StaleUseOracle::On);
        }
        let mm_config = MmConfig {
            ram_bytes: config.mem_bytes,
            swap_bytes: config.swap_bytes,
            kernel: config.kernel.clone(),
            hw: config.machine.hw.clone(),
            thp: config.thp.clone(),
        };
        let mut mm = Mm::new(mm_config, sink, tlb).map_err(|error| {
            let message = format!(
                "cannot map {} MiB of guest RAM: {error}; ask for another --mem",
                config.mem_bytes >> 20
            );
            RunError::new(RunErrorKind::Request, message)
        })?;
        if let Some(bytes) = config.fault_around_bytes {
            mm.fault_around_bytes = bytes;
        }
        let options = KernelOptions {
            seed: config.seed,
            hwcap: hwcap(arch_of::<A>()).0,
            hwcap2: hwcap(arch_of::<A>()).1,
            min_sigstack: min_sigstack(arch_of::<A>()),
            cpu_model: config.machine.name.to_owned(),
            first_cpu: config.first_cpu.map(CpuId::new),
            uid: config.uid,
        };
        let kernel = Kernel::new(mm, options);
        let spare = CpuTlb::new(CpuId::default(), config.machine.geometry.clone(), controls);
        let mut world = World::new(kernel, spare);
        world.ns_per_kilo_instruction = pricing.ns(&Counters::new(), 1024);
        let mut guest = Guest {
            world,
            vcpus: (0..config.machine.hw.cpus.max(1)).map(|_| Vcpu::new(config.engine)).collect(),
            saved: BTreeMap::new(),
            outside: Outside::new(pricing, console),
            config,
        };
        guest.write_settings()?;
        guest.load(elf)?;
        Ok(guest)
    }

    fn write_settings(&mut self) -> Result<(), RunError> {
        for (path, text) in &self.config.boot_writes {
            self.world.kernel.boot_write(path, text.as_bytes()).map_err(|errno| {
                let message = format!(
                    "cannot write `{text}` to {path} before the program starts: error {}; is it a file of this kernel that takes such a value?",
                    errno.0
                );
                RunError::new(RunErrorKind::Request, message)
            })?;
        }
        Ok(())
    }

    fn load(&mut self, elf: &[u8]) -> Result<(), RunError> {
        let bytes = |s: &String| s.as_bytes().to_vec();
        let argv: Vec<Vec<u8>> = self.config.argv.iter().map(bytes).collect();
        let envp: Vec<Vec<u8>> = self.config.env.iter().map(bytes).collect();
        let program = Program { path: &self.config.path, elf, argv: &argv, envp: &envp };
        let loaded = self.world.kernel.load(&program)?;
        let mut state = CpuState::default();
        state.set_pc(loaded.pc);
        state.set_sp(arch_of::<A>(), loaded.sp);
        self.saved.insert(loaded.task, state);
        Ok(())
    }

    fn run(mut self) -> Result<Outcome, RunError> {
        loop {
            let mut idle = true;
            for n in 0..self.vcpus.len() {
                match self.turn(n) {
                    Some(Turn::Next) => idle = false,
                    Some(Turn::Over(Ok(()))) => return self.outcome(),
                    Some(Turn::Over(Err(error))) => return Err(error),
                    None => {}
                }
                let now = self.outside.ns(&self.world.kernel.mm.pt.sink);
                // ksmd may have worked until after a wait was to end.
                idle &= !self.world.kernel.wake_expired(now);
            }
            let before = self.outside.ns(&self.world.kernel.mm.pt.sink);
            self.world.kernel.run_ksmd(&mut self.outside);
            if idle && !self.skip_idle_time(before) {
                let message =
                    "every task waits for something that cannot happen; the program is deadlocked";
                return Err(RunError::new(RunErrorKind::Limit, message.to_owned()));
            }
        }
    }

    /// No task can run: time passes until a wait ends or `ksmd` wakes. Says whether a wait will
    /// end. The round that is over began at `before`.
    fn skip_idle_time(&mut self, before: u64) -> bool {
        /// What a round of `ksmd` takes if nothing that it does has a price.
        const ROUND_NS: u64 = 1_000_000;
        let Some(deadline) = self.world.kernel.next_deadline() else { return false };
        let now = self.outside.ns(&self.world.kernel.mm.pt.sink);
        let until = match self.world.kernel.ksmd_wakes_ns() {
            Some(wakes) if wakes <= now && now > before => now,
            Some(wakes) if wakes <= now => deadline.min(now.saturating_add(ROUND_NS)),
            Some(wakes) => deadline.min(wakes),
            None => deadline,
        };
        self.outside.idle_ns += until.saturating_sub(now);
        self.world.kernel.wake_expired(until.max(now));
        true
    }

    /// CPU `n` runs the next task for a quantum; `None` if it has none.
    fn turn(&mut self, n: usize) -> Option<Turn> {
        let cpu = CpuId::new(u16::try_from(n).ok()?);
        self.world.cpu = cpu;
        self.world.kernel.mm.pt.cpu = cpu;
        let task = self.world.kernel.schedule(cpu);
        self.load_registers(n, task);
        self.set_trace_clock(cpu);
        let task = task?;
        let next = {
            let state = self.vcpus[n].cpu.state_mut();
            let mut regs = Regs { arch: arch_of::<A>(), state };
            self.world.kernel.return_to_user(task, &mut regs, &mut self.outside)
        };
        if !self.settle(n, task, next) {
            return Some(self.after());
        }
        Some(self.run_task(n, task))
    }

    /// Tells a trace where and when the kernel is about to run.
    fn set_trace_clock(&mut self, cpu: CpuId) {
        let sink = &mut self.world.kernel.mm.pt.sink;
        if sink.watches_ptes() {
            let now = self.outside.ns(sink);
            sink.set_clock(cpu, now);
        }
    }

    /// Makes CPU `n` hold the registers of `task`.
    fn load_registers(&mut self, n: usize, task: Option<TaskId>) {
        let vcpu = &mut self.vcpus[n];
        if vcpu.task == task {
            return;
        }
        if let Some(old) = vcpu.task.take() {
            self.saved.insert(old, vcpu.cpu.state().clone());
        }
        let Some(new) = task else { return };
        let held = self.vcpus.iter_mut().find(|v| v.task == Some(new));
        let state = match held {
            Some(other) => {
                other.task = None;
                other.cpu.state().clone()
            }
            None => self.saved.remove(&new).unwrap_or_default(),
        };
        let vcpu = &mut self.vcpus[n];
        *vcpu.cpu.state_mut() = state;
        vcpu.task = Some(new);
    }

    /// Carries out what a kernel entry said. Whether the task goes on running.
    fn settle(&mut self, n: usize, task: TaskId, next: Next) -> bool {
        match next {
            Next::Resume => true,
            Next::Reschedule => false,
            Next::Exited => {
                self.vcpus[n].task = None;
                self.saved.remove(&task);
                false
            }
            Next::Spawned(spawn) => self.spawn(n, spawn),
        }
    }

    fn spawn(&mut self, n: usize, spawn: Spawn) -> bool {
        let mut state = self.vcpus[n].cpu.state().clone();
        state.set_syscall_return(arch_of::<A>(), 0);
        if let Some(sp) = spawn.sp {
            state.set_sp(arch_of::<A>(), sp);
        }
        if let Some(tls) = spawn.tls {
            state.set_tls(arch_of::<A>(), units::VirtAddr::new(tls));
        }
        self.saved.insert(spawn.child, state);
        !spawn.parent_waits
    }

    /// Whether the run is over.
    fn after(&self) -> Turn {
        match self.world.kernel.exit_status() {
            Some(_) => Turn::Over(Ok(())),
            None => Turn::Next,
        }
    }

    fn run_task(&mut self, n: usize, task: TaskId) -> Turn {
        let mut left = QUANTUM;
        loop {
            if let Some(limit) = self.config.max_instructions {
                let more = limit.saturating_sub(self.outside.instructions);
                if more == 0 {
                    let message = format!(
                        "the program did not end within --max-instructions {limit}; it stopped at {}",
                        self.vcpus[n].cpu.state().pc()
                    );
                    return Turn::Over(Err(RunError::new(RunErrorKind::Limit, message)));
                }
                left = left.min(more);
            }
            self.world.started_ns = self.outside.ns(&self.world.kernel.mm.pt.sink);
            self.world.exchange_tlb();
            let walks = self.world.walks();
            let exit = self.vcpus[n].cpu.run(&mut self.world, left);
            self.world.count_walks(walks);
            self.world.exchange_tlb();
            let retired = self.vcpus[n].cpu.retired_nr();
            self.outside.instructions += retired;
            left = left.saturating_sub(retired);
            self.set_trace_clock(self.world.cpu);
            let next = match self.handle(n, task, exit) {
                Ok(next) => next,
                Err(error) => return Turn::Over(Err(error)),
            };
            if let Err(error) = self.check() {
                return Turn::Over(Err(error));
            }
            let goes_on = next.is_none_or(|next| self.settle(n, task, next));
            if !goes_on || left == 0 {
                return self.after();
            }
        }
    }

    /// Serves what stopped the CPU. `None`: nothing but the end of the quantum.
    fn handle(
        &mut self,
        n: usize,
        task: TaskId,
        exit: Exit<Fault>,
    ) -> Result<Option<Next>, RunError> {
        let state = self.vcpus[n].cpu.state_mut();
        let mut regs = Regs { arch: arch_of::<A>(), state };
        let kernel = &mut self.world.kernel;
        let next = match exit {
            Exit::Limit => return Ok(None),
            Exit::Syscall => kernel.syscall(task, &mut regs, &mut self.outside),
            Exit::Fault { fault, .. } => match fault.kind {
                FaultKind::NonCanonical => {
                    kernel.exception(task, Exception::GeneralProtection, &mut regs)
                }
                _ => kernel.page_fault(task, fault.va, access(fault.access), &mut regs),
            },
            Exit::Undefined { .. } => {
                kernel.exception(task, Exception::UndefinedInstruction, &mut regs)
            }
            Exit::Breakpoint { .. } => kernel.exception(task, Exception::Breakpoint, &mut regs),
            Exit::DivideError { .. } => kernel.exception(task, Exception::DivideError, &mut regs),
            Exit::Misaligned { .. } => {
                kernel.exception(task, Exception::GeneralProtection, &mut regs)
            }
            Exit::Unsupported { pc, bytes, mnemonic } => {
                let message = format!(
                    "the instruction `{mnemonic}` ({bytes}) at {pc} is not implemented; build the program for the baseline instruction set"
                );
                return Err(RunError::new(RunErrorKind::Unsupported, message));
            }
        };
        Ok(Some(next))
    }

    /// What the oracles have to say after a kernel entry.
    fn check(&mut self) -> Result<(), RunError> {
        if !self.config.check {
            return Ok(());
        }
        let pt = &mut self.world.kernel.mm.pt;
        if let Some(stale) = pt.tlb.take_stale_uses().first() {
            let message = format!(
                "stale translation: CPU {} used {} after {} had changed its entry without a flush",
                stale.cpu.index(),
                stale.va,
                stale.owed_by.name()
            );
            return Err(RunError::new(RunErrorKind::Internal, message));
        }
        if let Some(what) = pt.violations.first() {
            let message = format!("break-before-make: {what}");
            return Err(RunError::new(RunErrorKind::Internal, message));
        }
        Ok(())
    }

    fn outcome(mut self) -> Result<Outcome, RunError> {
        if self.config.check
            && let Some(violation) = self.world.kernel.mm.validate().first()
        {
            let message = format!("validate: {}", violation.what);
            return Err(RunError::new(RunErrorKind::Internal, message));
        }
        let virtual_ns = self.outside.ns(&self.world.kernel.mm.pt.sink);
        let kernel = self.world.kernel;
        let exit = kernel.exit_status().unwrap_or(ExitStatus::Exited(0));
        let unknown_syscalls = kernel.unknown_syscalls();
        let dmesg = kernel.dmesg();
        let thp = Thp::orders().map(|o| (o, kernel.mm.thp.size(o).stats)).collect();
        let mut sink = kernel.mm.pt.sink.finish();
        Ok(Outcome {
            arch: arch_of::<A>(),
            exit,
            instructions: self.outside.instructions,
            tlb: kernel.mm.pt.tlb.stats(),
            vmstat: kernel.mm.vmstat.clone(),
            thp,
            virtual_ns,
            dmesg,
            unknown_syscalls,
            trace: sink.take_trace(),
            sink,
        })
    }
}

/// Both `arch` and `mmu` name the architecture; they agree.
fn arch_of<A: arch::Arch>() -> ArchId {
    <A as arch::Arch>::ID
}

fn access(access: mmu::Access) -> mm::Access {
    match access {
        mmu::Access::Read => mm::Access::Read,
        mmu::Access::Write => mm::Access::Write,
        mmu::Access::Exec => mm::Access::Exec,
    }
}

/// What the auxiliary vector says of the CPU's features.
fn hwcap(arch: ArchId) -> (u64, u64) {
    match arch {
        ArchId::Arm64 => (cpu::arm64::HWCAP, cpu::arm64::HWCAP2),
        ArchId::X86_64 => (u64::from(cpu::x86_64::hwcap()), 0),
    }
}

/// Bytes of the smallest signal stack.
fn min_sigstack(arch: ArchId) -> u64 {
    match arch {
        ArchId::Arm64 => 4720,
        ArchId::X86_64 => 1440,
    }
}
