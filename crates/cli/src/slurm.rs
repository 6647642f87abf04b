//! Studies as arrays of Slurm jobs: one job for each shard, one directory for everything.
//!
//! The directory holds the study, `job.sh`, a store that all jobs share, and a file of results and a log for each shard.
//! What is done is seen from the results, so Slurm is asked for nothing but to run jobs.

use crate::args::StudySubmitArgs;
use crate::output;
use report::{Failure, Point, StudyRecord};
use serde::{Deserialize, Serialize};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;
use study::plan::shard;
use study::{Study, status};

/// What was submitted: `submission.toml`.
#[derive(Debug, Serialize, Deserialize)]
struct Submission {
    /// A built-in study, or the file beside this one.
    study: String,
    shards: usize,
    /// Options of sbatch.
    sbatch: Vec<String>,
}

const SUBMISSION: &str = "submission.toml";
const JOB: &str = "job.sh";

pub(crate) fn submit(args: &StudySubmitArgs) -> Result<u8, Failure> {
    let study = Study::open(&args.name)?;
    let points = study.points()?.len();
    let dir = &args.slurm;
    fs::create_dir_all(dir).map_err(|error| cannot("make the directory", dir, &error))?;
    // An absolute path: jobs start elsewhere.
    let dir = fs::canonicalize(dir).map_err(|error| cannot("find the directory", dir, &error))?;
    if dir.join(SUBMISSION).exists() {
        let message = format!(
            "{} holds a submitted study; `ptescope study rerun` goes on with it, or name another directory",
            dir.display()
        );
        return Err(Failure { message, status: status::USAGE });
    }
    let name = if args.name.ends_with(".toml") {
        // Its own copy: the study may change before the last job starts.
        let copy = dir.join("study.toml");
        fs::copy(&args.name, &copy).map_err(|error| cannot("write", &copy, &error))?;
        "study.toml".to_owned()
    } else {
        args.name.clone()
    };
    let shards = args.shards.get().min(points);
    let submission = Submission { study: name, shards, sbatch: args.sbatch.clone() };
    output::file(&dir.join(JOB), job(&dir, &submission)?.as_bytes())?;
    let text = toml::to_string(&submission).map_err(|error| Failure {
        message: format!("internal error: {error}; please report it"),
        status: status::INTERNAL,
    })?;
    sbatch(&dir, &submission, &(1..=shards).collect::<Vec<_>>())?;
    output::file(&dir.join(SUBMISSION), text.as_bytes())?;
    Ok(0)
}

/// Submits these shards.
fn sbatch(dir: &Path, submission: &Submission, shards: &[usize]) -> Result<(), Failure> {
    let list = shards.iter().map(ToString::to_string).collect::<Vec<_>>().join(",");
    let ran = Command::new("sbatch")
        .args(&submission.sbatch)
        .arg(format!("--array={list}"))
        .arg(dir.join(JOB))
        .output();
    let failure = |what: String| Failure {
        message: format!("{what}; the job is {}", dir.join(JOB).display()),
        status: status::NO_OUTPUT,
    };
    let out = ran.map_err(|error| failure(format!("sbatch cannot be run: {error}")))?;
    if !out.status.success() {
        let said = String::from_utf8_lossy(&out.stderr);
        let said = said.lines().last().unwrap_or("it does not say why");
        return Err(failure(format!("sbatch refused the job: {said}")));
    }
    output::text(&String::from_utf8_lossy(&out.stdout))
}

/// The script that runs one shard.
fn job(dir: &Path, submission: &Submission) -> Result<String, Failure> {
    let program = std::env::current_exe().map_err(|error| Failure {
        message: format!("cannot find the path of this program: {error}"),
        status: status::INTERNAL,
    })?;
    let quoted = |path: &Path| format!("'{}'", path.display().to_string().replace('\'', r"'\''"));
    let study = study_path(dir, submission);
    Ok(format!(
        "#!/bin/bash\n\
         #SBATCH --job-name=ptescope\n\
         #SBATCH --output={log}\n\
         exec {program} study {study} --shard \"$SLURM_ARRAY_TASK_ID/{shards}\" --resume --store {store} \\\n    \
         --json {dir}/shard-\"$SLURM_ARRAY_TASK_ID\".jsonl --jobs \"${{SLURM_CPUS_PER_TASK:-1}}\"\n",
        log = dir.join("shard-%a.log").display(),
        program = quoted(&program),
        study = quoted(&study),
        shards = submission.shards,
        store = quoted(&dir.join("store")),
        dir = quoted(dir),
    ))
}

