//! What the emulator counts, and who did it.
//!
//! Counts are facts: mechanism emits [`Event`]s into a [`Sink`], attributed to the stack of
//! [`Op`]s that is running; nothing here knows a price. One list, `events!` in `list.rs`,
//! generates the enum, the names, the meanings and the catalogue. Names are those of the
//! instrumented Linux kernels that the counts are checked against, where the event exists there.
//!
//! Sinks: `()` counts nothing and costs nothing; [`Counters`] is a flat array; [`ByOp`] keeps one
//! array per context (syscall, fault, …) and op path, and can write a [`TraceLog`] of what happened when.

mod byop;
mod list;
mod op;
mod trace;

pub use byop::{ByOp, Node, NodeId};
pub use list::{Event, EventKind};
pub use op::{Op, Scope};
pub use trace::{ChangeId, Flush, Record, Span, TRACKS, TraceLimits, TraceLog, Tracer, What};

/// Receives events. A type parameter everywhere, so that `()` compiles to nothing.
pub trait Sink: std::fmt::Debug {
    /// Adds `n` occurrences of `event` to the op that is running.
    fn add(&mut self, event: Event, n: u64);
    /// The op `op` starts; until the matching [`Sink::exit`] events belong to it.
    fn enter(&mut self, op: Op);
    /// The innermost op ends.
    fn exit(&mut self);
    /// A kernel entry starts (`"madvise(MADV_PAGEOUT)"`, `"fault"`, …); nests when a fault is
    /// taken inside a syscall.
    fn begin(&mut self, context: &str);
    /// The innermost kernel entry ends.
    fn end(&mut self);
    /// Whether [`Sink::pte_changed`] and [`Sink::flushed`] want to be told: a trace is written.
    #[inline(always)]
    fn watches_ptes(&self) -> bool {
        false
    }
    /// An entry lost rights or its frame: a flush of what it translated is owed.
    fn pte_changed(&mut self, _: Span) {}
    /// Cached translations were dropped.
    fn flushed(&mut self, _: &Flush) {}
}

impl Sink for () {
    #[inline(always)]
    fn add(&mut self, _: Event, _: u64) {}
    #[inline(always)]
    fn enter(&mut self, _: Op) {}
    #[inline(always)]
    fn exit(&mut self) {}
    #[inline(always)]
    fn begin(&mut self, _: &str) {}
    #[inline(always)]
    fn end(&mut self) {}
}

/// A flat array of counters, blind to ops.
#[derive(Clone, PartialEq, Eq)]
pub struct Counters {
    counts: [u64; Event::COUNT],
}

impl Counters {
    /// All zero.
    pub const fn new() -> Self {
        Counters { counts: [0; Event::COUNT] }
    }
    /// How often `event` occurred.
    #[inline]
    pub const fn get(&self, event: Event) -> u64 {
        self.counts[event as usize]
    }
    /// Adds every counter of `other`.
    pub fn merge(&mut self, other: &Counters) {
        for (sum, n) in self.counts.iter_mut().zip(other.counts) {
            *sum += n;
        }
    }
    /// `self - earlier`, counter by counter.
    ///
    /// # Panics
    /// If a counter of `earlier` is larger: counters only grow.
    pub fn since(&self, earlier: &Counters) -> Counters {
        let mut diff = self.clone();
        for (now, before) in diff.counts.iter_mut().zip(earlier.counts) {
            assert!(*now >= before, "a counter ran backwards");
            *now -= before;
        }
        diff
    }
    /// The events that occurred, in the order of the list.
    pub fn nonzero(&self) -> impl Iterator<Item = (Event, u64)> + '_ {
        Event::ALL.iter().map(|&e| (e, self.get(e))).filter(|&(_, n)| n != 0)
    }
    /// Whether nothing was counted.
    pub fn is_empty(&self) -> bool {
        self.counts.iter().all(|&n| n == 0)
    }
}

impl Default for Counters {
    fn default() -> Self {
        Counters::new()
    }
}

impl std::fmt::Debug for Counters {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_map().entries(self.nonzero().map(|(e, n)| (e.name(), n))).finish()
    }
}

impl Sink for Counters {
    #[inline(always)]
    fn add(&mut self, event: Event, n: u64) {
        self.counts[event as usize] += n;
    }
    #[inline(always)]
    fn enter(&mut self, op: Op) {
        if let Some(function) = op.function() {
            self.counts[function as usize] += 1;
        }
    }
    #[inline(always)]
    fn exit(&mut self) {}
    #[inline(always)]
    fn begin(&mut self, _: &str) {}
    #[inline(always)]
    fn end(&mut self) {}
}
