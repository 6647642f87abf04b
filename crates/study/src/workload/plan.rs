//! How a published result is predicted: which runs stand for it.

use super::{Measured, Part, RunSpec, only_folios_of};
use crate::{Observation, machine_arch};
use units::ArchId;

/// A prediction, or why there is none.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Plan {
    Predicted { before: Box<Measured>, after: Box<Measured>, how: String },
    NotModelled(&'static str),
}

/// The published benchmark of mprotect, and how much smaller it is run here: what three rounds take more than one is
/// two rounds, and everything is proportional to the size.
const MPROTECT_MIB: i64 = 64;
const MPROTECT_ROUNDS: [i64; 2] = [1, 3];
const MPROTECT_SCALE: i64 = 1024 / MPROTECT_MIB;
/// The rounds of the published program after the first.
const MPROTECT_MORE: i64 = 39;
/// Moves of the published mremap benchmark, and those that are run here.
const MREMAP_MOVES: i64 = 10_000;
const MREMAP_RUN: i64 = 100;

const MPROTECT_UNBATCHED: &str = "kernel.mprotect_batched=off";
const MREMAP_UNBATCHED: &str = "kernel.mremap_batched=off";
const GUP: Part = Part::Op("ioctl", "__get_user_pages");

/// What does not differ between the runs of a row.
struct Subject {
    arch: ArchId,
    machine: Option<String>,
    folio_kb: u64,
}

impl Subject {
    /// A machine that was not named is the default of the architecture, x86-64 if that was not
    /// named either: its counts are those of Linux there, its prices of no machine in particular.
    fn of(row: &Observation) -> Option<Subject> {
        let arch = match (&row.machine, &row.arch) {
            (Some(machine), _) => machine_arch(machine).ok()?,
            (None, Some(arch)) => ArchId::parse(arch)?,
            (None, None) => ArchId::X86_64,
        };
        Some(Subject { arch, machine: row.machine.clone(), folio_kb: row.folio_kb.unwrap_or(4) })
    }

    fn run(&self, guest: &'static str, args: &[String], kernel: &str) -> RunSpec {
        RunSpec {
            guest,
            args: args.to_vec(),
            env: Vec::new(),
            arch: self.arch,
            machine: self.machine.clone(),
            cpus: 1,
            kernel: kernel.to_owned(),
            set: Vec::new(),
            thp: only_folios_of(self.folio_kb),
        }
    }
}

const KERNEL: &str = machine::KernelConfig::DEFAULT;
/// The kernel before the patches of 2022 and 2023.
const OLD_KERNEL: &str = "v6.1";

impl Plan {
    /// The plan for a row; by its workload.
    pub(crate) fn of(row: &Observation) -> Plan {
        let workload = row.workload.as_str();
        let is = |words: &str| workload.contains(words);
        let Some(subject) = Subject::of(row) else {
            return Plan::NotModelled("there is no preset of its machine");
        };
        if is("ksm_tests") {
            return ksm(row, &subject);
        }
        if is("gup_test") {
            return gup(row, &subject);
        }
        if is("whole page tables") {
            return mremap_pmd(&subject);
        }
        if is("mremap") {
            return mremap(&subject);
        }
        if is("mprotect") {
            return mprotect(row, &subject);
        }
        match (row.patch.as_deref(), workload.strip_prefix("pageout ")) {
            (Some(patch), Some(mib)) => pageout(&subject, patch, mib),
            _ => Plan::NotModelled("no built-in guest does this"),
        }
    }
}

fn predicted(before: Measured, after: Measured, how: String) -> Plan {
    Plan::Predicted { before: Box::new(before), after: Box::new(after), how }
}

fn words(args: &[&str]) -> Vec<String> {
    args.iter().map(|&arg| arg.to_owned()).collect()
}

fn pageout(subject: &Subject, patch: &str, mib: &str) -> Plan {
    let patched = format!("{KERNEL}+{patch}");
    let measured = |kernel| {
        let run = subject.run("@pageout", &words(&[mib]), kernel);
        Measured::one(Part::Entry(crate::pageout::SYSCALL), run)
    };
    let how = format!("@pageout {mib} on {KERNEL} and {patched}, as published");
    predicted(measured(KERNEL), measured(&patched), how)
}

/// One iteration: all are the same.
fn gup(row: &Observation, subject: &Subject) -> Plan {
    let Some(patch) = row.patch.as_deref() else {
        return Plan::NotModelled("no patch that can be switched here");
    };
    let command = row.workload.split("gup_test").nth(1).unwrap_or_default();
    let mut args: Vec<&str> = command.split_whitespace().collect();
    if let Some(at) = args.iter().position(|&arg| arg == "-r") {
        args[at + 1] = "1";
    }
    let kernel = if patch == "gup-pte-batch" { KERNEL } else { OLD_KERNEL };
    let patched = format!("{kernel}+{patch}");
    let measured =
        |kernel| Measured::one(GUP.clone(), subject.run("@gup_test", &words(&args), kernel));
    let machine = if subject.machine.is_none() { ", on an x86-64 machine of no name" } else { "" };
    let how = format!("@gup_test {} on {kernel} and {patched}{machine}", args.join(" "));
    predicted(measured(kernel), measured(&patched), how)
}

