//! `ptescope.explain/1`: why two runs differ.

use serde::{Deserialize, Serialize};

/// The schema of [`ExplainReport`].
pub const EXPLAIN_SCHEMA: &str = "ptescope.explain/1";

/// One of the two runs. All times are picoseconds, so that sums are exact.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExplainedRun {
    /// Architecture.
    pub arch: String,
    /// Its arguments, its name first.
    pub argv: Vec<String>,
    /// Kernel version and patches.
    pub kernel: String,
    /// Machine preset.
    pub machine: String,
    /// Upper end of the 90 % interval of `ps`.
    pub high_ps: i128,
    /// Lower end.
    pub low_ps: i128,
    /// Modelled time of what was compared.
    pub ps: i128,
    /// The price list.
    pub prices: String,
}

/// A part of the difference.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClassTerm {
    /// The class of events.
    pub class: String,
    /// Events in the first run.
    pub count_a: u64,
    /// Events in the second.
    pub count_b: u64,
    /// Their time in the first.
    pub ps_a: i128,
    /// Their time in the second.
    pub ps_b: i128,
    /// First minus second.
    pub saved_ps: i128,
    /// The class in words.
    pub words: String,
}

/// A part of the difference by place.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct OpTerm {
    /// Kernel entry; `fault` for page faults.
    pub entry: String,
    /// Ops from the outside in, without what runs inside them; `""` is the entry itself.
    pub op: String,
    /// Time in the first run.
    pub ps_a: i128,
    /// Time in the second.
    pub ps_b: i128,
    /// First minus second.
    pub saved_ps: i128,
}

/// A price that alone can turn the sign of the difference.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct FlipTerm {
    /// The price at which the difference is nothing.
    pub at_ps: i128,
    /// The class of events.
    pub class: String,
    /// The price list.
    pub prices: String,
    /// The price as it is.
    pub price_ps: i128,
    /// How many standard deviations lie between.
    pub sigmas: f64,
}

/// The difference of two runs, split twice; each split adds up to `saved_ps` exactly.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ExplainReport {
    /// The first run.
    pub a: ExplainedRun,
    /// The second.
    pub b: ExplainedRun,
    /// By class of event, the largest first.
    pub by_class: Vec<ClassTerm>,
    /// By kernel entry and op, the largest first.
    pub by_op: Vec<OpTerm>,
    /// Prices that alone can turn the sign, the nearest first.
    pub flips: Vec<FlipTerm>,
    /// What was compared: a kernel entry, or `""` for everything.
    pub only: String,
    /// First minus second: more than 0 if the second is faster.
    pub saved_ps: i128,
    /// Upper end of the 90 % interval of `saved_ps`.
    pub saved_high_ps: i128,
    /// Lower end.
    pub saved_low_ps: i128,
    /// [`EXPLAIN_SCHEMA`].
    pub schema: String,
    /// The explanation in words.
    pub sentences: Vec<String>,
}

impl ExplainReport {
    /// As indented JSON with a newline at the end.
    ///
    /// # Errors
    /// None in practice: the schema has no value that JSON cannot hold.
    pub fn to_json(&self) -> Result<String, serde_json::Error> {
        serde_json::to_string_pretty(self).map(|text| text + "\n")
    }
}
