//! `ptescope explain`.

use crate::args::ExplainArgs;
use crate::output::{self, Json};
use report::{Failure, RunReport, StudyRecord};
use std::fs;
use study::explain::{Counterfactual, Explanation, pairs};
use study::{status, wrap};

const WIDTH: usize = 100;

pub(crate) fn explain(args: &ExplainArgs) -> Result<u8, Failure> {
    match (&args.study, &args.a, &args.b) {
        (Some(study), ..) => explain_study(args, study),
        (None, Some(a), Some(b)) => explain_two(args, a, b),
        _ => Err(Failure {
            message: "explain needs the reports of two runs, or --study FILE".to_owned(),
            status: status::USAGE,
        }),
    }
}

fn explain_two(args: &ExplainArgs, a: &str, b: &str) -> Result<u8, Failure> {
    let (a, b) = (read(a)?, read(b)?);
    let explanation = Explanation::new(a, b, args.only.as_deref())?;
    let change = Counterfactual {
        without: args.without.clone(),
        set: args.set.clone(),
        folio_kb: args.folio,
        cpus: args.cpus,
        kernel: args.kernel.clone(),
    };
    let mut json = Json::open(args.json.as_deref())?;
    let mut svg = Json::open(args.svg.as_deref())?;
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
    svg.write(&explanation.waterfall())?;
    if json.is_stdout() || svg.is_stdout() {
        output::note(&text);
    } else {
        output::text(&text)?;
    }
    Ok(0)
}

fn explain_study(args: &ExplainArgs, path: &str) -> Result<u8, Failure> {
    let text = fs::read_to_string(path).map_err(|error| Failure {
        message: format!(
            "cannot read the study {path}: {error}; give a file that `ptescope study --json FILE` wrote"
        ),
        status: status::NO_INPUT,
    })?;
    let records = text.lines().filter(|l| !l.trim().is_empty()).map(StudyRecord::from_json_line);
    let records = records.collect::<Result<Vec<_>, _>>().map_err(|error| Failure {
        message: format!("{path} is no study: {error}; give what `ptescope study --json` wrote"),
        status: status::NO_ELF,
    })?;
    let pairs = pairs(records, args.only.as_deref())?;
    if pairs.is_empty() {
        output::text("No two runs of this study differ in the kernel alone.\n")?;
    }
    for (what, explanation) in pairs {
        let mut text = wrap(&what, WIDTH, 2);
        for sentence in explanation.sentences() {
            text.push_str(&wrap(&format!("- {sentence}"), WIDTH, 2));
        }
        text.push('\n');
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
