//! The study `pageout`: 256 MiB paged out on both architectures, page by page and in batches.
//!
//! Its matrix is `studies/pageout.toml`, [`render`] its table. Everything in the table and in the sentences
//! under it is computed from the counts of the runs and from the price lists; the published
//! results beside them are constants with their source.

mod explain;
mod model;

use crate::wrap;
use events::Event;
use model::{Cell, Pair, Side, published};
use report::{Align, StudyRecord, Table, decimal, grouped};
use units::ArchId;

/// The name of the study.
pub const NAME: &str = "pageout";
/// The system call that is looked at.
pub const SYSCALL: &str = "madvise(MADV_PAGEOUT)";
/// Folio sizes in kB.
pub const FOLIO_KB: [u64; 4] = [4, 64, 1024, 2048];
/// The kernel without and with the patch.
pub const KERNELS: [&str; 2] = ["v7.3", "v7.3+anon-unmap-batch"];
/// The machines, in the order of the columns.
pub const MACHINES: [(ArchId, &str); 2] =
    [(ArchId::Arm64, "apple-m3-vm"), (ArchId::X86_64, "x86-bare-metal")];

/// The program and its arguments, as `data/observations.toml` has them.
const WORKLOAD: &str = "pageout 256";
const MIB: u64 = 256;
const PAGES: u64 = MIB << 8;
const WIDTH: usize = 100;

/// What the table says in words.
pub fn sentences(records: &[StudyRecord]) -> Vec<String> {
    explain::sentences(&sides(), records)
}

fn sides() -> Vec<Side> {
    MACHINES.iter().map(|&(arch, machine)| Side::new(arch, machine)).collect()
}

/// The table, and what it says in words.
pub fn render(records: &[StudyRecord]) -> String {
    let sides = sides();
    let mut text = wrap(
        &format!(
            "{SYSCALL} of {MIB} MiB of zeroes, per folio; vanilla is {}, batched is {}.",
            KERNELS[0], KERNELS[1]
        ),
        WIDTH,
        0,
    );
    text.push('\n');
    text.push_str(&table(&sides, records).render());
    text.push('\n');
    for sentence in explain::sentences(&sides, records) {
        text.push_str(&wrap(&sentence, WIDTH, 2));
    }
    for record in records {
        if let Some(error) = &record.error {
            let at = &record.point;
            let size = size(at.folio_kb);
            let line = format!("FAILED: {} {} {size}: {}", at.arch, at.kernel, error.message);
            text.push_str(&wrap(&line, WIDTH, 2));
        }
    }
    text
}

/// A row: its label, and the counter that it shows on each architecture that has it.
struct Row {
    label: &'static str,
    arm64: &'static [Event],
    x86_64: &'static [Event],
}

impl Row {
    const fn both(label: &'static str, events: &'static [Event]) -> Row {
        Row { label, arm64: events, x86_64: events }
    }
    const fn arm64(label: &'static str, events: &'static [Event]) -> Row {
        Row { label, arm64: events, x86_64: &[] }
    }
    const fn x86_64(label: &'static str, events: &'static [Event]) -> Row {
        Row { label, arm64: &[], x86_64: events }
    }
    fn events(&self, arch: ArchId) -> &'static [Event] {
        match arch {
            ArchId::Arm64 => self.arm64,
            ArchId::X86_64 => self.x86_64,
        }
    }
}

const ROWS: &[Row] = &[
    Row {
        label: "ptep_get",
        arm64: &[Event::PtepGet, Event::PtepGetLockless],
        // There ptep_get_lockless() is ptep_get(), and counted as such.
        x86_64: &[Event::PtepGet],
    },
    Row::both("PTE loads", &[Event::PteRead]),
    Row::both(
        "PTE atomics",
        &[Event::PteXchg, Event::PteCmpxchg, Event::PmdXchg, Event::PmdCmpxchg],
    ),
    Row::both("PTE stores", &[Event::PteWrite, Event::PmdWrite, Event::HugeLeafWrite]),
    Row::arm64("contpte unfolds", &[Event::ContpteUnfoldDone]),
    Row::arm64("TLBI, page or range", model::TLBI),
    Row::arm64("TLBI, whole ASID", &[Event::TlbiAside1is]),
    Row::arm64("DSB ISHST", &[Event::DsbIshst]),
    Row::arm64("DSB ISH", &[Event::DsbIsh]),
    Row::x86_64("INVLPG", &[Event::Invlpg]),
    Row::x86_64("CR3 reloads", &[Event::Cr3Reload]),
    Row::x86_64("tlb_gen increments", &[Event::MmTlbGenInc]),
    Row::both("swap and map locks", &[Event::SwapClusterLock, Event::LargeMapcountLock]),
    Row::both("full barriers", &[Event::AnonExclusiveBarrier]),
    Row::both("refcount atomics", &[Event::FolioRefRmw]),
    Row::both("mm counter updates", &[Event::MmCounterUpdate]),
];

