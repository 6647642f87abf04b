//! Why a time is what it is: terms that add up to it exactly.

use crate::Picos;

/// Half-width of a two-sided 90 % interval, in standard deviations.
pub(crate) const SIGMAS_90: f64 = 1.645;

/// What one class contributed.
#[derive(Clone, Debug, PartialEq)]
pub struct Term {
    /// Name of the class.
    pub class: String,
    /// The same in words.
    pub words: String,
    /// How many events.
    pub count: u64,
    /// Their time.
    pub time: Picos,
    /// Relative uncertainty of the price.
    pub spread: f64,
}

impl Term {
    /// Whether instructions are counted, the guest's or the kernel's, and no events.
    pub fn is_instructions(&self) -> bool {
        matches!(self.class.as_str(), "instruction" | "kernel_instruction")
    }
}

/// A time with its 90 % interval.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Estimate {
    /// The expected value.
    pub time: Picos,
    /// Lower end.
    pub low: Picos,
    /// Upper end.
    pub high: Picos,
}

/// A ratio of two times of the same machine, with its 90 % interval.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Ratio {
    /// The expected value.
    pub value: f64,
    /// Lower end.
    pub low: f64,
    /// Upper end.
    pub high: f64,
}

/// A time split into classes, the largest first.
#[derive(Clone, Debug, PartialEq)]
pub struct Breakdown {
    terms: Vec<Term>,
}

impl Breakdown {
    pub(crate) fn new(mut terms: Vec<Term>) -> Self {
        terms.sort_by(|a, b| b.time.cmp(&a.time).then_with(|| a.class.cmp(&b.class)));
        Breakdown { terms }
    }

    /// The terms, the largest first.
    pub fn terms(&self) -> &[Term] {
        &self.terms
    }

    /// The sum of the terms.
    pub fn total(&self) -> Picos {
        self.terms.iter().map(|t| t.time).sum()
    }

    /// The sum and its 90 % interval; the errors of different prices are taken as independent.
    pub fn estimate(&self) -> Estimate {
        let variance: f64 = self.terms.iter().map(|t| square(float(t.time) * t.spread)).sum();
        let half = whole(SIGMAS_90 * variance.sqrt());
        let time = self.total();
        Estimate { time, low: (time - half).max(Picos::ZERO), high: time + half }
    }

    /// `self` ÷ `other`, both at the same prices: an error of a price moves both, so the
    /// interval is narrower than that of either time.
    pub fn ratio(&self, other: &Breakdown) -> Ratio {
        let (a, b) = (float(self.total()), float(other.total()));
        let value = a / b;
        let change = Difference::between(self, other);
        let variance: f64 = change
            .changes
            .iter()
            .map(|c| square(c.spread * (float(c.before_time) - value * float(c.after_time)) / b))
            .sum();
        let half = SIGMAS_90 * variance.sqrt();
        Ratio { value, low: (value - half).max(0.0), high: value + half }
    }
}

/// What one class contributed to a difference.
#[derive(Clone, Debug, PartialEq)]
pub struct Change {
    /// Name of the class.
    pub class: String,
    /// The same in words.
    pub words: String,
    /// Events of the first run.
    pub before: u64,
    /// Events of the second run.
    pub after: u64,
    /// Their time in the first run.
    pub before_time: Picos,
    /// Their time in the second run.
    pub after_time: Picos,
    /// Relative uncertainty of the price.
    pub spread: f64,
}

impl Change {
    /// Time saved: first run minus second.
    pub fn saved(&self) -> Picos {
        self.before_time - self.after_time
    }
}

/// The difference of two times split into classes, the largest first.
#[derive(Clone, Debug, PartialEq)]
pub struct Difference {
    changes: Vec<Change>,
}

impl Difference {
    /// `before` minus `after`.
    pub fn between(before: &Breakdown, after: &Breakdown) -> Difference {
        let mut changes: Vec<Change> = before.terms.iter().map(Change::only_before).collect();
        for term in &after.terms {
            match changes.iter_mut().find(|c| c.class == term.class) {
                Some(c) => (c.after, c.after_time) = (term.count, term.time),
                None => changes.push(Change::only_after(term)),
            }
        }
        let size = |c: &Change| c.saved().get().abs();
        changes.sort_by(|a, b| size(b).cmp(&size(a)).then_with(|| a.class.cmp(&b.class)));
        Difference { changes }
    }

