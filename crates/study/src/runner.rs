//! The one place that calls `machine`.

use crate::resolve::{elf_arch, kernel, machine};
use crate::{RunRequest, ThpPolicy, ThpSetting, status};
use cost::{Picos, PriceError, PriceList};
use events::{Counters, TraceLog};
use machine::{
    Console, ExitStatus, Outcome, Pricing, RunConfig, RunError, RunErrorKind, Stream, Thp, ThpSize,
    UnknownSyscall,
};
use report::{
    EventCounts, Exit, Failure, Guest, RUN_SCHEMA, RunReport, Settings, Time, Unsupported,
};
use sha2::{Digest, Sha256};
use std::collections::BTreeMap;

/// Throws the guest's output away, and gives it no input.
#[derive(Clone, Copy, Debug, Default)]
pub struct Silent;

impl Console for Silent {
    fn write(&mut self, _: Stream, _: &[u8]) {}
    fn read(&mut self, _: &mut [u8]) -> usize {
        0
    }
}

/// Virtual time by a price list.
#[derive(Debug)]
struct Priced<'p>(&'p PriceList);

impl Pricing for Priced<'_> {
    fn ns(&self, counts: &Counters, instructions: u64) -> u64 {
        self.0.time(counts, instructions).ns()
    }
}

/// Runs the program to its end.
///
/// # Errors
/// A [`Failure`] with the exit status that says what kind it is.
pub fn run(request: &RunRequest, console: &mut dyn Console) -> Result<RunReport, Failure> {
    run_traced(request, console).map(|(report, _)| report)
}

/// The same, with what happened when if the request asks for it.
///
/// # Errors
/// As [`run`].
pub fn run_traced(
    request: &RunRequest,
    console: &mut dyn Console,
) -> Result<(RunReport, Option<TraceLog>), Failure> {
    let config = config(request)?;
    let prices = prices(&config).map_err(|error| Failure {
        message: format!("internal error in the built-in price lists: {error}; please report it"),
        status: status::INTERNAL,
    })?;
    let outcome = machine::run(&config, &request.program.bytes, &Priced(&prices), console);
    let mut outcome = outcome.map_err(|error| failure(&request.program.path, &error))?;
    let trace = outcome.trace.take();
    Ok((report(request, &config, &prices, &outcome), trace))
}

fn config(request: &RunRequest) -> Result<RunConfig, Failure> {
    let kernel = kernel(&request.kernel, &request.set)?;
    let of_program = elf_arch(&request.program.bytes);
    // A machine that is named decides; the program must then be for it.
    let arch = request.arch.or(if request.machine.is_none() { of_program } else { None });
    let mut machine = machine(request.machine.as_deref(), arch, &request.set)?;
    if let Some(of_program) = of_program.filter(|&arch| arch != machine.arch) {
        let path = &request.program.path;
        let message = format!(
            "{path} is a program for {of_program} and cannot run on {} ({}); choose a machine of its architecture",
            machine.name, machine.arch
        );
        return Err(Failure { message, status: status::NO_ELF });
    }
    if let Some(cpus) = request.cpus {
        machine.hw.cpus = cpus;
    }
    let path = request.program.path.trim_start_matches('@');
    Ok(RunConfig {
        mem_bytes: request.mem_bytes,
        swap_bytes: request.swap_bytes,
        thp: thp(&request.thp)?,
        env: request.env.clone(),
        boot_writes: request.write.clone(),
        uid: request.uid,
        seed: request.seed,
        check: request.check,
        engine: request.engine,
        max_instructions: request.max_instructions,
        trace: request.trace,
        ..RunConfig::new(kernel, machine, path, request.argv.clone())
    })
}

fn thp(settings: &[ThpSetting]) -> Result<Thp, Failure> {
    if settings.is_empty() {
        return Ok(Thp::boot());
    }
    let size = |setting: &ThpSetting| {
        let policy = match setting.policy {
            ThpPolicy::Always => ThpSize::Always,
            ThpPolicy::Inherit => ThpSize::Inherit,
            ThpPolicy::Madvise => ThpSize::Madvise,
            ThpPolicy::Never => ThpSize::Never,
        };
        Thp::order_of_kib(setting.kib).map(|order| (order, policy)).ok_or_else(|| Failure {
            message: format!("there are no folios of {} kB; 16 to 2048 are known", setting.kib),
            status: status::USAGE,
        })
    };
    Ok(Thp::only(settings.iter().map(size).collect::<Result<Vec<_>, _>>()?))
}

