//! The guest `gup_test` on emulated CPUs, with the oracles on: what it prints for each option.

use arch::KernelConfig;
use machine::{Console, ExitStatus, FreeClock, RunConfig, Stream, run};
use mm::{Thp, ThpSize};
use mmu::Machine;
use std::path::PathBuf;
use units::ArchId;

/// Keeps what the guest writes.
#[derive(Debug, Default)]
struct Recorder {
    stdout: String,
    stderr: String,
}

impl Console for Recorder {
    fn write(&mut self, stream: Stream, bytes: &[u8]) {
        let text = String::from_utf8_lossy(bytes);
        match stream {
            Stream::Stdout => self.stdout += &text,
            Stream::Stderr => self.stderr += &text,
        }
    }
    fn read(&mut self, _: &mut [u8]) -> usize {
        0
    }
}

fn gup_test(arch: ArchId, kernel: &str, options: &str) -> (u8, Recorder) {
    let path = [env!("CARGO_MANIFEST_DIR"), "../guest-programs/prebuilt", arch.name(), "gup_test"];
    let elf = std::fs::read(path.iter().collect::<PathBuf>()).expect("the guest is checked in");
    let kernel = KernelConfig::parse(kernel).expect("a known kernel");
    let argv = ["gup_test"].into_iter().chain(options.split_whitespace()).map(str::to_owned);
    let mut config =
        RunConfig::new(kernel, Machine::default_for(arch), "/gup_test", argv.collect());
    config.check = true;
    config.thp = Thp::only(Thp::order_of_kib(64).map(|order| (order, ThpSize::Always)));
    let mut console = Recorder::default();
    let outcome = run(&config, &elf, &FreeClock, &mut console);
    let outcome = outcome.unwrap_or_else(|e| panic!("{arch} {options}: {e}"));
    let ExitStatus::Exited(status) = outcome.exit else { panic!("{options}: {:?}", outcome.exit) };
    let stat = outcome.vmstat;
    assert_eq!(stat.nr_foll_pin_acquired, stat.nr_foll_pin_released, "{arch} {options}");
    (status, console)
}

#[test]
fn every_function_prints_its_line_as_often_as_asked() {
    let rows = [
        ("-u -m 4", "GUP_FAST_BENCHMARK: Time: get:0 put:0 us\n", 1),
        ("-a -m 4 -n 512 -t -W", "PIN_FAST_BENCHMARK: Time: get:0 put:0 us\n", 1),
        ("-L -m 4 -n 123 -r 3 -t", "PIN_LONGTERM_BENCHMARK: Time: get:0 put:0 us\n", 3),
        ("-Lm4 -n -1 -T -j 4", "PIN_LONGTERM_BENCHMARK: Time: get:0 put:0 us\n", 4),
        ("-U -m 4 -W", "GUP_BASIC_TEST: done\n", 1),
        ("-b -m 4 -n 7", "PIN_BASIC_TEST: done\n", 1),
        ("-ct -m 4 -F 0x1 0 19 0x1000", "DUMP_USER_PAGES_TEST: done\n", 1),
        ("-cp -m 4", "DUMP_USER_PAGES_TEST: done\n", 1),
    ];
    for arch in ArchId::ALL {
        for kernel in ["v7.3+gup-pte-batch", "v6.1"] {
            for (options, line, times) in rows {
                let (status, console) = gup_test(arch, kernel, options);
                assert_eq!(status, 0, "{arch} {options}: {}", console.stderr);
                assert_eq!(console.stdout, line.repeat(times), "{arch} {options}");
            }
        }
    }
}

#[test]
fn what_is_not_there_yet_says_so() {
    for arch in ArchId::ALL {
        for options in ["-H -m 4", "-S -m 4", "-f /tmp/x -m 4"] {
            let (status, console) = gup_test(arch, "v7.3", options);
            assert_eq!(status, 4, "skipped");
            assert!(console.stderr.contains("not supported yet"), "{}", console.stderr);
        }
        for options in ["-y", "-m", "-m zero", "-m 0", "-j 99"] {
            assert_eq!(gup_test(arch, "v7.3", options).0, 2, "{options}");
        }
    }
}
