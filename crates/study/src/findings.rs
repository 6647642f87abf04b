//! What the counts of a study show, in sentences made from them.

use crate::measure::Measured;
use crate::plan::Per;
use crate::show::{At, Facet, TLB};
use cost::{Change, Difference, Picos, Ratio};
use report::decimal;

/// The sentences for one matrix.
pub(crate) fn of(facet: &Facet<'_>) -> Vec<String> {
    let mut found = Vec::new();
    for machine in 0..facet.machines.len() {
        for series in 0..facet.series.len() {
            let sentence = match (facet.look.tlb, facet.compare.len()) {
                (true, _) => reach(facet, machine, series),
                (false, 2) => compared(facet, machine, series),
                (false, _) => grown(facet, machine, series),
            };
            let prefix = facet.title().map_or(String::new(), |title| format!("{title}. "));
            found.extend(
                sentence.map(|s| format!("{prefix}{}: {s}", place(facet, machine, series))),
            );
        }
    }
    found
}

/// `apple-m3-vm (arm64), 64K`.
fn place(facet: &Facet<'_>, machine: usize, series: usize) -> String {
    let (name, arch) = &facet.machines[machine];
    match facet.series[series].as_str() {
        "" => format!("{name} ({arch})"),
        series => format!("{name} ({arch}), {series}"),
    }
}

/// A time divided by what it is the time of.
pub(crate) fn per(time: Picos, units: u64) -> String {
    let units = i128::from(units.max(1));
    let picos = time.get() / units;
    if picos.abs() < 10_000 {
        let tenths = time.get() * 10 / (units * 1000);
        return format!(
            "{}{}.{} ns",
            if tenths < 0 { "-" } else { "" },
            tenths.abs() / 10,
            tenths.abs() % 10
        );
    }
    Picos::new(picos).to_string()
}

/// ` per folio`; nothing for a whole run.
fn unit(facet: &Facet<'_>) -> String {
    match facet.look.per {
        Per::Run => String::new(),
        per => format!(" per {}", per.name()),
    }
}

/// What changes from one end of the axis to the other.
fn grown(facet: &Facet<'_>, machine: usize, series: usize) -> Option<String> {
    let all: Vec<(usize, &Measured)> = (0..facet.x.len())
        .filter_map(|x| Some((x, facet.at(At { machine, x, series, compare: 0 })?.1)))
        .collect();
    let (&(first_x, first), &(last_x, last)) = (all.first()?, all.last()?);
    if first_x == last_x {
        return None;
    }
    let change = Difference::between(&first.time, &last.time);
    let mut largest: Vec<&Change> = change.changes().iter().collect();
    // By what it adds to one unit: the two ends may have different numbers of them.
    largest.sort_by_key(|c| std::cmp::Reverse(weight(c, first.units, last.units).abs()));
    let words: Vec<String> = largest
        .iter()
        .take(3)
        .filter(|c| weight(c, first.units, last.units) != 0)
        .map(|c| {
            let (before, after) = (decimal(c.before, first.units), decimal(c.after, last.units));
            format!("{} {before} → {after}", c.words)
        })
        .collect();
    let changes = match words.as_slice() {
        [] => "nothing that is priced changes".to_owned(),
        words => format!("what changes most: {}", words.join("; ")),
    };
    Some(format!(
        "{}{} with {}, {} with {}; {changes}.",
        per(first.time.total(), first.units),
        unit(facet),
        facet.x_name(first_x),
        per(last.time.total(), last.units),
        facet.x_name(last_x),
    ))
}

/// How much less time one unit takes because of a class.
fn weight(change: &Change, before: u64, after: u64) -> i128 {
    change.before_time.get() / i128::from(before.max(1))
        - change.after_time.get() / i128::from(after.max(1))
}

/// One place of the axis with before and after.
struct Pair<'f> {
    x: usize,
    before: &'f Measured,
    after: &'f Measured,
    ratio: Ratio,
}

