//! Many points at once: each run has one thread, the runs share the host's cores.

use report::{Failure, Point, RunReport, STUDY_SCHEMA, StudyRecord};
use std::num::NonZeroUsize;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc;
use std::thread;

/// A point that is done.
#[derive(Clone, Copy, Debug)]
pub struct Progress<'a> {
    /// How many are done.
    pub done: usize,
    /// Of how many.
    pub total: usize,
    /// Which one.
    pub point: &'a Point,
}

/// Runs every point on `jobs` threads and returns the records in the order of the points,
/// whatever order they ended in. A point that fails is recorded; the others go on.
pub fn sweep(
    study: &str,
    points: &[Point],
    jobs: NonZeroUsize,
    run: &(dyn Fn(&Point) -> Result<RunReport, Failure> + Sync),
    progress: &mut dyn FnMut(Progress<'_>),
) -> Vec<StudyRecord> {
    let total = points.len();
    let results = each(points, jobs, run, &mut |done, point| {
        progress(Progress { done, total, point });
    });
    points.iter().zip(results).map(|(point, result)| record(study, point, result)).collect()
}

/// Does `work` on every item, on `jobs` threads, and returns the results in the order of the items; `progress` is told
/// how many are done, and which one is.
pub(crate) fn each<T: Sync, R: Send>(
    items: &[T],
    jobs: NonZeroUsize,
    work: &(dyn Fn(&T) -> R + Sync),
    progress: &mut dyn FnMut(usize, &T),
) -> Vec<R> {
    let next = AtomicUsize::new(0);
    let mut done: Vec<Option<R>> = items.iter().map(|_| None).collect();
    thread::scope(|scope| {
        let (sender, results) = mpsc::channel();
        for _ in 0..jobs.get().min(items.len()) {
            let (sender, next) = (sender.clone(), &next);
            scope.spawn(move || {
                loop {
                    let i = next.fetch_add(1, Ordering::Relaxed);
                    let Some(item) = items.get(i) else { break };
                    if sender.send((i, work(item))).is_err() {
                        break;
                    }
                }
            });
        }
        drop(sender);
        for (nr, (i, result)) in results.iter().enumerate() {
            done[i] = Some(result);
            progress(nr + 1, &items[i]);
        }
    });
    done.into_iter().flatten().collect()
}

fn record(study: &str, point: &Point, result: Result<RunReport, Failure>) -> StudyRecord {
    let (run, error) = match result {
        Ok(run) => (Some(run), None),
        Err(error) => (None, Some(error)),
    };
    let (schema, study) = (STUDY_SCHEMA.to_owned(), study.to_owned());
    StudyRecord { error, point: point.clone(), run, schema, study }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_keep_the_order_of_the_points_and_failures_stop_nobody() {
        let point = |folio_kb| Point { folio_kb, ..Point::default() };
        let points: Vec<Point> = (0..20).map(point).collect();
        let run =
            |point: &Point| Err(Failure { message: format!("no {}", point.folio_kb), status: 70 });
        let mut seen = Vec::new();
        let jobs = NonZeroUsize::new(3).expect("not 0");
        let records = sweep("test", &points, jobs, &run, &mut |p| seen.push(p.done));
        assert_eq!(seen, (1..=20).collect::<Vec<_>>());
        let messages: Vec<_> = records.iter().filter_map(|r| r.error.as_ref()).collect();
        assert_eq!(messages.len(), 20);
        assert_eq!(messages[7].message, "no 7");
    }
}
