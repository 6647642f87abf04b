//! The study `gup`: the two series that changed how far a walk of `get_user_pages()` carries.
//!
//! Its matrix is `studies/gup.toml`, [`render`] its tables. Counts are those of the calls of
//! `__get_user_pages()` alone, as the published times are; what is published stands beside.

use crate::{Observation, wrap};
use cost::{Breakdown, PriceList};
use events::{Counters, Event};
use report::{Align, StudyRecord, Table, decimal};
use units::ArchId;

/// The name of the study.
pub const NAME: &str = "gup";
/// The machines, in the order of the columns.
pub const MACHINES: [(ArchId, &str); 2] =
    [(ArchId::Arm64, "apple-m3-vm"), (ArchId::X86_64, "x86-bare-metal")];

/// The system call that the guest makes, and the op in it that is looked at.
const SYSCALL: &str = "ioctl";
const OP: &str = "__get_user_pages";
const WIDTH: usize = 100;

/// A series of patches: one command, with and without it.
struct Series {
    title: &'static str,
    /// Arguments of gup_test but the kind of memory; one iteration, as all are the same here.
    args: &'static [&'static str],
    pages: u64,
    kernels: [&'static str; 2],
    memory: &'static [Memory],
}

/// A kind of memory.
struct Memory {
    name: &'static str,
    /// The argument that asks for it.
    arg: &'static str,
    /// Size of the folios in kB; 0 for that of the pool's pages.
    folio_kb: u64,
    /// How many pages the counts of a row are of.
    unit: u64,
    /// The published result.
    published: Option<&'static str>,
}

const fn folios(name: &'static str, folio_kb: u64, published: Option<&'static str>) -> Memory {
    let unit = if folio_kb == 2048 { LEAF } else { 1 };
    Memory { name, arg: "-t", folio_kb, unit, published }
}

/// Pages of a PMD leaf.
const LEAF: u64 = 512;
const HUGETLB: Memory =
    Memory { name: "2M hugetlb, per 2M", arg: "-H", folio_kb: 0, unit: LEAF, published: None };

const SERIES: [Series; 2] = [
    Series {
        title: "Peter Xu, \"mm/gup: Unify hugetlb, speed up thp\"",
        args: &["-L", "-m", "512", "-n", "1024", "-r", "1"],
        pages: 512 << 8,
        kernels: ["v6.1", "v6.5"],
        memory: &[
            folios("4K folios, per page", 4, None),
            folios("2M folios, per 2M", 2048, Some("gup-thp-stride-2m")),
            HUGETLB,
        ],
    },
    Series {
        title: "Rik van Riel, \"mm/gup: batch PTE-mapped large folios in follow_page_mask()\"",
        args: &["-L", "-m", "256", "-n", "65536", "-r", "1"],
        pages: 256 << 8,
        kernels: ["v7.3", "v7.3+gup-pte-batch"],
        memory: &[
            folios("4K folios, per page", 4, Some("gup-pte-batch-4k")),
            folios("64K folios, per page", 64, Some("gup-pte-batch-64k")),
            folios("2M folios, per 2M", 2048, Some("gup-pte-batch-2m")),
            HUGETLB,
        ],
    },
];

/// A row: its label, and what it counts. Lockless reads are counted apart on arm64 only, and
/// the slow walk makes none.
const ROWS: [(&str, &[Event]); 6] = [
    ("walks from the root", &[Event::FnFollowPageMask, Event::FnFollowHugetlbPage]),
    ("page-table locks", &[Event::PtlLock]),
    ("ptep_get", &[Event::PtepGet]),
    ("PTE loads", &[Event::PteRead]),
    ("calls that take references", &[Event::FnTryGrabFolio]),
    ("reference and pin atomics", &[Event::FolioRefRmw, Event::FolioPincountRmw]),
];

/// What getting the pages counted in one run, and what it costs.
struct Cell {
    counts: Counters,
    time: Breakdown,
}

impl Cell {
    fn of(
        (arch, machine): (ArchId, &str),
        series: &Series,
        memory: &Memory,
        kernel: &str,
        records: &[StudyRecord],
    ) -> Option<Cell> {
        let args = || series.args.iter().chain([&memory.arg]);
        let record = records.iter().find(|r| {
            let at = &r.point;
            let same = at.arch == arch.name() && at.kernel == kernel && args().eq(&at.args);
            same && at.folio_kb == memory.folio_kb
        })?;
        let call = record.run.as_ref()?.syscall(SYSCALL)?;
        let mut counts = Counters::new();
        for (path, events) in &call.by_op {
            if path.split('/').next() == Some(OP) {
                counts.merge(&events.counters());
            }
        }
        let prices = PriceList::for_machine(machine, arch);
        let prices = prices.expect("embedded lists are whole (a test of cost)");
        let time = prices.explain(&counts, 0);
        Some(Cell { counts, time })
    }

    fn sum(&self, events: &[Event]) -> u64 {
        events.iter().map(|&e| self.counts.get(e)).sum()
    }
}