/// What the second of two does better, and where it does worse.
fn compared(facet: &Facet<'_>, machine: usize, series: usize) -> Option<String> {
    let pairs: Vec<Pair<'_>> = (0..facet.x.len())
        .filter_map(|x| {
            let side = |compare| Some(facet.at(At { machine, x, series, compare })?.1);
            let (before, after) = side(0).zip(side(1))?;
            Some(Pair { x, before, after, ratio: before.time.ratio(&after.time) })
        })
        .collect();
    let (before, after) = (facet.compare_name(0), facet.compare_name(1));
    let by_ratio = |a: &&Pair<'_>, b: &&Pair<'_>| a.ratio.value.total_cmp(&b.ratio.value);
    let best = pairs.iter().max_by(by_ratio)?;
    let worst = pairs.iter().min_by(by_ratio)?;
    let same = |pair: &Pair<'_>| pair.before.time.total() == pair.after.time.total();
    if pairs.iter().all(same) {
        return Some(format!("{after} takes as long as {before} everywhere."));
    }
    let mut text = format!("{after} against {before}: {}", difference(facet, best));
    if worst.x != best.x {
        text.push_str(&format!("; {}", difference(facet, worst)));
    }
    text.push('.');
    text.push_str(&turns(facet, &pairs, after));
    Some(text)
}

/// `saves 3.1 µs per folio with 64K folios (2.15×), most by fewer broadcast TLBI of a page (17 → 1)`.
fn difference(facet: &Facet<'_>, pair: &Pair<'_>) -> String {
    let change = Difference::between(&pair.before.time, &pair.after.time);
    let (saved, units) = (change.total(), pair.after.units);
    let verb = if saved < Picos::ZERO { "loses" } else { "saves" };
    let amount = per(Picos::new(saved.get().abs()), units);
    let with = facet.x_name(pair.x);
    let Some(largest) =
        change.changes().iter().find(|c| (c.saved() < Picos::ZERO) == (saved < Picos::ZERO))
    else {
        return format!("{verb} {amount}{} with {with}", unit(facet));
    };
    if saved == Picos::ZERO {
        return format!("no difference with {with}");
    }
    format!(
        "{verb} {amount}{} with {with} ({:.2}×), most by {} ({} → {})",
        unit(facet),
        pair.ratio.value,
        largest.words,
        decimal(largest.before, pair.before.units),
        decimal(largest.after, units),
    )
}

/// Where along the axis the sign of the difference turns.
fn turns(facet: &Facet<'_>, pairs: &[Pair<'_>], after: &str) -> String {
    let loses = |pair: &Pair<'_>| pair.before.time.total() < pair.after.time.total();
    if pairs.iter().all(loses) {
        return format!(" With {after} it is slower everywhere.");
    }
    let mut text = String::new();
    for two in pairs.windows(2) {
        let [left, right] = two else { continue };
        let (last, next) = (facet.x_name(left.x), facet.x_name(right.x));
        match (loses(left), loses(right)) {
            (true, false) => {
                text.push_str(&format!(
                    " With {after} it is slower up to {last}, and not with {next}."
                ));
            }
            (false, true) => text.push_str(&format!(" With {after} it is slower from {next} on.")),
            _ => {}
        }
    }
    text
}

/// Up to which footprint hardly anything misses.
fn reach(facet: &Facet<'_>, machine: usize, series: usize) -> Option<String> {
    const FEW_PERCENT: f64 = 1.0;
    let parts: Vec<String> = TLB
        .iter()
        .map(|&(name, words)| {
            let fits = |x: &usize| {
                let found = facet.at(At { machine, x: *x, series, compare: 0 });
                found.is_some_and(|(_, m)| m.tlb_percent(name) < FEW_PERCENT)
            };
            match (0..facet.x.len()).take_while(fits).last() {
                Some(x) => format!("up to {} ({words})", facet.x_name(x)),
                None => format!("at no footprint looked at ({words})"),
            }
        })
        .collect();
    facet.at(At { machine, x: 0, series, compare: 0 })?;
    Some(format!("fewer than 1 of 100 accesses miss {}.", parts.join(", ")))
}
