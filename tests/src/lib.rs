//! What the suites in `tests/` share: the ground truth, programs that drive `mm` directly, and
//! the comparison of both.
//!
//! `groundtruth` loads what was measured on instrumented Linux kernels; [`direct`] performs the
//! phases of the measured program by calling `mm`, with a page-table walk instead of a CPU, and
//! [`emulated`] runs the program; [`compare`] says whether the counts are equal, and where not, and [`excuses`] holds what the
//! measuring set-up explains.

pub mod compare;
pub mod direct;
pub mod emulated;
pub mod excuses;
pub mod groundtruth;
pub mod guest;
pub mod gup;
pub mod ksm;
pub mod program;
pub mod report;
