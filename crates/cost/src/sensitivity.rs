//! Which prices a difference of two times hangs on.

use crate::explain::SIGMAS_90;
use crate::{ClassId, Estimate, Picos, Price, PriceList};
use events::Counters;

/// Counts with the prices that they are to be paid at.
#[derive(Clone, Copy, Debug)]
pub struct Bill<'a> {
    /// The prices.
    pub prices: &'a PriceList,
    /// How often each event occurred.
    pub counts: &'a Counters,
    /// Guest instructions executed.
    pub instructions: u64,
}

/// A price, and how the difference depends on it.
#[derive(Clone, Debug, PartialEq)]
pub struct Lever {
    /// Name of the class.
    pub class: String,
    /// The same in words.
    pub words: String,
    /// The price list that has it.
    pub list: String,
    /// The price.
    pub price: Picos,
    /// Relative uncertainty of it, one standard deviation.
    pub spread: f64,
    /// Events saved, first minus second: the difference changes by so much for each unit of price.
    pub saved: i128,
}

/// A price at which the difference would be nothing, everything else as it is.
#[derive(Clone, Debug, PartialEq)]
pub struct Flip {
    /// The price that is changed.
    pub lever: Lever,
    /// To this value, which is not negative.
    pub at: Picos,
    /// So many standard deviations away; infinite for a price without uncertainty.
    pub sigmas: f64,
}

/// How a difference depends on the prices.
#[derive(Clone, Debug, PartialEq)]
pub struct Sensitivity {
    levers: Vec<Lever>,
    total: Picos,
}

impl Sensitivity {
    /// Of `before` minus `after`. A class with the same price from the same list is one price in
    /// both: an error of it moves both times.
    pub fn between(before: Bill<'_>, after: Bill<'_>) -> Sensitivity {
        let (a, b) = (before.sums(), after.sums());
        let mut levers = Vec::new();
        for (i, (id, _)) in before.prices.classes().list().enumerate() {
            let (p, q) = (before.prices.price(id), after.prices.price(id));
            let shared = before.prices.name() == after.prices.name() && p == q;
            let (n, m) = (i128::from(a[i]), i128::from(b[i]));
            match (p, q) {
                (Some(price), _) if shared => levers.push(before.lever(id, price, n - m)),
                _ => {
                    levers.extend(p.map(|price| before.lever(id, price, n)));
                    levers.extend(q.map(|price| after.lever(id, price, -m)));
                }
            }
        }
        levers.retain(|lever| lever.saved != 0);
        let total = levers.iter().map(Lever::time).sum();
        Sensitivity { levers, total }
    }

    /// Every price that the difference depends on.
    pub fn levers(&self) -> &[Lever] {
        &self.levers
    }

    /// The difference and its 90 % interval; the errors of different prices are taken as
    /// independent.
    pub fn estimate(&self) -> Estimate {
        let square = |x: f64| x * x;
        let variance: f64 = self.levers.iter().map(|l| square(float(l.time()) * l.spread)).sum();
        let half = whole(SIGMAS_90 * variance.sqrt());
        Estimate { time: self.total, low: self.total - half, high: self.total + half }
    }

    /// Whether one side has more of nothing, so that no prices whatever make it the slower one.
    pub fn holds_at_any_price(&self) -> bool {
        let all = |sign: i128| self.levers.iter().all(|l| l.saved.signum() == sign);
        all(1) || all(-1)
    }

    /// The prices that alone can turn the sign of the difference, the nearest first.
    pub fn flips(&self) -> Vec<Flip> {
        let mut flips: Vec<Flip> = self.levers.iter().filter_map(|l| self.flip(l)).collect();
        flips.sort_by(|a, b| {
            a.sigmas.total_cmp(&b.sigmas).then_with(|| a.lever.class.cmp(&b.lever.class))
        });
        flips
    }

    fn flip(&self, lever: &Lever) -> Option<Flip> {
        let price = lever.price.get();
        let others = self.total.get() - price * lever.saved;
        // Rounded to the picosecond: a difference of less is none.
        let at = -others.div_euclid(lever.saved);
        if at < 0 || self.total == Picos::ZERO {
            return None;
        }
        let sigma = float(lever.price) * lever.spread;
        let away = float(Picos::new(at - price)).abs();
        let sigmas = if sigma > 0.0 { away / sigma } else { f64::INFINITY };
        Some(Flip { lever: lever.clone(), at: Picos::new(at), sigmas })
    }
}

impl Lever {
    /// What it contributes to the difference.
    pub fn time(&self) -> Picos {
        Picos::new(self.price.get().saturating_mul(self.saved))
    }
}

