//! `ptescope scoreboard`: predictions beside published results.
//!
//! Each row of `data/observations.toml` that concerns an operation which is modelled is predicted from counts of built-in
//! guests, by the priors of its machine and a fit to the *other* rows that were measured on the same machine. So no row is
//! predicted by itself; what comes out is said, right or wrong.

mod text;

pub use text::render;

use crate::Observation;
use crate::bench::{BenchFit, BenchRow, OWN_ERROR, fit_bench, time_error};
use crate::calibrate::Calibration;
use crate::workload::Plan;
use cost::Predicted;
use report::{
    Failure, PredictedRatio, PredictedTime, Prediction, SCOREBOARD_SCHEMA, ScoreRow,
    ScoreboardReport, Sign,
};
use std::num::NonZeroUsize;

/// A ratio this near to 1 is no change.
const NO_CHANGE: f64 = 0.03;

/// How many runs [`score`] makes.
pub fn runs() -> usize {
    Calibration::runs(&Observation::all())
}

/// Makes the runs on `jobs` threads and compares. `progress` is told what has been run.
///
/// # Errors
/// As [`crate::run`]: every run is of a built-in guest, so none should fail.
pub fn score(
    jobs: NonZeroUsize,
    progress: &mut dyn FnMut(&str),
) -> Result<ScoreboardReport, Failure> {
    score_from(&Calibration::of(&Observation::all(), jobs, progress)?)
}

/// Compares, with the runs of every row that is built in.
///
/// # Errors
/// As [`score`].
pub fn score_from(calibration: &Calibration) -> Result<ScoreboardReport, Failure> {
    let rows = Observation::all();
    let rows = rows.iter().map(|row| score_row(row, calibration.rows()));
    let rows = rows.collect::<Result<_, _>>()?;
    Ok(ScoreboardReport { rows, schema: SCOREBOARD_SCHEMA.to_owned() })
}

fn score_row(row: &Observation, rows: &[BenchRow]) -> Result<ScoreRow, Failure> {
    let counted = rows.iter().find(|r| r.row.id == row.id);
    let prediction = counted.map(|counted| predict(counted, rows)).transpose()?;
    let not_modelled = match Plan::of(row) {
        Plan::NotModelled(why) => Some(why.to_owned()),
        Plan::Predicted { .. } => None,
    };
    Ok(ScoreRow {
        fitted: !row.fitted_in.is_empty(),
        id: row.id.clone(),
        not_modelled,
        sign: prediction.as_ref().map_or(Sign::None, |p| sign(row, p.ratio)),
        prediction,
        published_after: row.after,
        published_before: row.before,
        published_ratio: row.ratio(),
        published_words: row.says.clone(),
        source: row.source.clone(),
        unit: row.unit.clone(),
    })
}

/// By the priors of the row's machine and a fit to the other rows of its bench.
fn predict(row: &BenchRow, rows: &[BenchRow]) -> Result<Prediction, Failure> {
    let BenchFit { base, found, fitted_on } = fit_bench(rows, row, Some(&row.row))?;
    let [before, after] = row.occurrences(&base);
    let ratio = found.predict_ratio(&before, &after, OWN_ERROR);
    let time = |counts: &[f64]| time(found.predict(counts, time_error()));
    Ok(Prediction {
        after: time(&after),
        before: time(&before),
        fitted_on,
        how: row.how.clone(),
        prices: base.name().to_owned(),
        ratio: PredictedRatio {
            high: round(ratio.high),
            low: round(ratio.low),
            value: round(ratio.value),
        },
    })
}

/// To four digits after the point: what lies beyond depends on the host's arithmetic.
fn round(x: f64) -> f64 {
    (x * 1e4).round() / 1e4
}

fn time(predicted: Predicted) -> PredictedTime {
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "`as` saturates")]
    let ns = |x: f64| x.round() as u64;
    PredictedTime {
        high_ns: ns(predicted.high),
        low_ns: ns(predicted.low),
        ns: ns(predicted.value),
    }
}

/// Faster, slower, or no change, which is what is nearer to 1 than `nothing`.
fn direction(ratio: f64, nothing: f64) -> i8 {
    match ratio - 1.0 {
        x if x > nothing => 1,
        x if x < -nothing => -1,
        _ => 0,
    }
}

/// Whether a ratio has the sign that was published, in figures or in words. Words say that an author saw no effect in
/// measurements of some spread, so a prediction agrees with them if its interval reaches what he could not have seen.
fn sign(row: &Observation, predicted: PredictedRatio) -> Sign {
    let found = direction(predicted.value, NO_CHANGE);
    let unseen = unseen(row);
    let right = match (row.ratio(), row.sign.as_deref()) {
        (Some(published), _) => found == direction(published, NO_CHANGE),
        (None, Some("same")) => predicted.low < 1.0 + unseen && predicted.high > 1.0 - unseen,
        (None, Some("not-worse")) => predicted.high > 1.0 - unseen,
        (None, Some("worse")) => predicted.low < 1.0,
        _ => return Sign::None,
    };
    if right { Sign::Right } else { Sign::Wrong }
}

/// What is too small to be seen: two standard deviations of a ratio of times that scatter as published.
fn unseen(row: &Observation) -> f64 {
    let spread = |spread: Option<f64>| spread.unwrap_or(0.0);
    (2.0 * spread(row.spread_before).hypot(spread(row.spread_after))).max(NO_CHANGE)
}

#[cfg(test)]
mod tests;
