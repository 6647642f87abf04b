//! The command line.

use clap::{Args, Parser, Subcommand, ValueEnum};
use machine::walk::{Access, Touch};
use std::num::NonZeroUsize;
use std::path::PathBuf;
use study::plan::parse_shard;
use study::{
    Override, ThpSetting, WalkRequest, parse_bytes, parse_mem, parse_set, parse_swap, parse_thp,
    parse_write,
};
use units::{ArchId, VirtAddr};

/// Runs programs on emulated CPUs over real page tables, and counts every touch of them
#[derive(Debug, Parser)]
#[command(name = "ptescope", version, max_term_width = 100)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Run a program and report what the kernel did for it
    Run(RunArgs),
    /// Run a study: programs on several machines, kernels and folio sizes
    Study(StudyArgs),
    /// Say why two runs differ, term by term
    Explain(ExplainArgs),
    /// Compare predictions with published results of kernel changes
    Scoreboard(ScoreboardArgs),
    /// Fit the prices of a machine to measured times
    Calibrate(CalibrateArgs),
    /// Show one translation level by level and bit by bit, on both formats
    Walk(WalkArgs),
    /// List the machine presets, or the figures of one with their sources
    Machines(MachinesArgs),
    /// List the kernel presets, the patches and the fields that can be set
    Kernels,
    /// List everything that is counted
    Events,
    /// List the built-in guest programs
    Guests,
}

#[derive(Debug, Args)]
pub(crate) struct RunArgs {
    /// arm64 or x86_64; default: what the program or the machine is
    #[arg(long, value_parser = arch)]
    pub(crate) arch: Option<ArchId>,
    /// Kernel and patches, as in v7.3+anon-unmap-batch
    #[arg(long, value_name = "KERNEL", default_value = machine::KernelConfig::DEFAULT)]
    pub(crate) kernel: String,
    /// Machine preset; `ptescope machines` lists them
    #[arg(long, value_name = "MACHINE")]
    pub(crate) machine: Option<String>,
    /// CPUs
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=256))]
    pub(crate) cpus: Option<u16>,
    /// Guest RAM
    #[arg(long, value_name = "SIZE", default_value = "1G", value_parser = parse_mem, allow_hyphen_values = true)]
    pub(crate) mem: u64,
    /// Swap space
    #[arg(long, value_name = "SIZE", default_value = "1G", value_parser = parse_swap, allow_hyphen_values = true)]
    pub(crate) swap: u64,
    /// Folio size and when: always, inherit, madvise or never
    #[arg(long, value_name = "SIZE=WHEN", value_parser = parse_thp)]
    pub(crate) thp: Vec<ThpSetting>,
    /// Change machine or kernel, as in machine.tlbirange=off
    #[arg(long, value_name = "KEY=VALUE", value_parser = parse_set)]
    pub(crate) set: Vec<Override>,
    /// Write to a file of /proc or /sys before the program starts, as in /proc/sys/vm/swappiness=1
    #[arg(long, value_name = "FILE=TEXT", value_parser = parse_write)]
    pub(crate) write: Vec<(String, String)>,
    /// User and group that the guest runs as
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub(crate) uid: u32,
    /// Environment of the guest
    #[arg(long, value_name = "NAME=VALUE", value_parser = env)]
    pub(crate) env: Vec<String>,
    /// Seed of everything random
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub(crate) seed: u64,
    /// Report every counter and every op path
    #[arg(long)]
    pub(crate) stat: bool,
    /// Write JSON; to stdout, the guest's goes to stderr
    #[arg(long, value_name = "FILE|-")]
    pub(crate) json: Option<String>,
    /// Write a trace that ui.perfetto.dev opens: kernel entries, ops, and flushes with what made them necessary.
    /// Long runs are sampled: while half of its 400,000 records are free every kernel entry is drawn,
    /// then one in 8 of each kind, in 64, and so on; and of one entry the first 10,000
    #[arg(long, value_name = "FILE")]
    pub(crate) trace: Option<PathBuf>,
    /// Watch with the oracles; a violation ends with status 70
    #[arg(long)]
    pub(crate) check: bool,
    /// How guest instructions are executed; no result depends on it
    #[arg(long, value_enum, default_value = "jit")]
    pub(crate) engine: EngineArg,
    /// Stop after so many guest instructions, with status 75
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) max_instructions: Option<u64>,
    /// An ELF64 file, or @name for a built-in guest
    #[arg(value_name = "PROGRAM")]
    pub(crate) program: String,
    /// Its arguments
    #[arg(value_name = "ARG", trailing_var_arg = true, allow_hyphen_values = true)]
    pub(crate) args: Vec<String>,
}