fn study_path(dir: &Path, submission: &Submission) -> PathBuf {
    match submission.study.ends_with(".toml") {
        true => dir.join(&submission.study),
        false => PathBuf::from(&submission.study),
    }
}

/// How far a shard is.
struct Progress {
    shard: usize,
    points: usize,
    done: usize,
    failed: Vec<StudyRecord>,
}

impl Progress {
    fn is_complete(&self) -> bool {
        self.done == self.points
    }
}

/// Reads what was submitted, and the results of each shard.
fn look(dir: &Path) -> Result<(Submission, Vec<Progress>), Failure> {
    let path = dir.join(SUBMISSION);
    let text = fs::read_to_string(&path).map_err(|error| Failure {
        message: format!("{} holds no submitted study: {error}", dir.display()),
        status: status::NO_INPUT,
    })?;
    let submission: Submission = toml::from_str(&text).map_err(|error| Failure {
        message: format!("{}: {}", path.display(), error.message()),
        status: status::NO_ELF,
    })?;
    let study = Study::open(&study_path(dir, &submission).to_string_lossy())?;
    let points = study.points()?;
    let all = (1..=submission.shards)
        .map(|i| progress(dir, i, &shard(points.clone(), (i, submission.shards))))
        .collect::<Result<Vec<_>, _>>()?;
    Ok((submission, all))
}

fn progress(dir: &Path, shard: usize, points: &[Point]) -> Result<Progress, Failure> {
    let path = dir.join(format!("shard-{shard}.jsonl"));
    let text = match fs::read_to_string(&path) {
        Ok(text) => text,
        Err(error) if error.kind() == io::ErrorKind::NotFound => String::new(),
        Err(error) => return Err(cannot("read", &path, &error)),
    };
    let mut found = Progress { shard, points: points.len(), done: 0, failed: Vec::new() };
    for line in text.lines() {
        let record = StudyRecord::from_json_line(line).map_err(|error| Failure {
            message: format!("{}: {error}", path.display()),
            status: status::NO_ELF,
        })?;
        if !points.contains(&record.point) {
            continue;
        }
        match record.run {
            Some(_) => found.done += 1,
            None => found.failed.push(record),
        }
    }
    Ok(found)
}

pub(crate) fn status(dir: &Path) -> Result<u8, Failure> {
    let (_, all) = look(dir)?;
    let sum = |of: fn(&Progress) -> usize| all.iter().map(of).sum::<usize>();
    let (points, done, failed) = (sum(|p| p.points), sum(|p| p.done), sum(|p| p.failed.len()));
    let complete = all.iter().filter(|p| p.is_complete()).count();
    output::text(&format!(
        "{complete} of {} shards are complete; of {points} points {done} are done and {failed} failed.\n",
        all.len()
    ))?;
    for progress in all.iter().filter(|p| !p.is_complete()) {
        let Progress { shard, points, done, failed } = progress;
        let missing = points - done - failed.len();
        output::text(&format!("shard {shard}: {missing} missing, {} failed\n", failed.len()))?;
        for record in failed {
            let why = record.error.as_ref().map_or("", |error| error.message.as_str());
            output::text(&format!("  {}\n    {why}\n", record.command))?;
        }
    }
    Ok(if complete == all.len() { 0 } else { status::NO_INPUT })
}

pub(crate) fn rerun(dir: &Path) -> Result<u8, Failure> {
    let dir = &fs::canonicalize(dir).map_err(|error| cannot("find the directory", dir, &error))?;
    let (submission, all) = look(dir)?;
    let again: Vec<usize> = all.iter().filter(|p| !p.is_complete()).map(|p| p.shard).collect();
    if again.is_empty() {
        output::text("Every shard is complete.\n")?;
        return Ok(0);
    }
    sbatch(dir, &submission, &again)?;
    Ok(0)
}

fn cannot(what: &str, path: &Path, error: &io::Error) -> Failure {
    let message = format!("cannot {what} {}: {error}", path.display());
    Failure { message, status: status::NO_OUTPUT }
}
