//! What happened when: entries, ops, changed page-table entries and the flushes that they made necessary.
//!
//! A [`Tracer`] sits in a [`ByOp`](crate::ByOp) and writes a bounded [`TraceLog`]. It is given a price for each event,
//! so that time passes inside a kernel entry as counts grow; the entry itself starts when the clock says.

use crate::{Counters, Event, Op};
use units::{CpuId, VirtAddr};

/// Something that is drawn.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    /// Picoseconds since the start.
    pub ps: u64,
    /// On which CPU.
    pub cpu: CpuId,
    /// What.
    pub what: What,
}

/// What a [`Record`] says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum What {
    /// A kernel entry starts; index into [`TraceLog::names`].
    Entry(usize),
    /// The innermost kernel entry ends.
    EntryEnd,
    /// An op starts.
    Op(Op),
    /// The innermost op ends.
    OpEnd,
    /// Entries of the page table lost rights, so that a flush is owed.
    Change(Span, ChangeId),
    /// Cached translations were dropped: the instruction, what it covers (nothing named: everything of an address
    /// space), and the changes that made it necessary.
    Flush(&'static str, Option<Span>, Vec<ChangeId>),
    /// Counters so far, one for each of [`TRACKS`].
    Counts([u64; TRACKS.len()]),
}

/// Addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span {
    /// The first.
    pub start: VirtAddr,
    /// How many.
    pub bytes: u64,
}

impl Span {
    fn end(self) -> u64 {
        self.start.get().saturating_add(self.bytes)
    }

    fn touches(self, other: Span) -> bool {
        self.start.get() < other.end() && other.start.get() < self.end()
    }
}

/// Names a change in the flush that it made necessary.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ChangeId(pub u64);

/// Who drops translations, when a flush is reported.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Flush {
    /// The CPU whose translations go.
    pub cpu: CpuId,
    /// Whether those of all others go too.
    pub everywhere: bool,
    /// The instruction.
    pub name: &'static str,
    /// What it covers; `None` for everything of the address space.
    pub span: Option<Span>,
}

/// A counter track: its name, and the events that it sums.
pub const TRACKS: [(&str, &[Event]); 5] = [
    ("loads of page-table entries", &[Event::PteRead]),
    (
        "changes of page-table entries",
        &[
            Event::PteWrite,
            Event::PteXchg,
            Event::PteCmpxchg,
            Event::PmdWrite,
            Event::PmdXchg,
            Event::PmdCmpxchg,
        ],
    ),
    (
        "TLB flushes",
        &[
            Event::TlbiVale1is,
            Event::TlbiVae1is,
            Event::TlbiRvale1is,
            Event::TlbiRvae1is,
            Event::TlbiAside1is,
            Event::Invlpg,
            Event::Cr3Reload,
        ],
    ),
    ("barriers of flushes", &[Event::DsbIsh, Event::DsbIshst]),
    ("faults", &[Event::FnHandleMmFault]),
];

/// Everything that is drawn of a run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TraceLog {
    /// In the order in which it happened.
    pub records: Vec<Record>,
    /// Names of kernel entries.
    pub names: Vec<String>,
    /// Kernel entries that are not drawn, to keep the trace small.
    pub entries_skipped: u64,
    /// Records inside drawn entries that are not drawn.
    pub records_skipped: u64,
}

/// How large a trace may become.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TraceLimits {
    /// Records in all. While half of them are free every kernel entry is drawn, then one in 8 of each name,
    /// when a quarter is free one in 64, and so on.
    pub records: usize,
    /// Records in one kernel entry; what follows in it is left out, but the ends of what was started.
    pub entry: usize,
}

impl TraceLimits {
    /// About 20 MB as a file.
    pub const DEFAULT: TraceLimits = TraceLimits { records: 400_000, entry: 20_000 };
}

/// A change that no flush has covered yet on every CPU.
#[derive(Clone, Debug)]
struct Owed {
    span: Span,
    id: ChangeId,
    /// CPUs that have flushed it.
    flushed: Vec<CpuId>,
}

/// More changes than these are not waited for: the oldest was never to be flushed, as when a process ends.
const OWED_MAX: usize = 4096;

/// Writes a [`TraceLog`].
#[derive(Clone, Debug)]
pub struct Tracer {
    /// Picoseconds of each event.
    prices: Vec<u64>,
    limits: TraceLimits,
    log: TraceLog,
    /// When the clock was set, and what had been counted then.
    set_ps: u64,
    set_counts: Counters,
    /// The latest time that was written down: time never runs backwards.
    last_ps: u64,
    cpu: CpuId,
    /// Depth of entries; 0 outside.
    depth: usize,
    /// Kernel entries so far, by name.
    entries: Vec<u64>,
    /// Records of the entry that is being drawn; `None` if it is not.
    drawn: Option<usize>,
    /// Ops and entries that are open, and whether their start was drawn.
    open: Vec<bool>,
    owed: Vec<Owed>,
    changes: u64,
}

