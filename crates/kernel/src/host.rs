//! What a kernel is given from outside: time and a console.

/// Virtual time. Only the machine knows how it is made of counts and prices.
pub trait Clock<S> {
    /// Nanoseconds since boot, given what was counted so far. Never runs backwards.
    fn now_ns(&mut self, sink: &S) -> u64;
}

/// An output of the guest's console.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Stream {
    /// File descriptor 1.
    Stdout,
    /// File descriptor 2.
    Stderr,
}

/// Where the guest's standard streams go.
pub trait Console {
    /// The guest wrote `bytes`.
    fn write(&mut self, stream: Stream, bytes: &[u8]);
    /// The guest reads standard input: fills the start of `into` and says how much; 0 at its end.
    fn read(&mut self, into: &mut [u8]) -> usize;
}

/// Both.
pub trait Host<S>: Clock<S> + Console {}
impl<S, T: Clock<S> + Console> Host<S> for T {}
