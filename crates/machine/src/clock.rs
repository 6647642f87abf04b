//! Virtual time, made of counts, instructions and idleness.

use events::{ByOp, Counters};
use kernel::{Clock, Console, Stream};

/// What events and instructions cost. Only `cost` knows prices; whoever calls [`crate::run`]
/// brings the two together.
pub trait Pricing: std::fmt::Debug + Send {
    /// Nanoseconds that `counts` and `instructions` take. Must not fall when either grows.
    fn ns(&self, counts: &Counters, instructions: u64) -> u64;
}

/// A clock for runs that only count: one nanosecond per instruction, events free.
#[derive(Clone, Copy, Debug, Default)]
pub struct FreeClock;

impl Pricing for FreeClock {
    fn ns(&self, _: &Counters, instructions: u64) -> u64 {
        instructions
    }
}

/// A sink whose sums can be priced.
pub trait Priced {
    /// The sum over everything counted so far.
    fn counted(&self) -> Counters;
}

impl Priced for ByOp {
    fn counted(&self) -> Counters {
        self.total()
    }
}

impl Priced for Counters {
    fn counted(&self) -> Counters {
        self.clone()
    }
}

impl Priced for () {
    fn counted(&self) -> Counters {
        Counters::new()
    }
}

/// The outside as the kernel sees it: a clock and a console.
pub(crate) struct Outside<'a> {
    pub(crate) pricing: &'a dyn Pricing,
    pub(crate) console: &'a mut dyn Console,
    /// Instructions that guests retired so far.
    pub(crate) instructions: u64,
    /// Time in which no CPU had anything to do.
    pub(crate) idle_ns: u64,
    /// What the clock said last.
    last_ns: u64,
}

impl std::fmt::Debug for Outside<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Outside").field("instructions", &self.instructions).finish_non_exhaustive()
    }
}

impl<'a> Outside<'a> {
    pub(crate) fn new(pricing: &'a dyn Pricing, console: &'a mut dyn Console) -> Self {
        Outside { pricing, console, instructions: 0, idle_ns: 0, last_ns: 0 }
    }

    pub(crate) fn ns<S: Priced>(&mut self, sink: &S) -> u64 {
        let busy = self.pricing.ns(&sink.counted(), self.instructions);
        self.last_ns = self.last_ns.max(busy.saturating_add(self.idle_ns));
        self.last_ns
    }
}

impl<S: Priced> Clock<S> for Outside<'_> {
    fn now_ns(&mut self, sink: &S) -> u64 {
        self.ns(sink)
    }
}

impl Console for Outside<'_> {
    fn write(&mut self, stream: Stream, bytes: &[u8]) {
        self.console.write(stream, bytes);
    }

    fn read(&mut self, into: &mut [u8]) -> usize {
        self.console.read(into)
    }
}
