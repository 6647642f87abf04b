//! Runs the selftests under ptescope.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};

use anyhow::{Context, Result};

use super::reference::Reference;
use super::tap;

/// Seconds of the host's time that one run may take.
const SECONDS_MAX: u32 = 240;
/// Instructions that one run may take.
const INSTRUCTIONS_MAX: u64 = 20_000_000_000;

/// How one program went under ptescope.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Ran {
    /// Exit status of the program; `None` if it was stopped or asked for what is missing.
    pub(crate) status: Option<u64>,
    pub(crate) lines: Vec<String>,
    /// Why it did not end by itself: ptescope's sentence.
    pub(crate) stopped: Option<String>,
    /// System calls that do not exist.
    pub(crate) missing: Option<String>,
}

/// Runs all of `references` with `jobs` at a time; output of each lands in `out`.
pub(crate) fn run_all(
    ptescope: &Path,
    programs: &Path,
    out: &Path,
    references: &[Reference],
) -> Result<Vec<Ran>> {
    fs::create_dir_all(out)?;
    let jobs = std::thread::available_parallelism().map_or(1, usize::from);
    let next = AtomicUsize::new(0);
    let work = || {
        let mut done = Vec::new();
        loop {
            let at = next.fetch_add(1, Ordering::Relaxed);
            let Some(reference) = references.get(at) else { return Ok(done) };
            done.push((at, run(ptescope, programs, out, reference)?));
        }
    };
    let mut all: Vec<(usize, Ran)> = std::thread::scope(|scope| {
        let workers: Vec<_> = (0..jobs).map(|_| scope.spawn(work)).collect();
        let results = workers.into_iter().map(|w| w.join().expect("a worker does not panic"));
        results.collect::<Result<Vec<Vec<_>>>>()
    })?
    .concat();
    all.sort_by_key(|(at, _)| *at);
    Ok(all.into_iter().map(|(_, ran)| ran).collect())
}

fn run(ptescope: &Path, programs: &Path, out: &Path, reference: &Reference) -> Result<Ran> {
    let name: String = reference
        .name()
        .chars()
        .map(|c| if c.is_ascii_alphanumeric() || "-_.".contains(c) { c } else { '_' })
        .collect();
    let log = |kind: &str| out.join(format!("{}-{name}.{kind}", reference.arch.name()));
    let (stdout, stderr) = (log("out"), log("err"));
    let status = command(ptescope, &programs.join(reference.arch.name()), reference)
        .stdin(Stdio::null())
        .stdout(fs::File::create(&stdout)?)
        .stderr(fs::File::create(&stderr)?)
        .status()
        .context("`timeout` does not run")?;
    let printed = String::from_utf8_lossy(&fs::read(&stdout)?).into_owned();
    let said = String::from_utf8_lossy(&fs::read(&stderr)?).into_owned();
    let failure = said.lines().rfind(|line| line.starts_with("ptescope: ")).map(str::to_owned);
    let stopped = match status.code() {
        Some(124 | 137) if failure.is_none() => Some(format!("took more than {SECONDS_MAX} s")),
        None => Some("the emulator crashed".to_owned()),
        _ => failure.map(|line| sentence(&line)),
    };
    let calls = said.lines().find_map(|line| line.split_once("answered with ENOSYS: "));
    Ok(Ran {
        status: status
            .code()
            .and_then(|code| u64::try_from(code).ok())
            .filter(|_| stopped.is_none()),
        lines: tap::lines(&reference.program, &printed),
        stopped,
        missing: calls.map(|(_, calls)| calls.to_owned()),
    })
}

/// What ptescope said, without its name and the program's path.
fn sentence(line: &str) -> String {
    let words = line.trim_start_matches("ptescope: ").split(": ").skip(1).collect::<Vec<_>>();
    words.join(": ")
}

/// The system as the reference's was: 4 CPUs, 3 GiB, huge pages in the pool, THP always.
fn command(ptescope: &Path, programs: &Path, reference: &Reference) -> Command {
    let mut command = Command::new("timeout");
    command.arg("-k5").arg(SECONDS_MAX.to_string()).arg(ptescope);
    command.args(["run", "--kernel", "v6.12", "--cpus", "4", "--mem", "3G", "--swap", "512M"]);
    command.arg(format!("--max-instructions={INSTRUCTIONS_MAX}"));
    command.args(["--write", "/sys/kernel/mm/transparent_hugepage/enabled=always"]);
    let mut write = |file: &str, value: u64| {
        command.arg("--write").arg(format!("{file}={value}"));
    };
    if reference.nr_hugepages > 0 {
        write("/proc/sys/vm/nr_hugepages", reference.nr_hugepages);
    }
    if let Some(mode) = reference.overcommit {
        write("/proc/sys/vm/overcommit_memory", mode);
    }
    if let Some(bytes) = reference.shmmax {
        write("/proc/sys/kernel/shmmax", bytes);
    }
    if reference.nobody {
        command.args(["--uid", "65534"]);
    }
    let program: PathBuf = programs.join(&reference.program);
    command.arg("--").arg(program).args(&reference.args);
    command
}
