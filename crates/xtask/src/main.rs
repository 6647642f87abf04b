//! The chores of this repository: `cargo run -p xtask -- TASK`.
//!
//! - `guests [--update]` rebuilds the guest programs and compares them with the ones checked in.
//! - `guests --glibc DIR` builds the same programs on glibc, for tests.
//! - `selftests build DIR [PROGRAM…]` fetches and builds Linux's mm selftests, `selftests run` compares.
//! - `tidy` checks the rules of the house that no compiler checks.

#![expect(clippy::print_stdout, clippy::print_stderr, reason = "xtask talks to a person")]

mod elf;
mod guests;
mod manifest;
mod rust_text;
mod selftests;
mod tidy;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

const USAGE: &str = "usage: cargo run -p xtask -- TASK
tasks:
  guests               rebuild the guest programs; fail if they differ from the ones checked in
  guests --update      rebuild them and check in the result
  guests --glibc DIR   build them on glibc, to DIR/<arch>/<name>
  selftests build DIR [PROGRAM...]
                       fetch Linux's mm selftests and build them to DIR/<arch>/<program>
  selftests run DIR [--all] [--update] [PROGRAM...]
                       run them under ptescope and compare with docs/selftests.md; with --update,
                       write the table there
  tidy                 check dependency arrows, fidelity marks and forbidden words";

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    let root = repository();
    let done = match args[..] {
        ["guests"] => guests::check(&root),
        ["guests", "--update"] => guests::update(&root),
        ["guests", "--glibc", dir] => guests::build_glibc(&root, Path::new(dir)),
        ["selftests", "build", dir, ref only @ ..] => selftests::build(Path::new(dir), only),
        ["selftests", "run", dir, ref words @ ..] => selftests::run(&root, Path::new(dir), words),
        ["tidy"] => tidy::check(&root),
        _ => {
            eprintln!("{USAGE}");
            return ExitCode::from(2);
        }
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("xtask {}: {error:#}", args.join(" "));
            ExitCode::FAILURE
        }
    }
}

/// The root of the checkout that this is run in.
fn repository() -> PathBuf {
    let here = std::env::var_os("CARGO_MANIFEST_DIR")
        .map_or_else(|| PathBuf::from(env!("CARGO_MANIFEST_DIR")), PathBuf::from);
    here.ancestors().nth(2).map_or_else(|| PathBuf::from("."), Path::to_path_buf)
}
