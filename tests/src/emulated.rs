//! The measured program on emulated CPUs: the guest of `guest-programs/probe`, or the program
//! itself as it was built for Linux.

use crate::direct::{Phase, Runner, is_of_first_batch, kernel_config, thp};
use crate::groundtruth::{ArchName, Counts, Run};
use machine::{Console, FreeClock, Machine, RunConfig, Stream};
use serde::Deserialize;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use units::PAGE_SIZE;

/// RAM and swap of the measured machines.
const RAM: u64 = 3 << 30;
const SWAP: u64 = 1536 << 20;
/// Far more than any run of the probe takes.
const MAX_INSTRUCTIONS: u64 = 20_000_000_000;

/// Runs the probe as a program.
#[derive(Debug)]
pub struct Emulated {
    arm64: Vec<u8>,
    x86_64: Vec<u8>,
}

impl Emulated {
    /// The prebuilt guest.
    ///
    /// # Errors
    /// If it cannot be read.
    pub fn prebuilt() -> std::io::Result<Emulated> {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../guest-programs/prebuilt");
        Emulated::load(&root)
    }

    /// The program that was measured, if `PTESCOPE_ORIGINAL_PROBE` names a directory with its
    /// builds (`x86_64/probe`, `arm64/probe`).
    ///
    /// # Errors
    /// If they cannot be read.
    pub fn original() -> Option<std::io::Result<Emulated>> {
        let dir = std::env::var_os("PTESCOPE_ORIGINAL_PROBE")?;
        Some(Emulated::load(&PathBuf::from(dir)))
    }

    fn load(dir: &Path) -> std::io::Result<Emulated> {
        Ok(Emulated {
            arm64: std::fs::read(dir.join("arm64/probe"))?,
            x86_64: std::fs::read(dir.join("x86_64/probe"))?,
        })
    }
}

/// The machine preset that a record was measured on.
fn machine_name(run: &Run) -> &'static str {
    match (run.arch, run.cpu.as_str()) {
        (ArchName::Arm64, "cortex-a72") => "qemu-cortex-a72",
        (ArchName::Arm64, _) => "qemu-max-arm64",
        (ArchName::X86, _) => "qemu-max-x86_64",
    }
}

/// The measuring kernels had fault-around switched off, but for the first batch: a forked child
/// maps one page of text for each page it touches, where a window of 64 KiB would map sixteen.
fn fault_around(run: &Run) -> Option<u64> {
    (!is_of_first_batch(run)).then_some(PAGE_SIZE)
}

/// What the guest printed.
#[derive(Debug, Default)]
struct Captured {
    out: Vec<u8>,
}

impl Console for Captured {
    fn write(&mut self, _: Stream, bytes: &[u8]) {
        self.out.extend_from_slice(bytes);
    }
    fn read(&mut self, _: &mut [u8]) -> usize {
        0
    }
}

impl Runner for Emulated {
    fn run(&self, run: &Run) -> Option<Vec<Phase>> {
        let elf = match run.arch {
            ArchName::Arm64 => &self.arm64,
            ArchName::X86 => &self.x86_64,
        };
        let mut machine = Machine::by_name(machine_name(run)).expect("the preset exists");
        machine.hw.cpus = 4;
        let mut argv = vec!["probe".to_owned(), run.program.clone()];
        // Arguments of the form NAME=value were given in the environment.
        argv.extend(run.args.iter().filter(|arg| !arg.contains('=')).cloned());
        let config = RunConfig {
            mem_bytes: RAM,
            swap_bytes: SWAP,
            thp: thp(run),
            fault_around_bytes: fault_around(run),
            env: if run.spinners > 0 { vec![format!("NTHR={}", run.spinners)] } else { Vec::new() },
            // The measured programs were executed on the CPU that they pin themselves to.
            first_cpu: Some(1),
            max_instructions: Some(MAX_INSTRUCTIONS),
            ..RunConfig::new(kernel_config(run), machine, "/probe", argv)
        };
        let mut console = Captured::default();
        let outcome = machine::run(&config, elf, &FreeClock, &mut console);
        let out = String::from_utf8_lossy(&console.out).into_owned();
        let outcome = outcome.unwrap_or_else(|error| panic!("{run}: {error}\n{out}"));
        assert_eq!(outcome.exit.code(), 0, "{run}: {out}");
        assert!(!out.contains("@@ERR"), "{run}: {out}");
        Some(out.lines().filter_map(|line| line.strip_prefix("@@")).map(parse_phase).collect())
    }
}

#[derive(Deserialize)]
struct Line {
    phase: String,
    counters: BTreeMap<String, u64>,
}

fn parse_phase(json: &str) -> Phase {
    let line: Line = serde_json::from_str(json).expect("the probe prints JSON");
    let counts: Counts = line
        .counters
        .into_iter()
        .filter_map(|(key, n)| {
            let mut parts = key.splitn(3, '.');
            let (bank, scope, event) = (parts.next()?, parts.next()?, parts.next()?);
            (bank == "task").then(|| ((scope.to_owned(), event.to_owned()), n))
        })
        .collect();
    Phase { name: line.phase, counts }
}
