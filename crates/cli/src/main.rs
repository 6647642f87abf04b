//! `ptescope`: runs programs on emulated CPUs over real page tables, and counts every touch.
//!
//! This crate parses the command line, opens files and prints; what happens is `study`'s and
//! `machine`'s business. A failure is one sentence on stderr and an exit status of
//! [`study::status`]; otherwise the exit status of `run` is the guest's.

mod args;
mod calibrate_cmd;
mod explain_cmd;
mod lists;
mod output;
mod run;
mod scoreboard_cmd;
mod slurm;
mod stat;
mod study_cmd;
mod walk;

use args::{Cli, Command};
use clap::Parser;
use report::Failure;
use std::process::ExitCode;

fn main() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => return usage(&error),
    };
    let result = match cli.command {
        Command::Run(args) => run::run(&args),
        Command::Study(args) => study_cmd::study(&args),
        Command::Explain(args) => explain_cmd::explain(&args),
        Command::Scoreboard(args) => scoreboard_cmd::scoreboard(&args),
        Command::Calibrate(args) => calibrate_cmd::calibrate(&args),
        Command::Walk(args) => walk::walk(&args),
        Command::Machines(args) => lists::machines(args.name.as_deref()),
        Command::Kernels => lists::kernels(),
        Command::Events => lists::events(),
        Command::Guests => lists::guests(),
    };
    match result {
        Ok(status) => ExitCode::from(status),
        Err(Failure { message, status }) => {
            output::error(&message);
            ExitCode::from(status)
        }
    }
}

/// Help and version go to stdout; a mistake becomes one sentence.
fn usage(error: &clap::Error) -> ExitCode {
    if !error.use_stderr() {
        return match output::text(&error.render().to_string()) {
            Ok(()) => ExitCode::SUCCESS,
            Err(failure) => ExitCode::from(failure.status),
        };
    }
    output::error(&args::one_sentence(&error.render().to_string()));
    ExitCode::from(study::status::USAGE)
}
