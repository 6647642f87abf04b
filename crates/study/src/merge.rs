//! Shards of a study put together again.

use crate::{Study, status};
use report::{Failure, Point, StudyRecord};

/// What several files of results make together.
#[derive(Debug)]
pub struct Merged {
    /// In the order of the study's points.
    pub records: Vec<StudyRecord>,
    /// Points that no file has.
    pub missing: Vec<Point>,
}

/// Puts together the JSON lines of several files, each a name and its text. Of a point that failed in one and ended in
/// another, the end counts.
///
/// # Errors
/// 65 for a line that is no record of this study or two results of one point that differ.
pub fn merge(study: &Study, files: &[(String, String)]) -> Result<Merged, Failure> {
    let points = study.points()?;
    let mut found: Vec<Option<StudyRecord>> = vec![None; points.len()];
    for (name, text) in files {
        for (nr, line) in text.lines().enumerate() {
            let wrong = |what: String| Failure {
                message: format!("{name} line {}: {what}", nr + 1),
                status: status::NO_ELF,
            };
            let record = StudyRecord::from_json_line(line).map_err(|e| wrong(e.to_string()))?;
            let Some(i) = points.iter().position(|point| *point == record.point) else {
                return Err(wrong(format!("this is no point of the study {}", study.plan.name)));
            };
            match &mut found[i] {
                Some(known) if known.run.is_some() && record.run.is_none() => {}
                Some(known) if known.run.is_some() && known.run != record.run => {
                    let what = "another file has another result of this point; were they made by the same version?";
                    return Err(wrong(what.to_owned()));
                }
                slot => *slot = Some(record),
            }
        }
    }
    let missing = points.iter().zip(&found).filter(|(_, record)| record.is_none());
    let missing = missing.map(|(point, _)| point.clone()).collect();
    Ok(Merged { records: found.into_iter().flatten().collect(), missing })
}

#[cfg(test)]
mod tests {
    use super::*;
    use report::STUDY_SCHEMA;

    fn study() -> Study {
        Study::open(crate::pageout::NAME).expect("built in")
    }

    fn line(point: &Point, message: &str) -> String {
        let error = Some(Failure { message: message.to_owned(), status: 70 });
        let schema = STUDY_SCHEMA.to_owned();
        let record = StudyRecord { error, point: point.clone(), schema, ..StudyRecord::default() };
        record.to_json_line().expect("writes")
    }

    fn files(texts: &[String]) -> Vec<(String, String)> {
        texts.iter().enumerate().map(|(i, text)| (format!("{i}.jsonl"), text.clone())).collect()
    }

    #[test]
    fn shards_come_back_in_the_order_of_the_points() {
        let points = study().points().expect("right");
        let lines = |from: usize| -> String {
            points.iter().skip(from).step_by(2).map(|p| line(p, "x")).collect()
        };
        let merged = merge(&study(), &files(&[lines(1), lines(0)])).expect("right");
        let order: Vec<&Point> = merged.records.iter().map(|r| &r.point).collect();
        assert_eq!(order, points.iter().collect::<Vec<_>>());
        assert!(merged.missing.is_empty());
        let half = merge(&study(), &files(&[lines(1)])).expect("right");
        assert_eq!((half.records.len(), half.missing.len()), (8, 8));
        assert_eq!(half.missing[0], points[0]);
    }

    #[test]
    fn lines_of_something_else_are_refused() {
        let other = line(&Point::default(), "x");
        for (text, part) in [("{}", "missing field"), (&other, "no point of the study pageout")] {
            let failure = merge(&study(), &files(&[text.to_owned()])).expect_err("wrong");
            assert!(failure.message.starts_with("0.jsonl line 1: "), "{failure}");
            assert!(failure.message.contains(part), "{failure}");
        }
    }
}
