//! Counts measured on real Linux kernels, as stored in `tests/groundtruth/`.

use flate2::read::GzDecoder;
use serde::Deserialize;
use std::collections::BTreeMap;
use units::ArchId;

/// Counts by scope and event name.
pub type Counts = BTreeMap<(String, String), u64>;

/// One phase of one run on a real kernel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    /// What was run.
    pub run: Run,
    /// Which repeat.
    pub rep: u64,
    /// The part of it that was counted.
    pub phase: String,
    /// Counts of the program itself (not of other tasks or interrupts).
    pub counts: Counts,
}

/// A program on a kernel on a machine: yields one record per phase.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Run {
    /// The kernel that was measured.
    pub kernel: Kernel,
    /// The guest architecture.
    pub arch: ArchName,
    /// QEMU's CPU model: `max` or `cortex-a72`.
    pub cpu: String,
    /// `vanilla`, `B_batched_unmap`, …
    pub variant: String,
    /// Sub-program of the probe.
    pub program: String,
    /// Its arguments.
    pub args: Vec<String>,
    /// The folio size that was enabled, in KiB; 4 for none.
    pub folio_kib: u64,
    /// Where the region of gup_test started in its 2 MiB block.
    pub addr_mod_2m: u64,
    /// Sibling threads that did nothing but run.
    pub spinners: u64,
}

impl std::fmt::Display for Run {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Run { kernel, arch, cpu, variant, program, args, folio_kib, spinners, .. } = self;
        let (kernel, args) = (kernel.preset(), args.join(" "));
        write!(f, "{kernel} {arch:?} {cpu} {variant} {program} {args} ({folio_kib}K")?;
        if *spinners > 0 {
            write!(f, ", {spinners} spinners")?;
        }
        write!(f, ")")
    }
}

/// [`ArchId`] with an order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ArchName {
    /// arm64.
    Arm64,
    /// x86-64.
    X86,
}

impl From<ArchName> for ArchId {
    fn from(name: ArchName) -> ArchId {
        match name {
            ArchName::Arm64 => ArchId::Arm64,
            ArchName::X86 => ArchId::X86_64,
        }
    }
}

/// A kernel that was measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kernel {
    /// Debian's 6.12.117.
    V6_12,
    /// Debian's 7.3-rc7.
    V7_3,
}

impl Kernel {
    /// Both.
    pub const ALL: [Kernel; 2] = [Kernel::V6_12, Kernel::V7_3];

    fn compressed(self) -> &'static [u8] {
        match self {
            Kernel::V6_12 => include_bytes!("../groundtruth/linux-6.12.json.gz"),
            Kernel::V7_3 => include_bytes!("../groundtruth/linux-7.3-rc7.json.gz"),
        }
    }

    /// The preset that models it.
    pub fn preset(self) -> &'static str {
        match self {
            Kernel::V6_12 => "v6.12",
            Kernel::V7_3 => "v7.3",
        }
    }
}

#[derive(Deserialize)]
struct RawFile {
    records: Vec<RawRecord>,
}

