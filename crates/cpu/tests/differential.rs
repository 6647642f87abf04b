//! The same static program natively on the host and on the emulated CPU: same output, same exit status.
//!
//! Skips, loudly, on a host that is not x86-64 or has no `gcc`.
#![allow(
    clippy::allow_attributes,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    clippy::print_stderr,
    missing_docs,
    unreachable_pub,
    reason = "test code"
)]

mod harness;

use cpu::Engine;
use harness::{End, Guest};
use std::path::{Path, PathBuf};
use std::process::Command;

/// Compiles a C source into the test's scratch directory; `None` if that is not possible here.
fn build(name: &str, source: &Path, flags: &[&str]) -> Option<PathBuf> {
    if std::env::consts::ARCH != "x86_64" {
        eprintln!("SKIPPED: the host is not x86-64");
        return None;
    }
    let out = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    let made = Command::new("gcc").args(flags).arg(source).arg("-o").arg(&out).arg("-lm").output();
    match made {
        Ok(o) if o.status.success() => Some(out),
        Ok(o) => panic!("gcc failed: {}", String::from_utf8_lossy(&o.stderr)),
        Err(e) => {
            eprintln!("SKIPPED: no gcc: {e}");
            None
        }
    }
}

fn guest_source(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/guests").join(name)
}

/// Runs natively and on both engines, and compares.
fn check(name: &str, source: &str, flags: &[&str]) {
    let Some(program) = build(name, &guest_source(source), flags) else { return };
    let native = Command::new(&program).output().expect("the program runs natively");
    let elf = std::fs::read(&program).expect("the program can be read");
    let mut retired = Vec::new();
    for engine in [Engine::Match, Engine::Threaded] {
        let mut guest = Guest::new(&elf, &[name]);
        guest.cpu.set_engine(engine);
        let end = guest.run(2_000_000_000);
        let out = String::from_utf8_lossy(&guest.out).into_owned();
        let expected = String::from_utf8_lossy(&native.stdout).into_owned();
        for (line, (ours, theirs)) in out.lines().zip(expected.lines()).enumerate() {
            assert_eq!(ours, theirs, "{name}, {engine:?}, line {}", line + 1);
        }
        assert_eq!(out.len(), expected.len(), "{name}, {engine:?}: length of the output");
        assert_eq!(end, End::Status(native.status.code().unwrap_or(-1)), "{name}, {engine:?}");
        retired.push((guest.retired, guest.bus.accesses));
    }
    assert_eq!(retired[0], retired[1], "{name}: both engines count the same");
}

#[test]
fn instructions_compute_what_the_host_computes() {
    check("insn_x86", "insn_x86.c", &["-O1", "-static", "-w"]);
}

#[test]
fn glibc_programs_print_what_they_print_natively() {
    check("libc_x86", "libc.c", &["-O2", "-static", "-pthread"]);
}

#[test]
fn optimised_vector_code_prints_what_it_prints_natively() {
    check("libc_x86_o3", "libc.c", &["-O3", "-static", "-pthread", "-ftree-vectorize"]);
}
