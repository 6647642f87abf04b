//! `ptescope explain`: why two runs differ.
//!
//! [`Explanation`] takes two reports of `run --json` and splits the difference of their modelled times twice: over
//! classes of events, and over kernel entries and ops. Both sums are exact, in integer
//! picoseconds. [`Explanation::render`] shows them, and says in words what the counts say.

mod counterfactual;
mod study;
mod text;
mod words;

pub use counterfactual::Counterfactual;
pub use study::pairs;

use crate::resolve::machine;
use crate::{parse_set, status};
use cost::{Bill, Breakdown, Difference, Picos, PriceList, Ratio, Sensitivity};
use events::{Counters, Event};
use report::{
    ClassTerm, EXPLAIN_SCHEMA, EventCounts, ExplainReport, ExplainedRun, Failure, FlipTerm, OpTerm,
    RunReport, Step, waterfall,
};
use std::collections::{BTreeMap, BTreeSet};
use units::ArchId;

/// Steps of a waterfall before the rest.
const STEPS_MAX: usize = 12;
/// The name under which a report's page faults are found.
const FAULTS: &str = "fault";
/// The place of what the guest computed itself.
const GUEST_CODE: &str = "(guest code)";
/// The place of events outside every kernel entry.
const ELSEWHERE: &str = "(outside kernel entries)";

/// A kernel entry and an op path inside it.
type Place = (String, String);

/// What is compared of a run.
#[derive(Debug)]
struct Side {
    run: RunReport,
    arch: ArchId,
    prices: PriceList,
    counts: Counters,
    instructions: u64,
    /// The same counts by place.
    places: BTreeMap<Place, Counters>,
}

/// One place's part of the difference.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Part {
    place: Place,
    before: Picos,
    after: Picos,
}

impl Part {
    fn saved(&self) -> Picos {
        self.before - self.after
    }
}

/// Two runs, and why they differ.
#[derive(Debug)]
pub struct Explanation {
    only: Option<String>,
    a: Side,
    b: Side,
    difference: Difference,
    parts: Vec<Part>,
    sensitivity: Sensitivity,
}

impl Explanation {
    /// Compares everything that two runs did, or `only` one kernel entry of them, named as in
    /// the report: `madvise(MADV_PAGEOUT)`, `fault`.
    ///
    /// # Errors
    /// 2 if a report names a machine or an architecture that does not exist, or if neither run
    /// has the entry.
    pub fn new(a: RunReport, b: RunReport, only: Option<&str>) -> Result<Explanation, Failure> {
        if let Some(name) = only {
            check_entry(name, &[&a, &b])?;
        }
        let (a, b) = (Side::new(a, only)?, Side::new(b, only)?);
        let difference = Difference::between(&a.breakdown(), &b.breakdown());
        let parts = parts(&a, &b);
        let sensitivity = Sensitivity::between(a.bill(), b.bill());
        Ok(Explanation { only: only.map(str::to_owned), a, b, difference, parts, sensitivity })
    }

    /// What the second run saves: less than nothing if it is slower.
    pub fn saved(&self) -> Picos {
        self.difference.total()
    }

    /// First ÷ second.
    pub fn ratio(&self) -> Ratio {
        self.a.breakdown().ratio(&self.b.breakdown())
    }

    /// For programs.
    pub fn report(&self) -> ExplainReport {
        let saved = self.sensitivity.estimate();
        ExplainReport {
            a: self.a.summary(),
            b: self.b.summary(),
            by_class: self.difference.changes().iter().map(class_term).collect(),
            by_op: self.parts.iter().map(op_term).collect(),
            flips: self.sensitivity.flips().iter().map(flip_term).collect(),
            only: self.only.clone().unwrap_or_default(),
            saved_ps: saved.time.get(),
            saved_high_ps: saved.high.get(),
            saved_low_ps: saved.low.get(),
            schema: EXPLAIN_SCHEMA.to_owned(),
            sentences: self.sentences(),
        }
    }

