use super::*;
use crate::workload::Measured;
use report::{PredictedRatio, PredictedTime, Prediction, ScoreRow, ScoreboardReport};

fn row(id: &str) -> Observation {
    Observation::all().into_iter().find(|o| o.id == id).expect("published")
}

#[test]
fn every_row_is_predicted_or_says_why_not() {
    for row in Observation::all() {
        match Plan::of(&row) {
            Plan::NotModelled(why) => assert!(!why.is_empty(), "{}", row.id),
            Plan::Predicted { before, after, .. } => {
                assert_ne!(before, after, "{}", row.id);
                let machine = |m: &Measured| m.terms[0].1.machine.clone();
                assert_eq!(machine(&before), machine(&after), "{}", row.id);
            }
        }
        assert!(row.says.is_some() == row.sign.is_some(), "{}: words need a sign", row.id);
    }
}

#[test]
fn signs_are_compared_with_what_was_published() {
    let check = |id: &str, value: f64, expected: Sign| {
        let ratio = PredictedRatio { value, low: value - 0.05, high: value + 0.05 };
        assert_eq!(sign(&row(id), ratio), expected, "{id} at {value}");
    };
    check("anon-unmap-batch-64k-m3", 1.5, Sign::Right);
    check("anon-unmap-batch-64k-m3", 1.02, Sign::Wrong);
    check("mprotect-4k-m3", 0.9, Sign::Right);
    check("mprotect-4k-m3", 1.0, Sign::Wrong);
    check("anon-unmap-batch-4k-x86", 1.1, Sign::Right);
    check("anon-unmap-batch-4k-x86", 0.8, Sign::Wrong);
    // Two standard deviations of times that scatter by 1.5 % and 3 % are 6.7 %.
    check("anon-unmap-batch-1m-x86", 1.11, Sign::Right);
    check("anon-unmap-batch-1m-x86", 1.13, Sign::Wrong);
    check("anon-unmap-batch-1m-x86", 0.87, Sign::Wrong);
}

/// A whole bench of small runs: what a row is predicted from must not contain it.
#[test]
fn a_row_is_never_in_the_fit_that_predicts_it() {
    let one = NonZeroUsize::new(1).expect("not 0");
    let mut rows = Observation::all();
    rows.retain(|row| row.bench() == "apple-m3-vm" && row.workload.contains("mprotect"));
    let calibration = Calibration::of(&rows, one, &mut |_| ()).expect("runs");
    let fitted_on = |id: &str| {
        let counted = calibration.rows().iter().find(|r| r.row.id == id).expect("counted");
        predict(counted, calibration.rows()).expect("fits").fitted_on
    };
    assert_eq!(fitted_on("mprotect-64k-m3"), ["mprotect-2m-split-m3", "mprotect-4k-m3"]);
    // It repeats two of the others.
    assert_eq!(fitted_on("contpte-mprotect-64k-against-4k-m3"), ["mprotect-2m-split-m3"]);
}

#[test]
fn the_table_fits_and_counts_what_is_right() {
    let time = |ns| PredictedTime { high_ns: ns, low_ns: ns, ns };
    let prediction = |value| {
        Some(Prediction {
            after: time(1_000_000),
            before: time(2_000_000),
            fitted_on: Vec::new(),
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
        sign: prediction(2.0)
            .filter(|_| o.patch.is_some())
            .map_or(Sign::None, |p| sign(&o, p.ratio)),
        source: o.source,
        unit: o.unit,
        id: o.id,
    });
    let report = ScoreboardReport { rows: rows.collect(), schema: SCOREBOARD_SCHEMA.to_owned() };
    let text = render(&report);
    assert!(text.lines().all(|l| l.chars().count() <= 100), "{text}");
    for part in ["right, -7 % *", "WRONG, +95 %", "3.14 ms", "5010 MiB/s", "said: no obvious gain"]
    {
        assert!(text.contains(part), "no {part:?} in\n{text}");
    }
    let json = report.to_json().expect("writes");
    assert!(json.contains(r#""sign": "right""#), "{json}");
}
