//! `ptescope scoreboard`: predictions beside published results.
//!
//! Each row of `data/observations.toml` that concerns an operation which is modelled is predicted by two runs of a
//! built-in guest. Prices are never fitted here: what comes out is said, right or wrong.

mod plan;
mod text;

pub use text::render;

use crate::sweep::each;
use crate::{Observation, Program, RunRequest, Silent, ThpPolicy, ThpSetting, parse_set, status};
use cost::{Breakdown, Estimate, PriceList};
use events::{Counters, Sink};
use plan::{Measured, Plan, RunSpec};
use report::{
    Failure, PredictedRatio, PredictedTime, Prediction, SCOREBOARD_SCHEMA, ScoreRow,
    ScoreboardReport, Sign,
};
use std::collections::{BTreeMap, BTreeSet};
use std::num::NonZeroUsize;

/// A ratio this near to 1 is no change.
const NO_CHANGE: f64 = 0.03;

/// What a run counted in the system call that is looked at.
type Results = BTreeMap<RunSpec, Counters>;

/// How many runs [`score`] makes.
pub fn runs() -> usize {
    specs(&plans()).len()
}

/// Makes the runs on `jobs` threads and compares. `progress` is told what has been run.
///
/// # Errors
/// As [`crate::run`]: every run is of a built-in guest, so none should fail.
pub fn score(
    jobs: NonZeroUsize,
    progress: &mut dyn FnMut(&str),
) -> Result<ScoreboardReport, Failure> {
    let plans = plans();
    let specs: Vec<RunSpec> = specs(&plans).into_iter().collect();
    let counts = each(&specs, jobs, &run, &mut |_, spec, _| progress(&spec.to_string()));
    let results = specs.iter().cloned().zip(counts).map(|(spec, counts)| Ok((spec, counts?)));
    let results: Results = results.collect::<Result<_, Failure>>()?;
    let rows = plans.iter().map(|(row, plan)| score_row(row, plan, &results));
    let rows = rows.collect::<Result<_, _>>()?;
    Ok(ScoreboardReport { rows, schema: SCOREBOARD_SCHEMA.to_owned() })
}

fn plans() -> Vec<(Observation, Plan)> {
    Observation::all()
        .into_iter()
        .map(|row| {
            let plan = Plan::of(&row);
            (row, plan)
        })
        .collect()
}

fn specs(plans: &[(Observation, Plan)]) -> BTreeSet<RunSpec> {
    let measured = plans.iter().filter_map(|(_, plan)| match plan {
        Plan::Predicted { before, after, .. } => Some([&**before, &**after]),
        Plan::NotModelled(_) => None,
    });
    measured.flatten().flat_map(Measured::runs).cloned().collect()
}

fn run(spec: &RunSpec) -> Result<Counters, Failure> {
    let program = Program::open(spec.guest, spec.arch)?;
    let mut argv = vec![spec.guest.trim_start_matches('@').to_owned()];
    argv.extend(spec.args.iter().map(u64::to_string));
    // Naming any size turns all others off; 4K is the PMD size, off by name.
    let thp = match spec.folio_kb {
        4 => ThpSetting { kib: 2048, policy: ThpPolicy::Never },
        kib => ThpSetting { kib, policy: ThpPolicy::Always },
    };
    let set = spec.set.iter().map(|text| parse_set(text)).collect::<Result<Vec<_>, _>>();
    let set = set.map_err(|e| Failure { message: e.to_string(), status: status::INTERNAL })?;
    let request = RunRequest {
        arch: Some(spec.arch),
        kernel: spec.kernel.clone(),
        machine: Some(spec.machine.clone()),
        cpus: Some(1),
        thp: vec![thp],
        set,
        ..RunRequest::new(program, argv)
    };
    let report = crate::run(&request, &mut Silent)?;
    let call = report.syscall(spec.entry).filter(|_| report.exit.status == 0);
    let call = call.ok_or_else(|| Failure {
        message: format!(
            "internal error: {spec} made no {} or failed; please report it",
            spec.entry
        ),
        status: status::INTERNAL,
    })?;
    Ok(call.events.counters())
}

fn score_row(row: &Observation, plan: &Plan, results: &Results) -> Result<ScoreRow, Failure> {
    let (prediction, not_modelled) = match plan {
        Plan::NotModelled(why) => (None, Some((*why).to_owned())),
        Plan::Predicted { before, after, how } => {
            (Some(predict(before, after, how, results)?), None)
        }
    };
    let fitted = |p: &Prediction| row.fitted_in.contains(&p.prices);
    Ok(ScoreRow {
        fitted: prediction.as_ref().is_some_and(fitted),
        id: row.id.clone(),
        not_modelled,
        sign: prediction.as_ref().map_or(Sign::None, |p| sign(row, p.ratio.value)),
        prediction,
        published_after: row.after,
        published_before: row.before,
        published_ratio: row.ratio(),
        published_words: row.says.clone(),
        source: row.source.clone(),
        unit: row.unit.clone(),
    })
}

fn predict(
    before: &Measured,
    after: &Measured,
    how: &str,
    results: &Results,
) -> Result<Prediction, Failure> {
    let spec = &before.run;
    let prices = PriceList::for_machine(&spec.machine, spec.arch).map_err(|error| Failure {
        message: format!("internal error in the built-in price lists: {error}; please report it"),
        status: status::INTERNAL,
    })?;
    let [a, b] = [before, after].map(|m| breakdown(m, &prices, results));
    let ratio = a.ratio(&b);
    Ok(Prediction {
        before: time(a.estimate()),
        after: time(b.estimate()),
        how: how.to_owned(),
        prices: prices.name().to_owned(),
        ratio: PredictedRatio { high: ratio.high, low: ratio.low, value: ratio.value },
    })
}

/// The time of `scale` times what was counted.
fn breakdown(measured: &Measured, prices: &PriceList, results: &Results) -> Breakdown {
    let nothing = Counters::new();
    let of = |run: &RunSpec| results.get(run).unwrap_or(&nothing).clone();
    let mut counts = of(&measured.run);
    if let Some(start) = &measured.start {
        counts = counts.since(&of(start));
    }
    let mut scaled = Counters::new();
    counts.nonzero().for_each(|(event, n)| scaled.add(event, n * measured.scale));
    prices.explain(&scaled, 0)
}

fn time(estimate: Estimate) -> PredictedTime {
    let Estimate { time, low, high } = estimate;
    PredictedTime { high_ns: high.ns(), low_ns: low.ns(), ns: time.ns() }
}

/// Faster, slower, or no change.
fn direction(ratio: f64) -> i8 {
    match ratio - 1.0 {
        x if x > NO_CHANGE => 1,
        x if x < -NO_CHANGE => -1,
        _ => 0,
    }
}

/// Whether a ratio has the sign that was published, in figures or in words.
fn sign(row: &Observation, predicted: f64) -> Sign {
    let found = direction(predicted);
    let right = match (row.ratio(), row.sign.as_deref()) {
        (Some(published), _) => found == direction(published),
        (None, Some("same")) => found == 0,
        (None, Some("not-worse")) => found >= 0,
        (None, Some("worse")) => found < 0,
        _ => return Sign::None,
    };
    if right { Sign::Right } else { Sign::Wrong }
}

#[cfg(test)]
mod tests;
