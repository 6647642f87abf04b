//! Embeds the prebuilt guest programs: writes a table of what `guest-programs/` holds. And hashes the source that
//! runs depend on, so that stored results of another state of it are not taken for its own.

use sha2::{Digest, Sha256};
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::{env, fs};

type Outcome<T> = Result<T, Box<dyn std::error::Error>>;

const ARCHS: [&str; 2] = ["arm64", "x86_64"];

/// Crates that a run's result does not depend on.
const NOT_RUN: [&str; 3] = ["cli", "viewer", "xtask"];

fn main() -> Outcome<()> {
    let crates = Path::new(&env::var("CARGO_MANIFEST_DIR")?).join("..");
    println!("cargo::rustc-env=PTESCOPE_SOURCE={}", source(&crates)?);
    embed_guests()
}

/// Hash over names and contents of the source files, in the order of the names.
fn source(crates: &Path) -> Outcome<String> {
    let mut files = vec![crates.join("../Cargo.lock")];
    for entry in fs::read_dir(crates)? {
        let entry = entry?;
        if NOT_RUN.iter().all(|&name| entry.file_name() != name) {
            println!("cargo::rerun-if-changed={}", entry.path().display());
            find_files(&entry.path(), &mut files)?;
        }
    }
    files.sort();
    let mut hash = Sha256::new();
    for file in files {
        hash.update(file.strip_prefix(crates).unwrap_or(&file).to_string_lossy().as_bytes());
        hash.update([0]);
        hash.update(fs::read(&file)?);
    }
    Ok(hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect())
}

fn find_files(dir: &Path, found: &mut Vec<PathBuf>) -> Outcome<()> {
    for entry in fs::read_dir(dir)? {
        let path = entry?.path();
        if path.is_dir() {
            find_files(&path, found)?;
        } else if path.extension().is_some_and(|e| e == "rs" || e == "toml") {
            found.push(path);
        }
    }
    Ok(())
}

fn embed_guests() -> Outcome<()> {
    let guests = Path::new(&env::var("CARGO_MANIFEST_DIR")?).join("../../guest-programs");
    println!("cargo::rerun-if-changed={}", guests.display());
    let mut names: Vec<String> = Vec::new();
    for entry in fs::read_dir(&guests)? {
        let entry = entry?;
        if entry.path().join("program.toml").is_file() {
            names.push(entry.file_name().into_string().map_err(|_| "a name that is no UTF-8")?);
        }
    }
    names.sort();
    let mut table = String::from("&[\n");
    for name in &names {
        table.push_str(&guest(&guests, name)?);
    }
    table.push_str("]\n");
    fs::write(PathBuf::from(env::var("OUT_DIR")?).join("guests.rs"), table)?;
    Ok(())
}

/// One entry of the table.
fn guest(guests: &Path, name: &str) -> Outcome<String> {
    let manifest = fs::read_to_string(guests.join(name).join("program.toml"))?;
    let manifest: toml::Table = manifest.parse()?;
    let text = |table: &toml::Table, key: &str| -> String {
        table.get(key).and_then(toml::Value::as_str).unwrap_or_default().to_owned()
    };
    let (summary, lesson) = (text(&manifest, "summary"), text(&manifest, "lesson"));
    let mut entry = String::new();
    writeln!(entry, "Guest {{ name: {name:?}, summary: {summary:?}, lesson: {lesson:?},")?;
    entry.push_str("arguments: &[");
    let arguments = manifest.get("argument").and_then(toml::Value::as_array);
    for argument in arguments.into_iter().flatten().filter_map(toml::Value::as_table) {
        let [name, default, meaning] = ["name", "default", "meaning"].map(|k| text(argument, k));
        write!(
            entry,
            "Argument {{ name: {name:?}, default: {default:?}, meaning: {meaning:?} }},"
        )?;
    }
    entry.push_str("], builds: [");
    for arch in ARCHS {
        let elf = guests.join("prebuilt").join(arch).join(name);
        if elf.is_file() {
            write!(entry, "Some(include_bytes!({:?}) as &[u8]), ", elf.canonicalize()?)?;
        } else {
            entry.push_str("None, ");
        }
    }
    entry.push_str("] },\n");
    Ok(entry)
}
