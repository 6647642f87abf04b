//! The kernel's own gup_test, as Debian's source package has it, on emulated CPUs.

#![expect(clippy::print_stderr, reason = "a skipped test says so")]

use cost::PriceList;
use ptescope_tests::program::{Recorder, guest, linux_selftest, request, run};
use report::RunReport;
use std::collections::BTreeMap;
use study::{Program, RunRequest, ThpPolicy, ThpSetting};
use units::ArchId;

const NAME: &str = "gup_test";

/// Options, the name that its lines begin with, and how many tests it plans.
const RUNS: [(&str, &str, usize); 19] = [
    ("-L -m 256 -n 65536 -r 16 -t", "PIN_LONGTERM_BENCHMARK", 1),
    ("-m 512 -t -L -n 1024 -r 10", "PIN_LONGTERM_BENCHMARK", 1),
    ("-u", "GUP_FAST_BENCHMARK", 1),
    ("-U", "GUP_BASIC_TEST", 1),
    ("-a", "PIN_FAST_BENCHMARK", 1),
    ("-b", "PIN_BASIC_TEST", 1),
    ("-c", "DUMP_USER_PAGES_TEST", 1),
    ("-ct -F 0x1 0 19 0x1000", "DUMP_USER_PAGES_TEST", 1),
    ("-cp -m 16 -W 4095", "DUMP_USER_PAGES_TEST", 1),
    ("-a -W -m 16 -n 123", "PIN_FAST_BENCHMARK", 1),
    ("-L -w -m 16 -n 512 -T", "PIN_LONGTERM_BENCHMARK", 1),
    ("-u -S -m 16 -n 512", "GUP_FAST_BENCHMARK", 1),
    ("-b -S -W -m 16 -n 7", "PIN_BASIC_TEST", 1),
    ("-j 4 -m 16 -r 3", "GUP_FAST_BENCHMARK", 4),
    ("-L -j 4 -m 16 -n 512 -t", "PIN_LONGTERM_BENCHMARK", 4),
    ("-z -m 16 -n 64", "GUP_FAST_BENCHMARK", 1),
    ("-L -H -m 64 -n 512 -r 2", "PIN_LONGTERM_BENCHMARK", 1),
    ("-u -H -m 16 -n 123", "GUP_FAST_BENCHMARK", 1),
    ("-b -H -S -W -m 16 -n -1", "PIN_BASIC_TEST", 1),
];

/// Huge pages in the pool: as many as any of the runs wants.
const POOL: (&str, &str) = ("/proc/sys/vm/nr_hugepages", "32");

/// The program on `arch`; `None`, and a word about it, if it was not built.
fn program(arch: ArchId) -> Option<Program> {
    let program = linux_selftest(NAME, arch);
    if program.is_none() {
        eprintln!("SKIPPED: PTESCOPE_LINUX_SELFTESTS names no builds of the kernel's own tests");
    }
    program
}

fn with_large_folios(program: Program, options: &str) -> (RunReport, Recorder) {
    let thp = vec![ThpSetting { kib: 64, policy: ThpPolicy::Always }];
    let write = vec![(POOL.0.to_owned(), POOL.1.to_owned())];
    run(&RunRequest { thp, write, ..request(program, options) })
}

fn gup_test(arch: ArchId, options: &str) -> Option<(RunReport, Recorder)> {
    Some(with_large_folios(program(arch)?, options))
}

/// The values of `-r` of a command line, 1 if there is none.
fn repeats(options: &str) -> usize {
    let mut words = options.split_whitespace().skip_while(|&word| word != "-r").skip(1);
    words.next().map_or(1, |n| n.parse().expect("a number"))
}

fn is_benchmark(name: &str) -> bool {
    name.ends_with("_BENCHMARK")
}

#[test]
fn every_line_is_there_and_every_test_is_ok() {
    for arch in ArchId::ALL {
        for (options, name, plan) in RUNS {
            let Some((report, console)) = gup_test(arch, options) else { return };
            let what = format!("{arch} {options}:\n{}{}", console.stdout, console.stderr);
            assert_eq!(report.exit.status, 0, "{what}");
            assert!(report.unsupported.is_empty(), "{what}{:?}", report.unsupported);
            let mut lines = console.stdout.lines();
            assert_eq!(lines.next(), Some("TAP version 13"), "{what}");
            assert_eq!(lines.next(), Some(format!("1..{plan}").as_str()), "{what}");
            let ours = format!("# {name}: ");
            let per_thread = if is_benchmark(name) { repeats(options) } else { 1 };
            let of_name = lines.clone().filter(|l| l.starts_with(&ours)).count();
            assert_eq!(of_name, plan * per_thread, "{what}");
            for test in 1..=plan {
                let ok = format!("ok {test} ioctl status 0");
                assert_eq!(lines.clone().filter(|&l| l == ok).count(), 1, "{what}");
            }
            let totals = format!("# Totals: pass:{plan} fail:0 xfail:0 xpass:0 skip:0 error:0");
            assert_eq!(lines.last(), Some(totals.as_str()), "{what}");
            assert!(!console.stdout.to_lowercase().contains("truncated"), "{what}");
            let pins = |name: &str| report.vmstat.get(name).copied().unwrap_or(0);
            assert_eq!(pins("nr_foll_pin_acquired"), pins("nr_foll_pin_released"), "{what}");
        }
    }
}

