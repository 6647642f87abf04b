//! `xtask guests`: the guest programs are built from this tree, by one pinned toolchain, and the
//! result is checked in, so that nobody needs a cross compiler to run a guest.
//!
//! The binaries do not depend on where or when they are built.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use anyhow::{Context, Result, bail, ensure};

use crate::elf;
use crate::manifest::{Entry, Manifest};

/// The toolchain that the prebuilt guests come from (Debian 12).
const COMPILER: &str = "Debian clang version 14.0.6";
const LINKER: &str = "Debian LLD 14.0.6 (compatible with GNU linkers)";
const COMPILERS: [&str; 2] = ["clang-14", "clang"];
const LINKERS: [&str; 2] = ["ld.lld-14", "ld.lld"];

/// Only integer registers: the smallest part of each instruction set that does the work.
const COMMON_FLAGS: &str = "-std=c11 -O2 -Wall -Wextra -Werror -Irt -ffreestanding -nostdlibinc \
    -fno-pic -fno-PIE -fno-ident -fno-stack-protector -fno-asynchronous-unwind-tables \
    -ffunction-sections -fdata-sections -mgeneral-regs-only -static -nostdlib \
    -Wl,--build-id=none -Wl,--gc-sections -Wl,-s -Wl,--image-base=0x400000 \
    -Wl,-z,max-page-size=4096 -Wl,-z,separate-code -Wl,-z,noexecstack";
const ARCH_FLAGS: [(&str, &str); 2] = [
    ("arm64", "--target=aarch64-linux-gnu -march=armv8-a -mno-outline-atomics"),
    ("x86_64", "--target=x86_64-linux-gnu -march=x86-64 -fcf-protection=none"),
];

const GLIBC_COMPILERS: [(&str, &str); 2] =
    [("arm64", "aarch64-linux-gnu-gcc"), ("x86_64", "x86_64-linux-gnu-gcc")];

/// A guest is a lesson, not an application.
const SIZE_MAX_BYTES: usize = 30_000;

/// Compares what is checked in with MANIFEST, and with a fresh build if the pinned toolchain is
/// installed; says so loudly if it is not.
pub(crate) fn check(root: &Path) -> Result<()> {
    let dir = root.join("guest-programs");
    let manifest = Manifest::read(&dir.join("MANIFEST"))?;
    let checked_in = read_prebuilt(&dir.join("prebuilt"))?;
    compare("MANIFEST", &manifest.files, "prebuilt/", &entries(&checked_in))?;
    ensure!(
        manifest.flags == flags(),
        "MANIFEST names other flags than xtask: run guests --update"
    );

    let toolchain = match Toolchain::find() {
        Ok(toolchain) => toolchain,
        Err(reason) => {
            eprintln!("xtask guests: SKIPPED the rebuild: {reason:#}");
            return Ok(());
        }
    };
    let built = build_all(&dir, &root.join("target/guests"), &toolchain)?;
    compare("prebuilt/", &manifest.files, "the fresh build", &entries(&built))?;
    println!("guests: {} binaries rebuilt, all equal to the ones checked in", built.len());
    Ok(())
}

/// Builds all guests and checks the result in.
pub(crate) fn update(root: &Path) -> Result<()> {
    let dir = root.join("guest-programs");
    let built = build_all(&dir, &root.join("target/guests"), &Toolchain::find()?)?;
    let prebuilt = dir.join("prebuilt");
    for stale in read_prebuilt(&prebuilt)?.keys().filter(|file| !built.contains_key(*file)) {
        fs::remove_file(prebuilt.join(stale))?;
    }
    for (file, contents) in &built {
        let path = prebuilt.join(file);
        fs::create_dir_all(path.parent().context("files are below prebuilt/")?)?;
        fs::write(&path, contents)?;
        make_executable(&path)?;
    }
    let files = entries(&built);
    let manifest =
        Manifest { compiler: COMPILER.into(), linker: LINKER.into(), flags: flags(), files };
    fs::write(dir.join("MANIFEST"), manifest.to_text())?;
    let bytes: usize = built.values().map(Vec::len).sum();
    println!("guests: {} binaries, {bytes} bytes", built.len());
    Ok(())
}

/// The names of the programs that a compiler and a linker of the pinned versions go by.
struct Toolchain {
    compiler: &'static str,
    linker: &'static str,
}

impl Toolchain {
    fn find() -> Result<Self> {
        let compiler = find_version(&COMPILERS, COMPILER)?;
        let linker = find_version(&LINKERS, LINKER)?;
        Ok(Self { compiler, linker })
    }
}