/// The tables, and what failed.
pub fn render(records: &[StudyRecord]) -> String {
    let mut text = String::new();
    for series in &SERIES {
        let head = format!(
            "{}; gup_test {}, with -t, or -H for hugetlb.",
            series.title,
            series.args.join(" ")
        );
        text.push_str(&wrap(&head, WIDTH, 0));
        let [before, after] = series.kernels;
        let what = format!("While getting; before is {before}, after is {after}.");
        text.push_str(&wrap(&what, WIDTH, 0));
        text.push('\n');
        text.push_str(&table(series, records).render());
        text.push('\n');
    }
    let note = "Modelled times are of the prices of the machine named above the column; the \
                published ones are of machines that were not named. What noting a page costs was \
                taken from the published 2M row, and what a walk costs was chosen with the 4K row \
                in view, so only the 64K row and the series of Peter Xu are predictions.";
    text.push_str(&wrap(note, WIDTH, 2));
    for record in records {
        if let Some(error) = &record.error {
            let command = crate::point::command(&record.point);
            let line = format!("FAILED: {command}: {}", error.message);
            text.push_str(&wrap(&line, WIDTH, 2));
        }
    }
    text
}

fn table(series: &Series, records: &[StudyRecord]) -> Table {
    use Align::{Left, Right};
    let mut table = Table::new(&[Left, Right, Left, Right, Left, Right, Left, Right]);
    let mut machines = vec![String::new()];
    for (arch, machine) in MACHINES {
        let name = format!("{arch},");
        machines.extend([name, String::new(), machine.to_owned(), String::new()]);
    }
    machines.pop();
    table.row(machines);
    for memory in series.memory {
        let cells: Vec<[Option<Cell>; 2]> = MACHINES
            .iter()
            .map(|&machine| series.kernels.map(|k| Cell::of(machine, series, memory, k, records)))
            .collect();
        table.rule();
        table.row([memory.name, "before", "→", "after", "", "before", "→", "after"]);
        for (label, events) in ROWS {
            let show = |cell: &Cell| decimal(cell.sum(events), series.pages / memory.unit);
            push(&mut table, &format!("  {label}"), &cells, &show);
        }
        let micros = |cell: &Cell| format!("{:.0}", cell.time.estimate().time.ms() * 1e3);
        push(&mut table, "  modelled time, µs", &cells, &micros);
        ratio_row(&mut table, &cells);
        if let Some(id) = memory.published {
            published_rows(&mut table, id);
        }
    }
    table
}

/// A row of pairs; a run that failed says so.
fn push(
    table: &mut Table,
    label: &str,
    cells: &[[Option<Cell>; 2]],
    show: &dyn Fn(&Cell) -> String,
) {
    let mut row = vec![label.to_owned()];
    for [before, after] in cells {
        let text = |cell: &Option<Cell>| cell.as_ref().map_or_else(|| "failed".to_owned(), show);
        row.extend([text(before), "→".to_owned(), text(after), String::new()]);
    }
    row.pop();
    table.row(row);
}

fn ratio_row(table: &mut Table, cells: &[[Option<Cell>; 2]]) {
    let mut row = vec!["  speed-up".to_owned()];
    for [before, after] in cells {
        let ratio = before.as_ref().zip(after.as_ref()).map(|(b, a)| b.time.ratio(&a.time));
        let text = ratio.map_or_else(String::new, |r| format!("{:.2}×", r.value));
        row.extend([String::new(), String::new(), text, String::new()]);
    }
    row.pop();
    table.row(row);
}

/// What was published: the time without and with the series, and their ratio. No machine was
/// named, so it stands in the first columns only.
fn published_rows(table: &mut Table, id: &str) {
    let Some(found) = Observation::all().into_iter().find(|o| o.id == id) else { return };
    let Some((before, after)) = found.before.zip(found.after) else { return };
    let time = ["  published time, µs".to_owned(), format!("{before:.0}"), "→".to_owned()];
    let rest = || (0..4).map(|_| String::new());
    table.row(time.into_iter().chain([format!("{after:.0}")]).chain(rest()).collect::<Vec<_>>());
    let ratio = found.ratio().map_or_else(String::new, |r| format!("{r:.2}×"));
    let empty = || String::new();
    let row = ["  published speed-up".to_owned(), empty(), empty(), ratio];
    table.row(row.into_iter().chain(rest()).collect::<Vec<_>>());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_series_has_both_machines_and_both_kernels() {
        let points = crate::Study::open(NAME).and_then(|study| study.points()).expect("built in");
        let sizes: usize = SERIES.iter().map(|s| s.memory.len()).sum();
        assert_eq!(points.len(), sizes * 4);
        assert!(points.iter().all(|p| p.program == "@gup_test"));
    }

    #[test]
    fn every_published_result_is_known() {
        let all = Observation::all();
        for id in SERIES.iter().flat_map(|s| s.memory).filter_map(|m| m.published) {
            let found = all.iter().find(|o| o.id == id).expect(id);
            assert!(found.ratio().is_some(), "{id}");
        }
    }

    #[test]
    fn tables_without_runs_say_that_they_failed() {
        let text = render(&[]);
        assert!(text.contains("failed") && text.contains("13992") && text.contains("7.62×"));
    }
}
