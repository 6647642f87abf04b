//! `ptescope.study/1`: JSON lines, one run each.

use crate::RunReport;
use serde::{Deserialize, Serialize};

/// The schema of [`StudyRecord`].
pub const STUDY_SCHEMA: &str = "ptescope.study/1";

/// One point of a study's matrix.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Point {
    /// Architecture.
    pub arch: String,
    /// The program's arguments.
    pub args: Vec<String>,
    /// How many CPUs.
    pub cpus: u16,
    /// Size of the folios in kB.
    pub folio_kb: u64,
    /// Kernel version and patches.
    pub kernel: String,
    /// Machine preset.
    pub machine: String,
    /// Path or `@name`.
    pub program: String,
}

/// Why a point has no result.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[must_use]
pub struct Failure {
    /// One sentence.
    pub message: String,
    /// The exit status that `ptescope run` would have had.
    pub status: u8,
}

impl std::fmt::Display for Failure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for Failure {}

/// One line of a study.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StudyRecord {
    /// Why it failed, if it did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<Failure>,
    /// Which point of the matrix.
    pub point: Point,
    /// The run, if it came to an end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run: Option<RunReport>,
    /// [`STUDY_SCHEMA`].
    pub schema: String,
    /// Name of the study.
    pub study: String,
}

impl StudyRecord {
    /// As one line of JSON, newline included.
    ///
    /// # Errors
    /// None in practice: the schema has no value that JSON cannot hold.
    pub fn to_json_line(&self) -> Result<String, serde_json::Error> {
        serde_json::to_string(self).map(|text| text + "\n")
    }

    /// Reads a line.
    ///
    /// # Errors
    /// Text that is no JSON of this schema.
    pub fn from_json_line(line: &str) -> Result<StudyRecord, serde_json::Error> {
        serde_json::from_str(line)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::run::tests::{sample, sorted};

    fn record(run: Option<RunReport>, error: Option<Failure>) -> StudyRecord {
        let study = "pageout".to_owned();
        StudyRecord { error, point: Point::default(), run, schema: STUDY_SCHEMA.to_owned(), study }
    }

    #[test]
    fn a_record_is_one_sorted_line_and_reads_back() {
        let failure = Failure { message: "no such guest".to_owned(), status: 2 };
        for record in [record(Some(sample()), None), record(None, Some(failure))] {
            let line = record.to_json_line().expect("writes");
            assert_eq!(line.matches('\n').count(), 1);
            let value: serde_json::Value = serde_json::from_str(&line).expect("reads");
            assert_eq!(sorted(&value).to_string() + "\n", line);
            assert_eq!(StudyRecord::from_json_line(&line).expect("reads"), record);
        }
    }
}
