//! Unknown prices from measured sums: a Bayesian fit of count × price.
//!
//! What is measured is a sum over classes; what is wanted are the prices. There are always fewer measurements than
//! prices, so each price starts from a documented prior, and the fit moves all of them by as little as
//! their spreads allow.
//!
//! - A price is positive, and as likely to be twice as half of what was thought: its logarithm has a normal prior, whose
//!   standard deviation is the relative spread.
//! - A measurement is the sum of count × price, up to an error of its own (relative, `spread`), and an error that it
//!   shares with the others of its group (`common`): what the model leaves out of an operation, it leaves out before and
//!   after a patch alike.
//! - The estimate is the most probable set of prices (Levenberg–Marquardt), its covariance that of the normal
//!   distribution that touches the posterior there. Nothing is drawn at random.

use nalgebra::{Cholesky, DMatrix, DVector};

/// Half-width of a two-sided 90 % interval, in standard deviations.
const SIGMAS_90: f64 = 1.645;
/// Steps after which the search ends; it takes a dozen.
const STEPS_MAX: usize = 500;
/// A price has been learned from the data if that took at least this part of its variance away.
const LEARNED: f64 = 0.1;
/// Two prices that are correlated by more than this are known by their sum, not each.
const ENTANGLED: f64 = -0.7;

/// A price that is to be found.
#[derive(Clone, Debug, PartialEq)]
pub struct Unknown {
    /// What it is called.
    pub name: String,
    /// What it is thought to be; above 0.
    pub prior: f64,
    /// How far that may be off: standard deviation of its logarithm, above 0.
    pub spread: f64,
}

/// One measured sum.
#[derive(Clone, Debug, PartialEq)]
pub struct Datum {
    /// What was measured.
    pub name: String,
    /// How often each unknown occurs in it.
    pub counts: Vec<f64>,
    /// The measured value; above 0.
    pub value: f64,
    /// Its own relative error, one standard deviation; above 0.
    pub spread: f64,
    /// Data of one group share an error.
    pub group: usize,
}

/// Why there is no fit.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FitError {
    /// A prior or a measurement that is no positive number.
    #[error("{0} must be a positive number, with a positive spread")]
    NotPositive(String),
    /// Counts for another number of unknowns.
    #[error("{0} has counts for another number of prices")]
    Shape(String),
    /// The equations have no solution in floating point.
    #[error("the equations are singular: the spreads or the counts are out of all proportion")]
    Singular,
}

/// What is known after the fit.
#[derive(Clone, Debug)]
pub struct Posterior {
    unknowns: Vec<Unknown>,
    values: Vec<f64>,
    /// Of the logarithms.
    covariance: DMatrix<f64>,
}

/// A predicted value with its 90 % interval.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Predicted {
    /// The expected value.
    pub value: f64,
    /// Lower end.
    pub low: f64,
    /// Upper end.
    pub high: f64,
}

/// Fits `unknowns` to `data`, whose groups share a relative error of `common`.
///
/// # Errors
/// [`FitError`] for numbers that are none, or equations that cannot be solved.
pub fn fit(unknowns: &[Unknown], data: &[Datum], common: f64) -> Result<Posterior, FitError> {
    check(unknowns, data, common)?;
    let problem = Problem { unknowns, data, common, groups: groups(data) };
    let (values, covariance) = problem.solve()?;
    Ok(Posterior { unknowns: unknowns.to_vec(), values, covariance })
}

fn check(unknowns: &[Unknown], data: &[Datum], common: f64) -> Result<(), FitError> {
    let positive = |x: f64| x.is_finite() && x > 0.0;
    if !positive(common) {
        return Err(FitError::NotPositive("the common error".to_owned()));
    }
    let wrong = |name: &str| Err(FitError::NotPositive(format!("`{name}`")));
    for unknown in unknowns {
        if !positive(unknown.prior) || !positive(unknown.spread) {
            return wrong(&unknown.name);
        }
    }
    for datum in data {
        let counts = datum.counts.iter().all(|&n| n.is_finite() && n >= 0.0);
        if !positive(datum.value) || !positive(datum.spread) || !counts {
            return wrong(&datum.name);
        }
        if datum.counts.len() != unknowns.len() {
            return Err(FitError::Shape(format!("`{}`", datum.name)));
        }
    }
    Ok(())
}

