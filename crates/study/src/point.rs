//! From a point of a study to a run, its name in the store, and the command that repeats it.

use crate::{
    Program, RunRequest, Silent, ThpPolicy, ThpSetting, hex, machine_arch, parse_set, parse_write,
    status,
};
use report::{Failure, Point, RUN_SCHEMA, RunReport};
use sha2::{Digest, Sha256};
use std::fmt::Write as _;

/// Hash of the source that this program was built from: what a point counts depends on it.
pub const SOURCE: &str = env!("PTESCOPE_SOURCE");

/// The size of a base page in kB: no folio is larger.
const BASE_KB: u64 = 4;

/// What to run for a point.
///
/// # Errors
/// As [`Program::open`], and 2 for a setting that makes no sense.
pub fn request(point: &Point) -> Result<RunRequest, Failure> {
    let arch = machine_arch(&point.machine)?;
    let program = Program::open(&point.program, arch)?;
    let mut argv = vec![point.program.trim_start_matches('@').to_owned()];
    argv.extend(point.args.iter().cloned());
    let usage =
        |error: crate::SettingError| Failure { message: error.to_string(), status: status::USAGE };
    let write = point.write.iter().map(|text| parse_write(text)).collect::<Result<_, _>>();
    let set = point.set.iter().map(|text| parse_set(text)).collect::<Result<_, _>>();
    Ok(RunRequest {
        arch: Some(arch),
        kernel: point.kernel.clone(),
        machine: Some(point.machine.clone()),
        cpus: Some(point.cpus),
        thp: thp(point.folio_kb).into_iter().collect(),
        set: set.map_err(usage)?,
        env: point.env.clone(),
        mem_bytes: point.mem_bytes.unwrap_or(RunRequest::MEM_BYTES),
        swap_bytes: point.swap_bytes.unwrap_or(RunRequest::SWAP_BYTES),
        seed: point.seed,
        max_instructions: point.max_instructions,
        write: write.map_err(usage)?,
        ..RunRequest::new(program, argv)
    })
}

/// Naming any size turns all others off; of 4K, the PMD size is off by name.
fn thp(folio_kb: u64) -> Option<ThpSetting> {
    match folio_kb {
        0 => None,
        BASE_KB => Some(ThpSetting { kib: 2048, policy: ThpPolicy::Never }),
        kib => Some(ThpSetting { kib, policy: ThpPolicy::Always }),
    }
}

/// Runs one point, without its output. A guest that fails is a point that failed: its counts are
/// of something else than was asked for.
///
/// # Errors
/// As [`request`] and [`crate::run`]; the guest's own status if it is not 0.
pub fn run(point: &Point) -> Result<RunReport, Failure> {
    let report = crate::run(&request(point)?, &mut Silent)?;
    if report.exit.status != 0 {
        let status = u8::try_from(report.exit.status).unwrap_or(u8::MAX);
        let message = format!("{} ended with status {status}", point.program);
        return Err(Failure { message, status });
    }
    Ok(report)
}

/// The hash of everything that a point's result depends on.
///
/// # Errors
/// As [`request`].
pub fn key(point: &Point) -> Result<String, Failure> {
    let request = request(point)?;
    let point = serde_json::to_string(point).map_err(|error| Failure {
        message: format!("internal error: a point is no JSON: {error}; please report it"),
        status: status::INTERNAL,
    })?;
    let mut hash = Sha256::new();
    for part in [RUN_SCHEMA, env!("CARGO_PKG_VERSION"), SOURCE, &point] {
        hash.update(part.len().to_le_bytes());
        hash.update(part);
    }
    hash.update(&request.program.bytes);
    Ok(hex(&hash.finalize()))
}

/// Whether a point's kernel exists.
#[cfg(test)]
pub(crate) fn kernel_is_known(point: &Point) -> bool {
    machine::KernelConfig::parse(&point.kernel).is_ok()
}

/// The command line that makes the run of a point.
pub fn command(point: &Point) -> String {
    let mut line = format!("ptescope run --machine {} --kernel {}", point.machine, point.kernel);
    let mut option = |text: std::fmt::Arguments<'_>| {
        line.push(' ');
        // Writing to a string cannot fail.
        let _ = line.write_fmt(text);
    };
    option(format_args!("--cpus {}", point.cpus));
    if let Some(thp) = thp(point.folio_kb) {
        option(format_args!("--thp {thp}"));
    }
    point.set.iter().for_each(|set| option(format_args!("--set {}", quoted(set))));
    point.write.iter().for_each(|write| option(format_args!("--write {}", quoted(write))));
    point.env.iter().for_each(|env| option(format_args!("--env {}", quoted(env))));
    for (name, bytes) in [("mem", point.mem_bytes), ("swap", point.swap_bytes)] {
        if let Some(bytes) = bytes {
            option(format_args!("--{name} {bytes}"));
        }
    }
    if point.seed != 0 {
        option(format_args!("--seed {}", point.seed));
    }
    if let Some(limit) = point.max_instructions {
        option(format_args!("--max-instructions {limit}"));
    }
    option(format_args!("-- {}", quoted(&point.program)));
    point.args.iter().for_each(|arg| option(format_args!("{}", quoted(arg))));
    line
}

/// A word as a shell takes it.
pub(crate) fn quoted(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "@%+=:,./-_".contains(c);
    if !word.is_empty() && word.chars().all(plain) {
        return word.to_owned();
    }
    format!("'{}'", word.replace('\'', r"'\''"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn point() -> Point {
        Point {
            arch: "arm64".to_owned(),
            cpus: 1,
            folio_kb: 64,
            kernel: "v7.3".to_owned(),
            machine: "apple-m3-vm".to_owned(),
            program: "@hello".to_owned(),
            ..Point::default()
        }
    }

    #[test]
    fn a_key_depends_on_everything_that_a_run_depends_on() {
        let key = |point: &Point| key(point).expect("known names");
        let base = key(&point());
        assert_eq!(base, key(&point()));
        let program = Point { program: "@memset".to_owned(), ..point() };
        let args = Point { args: vec!["you".to_owned()], ..point() };
        let seed = Point { seed: 1, ..point() };
        let set = Point { set: vec!["kernel.contpte=off".to_owned()], ..point() };
        let mem = Point { mem_bytes: Some(1 << 24), ..point() };
        let folio = Point { folio_kb: 4, ..point() };
        for other in [program, args, seed, set, mem, folio] {
            assert_ne!(key(&other), base, "{other:?}");
        }
    }

    #[test]
    fn the_command_says_all_that_differs_from_the_defaults() {
        assert_eq!(
            command(&point()),
            "ptescope run --machine apple-m3-vm --kernel v7.3 --cpus 1 --thp 64kB=always -- @hello"
        );
        let full = Point {
            args: vec!["it's".to_owned()],
            env: vec!["A=b c".to_owned()],
            set: vec!["kernel.contpte=off".to_owned()],
            seed: 3,
            swap_bytes: Some(0),
            folio_kb: 0,
            ..point()
        };
        let line = command(&full);
        assert!(line.ends_with(
            r"--cpus 1 --set kernel.contpte=off --env 'A=b c' --swap 0 --seed 3 -- @hello 'it'\''s'"
        ));
    }

    #[test]
    fn a_guest_that_fails_is_a_failed_point() {
        let failing = Point { program: "@wild".to_owned(), ..point() };
        let failure = run(&failing).expect_err("a segmentation fault");
        assert_eq!(failure.status, 139);
        let unknown = Point { machine: "abacus".to_owned(), ..point() };
        assert_eq!(run(&unknown).expect_err("unknown").status, status::USAGE);
    }
}
