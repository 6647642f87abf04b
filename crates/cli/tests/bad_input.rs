//! What goes wrong ends in one sentence on stderr and the documented exit status.

use std::path::PathBuf;
use std::process::{Command, Output};

const HELLO: &str = "../../guest-programs/prebuilt/x86_64/hello";

fn ptescope(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_ptescope")).args(args).output().expect("runs")
}

/// Runs and compares the status, and what the last line on stderr says.
fn check(args: &[&str], status: i32, part: &str) {
    let output = ptescope(args);
    let said = String::from_utf8(output.stderr).expect("text");
    assert_eq!(output.status.code(), Some(status), "{args:?}: {said}");
    let last = said.lines().last().unwrap_or_default();
    assert!(last.starts_with("ptescope: ") && last.contains(part), "{args:?}: {said}");
    assert!(last.ends_with('.') && !said.contains("panicked"), "{args:?}: {said}");
}

/// A file of these bytes in the test's own directory.
fn file(name: &str, bytes: &[u8]) -> String {
    let path = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(name);
    std::fs::write(&path, bytes).expect("writes");
    path.to_str().expect("text").to_owned()
}

/// A program with some bytes replaced.
fn patched(name: &str, at: usize, bytes: &[u8]) -> String {
    let mut elf = std::fs::read(HELLO).expect("prebuilt");
    elf[at..][..bytes.len()].copy_from_slice(bytes);
    file(name, &elf)
}

#[test]
fn files_that_are_no_programs_end_with_65() {
    let elf = std::fs::read(HELLO).expect("prebuilt");
    check(&["run", &file("empty", b"")], 65, "empty");
    check(&["run", &file("text", b"#!/bin/sh\necho hello\n")], 65, "not an ELF file");
    check(&["run", &file("header-only", &elf[..40])], 65, "truncated");
    check(&["run", &file("half", &elf[..3000])], 65, "truncated");
    check(&["run", &patched("elf32", 4, &[1])], 65, "32-bit");
    check(&["run", &patched("riscv", 18, &[243, 0])], 65, "243");
    check(&["run", "--machine", "neoverse-n1", HELLO], 65, "is a program for x86_64");
}

#[test]
fn files_that_cannot_be_read_end_with_66() {
    check(&["run", "/nowhere/at/all"], 66, "/nowhere/at/all");
    check(&["run", "/"], 66, "cannot read");
}

#[test]
fn unknown_names_end_with_2_and_list_the_known_ones() {
    check(&["run", "--kernel", "v5.0", "@hello"], 2, "v6.12");
    check(&["run", "--kernel", "v7.3+magic", "@hello"], 2, "anon-unmap-batch");
    check(&["run", "--machine", "zen9", "@hello"], 2, "zen2");
    check(&["run", "@helo"], 2, "@hello");
    check(&["study", "pagein"], 2, "pageout");
    check(&["run", "--set", "machine.magic=on", "@hello"], 2, "tlbirange");
    check(&["run", "--set", "kernel.magic=on", "@hello"], 2, "contpte");
    check(&["run", "--arch", "riscv", "@hello"], 2, "x86_64");
    check(&["machines", "zen9"], 2, "zen2");
}

#[test]
fn absurd_memory_ends_with_2() {
    check(&["run", "--mem", "0", "@hello"], 2, "too small");
    check(&["run", "--mem", "1E", "@hello"], 2, "too large");
    check(&["run", "--mem", "much", "@hello"], 2, "is no size");
}

#[test]
fn outputs_that_cannot_be_created_end_with_73_before_the_run() {
    for command in
        [&["run", "--json", "/nowhere/x.json", "@hello"][..], &["study", "pageout", "--json", "/"]]
    {
        let output = ptescope(command);
        assert_eq!(output.status.code(), Some(73));
        assert!(output.stdout.is_empty());
    }
    check(&["run", "--json", "/nowhere/x.json", "@hello"], 73, "/nowhere/x.json");
}

#[test]
fn a_guest_that_loops_ends_with_75_at_the_limit() {
    for arch in ["arm64", "x86_64"] {
        let limit = ["run", "--arch", arch, "--max-instructions", "100000", "@spin"];
        check(&limit, 75, "--max-instructions 100000");
    }
}

#[test]
fn a_guest_that_jumps_to_nowhere_ends_as_by_a_signal() {
    for arch in ["arm64", "x86_64"] {
        let output = ptescope(&["run", "--arch", arch, "@wild"]);
        assert_eq!(output.status.code(), Some(139), "{arch}");
    }
}

#[test]
fn a_run_is_the_same_json_twice_and_keeps_the_guests_output_apart() {
    for arch in ["arm64", "x86_64"] {
        let command = ["run", "--arch", arch, "--json", "-", "@hello", "you"];
        let (first, second) = (ptescope(&command), ptescope(&command));
        assert_eq!(first.status.code(), Some(0));
        assert_eq!(first.stdout, second.stdout);
        let text = String::from_utf8(first.stdout).expect("text");
        let report = report::RunReport::from_json(&text).expect("ptescope.run/1");
        assert_eq!((report.arch.as_str(), report.exit.status), (arch, 0));
        assert_eq!(report.guest.argv, ["hello", "you"]);
        assert_eq!(String::from_utf8_lossy(&first.stderr), "hello, you\n");
    }
}

#[test]
fn reports_that_cannot_be_explained_say_why() {
    check(&["explain", "/nowhere/a.json", "/nowhere/b.json"], 66, "/nowhere/a.json");
    let text = file("no-report.json", b"{\"schema\":\"ptescope.run/9\"}");
    check(&["explain", &text, &text], 65, "is no report of a run");
    let words = file("words.json", b"words");
    check(&["explain", &words, &words], 65, "words.json");
    check(&["explain", &words], 2, "B.json");
    check(&["scoreboard", "--jobs", "0"], 2, "--jobs");
}

#[test]
fn two_reports_are_explained_and_a_counterfactual_runs_them_again() {
    let run = |name: &str, thp: &str| {
        let path = file(name, b"");
        let run =
            ["run", "--machine", "apple-m3-vm", "--thp", thp, "--json", &path, "@pageout", "4"];
        assert_eq!(ptescope(&run).status.code(), Some(0));
        path
    };
    let (a, b) = (run("explain-4k.json", "2M=never"), run("explain-64k.json", "64kB=always"));
    let output = ptescope(&["explain", "--without", "contpte", "--json", "-", &a, &b]);
    let said = String::from_utf8(output.stderr).expect("text");
    assert_eq!(output.status.code(), Some(0), "{said}");
    assert!(said.contains("Counterfactual, without contpte: A takes "), "{said}");
    let json = String::from_utf8(output.stdout).expect("text");
    assert!(json.contains("\"schema\": \"ptescope.explain/1\""), "{json}");
    check(&["explain", "--only", "munmap", &a, &b], 2, "there are");
    check(&["explain", "--without", "contptes", &a, &b], 2, "known: access_flags");
    check(&["explain", "--json", "/nowhere/x.json", &a, &b], 73, "/nowhere/x.json");
}
