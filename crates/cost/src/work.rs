//! The work of the kernel: how many instructions it executes for an event.
// FIDELITY: kernel-instructions derived from events, not executed; fitted on what a real 6.12
// executed.

use crate::{PriceError, Unknown};
use events::{Counters, Event};
use serde::Deserialize;
use std::fmt::Write as _;
use units::ArchId;

/// Events that take the same work.
#[derive(Clone, Debug, PartialEq)]
pub struct Work {
    /// The events.
    pub events: Vec<Event>,
    /// Instructions for one of them, arm64 and x86-64.
    pub instructions: [u64; 2],
    /// What was believed before the fit; 0 where there is no such event.
    pub prior: [f64; 2],
    /// Whether the instructions are the kernel's business; else the event has a price that covers them.
    pub counts: bool,
}

/// `prices/work.toml`.
#[derive(Clone, Debug, PartialEq)]
pub struct WorkTable(Vec<Work>);

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    schema: String,
    work: Vec<FileWork>,
    #[serde(default)]
    aside: Vec<FileAside>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct FileWork {
    events: Vec<String>,
    arm64: u64,
    x86_64: u64,
    prior_arm64: f64,
    prior_x86_64: f64,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct FileAside {
    events: Vec<String>,
    prior_arm64: f64,
    prior_x86_64: f64,
}

const SCHEMA: &str = "ptescope.work/1";

/// How far the priors may be off: standard deviation of the logarithm.
const SPREAD: f64 = 0.7;

const fn column(arch: ArchId) -> usize {
    match arch {
        ArchId::Arm64 => 0,
        ArchId::X86_64 => 1,
    }
}

impl WorkTable {
    /// The table that is built in.
    ///
    /// # Errors
    /// [`PriceError`] if the file contradicts itself or the list of events (a test reads it).
    pub fn builtin() -> Result<WorkTable, PriceError> {
        WorkTable::parse(include_str!("../prices/work.toml"))
    }

    fn parse(text: &str) -> Result<WorkTable, PriceError> {
        let file: File = toml::from_str(text).map_err(|e| PriceError::Toml(e.to_string()))?;
        if file.schema != SCHEMA {
            return Err(PriceError::Schema(file.schema));
        }
        let mut placed = vec![false; Event::COUNT];
        let mut events = |names: &[String]| -> Result<Vec<Event>, PriceError> {
            names.iter().map(|n| place(&mut placed, n)).collect()
        };
        let mut table = Vec::new();
        for entry in file.work {
            table.push(Work {
                events: events(&entry.events)?,
                instructions: [entry.arm64, entry.x86_64],
                prior: [entry.prior_arm64, entry.prior_x86_64],
                counts: true,
            });
        }
        for entry in file.aside {
            table.push(Work {
                events: events(&entry.events)?,
                instructions: [0, 0],
                prior: [entry.prior_arm64, entry.prior_x86_64],
                counts: false,
            });
        }
        Ok(WorkTable(table))
    }

    /// Instructions of each event on `arch`.
    pub(crate) fn per_event(&self, arch: ArchId) -> Vec<u64> {
        let mut work = vec![0; Event::COUNT];
        for entry in &self.0 {
            for &event in &entry.events {
                work[event as usize] = entry.instructions[column(arch)];
            }
        }
        work
    }

    /// The work that is unknown on `arch`.
    pub fn unknowns(&self, arch: ArchId) -> Vec<Unknown> {
        let here = self.0.iter().filter(|w| w.prior[column(arch)] > 0.0);
        here.map(|w| Unknown {
            name: w.events.iter().map(|e| e.name()).collect::<Vec<_>>().join(", "),
            prior: w.prior[column(arch)],
            spread: SPREAD,
        })
        .collect()
    }

    /// How often each of [`WorkTable::unknowns`] occurs in the counts.
    pub fn occurrences(&self, arch: ArchId, counts: &Counters) -> Vec<f64> {
        let here = self.0.iter().filter(|w| w.prior[column(arch)] > 0.0);
        #[expect(clippy::cast_precision_loss, reason = "a fit needs a few digits of a count")]
        let sum = |w: &Work| w.events.iter().map(|&e| counts.get(e)).sum::<u64>() as f64;
        here.map(sum).collect()
    }

    /// Takes what a fit of the [`WorkTable::unknowns`] of `arch` found, in whole instructions.
    pub fn set(&mut self, arch: ArchId, found: &[f64]) {
        let here = self.0.iter_mut().filter(|w| w.prior[column(arch)] > 0.0);
        for (work, &value) in here.zip(found) {
            #[expect(clippy::cast_possible_truncation, reason = "`as` saturates")]
            #[expect(clippy::cast_sign_loss, reason = "estimates are positive")]
            let whole = value.round() as u64;
            work.instructions[column(arch)] = if work.counts { whole } else { 0 };
        }
    }

    /// The table as a file, with `comment` (lines that start with `#`) on top.
    pub fn to_toml(&self, comment: &str) -> String {
        let mut text = format!("{comment}schema = \"{SCHEMA}\"\n");
        for work in &self.0 {
            let names: Vec<String> =
                work.events.iter().map(|e| format!("\"{}\"", e.name())).collect();
            let head = if work.counts { "work" } else { "aside" };
            let _ = write!(text, "\n[[{head}]]\nevents = [{}]\n", names.join(", "));
            if work.counts {
                let [arm64, x86_64] = work.instructions;
                let _ = write!(text, "arm64 = {arm64}\nx86_64 = {x86_64}\n");
            }
            let [arm64, x86_64] = work.prior;
            let _ = write!(text, "prior_arm64 = {arm64:.1}\nprior_x86_64 = {x86_64:.1}\n");
        }
        text
    }
}

fn place(placed: &mut [bool], name: &str) -> Result<Event, PriceError> {
    let event = Event::parse(name).ok_or_else(|| PriceError::Event(name.to_owned()))?;
    if std::mem::replace(&mut placed[event as usize], true) {
        return Err(PriceError::Twice(name.to_owned()));
    }
    Ok(event)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Datum, fit};
    use events::Sink;

    #[test]
    fn the_table_is_read_as_it_was_written() {
        let table = WorkTable::builtin().expect("the embedded table is whole");
        assert_eq!(WorkTable::parse(&table.to_toml("# A comment.\n")), Ok(table));
    }

    #[test]
    fn a_fit_goes_into_the_column_of_its_architecture() {
        let mut table = WorkTable::builtin().expect("the embedded table is whole");
        let x86 = table.per_event(ArchId::X86_64);
        let mut counts = Counters::new();
        counts.add(Event::FnCheckPte, 100);
        let datum = Datum {
            name: "walk".to_owned(),
            counts: table.occurrences(ArchId::Arm64, &counts),
            value: 12_300.0,
            spread: 0.001,
            group: 0,
        };
        let found = fit(&table.unknowns(ArchId::Arm64), &[datum], 0.001).expect("solves");
        table.set(ArchId::Arm64, found.values());
        assert_eq!(table.per_event(ArchId::Arm64)[Event::FnCheckPte as usize], 123);
        assert_eq!(table.per_event(ArchId::X86_64), x86);
        assert_eq!(table.per_event(ArchId::Arm64)[Event::PageZero as usize], 0);
    }

    #[test]
    fn an_event_is_in_one_place() {
        let entry = |event: &str| {
            format!(
                "[[work]]\nevents = [\"{event}\"]\narm64 = 1\nx86_64 = 1\nprior_arm64 = 1.0\nprior_x86_64 = 1.0\n"
            )
        };
        let parse = |body: String| WorkTable::parse(&format!("schema = \"{SCHEMA}\"\n{body}"));
        let twice = parse(entry("pte_read") + &entry("pte_read")).expect_err("twice");
        assert_eq!(twice, PriceError::Twice("pte_read".to_owned()));
        let unknown = parse(entry("pte_reed")).expect_err("unknown");
        assert_eq!(unknown, PriceError::Event("pte_reed".to_owned()));
    }
}
