//! The runs of a study, explained two by two.

use super::Explanation;
use report::{Failure, Point, StudyRecord};

/// Runs that differ in nothing but kernel and overrides, the first of each kind against the others: what is compared, and why it
/// differs. Runs that failed or have no partner are left out.
///
/// # Errors
/// As [`Explanation::new`].
pub fn pairs(
    records: Vec<StudyRecord>,
    only: Option<&str>,
) -> Result<Vec<(String, Explanation)>, Failure> {
    let mut firsts: Vec<(Point, StudyRecord)> = Vec::new();
    let mut pairs = Vec::new();
    for record in records {
        let Some(run) = &record.run else { continue };
        let subject = Point { kernel: String::new(), set: Vec::new(), ..record.point.clone() };
        let Some((_, first)) = firsts.iter().find(|(known, _)| *known == subject) else {
            firsts.push((subject, record));
            continue;
        };
        let Some(before) = &first.run else { continue };
        let what = heading(&first.point, &record.point);
        pairs.push((what, Explanation::new(before.clone(), run.clone(), only)?));
    }
    Ok(pairs)
}

fn heading(a: &Point, b: &Point) -> String {
    let kernel = |p: &Point| match p.set.is_empty() {
        true => p.kernel.clone(),
        false => format!("{} with {}", p.kernel, p.set.join(", ")),
    };
    let args = a.args.join(" ");
    format!(
        "{} {args}, {} {}, folios of {} kB, {} CPUs: {} against {}",
        a.program,
        a.arch,
        a.machine,
        a.folio_kb,
        a.cpus,
        kernel(a),
        kernel(b)
    )
}
