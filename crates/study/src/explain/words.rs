//! The explanation in sentences made from the counts.

use super::text::signed;
use super::{Explanation, GUEST_CODE, Part, Side};
use crate::Observation;
use cost::{Change, Flip, Picos};
use events::Event;
use report::{decimal, grouped};
use std::collections::BTreeMap;
use units::ArchId;

/// Price classes of flushing itself.
const FLUSHES: &[&str] = &[
    "tlbi_page",
    "tlbi_range",
    "tlbi_asid",
    "tlbi_local",
    "dsb_ish",
    "dsb_ishst",
    "dsb_local",
    "invlpg",
    "invpcid",
    "cr3_flush",
    "flush_request",
    "ipi_round",
    "ipi_target",
];

/// A price that is wrong by more standard deviations than this is not worth a thought.
const FAR: f64 = 10.0;
const TLBI: &[Event] = &[
    Event::TlbiVale1is,
    Event::TlbiVae1is,
    Event::TlbiRvale1is,
    Event::TlbiRvae1is,
    Event::TlbiAside1is,
];

impl Explanation {
    /// What the counts and the prices say, most important first.
    pub fn sentences(&self) -> Vec<String> {
        let mut all = vec![self.outcome()];
        if self.saved() != Picos::ZERO {
            all.extend(self.where_it_is());
            all.push(self.flushes());
        }
        all.extend(self.other_prices());
        all.extend(self.unchanged());
        all.extend(self.left());
        all.extend(self.sign());
        all.extend(self.caveats());
        all
    }

    fn outcome(&self) -> String {
        let (a, b) = (self.a.bill().total(), self.b.bill().total());
        let saved = self.sensitivity.estimate();
        if saved.time == Picos::ZERO {
            return format!("Both take {a}: not a picosecond of difference.");
        }
        let verb = if saved.time > Picos::ZERO { "saves" } else { "costs" };
        let amount = Picos::new(saved.time.get().abs());
        let ratio = if a > Picos::ZERO && b > Picos::ZERO {
            let r = self.ratio();
            format!(", {:.2} times as fast (90 %: {:.2} to {:.2})", r.value, r.low, r.high)
        } else {
            String::new()
        };
        let (low, high) = match saved.time > Picos::ZERO {
            true => (saved.low.get(), saved.high.get()),
            false => (-saved.high.get(), -saved.low.get()),
        };
        format!(
            "B takes {b}, A {a}{ratio}. B {verb} {amount}, exactly {} ps at these prices; 90 %: {} to {}.",
            signed(amount),
            Picos::new(low),
            Picos::new(high),
        )
    }

    /// The kernel entries that the difference comes from.
    fn where_it_is(&self) -> Option<String> {
        let mut by_entry: BTreeMap<&str, Picos> = BTreeMap::new();
        for part in &self.parts {
            let sum = by_entry.entry(part.place.0.as_str()).or_default();
            *sum = *sum + part.saved();
        }
        let mut entries: Vec<(&str, Picos)> = by_entry.into_iter().collect();
        entries.sort_by_key(|&(name, saved)| (-saved.get().abs(), name));
        let total = self.saved();
        let named: Vec<String> = entries
            .iter()
            .filter(|(_, saved)| saved.get().abs() * 50 >= total.get().abs())
            .take(3)
            .map(|(name, saved)| format!("{} {}", name_of(name), share(*saved, total)))
            .collect();
        if self.only.is_some() || named.is_empty() {
            return self.largest_ops();
        }
        let ops = self.largest_ops().map_or_else(String::new, |ops| format!(" {ops}"));
        Some(format!("Of it: {}.{ops}", named.join("; ")))
    }

    fn largest_ops(&self) -> Option<String> {
        let ops = self.parts.iter().filter(|p| !p.place.1.is_empty());
        let named: Vec<String> = ops
            .filter(|p| p.saved().get().abs() * 50 >= self.saved().get().abs())
            .take(3)
            .map(|p: &Part| {
                let op = p.place.1.rsplit('/').next().unwrap_or_default();
                format!("{op} ({})", p.saved())
            })
            .collect();
        (!named.is_empty()).then(|| format!("The ops that differ most: {}.", named.join(", ")))
    }