#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true)]
pub(crate) struct StudyArgs {
    #[command(subcommand)]
    pub(crate) command: Option<StudyCommand>,
    #[command(flatten)]
    pub(crate) run: StudyRunArgs,
}

#[derive(Debug, Subcommand)]
pub(crate) enum StudyCommand {
    /// Put the results of shards together
    Merge(StudyMergeArgs),
    /// List the studies that are built in
    List,
    /// Run a study as an array of Slurm jobs
    Submit(StudySubmitArgs),
    /// Say how far a submitted study is
    Status(StudyDirArgs),
    /// Submit the shards again that have failed or missing points
    Rerun(StudyDirArgs),
}

#[derive(Debug, Args)]
pub(crate) struct StudySubmitArgs {
    /// The study
    #[arg(value_name = "NAME|FILE.toml")]
    pub(crate) name: String,
    /// Directory for the job, the store and the results; all nodes must see it
    #[arg(long, value_name = "DIR")]
    pub(crate) slurm: PathBuf,
    /// How many jobs
    #[arg(long, value_name = "N", default_value = "8")]
    pub(crate) shards: NonZeroUsize,
    /// Option of sbatch, as in --sbatch=--partition=short
    #[arg(long, value_name = "OPTION", allow_hyphen_values = true)]
    pub(crate) sbatch: Vec<String>,
}

#[derive(Debug, Args)]
pub(crate) struct StudyDirArgs {
    /// The directory that it was submitted with
    #[arg(value_name = "DIR")]
    pub(crate) dir: PathBuf,
}

#[derive(Debug, Args)]
pub(crate) struct StudyRunArgs {
    /// Name of a study that is built in, or a file that ends in .toml
    #[arg(value_name = "NAME|FILE.toml")]
    pub(crate) name: Option<String>,
    #[command(flatten)]
    pub(crate) outputs: StudyOutputs,
    /// How many runs at once; default: as many as the host has cores
    #[arg(long, value_name = "N")]
    pub(crate) jobs: Option<NonZeroUsize>,
    /// Take finished runs from the store; only what is missing or failed is run
    #[arg(long)]
    pub(crate) resume: bool,
    /// Where finished runs are kept; default: ptescope in the user's cache directory
    #[arg(long, value_name = "DIR")]
    pub(crate) store: Option<PathBuf>,
    /// Run only part I of N
    #[arg(long, value_name = "I/N", value_parser = parse_shard)]
    pub(crate) shard: Option<(usize, usize)>,
}

#[derive(Debug, Args)]
pub(crate) struct StudyMergeArgs {
    /// The study
    #[arg(value_name = "NAME|FILE.toml")]
    pub(crate) name: String,
    /// Results that `study --shard I/N --json FILE` wrote
    #[arg(value_name = "RESULTS.jsonl", required = true)]
    pub(crate) files: Vec<String>,
    #[command(flatten)]
    pub(crate) outputs: StudyOutputs,
}

/// What becomes of the results of a study.
#[derive(Debug, Args)]
pub(crate) struct StudyOutputs {
    /// Write JSON lines, one per run; to stdout, the table goes to stderr
    #[arg(long, value_name = "FILE|-")]
    pub(crate) json: Option<String>,
    /// Write CSV, one line per run, kernel entry, op and event
    #[arg(long, value_name = "FILE")]
    pub(crate) csv: Option<PathBuf>,
    /// Write the same as Parquet; only if built with --features parquet
    #[arg(long, value_name = "FILE")]
    pub(crate) parquet: Option<PathBuf>,
    /// Write a page with tables, plots and every count
    #[arg(long, value_name = "DIR")]
    pub(crate) html: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub(crate) struct ExplainArgs {
    /// Report of the first run, written by `run --json FILE`
    #[arg(value_name = "A.json", required_unless_present = "study")]
    pub(crate) a: Option<String>,
    /// Report of the second
    #[arg(value_name = "B.json", required_unless_present = "study")]
    pub(crate) b: Option<String>,
    /// Instead: every pair of runs in a study's JSON lines that differ in the kernel alone
    #[arg(long, value_name = "FILE", conflicts_with_all = ["a", "b", "json", "svg", "without", "set", "folio", "cpus", "kernel"])]
    pub(crate) study: Option<String>,
    /// Compare one kernel entry alone, as in madvise(MADV_PAGEOUT), or fault
    #[arg(long, value_name = "ENTRY")]
    pub(crate) only: Option<String>,
    /// And if the kernel did not do this, as in contpte? Runs both again; built-in guests only
    #[arg(long, value_name = "FIELD")]
    pub(crate) without: Vec<String>,
    /// And if machine or kernel were other, as in machine.tlbirange=off? Likewise
    #[arg(long, value_name = "KEY=VALUE", value_parser = parse_set)]
    pub(crate) set: Vec<Override>,
    /// And with folios of this size and no other, in kB? Likewise
    #[arg(long, value_name = "KB", value_parser = folio_kb)]
    pub(crate) folio: Option<u64>,
    /// And with so many CPUs? Likewise
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=256))]
    pub(crate) cpus: Option<u16>,
    /// And on another kernel, with the same patches? Likewise
    #[arg(long, value_name = "PRESET")]
    pub(crate) kernel: Option<String>,
    /// Draw the difference as a waterfall
    #[arg(long, value_name = "FILE|-")]
    pub(crate) svg: Option<String>,
    /// Write JSON; to stdout, the text goes to stderr
    #[arg(long, value_name = "FILE|-")]
    pub(crate) json: Option<String>,
}

