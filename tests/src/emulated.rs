//! The measured programs on emulated CPUs: the guests `probe` and `gup_test`, or the programs
//! themselves as they were built for Linux.

use crate::direct::{Phase, Runner, is_of_first_batch, kernel_config, thp};
use crate::groundtruth::{ArchName, Counts, Run};
use crate::program::Recorder;
use machine::{FreeClock, Machine, RunConfig};
use serde::Deserialize;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use units::PAGE_SIZE;

/// RAM and swap of the measured machines.
const RAM: u64 = 3 << 30;
const SWAP: u64 = 1536 << 20;
/// Far more than any run takes.
const MAX_INSTRUCTIONS: u64 = 20_000_000_000;

/// The two programs that were measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Measured {
    /// `guest-programs/probe`; its sub-programs are the programs of the records.
    Probe,
    /// `gup_test`.
    GupTest,
}

impl Measured {
    fn name(self) -> &'static str {
        match self {
            Measured::Probe => "probe",
            Measured::GupTest => "gup_test",
        }
    }

    fn argv(self, run: &Run) -> Vec<String> {
        let mut argv = vec![self.name().to_owned()];
        if self == Measured::Probe {
            argv.push(run.program.clone());
        }
        // Arguments of the form NAME=value were given in the environment.
        argv.extend(run.args.iter().filter(|arg| !arg.contains('=')).cloned());
        argv
    }

    /// The variables that make it count, or count as in `run`.
    fn env(self, run: &Run) -> Vec<String> {
        match self {
            Measured::Probe if run.spinners > 0 => vec![format!("NTHR={}", run.spinners)],
            Measured::Probe => Vec::new(),
            Measured::GupTest => vec!["MM_EVENTS=1".to_owned()],
        }
    }
}

/// Runs what was measured as a program.
#[derive(Debug)]
pub struct Emulated {
    program: Measured,
    arm64: Vec<u8>,
    x86_64: Vec<u8>,
}

impl Emulated {
    /// The prebuilt guest.
    ///
    /// # Errors
    /// If it cannot be read.
    pub fn prebuilt(program: Measured) -> std::io::Result<Emulated> {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../guest-programs/prebuilt");
        Emulated::load(program, &root, program.name())
    }

    /// The program that was measured, if `PTESCOPE_ORIGINAL_PROBE` names a directory with builds
    /// of the probe (`x86_64/probe`, `arm64/probe`), or `PTESCOPE_LINUX_SELFTESTS` one with
    /// builds of the kernel's gup_test with the markers around its ioctls
    /// (`x86_64/gup_test_measured`, `arm64/gup_test_measured`).
    ///
    /// # Errors
    /// If they cannot be read.
    pub fn original(program: Measured) -> Option<std::io::Result<Emulated>> {
        let (variable, file) = match program {
            Measured::Probe => ("PTESCOPE_ORIGINAL_PROBE", "probe"),
            Measured::GupTest => ("PTESCOPE_LINUX_SELFTESTS", "gup_test_measured"),
        };
        let dir = PathBuf::from(std::env::var_os(variable)?);
        Some(Emulated::load(program, &dir, file))
    }

    fn load(program: Measured, dir: &Path, file: &str) -> std::io::Result<Emulated> {
        let read = |arch| std::fs::read(dir.join(arch).join(file));
        Ok(Emulated { program, arm64: read("arm64")?, x86_64: read("x86_64")? })
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

impl Runner for Emulated {
    fn run(&self, run: &Run) -> Option<Vec<Phase>> {
        let elf = match run.arch {
            ArchName::Arm64 => &self.arm64,
            ArchName::X86 => &self.x86_64,
        };
        let mut machine = Machine::by_name(machine_name(run)).expect("the preset exists");
        machine.hw.cpus = 4;
        let argv = self.program.argv(run);
        let config = RunConfig {
            mem_bytes: RAM,
            swap_bytes: SWAP,
            thp: thp(run),
            fault_around_bytes: fault_around(run),
            env: self.program.env(run),
            // The measured programs were executed on the CPU that they pin themselves to.
            first_cpu: Some(1),
            max_instructions: Some(MAX_INSTRUCTIONS),
            ..RunConfig::new(kernel_config(run), machine, &argv[0].clone(), argv)
        };
        let mut console = Recorder::default();
        let outcome = machine::run(&config, elf, &FreeClock, &mut console);
        let out = console.stdout;
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
