//! Every count of ksm_tests equal to that of real Linux, or the reason in one table.

use ptescope_tests::direct::Direct;
use ptescope_tests::excuses::RunnerKind;
use ptescope_tests::groundtruth::{Kernel, Record, ksm_must_be_equal, load};
use ptescope_tests::report::run_all;

#[test]
#[expect(clippy::print_stdout, reason = "the summary is what the test is run for")]
fn ksm_counts_what_linux_counts() {
    let filter = std::env::var("PTESCOPE_GROUNDTRUTH").unwrap_or_default();
    let selected = |r: &Record| filter.split(',').all(|word| r.run.to_string().contains(word));
    let wanted = |r: &Record| ksm_must_be_equal(r) && selected(r);
    let records: Vec<Record> = Kernel::ALL.into_iter().flat_map(load).filter(wanted).collect();
    assert!(!records.is_empty() || !filter.is_empty());
    let report = run_all(&Direct, RunnerKind::Direct, records);
    println!("groundtruth ksm: {}", report.touches);
    println!("function entries: {}", report.functions);
    for wrong in report.touches.wrong.iter().chain(&report.functions.wrong) {
        println!("{wrong}");
    }
    assert!(report.touches.wrong.is_empty(), "counts differ from those of Linux");
    assert!(report.functions.wrong.is_empty(), "function entries differ from those of Linux");
}