impl Bill<'_> {
    /// The whole of it.
    pub fn total(&self) -> Picos {
        self.prices.time(self.counts, self.instructions)
    }

    fn sums(&self) -> Vec<u64> {
        self.prices.classes().count(self.counts, self.instructions)
    }

    fn lever(&self, id: ClassId, price: &Price, saved: i128) -> Lever {
        let class = self.prices.classes().get(id);
        Lever {
            class: class.name.clone(),
            words: class.words.clone(),
            list: self.prices.name().to_owned(),
            price: price.cost,
            spread: price.spread,
            saved,
        }
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

#[cfg(test)]
mod tests {
    use super::*;
    use events::{Event, Sink};
    use units::ArchId;

    fn counts(list: &[(Event, u64)]) -> Counters {
        let mut counts = Counters::new();
        list.iter().for_each(|&(event, n)| counts.add(event, n));
        counts
    }

    fn list(machine: &str, arch: ArchId) -> PriceList {
        PriceList::for_machine(machine, arch).expect("embedded")
    }

    fn between(a: &[(Event, u64)], b: &[(Event, u64)]) -> Sensitivity {
        let prices = list("apple-m3-vm", ArchId::Arm64);
        let (a, b) = (counts(a), counts(b));
        let bill = |counts| Bill { prices: &prices, counts, instructions: 5 };
        let sensitivity = Sensitivity::between(bill(&a), bill(&b));
        assert_eq!(sensitivity.estimate().time, bill(&a).total() - bill(&b).total());
        sensitivity
    }

    #[test]
    fn a_price_flips_the_sign_where_the_difference_is_nothing() {
        let found = between(
            &[(Event::TlbiVale1is, 17), (Event::PteRead, 3)],
            &[(Event::PteXchg, 20), (Event::PteRead, 3)],
        );
        assert!(!found.holds_at_any_price());
        let flips = found.flips();
        let at: Vec<_> = flips.iter().map(|f| (f.lever.class.as_str(), f.at.get())).collect();
        // Work of the kernel included: each side is worth what the other is.
        let prices = list("apple-m3-vm", ArchId::Arm64);
        let time = |event, n| prices.time(&counts(&[(event, n)]), 0).get();
        let cost = |class| {
            let id = prices.classes().find(class).expect("a class");
            prices.price(id).expect("a price").cost.get()
        };
        let (tlbi, xchg) = (time(Event::TlbiVale1is, 17), time(Event::PteXchg, 20));
        let [first, second] = at[..] else { panic!("{at:?}") };
        assert_eq!((first.0, second.0), ("tlbi_page", "pte_atomic"));
        assert!((first.1 - (cost("tlbi_page") - (tlbi - xchg) / 17)).abs() <= 1, "{at:?}");
        assert!((second.1 - (cost("pte_atomic") + (tlbi - xchg) / 20)).abs() <= 1, "{at:?}");
        assert!(flips[0].sigmas < flips[1].sigmas);
        for flip in &flips {
            let moved = (flip.at.get() - flip.lever.price.get()) * flip.lever.saved;
            let left = found.estimate().time.get() + moved;
            assert!(left.abs() <= flip.lever.saved.abs(), "{}: {left}", flip.lever.class);
        }
    }

    #[test]
    fn less_of_everything_holds_at_any_price() {
        let found =
            between(&[(Event::TlbiVale1is, 2), (Event::PteRead, 3)], &[(Event::PteRead, 2)]);
        assert!(found.holds_at_any_price() && found.flips().is_empty());
    }

    #[test]
    fn an_interval_ignores_what_both_have() {
        let same = [(Event::PageScanZero, 1_000_000), (Event::DsbIsh, 2)];
        let found = between(&same, &[(Event::PageScanZero, 1_000_000), (Event::DsbIsh, 1)]);
        assert_eq!(found.levers().len(), 1);
        let estimate = found.estimate();
        assert!(Picos::ZERO < estimate.low && estimate.high < Picos::new(300_000));
    }

    #[test]
    fn two_machines_have_two_prices() {
        let (arm, x86) =
            (list("apple-m3-vm", ArchId::Arm64), list("x86-bare-metal", ArchId::X86_64));
        let (a, b) = (counts(&[(Event::PteRead, 9)]), counts(&[(Event::PteRead, 9)]));
        let found = Sensitivity::between(
            Bill { prices: &arm, counts: &a, instructions: 0 },
            Bill { prices: &x86, counts: &b, instructions: 0 },
        );
        let saved: Vec<_> = found.levers().iter().map(|l| (l.list.as_str(), l.saved)).collect();
        let work = |list: &PriceList| i128::from(9 * list.classes().work(Event::PteRead));
        let expected = [
            ("apple-m3-vm", work(&arm)),
            ("x86-bare-metal", -work(&x86)),
            ("apple-m3-vm", 9),
            ("x86-bare-metal", -9),
        ];
        assert_eq!(saved, expected);
        let times = arm.time(&a, 0) - x86.time(&b, 0);
        assert_eq!(found.estimate().time, times);
    }
}