/// PHP-style maps: an empty one was written as `[]`.
#[derive(Deserialize)]
#[serde(untagged)]
enum RawCounts {
    Map(BTreeMap<String, u64>),
    Empty(#[expect(dead_code, reason = "only its shape matters")] Vec<u64>),
}

#[derive(Deserialize)]
struct RawRecord {
    #[serde(rename = "addr_mod_2M", default)]
    addr_mod_2m: u64,
    arch: String,
    args: Vec<String>,
    counters: RawCounts,
    folio: String,
    phase: String,
    program: String,
    qemu_cpu: String,
    rep: u64,
    spinner_threads: u64,
    variant: String,
}

/// The phase in which ksmd merges a whole region.
pub const KSM_MERGE: &str = "ksm_merge_2scans";

/// Whether a count of ksmd is of merging pages, not of scanning on.
pub fn is_merging(scope: &str, event: &str) -> bool {
    scope != "none" && event != "fn_cmp_and_merge_page"
}

fn parse(kernel: Kernel, raw: RawRecord) -> Record {
    let counters = match raw.counters {
        RawCounts::Map(map) => map,
        RawCounts::Empty(_) => BTreeMap::new(),
    };
    // What merges is ksmd, and how far it gets beyond two scans depends on when it is noticed.
    let by_ksmd = raw.phase == KSM_MERGE;
    let bank_of_phase = if by_ksmd { "other" } else { "task" };
    let counts = counters
        .into_iter()
        .filter_map(|(key, n)| {
            let mut parts = key.splitn(3, '.');
            let (bank, scope, event) = (parts.next()?, parts.next()?, parts.next()?);
            let kept = !by_ksmd || is_merging(scope, event);
            (bank == bank_of_phase && kept).then(|| ((scope.to_owned(), event.to_owned()), n))
        })
        .collect();
    let kib = raw.folio.trim_end_matches('K').parse().unwrap_or(4);
    let run = Run {
        kernel,
        arch: if raw.arch == "arm64" { ArchName::Arm64 } else { ArchName::X86 },
        cpu: raw.qemu_cpu,
        variant: raw.variant,
        program: raw.program,
        args: raw.args,
        folio_kib: kib,
        addr_mod_2m: raw.addr_mod_2m,
        spinners: raw.spinner_threads,
    };
    Record { run, rep: raw.rep, phase: raw.phase, counts }
}

/// Every record of one kernel, counts of the `idle` record subtracted.
///
/// # Panics
/// If the stored file is damaged.
pub fn load(kernel: Kernel) -> Vec<Record> {
    let file: RawFile = serde_json::from_reader(GzDecoder::new(kernel.compressed()))
        .expect("the stored ground truth parses");
    let all: Vec<Record> = file.records.into_iter().map(|r| parse(kernel, r)).collect();
    let idle: BTreeMap<(ArchName, String, String), Counts> = all
        .iter()
        .filter(|r| r.run.program == "idle" && r.phase == "idle" && r.rep == 0)
        .map(|r| ((r.run.arch, r.run.cpu.clone(), r.run.variant.clone()), r.counts.clone()))
        .collect();
    all.into_iter()
        .map(|mut record| {
            let key = (record.run.arch, record.run.cpu.clone(), record.run.variant.clone());
            for (event, n) in idle.get(&key).into_iter().flatten() {
                if let Some(have) = record.counts.get_mut(event) {
                    *have = have.saturating_sub(*n);
                }
            }
            record.counts.retain(|_, n| *n > 0);
            record
        })
        .collect()
}

/// The records of gup_test that must be equal.
pub fn gup_must_be_equal(record: &Record) -> bool {
    const VARIANTS: [&str; 2] = ["vanilla", "A_batched_gup"];
    record.run.program == "gup_test" && VARIANTS.contains(&record.run.variant.as_str())
}

/// The records of ksm_tests that must be equal.
pub fn ksm_must_be_equal(record: &Record) -> bool {
    const VARIANTS: [&str; 2] = ["vanilla", "B_batched_unmap"];
    record.run.program == "ksm_tests" && VARIANTS.contains(&record.run.variant.as_str())
}

/// The records of programs that the probe has, on kernels that are modelled.
pub fn must_be_equal(record: &Record) -> bool {
    const PROGRAMS: [&str; 12] = [
        "pageout",
        "munmap",
        "dontneed",
        "madvfree",
        "fault",
        "exit",
        "mprotect",
        "mremap",
        "partial",
        "forkreuse",
        "swapped",
        "fork",
    ];
    const VARIANTS: [&str; 3] = ["vanilla", "B_batched_unmap", "B_batched_unmap_noread"];
    PROGRAMS.contains(&record.run.program.as_str())
        && VARIANTS.contains(&record.run.variant.as_str())
}
