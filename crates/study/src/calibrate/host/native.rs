//! The host: its kernel, its settings for large folios, and the guest run as a program of its own.

use super::Least;
use crate::{Guest, status};
use report::{Failure, WindowLine};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs, process};
use units::ArchId;

const THP: &str = "/sys/kernel/mm/transparent_hugepage";

/// How a program that can be timed here is run.
#[derive(Debug)]
pub(super) struct Native {
    pub(super) arch: ArchId,
    /// Of the processor.
    pub(super) model: String,
    /// Of the kernel.
    pub(super) release: String,
    /// The emulated kernel that is nearest.
    pub(super) kernel: &'static str,
    program: Executable,
}

/// A file that goes when it is dropped.
#[derive(Debug)]
struct Executable(PathBuf);

impl Drop for Executable {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}

fn unsupported(message: String) -> Failure {
    Failure { message, status: status::UNSUPPORTED }
}

impl Native {
    pub(super) fn find() -> Result<Native, Failure> {
        let arch = match (env::consts::OS, env::consts::ARCH) {
            ("linux", "x86_64") => ArchId::X86_64,
            ("linux", "aarch64") => ArchId::Arm64,
            (os, arch) => {
                return Err(unsupported(format!(
                    "the guests are programs for Linux on x86-64 and arm64 and cannot be timed on {os} on {arch}"
                )));
            }
        };
        let read = |path| fs::read_to_string(path).unwrap_or_default();
        let release = read("/proc/sys/kernel/osrelease").trim().to_owned();
        let cpus = read("/proc/cpuinfo");
        let model = cpus.lines().find_map(|l| l.strip_prefix("model name")?.split_once(':'));
        let model = model.map_or("processor of no name", |(_, name)| name.trim()).to_owned();
        let kernel = nearest(&release);
        Ok(Native { arch, model, release, kernel, program: executable(arch)? })
    }

    /// Whether memory can be paged out.
    pub(super) fn can_page_out(&self) -> Result<(), &'static str> {
        let swaps = fs::read_to_string("/proc/swaps").unwrap_or_default();
        if swaps.lines().count() < 2 { Err("the host has no swap") } else { Ok(()) }
    }

    /// The least CPU time of each window of a program of `probe`, in nanoseconds.
    pub(super) fn least(
        &self,
        program: &str,
        mib: &str,
        folio_kb: u64,
        repeats: usize,
    ) -> Result<Least, Failure> {
        let mut least = Least::new();
        for _ in 0..repeats {
            for line in self.run(program, mib, folio_kb)? {
                #[expect(clippy::cast_precision_loss, reason = "a time has a few digits")]
                let ns = if line.cpu_ns > 0 { line.cpu_ns } else { line.ns } as f64;
                least.entry(line.phase).and_modify(|t: &mut f64| *t = t.min(ns)).or_insert(ns);
            }
        }
        Ok(least)
    }

    fn run(&self, program: &str, mib: &str, folio_kb: u64) -> Result<Vec<WindowLine>, Failure> {
        let (key, advice) = ("ADVISE", advice(folio_kb));
        let advice = advice.trim_start_matches("ADVISE=");
        let output = Command::new(&self.program.0)
            .args([program, mib])
            .env_clear()
            .env(key, advice)
            .env("EV_OFF", "1")
            .output();
        let output = output.map_err(|error| {
            unsupported(format!(
                "cannot run the guest @probe natively from {}: {error}; set TMPDIR to a directory that allows programs",
                self.program.0.display()
            ))
        })?;
        let text = String::from_utf8_lossy(&output.stdout);
        if !output.status.success() {
            let said = text.lines().last().unwrap_or("nothing").to_owned();
            return Err(unsupported(format!(
                "the guest @probe {program} {mib} ended natively with {}, saying {said}",
                output.status
            )));
        }
        Ok(WindowLine::parse_all(&text))
    }
}

/// What the guest is told about the folios that are wanted.
pub(super) fn advice(folio_kb: u64) -> String {
    let size = if folio_kb == 4 { "small" } else { "large" };
    format!("ADVISE={size}")
}

/// The preset whose page-table work is nearest to that of a kernel release.
fn nearest(release: &str) -> &'static str {
    let mut numbers = release.split(['.', '-']).map_while(|n| n.parse::<u32>().ok());
    let version = (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0));
    match version {
        v if v >= (6, 15) => "v7.3",
        v if v >= (6, 8) => "v6.12",
        v if v >= (6, 5) => "v6.5",
        _ => "v6.1",
    }
}

