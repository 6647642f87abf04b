//! The guest `gup_test` on emulated CPUs, with the oracles on: what it prints for each option.

use ptescope_tests::program::{Recorder, guest, request, run};
use report::RunReport;
use study::{RunRequest, ThpPolicy, ThpSetting};
use units::ArchId;

fn gup_test(arch: ArchId, kernel: &str, options: &str) -> (RunReport, Recorder) {
    let thp = vec![ThpSetting { kib: 64, policy: ThpPolicy::Always }];
    let kernel = kernel.to_owned();
    let program = guest("gup_test", arch);
    run(&RunRequest { kernel, thp, check: true, ..request(program, options) })
}

/// The whole output of one thread, times replaced by `T`.
fn without_times(stdout: &str) -> String {
    let line = |line: &str| match line.split_once("get:") {
        Some((name, _)) => format!("{name}get:T put:T us# \n"),
        None => format!("{line}\n"),
    };
    stdout.lines().map(line).collect()
}

#[test]
fn every_function_prints_its_line_as_often_as_asked() {
    let rows = [
        ("-u -m 4", "GUP_FAST_BENCHMARK: Time: get:T put:T us# ", 1),
        ("-a -m 4 -n 512 -t -W", "PIN_FAST_BENCHMARK: Time: get:T put:T us# ", 1),
        ("-L -m 4 -n 123 -r 3 -t", "PIN_LONGTERM_BENCHMARK: Time: get:T put:T us# ", 3),
        ("-Lm4 -n -1 -T", "PIN_LONGTERM_BENCHMARK: Time: get:T put:T us# ", 1),
        ("-U -m 4 -W -r 5", "GUP_BASIC_TEST: done", 1),
        ("-b -m 4 -n 7", "PIN_BASIC_TEST: done", 1),
        ("-ct -m 4 -F 0x1 0 19 0x1000", "DUMP_USER_PAGES_TEST: done", 1),
        ("-cp -m 4", "DUMP_USER_PAGES_TEST: done", 1),
        ("-z -m 4", "GUP_FAST_BENCHMARK: Time: get:T put:T us# ", 1),
        ("-S -m 4 -n 64", "GUP_FAST_BENCHMARK: Time: get:T put:T us# ", 1),
    ];
    for arch in ArchId::ALL {
        for kernel in ["v7.3+gup-pte-batch", "v6.1"] {
            for (options, line, times) in rows {
                let (report, console) = gup_test(arch, kernel, options);
                let what = format!("{arch} {kernel} {options}: {console:?}");
                assert_eq!(report.exit.status, 0, "{what}");
                let body = format!("# {line}\n").repeat(times);
                let end = "ok 1 ioctl status 0\n\
                    # Totals: pass:1 fail:0 xfail:0 xpass:0 skip:0 error:0\n";
                let whole = format!("TAP version 13\n1..1\n{body}{end}");
                assert_eq!(without_times(&console.stdout), whole, "{what}");
                let pins = |name: &str| report.vmstat.get(name).copied().unwrap_or(0);
                assert_eq!(pins("nr_foll_pin_acquired"), pins("nr_foll_pin_released"), "{what}");
            }
        }
    }
}

#[test]
fn each_thread_is_a_test() {
    for arch in ArchId::ALL {
        let (report, console) = gup_test(arch, "v7.3", "-a -m 4 -j 4 -r 2");
        assert_eq!(report.exit.status, 0, "{console:?}");
        let count = |start: &str| console.stdout.lines().filter(|l| l.starts_with(start)).count();
        assert_eq!((count("# PIN_FAST"), count("ok ")), (8, 4), "{console:?}");
        assert!(
            console.stdout.ends_with("# Totals: pass:4 fail:0 xfail:0 xpass:0 skip:0 error:0\n")
        );
    }
}

#[test]
fn what_it_cannot_do_it_says() {
    for arch in ArchId::ALL {
        let bail = |options: &str, reason: &str| {
            let (report, console) = gup_test(arch, "v7.3", options);
            assert_eq!(report.exit.status, 1, "{options}");
            assert!(console.stdout.contains(reason), "{options}: {console:?}");
            assert!(console.stdout.contains("# Planned tests != run tests (1 != 0)"));
        };
        bail("-H -m 4", "Bail out! mmap: Cannot allocate memory");
        bail(
            "-f /nowhere/x -m 4",
            "Bail out! Unable to open /nowhere/x: No such file or directory",
        );
        for options in ["-y", "-m", "-m zero", "-m 0", "-j 99", "-f"] {
            assert_eq!(gup_test(arch, "v7.3", options).0.exit.status, 2, "{options}");
        }
        // The kernel takes no flag that is its own: a request that gets nothing is cut short.
        let (report, console) = gup_test(arch, "v7.3", "-U -m 4 -F 0x80000");
        assert_eq!(report.exit.status, 0);
        assert!(console.stdout.contains("# GUP_BASIC_TEST: done\n# Truncated (size: 0)\n"));
        // A file that ends before the mapping does.
        assert_eq!(gup_test(arch, "v7.3", "-f /tmp/x -m 4").0.exit.status, 128 + 7);
    }
}

#[test]
fn each_request_can_be_counted_alone() {
    for arch in ArchId::ALL {
        let program = guest("gup_test", arch);
        let env = vec!["MM_EVENTS=1".to_owned()];
        let (_, console) = run(&RunRequest { env, ..request(program, "-L -m 4 -n 1024 -r 2 -T") });
        let phases: Vec<&str> = console.stdout.lines().filter(|l| l.starts_with("@@{")).collect();
        assert_eq!(phases.len(), 2, "{console:?}");
        for (i, phase) in phases.iter().enumerate() {
            assert!(phase.contains(&format!("\"phase\":\"gup_iter{i}\"")), "{phase}");
            assert!(phase.contains("\"task.gup_slow.ptep_get\":1024,"), "{phase}");
        }
    }
}
