//! Whole programs on both architectures: what they print, how they end, and what may not matter.

#![expect(clippy::print_stderr, reason = "a skipped test says so")]

use arch::{Arm64, KernelConfig, X86_64};
use events::{ByOp, Counters, Event};
use machine::{
    Console, ExitStatus, FreeClock, Outcome, RunConfig, RunError, RunErrorKind, Stream, run,
    run_with,
};
use mm::{Thp, ThpSize};
use mmu::{Exact, Machine, Untracked};
use std::path::PathBuf;
use units::{ArchId, Order};

/// Keeps what the guest writes.
#[derive(Debug, Default)]
struct Recorder {
    stdout: Vec<u8>,
    stderr: Vec<u8>,
}

impl Console for Recorder {
    fn write(&mut self, stream: Stream, bytes: &[u8]) {
        match stream {
            Stream::Stdout => self.stdout.extend_from_slice(bytes),
            Stream::Stderr => self.stderr.extend_from_slice(bytes),
        }
    }
    fn read(&mut self, _: &mut [u8]) -> usize {
        0
    }
}

fn guest(arch: ArchId, name: &str) -> Vec<u8> {
    let path: PathBuf =
        [env!("CARGO_MANIFEST_DIR"), "../guest-programs/prebuilt", arch.name(), name]
            .iter()
            .collect();
    std::fs::read(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
}

fn config(arch: ArchId, argv: &[&str]) -> RunConfig {
    let kernel = KernelConfig::parse(KernelConfig::DEFAULT).expect("the default exists");
    let argv: Vec<String> = argv.iter().map(|&s| s.to_owned()).collect();
    let name = argv[0].clone();
    let mut config = RunConfig::new(kernel, Machine::default_for(arch), &name, argv);
    config.check = true;
    config
}

fn run_guest(config: &RunConfig) -> (Result<Outcome, RunError>, Recorder) {
    let mut console = Recorder::default();
    let elf = guest(config.machine.arch, &config.argv[0]);
    let result = run(config, &elf, &FreeClock, &mut console);
    (result, console)
}

fn run_to_end(config: &RunConfig) -> (Outcome, String) {
    let (result, console) = run_guest(config);
    let outcome = result.unwrap_or_else(|e| panic!("{}: {e}", config.machine.arch));
    (outcome, String::from_utf8(console.stdout).expect("guests print UTF-8"))
}

#[test]
fn hello_says_the_same_on_both_architectures() {
    let [arm64, x86] = ArchId::ALL.map(|arch| run_to_end(&config(arch, &["hello"])));
    assert_eq!(arm64.1, x86.1);
    assert!(!arm64.1.is_empty());
    assert_eq!((arm64.0.exit, x86.0.exit), (ExitStatus::Exited(0), ExitStatus::Exited(0)));
}

#[test]
fn pageout_unmaps_every_page_once() {
    for arch in ArchId::ALL {
        let mut config = config(arch, &["pageout", "16"]);
        config.thp = Thp::only([(Order::new(4).expect("64 kB"), ThpSize::Always)]);
        let (outcome, stdout) = run_to_end(&config);
        assert_eq!(outcome.exit, ExitStatus::Exited(0), "{arch}: {stdout}");
        assert!(stdout.contains("madvise(MADV_PAGEOUT) took"), "{arch}: {stdout}");
        assert_eq!(outcome.vmstat.swpout_zero, 4096, "{arch}");
        let madvise = outcome
            .sink
            .by_context()
            .into_iter()
            .find(|(name, _, _)| *name == "madvise(MADV_PAGEOUT)")
            .map(|(_, _, ops)| {
                ops.values().fold(Counters::new(), |mut sum, c| {
                    sum.merge(c);
                    sum
                })
            })
            .expect("the syscall was counted");
        assert_eq!(madvise.get(Event::SwapCountInc), 4096, "{arch}");
    }
}

#[test]
fn the_observer_and_the_tlb_model_change_nothing_for_the_guest() {
    fn lines(arch: ArchId, which: u8) -> (String, u64) {
        let config = RunConfig { check: false, ..config(arch, &["touch", "8"]) };
        let elf = guest(arch, "touch");
        let mut console = Recorder::default();
        let outcome = match (arch, which) {
            (ArchId::Arm64, 0) => {
                run_with::<Arm64, (), Exact>(&config, &elf, (), &FreeClock, &mut console)
            }
            (ArchId::Arm64, 1) => run_with::<Arm64, ByOp, Untracked>(
                &config,
                &elf,
                ByOp::new(),
                &FreeClock,
                &mut console,
            ),
            (ArchId::Arm64, _) => {
                run_with::<Arm64, ByOp, Exact>(&config, &elf, ByOp::new(), &FreeClock, &mut console)
            }
            (ArchId::X86_64, 0) => {
                run_with::<X86_64, (), Exact>(&config, &elf, (), &FreeClock, &mut console)
            }
            (ArchId::X86_64, 1) => run_with::<X86_64, ByOp, Untracked>(
                &config,
                &elf,
                ByOp::new(),
                &FreeClock,
                &mut console,
            ),
            (ArchId::X86_64, _) => run_with::<X86_64, ByOp, Exact>(
                &config,
                &elf,
                ByOp::new(),
                &FreeClock,
                &mut console,
            ),
        };
        let outcome = outcome.unwrap_or_else(|e| panic!("{e}"));
        (String::from_utf8_lossy(&console.stdout).into_owned(), outcome.instructions)
    }
    for arch in ArchId::ALL {
        let all: Vec<_> = (0..3).map(|which| lines(arch, which)).collect();
        assert!(all.windows(2).all(|w| w[0] == w[1]), "{arch}: {all:?}");
    }
}

#[test]
fn two_runs_are_alike_to_the_last_count() {
    for arch in ArchId::ALL {
        let config = config(arch, &["pageout", "4"]);
        let [a, b] = [run_to_end(&config), run_to_end(&config)];
        assert_eq!(a.1, b.1);
        assert_eq!(format!("{:?}", a.0.sink.total()), format!("{:?}", b.0.sink.total()));
        assert_eq!(a.0.virtual_ns, b.0.virtual_ns);
    }
}

#[test]
fn an_endless_loop_ends_at_the_limit() {
    for arch in ArchId::ALL {
        let mut config = config(arch, &["spin"]);
        config.max_instructions = Some(1_000_000);
        let (result, _) = run_guest(&config);
        let error = result.expect_err("it loops");
        assert_eq!(error.kind, RunErrorKind::Limit, "{arch}");
        assert!(error.message.contains("1000000"), "{arch}: {error}");
    }
}

#[test]
fn memory_exhaustion_kills_the_guest() {
    for arch in ArchId::ALL {
        let mut config = config(arch, &["oom"]);
        config.mem_bytes = 32 << 20;
        config.swap_bytes = 8 << 20;
        let (outcome, _) = run_to_end(&config);
        assert_eq!(outcome.exit, ExitStatus::Signaled(9), "{arch}");
    }
}

#[test]
fn a_jump_to_nowhere_is_a_segmentation_fault() {
    for arch in ArchId::ALL {
        let (outcome, _) = run_to_end(&config(arch, &["wild"]));
        assert_eq!(outcome.exit, ExitStatus::Signaled(11), "{arch}");
    }
}

#[test]
fn programs_that_cannot_run_say_why() {
    let whole = guest(ArchId::X86_64, "hello");
    let mut elf32 = whole.clone();
    elf32[4] = 1;
    let mut foreign = whole.clone();
    foreign[18] = 8;
    let cases: [(&str, &[u8]); 5] = [
        ("empty", b""),
        ("text", b"#!/bin/sh\necho hi\n"),
        ("truncated", &whole[..100]),
        ("ELF32", &elf32),
        ("foreign", &foreign),
    ];
    for (what, elf) in cases {
        let config = config(ArchId::X86_64, &["x"]);
        let error = run(&config, elf, &FreeClock, &mut Recorder::default()).expect_err(what);
        assert_eq!(error.kind, RunErrorKind::Program, "{what}: {error}");
    }
}

#[test]
fn a_glibc_build_counts_like_the_freestanding_one() {
    let Some(dir) = std::env::var_os("PTESCOPE_GLIBC_GUESTS").map(PathBuf::from) else {
        eprintln!("SKIPPED: PTESCOPE_GLIBC_GUESTS names no directory of glibc guests");
        return;
    };
    for arch in ArchId::ALL {
        let mut config = config(arch, &["pageout", "16"]);
        config.thp = Thp::only([(Order::new(4).expect("64 kB"), ThpSize::Always)]);
        let glibc = std::fs::read(dir.join(arch.name()).join("pageout")).expect("CI built it");
        let events = |elf: &[u8]| {
            let mut console = Recorder::default();
            let outcome =
                run(&config, elf, &FreeClock, &mut console).unwrap_or_else(|e| panic!("{e}"));
            let contexts = outcome.sink.by_context();
            let (_, _, ops) = contexts
                .into_iter()
                .find(|(name, _, _)| *name == "madvise(MADV_PAGEOUT)")
                .expect("the syscall was counted");
            // Which cache lines were there already depends on where other pages lie.
            let counts = |counts: &Counters| {
                let named = counts.nonzero().map(|(event, n)| (event.name(), n));
                named.filter(|(name, _)| !name.ends_with("_line")).collect::<Vec<_>>()
            };
            let ops = ops.into_iter().map(|(op, of_op)| (op, counts(&of_op)));
            ops.collect::<Vec<_>>()
        };
        assert_eq!(events(&glibc), events(&guest(arch, "pageout")), "{arch}");
    }
}
