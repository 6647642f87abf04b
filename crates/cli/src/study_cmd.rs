//! `ptescope study`.

use crate::args::{StudyArgs, StudyCommand, StudyMergeArgs, StudyOutputs, StudyRunArgs};
use crate::{output, slurm};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use report::{Failure, StudyRecord};
use std::fs;
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use study::plan::shard;
use study::sweep::{How, Resume, Sweep};
use study::{Store, Study, merge, status, study_names};

pub(crate) fn study(args: &StudyArgs) -> Result<u8, Failure> {
    match &args.command {
        Some(StudyCommand::Merge(args)) => merge(args),
        Some(StudyCommand::List) => list(),
        Some(StudyCommand::Submit(args)) => slurm::submit(args),
        Some(StudyCommand::Status(args)) => slurm::status(&args.dir),
        Some(StudyCommand::Rerun(args)) => slurm::rerun(&args.dir),
        None => run(&args.run),
    }
}

/// The studies, one line each.
fn list() -> Result<u8, Failure> {
    for name in study_names() {
        output::text(&format!("{name:<20} {}\n", Study::open(name)?.plan.title))?;
    }
    Ok(0)
}

fn run(args: &StudyRunArgs) -> Result<u8, Failure> {
    let Some(name) = &args.name else {
        let known = study_names().collect::<Vec<_>>().join(", ");
        let message = format!("which study? known: {known}, and files that end in .toml");
        return Err(Failure { message, status: status::USAGE });
    };
    let study = Study::open(name)?;
    let mut points = study.points()?;
    if let Some(part) = args.shard {
        points = shard(points, part);
    }
    args.outputs.probe()?;
    let store = store(args)?;
    let sweep = Sweep {
        study: &study.plan.name,
        jobs: args.jobs.unwrap_or_else(host_cores),
        store: store.as_ref(),
        resume: if args.resume { Resume::Yes } else { Resume::No },
    };
    let bar = bar(points.len());
    let mut stored = 0;
    let swept = sweep.run(&points, &mut |progress| {
        stored += usize::from(progress.how == How::Stored);
        bar.set_message(format!("{} {}", progress.point.machine, progress.point.kernel));
        bar.inc(1);
    });
    bar.finish_and_clear();
    if args.resume {
        let (ran, all) = (points.len() - stored, points.len());
        output::note(&format!(
            "ptescope: {all} points: {stored} were in the store, {ran} were run.\n"
        ));
    }
    if let Some(failure) = swept.unstored {
        output::error(&failure.message);
    }
    args.outputs.write(&study, &swept.records)?;
    Ok(worst(&swept.records))
}

fn merge(args: &StudyMergeArgs) -> Result<u8, Failure> {
    let study = Study::open(&args.name)?;
    let read = |path: &String| match fs::read_to_string(path) {
        Ok(text) => Ok((path.clone(), text)),
        Err(error) => {
            let message = format!("cannot read the results {path}: {error}");
            Err(Failure { message, status: status::NO_INPUT })
        }
    };
    let files = args.files.iter().map(read).collect::<Result<Vec<_>, _>>()?;
    args.outputs.probe()?;
    let merged = merge::merge(&study, &files)?;
    args.outputs.write(&study, &merged.records)?;
    if let Some(first) = merged.missing.first() {
        let (some, all) = (merged.missing.len(), merged.missing.len() + merged.records.len());
        let message = format!(
            "{some} of {all} points are in none of the files, the first of them: {}",
            study::point::command(first)
        );
        return Err(Failure { message, status: status::NO_INPUT });
    }
    Ok(worst(&merged.records))
}

/// The status of the first point that failed.
fn worst(records: &[StudyRecord]) -> u8 {
    records.iter().find_map(|r| r.error.as_ref()).map_or(0, |failure| failure.status)
}

/// Where finished runs are kept. Without a name, and without a cache directory, nowhere; unless they are asked for.
fn store(args: &StudyRunArgs) -> Result<Option<Store>, Failure> {
    if let Some(dir) = args.store.clone().or_else(cache_directory) {
        let store = Store::open(&dir);
        if args.store.is_some() || args.resume {
            return store.map(Some);
        }
        return Ok(store.ok());
    }
    if args.resume {
        let message =
            "--resume needs a store of finished runs: name one with --store, as there is no HOME";
        return Err(Failure { message: message.to_owned(), status: status::NO_OUTPUT });
    }
    Ok(None)
}

fn cache_directory() -> Option<PathBuf> {
    let directory = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty());
    let cache = directory("XDG_CACHE_HOME").map(PathBuf::from);
    let cache = cache.or_else(|| Some(Path::new(&directory("HOME")?).join(".cache")))?;
    Some(cache.join("ptescope"))
}

impl StudyOutputs {
    /// Whether everything can be written, before the work starts.
    fn probe(&self) -> Result<(), Failure> {
        if self.parquet.is_some() {
            study::parquet(&[])?;
        }
        let json = self.json.as_deref().filter(|&path| path != "-").map(Path::new);
        [json, self.csv.as_deref(), self.parquet.as_deref()]
            .into_iter()
            .flatten()
            .try_for_each(output::probe)?;
        self.html.as_deref().map_or(Ok(()), |dir| {
            fs::create_dir_all(dir).map_err(|error| Failure {
                message: format!("cannot make the directory {}: {error}", dir.display()),
                status: status::NO_OUTPUT,
            })?;
            output::probe(&dir.join("index.html"))
        })
    }

    fn write(&self, study: &Study, records: &[StudyRecord]) -> Result<(), Failure> {
        let lines = lines(records)?;
        let to_stdout = self.json.as_deref() == Some("-");
        match self.json.as_deref() {
            Some("-") => output::text(&lines)?,
            Some(path) => output::file(Path::new(path), lines.as_bytes())?,
            None => {}
        }
        if let Some(path) = &self.csv {
            output::file(path, &study::csv(records)?)?;
        }
        if let Some(path) = &self.parquet {
            output::file(path, &study::parquet(records)?)?;
        }
        if let Some(dir) = &self.html {
            output::file(&dir.join("index.html"), study.page(records).html().as_bytes())?;
        }
        let text = study.text(records);
        if to_stdout {
            output::note(&text);
            return Ok(());
        }
        output::text(&text)
    }
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