#[derive(Debug, Args)]
pub(crate) struct ScoreboardArgs {
    /// Write JSON; to stdout, the table goes to stderr
    #[arg(long, value_name = "FILE|-")]
    pub(crate) json: Option<String>,
    /// How many runs at once; default: as many as the host has cores
    #[arg(long, value_name = "N")]
    pub(crate) jobs: Option<NonZeroUsize>,
}

#[derive(Debug, Args)]
pub(crate) struct CalibrateArgs {
    /// Measured times, in the form of data/observations.toml; default: the published ones
    #[arg(value_name = "OBS.toml")]
    pub(crate) observations: Option<String>,
    /// Which machine's rows to fit, if there are several
    #[arg(long, value_name = "BENCH")]
    pub(crate) bench: Option<String>,
    /// Fit the prices of this host: the guest probe is timed natively and counted emulated
    #[arg(long, conflicts_with_all = ["observations", "bench", "work"])]
    pub(crate) host: bool,
    /// With --host: change the host's settings for large folios while it runs (needs root)
    #[arg(long, requires = "host")]
    pub(crate) set_thp: bool,
    /// Fit the kernel's instructions per event instead, to a file like data/executed-linux-6.12.toml
    #[arg(long, value_name = "FILE", conflicts_with_all = ["observations", "bench"])]
    pub(crate) work: Option<String>,
    /// Write the price list, or the table of work
    #[arg(long, value_name = "FILE")]
    pub(crate) out: Option<String>,
    /// How many runs at once; default: as many as the host has cores
    #[arg(long, value_name = "N")]
    pub(crate) jobs: Option<NonZeroUsize>,
}

#[derive(Debug, Args)]
pub(crate) struct MachinesArgs {
    /// The machine whose figures to show
    #[arg(value_name = "MACHINE")]
    pub(crate) name: Option<String>,
}

