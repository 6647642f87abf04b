use super::*;
use events::{ByOp, Op, Sink};
use report::{Exit, Guest, RUN_SCHEMA, Settings, Time};

/// A run of `pageout` whose madvise call counted `events`, and `unfold` inside a contpte unfold.
fn run(arch: ArchId, events: &[(Event, u64)], unfold: &[(Event, u64)]) -> RunReport {
    let mut sink = ByOp::new();
    sink.begin("madvise(MADV_PAGEOUT)");
    sink.add(Event::SyscallTrap, 1);
    sink.enter(Op::ReclaimPages);
    events.iter().for_each(|&(e, n)| sink.add(e, n));
    sink.enter(Op::TryToUnmapOne);
    sink.enter(Op::ContpteUnfold);
    unfold.iter().for_each(|&(e, n)| sink.add(e, n));
    sink.exit();
    sink.exit();
    sink.exit();
    sink.end();
    sink.begin("fault");
    sink.add(Event::PageZero, 16);
    sink.end();
    sink.add(Event::FolioLock, 3);
    let (by_syscall, faults) = RunReport::split(&sink);
    let argv = vec!["pageout".to_owned(), "1".to_owned()];
    let machine = if arch == ArchId::Arm64 { "apple-m3-vm" } else { "x86-bare-metal" };
    RunReport {
        arch: arch.name().to_owned(),
        by_syscall,
        cpus: 1,
        dmesg: Vec::new(),
        events: EventCounts::from(&sink.total()),
        exit: Exit { signal: None, status: 0 },
        faults,
        guest: Guest { argv, path: "@pageout".to_owned(), sha256: "0".to_owned() },
        instructions: 1000,
        kernel: "v7.3".to_owned(),
        machine: machine.to_owned(),
        ptescope: String::new(),
        schema: RUN_SCHEMA.to_owned(),
        settings: Settings::default(),
        thp: BTreeMap::new(),
        time: Time::default(),
        tlb: BTreeMap::new(),
        unsupported: Vec::new(),
        vmstat: BTreeMap::new(),
        warnings: Vec::new(),
    }
}

fn vanilla() -> RunReport {
    let events = [
        (Event::FnPageout, 4),
        (Event::TlbiVale1is, 64),
        (Event::DsbIshst, 64),
        (Event::DsbIsh, 4),
        (Event::PageScanZero, 64),
    ];
    run(ArchId::Arm64, &events, &[(Event::TlbiRvale1is, 4), (Event::PteWrite, 64)])
}

fn batched() -> RunReport {
    let events = [
        (Event::FnPageout, 4),
        (Event::TlbiRvale1is, 4),
        (Event::DsbIshst, 4),
        (Event::DsbIsh, 4),
        (Event::PageScanZero, 64),
        (Event::PteXchg, 64),
    ];
    run(ArchId::Arm64, &events, &[])
}

fn x86() -> RunReport {
    let events = [(Event::FnPageout, 4), (Event::Invlpg, 64), (Event::PageScanZero, 64)];
    run(ArchId::X86_64, &events, &[])
}

/// Both splits add up to the difference of the two times, to the picosecond.
fn check_sums(explanation: &Explanation) {
    let report = explanation.report();
    let total = report.a.ps - report.b.ps;
    assert_eq!(report.saved_ps, total);
    assert_eq!(explanation.saved().get(), total);
    assert_eq!(report.by_class.iter().map(|t| t.saved_ps).sum::<i128>(), total);
    assert_eq!(report.by_op.iter().map(|t| t.saved_ps).sum::<i128>(), total);
    for (a, b) in report.by_class.iter().map(|t| (t.ps_a, t.ps_b)) {
        assert!(a >= 0 && b >= 0);
    }
    assert!(report.by_class.is_sorted_by_key(|t| -t.saved_ps.abs()));
    assert!(report.by_op.is_sorted_by_key(|t| -t.saved_ps.abs()));
}

fn explain(a: RunReport, b: RunReport, only: Option<&str>) -> Explanation {
    let explanation = Explanation::new(a, b, only).expect("explains");
    check_sums(&explanation);
    explanation
}