fn groups(data: &[Datum]) -> usize {
    data.iter().map(|d| d.group + 1).max().unwrap_or(0)
}

struct Problem<'a> {
    unknowns: &'a [Unknown],
    data: &'a [Datum],
    common: f64,
    groups: usize,
}

impl Problem<'_> {
    /// Values and the covariance of their logarithms. The state is the logarithm of each price over its prior, then the
    /// error of each group.
    fn solve(&self) -> Result<(Vec<f64>, DMatrix<f64>), FitError> {
        let prices = self.unknowns.len();
        let mut state = DVector::zeros(prices + self.groups);
        let mut cost = self.residuals(&state).norm_squared();
        let mut damping = 1e-3;
        for _ in 0..STEPS_MAX {
            let (residuals, jacobian) = (self.residuals(&state), self.jacobian(&state));
            let (gradient, hessian) = (jacobian.tr_mul(&residuals), jacobian.tr_mul(&jacobian));
            let mut damped = hessian.clone();
            for i in 0..damped.nrows() {
                damped[(i, i)] *= 1.0 + damping;
            }
            let step = Cholesky::new(damped).ok_or(FitError::Singular)?.solve(&gradient);
            let next = &state - &step;
            let next_cost = self.residuals(&next).norm_squared();
            if next_cost.is_finite() && next_cost <= cost {
                (state, damping) = (next, (damping / 4.0).max(1e-12));
                let gained = cost - next_cost;
                cost = next_cost;
                if gained <= 1e-13 * (1.0 + cost) && step.amax() < 1e-9 {
                    break;
                }
            } else if damping > 1e12 {
                break;
            } else {
                damping *= 4.0;
            }
        }
        let jacobian = self.jacobian(&state);
        let hessian = jacobian.tr_mul(&jacobian);
        let covariance = Cholesky::new(hessian).ok_or(FitError::Singular)?.inverse();
        let values = (0..prices).map(|i| self.price(&state, i)).collect();
        Ok((values, covariance.view((0, 0), (prices, prices)).into_owned()))
    }

    fn price(&self, state: &DVector<f64>, i: usize) -> f64 {
        self.unknowns[i].prior * state[i].exp()
    }

    fn sum(&self, state: &DVector<f64>, datum: &Datum) -> f64 {
        datum.counts.iter().enumerate().map(|(i, n)| n * self.price(state, i)).sum()
    }

    /// Distances from data and priors, each in its standard deviation.
    fn residuals(&self, state: &DVector<f64>) -> DVector<f64> {
        let prices = self.unknowns.len();
        let data = self.data.iter().map(|d| {
            let expected = d.value * (1.0 + state[prices + d.group]);
            (self.sum(state, d) - expected) / (d.spread * d.value)
        });
        let priors = self.unknowns.iter().enumerate().map(|(i, u)| state[i] / u.spread);
        let common = (0..self.groups).map(|g| state[prices + g] / self.common);
        let all: Vec<f64> = data.chain(priors).chain(common).collect();
        DVector::from_vec(all)
    }

    fn jacobian(&self, state: &DVector<f64>) -> DMatrix<f64> {
        let (prices, rows) = (self.unknowns.len(), self.data.len());
        let mut matrix = DMatrix::zeros(rows + prices + self.groups, prices + self.groups);
        for (row, d) in self.data.iter().enumerate() {
            let scale = d.spread * d.value;
            for (i, n) in d.counts.iter().enumerate() {
                matrix[(row, i)] = n * self.price(state, i) / scale;
            }
            matrix[(row, prices + d.group)] = -1.0 / d.spread;
        }
        for (i, u) in self.unknowns.iter().enumerate() {
            matrix[(rows + i, i)] = 1.0 / u.spread;
        }
        for g in 0..self.groups {
            matrix[(rows + prices + g, prices + g)] = 1.0 / self.common;
        }
        matrix
    }
}