#[derive(Debug, Args)]
pub(crate) struct WalkArgs {
    /// arm64 or x86_64; default: both
    #[arg(long, value_parser = arch)]
    arch: Option<ArchId>,
    /// Machine preset that walks; `ptescope machines` lists them
    #[arg(long, value_name = "MACHINE")]
    machine: Option<String>,
    /// Kernel and patches that map the memory
    #[arg(long, value_name = "KERNEL", default_value = machine::KernelConfig::DEFAULT)]
    kernel: String,
    /// Change machine or kernel, as in machine.contiguous=ignored
    #[arg(long, value_name = "KEY=VALUE", value_parser = parse_set)]
    set: Vec<Override>,
    /// Size of the folios: 4K, or a power of two from 16K to 2M
    #[arg(long, value_name = "SIZE", default_value = "64K", value_parser = parse_bytes)]
    folio: u64,
    /// What the program did there before
    #[arg(long, value_enum, default_value = "write")]
    touched: TouchArg,
    /// What the walk is for
    #[arg(long = "for", value_enum, default_value = "read")]
    access: AccessArg,
    /// Addresses, hexadecimal with 0x
    #[arg(value_name = "ADDR", value_parser = address)]
    pub(crate) addresses: Vec<u64>,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum EngineArg {
    /// The interpreter alone
    Interp,
    /// Hot code compiled to host code, where the host allows it
    Jit,
}

impl From<EngineArg> for machine::Engine {
    fn from(engine: EngineArg) -> Self {
        match engine {
            EngineArg::Interp => machine::Engine::Interp,
            EngineArg::Jit => machine::Engine::Jit,
        }
    }
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum TouchArg {
    None,
    Read,
    Write,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum AccessArg {
    Read,
    Write,
    Exec,
}

impl WalkArgs {
    /// The walk for one address.
    pub(crate) fn request(&self, va: VirtAddr) -> WalkRequest {
        WalkRequest {
            arch: self.arch,
            machine: self.machine.clone(),
            kernel: self.kernel.clone(),
            set: self.set.clone(),
            folio_bytes: self.folio,
            touch: match self.touched {
                TouchArg::None => Touch::Nothing,
                TouchArg::Read => Touch::Read,
                TouchArg::Write => Touch::Write,
            },
            va,
            access: match self.access {
                AccessArg::Read => Access::Read,
                AccessArg::Write => Access::Write,
                AccessArg::Exec => Access::Exec,
            },
        }
    }
}

fn address(text: &str) -> Result<u64, String> {
    let digits = text.strip_prefix("0x").or_else(|| text.strip_prefix("0X"));
    let parsed = match digits {
        Some(hex) => u64::from_str_radix(&hex.replace('_', ""), 16),
        None => text.parse(),
    };
    parsed.map_err(|_| "it is no address: give one like 0x7f0012345678".to_owned())
}

fn arch(name: &str) -> Result<ArchId, String> {
    ArchId::parse(name).ok_or_else(|| "known are arm64 and x86_64".to_owned())
}

fn env(text: &str) -> Result<String, String> {
    match text.split_once('=') {
        Some((name, _)) if !name.is_empty() => Ok(text.to_owned()),
        _ => Err("it must be NAME=VALUE".to_owned()),
    }
}

/// A message of clap's as one sentence: its first paragraph and where to read on.
pub(crate) fn one_sentence(message: &str) -> String {
    let paragraph = message.trim_start().strip_prefix("error: ").unwrap_or(message);
    let lines = paragraph.lines().take_while(|line| !line.trim().is_empty());
    let first = lines.map(str::trim).collect::<Vec<_>>().join(" ");
    format!("{}; see `ptescope --help`", first.trim_end_matches('.'))
}

/// 4, or a size that `--thp` takes.
fn folio_kb(text: &str) -> Result<u64, String> {
    match text {
        "4" => Ok(4),
        text => {
            parse_thp(&format!("{text}kB=always")).map(|thp| thp.kib).map_err(|e| e.to_string())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    fn parse(line: &str) -> Result<Cli, clap::Error> {
        Cli::try_parse_from(line.split_whitespace())
    }

    fn run(line: &str) -> RunArgs {
        match parse(line).expect("parses").command {
            Command::Run(args) => args,
            other => panic!("{other:?}"),
        }
    }

    /// The sentence for a wrong command line.
    fn wrong(line: &str) -> String {
        let error = parse(line).expect_err("wrong");
        assert!(error.use_stderr());
        one_sentence(&error.render().to_string())
    }

    #[test]
    fn the_definition_is_sound() {
        Cli::command().debug_assert();
    }

    #[test]
    fn options_and_the_guests_arguments_keep_apart() {
        let args = run(
            "ptescope run --thp 64kB=always --mem 512M --set machine.tlbirange=off -- @pageout 16 --mem",
        );
        assert_eq!(
            (args.program.as_str(), args.args.join(" ")),
            ("@pageout", "16 --mem".to_owned())
        );
        assert_eq!((args.mem, args.thp[0].kib), (512 << 20, 64));
        assert_eq!(args.set[0].key, "machine.tlbirange");
        let args = run("ptescope run ./prog -v --json x");
        assert_eq!(
            (args.program.as_str(), args.args.join(" ")),
            ("./prog", "-v --json x".to_owned())
        );
        assert_eq!((args.kernel.as_str(), args.json), ("v7.3", None));
    }

    #[test]
    fn mistakes_become_one_sentence() {
        for (line, part) in [
            ("ptescope run --mem 0 -- @hello", "too small"),
            ("ptescope run --mem 1E -- @hello", "too large"),
            ("ptescope run --mem lots -- @hello", "is no size"),
            ("ptescope run --mem -1G -- @hello", "is no size"),
            ("ptescope run --arch riscv -- @hello", "arm64 and x86_64"),
            ("ptescope run --cpus 0 -- @hello", "not in 1..=256"),
            ("ptescope run --write nr_hugepages=1 -- @hello", "absolute path"),
            ("ptescope run --env X -- @hello", "NAME=VALUE"),
            ("ptescope run", "PROGRAM"),
            ("ptescope walkies", "walkies"),
            ("ptescope walk here", "it is no address"),
            ("ptescope walk --for fun", "read, write, exec"),
        ] {
            let sentence = wrong(line);
            assert!(sentence.contains(part), "{sentence}");
            assert!(
                !sentence.contains('\n') && sentence.ends_with("`ptescope --help`"),
                "{sentence}"
            );
        }
    }
}