    /// Every class that occurs in either run, the largest saving or loss first.
    pub fn changes(&self) -> &[Change] {
        &self.changes
    }

    /// The change of a class.
    pub fn change(&self, class: &str) -> Option<&Change> {
        self.changes.iter().find(|c| c.class == class)
    }

    /// The sum: exactly the difference of the two totals.
    pub fn total(&self) -> Picos {
        self.changes.iter().map(Change::saved).sum()
    }
}

impl Change {
    /// A class of which the second run has nothing, as far as is known.
    fn only_before(term: &Term) -> Change {
        Change {
            class: term.class.clone(),
            words: term.words.clone(),
            before: term.count,
            after: 0,
            before_time: term.time,
            after_time: Picos::ZERO,
            spread: term.spread,
        }
    }

    /// A class of which the first run has nothing.
    fn only_after(term: &Term) -> Change {
        let Change { before, before_time, .. } = Change::only_before(term);
        let none = Change { before: 0, before_time: Picos::ZERO, ..Change::only_before(term) };
        Change { after: before, after_time: before_time, ..none }
    }
}

#[expect(clippy::cast_precision_loss, reason = "for an interval, a few digits are enough")]
fn float(time: Picos) -> f64 {
    time.get() as f64
}

#[expect(clippy::cast_possible_truncation, reason = "`as` saturates, and so does Picos")]
fn whole(picos: f64) -> Picos {
    Picos::new(picos.round() as i128)
}

fn square(x: f64) -> f64 {
    x * x
}

#[cfg(test)]
mod tests {
    use crate::{PriceList, Ratio};
    use events::{Counters, Event, Sink};
    use units::ArchId;

    fn counts(list: &[(Event, u64)]) -> Counters {
        let mut counts = Counters::new();
        list.iter().for_each(|&(event, n)| counts.add(event, n));
        counts
    }

    fn prices() -> PriceList {
        PriceList::for_machine("apple-m3-vm", ArchId::Arm64).expect("embedded")
    }

    #[test]
    fn terms_add_up_to_the_time_and_changes_to_the_difference() {
        let before = counts(&[(Event::TlbiVale1is, 17), (Event::PteRead, 102), (Event::DsbIsh, 2)]);
        let after = counts(&[(Event::TlbiRvale1is, 1), (Event::PteRead, 26), (Event::DsbIsh, 1)]);
        let prices = prices();
        let (a, b) = (prices.explain(&before, 1000), prices.explain(&after, 10));
        assert_eq!(a.total(), prices.time(&before, 1000));
        let difference = prices.difference((&before, 1000), (&after, 10));
        assert_eq!(difference.total(), a.total() - b.total());
        assert_eq!(difference.changes()[0].class, "tlbi_page");
        let range = difference.change("tlbi_range").expect("in the second run only");
        assert_eq!((range.before, range.after), (0, 1));
        assert!(range.saved() < crate::Picos::ZERO);
    }

    #[test]
    fn an_interval_contains_its_time_and_widens_with_one_uncertain_term() {
        let prices = prices();
        let estimate = prices.explain(&counts(&[(Event::DsbIsh, 1000)]), 0).estimate();
        assert!(estimate.low < estimate.time && estimate.time < estimate.high);
        let spread = prices.price(prices.classes().find("dsb_ish").expect("class")).expect("price");
        let half = (estimate.high - estimate.time).get() as f64;
        assert!((half / estimate.time.get() as f64 - 1.645 * spread.spread).abs() < 1e-6);
    }

    #[test]
    fn a_ratio_at_the_same_price_is_certain() {
        let prices = prices();
        let a = prices.explain(&counts(&[(Event::DsbIsh, 300)]), 0);
        let b = prices.explain(&counts(&[(Event::DsbIsh, 100)]), 0);
        let Ratio { value, low, high } = a.ratio(&b);
        assert!((value - 3.0).abs() < 1e-9 && (high - low).abs() < 1e-9);
        let c = prices.explain(&counts(&[(Event::PageScanZero, 100)]), 0);
        let Ratio { value, low, high } = a.ratio(&c);
        assert!(low < value && value < high);
    }

    #[test]
    fn events_of_the_other_architecture_cost_nothing() {
        let breakdown = prices().explain(&counts(&[(Event::Invlpg, 5)]), 0);
        assert_eq!((breakdown.total().ns(), breakdown.terms()[0].count), (0, 5));
    }
}
