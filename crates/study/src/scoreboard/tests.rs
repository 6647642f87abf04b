use super::*;
use units::ArchId;

fn row(id: &str) -> Observation {
    Observation::all().into_iter().find(|o| o.id == id).expect("published")
}

#[test]
fn every_row_is_predicted_or_says_why_not() {
    for (row, plan) in plans() {
        match plan {
            Plan::NotModelled(why) => assert!(!why.is_empty(), "{}", row.id),
            Plan::Predicted { before, after, .. } => {
                assert_ne!(before, after, "{}", row.id);
                assert_eq!(before.run.machine, after.run.machine, "{}", row.id);
            }
        }
        assert!(row.says.is_some() == row.sign.is_some(), "{}: words need a sign", row.id);
    }
}

#[test]
fn signs_are_compared_with_what_was_published() {
    let check = |id: &str, ratio: f64, expected: Sign| {
        assert_eq!(sign(&row(id), ratio), expected, "{id} at {ratio}");
    };
    check("anon-unmap-batch-64k-m3", 1.5, Sign::Right);
    check("anon-unmap-batch-64k-m3", 1.02, Sign::Wrong);
    check("mprotect-4k-m3", 0.9, Sign::Right);
    check("mprotect-4k-m3", 1.0, Sign::Wrong);
    check("anon-unmap-batch-4k-x86", 1.1, Sign::Right);
    check("anon-unmap-batch-4k-x86", 0.9, Sign::Wrong);
    check("anon-unmap-batch-1m-x86", 1.1, Sign::Wrong);
}

/// Two runs of a megabyte: a whole row without the minutes of the real ones.
#[test]
fn a_round_is_what_more_rounds_add_and_is_scaled() {
    let spec = |rounds| RunSpec {
        guest: "@mprotect",
        args: vec![2, rounds, 0],
        arch: ArchId::Arm64,
        machine: "apple-m3-vm".to_owned(),
        kernel: "v7.3".to_owned(),
        set: Vec::new(),
        folio_kb: 64,
        entry: "mprotect",
    };
    let results: Results = [1, 2, 3].map(|n| (spec(n), run(&spec(n)).expect("runs"))).into();
    let prices = PriceList::for_machine("apple-m3-vm", ArchId::Arm64).expect("embedded");
    let time = |run, start, scale| {
        let measured = Measured { run: spec(run), start: Some(spec(start)), scale };
        breakdown(&measured, &prices, &results).total()
    };
    assert_eq!(time(3, 1, 1), time(2, 1, 2));
    assert_eq!(time(3, 2, 7), time(2, 1, 7));
    assert_eq!(results[&spec(2)].get(events::Event::SyscallTrap), 4);
}

#[test]
fn the_table_fits_and_counts_what_is_right() {
    let time = |ns| PredictedTime { high_ns: ns, low_ns: ns, ns };
    let prediction = |value| {
        Some(Prediction {
            after: time(1_000_000),
            before: time(2_000_000),
            how: "by hand".to_owned(),
            prices: "apple-m3-vm".to_owned(),
            ratio: PredictedRatio { high: value + 0.1, low: value - 0.1, value },
        })
    };
    let rows = Observation::all().into_iter().map(|o| ScoreRow {
        fitted: !o.fitted_in.is_empty(),
        not_modelled: o.patch.is_none().then(|| "it is not".to_owned()),
        prediction: o.patch.as_ref().and_then(|_| prediction(2.0)),
        published_after: o.after,
        published_before: o.before,
        published_ratio: o.ratio(),
        published_words: o.says.clone(),
        sign: o.patch.as_ref().map_or(Sign::None, |_| sign(&o, 2.0)),
        source: o.source,
        unit: o.unit,
        id: o.id,
    });
    let report = ScoreboardReport { rows: rows.collect(), schema: SCOREBOARD_SCHEMA.to_owned() };
    let text = render(&report);
    assert!(text.lines().all(|l| l.chars().count() <= 100), "{text}");
    for part in ["right, fitted", "WRONG, +95 %", "3.14 ms", "5010 MiB/s", "said: no obvious gain"]
    {
        assert!(text.contains(part), "no {part:?} in\n{text}");
    }
    let json = report.to_json().expect("writes");
    assert!(json.contains(r#""sign": "right""#), "{json}");
}
