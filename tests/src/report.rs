//! Runs what was measured, on two threads, and sums up how it compares.

use crate::compare::{Difference, What, differences};
use crate::direct::{Phase, Runner};
use crate::excuses::{Context, EXCUSES, RunnerKind, unexplained};
use crate::groundtruth::{Record, Run};
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Mutex;

/// How records fared.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Records compared.
    pub all: u64,
    /// Records in which everything is equal.
    pub equal: u64,
    /// Records that differ only by what excuses explain, by their ids.
    pub excused: BTreeMap<String, u64>,
    /// Records that differ, with how.
    pub wrong: Vec<String>,
}

impl Tally {
    fn count(&mut self, context: &Context<'_>, rep: u64, found: Vec<Difference>) {
        self.all += 1;
        if found.is_empty() {
            self.equal += 1;
            return;
        }
        let (left, used) = match std::env::var_os("PTESCOPE_GROUNDTRUTH_NO_EXCUSES") {
            Some(_) => (found, Vec::new()),
            None => unexplained(context, found),
        };
        if left.is_empty() {
            *self.excused.entry(used.join(" + ")).or_default() += 1;
            return;
        }
        let mut text = format!("{} {} #{rep}", context.run, context.phase);
        for difference in left {
            text += &format!("\n    {difference}");
        }
        self.wrong.push(text);
    }

    fn merge(&mut self, other: Tally) {
        self.all += other.all;
        self.equal += other.equal;
        for (id, n) in other.excused {
            *self.excused.entry(id).or_default() += n;
        }
        self.wrong.extend(other.wrong);
    }
}

impl fmt::Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{} of {} records equal", self.equal, self.all)?;
        for (ids, n) in &self.excused {
            writeln!(f, "    {n} differ by the measuring set-up: {ids}")?;
        }
        Ok(())
    }
}

/// The result of running many records.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// Page-table touches, TLB instructions, barriers, flush decisions.
    pub touches: Tally,
    /// Entries of functions.
    pub functions: Tally,
    /// Records whose program this runner cannot run.
    pub skipped: u64,
}

impl Report {
    fn add(&mut self, kind: RunnerKind, records: &[Record], phases: Option<Vec<Phase>>) {
        let Some(phases) = phases else {
            self.skipped += records.len() as u64;
            return;
        };
        for record in records {
            let context = Context { runner: kind, run: &record.run, phase: &record.phase };
            let Some(phase) = phases.iter().find(|p| p.name == record.phase) else {
                let text = format!("{} {}: the phase is missing", record.run, record.phase);
                self.touches.all += 1;
                self.touches.wrong.push(text);
                continue;
            };
            let touches = differences(record, &phase.counts, What::Touches);
            self.touches.count(&context, record.rep, touches);
            let functions = differences(record, &phase.counts, What::Functions);
            self.functions.count(&context, record.rep, functions);
        }
    }

    fn merge(&mut self, other: Report) {
        self.touches.merge(other.touches);
        self.functions.merge(other.functions);
        self.skipped += other.skipped;
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "groundtruth: {}", self.touches)?;
        write!(f, "function entries: {}", self.functions)?;
        if self.skipped > 0 {
            writeln!(f, "not run: {} records", self.skipped)?;
        }
        for excuse in EXCUSES {
            let used =
                |t: &Tally| t.excused.keys().any(|ids| ids.split(" + ").any(|id| id == excuse.id));
            if used(&self.touches) || used(&self.functions) {
                writeln!(f, "    {}: {}", excuse.id, excuse.reason)?;
            }
        }
        Ok(())
    }
}

/// Runs every run of `records` once, and compares all its phases and repeats.
///
/// # Panics
/// If a run panics.
pub fn run_all(runner: &(impl Runner + Sync), kind: RunnerKind, records: Vec<Record>) -> Report {
    const THREADS: usize = 2;
    let mut groups: BTreeMap<Run, Vec<Record>> = BTreeMap::new();
    for record in records {
        groups.entry(record.run.clone()).or_default().push(record);
    }
    let queue = Mutex::new(groups.into_iter());
    let work = || {
        let mut report = Report::default();
        loop {
            let next = queue.lock().expect("no thread panics with the lock").next();
            let Some((run, records)) = next else { return report };
            report.add(kind, &records, runner.run(&run));
        }
    };
    let mut report = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..THREADS).map(|_| scope.spawn(work)).collect();
        let mut sum = Report::default();
        for thread in threads {
            sum.merge(thread.join().expect("every run ends"));
        }
        sum
    });
    report.touches.wrong.sort();
    report.functions.wrong.sort();
    report
}
