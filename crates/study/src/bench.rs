//! Measured times of one machine, paired with counts: what prices are fitted to.

use crate::workload::{Counted, Plan, Results};
use crate::{Observation, status};
use cost::{Datum, FitError, Posterior, PriceError, PriceList, fit};
use report::Failure;
use std::collections::BTreeSet;
use units::ArchId;

/// What the model leaves out of an operation, before a patch and after it alike: one standard deviation, relative.
/// Chosen among 5, 10 and 15 % with the leave-one-out errors in view.
const COMMON_ERROR: f64 = 0.10;
/// The error of a single time beyond that, where none was published.
pub(crate) const OWN_ERROR: f64 = 0.05;

/// A published result, with the counts of the runs that stand for it.
#[derive(Debug)]
pub(crate) struct BenchRow {
    pub(crate) row: Observation,
    pub(crate) how: String,
    /// Without the change, and with it.
    pub(crate) counted: [Counted; 2],
}

impl BenchRow {
    /// Rows whose runs are known; `None` for the others.
    pub(crate) fn of(
        row: &Observation,
        plan: &Plan,
        results: &Results,
    ) -> Result<Option<BenchRow>, Failure> {
        let Plan::Predicted { before, after, how } = plan else { return Ok(None) };
        let counted = [results.counted(before)?, results.counted(after)?];
        Ok(Some(BenchRow { row: row.clone(), how: how.clone(), counted }))
    }

    /// The prices that a fit of its machine starts from: those of the preset before any fit, or the generic ones.
    pub(crate) fn base(&self) -> Result<PriceList, Failure> {
        let arch = match (&self.row.machine, &self.row.arch) {
            (Some(machine), _) => crate::machine_arch(machine)?,
            (None, arch) => arch.as_deref().and_then(ArchId::parse).unwrap_or(ArchId::X86_64),
        };
        let machine = self.row.machine.as_deref().unwrap_or_default();
        PriceList::for_machine(machine, arch).map_err(|error| broken_list(&error))
    }

    pub(crate) fn occurrences(&self, list: &PriceList) -> [Vec<f64>; 2] {
        [0, 1].map(|i| list.occurrences(&self.counted[i].counts, self.counted[i].instructions))
    }

    /// Whether it is a measurement of its own that prices can be fitted to.
    fn is_datum(&self) -> bool {
        self.row.times_ns().is_some() && self.row.derived_from.is_empty()
    }

    /// Whether it must not be in a fit that is to predict `other`.
    fn gives_away(&self, other: &Observation) -> bool {
        self.row.id == other.id
            || other.derived_from.contains(&self.row.id)
            || self.row.derived_from.contains(&other.id)
    }
}

/// A fit, and which rows it was made on.
#[derive(Debug)]
pub(crate) struct BenchFit {
    pub(crate) base: PriceList,
    pub(crate) found: Posterior,
    pub(crate) fitted_on: Vec<String>,
}

/// Fits the prices of `like`'s machine to the rows of its bench, `without` what would give that row away.
pub(crate) fn fit_bench(
    rows: &[BenchRow],
    like: &BenchRow,
    without: Option<&Observation>,
) -> Result<BenchFit, Failure> {
    let base = like.base()?;
    let bench = like.row.bench();
    let used: Vec<&BenchRow> = rows
        .iter()
        .filter(|r| r.row.bench() == bench && r.is_datum())
        .filter(|r| without.is_none_or(|without| !r.gives_away(without)))
        .collect();
    let data: Vec<Datum> =
        used.iter().enumerate().flat_map(|(group, r)| data(r, &base, group)).collect();
    let found = fit(&base.unknowns(), &data, COMMON_ERROR).map_err(|e| no_fit(&e))?;
    let fitted_on = used.iter().map(|r| r.row.id.clone()).collect();
    Ok(BenchFit { base, found, fitted_on })
}

fn data(row: &BenchRow, base: &PriceList, group: usize) -> Vec<Datum> {
    let Some(times) = row.row.times_ns() else { return Vec::new() };
    let spreads = [row.row.spread_before, row.row.spread_after];
    let occurrences = row.occurrences(base);
    let datum = |((value, spread), counts): ((f64, Option<f64>), Vec<f64>)| Datum {
        name: row.row.id.clone(),
        counts,
        value,
        spread: spread.unwrap_or(OWN_ERROR),
        group,
    };
    times.into_iter().zip(spreads).zip(occurrences).map(datum).collect()
}

/// The error of a predicted time: what the model leaves out, and what is left beside that.
pub(crate) fn time_error() -> f64 {
    COMMON_ERROR.hypot(OWN_ERROR)
}

/// The benches that rows can be fitted on, each with how many.
pub(crate) fn benches(rows: &[BenchRow]) -> BTreeSet<&str> {
    rows.iter().filter(|r| r.is_datum()).map(|r| r.row.bench()).collect()
}

pub(crate) fn broken_list(error: &PriceError) -> Failure {
    Failure {
        message: format!("internal error in the built-in price lists: {error}; please report it"),
        status: status::INTERNAL,
    }
}

pub(crate) fn no_fit(error: &FitError) -> Failure {
    Failure { message: format!("no prices can be fitted: {error}"), status: status::USAGE }
}
