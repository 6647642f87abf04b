//! `xtask tidy`: rules of the house that no compiler checks.
//!
//! - Dependency arrows between the crates, against `cargo metadata`.
//! - `// FIDELITY: <id> …` marks against the table in `docs/fidelity.md`, both ways.
//! - Words that are not used: `unsafe` and `target_arch` outside `jit`, `HashMap`, `HashSet`.
//! - Functions longer than a screen are listed, as a warning.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};
use serde_json::Value;

use crate::rust_text;

/// Which workspace crates each crate may name in `[dependencies]`.
const ARROWS: &[(&str, &[&str])] = &[
    ("units", &[]),
    ("events", &["units"]),
    ("phys", &["units"]),
    ("arch", &["units", "events", "phys"]),
    ("cpu", &["units"]),
    ("mmu", &["units", "events", "phys", "arch"]),
    ("mm", &["units", "events", "phys", "arch"]),
    ("kernel", &["units", "events", "phys", "arch", "mm"]),
    ("jit", &["units", "phys", "mmu", "cpu"]),
    ("machine", &["units", "events", "phys", "arch", "cpu", "jit", "mmu", "mm", "kernel"]),
    ("cost", &["units", "events"]),
    ("report", &["units", "events"]),
    ("study", &["units", "events", "machine", "cost", "report"]),
    ("ptescope", &["units", "events", "machine", "cost", "report", "study"]),
    ("xtask", &[]),
];

/// May use any crate: it tests them.
const TESTS: &str = "ptescope-tests";

/// Words that code does not use: word, crate that may, reason.
const FORBIDDEN: [(&str, &str, &str); 4] = [
    ("unsafe", "jit", "only `jit` may hold unsafe code"),
    ("target_arch", "jit", "the guest's architecture is not the host's, which only `jit` asks for"),
    ("HashMap", "", "its order differs between runs: BTreeMap"),
    ("HashSet", "", "its order differs between runs: BTreeSet"),
];

const FUNCTION_LINES_MAX: usize = 70;

/// Runs all checks; prints every finding before it fails.
pub(crate) fn check(root: &Path) -> Result<()> {
    let sources = sources(root)?;
    let mut wrong = wrong_arrows(&metadata(root)?)?;
    wrong.extend(wrong_words(&sources));
    wrong.extend(wrong_marks(&sources, fs::read_to_string(root.join("docs/fidelity.md")).ok()));
    for line in long_functions(&sources) {
        println!("tidy: warning: {line}");
    }
    for line in &wrong {
        eprintln!("tidy: {line}");
    }
    ensure!(wrong.is_empty(), "{} findings", wrong.len());
    println!("tidy: {} files, nothing to complain about", sources.len());
    Ok(())
}

/// A Rust file of the workspace.
struct Source {
    /// Relative to the root.
    path: PathBuf,
    text: String,
    /// `text` without comments and literals.
    code: String,
}

impl Source {
    fn new(path: PathBuf, text: String) -> Self {
        let code = rust_text::code_only(&text);
        Self { path, text, code }
    }

    fn is_of_crate(&self, name: &str) -> bool {
        !name.is_empty() && self.path.starts_with(Path::new("crates").join(name))
    }
}

fn sources(root: &Path) -> Result<Vec<Source>> {
    let mut paths = BTreeSet::new();
    for dir in ["crates", "tests"] {
        find_rust_files(&root.join(dir), &mut paths)?;
    }
    let mut sources = Vec::new();
    for path in paths {
        let text = fs::read_to_string(&path).with_context(|| path.display().to_string())?;
        sources.push(Source::new(path.strip_prefix(root)?.to_path_buf(), text));
    }
    Ok(sources)
}

fn find_rust_files(dir: &Path, found: &mut BTreeSet<PathBuf>) -> Result<()> {
    for entry in fs::read_dir(dir).with_context(|| dir.display().to_string())? {
        let path = entry?.path();
        let is_output = path.file_name().is_some_and(|name| name == "target");
        if path.is_dir() && !is_output {
            find_rust_files(&path, found)?;
        } else if path.extension().is_some_and(|ext| ext == "rs") {
            found.insert(path);
        }
    }
    Ok(())
}

fn metadata(root: &Path) -> Result<Value> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let output = Command::new(cargo)
        .current_dir(root)
        .args(["metadata", "--format-version", "1", "--no-deps", "--offline"])
        .output()
        .context("cargo metadata does not run")?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "cargo metadata failed:\n{said}");
    Ok(serde_json::from_slice(&output.stdout)?)
}