/// The machine's prices, with its own rate of instructions.
fn prices(config: &RunConfig) -> Result<PriceList, PriceError> {
    let machine = &config.machine;
    let prices = PriceList::for_machine(machine.name, machine.arch)?;
    prices.with_instruction(machine.clock.ns_per_instruction())
}

fn failure(path: &str, error: &RunError) -> Failure {
    let status = match error.kind {
        RunErrorKind::Program => status::NO_ELF,
        RunErrorKind::Request => status::USAGE,
        RunErrorKind::Internal => status::INTERNAL,
        RunErrorKind::Unsupported => status::UNSUPPORTED,
        RunErrorKind::Limit => status::LIMIT,
    };
    Failure { message: format!("{path}: {}", error.message), status }
}

fn report(
    request: &RunRequest,
    config: &RunConfig,
    prices: &PriceList,
    outcome: &Outcome,
) -> RunReport {
    let (by_syscall, mut faults) = RunReport::split(&outcome.sink);
    faults.major = outcome.vmstat.pgmajfault;
    faults.minor = outcome.vmstat.pgfault.saturating_sub(outcome.vmstat.pgmajfault);
    let total = outcome.sink.total();
    RunReport {
        arch: outcome.arch.name().to_owned(),
        by_syscall,
        cpus: config.machine.hw.cpus,
        dmesg: outcome.dmesg.clone(),
        events: EventCounts::from(&total),
        exit: exit(outcome.exit),
        faults,
        guest: Guest {
            argv: request.argv.clone(),
            path: request.program.path.clone(),
            sha256: hex(&Sha256::digest(&request.program.bytes)),
        },
        instructions: outcome.instructions,
        kernel: config.kernel.name.clone(),
        machine: config.machine.name.to_owned(),
        ptescope: env!("CARGO_PKG_VERSION").to_owned(),
        schema: RUN_SCHEMA.to_owned(),
        settings: settings(request),
        thp: thp_statistics(outcome),
        time: time(prices, &total, outcome),
        tlb: nonzero(outcome.tlb.iter()),
        unsupported: outcome.unknown_syscalls.iter().map(unsupported).collect(),
        vmstat: nonzero(outcome.vmstat.iter()),
        warnings: Vec::new(),
    }
}

fn exit(exit: ExitStatus) -> Exit {
    let signal = match exit {
        ExitStatus::Exited(_) => None,
        ExitStatus::Signaled(signal) => Some(u32::from(signal)),
    };
    Exit { signal, status: exit.code().unsigned_abs() }
}

fn settings(request: &RunRequest) -> Settings {
    let set = request.set.iter().map(|o| (o.key.clone(), o.value.clone()));
    let thp = request.thp.iter().map(|t| (format!("{}kB", t.kib), t.policy.name().to_owned()));
    Settings {
        check: request.check,
        env: request.env.clone(),
        max_instructions: request.max_instructions,
        mem_bytes: request.mem_bytes,
        seed: request.seed,
        set: set.collect(),
        swap_bytes: request.swap_bytes,
        thp: thp.collect(),
        uid: request.uid,
        write: request.write.iter().cloned().collect(),
    }
}

fn thp_statistics(outcome: &Outcome) -> BTreeMap<String, BTreeMap<String, u64>> {
    let sizes = outcome
        .thp
        .iter()
        .map(|(order, stats)| (format!("{}kB", order.kib()), nonzero(stats.iter())));
    sizes.filter(|(_, stats)| !stats.is_empty()).collect()
}

/// The clock at the end, with the interval of what the prices make of the counts; time in which
/// nothing ran has no error.
fn time(prices: &PriceList, total: &Counters, outcome: &Outcome) -> Time {
    let estimate = prices.explain(total, outcome.instructions).estimate();
    let idle = outcome.virtual_ns.saturating_sub(estimate.time.ns());
    Time {
        guest_ns: prices.time(&Counters::new(), outcome.instructions).ns(),
        high_ns: estimate.high.ns().saturating_add(idle),
        low_ns: estimate.low.max(Picos::ZERO).ns().saturating_add(idle),
        model: prices.name().to_owned(),
        ns: outcome.virtual_ns,
    }
}

fn nonzero<'s>(pairs: impl Iterator<Item = (&'s str, u64)>) -> BTreeMap<String, u64> {
    pairs.filter(|(_, n)| *n != 0).map(|(name, n)| (name.to_owned(), n)).collect()
}

fn unsupported(call: &UnknownSyscall) -> Unsupported {
    let syscall = match call.name {
        Some(name) => name.to_owned(),
        None => format!("number {}", call.nr),
    };
    Unsupported { calls: call.calls, syscall }
}

/// Bytes as hexadecimal digits.
pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
