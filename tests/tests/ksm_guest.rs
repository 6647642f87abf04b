//! The guest `ksm` on emulated CPUs, with the oracles on: `ksmd` merges while it waits.

use ptescope_tests::program::{Recorder, guest, request, run};
use report::RunReport;
use study::RunRequest;
use units::ArchId;

fn ksm(arch: ArchId, cpus: u16, kernel: &str, options: &str) -> (RunReport, Recorder) {
    let kernel = kernel.to_owned();
    let program = guest("ksm", arch);
    run(&RunRequest { kernel, cpus: Some(cpus), check: true, ..request(program, options) })
}

#[test]
fn each_test_passes_on_one_cpu_and_on_two() {
    for arch in ArchId::ALL {
        for cpus in [1, 2] {
            for options in ["-M", "-M -p 600", "-M -t 1", "-U", "-Z", "-Z -z 1"] {
                let (report, console) = ksm(arch, cpus, "v7.3", options);
                let what = format!("{arch}, {cpus} CPUs, {options}: {console:?}");
                assert_eq!(report.exit.status, 0, "{what}");
                assert!(console.stdout.ends_with("OK\n"), "{what}");
            }
        }
    }
}

#[test]
fn unmerging_is_timed_in_every_form() {
    for arch in ArchId::ALL {
        for kernel in ["v6.1", "v6.5-ksm-walk-vma", "v6.5+ksm-walk-vma-pud", "v6.12", "v7.3"] {
            let (report, console) = ksm(arch, 1, kernel, "-D -s 8");
            let what = format!("{arch} {kernel}: {console:?}");
            assert_eq!(report.exit.status, 0, "{what}");
            let lines: Vec<&str> = console.stdout.lines().collect();
            assert_eq!(lines[0], "Total size:    8 MiB", "{what}");
            assert!(lines[1].starts_with("Total time:    0.00"), "{what}");
            assert!(lines[2].ends_with(" MiB/s"), "{what}");
            assert_eq!(report.vmstat["cow_ksm"], 2048, "{what}");
            let merging = report.by_syscall.iter().find(|call| call.syscall == "ksmd");
            assert!(merging.is_some(), "{what}: what ksmd does is its own");
        }
    }
}