/// Dependencies (other than for tests) that the house does not allow, and crates it does not know.
fn wrong_arrows(metadata: &Value) -> Result<Vec<String>> {
    let allowed: BTreeMap<_, _> = ARROWS.iter().copied().collect();
    let Some(packages) = metadata["packages"].as_array() else { bail!("no packages in metadata") };
    let name_of = |value: &Value| value["name"].as_str().unwrap_or_default().to_owned();
    let members: BTreeSet<String> = packages.iter().map(name_of).collect();
    let mut wrong = Vec::new();
    for package in packages {
        let name = name_of(package);
        if name == TESTS {
            continue;
        }
        let Some(allowed) = allowed.get(name.as_str()) else {
            wrong.push(format!("crate `{name}` has no place in the house: add it to ARROWS"));
            continue;
        };
        for dependency in package["dependencies"].as_array().into_iter().flatten() {
            let to = name_of(dependency);
            let for_tests = dependency["kind"] == "dev";
            if members.contains(&to) && !for_tests && !allowed.contains(&to.as_str()) {
                wrong.push(format!("crate `{name}` must not depend on `{to}`"));
            }
        }
    }
    Ok(wrong)
}

fn wrong_words(sources: &[Source]) -> Vec<String> {
    let mut wrong = Vec::new();
    for source in sources {
        for (word, home, reason) in FORBIDDEN {
            if source.is_of_crate(home) {
                continue;
            }
            for line in rust_text::lines_with_word(&source.code, word) {
                wrong.push(format!("{}:{line}: `{word}`: {reason}", source.path.display()));
            }
        }
    }
    wrong
}

/// Marks without a row in the fidelity table, rows of simplifications without a mark.
fn wrong_marks(sources: &[Source], table: Option<String>) -> Vec<String> {
    let mut wrong = Vec::new();
    let rows = match table.as_deref().map(fidelity_rows) {
        Some(Ok(rows)) => rows,
        Some(Err(line)) => return vec![format!("docs/fidelity.md: {line}")],
        None => BTreeMap::new(),
    };
    let mut marked = BTreeSet::new();
    for source in sources {
        for (id, line) in fidelity_marks(&source.text) {
            let at = format!("{}:{line}", source.path.display());
            if id.is_empty() {
                wrong.push(format!("{at}: a FIDELITY mark without an id"));
            } else if !rows.contains_key(&id) {
                wrong.push(format!("{at}: no row `{id}` in docs/fidelity.md"));
            }
            marked.insert(id);
        }
    }
    for (id, status) in &rows {
        if status == "simplified" && !marked.contains(id) {
            wrong.push(format!("docs/fidelity.md: `{id}` is simplified, but no code is marked so"));
        }
    }
    wrong
}

/// The ids of the comments `// FIDELITY: <id> …`, with their lines.
fn fidelity_marks(text: &str) -> Vec<(String, usize)> {
    let mut marks = Vec::new();
    for (line, nr) in text.lines().zip(1..) {
        let Some(comment) = line.trim_start().strip_prefix("//") else { continue };
        let comment = comment.trim_start_matches(['/', '!', ' ']);
        let Some(rest) = comment.strip_prefix("FIDELITY:") else { continue };
        let id = rest.split_whitespace().next().unwrap_or_default();
        marks.push((id.trim_matches(['`', ',', ':', '.', ';']).to_owned(), nr));
    }
    marks
}

/// The rows `| id | status | …` of the table, by id; fails with a sentence on a row it cannot use.
fn fidelity_rows(table: &str) -> Result<BTreeMap<String, String>, String> {
    let mut rows = BTreeMap::new();
    for line in table.lines().filter(|line| line.starts_with('|')) {
        let mut cells = line.split('|').skip(1).map(|cell| cell.trim().trim_matches('`'));
        let (id, status) = (cells.next().unwrap_or_default(), cells.next().unwrap_or_default());
        let is_heading = id == "id" || id.chars().all(|c| matches!(c, '-' | ':'));
        if is_heading {
            continue;
        }
        if !matches!(status, "modelled" | "simplified" | "absent") {
            return Err(format!("`{id}` is neither modelled, simplified nor absent"));
        }
        if rows.insert(id.to_owned(), status.to_owned()).is_some() {
            return Err(format!("`{id}` has two rows"));
        }
    }
    Ok(rows)
}

fn long_functions(sources: &[Source]) -> Vec<String> {
    let mut long = Vec::new();
    for source in sources {
        for function in rust_text::functions(&source.code) {
            let rust_text::Function { name, line, lines_nr } = function;
            if lines_nr > FUNCTION_LINES_MAX {
                let path = source.path.display();
                long.push(format!("{path}:{line}: `{name}` has {lines_nr} lines"));
            }
        }
    }
    long
}

#[cfg(test)]
mod tests {
    use super::*;