fn table(sides: &[Side], records: &[StudyRecord]) -> Table {
    use Align::{Left, Right};
    let mut table = Table::new(&[Left, Right, Left, Right, Left, Right, Left, Right]);
    let mut machines = vec![String::new()];
    for side in sides {
        machines.extend([
            format!("{},", side.arch),
            String::new(),
            side.machine.to_owned(),
            String::new(),
        ]);
    }
    machines.pop();
    table.row(machines);
    for folio_kb in FOLIO_KB {
        let pairs: Vec<Pair> = sides.iter().map(|s| Pair::of(s, folio_kb, records)).collect();
        table.rule();
        let folios = PAGES / (folio_kb / 4);
        let head = format!("{} folios ({})", size(folio_kb), grouped(folios));
        table.row([&head, "vanilla", "→", "batched", "", "vanilla", "→", "batched"]);
        for row in ROWS {
            count_row(&mut table, row, sides, &pairs, folios);
        }
        time_rows(&mut table, sides, &pairs);
    }
    table
}

fn count_row(table: &mut Table, row: &Row, sides: &[Side], pairs: &[Pair], folios: u64) {
    let sums: Vec<Option<(u64, u64)>> = sides
        .iter()
        .zip(pairs)
        .map(|(side, pair)| {
            let events = row.events(side.arch);
            let cells = (pair.vanilla.as_ref()?, pair.batched.as_ref()?);
            (!events.is_empty()).then(|| (cells.0.sum(events), cells.1.sum(events)))
        })
        .collect();
    if sums.iter().flatten().all(|&(v, b)| v == 0 && b == 0) {
        return;
    }
    let cells = sums.iter().map(|sum| match sum {
        Some((vanilla, batched)) => (decimal(*vanilla, folios), decimal(*batched, folios)),
        None => (String::new(), String::new()),
    });
    push(table, &format!("  {}", row.label), cells);
}

fn time_rows(table: &mut Table, sides: &[Side], pairs: &[Pair]) {
    let text = |cell: &Option<Cell>, show: &dyn Fn(&Cell) -> String| match cell {
        Some(cell) => show(cell),
        None => "failed".to_owned(),
    };
    let time = |c: &Cell| format!("{:.2}", c.estimate().time.ms());
    let range = |c: &Cell| {
        let e = c.estimate();
        format!("{:.1}–{:.1}", e.low.ms(), e.high.ms())
    };
    let each = |show: &dyn Fn(&Cell) -> String| -> Vec<(String, String)> {
        pairs.iter().map(|p| (text(&p.vanilla, show), text(&p.batched, show))).collect()
    };
    push(table, "  modelled time, ms", each(&time).into_iter());
    push(table, "    90 % interval", each(&range).into_iter());
    let last = |show: &dyn Fn(&Side, &Pair) -> String| {
        let cells: Vec<_> =
            sides.iter().zip(pairs).map(|(s, p)| (String::new(), show(s, p))).collect();
        cells.into_iter()
    };
    let ratio =
        |_: &Side, p: &Pair| p.ratio().map_or_else(String::new, |r| format!("{:.2}×", r.value));
    let ratio_range = |_: &Side, p: &Pair| {
        p.ratio().map_or_else(String::new, |r| format!("{:.2}–{:.2}", r.low, r.high))
    };
    push(table, "  speed-up", last(&ratio));
    push(table, "    90 % interval", last(&ratio_range));
    let known = |s: &Side, p: &Pair| {
        published(s, p.folio_kb).map_or_else(String::new, |o| match o.ratio() {
            Some(ratio) => format!("{ratio:.2}×"),
            None => o.says.unwrap_or_default(),
        })
    };
    if sides.iter().zip(pairs).any(|(s, p)| !known(s, p).is_empty()) {
        push(table, "    published", last(&known));
    }
}

/// A row of pairs; an arrow between the two cells where both are there.
fn push(table: &mut Table, label: &str, pairs: impl Iterator<Item = (String, String)>) {
    let mut cells = vec![label.to_owned()];
    for (vanilla, batched) in pairs {
        let arrow = if vanilla.is_empty() { "" } else { "→" };
        cells.extend([vanilla, arrow.to_owned(), batched, String::new()]);
    }
    cells.pop();
    table.row(cells);
}

/// `4K`, `64K`, `1M`.
pub(crate) fn size(kb: u64) -> String {
    if kb >= 1024 { format!("{}M", kb >> 10) } else { format!("{kb}K") }
}

#[cfg(test)]
mod tests;
