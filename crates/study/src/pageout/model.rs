//! The numbers behind the table.

use super::{KERNELS, SYSCALL, WORKLOAD};
use crate::Observation;
use cost::{Breakdown, Difference, Estimate, PriceList, Ratio};
use events::{Counters, Event};
use report::{StudyRecord, SyscallReport};
use units::ArchId;

/// Invalidations of a page or a range.
pub(super) const TLBI: &[Event] =
    &[Event::TlbiVale1is, Event::TlbiVae1is, Event::TlbiRvale1is, Event::TlbiRvae1is];

/// One machine: a half of the table.
#[derive(Debug)]
pub(super) struct Side {
    pub(super) arch: ArchId,
    pub(super) machine: &'static str,
    pub(super) prices: PriceList,
}

impl Side {
    pub(super) fn new(arch: ArchId, machine: &'static str) -> Side {
        let prices = PriceList::for_machine(machine, arch);
        Side { arch, machine, prices: prices.expect("embedded lists are whole (a test of cost)") }
    }
}

/// What the call did in one run.
#[derive(Debug)]
pub(super) struct Cell {
    pub(super) counts: Counters,
    pub(super) time: Breakdown,
    call: SyscallReport,
}

impl Cell {
    fn of(side: &Side, folio_kb: u64, kernel: &str, records: &[StudyRecord]) -> Option<Cell> {
        let record = records.iter().find(|r| {
            let at = &r.point;
            at.arch == side.arch.name() && at.folio_kb == folio_kb && at.kernel == kernel
        });
        let call = record?.run.as_ref()?.syscall(SYSCALL)?.clone();
        let counts = call.events.counters();
        let time = side.prices.explain(&counts, 0);
        Some(Cell { counts, time, call })
    }

    pub(super) fn sum(&self, events: &[Event]) -> u64 {
        events.iter().map(|&e| self.counts.get(e)).sum()
    }

    /// The sum over ops of that name and what runs inside them.
    pub(super) fn sum_inside(&self, op: &str, events: &[Event]) -> u64 {
        let inside = |path: &str| path.split('/').any(|part| part == op);
        let paths = self.call.by_op.iter().filter(|(path, _)| inside(path));
        paths.map(|(_, counts)| events.iter().map(|&e| counts.get(e)).sum::<u64>()).sum()
    }

    pub(super) fn estimate(&self) -> Estimate {
        self.time.estimate()
    }
}

/// The two kernels at one folio size on one machine; `None` where a run failed.
#[derive(Debug)]
pub(super) struct Pair {
    pub(super) folio_kb: u64,
    pub(super) vanilla: Option<Cell>,
    pub(super) batched: Option<Cell>,
}

impl Pair {
    pub(super) fn of(side: &Side, folio_kb: u64, records: &[StudyRecord]) -> Pair {
        let [vanilla, batched] = KERNELS.map(|k| Cell::of(side, folio_kb, k, records));
        Pair { folio_kb, vanilla, batched }
    }

    pub(super) fn both(&self) -> Option<(&Cell, &Cell)> {
        self.vanilla.as_ref().zip(self.batched.as_ref())
    }

    pub(super) fn ratio(&self) -> Option<Ratio> {
        self.both().map(|(vanilla, batched)| vanilla.time.ratio(&batched.time))
    }

    pub(super) fn difference(&self) -> Option<Difference> {
        self.both().map(|(v, b)| Difference::between(&v.time, &b.time))
    }
}

/// What was published for a folio size on a machine.
pub(super) fn published(side: &Side, folio_kb: u64) -> Option<Observation> {
    Observation::find(WORKLOAD, folio_kb, side.machine)
}