fn executable(arch: ArchId) -> Result<Executable, Failure> {
    let elf = Guest::find("probe").and_then(|guest| guest.elf(arch));
    let elf =
        elf.ok_or_else(|| unsupported(format!("the guest @probe has no build for {arch}")))?;
    let path = env::temp_dir().join(format!("ptescope-probe-{}", process::id()));
    let file = Executable(path);
    write_executable(&file.0, elf).map_err(|error| Failure {
        message: format!(
            "cannot write {}: {error}; set TMPDIR to a directory that can be written",
            file.0.display()
        ),
        status: status::NO_OUTPUT,
    })?;
    Ok(file)
}

#[cfg(unix)]
fn write_executable(path: &Path, elf: &[u8]) -> std::io::Result<()> {
    use std::io::Write as _;
    use std::os::unix::fs::OpenOptionsExt as _;
    let mut options = fs::OpenOptions::new();
    options.write(true).create_new(true).mode(0o700).open(path)?.write_all(elf)
}

#[cfg(not(unix))]
fn write_executable(path: &Path, elf: &[u8]) -> std::io::Result<()> {
    fs::write(path, elf)
}

/// The host's settings for large folios, as they were; put back when this is dropped.
#[derive(Debug, Default)]
pub(super) struct Knobs {
    changed: Vec<(PathBuf, String)>,
}

impl Drop for Knobs {
    fn drop(&mut self) {
        for (path, was) in self.changed.drain(..).rev() {
            let _ = fs::write(path, was);
        }
    }
}

impl Knobs {
    /// Sees to it that memory that is advised so comes in folios of `folio_kb`, or says why it
    /// does not.
    pub(super) fn allow(folio_kb: u64, set_thp: bool) -> Result<Knobs, String> {
        let mut knobs = Knobs::default();
        if folio_kb == 4 {
            return Ok(knobs);
        }
        let own = knob(folio_kb);
        if !own.exists() {
            return Err("this kernel does not know them".to_owned());
        }
        let is = |kb: u64| effective(&selected(&knob(kb)), &selected(&global()));
        // The largest size that is allowed wins.
        let larger = [2048].into_iter().filter(|&kb| kb > folio_kb && is(kb));
        let larger: Vec<u64> = larger.collect();
        if is(folio_kb) && larger.is_empty() {
            return Ok(knobs);
        }
        if !set_thp {
            return Err(format!(
                "{} does not allow them alone; --set-thp lets this command change that while it runs",
                own.display()
            ));
        }
        for (path, value) in
            larger.into_iter().map(|kb| (knob(kb), "never")).chain([(own, "madvise")])
        {
            let was = selected(&path);
            fs::write(&path, value).map_err(|error| format!("{}: {error}", path.display()))?;
            knobs.changed.push((path, was));
        }
        Ok(knobs)
    }
}

fn global() -> PathBuf {
    Path::new(THP).join("enabled")
}

fn knob(folio_kb: u64) -> PathBuf {
    Path::new(THP).join(format!("hugepages-{folio_kb}kB/enabled"))
}

/// The word in brackets.
fn selected(path: &Path) -> String {
    let text = fs::read_to_string(path).unwrap_or_default();
    let word = text.split_once('[').and_then(|(_, rest)| rest.split_once(']'));
    word.map_or_else(String::new, |(word, _)| word.to_owned())
}

/// Whether advised memory may use a size whose knob says `own` while the global one says `global`.
fn effective(own: &str, global: &str) -> bool {
    let allows = |word: &str| matches!(word, "always" | "madvise");
    allows(own) || (own == "inherit" && allows(global))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearest_kernel_is_the_last_whose_changes_are_in() {
        assert_eq!(nearest("6.18.44-fc-v595"), "v7.3");
        assert_eq!(nearest("6.12.117"), "v6.12");
        assert_eq!(nearest("6.6.1-arch1"), "v6.5");
        assert_eq!(nearest("5.15"), "v6.1");
        assert_eq!(nearest("something"), "v6.1");
    }

    #[test]
    fn a_size_is_allowed_by_its_own_knob_or_the_one_it_inherits() {
        assert!(effective("inherit", "madvise") && effective("always", "never"));
        assert!(!effective("inherit", "never") && !effective("never", "always"));
        assert!(!effective("", "always"));
    }

    #[test]
    fn no_setting_is_changed_without_leave() {
        let knobs = Knobs::allow(4, false).expect("needs no setting");
        assert!(knobs.changed.is_empty());
        if let Ok(knobs) = Knobs::allow(64, false) {
            assert!(knobs.changed.is_empty());
        }
    }
}
