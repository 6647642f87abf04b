//! Studies from files: what survives a kill, a failing point and a split into shards.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::Duration;

/// A directory of its own for each test.
fn directory(name: &str) -> PathBuf {
    let dir = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("study-{name}"));
    let _ = fs::remove_dir_all(&dir);
    fs::create_dir_all(&dir).expect("a directory");
    dir
}

fn ptescope(dir: &Path, args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_ptescope"));
    command.current_dir(dir).args(args).env("XDG_CACHE_HOME", dir.join("cache"));
    command
}

fn run(dir: &Path, args: &[&str]) -> Output {
    ptescope(dir, args).output().expect("runs")
}

fn succeed(dir: &Path, args: &[&str]) -> String {
    let output = run(dir, args);
    let said = String::from_utf8(output.stderr).expect("text");
    assert!(output.status.success(), "{args:?}: {said}");
    said
}

/// A study of `points` short runs.
fn write_study(dir: &Path, points: usize) {
    let seeds: Vec<String> = (0..points / 2).map(|seed| seed.to_string()).collect();
    let text = format!(
        "name = \"many\"\ntitle = \"Many short runs\"\nshow = {{ x = \"seed\" }}\n[[matrix]]\n\
         program = \"@hello\"\nmachines = [\"neoverse-n1\", \"zen2\"]\nmem = \"16M\"\nseeds = [{}]\n",
        seeds.join(", ")
    );
    fs::write(dir.join("many.toml"), text).expect("writes");
}

/// The finished runs of a store, temporary files not among them.
fn finished(store: &Path) -> usize {
    let Ok(entries) = fs::read_dir(store) else { return 0 };
    let files = |dir: fs::DirEntry| fs::read_dir(dir.path()).into_iter().flatten().flatten();
    let files = entries.flatten().flat_map(files);
    files.filter(|file| !file.file_name().to_string_lossy().starts_with('.')).count()
}

