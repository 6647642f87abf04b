//! `ptescope.scoreboard/1`: predictions beside published results.

use serde::{Deserialize, Serialize};

/// The schema of [`ScoreboardReport`].
pub const SCOREBOARD_SCHEMA: &str = "ptescope.scoreboard/1";

/// A predicted time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PredictedTime {
    /// Upper end of the 90 % interval.
    pub high_ns: u64,
    /// Lower end.
    pub low_ns: u64,
    /// The expected value.
    pub ns: u64,
}

/// A predicted ratio.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct PredictedRatio {
    /// Upper end of the 90 % interval.
    pub high: f64,
    /// Lower end.
    pub low: f64,
    /// The expected value.
    pub value: f64,
}

/// What is predicted for a published result.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Prediction {
    /// With the change.
    pub after: PredictedTime,
    /// Without it.
    pub before: PredictedTime,
    /// The rows of the same machine that the prices were fitted on for this prediction; never the row itself.
    pub fitted_on: Vec<String>,
    /// The two runs, in words.
    pub how: String,
    /// The price list that the fit started from.
    pub prices: String,
    /// `before` ÷ `after`.
    pub ratio: PredictedRatio,
}

/// How a prediction compares.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Sign {
    /// The change helps, hurts or does nothing, as published.
    Right,
    /// It does not.
    Wrong,
    /// There is no prediction.
    None,
}

/// One published result.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ScoreRow {
    /// Whether a built-in price list was fitted on it: then what that list says of it is no prediction. The prediction here
    /// left it out.
    pub fitted: bool,
    /// Name of the published result.
    pub id: String,
    /// Why there is no prediction.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub not_modelled: Option<String>,
    /// What is predicted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prediction: Option<Prediction>,
    /// As published, in `unit`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub published_after: Option<f64>,
    /// As published, in `unit`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub published_before: Option<f64>,
    /// More than 1: the change helped.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub published_ratio: Option<f64>,
    /// What was published in words.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub published_words: Option<String>,
    /// Whether the prediction has the right sign.
    pub sign: Sign,
    /// Who published it, where.
    pub source: String,
    /// Of the published figures.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unit: Option<String>,
}

impl ScoreRow {
    /// How far the predicted ratio is from the published one: 0.25 is 25 % above or below.
    pub fn error(&self) -> Option<f64> {
        let predicted = self.prediction.as_ref()?.ratio.value;
        Some((predicted / self.published_ratio? - 1.0).abs())
    }
}

/// All published results.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ScoreboardReport {
    /// In the order of `data/observations.toml`.
    pub rows: Vec<ScoreRow>,
    /// [`SCOREBOARD_SCHEMA`].
    pub schema: String,
}

impl ScoreboardReport {
    /// As indented JSON with a newline at the end.
    ///
    /// # Errors
    /// None in practice: the schema has no value that JSON cannot hold.
    pub fn to_json(&self) -> Result<String, serde_json::Error> {
        serde_json::to_string_pretty(self).map(|text| text + "\n")
    }
}