/// The text with its line breaks taken out.
fn said(explanation: &Explanation) -> String {
    let text = explanation.render();
    for line in text.lines() {
        assert!(line.chars().count() <= 100, "{line}");
        assert_eq!(line, line.trim_end());
    }
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

fn check_said(explanation: &Explanation, parts: &[&str]) {
    let text = said(explanation);
    for part in parts {
        assert!(text.contains(part), "no {part:?} in:\n{}", explanation.render());
    }
}

/// What `n` of an event cost on the machine of these runs, the kernel's work included.
fn time(event: Event, n: u64) -> Picos {
    let prices = PriceList::for_machine("apple-m3-vm", ArchId::Arm64).expect("embedded");
    let mut counts = Counters::new();
    counts.add(event, n);
    prices.time(&counts, 0)
}

#[test]
fn both_splits_add_up_and_the_sentences_say_why() {
    let explanation = explain(vanilla(), batched(), None);
    check_said(
        &explanation,
        &[
            "A: `pageout 1` on arm64, machine apple-m3-vm, kernel v7.3: ",
            "broadcast TLBI of a page 64 0 ",
            "████████████████",
            "madvise(MADV_PAGEOUT) reclaim_pages",
            "A has 17 TLBI, 16 DSB ISHST, 1 DSB ISH per folio; B has 1 TLBI, 1 DSB ISHST, 1 DSB ISH.",
            "1 of the 17 TLBI of A exist only because a contiguous block had to be unfolded.",
            "The same number in both: 64 comparison of pages with zero",
        ],
    );
    let elsewhere = explanation.parts.iter().find(|p| p.place.0 == ELSEWHERE).expect("3 locks");
    assert_eq!((elsewhere.saved(), elsewhere.before), (Picos::ZERO, time(Event::FolioLock, 3)));
}

#[test]
fn the_other_way_round_is_the_negative() {
    let there = explain(vanilla(), batched(), None);
    let back = explain(batched(), vanilla(), None);
    assert_eq!(there.saved().get(), -back.saved().get());
    check_said(&back, &["B costs", "▒"]);
}

#[test]
fn a_price_that_decides_the_sign_is_named() {
    let atomics = run(ArchId::Arm64, &[(Event::FnPageout, 4), (Event::PteXchg, 1000)], &[]);
    let explanation = explain(vanilla(), atomics, Some("madvise(MADV_PAGEOUT)"));
    check_said(
        &explanation,
        &[
            "The price that decides the sign is that of ",
            "B stops being faster when it goes from ",
            "atomic accesses to page-table entries",
        ],
    );
}

#[test]
fn a_run_differs_from_itself_by_nothing() {
    let explanation = explain(vanilla(), vanilla(), None);
    check_said(&explanation, &["not a picosecond of difference"]);
    assert!(explanation.report().flips.is_empty());
}

#[test]
fn one_kernel_entry_can_be_looked_at_alone() {
    let faults = explain(vanilla(), batched(), Some("fault"));
    assert_eq!((faults.saved(), faults.a.bill().total()), (Picos::ZERO, time(Event::PageZero, 16)));
    let call = explain(vanilla(), batched(), Some("madvise(MADV_PAGEOUT)"));
    assert_eq!(call.saved(), explain(vanilla(), batched(), None).saved());
    let error = Explanation::new(vanilla(), batched(), Some("munmap")).expect_err("no such entry");
    assert_eq!(error.status, status::USAGE);
    assert!(error.message.contains("there are fault, madvise(MADV_PAGEOUT)"), "{error}");
}

#[test]
fn two_architectures_have_two_price_lists() {
    let explanation = explain(vanilla(), x86(), None);
    check_said(
        &explanation,
        &[
            "The prices differ: A is priced by apple-m3-vm, B by x86-bare-metal.",
            "A has 17 TLBI, 16 DSB ISHST, 1 DSB ISH per folio; B has 16 INVLPG.",
            "fitted on the published result anon-unmap-batch-64k-x86",
        ],
    );
    let lists: Vec<_> = explanation.report().flips.into_iter().map(|f| f.prices).collect();
    assert!(
        lists.iter().any(|l| l == "apple-m3-vm") || lists.iter().any(|l| l == "x86-bare-metal")
    );
}

#[test]
fn reports_that_name_nothing_known_are_refused() {
    let unknown = RunReport { machine: "zen9".to_owned(), ..vanilla() };
    let error = Explanation::new(unknown, batched(), None).expect_err("no such machine");
    assert!(error.status == status::USAGE && error.message.contains("zen2"), "{error}");
    let unknown = RunReport { arch: "riscv".to_owned(), ..vanilla() };
    assert!(Explanation::new(unknown, batched(), None).is_err());
}

#[test]
fn a_counterfactual_needs_a_guest_that_is_built_in_and_the_same() {
    let explanation = explain(vanilla(), batched(), None);
    let without = |field: &str| {
        let change =
            Counterfactual { without: vec![field.to_owned()], ..Counterfactual::default() };
        change.explain(&explanation).expect_err("refused").message
    };
    assert!(without("contptes").contains("known: access_flags_flush_local"));
    assert!(without("contpte").contains("another program in this version"));
}

#[test]
fn without_contpte_nothing_is_unfolded() {
    let request = |kernel: &str| {
        let program = crate::Program::open("@pageout", ArchId::Arm64).expect("built in");
        crate::RunRequest {
            kernel: kernel.to_owned(),
            machine: Some("apple-m3-vm".to_owned()),
            thp: vec![crate::parse_thp("64kB=always").expect("a setting")],
            ..crate::RunRequest::new(program, vec!["pageout".to_owned(), "2".to_owned()])
        }
    };
    let run = |kernel: &str| crate::run(&request(kernel), &mut crate::Silent).expect("runs");
    let explanation = explain(run("v7.3"), run("v7.3+anon-unmap-batch"), None);
    let change =
        Counterfactual { without: vec!["contpte".to_owned()], ..Counterfactual::default() };
    let changed = change.explain(&explanation).expect("runs again");
    check_sums(&changed);
    let unfolds = |e: &Explanation| e.a.sum(&[Event::ContpteUnfoldDone]);
    assert_eq!((unfolds(&explanation) > 0, unfolds(&changed)), (true, 0));
    let sentence = change.render(&explanation, &changed);
    assert!(sentence.starts_with("Counterfactual, without contpte: A takes "), "{sentence}");

    let change = Counterfactual {
        folio_kb: Some(4),
        cpus: Some(2),
        kernel: Some("v6.12".to_owned()),
        ..Counterfactual::default()
    };
    let changed = change.explain(&explanation).expect("runs again");
    check_sums(&changed);
    let (a, b) = (&changed.a.run, &changed.b.run);
    assert_eq!((a.kernel.as_str(), b.kernel.as_str()), ("v6.12", "v6.12+anon-unmap-batch"));
    assert_eq!((a.cpus, a.events.counters().get(Event::ContpteSetPtesBlocks)), (2, 0));
    let sentence = change.render(&explanation, &changed);
    assert!(sentence.contains("with folios of 4 kB and with 2 CPUs and on v6.12"), "{sentence}");
}

#[test]
fn a_study_is_explained_pair_by_pair() {
    let record = |kernel: &str, run: RunReport| report::StudyRecord {
        error: None,
        point: report::Point { kernel: kernel.to_owned(), ..report::Point::default() },
        run: Some(run),
        schema: report::STUDY_SCHEMA.to_owned(),
        study: "test".to_owned(),
        command: String::new(),
        key: String::new(),
        source: String::new(),
    };
    let x86 = report::StudyRecord {
        point: report::Point { arch: "x86_64".to_owned(), ..report::Point::default() },
        ..record("v7.3", x86())
    };
    let records = vec![record("v7.3", vanilla()), x86, record("v7.3+p", batched())];
    let pairs = pairs(records, None).expect("explains");
    assert_eq!(pairs.len(), 1, "a run without a partner is in no pair");
    let (what, explanation) = &pairs[0];
    check_sums(explanation);
    assert!(what.contains("v7.3 against v7.3+p"), "{what}");
}

#[test]
fn the_waterfall_ends_where_the_second_run_does() {
    let svg = explain(vanilla(), batched(), None).waterfall();
    assert!(svg.starts_with("<svg ") && svg.trim_end().ends_with("</svg>"));
    assert!(svg.contains("broadcast TLBI of a page") && svg.contains(">B<"), "{svg}");
    assert!(!svg.contains("NaN"), "{svg}");
}