/// Waits until a store has that many runs.
fn wait_for(store: &Path, runs: usize) {
    for _ in 0..6000 {
        if finished(store) >= runs {
            return;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    panic!("{} of {runs} runs in a minute", finished(store));
}

#[test]
fn a_killed_study_of_500_points_resumes_where_it_was() {
    let dir = directory("killed");
    write_study(&dir, 500);
    let args = ["study", "many.toml", "--store", "store", "--json", "many.jsonl", "--resume"];
    // The moment is a different one for each build; the process is killed without warning, three times.
    let moment = std::process::id() as usize % 97;
    for kill in 1..=3 {
        let mut child = ptescope(&dir, &args).stdout(Stdio::null()).spawn().expect("starts");
        wait_for(&dir.join("store"), kill * 100 + moment);
        child.kill().expect("SIGKILL");
        child.wait().expect("is gone");
        assert!(!dir.join("many.jsonl").exists(), "results appear only when they are whole");
    }
    let before = finished(&dir.join("store"));
    assert!((300..500).contains(&before), "killed with {before} runs done");

    let said = succeed(&dir, &args);
    let expected = format!("500 points: {before} were in the store, {} were run", 500 - before);
    assert!(said.contains(&expected), "{said} instead of {expected}");
    assert_eq!(finished(&dir.join("store")), 500);

    let resumed = fs::read(dir.join("many.jsonl")).expect("results");
    let fresh = ["study", "many.toml", "--store", "other", "--json", "fresh.jsonl", "--jobs", "1"];
    succeed(&dir, &fresh);
    assert!(resumed == fs::read(dir.join("fresh.jsonl")).expect("results"), "other results");
    assert_eq!(resumed.iter().filter(|&&byte| byte == b'\n').count(), 500);
}

#[test]
fn outputs_are_the_same_bytes_whatever_the_number_of_jobs() {
    let dir = directory("bytes");
    write_study(&dir, 12);
    for jobs in ["1", "5"] {
        let (json, csv) = (format!("{jobs}.jsonl"), format!("{jobs}.csv"));
        let outputs = ["--json", &json, "--csv", &csv, "--html", jobs, "--jobs", jobs];
        succeed(&dir, &[&["study", "many.toml"][..], &outputs].concat());
    }
    let same =
        |a: &str, b: &str| fs::read(dir.join(a)).expect(a) == fs::read(dir.join(b)).expect(b);
    assert!(same("1.jsonl", "5.jsonl") && same("1.csv", "5.csv"));
    assert!(same("1/index.html", "5/index.html"));
}

#[test]
fn a_failing_point_is_recorded_and_the_others_stay() {
    let dir = directory("failing");
    let text = "name = \"f\"\ntitle = \"One fails\"\nshow = { x = \"arg\" }\n[[matrix]]\nprogram = \"@munmap\"\n\
                machines = [\"zen2\"]\nargs = [[\"1\"], [\"nonsense\"], [\"2\"]]\n";
    fs::write(dir.join("f.toml"), text).expect("writes");
    let args =
        ["study", "f.toml", "--json", "f.jsonl", "--csv", "f.csv", "--html", "f", "--resume"];
    for _ in 0..2 {
        let output = run(&dir, &args);
        let table = String::from_utf8(output.stdout).expect("text");
        assert_eq!(output.status.code(), Some(2), "{table}");
        assert!(table.contains("FAILED: zen2") && table.contains("ended with status 2"), "{table}");
        let lines = fs::read_to_string(dir.join("f.jsonl")).expect("results");
        let ran = |line: &&str| line.contains("\"run\":");
        assert_eq!((lines.lines().count(), lines.lines().filter(ran).count()), (3, 2));
        let page = fs::read_to_string(dir.join("f/index.html")).expect("a page");
        assert!(page.contains("Failed: <a href=\"#r1\">"), "{page}");
    }
    let said = String::from_utf8(run(&dir, &args).stderr).expect("text");
    assert!(said.contains("3 points: 2 were in the store, 1 were run"), "{said}");
}

#[test]
fn shards_merge_into_the_results_of_one_run() {
    let dir = directory("shards");
    write_study(&dir, 10);
    succeed(&dir, &["study", "many.toml", "--json", "whole.jsonl"]);
    for shard in ["1/3", "2/3", "3/3"] {
        let json = format!("{}.jsonl", &shard[..1]);
        succeed(&dir, &["study", "many.toml", "--shard", shard, "--json", &json]);
    }
    let merge = ["study", "merge", "many.toml", "--json", "merged.jsonl"];
    succeed(&dir, &[&merge[..], &["3.jsonl", "1.jsonl", "2.jsonl"]].concat());
    let whole = fs::read(dir.join("whole.jsonl")).expect("results");
    assert!(whole == fs::read(dir.join("merged.jsonl")).expect("results"));

    let output = run(&dir, &[&merge[..], &["3.jsonl", "1.jsonl"]].concat());
    let said = String::from_utf8(output.stderr).expect("text");
    assert_eq!(output.status.code(), Some(66), "{said}");
    assert!(said.contains("3 of 10 points are in none of the files"), "{said}");
}

#[test]
fn mistakes_end_in_one_sentence() {
    let dir = directory("mistakes");
    write_study(&dir, 2);
    fs::write(dir.join("bad.toml"), "name = 1").expect("writes");
    for (args, status, part) in [
        (&["study", "bad.toml"][..], 2, "bad.toml"),
        (&["study"], 2, "which study? known: contpte-break-even"),
        (&["study", "none.toml"], 66, "cannot read the study none.toml"),
        (&["study", "many.toml", "--shard", "3/2"], 2, "no shard"),
        (&["study", "many.toml", "--csv", "/nowhere/x.csv"], 73, "/nowhere/x.csv"),
        (&["study", "many.toml", "--html", "/proc/x"], 73, "/proc/x"),
        (&["study", "many.toml", "--store", "/proc/x"], 73, "store"),
        (&["study", "merge", "many.toml", "none.jsonl"], 66, "none.jsonl"),
        (&["study", "merge", "many.toml", "bad.toml"], 65, "bad.toml line 1"),
    ] {
        let output = run(&dir, args);
        let said = String::from_utf8(output.stderr).expect("text");
        assert_eq!(output.status.code(), Some(status), "{args:?}: {said}");
        let last = said.lines().last().unwrap_or_default();
        assert!(last.starts_with("ptescope: ") && last.contains(part), "{args:?}: {said}");
    }
}

#[cfg(not(feature = "parquet"))]
#[test]
fn a_build_without_parquet_says_so_before_it_runs_anything() {
    let dir = directory("parquet");
    write_study(&dir, 2);
    let output = run(&dir, &["study", "many.toml", "--parquet", "x.parquet"]);
    let said = String::from_utf8(output.stderr).expect("text");
    assert!(said.contains("--features parquet"), "{said}");
    assert_eq!(output.status.code(), Some(2));
    assert!(!dir.join("cache").exists());
}

/// A stand-in for Slurm: runs the jobs of an array one after the other, and leaves out those in $DROP.
const SBATCH: &str = r#"#!/bin/bash
for arg; do case $arg in --array=*) list=${arg#*=} ;; *.sh) job=$arg ;; esac; done
for SLURM_ARRAY_TASK_ID in ${list//,/ }; do
    export SLURM_ARRAY_TASK_ID
    [[ " $DROP " == *" $SLURM_ARRAY_TASK_ID "* ]] || bash "$job" >/dev/null 2>&1
done
echo "Submitted batch job 1 ($list)"
"#;

#[test]
fn a_slurm_array_is_submitted_watched_and_finished() {
    use std::os::unix::fs::PermissionsExt;
    let dir = directory("slurm");
    write_study(&dir, 10);
    let bin = dir.join("bin");
    fs::create_dir(&bin).expect("a directory");
    fs::write(bin.join("sbatch"), SBATCH).expect("writes");
    fs::set_permissions(bin.join("sbatch"), fs::Permissions::from_mode(0o755)).expect("a program");
    let path = format!("{}:{}", bin.display(), std::env::var("PATH").unwrap_or_default());
    let with_slurm = |args: &[&str], drop: &str| {
        let output = ptescope(&dir, args).env("PATH", &path).env("DROP", drop).output();
        let output = output.expect("runs");
        let said = [output.stdout, output.stderr].concat();
        (output.status.code(), String::from_utf8(said).expect("text"))
    };
    let submit = ["study", "submit", "many.toml", "--slurm", "jobs", "--shards", "4"];
    let (code, said) = with_slurm(&submit, "2 3");
    assert_eq!((code, said.as_str()), (Some(0), "Submitted batch job 1 (1,2,3,4)\n"));
    // The study is a copy: what happens to the file afterwards does not matter.
    fs::remove_file(dir.join("many.toml")).expect("removes");
    let (code, said) = with_slurm(&["study", "status", "jobs"], "");
    assert_eq!(code, Some(66), "{said}");
    assert!(
        said.starts_with("2 of 4 shards are complete; of 10 points 5 are done and 0 failed."),
        "{said}"
    );
    let (code, said) = with_slurm(&["study", "rerun", "jobs"], "");
    assert_eq!((code, said.as_str()), (Some(0), "Submitted batch job 1 (2,3)\n"));
    let (code, said) = with_slurm(&["study", "status", "jobs"], "");
    assert_eq!(code, Some(0), "{said}");
    assert!(said.contains("of 10 points 10 are done"), "{said}");
    let shards: Vec<String> = (1..=4).map(|i| format!("jobs/shard-{i}.jsonl")).collect();
    let mut merge = vec!["study", "merge", "jobs/study.toml", "--json", "all.jsonl"];
    merge.extend(shards.iter().map(String::as_str));
    succeed(&dir, &merge);
    assert_eq!(fs::read_to_string(dir.join("all.jsonl")).expect("results").lines().count(), 10);
    let (code, said) = with_slurm(&["study", "rerun", "jobs"], "");
    assert_eq!((code, said.as_str()), (Some(0), "Every shard is complete.\n"));
    let (code, said) = with_slurm(&["study", "status", "bin"], "");
    assert!(code == Some(66) && said.contains("holds no submitted study"), "{said}");
}
