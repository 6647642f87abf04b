//! What a study looks at in a run: counts of one kernel entry, their price, or TLB misses.

use crate::plan::{Look, Per};
use cost::{Breakdown, PriceList};
use events::{Counters, Event, Sink};
use report::{Point, RunReport, StudyRecord, SyscallReport};
use std::collections::BTreeMap;
use units::ArchId;

/// The part of a run that its study looks at.
#[derive(Clone, Debug)]
pub(crate) struct Measured {
    /// What the kernel did.
    pub(crate) counts: Counters,
    /// The same, priced.
    pub(crate) time: Breakdown,
    /// What the TLBs did in the whole run.
    pub(crate) tlb: BTreeMap<String, u64>,
    /// What the counts are divided by.
    pub(crate) units: u64,
    /// The same in plots, where folios of different sizes stand beside each other: pages.
    pub(crate) plot_units: u64,
}

impl Measured {
    /// The part of `record` that is looked at; `None` if it failed or has no such entry.
    pub(crate) fn of(look: &Look, record: &StudyRecord, all: &[StudyRecord]) -> Option<Measured> {
        let run = record.run.as_ref()?;
        let (mut counts, mut instructions, calls) = counts(look, run)?;
        let mut tlb = run.tlb.clone();
        if let Some(point) = look.baseline(&record.point) {
            let other = find(all, &point)?.run.as_ref()?;
            let (less, fewer, _) = self::counts(look, other)?;
            counts = minus(&counts, &less);
            instructions = instructions.saturating_sub(fewer);
            for (name, n) in &mut tlb {
                *n = n.saturating_sub(other.tlb.get(name).copied().unwrap_or(0));
            }
        }
        let arch = ArchId::parse(&run.arch)?;
        let prices = PriceList::for_machine(&run.machine, arch).ok()?;
        let time = prices.explain(&counts, instructions);
        let units = units(look, &record.point, calls);
        let pages = if look.per == Per::Folio { record.point.folio_kb.max(4) / 4 } else { 1 };
        Some(Measured { counts, time, tlb, units, plot_units: units * pages })
    }

    /// A statistic of the TLBs for each access of the guest to data, in percent.
    #[expect(clippy::cast_precision_loss, reason = "a rate is shown with three digits")]
    pub(crate) fn tlb_percent(&self, name: &str) -> f64 {
        let get = |name: &str| self.tlb.get(name).copied().unwrap_or(0) as f64;
        let accesses = get("data_accesses");
        if accesses > 0.0 { 100.0 * get(name) / accesses } else { 0.0 }
    }
}

/// The record of a point.
pub(crate) fn find<'r>(records: &'r [StudyRecord], point: &Point) -> Option<&'r StudyRecord> {
    records.iter().find(|record| record.point == *point)
}

/// Counts, guest instructions among them, and how often the entry was made.
fn counts(look: &Look, run: &RunReport) -> Option<(Counters, u64, u64)> {
    let faults = &run.faults;
    let fault_calls = faults.minor + faults.major;
    let (whole, by_op, calls): (_, Vec<_>, u64) = match (look.entry.as_deref(), &look.op) {
        (None, None) => return Some((run.events.counters(), run.instructions, 1)),
        (None, Some(_)) => {
            let calls = run.by_syscall.iter().map(|call| &call.by_op);
            (&run.events, calls.chain([&faults.by_op]).collect(), 1)
        }
        (Some("fault"), _) => (&faults.events, vec![&faults.by_op], fault_calls),
        (Some(name), _) => {
            let SyscallReport { by_op, events, calls, .. } = run.syscall(name)?;
            (events, vec![by_op], *calls)
        }
    };
    let Some(op) = &look.op else { return Some((whole.counters(), 0, calls)) };
    let mut sum = Counters::new();
    for (path, events) in by_op.into_iter().flatten() {
        if path.split('/').any(|part| part == op) {
            sum.merge(&events.counters());
        }
    }
    Some((sum, 0, calls))
}

fn minus(counts: &Counters, less: &Counters) -> Counters {
    let mut rest = Counters::new();
    for &event in Event::ALL {
        rest.add(event, counts.get(event).saturating_sub(less.get(event)));
    }
    rest
}

fn units(look: &Look, point: &Point, calls: u64) -> u64 {
    let mib = look.mib_arg.and_then(|arg| point.args.get(arg)?.parse::<u64>().ok());
    let kb = mib.unwrap_or(0).saturating_mul(1024);
    let units = match look.per {
        Per::Run => 1,
        Per::Call => calls,
        Per::Page => kb / 4,
        Per::Folio => kb / point.folio_kb.max(4),
    };
    units.max(1)
}
