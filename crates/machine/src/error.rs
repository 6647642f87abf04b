//! Why a run did not come to the end of its program.

use kernel::{LoadError, LoadErrorKind};

/// What kind of end it was; each has an exit status of its own on the command line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RunErrorKind {
    /// The program is no ELF file that can run here.
    Program,
    /// Something in the request cannot be.
    Request,
    /// An oracle saw a violation, or the emulator failed.
    Internal,
    /// The guest needs something that is not implemented.
    Unsupported,
    /// A limit was reached.
    Limit,
}

/// A run that ended early: one sentence, and what kind of end it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunError {
    /// What kind of end.
    pub kind: RunErrorKind,
    /// One sentence: what, where, and what to do.
    pub message: String,
}

impl RunError {
    pub(crate) fn new(kind: RunErrorKind, message: String) -> Self {
        RunError { kind, message }
    }
}

impl std::fmt::Display for RunError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for RunError {}

impl From<LoadError> for RunError {
    fn from(error: LoadError) -> Self {
        let kind = match error.kind() {
            LoadErrorKind::NotRunnable => RunErrorKind::Program,
            LoadErrorKind::Limit => RunErrorKind::Limit,
            LoadErrorKind::Usage => RunErrorKind::Request,
        };
        RunError::new(kind, error.to_string())
    }
}