    /// From the first time to the second, class by class, as SVG.
    pub fn waterfall(&self) -> String {
        #[expect(clippy::cast_precision_loss, reason = "for a drawing, a few digits are enough")]
        let float = |time: Picos| time.get() as f64;
        let mut steps: Vec<Step> = Vec::new();
        let mut rest = Picos::ZERO;
        for change in self.difference.changes() {
            let saved = change.saved();
            if steps.len() < STEPS_MAX && saved != Picos::ZERO {
                let change_ps = -float(saved);
                let text = Picos::new(-saved.get()).to_string();
                steps.push(Step { label: change.words.clone(), change: change_ps, text });
            } else {
                rest = rest + saved;
            }
        }
        if rest != Picos::ZERO {
            let text = Picos::new(-rest.get()).to_string();
            steps.push(Step { label: "everything else".to_owned(), change: -float(rest), text });
        }
        let (a, b) = (self.a.bill().total(), self.b.bill().total());
        waterfall(("A", float(a), &a.to_string()), &steps, ("B", &b.to_string()))
    }

    /// Whether both are priced by one list.
    fn same_prices(&self) -> bool {
        self.a.prices.name() == self.b.prices.name()
    }
}

impl Side {
    fn new(run: RunReport, only: Option<&str>) -> Result<Side, Failure> {
        let usage = |message| Failure { message, status: status::USAGE };
        let arch = ArchId::parse(&run.arch).ok_or_else(|| {
            usage(format!("the report names an unknown architecture `{}`", run.arch))
        })?;
        let prices = prices(&run, arch)?;
        let (counts, instructions) = match only {
            None => (run.events.counters(), run.instructions),
            Some(name) => (entry(&run, name).map_or_else(Counters::new, |e| e.0.counters()), 0),
        };
        let places = places(&run, only);
        Ok(Side { run, arch, prices, counts, instructions, places })
    }

    fn bill(&self) -> Bill<'_> {
        Bill { prices: &self.prices, counts: &self.counts, instructions: self.instructions }
    }

    fn breakdown(&self) -> Breakdown {
        self.prices.explain(&self.counts, self.instructions)
    }

    fn sum(&self, events: &[Event]) -> u64 {
        events.iter().map(|&e| self.counts.get(e)).sum()
    }

    /// The sum over ops of that name and what runs inside them.
    fn sum_inside(&self, op: &str, events: &[Event]) -> u64 {
        let inside = |path: &str| path.split('/').any(|part| part == op);
        let places = self.places.iter().filter(|((_, path), _)| inside(path));
        places.map(|(_, counts)| events.iter().map(|&e| counts.get(e)).sum::<u64>()).sum()
    }

    /// Time by place. What the report counts in total but in no place is `ELSEWHERE`.
    fn times(&self) -> BTreeMap<Place, Picos> {
        let at = |name: &str| (name.to_owned(), String::new());
        let mut times: BTreeMap<Place, Picos> =
            self.places.iter().map(|(p, c)| (p.clone(), self.prices.time(c, 0))).collect();
        times.insert(at(GUEST_CODE), self.prices.time(&Counters::new(), self.instructions));
        let placed: Picos = times.values().copied().sum();
        times.insert(at(ELSEWHERE), self.bill().total() - placed);
        times
    }

    fn summary(&self) -> ExplainedRun {
        let estimate = self.breakdown().estimate();
        ExplainedRun {
            arch: self.run.arch.clone(),
            argv: self.run.guest.argv.clone(),
            kernel: self.run.kernel.clone(),
            machine: self.run.machine.clone(),
            high_ps: estimate.high.get(),
            low_ps: estimate.low.get(),
            ps: estimate.time.get(),
            prices: self.prices.name().to_owned(),
        }
    }
}

