//! Every count equal to that of real Linux.

use ptescope_tests::compare::{What, differences};
use ptescope_tests::direct::{Direct, Runner};
use ptescope_tests::groundtruth::{Kernel, Record, Run, load, must_be_equal};
use std::collections::BTreeMap;

#[test]
fn direct() {
    let filter = std::env::var("GT").unwrap_or_default();
    let what = if std::env::var("GTFN").is_ok() { What::Functions } else { What::Touches };
    let mut groups: BTreeMap<Run, Vec<Record>> = BTreeMap::new();
    for kernel in Kernel::ALL {
        for record in load(kernel).into_iter().filter(must_be_equal) {
            groups.entry(record.run.clone()).or_default().push(record);
        }
    }
    let (mut equal, mut all) = (0, 0);
    for (run, records) in groups {
        let name = format!("{:?} {:?} {} {} {} {:?} {}K", run.kernel, run.arch, run.cpu, run.variant, run.program, run.args, run.folio_kib);
        if !filter.split(',').all(|f| name.contains(f)) { continue }
        let Some(phases) = Direct.run(&run) else { continue };
        for record in records {
            all += 1;
            let Some(phase) = phases.iter().find(|p| p.name == record.phase) else {
                println!("{name}: no phase {}", record.phase);
                continue;
            };
            let diffs = differences(&record, &phase.counts, what);
            if diffs.is_empty() {
                equal += 1;
            } else {
                println!("{name} {} rep {}", record.phase, record.rep);
                for d in diffs {
                    println!("    {d}");
                }
            }
        }
    }
    println!("groundtruth: {equal} of {all} records equal");
}