impl Posterior {
    /// The unknowns, in the order that they were given in.
    pub fn unknowns(&self) -> &[Unknown] {
        &self.unknowns
    }

    /// The estimates.
    pub fn values(&self) -> &[f64] {
        &self.values
    }

    /// Relative spread of an estimate: standard deviation of its logarithm.
    pub fn spread(&self, i: usize) -> f64 {
        self.covariance[(i, i)].max(0.0).sqrt()
    }

    /// Whether the data say something of it: else it stays at its prior.
    pub fn is_learned(&self, i: usize) -> bool {
        let left = (self.spread(i) / self.unknowns[i].spread).powi(2);
        left < 1.0 - LEARNED
    }

    /// Pairs of learned estimates of which the data know the sum and not the parts, with their correlation, the closest first.
    pub fn entangled(&self) -> Vec<(usize, usize, f64)> {
        let learned: Vec<usize> = (0..self.values.len()).filter(|&i| self.is_learned(i)).collect();
        let mut pairs = Vec::new();
        for (nr, &i) in learned.iter().enumerate() {
            for &j in &learned[nr + 1..] {
                let correlation = self.covariance[(i, j)] / (self.spread(i) * self.spread(j));
                if correlation < ENTANGLED {
                    pairs.push((i, j, correlation));
                }
            }
        }
        pairs.sort_by(|a, b| a.2.total_cmp(&b.2));
        pairs
    }

    /// A sum of the same prices that was not measured, with an error of `spread` of its own.
    pub fn predict(&self, counts: &[f64], spread: f64) -> Predicted {
        let value = self.sum(counts);
        let slope = self.slope(counts).map(|s| s / value);
        interval(value, (self.variance(&slope) + spread * spread).sqrt())
    }

    /// `before` ÷ `after`, both sums of the same prices, each with an error of `spread` of its own.
    pub fn predict_ratio(&self, before: &[f64], after: &[f64], spread: f64) -> Predicted {
        let (b, a) = (self.sum(before), self.sum(after));
        let slope = self.slope(before) / b - self.slope(after) / a;
        interval(b / a, (self.variance(&slope) + 2.0 * spread * spread).sqrt())
    }

    fn sum(&self, counts: &[f64]) -> f64 {
        counts.iter().zip(&self.values).map(|(n, price)| n * price).sum()
    }

    /// By how much the sum grows with the logarithm of each price.
    fn slope(&self, counts: &[f64]) -> DVector<f64> {
        let all = counts.iter().zip(&self.values).map(|(n, price)| n * price);
        DVector::from_iterator(counts.len(), all)
    }

    fn variance(&self, slope: &DVector<f64>) -> f64 {
        slope.dot(&(&self.covariance * slope)).max(0.0)
    }
}

