//! Many points at once: each run has one thread, the runs share the host's cores.

use crate::point;
use crate::store::Store;
use report::{Failure, Point, RunReport, STUDY_SCHEMA, StudyRecord};
use std::num::NonZeroUsize;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, mpsc};
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
    /// How.
    pub how: How,
}

/// How a point came to its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum How {
    /// It ran.
    Ran,
    /// It was in the store.
    Stored,
    /// It failed.
    Failed,
}

/// Whether finished runs of the store are taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Resume {
    /// Every point runs.
    No,
    /// Only those run that are not there.
    Yes,
}

/// How to run the points of a study.
#[derive(Debug)]
pub struct Sweep<'s> {
    /// The name of the study.
    pub study: &'s str,
    /// How many runs at once.
    pub jobs: NonZeroUsize,
    /// Where finished runs are kept.
    pub store: Option<&'s Store>,
    /// Whether they are used.
    pub resume: Resume,
}

/// What a sweep leaves behind.
#[derive(Debug)]
pub struct Swept {
    /// One for each point, in their order.
    pub records: Vec<StudyRecord>,
    /// Why runs could not be kept in the store, if so; they are in the records all the same.
    pub unstored: Option<Failure>,
}

impl Sweep<'_> {
    /// Runs every point and returns the records in the order of the points, whatever order they
    /// ended in. A point that fails is recorded; the others go on. Failures are not kept in the
    /// store, so that the next `resume` tries them again.
    pub fn run(&self, points: &[Point], progress: &mut dyn FnMut(Progress<'_>)) -> Swept {
        let total = points.len();
        let unstored = Mutex::new(None);
        let one = |point: &Point| self.one(point, &unstored);
        let results = each(points, self.jobs, &one, &mut |done, point, result| {
            let how = match result {
                (_, Err(_)) => How::Failed,
                (_, Ok((_, how))) => *how,
            };
            progress(Progress { done, total, point, how });
        });
        let record = |(point, (key, result))| self.record(point, key, result);
        let records = points.iter().zip(results).map(record).collect();
        Swept { records, unstored: unstored.into_inner().unwrap_or_default() }
    }

    /// The key of a point, and how it ended.
    fn one(
        &self,
        point: &Point,
        unstored: &Mutex<Option<Failure>>,
    ) -> (String, Result<(RunReport, How), Failure>) {
        let key = match point::key(point) {
            Ok(key) => key,
            Err(failure) => return (String::new(), Err(failure)),
        };
        if self.resume == Resume::Yes
            && let Some(run) = self.store.and_then(|store| store.get(&key))
        {
            return (key, Ok((run, How::Stored)));
        }
        let result = point::run(point);
        if let (Ok(run), Some(store)) = (&result, self.store)
            && let Err(failure) = store.put(&key, run)
            && let Ok(mut first) = unstored.lock()
        {
            first.get_or_insert(failure);
        }
        (key, result.map(|run| (run, How::Ran)))
    }

    fn record(
        &self,
        point: &Point,
        key: String,
        result: Result<(RunReport, How), Failure>,
    ) -> StudyRecord {
        let (run, error) = match result {
            Ok((run, _)) => (Some(run), None),
            Err(error) => (None, Some(error)),
        };
        StudyRecord {
            command: point::command(point),
            error,
            key,
            point: point.clone(),
            run,
            schema: STUDY_SCHEMA.to_owned(),
            source: point::SOURCE.to_owned(),
            study: self.study.to_owned(),
        }
    }
}

/// Does `work` on every item, on `jobs` threads, and returns the results in the order of the items; `progress` is told
/// how many are done, which one is, and its result.
pub(crate) fn each<T: Sync, R: Send>(
    items: &[T],
    jobs: NonZeroUsize,
    work: &(dyn Fn(&T) -> R + Sync),
    progress: &mut dyn FnMut(usize, &T, &R),
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
            progress(nr + 1, &items[i], &result);
            done[i] = Some(result);
        }
    });
    done.into_iter().flatten().collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    fn hello(name: &str) -> Point {
        Point {
            args: vec![name.to_owned()],
            cpus: 1,
            kernel: "v7.3".to_owned(),
            machine: "zen2".to_owned(),
            mem_bytes: Some(16 << 20),
            program: "@hello".to_owned(),
            ..Point::default()
        }
    }

    fn sweep(store: Option<&Store>, resume: Resume, jobs: usize) -> Sweep<'_> {
        Sweep { study: "test", jobs: NonZeroUsize::new(jobs).expect("not 0"), store, resume }
    }

    #[test]
    fn records_keep_the_order_of_the_points_and_failures_stop_nobody() {
        let mut points: Vec<Point> = (0..20).map(|n| hello(&n.to_string())).collect();
        points[7].machine = "abacus".to_owned();
        points[9].program = "@wild".to_owned();
        let mut seen = Vec::new();
        let records = sweep(None, Resume::No, 3).run(&points, &mut |p| seen.push((p.done, p.how)));
        let records = records.records;
        assert_eq!(seen.iter().map(|s| s.0).collect::<Vec<_>>(), (1..=20).collect::<Vec<_>>());
        assert_eq!(seen.iter().filter(|s| s.1 == How::Failed).count(), 2);
        for (i, (record, point)) in records.iter().zip(&points).enumerate() {
            assert_eq!(&record.point, point);
            assert_eq!(record.error.is_some(), i == 7 || i == 9, "{record:?}");
        }
        let alone = sweep(None, Resume::No, 1).run(&points, &mut |_| ());
        assert_eq!(records, alone.records);
    }

    #[test]
    fn only_what_is_not_in_the_store_runs_again() {
        let dir = std::env::temp_dir().join(format!("ptescope-sweep-{}", std::process::id()));
        let store = Store::open(&dir).expect("a directory");
        let points = [hello("a"), hello("b"), hello("c")];
        let count = |resume, points: &[Point]| {
            let mut hows = Vec::new();
            let swept = sweep(Some(&store), resume, 2).run(points, &mut |p| hows.push(p.how));
            assert_eq!(swept.unstored, None);
            (swept.records, hows.iter().filter(|&&how| how == How::Ran).count())
        };
        let (first, ran) = count(Resume::No, &points[..2]);
        assert_eq!(ran, 2);
        let (second, ran) = count(Resume::Yes, &points);
        assert_eq!((ran, &second[..2]), (1, &first[..]));
        let (third, ran) = count(Resume::No, &points);
        assert_eq!((ran, third), (3, second));
        fs::remove_dir_all(dir).expect("removes");
    }
}