/// Microseconds of getting and of putting back, of every line that gives them.
fn times(stdout: &str) -> Vec<[u64; 2]> {
    let number = |text: &str, key: &str| {
        let rest = &text[text.find(key)? + key.len()..];
        rest.split(|c: char| !c.is_ascii_digit()).next()?.parse().ok()
    };
    stdout.lines().filter_map(|l| Some([number(l, " get:")?, number(l, " put:")?])).collect()
}

/// The guest can time nothing but the ioctls; what it prints is what their counts cost.
#[test]
fn the_times_are_what_the_counts_of_the_ioctls_cost() {
    for arch in ArchId::ALL {
        for (options, name, plan) in RUNS.into_iter().filter(|run| is_benchmark(run.1)) {
            let Some((report, console)) = gup_test(arch, options) else { return };
            let times = times(&console.stdout);
            let calls = (plan * repeats(options)) as u64;
            assert_eq!(times.len() as u64, calls, "{arch} {options} {name}");
            let prices = PriceList::for_machine(&report.machine, arch).expect("known prices");
            let ioctl = report.syscall("ioctl").expect("it makes them");
            let cost = prices.time(&ioctl.events.counters(), 0).ns();
            let printed: u64 = times.iter().flatten().sum::<u64>() * 1000;
            // Each of both times lost what was below a microsecond; entering the kernel and
            // copying the request is not in them.
            let untimed = calls * (2 * 1000 + 500);
            assert!(
                printed <= cost && cost <= printed + untimed,
                "{arch} {options}: printed {printed} ns, counted {cost} ns"
            );
        }
    }
}

/// What a run did in the kernel while it served requests, and what it printed, but for times.
/// Which cache lines were there already depends on where a program's other pages lie.
fn of_requests(
    report: &RunReport,
    console: &Recorder,
) -> (u64, BTreeMap<String, BTreeMap<&'static str, u64>>, String) {
    let ioctl = report.syscall("ioctl");
    let calls = ioctl.map_or(0, |ioctl| ioctl.calls);
    let by_op = ioctl.into_iter().flat_map(|ioctl| &ioctl.by_op);
    let by_op = by_op.map(|(op, counts)| {
        let counts = counts.counters();
        let counts = counts.nonzero().map(|(event, n)| (event.name(), n));
        (op.clone(), counts.filter(|(name, _)| !name.ends_with("_line")).collect())
    });
    (calls, by_op.collect(), without_times(&console.stdout))
}

/// The output with its numbers after `get:` and `put:` taken out.
fn without_times(stdout: &str) -> String {
    let mut said = String::new();
    for word in stdout.split_inclusive(char::is_whitespace) {
        let time = word.starts_with("get:") || word.starts_with("put:");
        said.push_str(if time { "time " } else { word });
    }
    said
}

#[test]
fn the_guest_of_that_name_prints_and_counts_the_same() {
    let more = [
        ("-L -m 16 -n 123 -r 2", "", 0),
        ("-U -m 4 -W -F 0x80000", "", 0),
        ("-a -m 4 -F 0x80000", "", 0),
        ("-b -m 4 -n -1", "", 0),
        ("-f /nowhere/x -m 4", "", 0),
        ("-f /tmp -m 4", "", 0),
        ("-H -m 66", "", 0),
    ];
    for arch in ArchId::ALL {
        for (options, ..) in RUNS.into_iter().chain(more) {
            let Some((report, console)) = gup_test(arch, options) else { return };
            let theirs = of_requests(&report, &console);
            let (report, console) = with_large_folios(guest(NAME, arch), options);
            assert_eq!(of_requests(&report, &console), theirs, "{arch} {options}");
        }
    }
}

/// The kernel describes in its log the pages that `-c` names: page 0 unless others are.
#[test]
fn the_log_has_the_pages_that_were_to_be_dumped() {
    let rows: [(&str, &[&str]); 4] = [
        ("-c -m 16", &["#0"]),
        ("-ct -F 0x1 0 19 0x1000", &["#0", "#19", "#4096"]),
        ("-cp -m 16 -W 4095", &["#4095"]),
        ("-c -m 1 19 256", &["#19"]),
    ];
    for arch in ArchId::ALL {
        for (options, numbers) in rows {
            let Some((report, _)) = gup_test(arch, options) else { return };
            let log = report.dmesg.join("\n");
            let named: Vec<&str> =
                log.split("---- page ").skip(1).filter_map(|l| l.split(',').next()).collect();
            assert_eq!(named, numbers, "{arch} {options}: {log}");
            // 16 entries map the folio, and each of its pages is held.
            let pages = log.lines().filter(|l| l.contains("] page: refcount:32 mapcount:1 "));
            assert_eq!(pages.count(), numbers.len(), "{arch} {options}: {log}");
            let pins = if options.contains('p') { "pincount:16" } else { "pincount:0" };
            let heads = log.lines().filter(|l| l.contains("] head: order:4 mapcount:16 "));
            assert_eq!(heads.filter(|l| l.ends_with(pins)).count(), numbers.len(), "{log}");
            let zeroed = log.contains("ZEROING due to out of range: .which_pages[1]: 257");
            assert_eq!(zeroed, options.ends_with("256"), "{log}");
        }
    }
}
