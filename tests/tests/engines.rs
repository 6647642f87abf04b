//! Neither the engine nor anything about it may show: whole programs, interpreted and as native code, yield the same outcome.
//!
//! On a host without a native compiler both are interpreted.

use arch::KernelConfig;
use machine::{Console, Engine, FreeClock, Outcome, RunConfig, RunError, Stream, run};
use mm::{Thp, ThpSize};
use mmu::Machine;
use std::path::PathBuf;
use units::{ArchId, Order};

/// Everything that the guest writes.
#[derive(Debug, Default, PartialEq)]
struct Recorder(Vec<u8>);

impl Console for Recorder {
    fn write(&mut self, stream: Stream, bytes: &[u8]) {
        self.0.push(u8::from(stream == Stream::Stderr));
        self.0.extend_from_slice(bytes);
    }
    fn read(&mut self, _: &mut [u8]) -> usize {
        0
    }
}

fn guest(arch: ArchId, name: &str) -> Vec<u8> {
    let dir = env!("CARGO_MANIFEST_DIR");
    let path: PathBuf = [dir, "../guest-programs/prebuilt", arch.name(), name].iter().collect();
    std::fs::read(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
}

fn config(arch: ArchId, argv: &[&str]) -> RunConfig {
    let kernel = KernelConfig::parse(KernelConfig::DEFAULT).expect("the default exists");
    let argv: Vec<String> = argv.iter().map(|&s| s.to_owned()).collect();
    let name = argv[0].clone();
    let mut config = RunConfig::new(kernel, Machine::default_for(arch), &name, argv);
    config.thp = Thp::only([(Order::new(4).expect("64 kB"), ThpSize::Always)]);
    config
}

/// What a run yields, in words: every counter and all output.
fn all_of(config: &RunConfig, engine: Engine) -> String {
    let config = RunConfig { engine, ..config.clone() };
    let elf = guest(config.machine.arch, &config.argv[0]);
    let mut console = Recorder::default();
    let result: Result<Outcome, RunError> = run(&config, &elf, &FreeClock, &mut console);
    format!("{result:#?}\n{}", String::from_utf8_lossy(&console.0))
}

fn check(config: &RunConfig) {
    let interpreted = all_of(config, Engine::Interp);
    assert!(interpreted.contains("instructions"), "{interpreted}");
    let native = all_of(config, Engine::Jit);
    for (a, b) in interpreted.lines().zip(native.lines()) {
        assert_eq!(a, b, "{} {:?}", config.machine.arch, config.argv);
    }
    assert_eq!(interpreted.len(), native.len(), "{} {:?}", config.machine.arch, config.argv);
}

#[test]
fn programs_count_the_same_whichever_engine_runs_them() {
    let programs: [&[&str]; 6] = [
        &["hello"],
        &["memset", "4"],
        &["pageout", "4"],
        &["probe", "fault", "8"],
        &["probe", "munmap", "8"],
        &["mprotect"],
    ];
    for arch in ArchId::ALL {
        for argv in programs {
            check(&config(arch, argv));
        }
    }
}

#[test]
fn oracles_see_the_same_whichever_engine_runs() {
    for arch in ArchId::ALL {
        let mut config = config(arch, &["pageout", "2"]);
        config.check = true;
        check(&config);
    }
}

#[test]
fn signals_arrive_at_the_same_instruction() {
    for arch in ArchId::ALL {
        check(&config(arch, &["wild"]));
    }
}

#[test]
fn a_limit_stops_both_engines_at_the_same_instruction() {
    for arch in ArchId::ALL {
        for limit in [1, 77, 4096, 4097, 100_001, 250_003] {
            let mut config = config(arch, &["spin"]);
            config.max_instructions = Some(limit);
            let ends = [Engine::Interp, Engine::Jit].map(|engine| all_of(&config, engine));
            assert_eq!(ends[0], ends[1], "{arch}, {limit}");
            assert!(ends[0].contains("--max-instructions"), "{}", ends[0]);
        }
    }
}
