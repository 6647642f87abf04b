//! Counts by ground-truth scope, as `/sys/kernel/debug/mm_events` shows them.

use events::{ByOp, Counters, Op, Scope, Sink};
use std::collections::BTreeMap;

/// A sink whose counts can be read back by scope.
pub trait CountsByScope: Sink {
    /// What was counted so far in each scope by system calls and faults, interrupts on other CPUs left out. Empty
    /// for a sink that does not keep counts.
    fn by_scope(&self) -> BTreeMap<Scope, Counters>;
}

impl CountsByScope for () {
    fn by_scope(&self) -> BTreeMap<Scope, Counters> {
        BTreeMap::new()
    }
}

impl CountsByScope for Counters {
    /// A flat array knows no scopes: everything is in `none`.
    fn by_scope(&self) -> BTreeMap<Scope, Counters> {
        BTreeMap::from([(Scope::None, self.clone())])
    }
}

/// The context of work done in an interrupt: for a flush that another CPU asked for.
const INTERRUPT: &str = "irq";

impl CountsByScope for ByOp {
    fn by_scope(&self) -> BTreeMap<Scope, Counters> {
        sums(self, |context| context != INTERRUPT)
    }
}

/// What was counted so far in each scope, interrupts on other CPUs included.
pub fn by_scope_on_all_cpus(sink: &ByOp) -> BTreeMap<Scope, Counters> {
    sums(sink, |_| true)
}

fn sums(sink: &ByOp, counts: impl Fn(&str) -> bool) -> BTreeMap<Scope, Counters> {
    let mut sums: BTreeMap<Scope, Counters> = BTreeMap::new();
    let contexts = sink.by_context().into_iter().filter(|(context, ..)| counts(context));
    for (path, counters) in contexts.flat_map(|(.., ops)| ops) {
        sums.entry(scope_of(&path)).or_default().merge(&counters);
    }
    sums
}

/// The scope of an op path: that of its innermost op that opens one.
fn scope_of(path: &str) -> Scope {
    let op_of = |name: &str| Op::ALL.iter().find(|op| op.name() == name);
    path.rsplit('/').find_map(|name| op_of(name)?.scope()).unwrap_or(Scope::None)
}

#[cfg(test)]
mod tests {
    use super::*;
    use events::Event;

    #[test]
    fn scopes_are_those_of_the_sink_without_interrupts() {
        let mut sink = ByOp::new();
        sink.begin("munmap");
        sink.add(Event::DsbIsh, 1);
        sink.enter(Op::UnmapPageRange);
        sink.enter(Op::ZapPteRange);
        sink.add(Event::PtepGet, 2);
        sink.begin("irq");
        sink.add(Event::Cr3Reload, 4);
        sink.end();
        sink.exit();
        sink.exit();
        sink.end();
        let mine = CountsByScope::by_scope(&sink);
        assert_eq!(mine[&Scope::Zap].get(Event::PtepGet), 2);
        assert_eq!(mine[&Scope::None].get(Event::DsbIsh), 1);
        assert_eq!(mine[&Scope::None].get(Event::Cr3Reload), 0);
        assert_eq!(ByOp::by_scope(&sink)[&Scope::None].get(Event::Cr3Reload), 4);
    }
}
