//! What is checked in is what the commands make, and predicts what it is said to predict.

use report::{ScoreRow, Sign};
use std::num::NonZeroUsize;
use study::Observation;
use study::calibrate::{Calibration, calibrate_work};
use study::scoreboard::score_from;

const TWO: NonZeroUsize = NonZeroUsize::new(2).expect("not 0");

#[test]
fn published_results_are_predicted_and_the_price_lists_are_what_calibrate_writes() {
    let rows = Observation::all();
    let calibration = Calibration::of(&rows, TWO, &mut |_| ()).expect("every run ends");
    for (bench, list) in [
        ("apple-m3-vm", include_str!("../../cost/prices/apple-m3-vm.toml")),
        ("x86-bare-metal", include_str!("../../cost/prices/x86-bare-metal.toml")),
    ] {
        let written = calibration.fit(Some(bench)).expect("fits").toml;
        assert!(
            written == list,
            "calibrate --bench {bench} --out FILE writes another list:\n{written}"
        );
    }

    let board = score_from(&calibration).expect("every row fits");
    let wrong: Vec<&str> =
        board.rows.iter().filter(|r| r.sign != Sign::Right).map(|r| r.id.as_str()).collect();
    assert_eq!(wrong, ["ksm-walk-vma-4k"]);
    let errors: Vec<f64> = board.rows.iter().filter_map(ScoreRow::error).collect();
    let within = |limit: f64| errors.iter().filter(|&&error| error <= limit).count();
    assert!(errors.len() == 13 && within(0.25) >= 8 && within(0.15) >= 5, "{errors:?}");
    for row in &board.rows {
        let prediction = row.prediction.as_ref().expect("every row is modelled");
        assert!(!prediction.fitted_on.contains(&row.id), "{} predicts itself", row.id);
    }
    let error = calibration.fit(Some("zen9")).expect_err("no such bench").message;
    assert!(error.contains("gup-vm"), "{error}");
}

#[test]
fn the_table_of_work_is_what_calibrate_writes_and_adds_up() {
    let executed = include_str!("../../../data/executed-linux-6.12.toml");
    let done = calibrate_work(executed, TWO, &mut |_| ()).expect("every run ends");
    assert!(done.toml == include_str!("../../cost/prices/work.toml"), "{}", done.toml);
    let median = done.errors[done.errors.len() / 2];
    assert!(median < 0.05, "{median}");
}
