//! Every count equal to that of real Linux, or the reason in one table.
//!
//! `PTESCOPE_GROUNDTRUTH` selects runs whose line contains each of its comma-separated words.

use ptescope_tests::direct::Direct;
use ptescope_tests::emulated::Emulated;
use ptescope_tests::excuses::RunnerKind;
use ptescope_tests::groundtruth::{Kernel, Record, load, must_be_equal};
use ptescope_tests::report::{Report, run_all};

fn records() -> Vec<Record> {
    let filter = std::env::var("PTESCOPE_GROUNDTRUTH").unwrap_or_default();
    let selected = |r: &Record| filter.split(',').all(|word| r.run.to_string().contains(word));
    Kernel::ALL.into_iter().flat_map(load).filter(|r| must_be_equal(r) && selected(r)).collect()
}

#[expect(clippy::print_stdout, reason = "the summary is what the test is run for")]
fn check(report: &Report) {
    println!("{report}");
    for wrong in report.touches.wrong.iter().chain(&report.functions.wrong) {
        println!("{wrong}");
    }
    assert!(report.touches.wrong.is_empty(), "counts differ from those of Linux");
    assert!(report.functions.wrong.is_empty(), "function entries differ from those of Linux");
}

#[test]
fn mm_alone_counts_what_linux_counts() {
    check(&run_all(&Direct, RunnerKind::Direct, records()));
}

#[test]
fn the_probe_counts_what_linux_counts() {
    let guest = Emulated::prebuilt().expect("the guest is checked in");
    check(&run_all(&guest, RunnerKind::Guest, records()));
}

#[test]
fn the_measured_program_itself_counts_what_linux_counts() {
    let Some(original) = Emulated::original() else { return };
    let original = original.expect("PTESCOPE_ORIGINAL_PROBE holds x86_64/probe and arm64/probe");
    check(&run_all(&original, RunnerKind::Original, records()));
}
