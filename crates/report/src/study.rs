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
    /// The guest's environment: `NAME=VALUE`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub env: Vec<String>,
    /// Size of the folios in kB, and of no other; 0 leaves them as Linux boots.
    pub folio_kb: u64,
    /// Kernel version and patches.
    pub kernel: String,
    /// Machine preset.
    pub machine: String,
    /// The limit on instructions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_instructions: Option<u64>,
    /// Guest RAM in bytes, if it is not the default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mem_bytes: Option<u64>,
    /// Path or `@name`.
    pub program: String,
    /// Seed of everything random.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub seed: u64,
    /// Fields of kernel and machine that differ: `machine.tlbirange=off`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub set: Vec<String>,
    /// Swap space in bytes, if it is not the default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub swap_bytes: Option<u64>,
    /// What is written to files of /proc or /sys before the program starts: `FILE=TEXT`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub write: Vec<String>,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
fn is_zero(n: &u64) -> bool {
    *n == 0
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

/// One line of a study: a point, how it ended, and what it takes to repeat it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct StudyRecord {
    /// The command that makes this run alone.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub command: String,
    /// Why it failed, if it did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<Failure>,
    /// Hash of all inputs of the run: the program's bytes, the options, the source of the tool.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub key: String,
    /// Which point of the matrix.
    pub point: Point,
    /// The run, if it came to an end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run: Option<RunReport>,
    /// [`STUDY_SCHEMA`].
    pub schema: String,
    /// Hash of the source that the tool was built from.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub source: String,
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
        let record: StudyRecord = serde_json::from_str(line)?;
        if record.schema != STUDY_SCHEMA {
            let found = format!("schema `{}` is not `{STUDY_SCHEMA}`", record.schema);
            return Err(serde::de::Error::custom(found));
        }
        Ok(record)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::run::tests::{sample, sorted};

    fn record(run: Option<RunReport>, error: Option<Failure>) -> StudyRecord {
        let (schema, study) = (STUDY_SCHEMA.to_owned(), "pageout".to_owned());
        StudyRecord { error, run, schema, study, ..StudyRecord::default() }
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
