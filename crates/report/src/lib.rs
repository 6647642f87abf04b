//! The schemas of results, and the text tables that people read.
//!
//! [`RunReport`] (`ptescope.run/1`) is what one run leaves behind, [`StudyRecord`]
//! (`ptescope.study/1`) one line of a study. Fields stand in alphabetical order, so keys are
//! sorted in what is written; counts are integers; a counter that is absent is 0. Nothing here
//! knows how a count came about or what it costs.

mod run;
mod study;
mod table;

pub use run::{
    EventCounts, Exit, Faults, Guest, RUN_SCHEMA, RunReport, Settings, SyscallReport, Time,
    Unsupported,
};
pub use study::{Failure, Point, STUDY_SCHEMA, StudyRecord};
pub use table::{Align, Table, decimal, grouped};
