//! Modelled time.

use std::fmt;
use std::iter::Sum;
use std::ops::{Add, Sub};

/// A span of modelled time in picoseconds. Integer, so that sums are exact whatever their order.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Picos(i128);

impl Picos {
    /// No time.
    pub const ZERO: Picos = Picos(0);

    /// That many picoseconds.
    pub const fn new(picos: i128) -> Self {
        Picos(picos)
    }

    /// The count of picoseconds.
    pub const fn get(self) -> i128 {
        self.0
    }

    /// `self` taken `n` times.
    pub(crate) fn times(self, n: u64) -> Self {
        Picos(self.0.saturating_mul(i128::from(n)))
    }

    /// Whole nanoseconds, rounded half away from zero; a negative span is 0.
    pub fn ns(self) -> u64 {
        u64::try_from(self.0.max(0).saturating_add(500) / 1000).unwrap_or(u64::MAX)
    }

    /// Milliseconds for printing.
    #[expect(clippy::cast_precision_loss, reason = "a printed figure has a handful of digits")]
    pub fn ms(self) -> f64 {
        self.0 as f64 / 1e9
    }
}

impl Add for Picos {
    type Output = Picos;
    fn add(self, other: Picos) -> Picos {
        Picos(self.0.saturating_add(other.0))
    }
}

impl Sub for Picos {
    type Output = Picos;
    fn sub(self, other: Picos) -> Picos {
        Picos(self.0.saturating_sub(other.0))
    }
}

impl Sum for Picos {
    fn sum<I: Iterator<Item = Picos>>(spans: I) -> Picos {
        spans.fold(Picos::ZERO, Add::add)
    }
}

/// `12 ns`, `3.40 µs`, `37.40 ms`, `2.10 s`: three or four digits.
impl fmt::Display for Picos {
    #[expect(clippy::cast_precision_loss, reason = "a printed figure has a handful of digits")]
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ns = self.0 as f64 / 1e3;
        match ns.abs() {
            x if x < 1e3 => write!(f, "{ns:.0} ns"),
            x if x < 1e6 => write!(f, "{:.2} µs", ns / 1e3),
            x if x < 1e9 => write!(f, "{:.2} ms", ns / 1e6),
            _ => write!(f, "{:.2} s", ns / 1e9),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nanoseconds_are_rounded_and_never_negative() {
        assert_eq!(Picos::new(1499).ns(), 1);
        assert_eq!(Picos::new(1500).ns(), 2);
        assert_eq!(Picos::new(-5000).ns(), 0);
        assert_eq!(Picos::new(i128::MAX).times(3).ns(), u64::MAX);
    }

    #[test]
    fn spans_print_with_a_fitting_unit() {
        assert_eq!(Picos::new(37_401_913_000).to_string(), "37.40 ms");
        assert_eq!(Picos::new(254_000).to_string(), "254 ns");
        assert_eq!(Picos::new(-4_878_000).to_string(), "-4.88 µs");
    }
}