    fn source(path: &str, text: &str) -> Source {
        Source::new(path.into(), text.into())
    }

    fn package(name: &str, dependencies: &[(&str, Value)]) -> Value {
        let dependencies: Vec<Value> = dependencies
            .iter()
            .map(|(name, kind)| serde_json::json!({ "name": name, "kind": kind }))
            .collect();
        serde_json::json!({ "name": name, "dependencies": dependencies })
    }

    #[test]
    fn arrows_point_down_only() {
        let metadata = serde_json::json!({ "packages": [
            package("units", &[]),
            package("mmu", &[]),
            package("mm", &[("units", Value::Null), ("thiserror", Value::Null), ("mmu", "dev".into())]),
        ]});
        assert_eq!(wrong_arrows(&metadata).expect("metadata"), [""; 0]);

        let metadata = serde_json::json!({ "packages": [
            package("mmu", &[]),
            package("mm", &[("mmu", Value::Null)]),
            package("shed", &[]),
        ]});
        let wrong = wrong_arrows(&metadata).expect("metadata");
        assert_eq!(wrong.len(), 2, "{wrong:?}");
        assert!(wrong[0].contains("`mm` must not depend on `mmu`"), "{wrong:?}");
        assert!(wrong[1].contains("`shed` has no place"), "{wrong:?}");
    }

    #[test]
    fn arrows_lead_to_crates_named_before() {
        for (i, (name, below)) in ARROWS.iter().enumerate() {
            for lower in *below {
                let place = ARROWS.iter().position(|(other, _)| other == lower);
                assert!(place.is_some_and(|place| place < i), "{name} -> {lower}");
            }
        }
    }

    #[test]
    fn unsafe_belongs_to_jit() {
        let text = "fn f() { unsafe { g() } } // unsafe";
        let wrong = wrong_words(&[
            source("crates/jit/src/lib.rs", text),
            source("crates/mm/src/lib.rs", "#![forbid(unsafe_code)] // unsafe"),
            source("crates/mm/src/rmap.rs", text),
        ]);
        assert_eq!(wrong.len(), 1, "{wrong:?}");
        assert!(wrong[0].starts_with("crates/mm/src/rmap.rs:1: `unsafe`"), "{wrong:?}");
    }

    #[test]
    fn host_dependent_words_are_found() {
        let text = "#[cfg(target_arch = \"x86_64\")]\nuse std::collections::HashMap;\n";
        assert_eq!(wrong_words(&[source("crates/phys/src/lib.rs", text)]).len(), 2);
    }

    const TABLE: &str = "# Fidelity\n\n| id | status | what |\n|---|---|---|\n\
        | `swap-lru` | simplified | x |\n| numa | absent | y |\n| faults | modelled | z |\n";

    #[test]
    fn marks_and_table_agree() {
        let marked = source("crates/mm/src/swap.rs", "    // FIDELITY: swap-lru, because\n");
        assert_eq!(wrong_marks(&[marked], Some(TABLE.into())), [""; 0]);
    }

    #[test]
    fn a_mark_needs_a_row_and_a_row_a_mark() {
        let marked = source("crates/mm/src/swap.rs", "//! FIDELITY: other: x\n// FIDELITY:\n");
        let wrong = wrong_marks(&[marked], Some(TABLE.into()));
        assert_eq!(wrong.len(), 3, "{wrong:?}");
        assert!(wrong[0].contains("no row `other`"), "{wrong:?}");
        assert!(wrong[1].contains("without an id"), "{wrong:?}");
        assert!(wrong[2].contains("`swap-lru` is simplified"), "{wrong:?}");
    }

    #[test]
    fn without_a_table_every_mark_is_wrong() {
        let marked = source("crates/mm/src/swap.rs", "// FIDELITY: a x\n");
        assert_eq!(wrong_marks(&[marked], None).len(), 1);
        assert_eq!(wrong_marks(&[], None), [""; 0]);
    }

    #[test]
    fn a_broken_table_is_reported() {
        for (table, reason) in [
            ("| a | mostly | x |\n", "neither"),
            ("| a | absent | x |\n| a | absent | x |\n", "two rows"),
        ] {
            let wrong = wrong_marks(&[], Some(table.into()));
            assert!(wrong.len() == 1 && wrong[0].contains(reason), "{wrong:?}");
        }
    }

    #[test]
    fn long_functions_are_listed() {
        let text = format!("fn long() {{\n{}}}\nfn short() {{\n}}\n", "    x();\n".repeat(70));
        let long = long_functions(&[source("crates/mm/src/a.rs", &text)]);
        assert_eq!(long, ["crates/mm/src/a.rs:1: `long` has 72 lines"]);
    }
}
