//! `ptescope calibrate --work`: instructions per event from instructions per phase.

use super::median;
use crate::bench::{broken_list, no_fit};
use crate::status;
use crate::workload::{Measured, Part, Results, RunSpec, only_folios_of};
use cost::{Datum, Posterior, WorkTable, fit};
use events::Counters;
use report::{Align, Failure, Table};
use serde::Deserialize;
use std::fmt::Write as _;
use std::num::NonZeroUsize;
use units::ArchId;

/// How far a sum of work per event may be off what was executed, beyond counting: loops whose length no event tells.
const ERROR: f64 = 0.03;
const SCHEMA: &str = "ptescope.executed/1";

const COMMENT: &str = "\
# Instructions that the kernel executes for an event, fitted by `ptescope calibrate --work data/executed-linux-6.12.toml`:
# whole phases of Linux 6.12 were counted under an emulator, and this table shares their sum out among the events. A
# figure is good for sums over whole operations, not for one function: neighbours that always come together
# share their work as their priors have it. `prior_*` is what was believed before (0: no such event there), good to a factor of
# two. An event of a newer kernel that 6.12 does not have keeps its prior.
";

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    schema: String,
    executed: Vec<Executed>,
}

/// Instructions of one phase of a program.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Executed {
    arch: String,
    kernel: String,
    guest: String,
    args: Vec<String>,
    folio_kb: u64,
    phase: String,
    instructions: u64,
}

/// The work table that was fitted.
#[derive(Debug)]
pub struct CalibratedWork {
    /// The table as a file.
    pub toml: String,
    /// How well it adds up to what was executed.
    pub text: String,
    /// Relative errors over all phases, without sign, in rising order.
    pub errors: Vec<f64>,
}

struct Phase {
    executed: Executed,
    arch: ArchId,
    measured: Measured,
}

/// Fits the work per event to the phases in `text`, which is like `data/executed-linux-6.12.toml`.
///
/// # Errors
/// 65 if `text` is no such file, 2 if it names what does not exist; and as [`crate::run`].
pub fn calibrate_work(
    text: &str,
    jobs: NonZeroUsize,
    progress: &mut dyn FnMut(&str),
) -> Result<CalibratedWork, Failure> {
    let phases = parse(text)?;
    let specs = phases.iter().flat_map(|p| p.measured.runs().cloned()).collect();
    let results = Results::of(specs, jobs, progress)?;
    let counts = phases.iter().map(|p| results.counted(&p.measured).map(|c| c.counts));
    let counts = counts.collect::<Result<Vec<_>, _>>()?;
    let mut table = WorkTable::builtin().map_err(|e| broken_list(&e))?;
    let mut report = String::new();
    let mut all = Vec::new();
    for arch in ArchId::ALL {
        let here: Vec<(&Phase, &Counters)> =
            phases.iter().zip(&counts).filter(|(p, _)| p.arch == arch).collect();
        let found = fit_work(&table, arch, &here)?;
        table.set(arch, found.values());
        let (text, errors) = compare(&table, arch, &here, &found);
        report += &text;
        all.extend(errors);
    }
    all.sort_by(f64::total_cmp);
    Ok(CalibratedWork { toml: table.to_toml(COMMENT), text: report, errors: all })
}

fn parse(text: &str) -> Result<Vec<Phase>, Failure> {
    let wrong = |message: String| Failure { message, status: status::NO_ELF };
    let file: File = toml::from_str(text).map_err(|e| {
        wrong(format!("no instructions per phase: {}", e.to_string().trim().replace('\n', " ")))
    })?;
    if file.schema != SCHEMA {
        return Err(wrong(format!("the schema `{}` is not `{SCHEMA}`", file.schema)));
    }
    file.executed.into_iter().map(phase).collect()
}

fn phase(executed: Executed) -> Result<Phase, Failure> {
    let usage = |message| Failure { message, status: status::USAGE };
    let arch = ArchId::parse(&executed.arch)
        .ok_or_else(|| usage(format!("unknown architecture `{}`", executed.arch)))?;
    let (guest, part) = match executed.guest.as_str() {
        "@probe" => ("@probe", Part::Window(executed.phase.clone())),
        "@gup_test" => ("@gup_test", Part::Entry("ioctl")),
        other => return Err(usage(format!("{other} prints no phases; @probe and @gup_test do"))),
    };
    let run = RunSpec {
        guest,
        args: executed.args.clone(),
        env: Vec::new(),
        arch,
        machine: None,
        cpus: 1,
        kernel: executed.kernel.clone(),
        set: Vec::new(),
        thp: only_folios_of(executed.folio_kb),
    };
    Ok(Phase { executed, arch, measured: Measured::one(part, run) })
}

fn fit_work(
    table: &WorkTable,
    arch: ArchId,
    phases: &[(&Phase, &Counters)],
) -> Result<Posterior, Failure> {
    let datum = |(group, (phase, counts)): (usize, &(&Phase, &Counters))| Datum {
        name: phase.executed.phase.clone(),
        counts: table.occurrences(arch, counts),
        value: float(phase.executed.instructions),
        spread: ERROR,
        group,
    };
    let data: Vec<Datum> = phases.iter().enumerate().map(datum).collect();
    fit(&table.unknowns(arch), &data, ERROR).map_err(|e| no_fit(&e))
}

/// A table of executed against summed instructions, and the errors.
fn compare(
    table: &WorkTable,
    arch: ArchId,
    phases: &[(&Phase, &Counters)],
    found: &Posterior,
) -> (String, Vec<f64>) {
    use Align::{Left, Right};
    let mut rows = Table::new(&[Left, Right, Right, Right]).indented(1);
    rows.row([arch.name(), "executed", "summed", "error"]);
    rows.rule();
    let mut errors = Vec::new();
    for (phase, counts) in phases {
        let occurrences = table.occurrences(arch, counts);
        let summed: f64 = occurrences.iter().zip(found.values()).map(|(n, w)| n * w).sum();
        let executed = float(phase.executed.instructions);
        let error = summed / executed - 1.0;
        errors.push(error.abs());
        rows.row([
            format!(
                "{} {} kB, {}, {}",
                phase.executed.guest,
                phase.executed.folio_kb,
                phase.executed.phase,
                phase.executed.kernel
            ),
            format!("{executed:.0}"),
            format!("{summed:.0}"),
            format!("{:+.0} %", error * 100.0),
        ]);
    }
    let mut text = rows.render();
    let _ = writeln!(text, "Median error on {arch}: {:.1} %.\n", median(&mut errors) * 100.0);
    (text, errors)
}

#[expect(clippy::cast_precision_loss, reason = "a fit needs a few digits of a count")]
fn float(n: u64) -> f64 {
    n as f64
}
