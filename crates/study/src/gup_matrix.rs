//! The study `gup-matrix`: gup_test with every combination of options that the kernel's own
//! tests use, in one table.
//!
//! Source: Linux tools/testing/selftests/mm/run_vmtests.sh `run_gup_matrix()`.

use crate::gup::MACHINES;
use crate::{point, wrap};
use cost::PriceList;
use events::Event;
use report::{Align, Point, StudyRecord, Table};
use std::collections::BTreeMap;
use units::ArchId;

/// The name of the study.
pub const NAME: &str = "gup-matrix";

const SYSCALL: &str = "ioctl";
const WIDTH: usize = 100;
/// Size of the region in MiB if no `-m` says otherwise.
const MIB: u64 = 128;
/// Values of `-n`, in the order of the columns.
const PER_CALL: [(&str, &str); 4] = [("1", "n 1"), ("123", "123"), ("512", "512"), ("-1", "all")];

/// Arguments but `-n`, and its value.
fn split(point: &Point) -> (String, &str) {
    let at = point.args.iter().position(|arg| arg == "-n");
    let (head, per_call) = match at {
        Some(at) => (&point.args[..at], point.args.get(at + 1).map_or("", String::as_str)),
        None => (point.args.as_slice(), ""),
    };
    (head.join(" "), per_call)
}

fn pages(point: &Point) -> u64 {
    let mut words = point.args.iter().skip_while(|arg| *arg != "-m").skip(1);
    words.next().and_then(|mib| mib.parse().ok()).unwrap_or(MIB) << 8
}

/// What a point came to.
#[derive(Debug, PartialEq, Eq)]
enum Cell {
    /// Nanoseconds per page of getting and putting back.
    Passed(String),
    /// It got fewer pages than it asked for.
    Short(u64),
    /// It did not end well.
    Failed,
}

fn cell(record: &StudyRecord) -> Cell {
    let Some(run) = &record.run else { return Cell::Failed };
    let counts = run.syscall(SYSCALL).map(|call| call.events.counters()).unwrap_or_default();
    let pages = pages(&record.point);
    let got = counts.get(Event::GupPageStore);
    if got != pages {
        return Cell::Short(got);
    }
    let arch = ArchId::parse(&record.point.arch);
    let prices = arch.and_then(|arch| PriceList::for_machine(&record.point.machine, arch).ok());
    let ns = prices.map_or(0, |prices| prices.time(&counts, 0).ns());
    Cell::Passed(tenths(ns, pages))
}

/// The ratio with one decimal.
fn tenths(ns: u64, pages: u64) -> String {
    let all = (u128::from(ns) * 10 + u128::from(pages / 2)) / u128::from(pages.max(1));
    format!("{}.{}", all / 10, all % 10)
}

/// The table, and what failed.
pub fn render(records: &[StudyRecord]) -> String {
    let mut rows: Vec<String> = Vec::new();
    let mut cells: BTreeMap<(String, &str, &str), Cell> = BTreeMap::new();
    for record in records {
        let (options, per_call) = split(&record.point);
        if !rows.contains(&options) {
            rows.push(options.clone());
        }
        cells.insert((options, per_call, &record.point.arch), cell(record));
    }
    let failed: Vec<&StudyRecord> = records.iter().filter(|r| is_bad(&cell(r))).collect();
    let (all, bad) = (records.len(), failed.len());
    let head = "Nanoseconds per page that getting and putting back takes, by pages per call; \
                gup_test with the options of the row.";
    let mut text = wrap(head, WIDTH, 0);
    text.push('\n');
    text.push_str(&table(&rows, &cells).render());
    text.push_str(&format!("\n{all} runs: {} passed, {bad} failed.\n", all - bad));
    for record in failed {
        let why = match (cell(record), &record.error) {
            (Cell::Short(got), _) => format!("{got} of {} pages", pages(&record.point)),
            (_, Some(error)) => error.message.clone(),
            _ => "no result".to_owned(),
        };
        let line = format!("FAILED: {}: {why}", point::command(&record.point));
        text.push_str(&wrap(&line, WIDTH, 2));
    }
    text
}

fn is_bad(cell: &Cell) -> bool {
    !matches!(cell, Cell::Passed(_))
}

fn table(rows: &[String], cells: &BTreeMap<(String, &str, &str), Cell>) -> Table {
    let mut align = vec![Align::Left];
    align.extend(MACHINES.iter().flat_map(|_| PER_CALL).map(|_| Align::Right));
    let mut table = Table::new(&align);
    let mut machines = vec![String::new()];
    for (arch, machine) in MACHINES {
        machines.extend([arch.to_string(), String::new(), String::new(), machine.to_owned()]);
    }
    table.row(machines);
    let titles = MACHINES.iter().flat_map(|_| PER_CALL).map(|(_, title)| title.to_owned());
    table.row(std::iter::once("options".to_owned()).chain(titles));
    table.rule();
    for options in rows {
        let of = |(arch, _): &(ArchId, &str)| {
            let arch = arch.name();
            PER_CALL.map(|(per_call, _)| match cells.get(&(options.clone(), per_call, arch)) {
                Some(Cell::Passed(ns)) => ns.clone(),
                Some(Cell::Short(_)) => "short".to_owned(),
                Some(Cell::Failed) => "FAILED".to_owned(),
                None => "-".to_owned(),
            })
        };
        let values = MACHINES.iter().flat_map(of);
        table.row(std::iter::once(options.clone()).chain(values));
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Study;
    use report::Failure;
    use std::collections::BTreeSet;

    fn points() -> Vec<Point> {
        Study::open(NAME).and_then(|study| study.points()).expect("built in")
    }

    #[test]
    fn each_architecture_has_240_runs() {
        let points = points();
        let unique: BTreeSet<(&str, String)> =
            points.iter().map(|p| (p.arch.as_str(), p.args.join(" "))).collect();
        assert_eq!((points.len(), unique.len()), (480, 480));
        for line in ["-t -u -w -S -n 1", "-H -m 256 -L -W -n -1", "-T -b -w -n 123"] {
            assert!(unique.contains(&("arm64", line.to_owned())), "{line}");
        }
    }

    #[test]
    fn what_failed_is_in_the_table_and_below_it() {
        let failed = |point: Point| StudyRecord {
            error: Some(Failure { message: "it broke".to_owned(), status: 70 }),
            point,
            ..StudyRecord::default()
        };
        let records: Vec<StudyRecord> = points().into_iter().take(4).map(failed).collect();
        let text = render(&records);
        assert!(text.contains("4 runs: 0 passed, 4 failed.\n"), "{text}");
        let line = text.lines().find(|l| l.starts_with("-t -u -w -S")).expect("a row");
        assert_eq!(line.matches("FAILED").count(), 4, "{text}");
        assert!(text.contains("-- @gup_test -t -u -w -S -n -1: it broke"), "{text}");
    }
}