/// The prices that the run's clock went by.
fn prices(run: &RunReport, arch: ArchId) -> Result<PriceList, Failure> {
    let set = run.settings.set.iter().map(|(key, value)| parse_set(&format!("{key}={value}")));
    let set = set.collect::<Result<Vec<_>, _>>();
    let set = set.map_err(|e| Failure { message: e.to_string(), status: status::USAGE })?;
    let machine = machine(Some(&run.machine), Some(arch), &set)?;
    let prices = PriceList::for_machine(machine.name, machine.arch)
        .and_then(|list| list.with_instruction(machine.clock.ns_per_instruction()));
    prices.map_err(|error| Failure {
        message: format!("internal error in the built-in price lists: {error}; please report it"),
        status: status::INTERNAL,
    })
}

/// Counts of a kernel entry, in total and by op.
fn entry<'r>(
    run: &'r RunReport,
    name: &str,
) -> Option<(&'r EventCounts, &'r BTreeMap<String, EventCounts>)> {
    if name == FAULTS {
        return Some((&run.faults.events, &run.faults.by_op));
    }
    run.syscall(name).map(|s| (&s.events, &s.by_op))
}

fn check_entry(name: &str, runs: &[&RunReport]) -> Result<(), Failure> {
    if runs.iter().any(|run| entry(run, name).is_some()) {
        return Ok(());
    }
    let known: BTreeSet<&str> = runs
        .iter()
        .flat_map(|r| &r.by_syscall)
        .map(|s| s.syscall.as_str())
        .chain([FAULTS])
        .collect();
    let known = known.into_iter().collect::<Vec<_>>().join(", ");
    let message = format!("neither run has a kernel entry `{name}`; there are {known}");
    Err(Failure { message, status: status::USAGE })
}

fn places(run: &RunReport, only: Option<&str>) -> BTreeMap<Place, Counters> {
    let mut places: BTreeMap<Place, Counters> = BTreeMap::new();
    let names = run.by_syscall.iter().map(|s| s.syscall.as_str()).chain([FAULTS]);
    for name in names.filter(|name| only.is_none_or(|only| only == *name)) {
        for (path, counts) in entry(run, name).into_iter().flat_map(|(_, by_op)| by_op) {
            places.entry((name.to_owned(), path.clone())).or_default().merge(&counts.counters());
        }
    }
    places
}

fn parts(a: &Side, b: &Side) -> Vec<Part> {
    let (before, after) = (a.times(), b.times());
    let places: BTreeSet<&Place> = before.keys().chain(after.keys()).collect();
    let at = |times: &BTreeMap<Place, Picos>, place: &Place| {
        times.get(place).copied().unwrap_or_default()
    };
    let part = |place: &Place| Part {
        place: place.clone(),
        before: at(&before, place),
        after: at(&after, place),
    };
    let mut parts: Vec<Part> = places.into_iter().map(part).collect();
    parts.retain(|p| p.before != Picos::ZERO || p.after != Picos::ZERO);
    let size = |p: &Part| p.saved().get().abs();
    parts.sort_by(|x, y| size(y).cmp(&size(x)).then_with(|| x.place.cmp(&y.place)));
    parts
}

fn class_term(change: &cost::Change) -> ClassTerm {
    ClassTerm {
        class: change.class.clone(),
        count_a: change.before,
        count_b: change.after,
        ps_a: change.before_time.get(),
        ps_b: change.after_time.get(),
        saved_ps: change.saved().get(),
        words: change.words.clone(),
    }
}

fn op_term(part: &Part) -> OpTerm {
    OpTerm {
        entry: part.place.0.clone(),
        op: part.place.1.clone(),
        ps_a: part.before.get(),
        ps_b: part.after.get(),
        saved_ps: part.saved().get(),
    }
}

fn flip_term(flip: &cost::Flip) -> FlipTerm {
    FlipTerm {
        at_ps: flip.at.get(),
        class: flip.lever.class.clone(),
        prices: flip.lever.list.clone(),
        price_ps: flip.lever.price.get(),
        sigmas: flip.sigmas,
    }
}

#[cfg(test)]
mod tests;
