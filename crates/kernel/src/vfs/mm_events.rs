//! `/sys/kernel/debug/mm_events`: the counts of a process, as the instrumented Linux kernels of
//! the ground truth offer them.
//!
//! Writing `1` zeroes the counts and starts them for the writing process; `0` stops. Reading gives lines
//! `task SCOPE EVENT VALUE`, those that are not zero, in the order of the scopes and events.
//! Only what the kernel did for that process counts: its system calls and faults, on any thread. How
//! many system calls there were is not among the counts, as on those kernels.

#![deny(clippy::unwrap_used, clippy::indexing_slicing)]

use super::PseudoFile;
use crate::counts::CountsByScope;
use crate::errno::EINVAL;
use crate::kernel::Kernel;
use crate::task::ProcessId;
use arch::Platform;
use events::{Counters, Event, Scope};
use mm::Errno;
use std::collections::BTreeMap;

type Counts = BTreeMap<Scope, Counters>;

/// Counts of one process since it started them.
///
/// The sink counts everybody. So the counts are the sum of the stretches during which the kernel worked for the
/// process; a stretch is closed when work for another one begins, not at each entry.
#[derive(Clone, Debug, Default)]
pub(crate) struct MmEvents {
    /// Whose counts run.
    running: Option<ProcessId>,
    /// Sum of the closed stretches.
    sum: Counts,
    /// What the sink said when the open stretch began.
    since: Option<Counts>,
}

impl MmEvents {
    fn start(&mut self, process: ProcessId, sink: &impl CountsByScope) {
        *self =
            MmEvents { running: Some(process), sum: Counts::new(), since: Some(sink.by_scope()) };
    }

    fn stop(&mut self, sink: &impl CountsByScope) {
        self.close(sink);
        self.running = None;
    }

    /// The kernel works for `process` from now on.
    pub(crate) fn attribute(&mut self, process: ProcessId, sink: &impl CountsByScope) {
        let Some(running) = self.running else { return };
        if running != process {
            self.close(sink);
        } else if self.since.is_none() {
            self.since = Some(sink.by_scope());
        }
    }

    /// The kernel works for itself from now on.
    pub(crate) fn attribute_to_nobody(&mut self, sink: &impl CountsByScope) {
        self.close(sink);
    }

    fn close(&mut self, sink: &impl CountsByScope) {
        let Some(since) = self.since.take() else { return };
        for (scope, now) in sink.by_scope() {
            let diff = match since.get(&scope) {
                Some(before) => now.since(before),
                None => now,
            };
            self.sum.entry(scope).or_default().merge(&diff);
        }
    }

    fn show(&self, sink: &impl CountsByScope) -> String {
        let mut upto = self.clone();
        upto.close(sink);
        let mut text = String::new();
        for (scope, counters) in &upto.sum {
            // To read the file takes system calls: what is read must not depend on how often it was.
            for (event, n) in counters.nonzero().filter(|(e, _)| *e != Event::SyscallTrap) {
                text += &format!("task {} {} {n}\n", scope.name(), event.name());
            }
        }
        text
    }
}

/// The file.
#[derive(Debug)]
pub(super) struct MmEventsFile;

impl<P: Platform> PseudoFile<P> for MmEventsFile
where
    P::Sink: CountsByScope,
{
    fn mode(&self) -> u32 {
        0o600
    }
    fn read(&self, kernel: &mut Kernel<P>, _: ProcessId) -> Result<Vec<u8>, Errno> {
        Ok(kernel.events.show(&kernel.mm.pt.sink).into_bytes())
    }
    fn write(&self, kernel: &mut Kernel<P>, process: ProcessId, data: &[u8]) -> Result<(), Errno> {
        match data.trim_ascii() {
            b"1" => kernel.events.start(process, &kernel.mm.pt.sink),
            b"0" => kernel.events.stop(&kernel.mm.pt.sink),
            _ => return Err(EINVAL),
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use events::{ByOp, Op, Sink};

    fn work(sink: &mut ByOp, n: u64) {
        sink.begin("madvise");
        sink.enter(Op::TryToUnmapOne);
        sink.add(Event::PteXchg, n);
        sink.exit();
        sink.end();
    }

    #[test]
    fn only_the_work_for_the_process_between_start_and_stop_counts() {
        let (me, other) = (ProcessId(100), ProcessId(101));
        let (mut sink, mut events) = (ByOp::new(), MmEvents::default());
        work(&mut sink, 1);
        events.start(me, &sink);
        work(&mut sink, 10);
        events.attribute(other, &sink);
        work(&mut sink, 100);
        events.attribute(me, &sink);
        work(&mut sink, 1000);
        let text = "task unmap pte_xchg 1010\ntask unmap fn_try_to_unmap_one 2\n";
        assert_eq!(events.show(&sink), text);
        events.stop(&sink);
        work(&mut sink, 10000);
        events.attribute(me, &sink);
        assert_eq!(events.show(&sink), text);
        events.start(other, &sink);
        assert_eq!(events.show(&sink), "");
    }
}