    /// TLB flushes: how many, why, and their part of the difference.
    fn flushes(&self) -> String {
        let (unit, n) = self.unit();
        let per = unit.map_or(String::new(), |unit| format!(" per {unit}"));
        let part = saved_in(self.difference.changes(), FLUSHES);
        let [a, b] = [&self.a, &self.b].map(|side| flush_counts(side, n));
        let counts = if a == b {
            format!("the same in both, {a}{per}")
        } else {
            format!("A has {a}{per}; B has {b}")
        };
        let unfolds = self.unfolds(n).unwrap_or_default();
        format!(
            "TLB flushes and their barriers are {part} of the {}, {}: {counts}.{unfolds}",
            self.saved(),
            share(part, self.saved()),
        )
    }

    /// The flushes that exist only because contiguous blocks were unfolded.
    fn unfolds(&self, n: u64) -> Option<String> {
        let of = |side: &Side| (side.sum(TLBI), side.sum_inside("contpte_unfold", TLBI));
        let said = |name: &str, (all, inside): (u64, u64)| {
            (inside > 0).then(|| {
                let (inside, all) = (decimal(inside, n), decimal(all, n));
                format!("{inside} of the {all} TLBI of {name}")
            })
        };
        let said: Vec<String> =
            [said("A", of(&self.a)), said("B", of(&self.b))].into_iter().flatten().collect();
        let because = "because a contiguous block had to be unfolded";
        (!said.is_empty()).then(|| format!(" {} exist only {because}.", said.join(" and ")))
    }

    /// What to count by: folios, if both runs reclaimed the same number of them.
    fn unit(&self) -> (Option<&'static str>, u64) {
        let folios = self.a.counts.get(Event::FnPageout);
        let same = folios > 0 && folios == self.b.counts.get(Event::FnPageout);
        if same { (Some("folio"), folios) } else { (None, 1) }
    }

    /// For runs at different prices: what of the difference is counts, and what prices.
    fn other_prices(&self) -> Option<String> {
        if self.same_prices() {
            return None;
        }
        let at_a = self.a.prices.time(&self.b.counts, self.b.instructions);
        let (counts, prices) = (self.a.bill().total() - at_a, at_a - self.b.bill().total());
        let (a, b) = (self.a.prices.name(), self.b.prices.name());
        Some(format!(
            "The prices differ: A is priced by {a}, B by {b}. If A's prices held for B too (what {a} \
             does not know costs nothing there), other counts would make {counts} of the difference, and \
             other prices make the remaining {prices}."
        ))
    }

    fn unchanged(&self) -> Option<String> {
        let same = |c: &&Change| c.before == c.after && c.before_time > Picos::ZERO;
        let mut same: Vec<&Change> = self.difference.changes().iter().filter(same).collect();
        same.sort_by_key(|c| -c.before_time.get());
        let named: Vec<String> =
            same.iter().take(3).map(|c| format!("{} {}", grouped(c.before), c.words)).collect();
        (!named.is_empty()).then(|| format!("The same number in both: {}.", named.join(", ")))
    }

    fn left(&self) -> Option<String> {
        let breakdown = self.b.breakdown();
        let total = breakdown.total();
        let named: Vec<String> = breakdown
            .terms()
            .iter()
            .take(2)
            .filter(|t| t.time > Picos::ZERO)
            .map(|t| format!("{} ({}, {})", t.words, t.time, share(t.time, total)))
            .collect();
        (!named.is_empty()).then(|| format!("What B spends most on: {}.", named.join(" and ")))
    }

    /// Which price decides who is faster.
    fn sign(&self) -> Option<String> {
        let saved = self.saved();
        if saved == Picos::ZERO {
            return None;
        }
        let (winner, loser) = if saved > Picos::ZERO { ("B", "A") } else { ("A", "B") };
        if self.sensitivity.holds_at_any_price() {
            return Some(format!(
                "{winner} is faster at any prices: {loser} has more of every class that differs."
            ));
        }
        let flips = self.sensitivity.flips();
        let Some(first) = flips.first() else {
            return Some(format!(
                "No single price decides the sign: whichever one is changed, to whatever value from 0 up, \
                 {winner} stays faster."
            ));
        };
        if first.sigmas > FAR {
            return Some(format!(
                "No price within {FAR:.0} standard deviations turns the sign; the nearest is {}.",
                self.flip(first)
            ));
        }
        let others: Vec<String> = flips.iter().skip(1).take(2).map(|f| self.flip(f)).collect();
        let others = if others.is_empty() {
            "; no other price can alone".to_owned()
        } else {
            format!("; next, {}", others.join("; "))
        };
        Some(format!(
            "The price that decides the sign is that of {}: {winner} stops being faster when it goes \
             from {} to {} ({} away){others}.",
            self.lever(first),
            price(first.lever.price),
            price(first.at),
            sigmas(first),
        ))
    }

