//! `ptescope run`.

use crate::args::RunArgs;
use crate::output::{self, Aside, Json, Terminal};
use crate::stat;
use events::{TraceLimits, TraceLog};
use report::Failure;
use std::path::Path;
use study::{Program, RunRequest, status};
use units::ArchId;

pub(crate) fn run(args: &RunArgs) -> Result<u8, Failure> {
    let mut json = Json::open(args.json.as_deref())?;
    args.trace.as_deref().map_or(Ok(()), output::probe)?;
    let request = request(args)?;
    let (report, trace) = if json.is_stdout() {
        study::run_traced(&request, &mut Aside)?
    } else {
        study::run_traced(&request, &mut Terminal)?
    };
    if let (Some(path), Some(log)) = (&args.trace, &trace) {
        write_trace(path, log)?;
    }
    json.write(&report.to_json().map_err(|error| internal(&error))?)?;
    if !json.is_stdout() {
        let detail = if args.stat { stat::Detail::Everything } else { stat::Detail::Main };
        output::note(&stat::render(&report, detail));
    }
    Ok(u8::try_from(report.exit.status).unwrap_or(u8::MAX))
}

/// Writes a trace, and says what is not in it.
fn write_trace(path: &Path, log: &TraceLog) -> Result<(), Failure> {
    output::file(path, &report::perfetto::encode(log))?;
    let (entries, records) = (log.entries_skipped, log.records_skipped);
    if entries > 0 || records > 0 {
        output::note(&format!(
            "ptescope: the trace is a sample: {entries} kernel entries, and {records} steps inside others, are not drawn.\n"
        ));
    }
    Ok(())
}

fn request(args: &RunArgs) -> Result<RunRequest, Failure> {
    let program = Program::open(&args.program, guest_arch(args)?)?;
    let mut argv = vec![args.program.trim_start_matches('@').to_owned()];
    argv.extend(args.args.iter().cloned());
    Ok(RunRequest {
        arch: args.arch,
        kernel: args.kernel.clone(),
        machine: args.machine.clone(),
        cpus: args.cpus,
        mem_bytes: args.mem,
        swap_bytes: args.swap,
        thp: args.thp.clone(),
        set: args.set.clone(),
        write: args.write.clone(),
        uid: args.uid,
        env: args.env.clone(),
        seed: args.seed,
        check: args.check,
        engine: args.engine.into(),
        max_instructions: args.max_instructions,
        trace: args.trace.as_ref().map(|_| TraceLimits::DEFAULT),
        ..RunRequest::new(program, argv)
    })
}

/// Which build of a built-in guest to take.
fn guest_arch(args: &RunArgs) -> Result<ArchId, Failure> {
    if let Some(arch) = args.arch {
        return Ok(arch);
    }
    match &args.machine {
        Some(name) => study::machine_arch(name),
        None => Ok(ArchId::Arm64),
    }
}

fn internal(error: &dyn std::fmt::Display) -> Failure {
    let message = format!("internal error: the report is no JSON: {error}; please report it");
    Failure { message, status: status::INTERNAL }
}
