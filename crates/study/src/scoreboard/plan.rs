//! How a published result is predicted.

use crate::{Observation, machine_arch};
use std::fmt;
use units::ArchId;

/// A run of a built-in guest; what it counted in one system call is what matters.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct RunSpec {
    pub(super) guest: &'static str,
    pub(super) args: Vec<u64>,
    pub(super) arch: ArchId,
    pub(super) machine: String,
    pub(super) kernel: String,
    pub(super) set: Vec<&'static str>,
    pub(super) folio_kb: u64,
    /// The system call.
    pub(super) entry: &'static str,
}

impl fmt::Display for RunSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} on {} with {} kB", self.guest, self.machine, self.folio_kb)
    }
}

/// What a published time is predicted from: the counts of `run`, without those of `start`, taken
/// `scale` times.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Measured {
    pub(super) run: RunSpec,
    pub(super) start: Option<RunSpec>,
    pub(super) scale: u64,
}

impl Measured {
    pub(super) fn runs(&self) -> impl Iterator<Item = &RunSpec> {
        [&self.run].into_iter().chain(&self.start)
    }
}

/// A prediction, or why there is none.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Plan {
    Predicted { before: Box<Measured>, after: Box<Measured>, how: String },
    NotModelled(&'static str),
}

/// The published benchmark of mprotect, and how much smaller it is run here: a round is the difference of
/// 3 rounds and 1, and everything in it is proportional to the size.
const MPROTECT_MIB: u64 = 64;
const MPROTECT_ROUNDS: [u64; 2] = [1, 3];
const MPROTECT_SCALE: u64 =
    (1024 / MPROTECT_MIB) * (40 / (MPROTECT_ROUNDS[1] - MPROTECT_ROUNDS[0]));

const UNBATCHED: &str = "kernel.mprotect_batched=off";

impl Plan {
    /// The plan for a row; by its workload.
    pub(super) fn of(row: &Observation) -> Plan {
        let workload = row.workload.as_str();
        let is = |words: &str| workload.contains(words);
        if is("gup_test") {
            return Plan::NotModelled(
                "the guest gup_test exists, but no run of it is set up here, and the machine is not known",
            );
        }
        if is("ksm_tests") {
            return Plan::NotModelled(
                "the study ksm compares the forms, but no run of it is set up here, and no price list stands for the machine",
            );
        }
        if is("mremap") || row.id.starts_with("mremap") {
            return Plan::NotModelled(
                "mremap is not modelled: the system call is answered with ENOSYS",
            );
        }
        let Some(machine) = row.machine.as_deref() else {
            return Plan::NotModelled("it is not known which machine it was");
        };
        let Ok(arch) = machine_arch(machine) else {
            return Plan::NotModelled("there is no preset of its machine");
        };
        if is("mprotect") {
            return mprotect(row, arch, machine);
        }
        match (row.patch.as_deref(), workload.strip_prefix("pageout ").map(str::parse)) {
            (Some(patch), Some(Ok(mib))) => pageout(row, arch, machine, patch, mib),
            _ => Plan::NotModelled("no built-in guest does this"),
        }
    }
}

fn pageout(row: &Observation, arch: ArchId, machine: &str, patch: &str, mib: u64) -> Plan {
    let spec = |kernel: String| RunSpec {
        guest: "@pageout",
        args: vec![mib],
        arch,
        machine: machine.to_owned(),
        kernel,
        set: Vec::new(),
        folio_kb: row.folio_kb.unwrap_or(4),
        entry: crate::pageout::SYSCALL,
    };
    let measured = |kernel| Box::new(Measured { run: spec(kernel), start: None, scale: 1 });
    let vanilla = machine::KernelConfig::DEFAULT;
    let patched = format!("{vanilla}+{patch}");
    let how = format!("@pageout {mib} on {vanilla} and {patched}, as published");
    Plan::Predicted { before: measured(vanilla.to_owned()), after: measured(patched), how }
}

fn mprotect(row: &Observation, arch: ArchId, machine: &str) -> Plan {
    let split = row.folio_kb == Some(2048);
    let spec = |rounds: u64, folio_kb: u64, set: &[&'static str]| RunSpec {
        guest: "@mprotect",
        args: vec![MPROTECT_MIB, rounds, u64::from(split)],
        arch,
        machine: machine.to_owned(),
        kernel: machine::KernelConfig::DEFAULT.to_owned(),
        set: set.to_vec(),
        folio_kb,
        entry: "mprotect",
    };
    let [first, last] = MPROTECT_ROUNDS;
    let measured = |folio_kb: u64, set: &[&'static str]| {
        let (run, start) = (spec(last, folio_kb, set), Some(spec(first, folio_kb, set)));
        Box::new(Measured { run, start, scale: MPROTECT_SCALE })
    };
    let how = format!(
        "@mprotect {MPROTECT_MIB}: rounds 2 and 3, times {MPROTECT_SCALE} for 40 rounds over 1 GiB, on {} with and \
         without {UNBATCHED}",
        machine::KernelConfig::DEFAULT
    );
    match row.folio_kb {
        Some(kb) => {
            Plan::Predicted { before: measured(kb, &[UNBATCHED]), after: measured(kb, &[]), how }
        }
        None => Plan::Predicted {
            before: measured(64, &[UNBATCHED]),
            after: measured(4, &[UNBATCHED]),
            how: format!("@mprotect {MPROTECT_MIB} likewise, always with {UNBATCHED}"),
        },
    }
}
