//! `ptescope study`.

use crate::args::StudyArgs;
use crate::output::{self, Json};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use report::{Failure, StudyRecord};
use std::num::NonZeroUsize;
use study::{pageout, status, sweep};

pub(crate) fn study(args: &StudyArgs) -> Result<u8, Failure> {
    if args.name != pageout::NAME {
        let message = format!("unknown study `{}`; known: {}", args.name, pageout::NAME);
        return Err(Failure { message, status: status::USAGE });
    }
    let mut json = Json::open(args.json.as_deref())?;
    let points = pageout::points();
    let jobs = args.jobs.unwrap_or_else(host_cores);
    let bar = bar(points.len());
    let records =
        sweep::sweep(pageout::NAME, &points, jobs, &pageout::run_point, &mut |progress| {
            bar.set_message(format!("{} {}", progress.point.arch, progress.point.kernel));
            bar.inc(1);
        });
    bar.finish_and_clear();
    json.write(&lines(&records)?)?;
    let table = pageout::render(&records);
    if json.is_stdout() {
        output::note(&table);
    } else {
        output::text(&table)?;
    }
    let failed = records.iter().find_map(|r| r.error.as_ref());
    Ok(failed.map_or(0, |failure| failure.status))
}

pub(crate) fn host_cores() -> NonZeroUsize {
    std::thread::available_parallelism().unwrap_or(NonZeroUsize::MIN)
}

/// A progress bar on stderr; nothing if that is no terminal.
pub(crate) fn bar(points: usize) -> ProgressBar {
    let bar = ProgressBar::with_draw_target(Some(points as u64), ProgressDrawTarget::stderr());
    let template = "{bar:30} {pos}/{len} runs, {elapsed}, {eta} left  {msg}";
    if let Ok(style) = ProgressStyle::with_template(template) {
        bar.set_style(style);
    }
    bar
}

fn lines(records: &[StudyRecord]) -> Result<String, Failure> {
    records.iter().map(StudyRecord::to_json_line).collect::<Result<String, _>>().map_err(|error| {
        let message = format!("internal error: a record is no JSON: {error}; please report it");
        Failure { message, status: status::INTERNAL }
    })
}
