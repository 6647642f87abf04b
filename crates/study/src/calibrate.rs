//! `ptescope calibrate`: prices of a machine from measured times.

mod host;
mod work;

pub use host::{HostCalibration, calibrate_host};
pub use work::{CalibratedWork, calibrate_work};

use crate::bench::{BenchFit, BenchRow, OWN_ERROR, benches, broken_list, fit_bench};
use crate::workload::{Measured, Plan, Results};
use crate::{Observation, status, wrap};
use cost::{Posterior, PriceList};
use report::{Align, Failure, Table};
use std::collections::BTreeSet;
use std::num::NonZeroUsize;

const WIDTH: usize = 100;

/// What is written over a price list that was fitted.
const COMMENT: &str = "\
# Prices are opinions: cost per event in nanoseconds beyond the kernel's instructions, with a relative spread (one standard
# deviation). Written by `ptescope calibrate`: prior_ns is what was believed before, from the source named beside it; where ns
# differs, the measurements under `fitted_on` moved it, and what they say of those rows is *not* a prediction.
";

/// Measured times with the counts that belong to them.
#[derive(Debug)]
pub struct Calibration {
    rows: Vec<BenchRow>,
}

/// A price list that was fitted.
#[derive(Debug)]
pub struct Calibrated {
    /// The list as a price file.
    pub toml: String,
    /// What the fit found, and how well it predicts.
    pub text: String,
}

impl Calibration {
    /// Makes the runs that stand for `rows` on `jobs` threads.
    ///
    /// # Errors
    /// As [`crate::run`].
    pub fn of(
        rows: &[Observation],
        jobs: NonZeroUsize,
        progress: &mut dyn FnMut(&str),
    ) -> Result<Calibration, Failure> {
        let plans: Vec<Plan> = rows.iter().map(Plan::of).collect();
        let results = Results::of(plans.iter().flat_map(runs).collect(), jobs, progress)?;
        let paired = rows.iter().zip(&plans).map(|(row, plan)| BenchRow::of(row, plan, &results));
        let paired = paired.collect::<Result<Vec<_>, _>>()?;
        Ok(Calibration { rows: paired.into_iter().flatten().collect() })
    }

    pub(crate) fn rows(&self) -> &[BenchRow] {
        &self.rows
    }

    /// How many runs `rows` need.
    pub fn runs(rows: &[Observation]) -> usize {
        let plans: Vec<Plan> = rows.iter().map(Plan::of).collect();
        plans.iter().flat_map(runs).collect::<BTreeSet<_>>().len()
    }

    /// Fits the prices of one bench; that of all rows if there is only one.
    ///
    /// # Errors
    /// 2 if there is no such bench, or several and none was named, or nothing can be fitted.
    pub fn fit(&self, bench: Option<&str>) -> Result<Calibrated, Failure> {
        let known = benches(&self.rows);
        let named = match bench {
            Some(bench) => known.get(bench),
            None if known.len() == 1 => known.first(),
            None => None,
        };
        let usage = |message| Failure { message, status: status::USAGE };
        let list = known.iter().copied().collect::<Vec<_>>().join(", ");
        let Some(&bench) = named else {
            return Err(usage(match bench {
                Some(bench) => format!("no measured rows of a bench `{bench}`; there are {list}"),
                None => format!("there are rows of several benches; name one by --bench: {list}"),
            }));
        };
        let Some(first) = self.rows.iter().find(|r| r.row.bench() == bench) else {
            return Err(usage(format!("no rows of a bench `{bench}`")));
        };
        let fit = fit_bench(&self.rows, first, None)?;
        let summary = format!("{}, as published", first.row.machine_as_published);
        let summary = if fit.base.is_generic() { summary } else { fit.base.summary().to_owned() };
        let list = fit.base.fitted(&fit.found, bench, &summary, self.described(&fit.fitted_on));
        let list = list.map_err(|error| broken_list(&error))?;
        let mut text = prices(&fit.base, &fit.found);
        text.push('\n');
        text.push_str(&self.left_out(bench, &fit)?);
        Ok(Calibrated { toml: list.to_toml(COMMENT), text })
    }

    fn described(&self, ids: &[String]) -> Vec<String> {
        let rows = self.rows.iter().filter(|r| ids.contains(&r.row.id));
        rows.map(|r| {
            let unit = r.row.unit.as_deref().unwrap_or_default();
            let figure = |x: Option<f64>| x.map_or_else(String::new, |x| x.to_string());
            format!(
                "{}: {} {unit} before, {} {unit} after: {} ({})",
                r.row.id,
                figure(r.row.before),
                figure(r.row.after),
                r.row.workload,
                r.row.source
            )
        })
        .collect()
    }

