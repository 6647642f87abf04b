//! `ptescope explain`.

use crate::args::ExplainArgs;
use crate::output::{self, Json};
use report::{Failure, RunReport};
use std::fs;
use study::explain::{Counterfactual, Explanation};
use study::{status, wrap};

const WIDTH: usize = 100;

pub(crate) fn explain(args: &ExplainArgs) -> Result<u8, Failure> {
    let (a, b) = (read(&args.a)?, read(&args.b)?);
    let explanation = Explanation::new(a, b, args.only.as_deref())?;
    let change = Counterfactual { without: args.without.clone(), set: args.set.clone() };
    let mut json = Json::open(args.json.as_deref())?;
    let mut report = explanation.report();
    let mut text = explanation.render();
    if !change.is_empty() {
        let changed = change.explain(&explanation)?;
        let sentence = change.render(&explanation, &changed);
        text.push_str(&wrap(&sentence, WIDTH, 2));
        report.sentences.push(sentence);
    }
    let lines = report.to_json().map_err(|error| Failure {
        message: format!("internal error: the explanation is no JSON: {error}; please report it"),
        status: status::INTERNAL,
    })?;
    json.write(&lines)?;
    if json.is_stdout() {
        output::note(&text);
    } else {
        output::text(&text)?;
    }
    Ok(0)
}

fn read(path: &str) -> Result<RunReport, Failure> {
    let text = fs::read_to_string(path).map_err(|error| Failure {
        message: format!(
            "cannot read the report {path}: {error}; give a file that `ptescope run --json FILE` wrote"
        ),
        status: status::NO_INPUT,
    })?;
    RunReport::from_json(&text).map_err(|error| Failure {
        message: format!(
            "{path} is no report of a run: {error}; give a file that `ptescope run --json FILE` wrote"
        ),
        status: status::NO_ELF,
    })
}
