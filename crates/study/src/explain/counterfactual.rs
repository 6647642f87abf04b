//! What would the difference be if something else were different?

use super::Explanation;
use crate::resolve::kernel;
use crate::workload::only_folios_of;
use crate::{
    Override, Program, RunRequest, Silent, ThpSetting, kernel_fields, parse_set, parse_thp, status,
};
use cost::Picos;
use report::{Failure, RunReport};
use sha2::{Digest, Sha256};
use units::ArchId;

/// A change that is made to both runs, which are then done again.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counterfactual {
    /// Behaviours of the kernel that are switched off: `contpte`.
    pub without: Vec<String>,
    /// Fields of the kernel and of the machine.
    pub set: Vec<Override>,
    /// Folios of this size and no other.
    pub folio_kb: Option<u64>,
    /// So many CPUs.
    pub cpus: Option<u16>,
    /// Another preset of the kernel, under the same patches.
    pub kernel: Option<String>,
}

impl Counterfactual {
    /// Whether nothing is changed.
    pub fn is_empty(&self) -> bool {
        *self == Counterfactual::default()
    }

    /// Does both runs of `explanation` again with the change, and explains their difference.
    ///
    /// # Errors
    /// 2 for a behaviour that does not exist, or if a run was not of a built-in guest as it is in
    /// this version; and as [`crate::run`].
    pub fn explain(&self, explanation: &Explanation) -> Result<Explanation, Failure> {
        let set = self.overrides()?;
        let again = |run: &RunReport| {
            let mut request = request(run, &set)?;
            self.change(&mut request);
            crate::run(&request, &mut Silent)
        };
        let (a, b) = (again(&explanation.a.run)?, again(&explanation.b.run)?);
        Explanation::new(a, b, explanation.only.as_deref())
    }

    fn change(&self, request: &mut RunRequest) {
        if let Some(kib) = self.folio_kb {
            request.thp = vec![only_folios_of(kib)];
        }
        if let Some(cpus) = self.cpus {
            request.cpus = Some(cpus);
        }
        if let Some(preset) = &self.kernel {
            let patches = request.kernel.find(['+', '-']).map_or("", |at| &request.kernel[at..]);
            request.kernel = format!("{preset}{patches}");
        }
    }

    fn overrides(&self) -> Result<Vec<Override>, Failure> {
        let off =
            |field: &String| Override { key: format!("kernel.{field}"), value: "off".to_owned() };
        let unknown = |field: &&String| !kernel_fields().contains(&field.as_str());
        if let Some(field) = self.without.iter().find(unknown) {
            let known = kernel_fields().join(", ");
            return Err(usage(format!(
                "unknown behaviour `{field}` of the kernel; known: {known}"
            )));
        }
        let all: Vec<Override> =
            self.without.iter().map(off).chain(self.set.iter().cloned()).collect();
        kernel(machine::KernelConfig::DEFAULT, &all)?;
        Ok(all)
    }

    /// The change in words, and what becomes of the difference.
    pub fn render(&self, was: &Explanation, is: &Explanation) -> String {
        let mut changes: Vec<String> =
            self.without.iter().map(|f| format!("without {f}")).collect();
        changes.extend(self.set.iter().map(|o| format!("with {}={}", o.key, o.value)));
        changes.extend(self.folio_kb.map(|kb| format!("with folios of {kb} kB")));
        changes.extend(self.cpus.map(|cpus| format!("with {cpus} CPUs")));
        changes.extend(self.kernel.as_ref().map(|kernel| format!("on {kernel}")));
        let saved = |e: &Explanation| match e.saved().get() {
            ps if ps < 0 => format!("costs {}", Picos::new(-ps)),
            ps => format!("saves {}", Picos::new(ps)),
        };
        format!(
            "Counterfactual, {}: A takes {}, B {}; B {}, where it {} before.",
            changes.join(" and "),
            is.a.bill().total(),
            is.b.bill().total(),
            saved(is),
            saved(was)
        )
    }
}

/// The run that a report is of, with the overrides of `set` after its own.
fn request(run: &RunReport, set: &[Override]) -> Result<RunRequest, Failure> {
    let path = &run.guest.path;
    if !path.starts_with('@') {
        return Err(usage(format!(
            "{path} is no built-in guest, so it cannot be run again here; run it with --set yourself and explain the new reports"
        )));
    }
    let arch = ArchId::parse(&run.arch)
        .ok_or_else(|| usage(format!("the report names an unknown architecture `{}`", run.arch)))?;
    let program = Program::open(path, arch)?;
    let hash: String = Sha256::digest(&program.bytes).iter().map(|b| format!("{b:02x}")).collect();
    if hash != run.guest.sha256 {
        let message = format!(
            "{path} is another program in this version than in the report; make the report again"
        );
        return Err(usage(message));
    }
    let settings = &run.settings;
    let mut all = settings
        .set
        .iter()
        .map(|(key, value)| parse_set(&format!("{key}={value}")))
        .collect::<Result<Vec<_>, _>>()
        .map_err(|error| usage(error.to_string()))?;
    all.extend(set.iter().cloned());
    let thp = settings.thp.iter().map(|(size, when)| parse_thp(&format!("{size}={when}")));
    let thp = thp.collect::<Result<Vec<ThpSetting>, _>>().map_err(|e| usage(e.to_string()))?;
    Ok(RunRequest {
        arch: Some(arch),
        kernel: run.kernel.clone(),
        machine: Some(run.machine.clone()),
        cpus: Some(run.cpus),
        mem_bytes: settings.mem_bytes,
        swap_bytes: settings.swap_bytes,
        thp,
        set: all,
        env: settings.env.clone(),
        seed: settings.seed,
        check: settings.check,
        max_instructions: settings.max_instructions,
        ..RunRequest::new(program, run.guest.argv.clone())
    })
}

fn usage(message: String) -> Failure {
    Failure { message, status: status::USAGE }
}
