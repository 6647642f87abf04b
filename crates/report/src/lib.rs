//! The schemas of results, and the tables and pages that people read.
//!
//! [`RunReport`] (`ptescope.run/1`) is what one run leaves behind, [`StudyRecord`]
//! (`ptescope.study/1`) one line of a study; [`ExplainReport`] (`ptescope.explain/1`) and
//! [`ScoreboardReport`] (`ptescope.scoreboard/1`) are what the commands of these names say;
//! [`page`] is the report of a study for people. Fields stand in alphabetical order, so keys are
//! sorted in what is written; counts are integers; a counter that is absent is 0. Nothing here
//! knows how a count came about or what it costs.

mod explain;
pub mod page;
pub mod perfetto;
mod run;
mod scoreboard;
mod study;
mod table;
mod text;
mod waterfall;
mod window;

pub use explain::{ClassTerm, EXPLAIN_SCHEMA, ExplainReport, ExplainedRun, FlipTerm, OpTerm};
pub use run::{
    EventCounts, Exit, Faults, Guest, RUN_SCHEMA, RunReport, Settings, SyscallReport, Time,
    Unsupported,
};
pub use scoreboard::{
    PredictedRatio, PredictedTime, Prediction, SCOREBOARD_SCHEMA, ScoreRow, ScoreboardReport, Sign,
};
pub use study::{Failure, Point, STUDY_SCHEMA, StudyRecord};
pub use table::{Align, Table, decimal, grouped};
pub use text::wrap;
pub use waterfall::{Step, waterfall};
pub use window::WindowLine;
