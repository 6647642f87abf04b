//! What the same programs said on a real Linux 6.12.

use std::fs::File;
use std::path::Path;

use anyhow::{Context, Result};
use flate2::read::GzDecoder;
use serde_json::Value;

use super::Arch;

/// One program with one set of arguments, on a system in one state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Reference {
    pub(crate) arch: Arch,
    pub(crate) program: String,
    pub(crate) args: Vec<String>,
    pub(crate) nr_hugepages: u64,
    /// `vm.overcommit_memory`, if it was changed.
    pub(crate) overcommit: Option<u64>,
    /// Bytes of `kernel.shmmax`, if it was changed.
    pub(crate) shmmax: Option<u64>,
    /// It ran as the user "nobody".
    pub(crate) nobody: bool,
    /// One of the 180 calls of gup_test that `run_vmtests.sh -a` makes.
    pub(crate) matrix: bool,
    /// Exit status, or 128 + signal.
    pub(crate) status: u64,
    pub(crate) lines: Vec<String>,
}

impl Reference {
    /// What the run is called in tables: program, arguments, and what was special of the system.
    pub(crate) fn name(&self) -> String {
        let mut name = self.program.clone();
        for arg in &self.args {
            name += " ";
            name += arg;
        }
        if self.nr_hugepages > 0 {
            name += &format!(" ({} huge pages)", self.nr_hugepages);
        }
        if self.nobody {
            name += " (as nobody)";
        }
        name
    }
}

/// Reads `selftests-6.12.json.gz`.
pub(crate) fn read(path: &Path) -> Result<Vec<Reference>> {
    let file = File::open(path).with_context(|| format!("{} is missing", path.display()))?;
    let root: Value = serde_json::from_reader(GzDecoder::new(file))?;
    let mut all = Vec::new();
    for arch in Arch::ALL {
        let runs = root["runs"][arch.name()].as_array();
        for run in runs.with_context(|| format!("no runs of {}", arch.name()))? {
            all.push(parse(arch, run).with_context(|| format!("no run: {run}"))?);
        }
    }
    Ok(all)
}

fn parse(arch: Arch, run: &Value) -> Option<Reference> {
    // The reference has this one number taken for one that varies.
    let line = |line: &Value| Some(line.as_str()?.replace(" at NMB+256KB", " at 1MB+256KB"));
    let lines = run["lines"].as_array()?.iter().map(line);
    Some(Reference {
        arch,
        program: run["prog"].as_str()?.to_owned(),
        args: run["args"].as_str()?.split_whitespace().map(str::to_owned).collect(),
        nr_hugepages: run["nr_hugepages"].as_u64()?,
        overcommit: run["overcommit_memory"].as_str().and_then(|n| n.parse().ok()),
        shmmax: run["shmmax"].as_u64(),
        nobody: run["user"] == "nobody",
        matrix: run["group"] == "gup_matrix",
        status: match number(&run["signal"]) {
            Some(signal) => 128 + signal,
            None => number(&run["exit"])?,
        },
        lines: lines.collect::<Option<_>>()?,
    })
}

fn number(value: &Value) -> Option<u64> {
    value.as_u64().or_else(|| value.as_str()?.parse().ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_reference_holds_the_runs_of_both_architectures() {
        let path = Path::new(env!("CARGO_MANIFEST_DIR"))
            .join("../../tests/groundtruth/selftests-6.12.json.gz");
        let all = read(&path).expect("readable");
        let find = |arch, name: &str| {
            all.iter().find(|r| r.arch == arch && r.name() == name).expect("a known run")
        };
        let cow = find(Arch::X86_64, "cow");
        assert_eq!(cow.lines.iter().filter(|line| line.starts_with("ok ")).count(), 743);
        assert_eq!(find(Arch::Arm64, "seal_elf").status, 128 + 11);
        assert!(find(Arch::Arm64, "on-fault-limit (as nobody)").nobody);
        let matrix = |arch| all.iter().filter(|r| r.matrix && r.arch == arch).count();
        assert_eq!((matrix(Arch::X86_64), matrix(Arch::Arm64)), (180, 180));
    }
}
