//! The study `ksm`: how each form of `break_ksm()` finds the pages that it unmerges.
//!
//! Its matrix is `studies/ksm.toml`, [`render`] its tables. Counts are those of the one call of
//! madvise(MADV_UNMERGEABLE), which is what ksm_tests times; what is published stands below.

use crate::{Observation, wrap};
use cost::{Breakdown, PriceList};
use events::{Counters, Event};
use report::{Align, StudyRecord, Table, decimal};
use units::ArchId;

/// The name of the study.
pub const NAME: &str = "ksm";

const MACHINES: [(ArchId, &str); 2] =
    [(ArchId::Arm64, "apple-m3-vm"), (ArchId::X86_64, "x86-bare-metal")];
const SYSCALL: &str = "madvise(MADV_UNMERGEABLE)";
/// Size of the region, as the study's file has it.
const MIB: u64 = 256;
const PAGES: u64 = MIB << 8;
const WIDTH: usize = 100;

/// The kernels, and how each looks.
const FORMS: [(&str, &str); 5] = [
    ("v6.5-ksm-walk-vma", "follow_page"),
    ("v6.5", "1 callback"),
    ("v6.5+ksm-walk-vma-pud", "2 callbacks"),
    ("v6.12", "folio_walk"),
    ("v7.3", "range walk"),
];

/// A row: its label, and what it counts.
const ROWS: [(&str, &[Event]); 9] = [
    ("follow_page walks", &[Event::FnFollowPageMask]),
    ("walks with callbacks", &[Event::PageWalk]),
    ("callbacks", &[Event::PageWalkCallback]),
    ("folio_walk_start", &[Event::FnFolioWalkStart]),
    ("page-table locks", &[Event::PtlLock]),
    ("ptep_get", &[Event::PtepGet, Event::PtepGetLockless]),
    ("reference atomics", &[Event::FolioRefRmw]),
    ("faults that copy", &[Event::FnWpPageCopy]),
    ("flushes of a page", &[Event::TlbiVale1is, Event::Invlpg]),
];

/// What unmerging counted in one run, and what it costs.
struct Cell {
    counts: Counters,
    time: Breakdown,
}

impl Cell {
    fn of(arch: ArchId, machine: &str, kernel: &str, records: &[StudyRecord]) -> Option<Cell> {
        let at = |r: &&StudyRecord| r.point.arch == arch.name() && r.point.kernel == kernel;
        let run = records.iter().find(at)?.run.as_ref()?;
        let counts = run.syscall(SYSCALL)?.events.counters();
        let prices = PriceList::for_machine(machine, arch);
        let prices = prices.expect("embedded lists are whole (a test of cost)");
        let time = prices.explain(&counts, 0);
        Some(Cell { counts, time })
    }

    fn per_page(&self, events: &[Event]) -> String {
        decimal(events.iter().map(|&e| self.counts.get(e)).sum(), PAGES)
    }

    #[expect(clippy::cast_precision_loss, reason = "a speed is shown with four digits")]
    fn mib_per_s(&self) -> f64 {
        MIB as f64 / (self.time.estimate().time.ms() / 1e3)
    }
}

/// The tables, and what failed.
pub fn render(records: &[StudyRecord]) -> String {
    let head = format!(
        "David Hildenbrand, \"mm/ksm: convert break_ksm() to use walk_page_range_vma()\"; ksm_tests \
         -D -s {MIB}, everything merged."
    );
    let mut text = wrap(&head, WIDTH, 0);
    let names = FORMS.map(|(kernel, form)| format!("{form} is {kernel}")).join(", ");
    text.push_str(&wrap(&format!("Per page that is unmerged; {names}."), WIDTH, 0));
    text.push('\n');
    for (arch, machine) in MACHINES {
        text.push_str(&table(arch, machine, records).render());
        text.push('\n');
    }
    text.push_str(&wrap(&published(), WIDTH, 2));
    let note = "The published machine has no price list here. What a walk and a callback cost was \
                chosen with these results in view, so the order of the first three columns is no \
                prediction. folio_walk_start() has no price but that of a function, so its column \
                comes out too fast; the last column is a prediction.";
    text.push_str(&wrap(note, WIDTH, 2));
    for record in records {
        if let Some(error) = &record.error {
            let at = &record.point;
            let line = format!("FAILED: {} {}: {}", at.arch, at.kernel, error.message);
            text.push_str(&wrap(&line, WIDTH, 2));
        }
    }
    text
}

fn table(arch: ArchId, machine: &str, records: &[StudyRecord]) -> Table {
    use Align::{Left, Right};
    let cells = FORMS.map(|(kernel, _)| Cell::of(arch, machine, kernel, records));
    let mut table = Table::new(&[Left, Right, Right, Right, Right, Right]);
    let head = [format!("{arch}, {machine}")];
    table.row(head.into_iter().chain(FORMS.map(|(_, form)| form.to_owned())).collect::<Vec<_>>());
    table.rule();
    for (label, events) in ROWS {
        push(&mut table, label, &cells, &|cell| cell.per_page(events));
    }
    table.rule();
    push(&mut table, "modelled MiB/s", &cells, &|cell| format!("{:.0}", cell.mib_per_s()));
    let first = cells[0].as_ref().map(|cell| 1.0 / cell.mib_per_s());
    push(&mut table, "  against follow_page", &cells, &|cell| {
        let change = first.map(|first| (cell.mib_per_s() * first - 1.0) * 100.0);
        change.map_or_else(String::new, |percent| format!("{percent:+.1} %"))
    });
    table
}

/// A row; a run that failed says so.
fn push(table: &mut Table, label: &str, cells: &[Option<Cell>; 5], show: &dyn Fn(&Cell) -> String) {
    let text = |cell: &Option<Cell>| cell.as_ref().map_or_else(|| "failed".to_owned(), show);
    let row = [format!("  {label}")];
    table.row(row.into_iter().chain(cells.iter().map(text)).collect::<Vec<_>>());
}

/// What the series measured.
fn published() -> String {
    let all = Observation::all();
    let find = |id: &str| all.iter().find(|o| o.id == id);
    let walk = find("ksm-walk-vma-4k");
    let speeds = walk.and_then(|o| o.before.zip(o.after));
    let (Some(walk), Some((before, after))) = (walk, speeds) else { return String::new() };
    let second = find("ksm-walk-vma-pud-4k").and_then(|o| o.says.clone()).unwrap_or_default();
    format!(
        "Published ({}): follow_page {before} MiB/s, one callback {after} MiB/s ({:+.1} %), two: \
         {second}.",
        walk.machine_as_published,
        (after / before - 1.0) * 100.0
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::builtin::Study;

    #[test]
    fn the_columns_are_the_kernels_of_the_study() {
        let study = Study::open(NAME).expect("built in");
        let points = study.points().expect("whole");
        assert_eq!(points.len(), FORMS.len() * MACHINES.len());
        for point in points {
            assert!(FORMS.iter().any(|(kernel, _)| *kernel == point.kernel), "{}", point.kernel);
            assert_eq!(point.args, ["-D", "-s", &MIB.to_string()]);
        }
    }

    #[test]
    fn tables_without_runs_say_that_they_failed() {
        let text = render(&[]);
        assert!(text.contains("failed") && text.contains("5010 MiB/s"), "{text}");
        assert!(text.contains("-2.2 %") && text.contains("another 100 to 200 MiB/s lost"));
    }
}