impl Tracer {
    /// A tracer; `prices` gives the picoseconds of each event, in the order of [`Event::ALL`].
    pub fn new(prices: Vec<u64>, limits: TraceLimits) -> Tracer {
        Tracer {
            prices,
            limits,
            log: TraceLog::default(),
            set_ps: 0,
            set_counts: Counters::new(),
            last_ps: 0,
            cpu: CpuId::default(),
            depth: 0,
            entries: Vec::new(),
            drawn: None,
            open: Vec::new(),
            owed: Vec::new(),
            changes: 0,
        }
    }

    /// What was drawn.
    pub fn finish(self) -> TraceLog {
        self.log
    }

    /// The kernel is about to run on `cpu`, at `ns`, with these counts so far.
    pub(crate) fn set_clock(&mut self, cpu: CpuId, ns: u64, counts: &Counters) {
        self.cpu = cpu;
        self.set_ps = ns.saturating_mul(1000);
        self.set_counts = counts.clone();
    }

    pub(crate) fn begin(&mut self, context: &str, counts: &Counters) {
        let name = self.name(context);
        if self.depth == 0 {
            self.drawn = self.is_drawn(self.entries[name]).then_some(0);
            self.entries[name] += 1;
            self.log.entries_skipped += u64::from(self.drawn.is_none());
        }
        self.depth += 1;
        let drawn = self.record(What::Entry(name), counts);
        self.open.push(drawn);
    }

    /// The index of a kernel entry's name.
    fn name(&mut self, context: &str) -> usize {
        let known = self.log.names.iter().position(|name| name == context);
        known.unwrap_or_else(|| {
            self.log.names.push(context.to_owned());
            self.entries.push(0);
            self.log.names.len() - 1
        })
    }

    /// Whether the entry that starts, the `nr`-th of its name from 0, is one of those that are drawn.
    fn is_drawn(&self, nr: u64) -> bool {
        let mut free = self.limits.records.saturating_sub(self.log.records.len());
        if free <= self.limits.entry {
            return false;
        }
        let mut stride: u64 = 1;
        while free < self.limits.records / 2 {
            free = free.saturating_mul(2);
            stride = stride.saturating_mul(8);
        }
        nr.is_multiple_of(stride)
    }

    pub(crate) fn end(&mut self, counts: &Counters) {
        self.close(What::EntryEnd, counts);
        self.depth = self.depth.saturating_sub(1);
        if self.depth == 0 && self.drawn.is_some() {
            let sums = TRACKS.map(|(_, events)| events.iter().map(|&e| counts.get(e)).sum());
            self.push(What::Counts(sums), counts);
            self.drawn = None;
        }
    }

    pub(crate) fn enter(&mut self, op: Op, counts: &Counters) {
        let drawn = self.record(What::Op(op), counts);
        self.open.push(drawn);
    }

    pub(crate) fn exit(&mut self, counts: &Counters) {
        self.close(What::OpEnd, counts);
    }

    /// Ends are drawn if their starts were, whatever the limit.
    fn close(&mut self, what: What, counts: &Counters) {
        if self.open.pop() == Some(true) {
            self.push(what, counts);
        }
    }

    pub(crate) fn changed(&mut self, span: Span, counts: &Counters) {
        // Neighbours that change one after the other are one change.
        if let (Some(Record { what: What::Change(last, id), .. }), Some(owed)) =
            (self.log.records.last_mut(), self.owed.last_mut())
            && owed.id == *id
            && last.end() == span.start.get()
            && owed.flushed.is_empty()
        {
            last.bytes += span.bytes;
            owed.span = *last;
            return;
        }
        let id = ChangeId(self.changes);
        if self.record(What::Change(span, id), counts) {
            self.changes += 1;
            if self.owed.len() == OWED_MAX {
                self.owed.remove(0);
            }
            self.owed.push(Owed { span, id, flushed: Vec::new() });
        }
    }

    pub(crate) fn flushed(&mut self, flush: &Flush, counts: &Counters) {
        let covers = |owed: &Owed| {
            flush.span.is_none_or(|span| span.touches(owed.span))
                && !owed.flushed.contains(&flush.cpu)
        };
        let causes = self.owed.iter().filter(|owed| covers(owed)).map(|owed| owed.id).collect();
        let own = std::mem::replace(&mut self.cpu, flush.cpu);
        let drawn = self.record(What::Flush(flush.name, flush.span, causes), counts);
        self.cpu = own;
        if flush.everywhere {
            self.owed.retain(|owed| !covers(owed));
        } else if drawn {
            self.owed.iter_mut().filter(|o| covers(o)).for_each(|o| o.flushed.push(flush.cpu));
        }
    }

    /// Writes a record down unless its entry is not drawn or has as many as it may.
    fn record(&mut self, what: What, counts: &Counters) -> bool {
        match &mut self.drawn {
            Some(nr) if *nr < self.limits.entry / 2 => {
                *nr += 1;
                self.push(what, counts);
                true
            }
            Some(_) => {
                self.log.records_skipped += 1;
                false
            }
            None => false,
        }
    }

