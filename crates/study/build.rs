//! Embeds the prebuilt guest programs: writes a table of what `guest-programs/` holds.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::{env, fs};

type Outcome<T> = Result<T, Box<dyn std::error::Error>>;

const ARCHS: [&str; 2] = ["arm64", "x86_64"];

fn main() -> Outcome<()> {
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
