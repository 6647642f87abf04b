//! `xtask selftests`: the examination by Linux's own mm selftests.
//!
//! `build` fetches and compiles the programs, unchanged; `run` runs them under ptescope and compares
//! line by line with what the same programs said on a real Linux 6.12.

mod build;
mod reference;
mod run;
mod table;
mod tap;

pub(crate) use build::build;

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};

use reference::Reference;

/// An architecture, by the names that the tools of a build give it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Arch {
    X86_64,
    Arm64,
}

impl Arch {
    const ALL: [Arch; 2] = [Arch::X86_64, Arch::Arm64];

    fn name(self) -> &'static str {
        self.pick("x86_64", "arm64")
    }
    fn kbuild(self) -> &'static str {
        self.pick("x86", "arm64")
    }
    fn debian(self) -> &'static str {
        self.pick("amd64", "arm64")
    }
    fn triplet(self) -> &'static str {
        self.pick("x86_64", "aarch64")
    }
    fn compiler(self) -> &'static str {
        self.pick("gcc", "aarch64-linux-gnu-gcc")
    }
    fn pick<T>(self, x86_64: T, arm64: T) -> T {
        match self {
            Arch::X86_64 => x86_64,
            Arch::Arm64 => arm64,
        }
    }
}

/// Runs that take minutes: only with `--all`.
const SLOW: [&str; 1] = ["transhuge-stress -d 20"];

/// What `run` was told.
#[derive(Debug, Default)]
struct Options {
    update: bool,
    all: bool,
    /// Only programs of these names.
    only: Vec<String>,
}

impl Options {
    fn parse(words: &[&str]) -> Options {
        let mut options = Options::default();
        for word in words {
            match *word {
                "--update" => options.update = true,
                "--all" => options.all = true,
                name => options.only.push(name.to_owned()),
            }
        }
        options
    }

    fn wants(&self, reference: &Reference) -> bool {
        if !self.only.is_empty() {
            return self.only.contains(&reference.program) && (self.all || !reference.matrix);
        }
        self.all || !reference.matrix && !SLOW.contains(&reference.name().as_str())
    }
}

/// Runs the programs that [`build()`] made in `dir`, writes the account to `dir/results.txt`, and fails
/// if a row of `docs/selftests.md` became worse.
pub(crate) fn run(root: &Path, dir: &Path, words: &[&str]) -> Result<()> {
    let options = Options::parse(words);
    let ptescope = emulator(root)?;
    let mut references = reference::read(&root.join("tests/groundtruth/selftests-6.12.json.gz"))?;
    references.retain(|reference| options.wants(reference) && exists(dir, reference));
    ensure!(!references.is_empty(), "there are no such programs in {}", dir.display());
    let ran = run::run_all(&ptescope, dir, &dir.join("logs"), &references)?;
    let mut account = String::new();
    let mut results = Vec::new();
    for (reference, ran) in references.into_iter().zip(&ran) {
        let compared = table::compare(&reference, ran);
        account += &table::account(&reference, ran, &compared);
        results.push((reference, compared));
    }
    fs::write(dir.join("results.txt"), &account)?;
    if !options.only.is_empty() {
        print!("{account}");
    }
    let equal = results.iter().filter(|(_, compared)| compared.is_equal()).count();
    let (here, there) = results
        .iter()
        .fold((0, 0), |(h, t), (_, compared)| (h + compared.ok_here, t + compared.ok_there));
    println!(
        "selftests: {equal} of {} runs as on Linux; {here} of {there} lines ok",
        results.len()
    );
    compare_with_page(&root.join("docs/selftests.md"), &results, options.update)
}

fn exists(dir: &Path, reference: &Reference) -> bool {
    dir.join(reference.arch.name()).join(&reference.program).exists()
}

/// The release build of the emulator, as cargo makes it.
fn emulator(root: &Path) -> Result<PathBuf> {
    let target =
        std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root.join("target"), PathBuf::from);
    let ptescope = target.join("release/ptescope");
    ensure!(ptescope.exists(), "{} is missing: cargo build --release first", ptescope.display());
    Ok(ptescope)
}

fn compare_with_page(
    page: &Path,
    results: &[(Reference, table::Compared)],
    update: bool,
) -> Result<()> {
    let text =
        fs::read_to_string(page).with_context(|| format!("{} is missing", page.display()))?;
    let (before, old, after) = table::split(&text)?;
    let new = table::rows(results);
    let (worse, better) = table::changes(&old, &new);
    for line in &better {
        println!("selftests: better: {line}");
    }
    for line in &worse {
        eprintln!("selftests: WORSE: {line}");
    }
    if update {
        // Rows keep their place and their reasons; what did not run now keeps its cells.
        let mut rows = old;
        for (name, row) in new {
            match rows.iter_mut().find(|(known, _)| *known == name) {
                Some((_, known)) => known.cells.extend(row.cells),
                None => rows.push((name, row)),
            }
        }
        fs::write(page, table::join(before, &rows, after))?;
        return Ok(());
    }
    ensure!(worse.is_empty(), "{} results are worse than docs/selftests.md says", worse.len());
    Ok(())
}
