//! Runs and studies: a program on a machine under a kernel, many times, side by side.
//!
//! [`RunRequest`] says what to run in the words that users write; [`run`] does it and returns a
//! report. [`Study`] is a matrix of runs from a TOML file ([`plan`]), [`sweep`](mod@sweep) runs its points on all
//! host cores and keeps them in a [`Store`], [`show`] makes a page of them, [`csv()`] and [`parquet`] tables; [`explain`] says why two runs differ, and [`scoreboard`]
//! compares predictions with published results. [`calibrate`] fits prices to measured times. [`Guest`]s are the embedded programs. What a run means is
//! `machine`'s business, what it costs `cost`'s; no file is opened here but guest programs, study files and the store.

mod bench;
mod builtin;
pub mod calibrate;
pub mod explain;
mod export;
mod findings;
mod guests;
pub mod gup;
pub mod gup_matrix;
pub mod ksm;
mod measure;
pub mod merge;
mod observations;
mod overrides;
pub mod pageout;
pub mod plan;
pub mod point;
mod request;
mod resolve;
mod runner;
pub mod scoreboard;
mod settings;
pub mod show;
mod store;
pub mod sweep;
mod walk;
mod workload;

pub use builtin::{Study, names as study_names};
pub use export::{csv, parquet};
pub use guests::{Argument, Guest};
pub use observations::Observation;
pub use overrides::kernel_fields;
pub use report::wrap;
pub use request::{Program, RunRequest};
pub use resolve::machine_arch;
pub(crate) use runner::hex;
pub use runner::{Silent, run, run_traced};
pub use settings::{
    MEM_BYTES_MAX, MEM_BYTES_MIN, Override, SettingError, ThpPolicy, ThpSetting, parse_bytes,
    parse_mem, parse_set, parse_swap, parse_thp, parse_write,
};
pub use store::{Store, write_whole};
pub use walk::{WalkRequest, explain_walk, walk_setups};

/// Exit statuses, in the manner of sysexits; part of the contract of the command line.
pub mod status {
    /// Usage: also an unknown kernel, machine, patch, guest or study.
    pub const USAGE: u8 = 2;
    /// The program is no ELF that can run, or a file no report of a run.
    pub const NO_ELF: u8 = 65;
    /// The program cannot be read.
    pub const NO_INPUT: u8 = 66;
    /// Oracle violation or internal error.
    pub const INTERNAL: u8 = 70;
    /// The guest asked for something that is not supported.
    pub const UNSUPPORTED: u8 = 71;
    /// An output cannot be created.
    pub const NO_OUTPUT: u8 = 73;
    /// A limit was reached.
    pub const LIMIT: u8 = 75;
}
