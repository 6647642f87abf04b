//! The one place that calls `machine`.

use crate::{RunRequest, status};
use report::{Failure, RunReport};

/// Where the guest's output goes.
pub trait Console {
    /// The guest wrote to its standard output.
    fn stdout(&mut self, bytes: &[u8]);
    /// The guest wrote to its standard error.
    fn stderr(&mut self, bytes: &[u8]);
}

/// Throws the guest's output away.
#[derive(Clone, Copy, Debug, Default)]
pub struct Silent;

impl Console for Silent {
    fn stdout(&mut self, _: &[u8]) {}
    fn stderr(&mut self, _: &[u8]) {}
}

/// Runs the program to its end.
///
/// # Errors
/// A [`Failure`] with the exit status that says what kind it is.
pub fn run(request: &RunRequest, _console: &mut dyn Console) -> Result<RunReport, Failure> {
    Err(Failure {
        message: format!("cannot run {}: no machine yet", request.program.path),
        status: status::INTERNAL,
    })
}