/// The call that unmerges; the published speed is of it. A second callback is compared with one.
fn ksm(row: &Observation, subject: &Subject) -> Plan {
    const MIB: i64 = 256;
    let kernels = match row.patch.as_deref() {
        Some("ksm-walk-vma") => ["v6.5-ksm-walk-vma", "v6.5"],
        Some("ksm-walk-vma-pud") => ["v6.5", "v6.5+ksm-walk-vma-pud"],
        _ => return Plan::NotModelled("no patch that can be switched here"),
    };
    #[expect(clippy::cast_possible_truncation, reason = "a size in MiB")]
    let times = row.mib.unwrap_or(0.0) as i64 / MIB;
    let [before, after] = kernels.map(|kernel| {
        // ksmd merges on the other CPU.
        let args = words(&["-D", "-s", &MIB.to_string()]);
        let run = RunSpec { cpus: 2, ..subject.run("@ksm", &args, kernel) };
        Measured { part: Part::Entry("madvise(MADV_UNMERGEABLE)"), terms: vec![(times, run)] }
    });
    let [old, new] = kernels;
    predicted(
        before,
        after,
        format!("@ksm -D -s {MIB}, the call alone, {times} times, on {old} and {new}"),
    )
}

/// The published program from its start to its end.
fn mprotect(row: &Observation, subject: &Subject) -> Plan {
    let split = if row.folio_kb == Some(2048) { "1" } else { "0" };
    let measured = |folio_kb: u64, set: &[&'static str]| {
        let run = |rounds: i64| {
            let args = [MPROTECT_MIB.to_string(), rounds.to_string(), split.to_owned()];
            let subject = Subject { folio_kb, machine: subject.machine.clone(), ..*subject };
            RunSpec { set: set.to_vec(), ..subject.run("@mprotect", &args, KERNEL) }
        };
        let [first, last] = MPROTECT_ROUNDS;
        let more = MPROTECT_SCALE * MPROTECT_MORE / (last - first);
        Measured {
            part: Part::Whole,
            terms: vec![(MPROTECT_SCALE - more, run(first)), (more, run(last))],
        }
    };
    let how = format!(
        "@mprotect {MPROTECT_MIB}, start and 40 rounds, {MPROTECT_SCALE} times for 1 GiB, on {KERNEL} with and without \
         {MPROTECT_UNBATCHED}"
    );
    match row.folio_kb {
        Some(kb) => predicted(measured(kb, &[MPROTECT_UNBATCHED]), measured(kb, &[]), how),
        None => predicted(
            measured(64, &[MPROTECT_UNBATCHED]),
            measured(4, &[MPROTECT_UNBATCHED]),
            format!("@mprotect {MPROTECT_MIB} likewise, always with {MPROTECT_UNBATCHED}"),
        ),
    }
}

/// A round maps, fills, moves and unmaps, as the published program.
fn mremap(subject: &Subject) -> Plan {
    let measured = |set: &[&'static str]| {
        let run = |rounds: i64| {
            let args = words(&["1", &rounds.to_string()]);
            RunSpec { set: set.to_vec(), ..subject.run("@remap-cycle", &args, KERNEL) }
        };
        let times = MREMAP_MOVES / MREMAP_RUN;
        Measured { part: Part::Whole, terms: vec![(-times, run(1)), (times, run(1 + MREMAP_RUN))] }
    };
    let how = format!(
        "@remap-cycle 1 {MREMAP_RUN}, whole rounds, {} times, on {KERNEL} with and without {MREMAP_UNBATCHED}",
        MREMAP_MOVES / MREMAP_RUN
    );
    predicted(measured(&[MREMAP_UNBATCHED]), measured(&[]), how)
}

/// A destination that is one page off is moved to entry by entry, an aligned one by whole page tables; there and back.
fn mremap_pmd(subject: &Subject) -> Plan {
    const MIB: i64 = 64;
    let times = 1024 / MIB / 2;
    let measured = |offset| {
        let run = subject.run("@mremap", &words(&[&MIB.to_string(), offset]), OLD_KERNEL);
        Measured { part: Part::Entry("mremap"), terms: vec![(times, run)] }
    };
    let how = format!(
        "@mremap {MIB}, {times} times for 1 GiB, to a place one page off and to an aligned one, on {OLD_KERNEL}"
    );
    predicted(measured("1"), measured("0"), how)
}
