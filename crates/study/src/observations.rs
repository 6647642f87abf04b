//! Published results of kernel changes: `data/observations.toml`.

use serde::Deserialize;

/// One published result; fields that were not published are absent.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Observation {
    /// Unique name.
    pub id: String,
    /// The patch that it is about, if it is one that can be switched here.
    pub patch: Option<String>,
    /// Who published it, where.
    pub source: String,
    /// Architecture.
    pub arch: Option<String>,
    /// The preset that stands for the machine.
    pub machine: Option<String>,
    /// What was said of the machine.
    pub machine_as_published: String,
    /// What ran.
    pub workload: String,
    /// Folio size in kB.
    pub folio_kb: Option<u64>,
    /// What was measured.
    pub metric: String,
    /// `ns`, `us`, `s` or `MiB/s`.
    pub unit: Option<String>,
    /// Without the change.
    pub before: Option<f64>,
    /// With it.
    pub after: Option<f64>,
    /// Relative standard deviation of `before`.
    pub spread_before: Option<f64>,
    /// Relative standard deviation of `after`.
    pub spread_after: Option<f64>,
    /// What was published in words instead of numbers.
    pub says: Option<String>,
    /// What the words mean for the ratio: `same`, `not-worse` or `worse`.
    pub sign: Option<String>,
    /// The machine that it was measured on, as a name that rows share; else a machine of its own.
    pub bench: Option<String>,
    /// The price lists that were fitted on this row.
    #[serde(default)]
    pub fitted_in: Vec<String>,
    /// The rows whose measurements this one repeats.
    #[serde(default)]
    pub derived_from: Vec<String>,
    /// What a speed is a speed of, in MiB.
    pub mib: Option<f64>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    schema: String,
    observation: Vec<Observation>,
}

const SCHEMA: &str = "ptescope.observations/1";

impl Observation {
    /// Every published result that is built in.
    ///
    /// # Panics
    /// Never: a test reads the embedded file.
    pub fn all() -> Vec<Observation> {
        Observation::parse(include_str!("../../../data/observations.toml"))
            .expect("the embedded file is whole (test `the_embedded_file_is_whole`)")
    }

    /// The result for a workload, folio size and machine preset.
    pub fn find(workload: &str, folio_kb: u64, machine: &str) -> Option<Observation> {
        Observation::all().into_iter().find(|o| {
            o.workload == workload
                && o.folio_kb == Some(folio_kb)
                && o.machine.as_deref() == Some(machine)
        })
    }

    /// How much the change helped: more than 1 is faster.
    pub fn ratio(&self) -> Option<f64> {
        let (before, after) = self.before.zip(self.after)?;
        let is_speed = self.unit.as_deref() == Some("MiB/s");
        Some(if is_speed { after / before } else { before / after })
    }

    /// The machine that it was measured on, by a name that other rows may share.
    pub fn bench(&self) -> &str {
        self.bench.as_deref().unwrap_or(&self.id)
    }

    /// The two measurements in nanoseconds; `None` if they were not published as times, or as speeds of a known size.
    pub fn times_ns(&self) -> Option<[f64; 2]> {
        let times = [self.before?, self.after?];
        match self.unit.as_deref()? {
            "ns" => Some(times),
            "us" => Some(times.map(|t| t * 1e3)),
            "ms" => Some(times.map(|t| t * 1e6)),
            "s" => Some(times.map(|t| t * 1e9)),
            "MiB/s" => self.mib.map(|mib| times.map(|speed| mib / speed * 1e9)),
            _ => None,
        }
    }

    /// Reads a file of observations.
    ///
    /// # Errors
    /// One sentence on what is wrong in it.
    pub fn parse(text: &str) -> Result<Vec<Observation>, String> {
        let file: File = toml::from_str(text).map_err(|e| e.to_string())?;
        if file.schema != SCHEMA {
            return Err(format!("schema `{}` is not `{SCHEMA}`", file.schema));
        }
        Ok(file.observation)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use cost::PriceList;
    use std::collections::BTreeSet;

    #[test]
    fn the_embedded_file_is_whole() {
        let all = Observation::parse(include_str!("../../../data/observations.toml"));
        let all = all.expect("parses");
        let ids: BTreeSet<_> = all.iter().map(|o| o.id.as_str()).collect();
        assert_eq!(ids.len(), all.len());
        for o in &all {
            assert!(o.says.is_some() != o.ratio().is_some(), "{}", o.id);
            let patches: Vec<_> = machine::KernelConfig::patches().map(|p| p.0).collect();
            assert!(o.patch.as_deref().is_none_or(|p| patches.contains(&p)), "{}", o.id);
        }
    }

    #[test]
    fn ratios_are_those_published() {
        let ratio = |kb, machine| {
            let found = Observation::find("pageout 256", kb, machine).expect("published");
            found.ratio().map(|r| format!("{r:.2}"))
        };
        assert_eq!(ratio(64, "apple-m3-vm").as_deref(), Some("2.15"));
        assert_eq!(ratio(64, "x86-bare-metal").as_deref(), Some("1.06"));
        assert_eq!(ratio(4, "x86-bare-metal"), None);
        assert!(Observation::find("pageout 256", 2048, "apple-m3-vm").is_none());
    }

    #[test]
    fn price_lists_and_observations_name_each_other() {
        for list in PriceList::builtin().expect("embedded lists are whole") {
            let fitted = Observation::all();
            let fitted = fitted.iter().filter(|o| o.fitted_in.iter().any(|l| l == list.name()));
            let ids: Vec<String> = fitted.map(|o| format!("{}:", o.id)).collect();
            assert_eq!(ids.len(), list.fitted_on().len(), "{}", list.name());
            for (id, row) in ids.iter().zip(list.fitted_on()) {
                assert!(row.starts_with(id), "{row} is not {id}");
            }
        }
    }
}
