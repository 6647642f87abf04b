//! The studies: those that are built in, and those of files.

use crate::plan::Plan;
use crate::{gup, gup_matrix, ksm, pageout, show, status};
use report::page::Page;
use report::{Failure, Point, StudyRecord};
use std::fs;

/// Width of tables and prose on a terminal.
const WIDTH: usize = 100;

/// A study, with what it says in its own words if it has any.
#[derive(Debug)]
pub struct Study {
    /// What its file says.
    pub plan: Plan,
    own: Own,
}

/// Makes sentences of results.
type Sentences = fn(&[StudyRecord]) -> Vec<String>;

/// What a study does not leave to the general rules.
#[derive(Clone, Copy, Debug, Default)]
struct Own {
    text: Option<fn(&[StudyRecord]) -> String>,
    findings: Option<Sentences>,
}

/// A study that is built in.
struct BuiltIn {
    name: &'static str,
    file: &'static str,
    own: Own,
}

const fn plain(name: &'static str, file: &'static str) -> BuiltIn {
    BuiltIn { name, file, own: Own { text: None, findings: None } }
}

const STUDIES: &[BuiltIn] = &[
    plain("contpte-break-even", include_str!("../studies/contpte-break-even.toml")),
    plain("cores", include_str!("../studies/cores.toml")),
    plain("folio-size", include_str!("../studies/folio-size.toml")),
    plain("fork", include_str!("../studies/fork.toml")),
    BuiltIn {
        name: gup::NAME,
        file: include_str!("../studies/gup.toml"),
        own: Own { text: Some(gup::render), findings: None },
    },
    BuiltIn {
        name: gup_matrix::NAME,
        file: include_str!("../studies/gup-matrix.toml"),
        own: Own { text: Some(gup_matrix::render), findings: None },
    },
    BuiltIn {
        name: ksm::NAME,
        file: include_str!("../studies/ksm.toml"),
        own: Own { text: Some(ksm::render), findings: None },
    },
    plain("mprotect", include_str!("../studies/mprotect.toml")),
    plain("mremap", include_str!("../studies/mremap.toml")),
    plain("munmap", include_str!("../studies/munmap.toml")),
    BuiltIn {
        name: pageout::NAME,
        file: include_str!("../studies/pageout.toml"),
        own: Own { text: Some(pageout::render), findings: Some(pageout::sentences) },
    },
    plain("tlb-reach", include_str!("../studies/tlb-reach.toml")),
];

/// The names of the studies that are built in, in order.
pub fn names() -> impl Iterator<Item = &'static str> {
    STUDIES.iter().map(|study| study.name)
}

impl Study {
    /// The study that is built in under that name, or the one of a file `….toml`.
    ///
    /// # Errors
    /// 2 for a name that is unknown or a file that is no study, 66 for one that cannot be read.
    pub fn open(name: &str) -> Result<Study, Failure> {
        if let Some(found) = STUDIES.iter().find(|study| study.name == name) {
            let plan = Plan::parse(name, found.file)?;
            return Ok(Study { plan, own: found.own });
        }
        if !name.ends_with(".toml") {
            let known = names().collect::<Vec<_>>().join(", ");
            let message =
                format!("unknown study `{name}`; known: {known}, and files that end in .toml");
            return Err(Failure { message, status: status::USAGE });
        }
        let text = fs::read_to_string(name).map_err(|error| Failure {
            message: format!("cannot read the study {name}: {error}"),
            status: status::NO_INPUT,
        })?;
        Ok(Study { plan: Plan::parse(name, &text)?, own: Own::default() })
    }

    /// Its points.
    ///
    /// # Errors
    /// None in practice: [`Study::open`] has looked.
    pub fn points(&self) -> Result<Vec<Point>, Failure> {
        self.plan.points()
    }

    /// Its results for a terminal.
    pub fn text(&self, records: &[StudyRecord]) -> String {
        match self.own.text {
            Some(text) => text(records),
            None => self.page(records).text(WIDTH),
        }
    }

    /// Its results as a page.
    pub fn page(&self, records: &[StudyRecord]) -> Page {
        show::page(&self.plan, records, self.own.findings.map(|found| found(records)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_built_in_study_is_whole() {
        assert!(names().is_sorted());
        for name in names() {
            let study = Study::open(name).expect(name);
            assert_eq!(study.plan.name, name);
            let points = study.points().expect(name);
            for point in &points {
                crate::point::key(point).unwrap_or_else(|failure| panic!("{name}: {failure}"));
                let known = crate::point::kernel_is_known(point);
                assert!(known, "{name}: {}", point.kernel);
            }
            let page = study.page(&[]);
            assert_eq!(page.fidelity.len(), study.plan.fidelity.len(), "{name}: an unknown row");
        }
    }

    #[test]
    fn unknown_studies_list_the_known_ones() {
        let failure = Study::open("pagein").expect_err("unknown");
        assert!(failure.message.contains("munmap, pageout, tlb-reach"), "{failure}");
        assert_eq!(failure.status, status::USAGE);
        let failure = Study::open("/nowhere/x.toml").expect_err("missing");
        assert_eq!(failure.status, status::NO_INPUT);
    }
}
