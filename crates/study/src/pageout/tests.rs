use super::*;
use events::{ByOp, Counters, Op, Sink};
use report::{
    EventCounts, Exit, Failure, Guest, Point, RUN_SCHEMA, RunReport, STUDY_SCHEMA, Settings, Time,
};
use std::collections::BTreeMap;

/// A run whose madvise call counted `events`, and `unfold` inside a contpte unfold.
fn record(point: &Point, events: &[(Event, u64)], unfold: &[(Event, u64)]) -> StudyRecord {
    let mut sink = ByOp::new();
    sink.begin(SYSCALL);
    events.iter().for_each(|&(e, n)| sink.add(e, n));
    sink.enter(Op::TryToUnmapOne);
    sink.enter(Op::ContpteUnfold);
    unfold.iter().for_each(|&(e, n)| sink.add(e, n));
    sink.exit();
    sink.exit();
    sink.end();
    let (by_syscall, faults) = RunReport::split(&sink);
    let run = RunReport {
        arch: point.arch.clone(),
        by_syscall,
        cpus: 1,
        dmesg: Vec::new(),
        events: EventCounts::from(&Counters::new()),
        exit: Exit { signal: None, status: 0 },
        faults,
        guest: Guest::default(),
        instructions: 0,
        kernel: point.kernel.clone(),
        machine: point.machine.clone(),
        ptescope: String::new(),
        schema: RUN_SCHEMA.to_owned(),
        settings: Settings::default(),
        thp: BTreeMap::new(),
        time: Time::default(),
        tlb: BTreeMap::new(),
        unsupported: Vec::new(),
        vmstat: BTreeMap::new(),
        warnings: Vec::new(),
    };
    let (schema, study) = (STUDY_SCHEMA.to_owned(), NAME.to_owned());
    StudyRecord { point: point.clone(), run: Some(run), schema, study, ..StudyRecord::default() }
}

/// Made-up runs: 10 flushes per folio page by page, one batched; 4K the same in both.
fn records() -> Vec<StudyRecord> {
    let of = |point: &Point| {
        let folios = PAGES / (point.folio_kb / 4);
        let batched = point.kernel != KERNELS[0] && point.folio_kb != 4;
        let n = if batched { folios } else { 9 * folios };
        let unfolds = if batched || point.folio_kb == 4 { 0 } else { folios };
        let mut events = vec![(Event::FnPageout, folios), (Event::PageScanZero, PAGES)];
        if point.arch == "arm64" {
            events.extend([(Event::TlbiVale1is, n), (Event::DsbIshst, n), (Event::DsbIsh, folios)]);
            record(point, &events, &[(Event::TlbiRvale1is, unfolds)])
        } else {
            let full = batched && point.folio_kb > 64;
            events.extend([
                (Event::Invlpg, if full { 0 } else { 9 * folios }),
                (Event::Cr3Reload, if full { folios } else { 0 }),
                (Event::FnFlushTlbMmRange, n),
                (Event::AnonExclusiveBarrier, 2 * n),
            ]);
            record(point, &events, &[])
        }
    };
    points().iter().map(of).collect()
}

fn points() -> Vec<Point> {
    crate::Study::open(NAME).and_then(|study| study.points()).expect("built in")
}

#[test]
fn the_matrix_is_that_of_the_table() {
    let points = points();
    assert_eq!(points.len(), MACHINES.len() * FOLIO_KB.len() * KERNELS.len());
    for point in points {
        assert_eq!((point.program.as_str(), point.args.join(" ")), ("@pageout", MIB.to_string()));
        assert!(MACHINES.iter().any(|m| m.0.name() == point.arch && m.1 == point.machine));
        assert!(FOLIO_KB.contains(&point.folio_kb) && KERNELS.contains(&point.kernel.as_str()));
    }
}

#[test]
fn the_table_fits_and_shows_both_architectures_side_by_side() {
    let text = render(&records());
    for line in text.lines() {
        assert!(line.chars().count() <= WIDTH, "{line}");
        assert_eq!(line, line.trim_end());
    }
    let row = |label: &str, nr: usize| {
        let line = text.lines().filter(|l| l.trim_start().starts_with(label)).nth(nr);
        line.unwrap_or_default().split_whitespace().collect::<Vec<_>>().join(" ")
    };
    assert_eq!(
        row("64K folios (4,096)", 0),
        "64K folios (4,096) vanilla → batched vanilla → batched"
    );
    assert_eq!(row("TLBI, page or range", 1), "TLBI, page or range 10 → 1");
    assert_eq!(row("INVLPG", 1), "INVLPG 9 → 9");
    assert_eq!(row("CR3 reloads", 0), "CR3 reloads 0 → 1");
    assert_eq!(row("published", 1), "published 2.15× 1.06×");
}

#[test]
fn sentences_come_from_the_counts() {
    let text = render(&records()).split_whitespace().collect::<Vec<_>>().join(" ");
    for part in [
        "arm64, 64K folios: 10 → 1 TLBI per folio.",
        "which costs 1 of the 10; the other 9 are one for each page",
        "x86_64, 64K folios: the same 9 INVLPG per folio in both kernels: 9 requests",
        "1M: 9 INVLPG become 0 and 1 CR3 reloads per folio",
        "4K folios: the same page-table accesses, flushes",
        "What is left is mostly comparison of pages with zero",
    ] {
        assert!(text.contains(part), "no \"{part}\" in: {text}");
    }
}

#[test]
fn a_failed_point_is_named_and_the_others_stay() {
    let mut records = records();
    records[2].run = None;
    records[2].error = Some(Failure { message: "out of luck".to_owned(), status: 70 });
    let text = render(&records);
    assert!(text.contains("FAILED: arm64 v7.3 64K: out of luck"), "{text}");
    assert!(text.contains("failed"), "{text}");
    assert!(text.contains("INVLPG"), "{text}");
}
