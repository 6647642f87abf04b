//! `ptescope run`.

use crate::args::RunArgs;
use crate::output::{self, Aside, Json, Terminal};
use crate::stat;
use report::Failure;
use study::{Program, RunRequest, status};
use units::ArchId;

pub(crate) fn run(args: &RunArgs) -> Result<u8, Failure> {
    let mut json = Json::open(args.json.as_deref())?;
    let request = request(args)?;
    let report = if json.is_stdout() {
        study::run(&request, &mut Aside)?
    } else {
        study::run(&request, &mut Terminal)?
    };
    json.write(&report.to_json().map_err(|error| internal(&error))?)?;
    if !json.is_stdout() {
        let detail = if args.stat { stat::Detail::Everything } else { stat::Detail::Main };
        output::note(&stat::render(&report, detail));
    }
    Ok(u8::try_from(report.exit.status).unwrap_or(u8::MAX))
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
        max_instructions: args.max_instructions,
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
