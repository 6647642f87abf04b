//! `ptescope calibrate`.

use crate::args::CalibrateArgs;
use crate::output::{self, Json};
use crate::study_cmd::{bar, host_cores};
use report::Failure;
use std::fs;
use study::calibrate::{Calibration, calibrate_host, calibrate_work};
use study::{Observation, status};

pub(crate) fn calibrate(args: &CalibrateArgs) -> Result<u8, Failure> {
    let mut out = Json::open(args.out.as_deref())?;
    let (toml, text) = match &args.work {
        Some(path) => work(args, path)?,
        None if args.host => host(args)?,
        None => published(args)?,
    };
    out.write(&toml)?;
    if out.is_stdout() {
        output::note(&text);
    } else {
        output::text(&text)?;
    }
    Ok(0)
}

/// The file to write, and what to say.
type Done = (String, String);

fn published(args: &CalibrateArgs) -> Result<Done, Failure> {
    let rows = match &args.observations {
        Some(path) => {
            let rows = Observation::parse(&read(path, "measured times", "observations.toml")?);
            rows.map_err(|error| Failure {
                message: format!(
                    "{path} holds no measured times: {}",
                    error.trim().replace('\n', " ")
                ),
                status: status::NO_ELF,
            })?
        }
        None => Observation::all(),
    };
    let bar = bar(Calibration::runs(&rows));
    let jobs = args.jobs.unwrap_or_else(host_cores);
    let calibration = Calibration::of(&rows, jobs, &mut |what| {
        bar.set_message(what.to_owned());
        bar.inc(1);
    })?;
    bar.finish_and_clear();
    let calibrated = calibration.fit(args.bench.as_deref())?;
    Ok((calibrated.toml, calibrated.text))
}

fn host(args: &CalibrateArgs) -> Result<Done, Failure> {
    let bar = bar(1);
    let jobs = args.jobs.unwrap_or_else(host_cores);
    let done = calibrate_host(args.set_thp, jobs, &mut |what| bar.set_message(what.to_owned()))?;
    bar.finish_and_clear();
    Ok((done.toml, done.text))
}

fn work(args: &CalibrateArgs, path: &str) -> Result<Done, Failure> {
    let text = read(path, "executed instructions", "executed-linux-6.12.toml")?;
    let jobs = args.jobs.unwrap_or_else(host_cores);
    let done = calibrate_work(&text, jobs, &mut |_| ())?;
    Ok((done.toml, done.text))
}

fn read(path: &str, what: &str, like: &str) -> Result<String, Failure> {
    fs::read_to_string(path).map_err(|error| Failure {
        message: format!("cannot read the {what} {path}: {error}; give a file like data/{like}"),
        status: status::NO_INPUT,
    })
}
