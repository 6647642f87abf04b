//! What a measured time is predicted from: counts of runs of built-in guests, added up.

mod plan;

pub(crate) use plan::Plan;

use crate::sweep::each;
use crate::{Program, RunRequest, Silent, ThpPolicy, ThpSetting, parse_set, status};
use events::{Counters, Event, Sink};
use machine::{Console, Stream};
use report::{Failure, RunReport, WindowLine};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::num::NonZeroUsize;
use units::ArchId;

/// A run of a built-in guest.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct RunSpec {
    pub(crate) guest: &'static str,
    pub(crate) args: Vec<String>,
    pub(crate) env: Vec<String>,
    pub(crate) arch: ArchId,
    /// The preset; else the default of the architecture.
    pub(crate) machine: Option<String>,
    pub(crate) cpus: u16,
    pub(crate) kernel: String,
    pub(crate) set: Vec<&'static str>,
    pub(crate) thp: ThpSetting,
}

impl fmt::Display for RunSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {} on {}", self.guest, self.args.join(" "), self.kernel)
    }
}

/// Folios of `folio_kb` everywhere and of no other size: naming any size turns all others off, and 4K is the PMD
/// size, off by name.
pub(crate) fn only_folios_of(folio_kb: u64) -> ThpSetting {
    match folio_kb {
        4 => ThpSetting { kib: 2048, policy: ThpPolicy::Never },
        kib => ThpSetting { kib, policy: ThpPolicy::Always },
    }
}

/// Which of what a run counted matters.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Part {
    /// Everything from its start to its end.
    Whole,
    /// A system call.
    Entry(&'static str),
    /// An outermost op in a system call.
    Op(&'static str, &'static str),
    /// A window of `@probe`, which is one system call or a loop of faults.
    Window(String),
}

/// What was counted.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Counted {
    pub(crate) counts: Counters,
    pub(crate) instructions: u64,
}

/// Counts of a part of runs, each taken so many times, added up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Measured {
    pub(crate) part: Part,
    pub(crate) terms: Vec<(i64, RunSpec)>,
}

/// What a run left.
#[derive(Debug)]
pub(crate) struct Ran {
    report: RunReport,
    windows: BTreeMap<String, Counters>,
}

/// Every run that was made.
#[derive(Debug, Default)]
pub(crate) struct Results(BTreeMap<RunSpec, Ran>);

impl Results {
    /// Makes the runs on `jobs` threads; `progress` is told what has been run.
    pub(crate) fn of(
        specs: BTreeSet<RunSpec>,
        jobs: NonZeroUsize,
        progress: &mut dyn FnMut(&str),
    ) -> Result<Results, Failure> {
        let specs: Vec<RunSpec> = specs.into_iter().collect();
        let ran = each(&specs, jobs, &run, &mut |_, spec, _| progress(&spec.to_string()));
        let pairs = specs.into_iter().zip(ran).map(|(spec, ran)| Ok((spec, ran?)));
        Ok(Results(pairs.collect::<Result<_, Failure>>()?))
    }

    /// The counts of `measured`, all of whose runs were made.
    pub(crate) fn counted(&self, measured: &Measured) -> Result<Counted, Failure> {
        let mut sums: BTreeMap<Event, i128> = BTreeMap::new();
        let mut instructions = 0;
        for (times, spec) in &measured.terms {
            let times = i128::from(*times);
            let counted = self.0.get(spec).and_then(|ran| ran.part(&measured.part));
            let counted = counted.ok_or_else(|| Failure {
                message: format!(
                    "internal error: {spec} did not do what was asked of it; please report it"
                ),
                status: status::INTERNAL,
            })?;
            for (event, n) in counted.counts.nonzero() {
                *sums.entry(event).or_default() += times * i128::from(n);
            }
            instructions += times * i128::from(counted.instructions);
        }
        let count = |n: i128| u64::try_from(n.max(0)).unwrap_or(u64::MAX);
        let mut counts = Counters::new();
        sums.into_iter().for_each(|(event, n)| counts.add(event, count(n)));
        Ok(Counted { counts, instructions: count(instructions) })
    }
}

impl Measured {
    /// One run, once.
    pub(crate) fn one(part: Part, run: RunSpec) -> Measured {
        Measured { part, terms: vec![(1, run)] }
    }

    pub(crate) fn runs(&self) -> impl Iterator<Item = &RunSpec> {
        self.terms.iter().map(|(_, run)| run)
    }
}

impl Ran {
    fn part(&self, part: &Part) -> Option<Counted> {
        let events = |counts: Counters| Counted { counts, instructions: 0 };
        match part {
            Part::Whole => Some(Counted {
                counts: self.report.events.counters(),
                instructions: self.report.instructions,
            }),
            Part::Entry(name) => Some(events(self.report.syscall(name)?.events.counters())),
            Part::Op(entry, op) => {
                let mut sum = Counters::new();
                for (path, counts) in &self.report.syscall(entry)?.by_op {
                    if path.split('/').next() == Some(op) {
                        sum.merge(&counts.counters());
                    }
                }
                Some(events(sum))
            }
            Part::Window(name) => Some(events(self.windows.get(name)?.clone())),
        }
    }
}

/// Keeps what the guest says.
#[derive(Debug, Default)]
struct Listener(Vec<u8>);

impl Console for Listener {
    fn write(&mut self, stream: Stream, bytes: &[u8]) {
        if matches!(stream, Stream::Stdout) {
            self.0.extend_from_slice(bytes);
        }
    }
    fn read(&mut self, into: &mut [u8]) -> usize {
        Silent.read(into)
    }
}

fn run(spec: &RunSpec) -> Result<Ran, Failure> {
    let program = Program::open(spec.guest, spec.arch)?;
    let mut argv = vec![spec.guest.trim_start_matches('@').to_owned()];
    argv.extend(spec.args.iter().cloned());
    let set = spec.set.iter().map(|text| parse_set(text)).collect::<Result<Vec<_>, _>>();
    let set = set.map_err(|e| Failure { message: e.to_string(), status: status::INTERNAL })?;
    let request = RunRequest {
        arch: Some(spec.arch),
        kernel: spec.kernel.clone(),
        machine: spec.machine.clone(),
        cpus: Some(spec.cpus),
        mem_bytes: 2 * RunRequest::MEM_BYTES,
        thp: vec![spec.thp],
        set,
        env: spec.env.clone(),
        ..RunRequest::new(program, argv)
    };
    let mut listener = Listener::default();
    let report = crate::run(&request, &mut listener)?;
    if report.exit.status != 0 {
        let message = format!(
            "internal error: {spec} ended with status {}; please report it",
            report.exit.status
        );
        return Err(Failure { message, status: status::INTERNAL });
    }
    let windows = WindowLine::parse_all(&String::from_utf8_lossy(&listener.0));
    let windows = windows.into_iter().map(|line| (line.phase.clone(), line.counters()));
    Ok(Ran { report, windows: windows.collect() })
}