    /// Every row of the bench predicted by a fit to the others.
    fn left_out(&self, bench: &str, fit: &BenchFit) -> Result<String, Failure> {
        use Align::{Left, Right};
        let mut table = Table::new(&[Left, Right, Right, Right, Right]).indented(1);
        table.row(["left out", "ratio", "90 %", "measured", "error"]);
        table.rule();
        let mut errors = Vec::new();
        for row in self.rows.iter().filter(|r| fit.fitted_on.contains(&r.row.id)) {
            let Some(measured) = row.row.ratio() else { continue };
            let rest = fit_bench(&self.rows, row, Some(&row.row))?;
            let [before, after] = row.occurrences(&rest.base);
            let ratio = rest.found.predict_ratio(&before, &after, OWN_ERROR);
            let error = ratio.value / measured - 1.0;
            errors.push(error.abs());
            table.row([
                row.row.id.clone(),
                format!("{:.2}", ratio.value),
                format!("{:.2}–{:.2}", ratio.low, ratio.high),
                format!("{measured:.2}"),
                format!("{:+.0} %", error * 100.0),
            ]);
        }
        let head = format!(
            "Leave-one-out: each row of {bench} predicted by prices that were fitted to the others. Median error {:.0} %.",
            median(&mut errors) * 100.0
        );
        Ok(wrap(&head, WIDTH, 0) + "\n" + &table.render())
    }
}

fn runs(plan: &Plan) -> Vec<crate::workload::RunSpec> {
    match plan {
        Plan::Predicted { before, after, .. } => {
            [before, after].into_iter().flat_map(|m| Measured::runs(m)).cloned().collect()
        }
        Plan::NotModelled(_) => Vec::new(),
    }
}

/// The middle of some errors; 0 of none.
pub(crate) fn median(values: &mut [f64]) -> f64 {
    values.sort_by(f64::total_cmp);
    let middle = values.len() / 2;
    match values.len() {
        0 => 0.0,
        n if n % 2 == 1 => values[middle],
        _ => f64::midpoint(values[middle - 1], values[middle]),
    }
}

/// What the data moved, and what they say nothing of.
pub(crate) fn prices(base: &PriceList, found: &Posterior) -> String {
    use Align::{Left, Right};
    let mut table = Table::new(&[Left, Right, Right, Right, Right]).indented(1);
    table.row(["price", "prior, ns", "±", "fitted, ns", "±"]);
    table.rule();
    let mut untouched = Vec::new();
    for (i, unknown) in found.unknowns().iter().enumerate() {
        if !found.is_learned(i) {
            untouched.push(unknown.name.as_str());
            continue;
        }
        let percent = |x: f64| format!("{:.0} %", x * 100.0);
        table.row([
            unknown.name.clone(),
            format!("{:.2}", unknown.prior),
            percent(unknown.spread),
            format!("{:.2}", found.values()[i]),
            percent(found.spread(i)),
        ]);
    }
    let mut text = wrap(
        &format!("Prices that the measurements moved from the priors of {}:", base.name()),
        WIDTH,
        0,
    );
    text.push('\n');
    text.push_str(&table.render());
    text.push('\n');
    if !untouched.is_empty() {
        let line = format!(
            "Not identifiable from these rows, so left at their priors: {}.",
            untouched.join(", ")
        );
        text.push_str(&wrap(&line, WIDTH, 2));
    }
    let name = |i: usize| &found.unknowns()[i].name;
    let pairs: Vec<String> = found
        .entangled()
        .iter()
        .take(6)
        .map(|&(i, j, r)| format!("{} and {} ({r:.2})", name(i), name(j)))
        .collect();
    if !pairs.is_empty() {
        let line = format!(
            "Known by their sum rather than each, with their correlation: {}.",
            pairs.join("; ")
        );
        text.push_str(&wrap(&line, WIDTH, 2));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_median_is_the_middle() {
        assert!((median(&mut [3.0, 1.0, 2.0]) - 2.0).abs() < 1e-12);
        assert!((median(&mut [4.0, 1.0, 2.0, 3.0]) - 2.5).abs() < 1e-12);
        assert!(median(&mut []).abs() < 1e-12);
    }
}