fn interval(value: f64, sigma: f64) -> Predicted {
    let factor = (SIGMAS_90 * sigma).exp();
    Predicted { value, low: value / factor, high: value * factor }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn unknown(name: &str, prior: f64, spread: f64) -> Unknown {
        Unknown { name: name.to_owned(), prior, spread }
    }

    fn datum(counts: &[f64], value: f64, group: usize) -> Datum {
        Datum { name: format!("{counts:?}"), counts: counts.to_vec(), value, spread: 0.01, group }
    }

    /// Counts that tell three prices apart.
    const COUNTS: [[f64; 3]; 4] =
        [[100.0, 10.0, 1.0], [10.0, 100.0, 1.0], [5.0, 5.0, 40.0], [60.0, 60.0, 60.0]];

    fn planted(prices: [f64; 3], of: &[[f64; 3]]) -> Vec<Datum> {
        let sum = |counts: &[f64; 3]| counts.iter().zip(prices).map(|(n, p)| n * p).sum();
        of.iter().enumerate().map(|(g, counts)| datum(counts, sum(counts), g)).collect()
    }

    #[test]
    fn planted_prices_are_recovered_from_priors_far_away() {
        let prices = [3.0, 150.0, 40.0];
        let unknowns = [unknown("a", 30.0, 2.0), unknown("b", 15.0, 2.0), unknown("c", 40.0, 2.0)];
        let found = fit(&unknowns, &planted(prices, &COUNTS), 0.001).expect("solves");
        for (i, price) in prices.iter().enumerate() {
            let error = found.values()[i] / price - 1.0;
            assert!(error.abs() < 0.03, "{i}: {} against {price}", found.values()[i]);
            assert!(found.is_learned(i) && found.spread(i) < 0.1, "{i}: {}", found.spread(i));
        }
        assert!(found.entangled().is_empty(), "{:?}", found.entangled());
    }

    #[test]
    fn what_no_datum_contains_keeps_its_prior() {
        let unknowns = [unknown("a", 2.0, 0.5), unknown("b", 7.0, 0.5)];
        let found = fit(&unknowns, &[datum(&[10.0, 0.0], 30.0, 0)], 0.01).expect("solves");
        assert!((found.values()[0] - 3.0).abs() < 0.1 && found.is_learned(0));
        assert!((found.values()[1] - 7.0).abs() < 1e-6 && !found.is_learned(1));
        assert!((found.spread(1) - 0.5).abs() < 1e-6);
    }

    #[test]
    fn prices_that_always_come_together_are_known_by_their_sum() {
        let unknowns = [unknown("tlbi", 100.0, 0.6), unknown("dsb", 100.0, 0.6)];
        let found = fit(&unknowns, &[datum(&[5.0, 5.0], 600.0, 0)], 0.01).expect("solves");
        let [tlbi, dsb] = found.values() else { panic!("two prices") };
        assert!((tlbi + dsb - 120.0).abs() < 2.0, "{tlbi} and {dsb}");
        assert_eq!(found.entangled().len(), 1);
        let sum = found.predict(&[1.0, 1.0], 0.0);
        assert!(sum.high / sum.low < 1.1 && found.spread(0) > 0.2, "{sum:?}");
    }

    #[test]
    fn prices_stay_positive_when_the_data_would_like_them_not_to() {
        // 10 a = 10, 10 a + 10 b = 8.
        let unknowns = [unknown("a", 1.0, 0.5), unknown("b", 1.0, 0.5)];
        let data = [datum(&[10.0, 0.0], 10.0, 0), datum(&[10.0, 10.0], 8.0, 1)];
        let found = fit(&unknowns, &data, 0.01).expect("solves");
        assert!(found.values().iter().all(|&p| p > 0.0), "{:?}", found.values());
        assert!(found.values()[1] < 0.5, "{:?}", found.values());
    }

    #[test]
    fn an_error_that_both_of_a_pair_have_leaves_their_ratio() {
        let unknowns = [unknown("a", 1.0, 0.3), unknown("b", 1.0, 0.3)];
        // The model says 20 and 10; measured were 30 and 15.
        let data = [datum(&[10.0, 10.0], 30.0, 0), datum(&[10.0, 0.0], 15.0, 0)];
        let loose = fit(&unknowns, &data, 0.5).expect("solves");
        let strict = fit(&unknowns, &data, 0.001).expect("solves");
        assert!(loose.values()[0] < strict.values()[0]);
        let ratio = loose.predict_ratio(&[10.0, 10.0], &[10.0, 0.0], 0.0);
        assert!((ratio.value - 2.0).abs() < 0.05, "{ratio:?}");
        assert!(ratio.low < ratio.value && ratio.value < ratio.high);
    }

    #[test]
    fn nonsense_is_refused_by_name() {
        let message = |u: &[Unknown], d: &[Datum]| fit(u, d, 0.1).expect_err("wrong").to_string();
        let good = [unknown("a", 1.0, 0.3)];
        assert!(message(&[unknown("zero", 0.0, 0.3)], &[]).contains("`zero`"));
        assert!(message(&good, &[datum(&[1.0], f64::NAN, 0)]).contains("`[1.0]`"));
        assert!(message(&good, &[datum(&[-1.0], 1.0, 0)]).contains("`[-1.0]`"));
        assert!(message(&good, &[datum(&[1.0, 2.0], 1.0, 0)]).contains("another number"));
        let nothing = fit(&good, &[], 0.1).expect("no data are no error");
        assert!((nothing.values()[0] - 1.0).abs() < 1e-9);
    }
}