    fn push(&mut self, what: What, counts: &Counters) {
        let passed: u64 = self
            .prices
            .iter()
            .zip(Event::ALL)
            .map(|(price, &event)| {
                price * counts.get(event).saturating_sub(self.set_counts.get(event))
            })
            .sum();
        self.last_ps = self.last_ps.max(self.set_ps.saturating_add(passed));
        self.log.records.push(Record { ps: self.last_ps, cpu: self.cpu, what });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{ByOp, Sink};

    fn tracer(limits: TraceLimits) -> ByOp {
        let mut prices = vec![0; Event::COUNT];
        prices[Event::PteRead as usize] = 10;
        let mut sink = ByOp::new();
        sink.trace(Tracer::new(prices, limits));
        sink
    }

    fn span(page: u64, pages: u64) -> Span {
        Span { start: VirtAddr::new(page << 12), bytes: pages << 12 }
    }

    fn change(sink: &mut ByOp, page: u64) {
        sink.pte_changed(span(page, 1));
    }

    #[test]
    fn time_passes_as_counts_grow() {
        let mut sink = tracer(TraceLimits::DEFAULT);
        sink.add(Event::PteRead, 1000);
        sink.set_clock(CpuId::new(3), 7);
        sink.begin("munmap");
        sink.add(Event::PteRead, 2);
        sink.enter(Op::ZapPteRange);
        sink.add(Event::PteRead, 1);
        sink.exit();
        sink.end();
        let log = sink.take_trace().expect("was traced");
        let times: Vec<u64> = log.records.iter().map(|r| r.ps).collect();
        assert_eq!(times, [7000, 7020, 7030, 7030, 7030]);
        assert!(log.records.iter().all(|r| r.cpu == CpuId::new(3)));
        assert_eq!((log.names, log.entries_skipped), (vec!["munmap".to_owned()], 0));
    }

    #[test]
    fn a_flush_knows_the_changes_that_made_it_necessary() {
        let mut sink = tracer(TraceLimits::DEFAULT);
        sink.begin("madvise");
        change(&mut sink, 4);
        change(&mut sink, 5);
        change(&mut sink, 9);
        let flush = |cpu, everywhere, span| {
            let cpu = CpuId::new(cpu);
            Flush { cpu, everywhere, name: "TLBI", span }
        };
        sink.flushed(&flush(0, true, Some(span(9, 1))));
        sink.flushed(&flush(0, false, None));
        sink.flushed(&flush(1, false, None));
        sink.flushed(&flush(1, false, None));
        sink.end();
        let log = sink.take_trace().expect("was traced");
        let changes = log.records.iter().filter_map(|r| match &r.what {
            What::Change(span, id) => Some((*span, *id)),
            _ => None,
        });
        assert_eq!(
            changes.collect::<Vec<_>>(),
            [(span(4, 2), ChangeId(0)), (span(9, 1), ChangeId(1))]
        );
        let causes = log.records.iter().filter_map(|r| match &r.what {
            What::Flush(_, _, causes) => Some(causes.clone()),
            _ => None,
        });
        let expected = [vec![ChangeId(1)], vec![ChangeId(0)], vec![ChangeId(0)], vec![]];
        assert_eq!(causes.collect::<Vec<_>>(), expected);
    }

    #[test]
    fn a_trace_stays_small_and_whole() {
        let limits = TraceLimits { records: 1000, entry: 20 };
        let mut sink = tracer(limits);
        for _ in 0..10_000 {
            sink.begin("fault");
            for _ in 0..3 {
                sink.enter(Op::HandleMmFault);
            }
            (0..3).for_each(|_| sink.exit());
            (0..30).for_each(|page| change(&mut sink, 2 * page));
            sink.end();
        }
        let log = sink.take_trace().expect("was traced");
        assert!((500..=1000).contains(&log.records.len()), "{}", log.records.len());
        assert!(log.entries_skipped > 9000 && log.records_skipped > 0);
        let count = |is: fn(&What) -> bool| log.records.iter().filter(|r| is(&r.what)).count();
        let starts = count(|w| matches!(w, What::Entry(_) | What::Op(_)));
        assert_eq!(starts, count(|w| matches!(w, What::EntryEnd | What::OpEnd)));
    }

    #[test]
    fn the_first_of_each_kind_of_entry_is_drawn() {
        let mut sink = tracer(TraceLimits { records: 1000, entry: 20 });
        for name in ["fault"; 5000].into_iter().chain(["madvise"]) {
            sink.begin(name);
            sink.end();
        }
        let log = sink.take_trace().expect("was traced");
        let last = log.records.iter().rev().find_map(|record| match record.what {
            What::Entry(name) => Some(log.names[name].as_str()),
            _ => None,
        });
        assert_eq!(last, Some("madvise"));
        assert!(log.entries_skipped > 4000);
    }
}
