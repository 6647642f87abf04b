//! Every count of gup_test equal to that of real Linux, or the reason in one table.
//!
//! `PTESCOPE_GROUNDTRUTH` selects runs whose line contains each of its comma-separated words.

#![expect(clippy::print_stderr, reason = "a skipped test says so")]

use ptescope_tests::direct::{Direct, Runner};
use ptescope_tests::emulated::{Emulated, Measured};
use ptescope_tests::excuses::RunnerKind;
use ptescope_tests::groundtruth::{Kernel, Record, gup_must_be_equal, load};
use ptescope_tests::report::run_all;

#[expect(clippy::print_stdout, reason = "the summary is what the test is run for")]
fn check(runner: &(impl Runner + Sync), kind: RunnerKind) {
    let filter = std::env::var("PTESCOPE_GROUNDTRUTH").unwrap_or_default();
    let selected = |r: &Record| filter.split(',').all(|word| r.run.to_string().contains(word));
    let wanted = |r: &Record| gup_must_be_equal(r) && selected(r);
    let records: Vec<Record> = Kernel::ALL.into_iter().flat_map(load).filter(wanted).collect();
    let report = run_all(runner, kind, records);
    println!("{kind:?}: {report}");
    for wrong in report.touches.wrong.iter().chain(&report.functions.wrong) {
        println!("{wrong}");
    }
    assert_eq!(report.skipped, 0);
    assert!(report.touches.wrong.is_empty(), "counts differ from those of Linux");
    assert!(report.functions.wrong.is_empty(), "function entries differ from those of Linux");
}

#[test]
fn mm_alone_counts_what_linux_counts() {
    check(&Direct, RunnerKind::Direct);
}

#[test]
fn the_guest_counts_what_linux_counts() {
    let guest = Emulated::prebuilt(Measured::GupTest).expect("the guest is checked in");
    check(&guest, RunnerKind::Guest);
}

#[test]
fn the_measured_program_itself_counts_what_linux_counts() {
    match Emulated::original(Measured::GupTest) {
        Some(Ok(program)) => check(&program, RunnerKind::Original),
        Some(Err(error)) => eprintln!("SKIPPED: no gup_test with markers was built: {error}"),
        None => eprintln!("SKIPPED: PTESCOPE_LINUX_SELFTESTS names no builds"),
    }
}