fn find_version(candidates: &[&'static str], wanted: &str) -> Result<&'static str> {
    for program in candidates {
        let Ok(output) = Command::new(program).arg("--version").output() else { continue };
        if String::from_utf8_lossy(&output.stdout).lines().next() == Some(wanted) {
            return Ok(program);
        }
    }
    bail!("`{wanted}` is not installed (looked for {})", candidates.join(", "))
}

fn flags() -> BTreeMap<String, String> {
    let joined = |(arch, own): (&str, &str)| (arch.to_owned(), format!("{own} {COMMON_FLAGS}"));
    ARCH_FLAGS.into_iter().map(joined).collect()
}

/// Builds every guest for every architecture; returns the binaries by `<arch>/<name>`.
fn build_all(
    dir: &Path,
    scratch: &Path,
    toolchain: &Toolchain,
) -> Result<BTreeMap<String, Vec<u8>>> {
    let mut built = BTreeMap::new();
    for name in guest_names(dir)? {
        for (arch, flags) in flags() {
            let out = scratch.join(&arch).join(&name);
            fs::create_dir_all(out.parent().context("the output has a directory")?)?;
            build(dir, &name, &arch, &flags, &out, toolchain)?;
            let contents = fs::read(&out)?;
            elf::check_layout(&contents).with_context(|| format!("{arch}/{name}"))?;
            let bytes = contents.len();
            ensure!(bytes <= SIZE_MAX_BYTES, "{arch}/{name} has {bytes} bytes: too large");
            built.insert(format!("{arch}/{name}"), contents);
        }
    }
    Ok(built)
}

/// Compiles and links one guest, from inside `guest-programs` so that no path gets into it.
fn build(
    dir: &Path,
    name: &str,
    arch: &str,
    flags: &str,
    out: &Path,
    toolchain: &Toolchain,
) -> Result<()> {
    let output = Command::new(toolchain.compiler)
        .current_dir(dir)
        .env_remove("CPATH")
        .env_remove("C_INCLUDE_PATH")
        .args(flags.split_whitespace())
        .arg(format!("--ld-path={}", toolchain.linker))
        .args(sources(dir, name)?)
        .args(["rt/window.c", "rt/rt.c", "rt/freestanding.c", &format!("rt/{arch}.S"), "-o"])
        .arg(out)
        .output()?;
    expect_success(&output, &format!("{name} for {arch}"))
}

/// Builds every guest on glibc, as a user would, to `out/<arch>/<name>`.
pub(crate) fn build_glibc(root: &Path, out: &Path) -> Result<()> {
    let dir = root.join("guest-programs");
    let out = std::path::absolute(out)?;
    for (arch, compiler) in GLIBC_COMPILERS {
        fs::create_dir_all(out.join(arch))?;
        for name in guest_names(&dir)? {
            let output = Command::new(compiler)
                .current_dir(&dir)
                .args(["-O2", "-static", "-Wall", "-Wextra", "-Werror", "-Irt"])
                .args(sources(&dir, &name)?)
                .args(["rt/window.c", "rt/rt.c", "rt/hosted.c", "-o"])
                .arg(out.join(arch).join(&name))
                .output()
                .with_context(|| format!("{compiler} does not run"))?;
            expect_success(&output, &format!("{name} for {arch} on glibc"))?;
        }
    }
    println!("guests: built on glibc to {}", out.display());
    Ok(())
}

fn expect_success(output: &Output, what: &str) -> Result<()> {
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{what} does not build:\n{said}");
    Ok(())
}

/// The C files of a guest, relative to `guest-programs`, in a fixed order.
fn sources(dir: &Path, name: &str) -> Result<BTreeSet<PathBuf>> {
    let mut sources = BTreeSet::new();
    for entry in fs::read_dir(dir.join(name))? {
        let path = PathBuf::from(name).join(entry?.file_name());
        if path.extension().is_some_and(|ext| ext == "c") {
            sources.insert(path);
        }
    }
    Ok(sources)
}

/// The directories that hold a `program.toml`, each checked to describe its guest.
fn guest_names(dir: &Path) -> Result<BTreeSet<String>> {
    let mut names = BTreeSet::new();
    for entry in fs::read_dir(dir)? {
        let entry = entry?;
        let Ok(text) = fs::read_to_string(entry.path().join("program.toml")) else { continue };
        let name = entry.file_name().to_string_lossy().into_owned();
        check_description(&name, &text).with_context(|| format!("{name}/program.toml"))?;
        names.insert(name);
    }
    ensure!(!names.is_empty(), "no guest in {}", dir.display());
    Ok(names)
}

/// Checks that a description has a name, a summary, a lesson, and arguments that say what they mean.
fn check_description(name: &str, text: &str) -> Result<()> {
    let table: toml::Table = text.parse()?;
    let string = |table: &toml::Table, key: &str| {
        let value = table.get(key).and_then(toml::Value::as_str).map(str::to_owned);
        value.with_context(|| format!("`{key}` is missing or no string"))
    };
    ensure!(string(&table, "name")? == name, "`name` is not the name of the directory");
    ensure!(!string(&table, "summary")?.contains('\n'), "`summary` is one line");
    string(&table, "lesson")?;
    for kind in ["argument", "environment"] {
        let Some(list) = table.get(kind) else { continue };
        for item in list.as_array().with_context(|| format!("`{kind}` is not a list"))? {
            let item =
                item.as_table().with_context(|| format!("`{kind}` is not a list of tables"))?;
            string(item, "name")?;
            string(item, "meaning")?;
        }
    }
    Ok(())
}

/// Reads `prebuilt/<arch>/<name>`; an absent directory holds nothing.
fn read_prebuilt(dir: &Path) -> Result<BTreeMap<String, Vec<u8>>> {
    let mut files = BTreeMap::new();
    for (arch, _) in ARCH_FLAGS {
        let Ok(entries) = fs::read_dir(dir.join(arch)) else { continue };
        for entry in entries {
            let entry = entry?;
            let name = entry.file_name();
            files.insert(format!("{arch}/{}", name.to_string_lossy()), fs::read(entry.path())?);
        }
    }
    Ok(files)
}

fn entries(files: &BTreeMap<String, Vec<u8>>) -> BTreeMap<String, Entry> {
    files.iter().map(|(file, contents)| (file.clone(), Entry::of(contents))).collect()
}

/// Fails with one line per file that is missing on one side or has other contents.
fn compare(
    left_name: &str,
    left: &BTreeMap<String, Entry>,
    right_name: &str,
    right: &BTreeMap<String, Entry>,
) -> Result<()> {
    let mut wrong = String::new();
    for file in left.keys().chain(right.keys()).collect::<BTreeSet<_>>() {
        match (left.get(file), right.get(file)) {
            (Some(l), Some(r)) if l == r => {}
            (Some(l), Some(r)) => {
                wrong += &format!(
                    "\n  {file}: {} ({} bytes) in {left_name}, {} ({} bytes) in {right_name}",
                    l.sha256, l.bytes, r.sha256, r.bytes
                );
            }
            (Some(_), None) => wrong += &format!("\n  {file}: not in {right_name}"),
            (None, _) => wrong += &format!("\n  {file}: not in {left_name}"),
        }
    }
    ensure!(wrong.is_empty(), "{left_name} and {right_name} differ:{wrong}");
    Ok(())
}

#[cfg(unix)]
fn make_executable(path: &Path) -> Result<()> {
    use std::os::unix::fs::PermissionsExt as _;
    Ok(fs::set_permissions(path, fs::Permissions::from_mode(0o755))?)
}

#[cfg(not(unix))]
fn make_executable(_: &Path) -> Result<()> {
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn files(list: &[(&str, &str)]) -> BTreeMap<String, Entry> {
        list.iter().map(|(file, text)| ((*file).to_owned(), Entry::of(text.as_bytes()))).collect()
    }

    #[test]
    fn a_changed_added_or_removed_binary_is_named() {
        let old = files(&[("a/same", "1"), ("a/changed", "1"), ("a/removed", "1")]);
        let new = files(&[("a/same", "1"), ("a/changed", "2"), ("a/added", "1")]);
        let error = compare("old", &old, "new", &new).expect_err("they differ").to_string();
        for part in ["a/changed: ", "a/removed: not in new", "a/added: not in old"] {
            assert!(error.contains(part), "{error}");
        }
        assert!(!error.contains("a/same"), "{error}");
        compare("old", &old, "old", &old).expect("equal to itself");
    }

    #[test]
    fn a_description_without_a_lesson_is_refused() {
        let good =
            "name = 'a'\nsummary = 's'\nlesson = 'l'\n[[argument]]\nname = 'n'\nmeaning = 'm'";
        check_description("a", good).expect("complete");
        check_description("b", good).expect_err("another name");
        check_description("a", "name = 'a'\nsummary = 's'").expect_err("no lesson");
        check_description("a", &good.replace("meaning", "means"))
            .expect_err("an unexplained argument");
    }

    #[test]
    fn every_architecture_has_flags() {
        for (arch, flags) in flags() {
            assert!(flags.contains("--target="), "{arch}: {flags}");
            assert!(flags.contains("-Wl,--build-id=none"), "{arch}: {flags}");
        }
    }
}
