//! C programs for arm64, compiled here, against QEMU: the same output and the same exit status.
#![expect(clippy::print_stderr, reason = "a test that says what it skips")]

#[path = "harness/mod.rs"]
#[allow(
    dead_code,
    unreachable_pub,
    missing_docs,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    clippy::cast_possible_wrap,
    clippy::allow_attributes,
    reason = "shared between test programs"
)]
mod harness;

use cpu::Engine;
use harness::{End, Guest};
use std::path::{Path, PathBuf};
use std::process::Command;

const FREESTANDING: &[&str] =
    &["-ffreestanding", "-nostdlib", "-fno-stack-protector", "-mno-outline-atomics"];

/// Compiles a source beside this file; `None` without a cross compiler.
fn compile(source: &str, tag: &str, flags: &[&str]) -> Option<PathBuf> {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/arm64").join(source);
    let binary = std::env::temp_dir().join(format!("a64-program-{tag}-{}", std::process::id()));
    let built = Command::new("aarch64-linux-gnu-gcc")
        .arg("-static")
        .args(flags)
        .arg("-o")
        .args([&binary, &source])
        .args(["-lm", "-lgcc"])
        .output();
    let Ok(built) = built else {
        eprintln!("SKIPPED: aarch64-linux-gnu-gcc is not installed");
        return None;
    };
    assert!(built.status.success(), "{}", String::from_utf8_lossy(&built.stderr));
    Some(binary)
}

/// Runs the program on both engines and under QEMU.
fn check(source: &str, tag: &str, flags: &[&str]) {
    let Some(binary) = compile(source, tag, flags) else { return };
    let elf = std::fs::read(&binary).expect("the compiler wrote it");
    let reference = Command::new("qemu-aarch64").arg(&binary).arg("argument").output();
    let _ = std::fs::remove_file(&binary);
    let Ok(reference) = reference else {
        eprintln!("SKIPPED: qemu-aarch64 is not installed");
        return;
    };
    for engine in [Engine::Match, Engine::Threaded] {
        let mut guest = Guest::new(&elf, &["program", "argument"]);
        guest.cpu.set_engine(engine);
        let end = guest.run(2_000_000_000);
        let at = guest.cpu.state().pc;
        let text = String::from_utf8_lossy(&guest.out);
        assert_eq!(text, String::from_utf8_lossy(&reference.stdout), "{tag} {engine:?} {end:?}");
        assert_eq!(Some(end), reference.status.code().map(End::Status), "{tag} at {at:#x}");
    }
}

#[test]
fn freestanding_programs_print_what_qemu_prints() {
    for level in ["-O0", "-O1", "-O2", "-O3", "-Os"] {
        let flags = [FREESTANDING, &[level]].concat();
        check("freestanding.c", &level[1..], &flags);
    }
}

#[test]
fn fast_math_vector_code_prints_what_qemu_prints() {
    let flags = [FREESTANDING, &["-O3", "-ffast-math"]].concat();
    check("freestanding.c", "fast", &flags);
}

#[test]
fn inline_atomics_print_what_qemu_prints() {
    let flags = [FREESTANDING, &["-O2", "-march=armv8-a+lse"]].concat();
    check("freestanding.c", "lse", &flags);
}

#[test]
fn branch_protection_prints_what_qemu_prints() {
    let flags = [FREESTANDING, &["-O2", "-mbranch-protection=standard"]].concat();
    check("freestanding.c", "bti", &flags);
}

#[test]
fn a_static_glibc_program_prints_what_qemu_prints() {
    check("libc.c", "glibc", &["-O2"]);
    check("libc.c", "glibc-lse", &["-O2", "-march=armv8-a+lse"]);
}
