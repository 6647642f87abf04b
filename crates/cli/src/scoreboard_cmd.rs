//! `ptescope scoreboard`.

use crate::args::ScoreboardArgs;
use crate::output::{self, Json};
use crate::study_cmd::{bar, host_cores};
use report::Failure;
use study::{scoreboard, status};

pub(crate) fn scoreboard(args: &ScoreboardArgs) -> Result<u8, Failure> {
    let mut json = Json::open(args.json.as_deref())?;
    let bar = bar(scoreboard::runs());
    let report = scoreboard::score(args.jobs.unwrap_or_else(host_cores), &mut |what| {
        bar.set_message(what.to_owned());
        bar.inc(1);
    })?;
    bar.finish_and_clear();
    let lines = report.to_json().map_err(|error| Failure {
        message: format!("internal error: the scoreboard is no JSON: {error}; please report it"),
        status: status::INTERNAL,
    })?;
    json.write(&lines)?;
    let table = scoreboard::render(&report);
    if json.is_stdout() {
        output::note(&table);
    } else {
        output::text(&table)?;
    }
    Ok(0)
}
