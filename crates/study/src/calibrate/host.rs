//! `ptescope calibrate --host`: prices of the machine that this runs on.
//!
//! The guest `probe` is an ordinary program: it is run natively, where it times its windows, and emulated, where they are
//! counted. Prices are fitted to some of the windows; the others are predicted.

mod native;

use super::median;
use super::prices;
use crate::bench::{OWN_ERROR, broken_list, no_fit, time_error};
use crate::workload::{Measured, Part, Results, RunSpec};
use crate::{ThpPolicy, ThpSetting, status, wrap};
use cost::{Datum, Posterior, PriceList, fit};
use events::{Event, Sink};
use native::{Knobs, Native};
use report::{Align, Failure, Table};
use std::collections::BTreeMap;
use std::num::NonZeroUsize;

const WIDTH: usize = 100;
const MIB: &str = "128";
/// How often each program is run natively; the shortest time of each window counts.
const REPEATS: usize = 5;
/// Shorter windows are mostly system-call entry, and what a process costs beside its memory.
const NS_MIN: f64 = 200e3;
/// What the model leaves out of a window, as of any operation.
const COMMON_ERROR: f64 = 0.10;

const COMMENT: &str = "\
# Prices are opinions: cost per event in nanoseconds beyond the kernel's instructions, with a relative spread (one standard
# deviation). Written by `ptescope calibrate --host` from native times of the guest `probe` and its emulated counts.
";

/// Whether a window is one system call or a loop of faults.
#[derive(Clone, Copy, PartialEq)]
enum Kind {
    Call,
    Faults,
}

/// What a window is for.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Use {
    Fitted,
    HeldOut,
}

/// Windows of the guest: its program, the phase, what it is, and what it is for. Operations that are held out are fitted on at
/// no size.
const WINDOWS: &[(&str, &str, Kind, Use)] = &[
    ("fault", "first_touch_write", Kind::Faults, Use::Fitted),
    ("munmap", "munmap", Kind::Call, Use::Fitted),
    ("dontneed", "dontneed", Kind::Call, Use::HeldOut),
    ("mprotect", "mprotect_ro", Kind::Call, Use::Fitted),
    ("mprotect", "mprotect_rw", Kind::Call, Use::Fitted),
    ("mprotect", "mprotect_none", Kind::Call, Use::HeldOut),
    ("mprotect", "mprotect_none_to_rw", Kind::Call, Use::HeldOut),
    ("fork", "fork", Kind::Call, Use::Fitted),
    ("fork", "parent_cow_write", Kind::Faults, Use::Fitted),
    ("forkreuse", "write_after_child_exit", Kind::Faults, Use::HeldOut),
    ("mremap", "mremap_pmd_aligned", Kind::Call, Use::Fitted),
    ("mremap", "mremap_64k_shift", Kind::Call, Use::HeldOut),
    ("mremap", "mremap_4k_shift", Kind::Call, Use::Fitted),
];

/// Reclaim needs root and swap.
const PAGEOUT: (&str, &str, Kind, Use) = ("pageout", "pageout", Kind::Call, Use::HeldOut);

/// A window at a folio size, timed and counted.
struct Timed {
    folio_kb: u64,
    phase: &'static str,
    purpose: Use,
    ns: f64,
    counts: Vec<f64>,
}

/// The price list of this machine.
#[derive(Debug)]
pub struct HostCalibration {
    /// The list as a price file.
    pub toml: String,
    /// What was fitted, and how well the rest is predicted.
    pub text: String,
    /// Median error over what was held out, relative.
    pub held_out_error: f64,
    /// How many windows were held out.
    pub held_out: usize,
}

