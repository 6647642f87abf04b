//! `guest-programs/MANIFEST`: what was built, by what, with which flags. The text is TOML.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;

use anyhow::{Context, Result, bail};
use sha2::{Digest, Sha256};

/// What the prebuilt guests are and how they came to be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Manifest {
    /// First line of the compiler's `--version`.
    pub(crate) compiler: String,
    /// First line of the linker's `--version`.
    pub(crate) linker: String,
    /// Flags by architecture, as given to the compiler driver.
    pub(crate) flags: BTreeMap<String, String>,
    /// One entry per binary, by its path below `prebuilt/`.
    pub(crate) files: BTreeMap<String, Entry>,
}

/// One prebuilt binary.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Entry {
    pub(crate) bytes: usize,
    pub(crate) sha256: String,
}

impl Entry {
    pub(crate) fn of(contents: &[u8]) -> Self {
        let mut sha256 = String::new();
        for byte in Sha256::digest(contents) {
            // Writing to a `String` cannot fail.
            let _ = write!(sha256, "{byte:02x}");
        }
        Self { bytes: contents.len(), sha256 }
    }
}

impl Manifest {
    pub(crate) fn read(path: &Path) -> Result<Self> {
        let text = std::fs::read_to_string(path)
            .with_context(|| format!("{} cannot be read", path.display()))?;
        Self::parse(&text).with_context(|| format!("{} is not as expected", path.display()))
    }

    pub(crate) fn parse(text: &str) -> Result<Self> {
        let table: toml::Table = text.parse()?;
        let mut flags = BTreeMap::new();
        for (arch, value) in section(&table, "flags")? {
            flags.insert(arch.clone(), string(value, arch)?);
        }
        let mut files = BTreeMap::new();
        for (file, value) in section(&table, "files")? {
            let Some(entry) = value.as_table() else { bail!("files.{file} is not a table") };
            let bytes = entry.get("bytes").and_then(toml::Value::as_integer);
            let bytes = bytes.and_then(|n| usize::try_from(n).ok());
            let bytes = bytes.with_context(|| format!("files.{file} has no size in bytes"))?;
            files.insert(file.clone(), Entry { bytes, sha256: member(entry, "sha256")? });
        }
        let (compiler, linker) = (member(&table, "compiler")?, member(&table, "linker")?);
        Ok(Self { compiler, linker, flags, files })
    }

    pub(crate) fn to_text(&self) -> String {
        let mut text = String::from(
            "# The prebuilt guest programs. Written by `cargo run -p xtask -- guests --update`.\n",
        );
        text +=
            &format!("compiler = \"{}\"\nlinker = \"{}\"\n\n[flags]\n", self.compiler, self.linker);
        for (arch, flags) in &self.flags {
            text += &format!("{arch} = \"{flags}\"\n");
        }
        text += "\n[files]\n";
        for (file, Entry { bytes, sha256 }) in &self.files {
            text += &format!("\"{file}\" = {{ bytes = {bytes}, sha256 = \"{sha256}\" }}\n");
        }
        text
    }
}

fn section<'t>(table: &'t toml::Table, name: &str) -> Result<&'t toml::Table> {
    let section = table.get(name).and_then(toml::Value::as_table);
    section.with_context(|| format!("section [{name}] is missing"))
}

fn member(table: &toml::Table, name: &str) -> Result<String> {
    string(table.get(name).with_context(|| format!("`{name}` is missing"))?, name)
}

fn string(value: &toml::Value, name: &str) -> Result<String> {
    Ok(value.as_str().with_context(|| format!("`{name}` is not a string"))?.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read_back() {
        let manifest = Manifest {
            compiler: "cc 1".into(),
            linker: "ld 2".into(),
            flags: [("arm64".into(), "-O2 -Wl,-z,x".into())].into(),
            files: [("arm64/a".into(), Entry::of(b"abc"))].into(),
        };
        assert_eq!(Manifest::parse(&manifest.to_text()).expect("own text"), manifest);
    }

    #[test]
    fn hashes_are_sha256() {
        let expected = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
        assert_eq!(Entry::of(b"abc").sha256, expected);
    }

    #[test]
    fn a_missing_member_is_named() {
        let error = Manifest::parse("[flags]\n[files]\n").expect_err("no compiler");
        assert!(format!("{error:#}").contains("compiler"), "{error:#}");
    }
}