    fn flip(&self, flip: &Flip) -> String {
        format!("{} at {} ({})", self.lever(flip), price(flip.at), sigmas(flip))
    }

    /// Which price: the class, and the list if there are two.
    fn lever(&self, flip: &Flip) -> String {
        let lever = &flip.lever;
        if self.same_prices() {
            lever.words.clone()
        } else {
            format!("{} in {}", lever.words, lever.list)
        }
    }

    fn caveats(&self) -> Vec<String> {
        let mut all = Vec::new();
        for side in [&self.a, &self.b] {
            let name = side.prices.name();
            let fitted = Observation::all();
            let mut fitted = fitted.iter().filter(|o| o.fitted_in.iter().any(|l| l == name));
            let note = if side.prices.is_generic() {
                format!(
                    "Nobody has written down prices for {}: its time is an order of magnitude.",
                    side.run.machine
                )
            } else if let Some(row) = fitted.next() {
                format!("The prices of {name} were fitted on the published result {}.", row.id)
            } else {
                continue;
            };
            if !all.contains(&note) {
                all.push(note);
            }
        }
        let (a, b) = (&self.a.run.guest, &self.b.run.guest);
        if a.argv != b.argv {
            all.push("The two runs had different arguments.".to_owned());
        } else if a.sha256 != b.sha256 && self.a.arch == self.b.arch {
            all.push("The two programs are different files.".to_owned());
        }
        all
    }
}

fn name_of(entry: &str) -> &str {
    match entry {
        super::FAULTS => "page faults",
        GUEST_CODE => "guest instructions",
        other => other,
    }
}

/// Flush instructions of a run, each divided by `n`.
fn flush_counts(side: &Side, n: u64) -> String {
    let rows: &[(&str, &[Event])] = match side.arch {
        ArchId::Arm64 => &[
            ("TLBI", TLBI),
            ("DSB ISHST", &[Event::DsbIshst]),
            ("DSB ISH", &[Event::DsbIsh]),
            ("local TLBI", &[Event::TlbiVale1, Event::TlbiRvale1, Event::TlbiVmalle1]),
        ],
        ArchId::X86_64 => &[
            ("INVLPG", &[Event::Invlpg]),
            ("CR3 reloads", &[Event::Cr3Reload]),
            ("flush requests", &[Event::FnFlushTlbMmRange]),
            ("IPIs", &[Event::IpiCallCpu]),
        ],
    };
    let counts = rows.iter().map(|(label, events)| (label, side.sum(events)));
    let said: Vec<String> = counts
        .filter(|(_, count)| *count > 0)
        .map(|(label, count)| format!("{} {label}", decimal(count, n)))
        .collect();
    if said.is_empty() { "none".to_owned() } else { said.join(", ") }
}

fn saved_in(changes: &[Change], classes: &[&str]) -> Picos {
    changes.iter().filter(|c| classes.contains(&c.class.as_str())).map(Change::saved).sum()
}

/// `part` of `whole` in per cent; the amount itself if that makes no sense.
fn share(part: Picos, whole: Picos) -> String {
    if whole == Picos::ZERO {
        return part.to_string();
    }
    let percent = Picos::new(part.get() * 1000 / whole.get()).get();
    if !(-2000..=2000).contains(&percent) {
        return part.to_string();
    }
    format!("{} %", (percent + 5 * percent.signum()) / 10)
}

fn sigmas(flip: &Flip) -> String {
    if flip.sigmas.is_finite() {
        format!("{:.1} standard deviations", flip.sigmas)
    } else {
        "its uncertainty is 0".to_owned()
    }
}

/// A price: two decimals below a microsecond, where most of them lie.
#[expect(clippy::cast_precision_loss, reason = "a printed figure has a handful of digits")]
fn price(price: Picos) -> String {
    let ns = price.get() as f64 / 1e3;
    if ns < 1e3 { format!("{ns:.2} ns") } else { price.to_string() }
}