/// Times the guest natively, counts it emulated, fits and predicts. `set_thp` allows it to change the host's settings for
/// large folios for as long as it runs.
///
/// # Errors
/// 71 if the host is no Linux on x86-64 or arm64, or the guest does not run there.
pub fn calibrate_host(
    set_thp: bool,
    jobs: NonZeroUsize,
    progress: &mut dyn FnMut(&str),
) -> Result<HostCalibration, Failure> {
    let native = Native::find()?;
    let base = PriceList::generic(native.arch).map_err(|e| broken_list(&e))?;
    let (times, mut notes) = time_all(&native, set_thp, progress)?;
    let timed = count_all(&native, &base, &times, jobs, progress)?;
    let found = fit_host(&base, &timed)?;
    let summary = format!("{}, Linux {}", native.model, native.release);
    let fitted_on = timed.iter().filter(|t| t.purpose == Use::Fitted).map(described).collect();
    let list = base.fitted(&found, "host", &summary, fitted_on).map_err(|e| broken_list(&e))?;
    let (table, errors) = predictions(&found, &timed);
    let held_out = errors.len();
    let held_out_error = median(&mut errors.clone());
    notes.insert(
        0,
        format!(
            "{summary}: each time is the least CPU time of {REPEATS} runs of @probe over {MIB} MiB; counted on {}.",
            native.kernel
        ),
    );
    let mut text: String = notes.iter().map(|note| wrap(note, WIDTH, 2)).collect();
    text.push('\n');
    text.push_str(&prices(&base, &found));
    text.push('\n');
    text.push_str(&table);
    text.push_str(&wrap(
        &format!(
            "Held out: {held_out} windows of operations that were fitted on at no size; median error {:.0} %.",
            held_out_error * 100.0
        ),
        WIDTH,
        0,
    ));
    Ok(HostCalibration { toml: list.to_toml(COMMENT), text, held_out_error, held_out })
}

/// Windows with their nanoseconds.
type Times = Vec<(Window, f64)>;
/// Folio size, program, phase, kind, use.
type Window = (u64, &'static str, &'static str, Kind, Use);

/// Nanoseconds of every window at every folio size that the host allows, and why others are missing.
fn time_all(
    native: &Native,
    set_thp: bool,
    progress: &mut dyn FnMut(&str),
) -> Result<(Times, Vec<String>), Failure> {
    let mut windows: Vec<_> = WINDOWS.to_vec();
    let mut notes = Vec::new();
    match native.can_page_out() {
        Ok(()) => windows.push(PAGEOUT),
        Err(why) => notes.push(format!("MADV_PAGEOUT is left out: {why}.")),
    }
    let mut times = Vec::new();
    for folio_kb in [4, 64, 2048] {
        let knobs = match Knobs::allow(folio_kb, set_thp) {
            Ok(knobs) => knobs,
            Err(why) => {
                notes.push(format!("Folios of {folio_kb} kB are left out: {why}."));
                continue;
            }
        };
        let mut programs: Vec<&str> = windows.iter().map(|w| w.0).collect();
        programs.dedup();
        for program in programs {
            progress(&format!("{program} natively, {folio_kb} kB"));
            let least = native.least(program, MIB, folio_kb, REPEATS)?;
            for &(_, phase, kind, purpose) in windows.iter().filter(|w| w.0 == program) {
                if let Some(&ns) = least.get(phase).filter(|&&ns| ns >= NS_MIN) {
                    times.push(((folio_kb, program, phase, kind, purpose), ns));
                }
            }
        }
        drop(knobs);
    }
    Ok((times, notes))
}

fn count_all(
    native: &Native,
    base: &PriceList,
    times: &[(Window, f64)],
    jobs: NonZeroUsize,
    progress: &mut dyn FnMut(&str),
) -> Result<Vec<Timed>, Failure> {
    let run = |&(folio_kb, program, ..): &Window| RunSpec {
        guest: "@probe",
        args: vec![program.to_owned(), MIB.to_owned()],
        env: vec![native::advice(folio_kb)],
        arch: native.arch,
        machine: None,
        cpus: 1,
        kernel: native.kernel.to_owned(),
        set: Vec::new(),
        thp: match folio_kb {
            4 => ThpSetting { kib: 2048, policy: ThpPolicy::Never },
            kib => ThpSetting { kib, policy: ThpPolicy::Madvise },
        },
    };
    let specs = times.iter().map(|(window, _)| run(window)).collect();
    let results = Results::of(specs, jobs, progress)?;
    let mut timed = Vec::new();
    for (window, ns) in times {
        let &(folio_kb, _, phase, kind, purpose) = window;
        let measured = Measured::one(Part::Window(phase.to_owned()), run(window));
        let mut counts = results.counted(&measured)?.counts;
        if kind == Kind::Call {
            counts.add(Event::SyscallTrap, 1);
        }
        let counts = base.occurrences(&counts, 0);
        timed.push(Timed { folio_kb, phase, purpose, ns: *ns, counts });
    }
    Ok(timed)
}

