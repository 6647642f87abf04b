//! The scoreboard as text.

use crate::wrap;
use cost::Picos;
use report::{Align, Prediction, ScoreRow, ScoreboardReport, Sign, Table};
use std::collections::{BTreeMap, BTreeSet};

const WIDTH: usize = 100;

/// The table, and the sums under it.
pub fn render(report: &ScoreboardReport) -> String {
    let mut text = wrap(
        "Predicted by counts and prices, and as published. A ratio above 1 means that the change helps. No row is predicted \
         by itself: prices come from priors and from the other rows of the same machine. A star marks rows that \
         a built-in price list was fitted on; here they are left out, one at a time.",
        WIDTH,
        0,
    );
    text.push('\n');
    text.push_str(&table(report));
    text.push('\n');
    for line in summary(report) {
        text.push_str(&wrap(&line, WIDTH, 2));
    }
    text
}

fn table(report: &ScoreboardReport) -> String {
    use Align::{Left, Right};
    let mut table = Table::new(&[Left, Right, Right, Right, Left, Left]).indented(1);
    table.row(["result", "before", "after", "ratio", "90 %", "sign, error"]);
    for row in &report.rows {
        table.rule();
        match &row.prediction {
            Some(p) => table.row(predicted(row, p)),
            None => table.row([&row.id, "–", "–", "–", "", "not modelled"]),
        }
        table.row(published(row));
    }
    table.render()
}

fn predicted(row: &ScoreRow, p: &Prediction) -> [String; 6] {
    let time = |ns: u64| Picos::new(i128::from(ns) * 1000).to_string();
    let sign = match row.sign {
        Sign::Right => "right",
        Sign::Wrong => "WRONG",
        Sign::None => "–",
    };
    let mark = if row.fitted { " *" } else { "" };
    let note = match row.published_ratio {
        Some(published) => {
            format!("{sign}, {:+.0} %{mark}", (p.ratio.value / published - 1.0) * 100.0)
        }
        None => format!("{sign}{mark}"),
    };
    [
        row.id.clone(),
        time(p.before.ns),
        time(p.after.ns),
        format!("{:.2}×", p.ratio.value),
        format!("{:.2}–{:.2}", p.ratio.low, p.ratio.high),
        note,
    ]
}

fn published(row: &ScoreRow) -> [String; 5] {
    let unit = row.unit.as_deref().unwrap_or_default();
    let figure = |value: Option<f64>| value.map_or_else(String::new, |v| figure(v, unit));
    let words = row.published_words.as_ref();
    [
        words.map_or_else(|| "  published".to_owned(), |words| format!("  said: {words}")),
        figure(row.published_before),
        figure(row.published_after),
        row.published_ratio.map_or_else(String::new, |r| format!("{r:.2}×")),
        String::new(),
    ]
}

/// A published figure: times as predicted ones are printed, others as they stand.
fn figure(value: f64, unit: &str) -> String {
    let ns = match unit {
        "ns" => value,
        "us" => value * 1e3,
        "s" => value * 1e9,
        _ => return format!("{value} {unit}"),
    };
    #[expect(clippy::cast_possible_truncation, reason = "`as` saturates, and so does Picos")]
    let picos = (ns * 1e3).round() as i128;
    Picos::new(picos).to_string()
}

/// Of some rows, how many have the right sign, and how near their ratios are.
fn score(rows: &[&ScoreRow]) -> String {
    let right = rows.iter().filter(|r| r.sign == Sign::Right).count();
    let errors: Vec<f64> = rows.iter().filter_map(|r| r.error()).collect();
    let within = |limit: f64| errors.iter().filter(|&&e| e <= limit).count();
    format!(
        "the sign is right in {right} of {}; of {} with a published ratio, {} are within 25 % of it and {} within 15 %",
        rows.len(),
        errors.len(),
        within(0.25),
        within(0.15)
    )
}

fn summary(report: &ScoreboardReport) -> Vec<String> {
    let mut lines = Vec::new();
    let rows = || report.rows.iter();
    let all: Vec<&ScoreRow> = rows().filter(|r| r.prediction.is_some()).collect();
    let (fitted, held_out): (Vec<&ScoreRow>, Vec<&ScoreRow>) = all.iter().partition(|r| r.fitted);
    lines.push(format!(
        "{} results: {} predicted, {} not modelled. Over all predictions, {}.",
        report.rows.len(),
        all.len(),
        report.rows.len() - all.len(),
        score(&all)
    ));
    lines.push(format!(
        "Rows that are in no built-in list ({}): {}.",
        held_out.len(),
        score(&held_out)
    ));
    lines.push(format!(
        "Rows left out of a fit that has them (*, {}): {}.",
        fitted.len(),
        score(&fitted)
    ));
    let inside = |r: &&&ScoreRow| match (&r.prediction, r.published_ratio) {
        (Some(p), Some(ratio)) => (p.ratio.low..=p.ratio.high).contains(&ratio),
        _ => false,
    };
    lines.push(format!(
        "{} of the {} published ratios lie in the 90 % interval of their prediction.",
        all.iter().filter(inside).count(),
        all.iter().filter(|r| r.error().is_some()).count(),
    ));
    lines.push(
        "A row published in words counts as right if the interval reaches what the author's own scatter would \
         have hidden."
            .to_owned(),
    );
    let hows: BTreeSet<&str> =
        rows().filter_map(|r| r.prediction.as_ref()).map(|p| p.how.as_str()).collect();
    lines.extend(hows.iter().map(|how| format!("How: {how}.")));
    let mut reasons: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for row in rows() {
        if let Some(why) = &row.not_modelled {
            reasons.entry(why).or_default().push(&row.id);
        }
    }
    lines.extend(
        reasons.iter().map(|(why, ids)| format!("Not modelled ({}): {why}.", ids.join(", "))),
    );
    lines
}