fn fit_host(base: &PriceList, timed: &[Timed]) -> Result<Posterior, Failure> {
    let used = timed.iter().filter(|t| t.purpose == Use::Fitted).enumerate();
    let data = used.map(|(group, t)| Datum {
        name: described(t),
        counts: t.counts.clone(),
        value: t.ns,
        spread: OWN_ERROR,
        group,
    });
    let data: Vec<Datum> = data.collect();
    if data.is_empty() {
        return Err(Failure {
            message: "nothing could be timed on this host".to_owned(),
            status: status::UNSUPPORTED,
        });
    }
    fit(&base.unknowns(), &data, COMMON_ERROR).map_err(|e| no_fit(&e))
}

fn described(timed: &Timed) -> String {
    format!("{} at {} kB: {:.1} µs", timed.phase, timed.folio_kb, timed.ns / 1e3)
}

/// Measured against predicted, and the errors of what was held out.
fn predictions(found: &Posterior, timed: &[Timed]) -> (String, Vec<f64>) {
    use Align::{Left, Right};
    let mut table = Table::new(&[Left, Right, Right, Right, Right, Right, Left]).indented(1);
    table.row(["operation", "kB", "measured, µs", "predicted", "90 %", "error", ""]);
    let mut errors = Vec::new();
    for purpose in [Use::Fitted, Use::HeldOut] {
        table.rule();
        for t in timed.iter().filter(|t| t.purpose == purpose) {
            let p = found.predict(&t.counts, time_error());
            let error = p.value / t.ns - 1.0;
            if purpose == Use::HeldOut {
                errors.push(error.abs());
            }
            table.row([
                t.phase.to_owned(),
                t.folio_kb.to_string(),
                format!("{:.1}", t.ns / 1e3),
                format!("{:.1}", p.value / 1e3),
                format!("{:.1}–{:.1}", p.low / 1e3, p.high / 1e3),
                format!("{:+.0} %", error * 100.0),
                if purpose == Use::Fitted { "fitted" } else { "held out" }.to_owned(),
            ]);
        }
    }
    (table.render(), errors)
}

/// Least times by phase.
type Least = BTreeMap<String, f64>;

#[cfg(test)]
mod tests {
    use super::*;
    use units::ArchId;

    #[test]
    fn no_operation_is_both_fitted_on_and_held_out() {
        let phases = |purpose| WINDOWS.iter().filter(move |w| w.3 == purpose).map(|w| w.1);
        assert!(phases(Use::Fitted).all(|p| phases(Use::HeldOut).all(|q| p != q)));
        // At two folio sizes that makes eight points and more.
        assert!(phases(Use::HeldOut).count() >= 4);
    }

    /// Planted prices: what is predicted of windows that were not fitted on comes out.
    #[test]
    fn planted_prices_predict_what_was_held_out() {
        let base = PriceList::generic(ArchId::X86_64).expect("embedded");
        let truth: Vec<f64> = base.unknowns().iter().map(|u| u.prior * 1.7).collect();
        let occurs = |seed: usize| -> Vec<f64> {
            let n = |i: usize| ((i * 7 + seed * 13) % 11 * 1000) as f64;
            (0..truth.len()).map(n).collect()
        };
        let timed = |seed: usize| {
            let counts = occurs(seed);
            let ns = counts.iter().zip(&truth).map(|(n, p)| n * p).sum();
            let purpose = if seed < 9 { Use::Fitted } else { Use::HeldOut };
            Timed { folio_kb: 4, phase: "planted", purpose, ns, counts }
        };
        let timed: Vec<Timed> = (1..12).map(timed).collect();
        let found = fit_host(&base, &timed).expect("fits");
        let (table, mut errors) = predictions(&found, &timed);
        assert_eq!(errors.len(), 3);
        assert!(median(&mut errors) < 0.1, "{table}");
        assert!(table.contains("held out"));
    }
}
