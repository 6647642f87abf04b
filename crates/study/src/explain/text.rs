//! The explanation as text: two tables with bars, and the sentences.

use super::{Explanation, Part, Side};
use crate::wrap;
use cost::{Change, Picos};
use report::Align::{Left, Right};
use report::{Table, grouped};
use std::fmt::Write as _;

const WIDTH: usize = 100;
/// Length of the longest bar.
const BAR: i128 = 16;
/// How many lines of each table; the rest is one, so that the sum stays in view.
const LINES: usize = 12;

impl Explanation {
    /// The whole explanation, at most 100 characters wide.
    pub fn render(&self) -> String {
        let mut text = String::new();
        for (name, side) in [("A", &self.a), ("B", &self.b)] {
            text.push_str(&wrap(&format!("{name}: {}", headline(side)), WIDTH, 3));
        }
        if let Some(only) = &self.only {
            text.push_str(&wrap(&format!("Only {only} is compared."), WIDTH, 0));
        }
        let _ = writeln!(text, "\nSaved by class of event (A - B; █ B is faster, ▒ B is slower)\n");
        text.push_str(&self.class_table());
        let _ =
            writeln!(text, "\nSaved by kernel entry and op (what runs inside an op is apart)\n");
        text.push_str(&self.op_table());
        text.push('\n');
        for sentence in self.sentences() {
            text.push_str(&wrap(&sentence, WIDTH, 2));
        }
        text
    }

    fn class_table(&self) -> String {
        let changes = self.difference.changes();
        let largest = changes.first().map_or(Picos::ZERO, Change::saved);
        let (shown, rest) = changes.split_at(shown(changes, Change::saved));
        fitting(&|room| {
            let mut table = Table::new(&[Left, Right, Right, Right, Right, Left]).indented(1);
            table.row(["class", "A", "B", "saved", "saved, ps", ""]);
            table.rule();
            for change in shown {
                let counts = [change.before, change.after].map(grouped);
                let saved = cells(change.saved(), largest);
                table.row([short(&change.words, room)].into_iter().chain(counts).chain(saved));
            }
            let sums = sums(rest.iter().map(Change::saved), self.saved());
            for [label, saved, picos] in sums {
                table.row([label, String::new(), String::new(), saved, picos]);
            }
            table
        })
    }

    fn op_table(&self) -> String {
        let largest = self.parts.first().map_or(Picos::ZERO, Part::saved);
        let (shown, rest) = self.parts.split_at(shown(&self.parts, Part::saved));
        fitting(&|room| {
            let mut table = Table::new(&[Left, Right, Right, Left]).indented(1);
            table.row(["place", "saved", "saved, ps", ""]);
            table.rule();
            for part in shown {
                table.row([place(part, room)].into_iter().chain(cells(part.saved(), largest)));
            }
            let all = self.parts.iter().map(Part::saved).sum();
            sums(rest.iter().map(Part::saved), all).into_iter().for_each(|row| table.row(row));
            table
        })
    }
}

/// The table with as much room for labels as the width leaves.
fn fitting(table: &dyn Fn(usize) -> Table) -> String {
    const LABELS: [usize; 2] = [12, 60];
    let width = |text: &str| text.lines().map(|l| l.chars().count()).max().unwrap_or(0);
    let texts = (LABELS[0]..=LABELS[1]).rev().map(|room| table(room).render());
    let mut fits = texts.skip_while(|text| width(text) > WIDTH);
    fits.next().unwrap_or_else(|| table(LABELS[0]).render())
}

/// How many lines to show: those that differ, unless they are too many.
fn shown<T>(all: &[T], saved: fn(&T) -> Picos) -> usize {
    let differ = all.iter().take_while(|t| saved(t) != Picos::ZERO).count();
    if differ <= LINES + 1 { differ } else { LINES }
}

/// The last lines of a table: what is not shown, and the sum of all.
fn sums(rest: impl ExactSizeIterator<Item = Picos>, all: Picos) -> Vec<[String; 3]> {
    let lines = rest.len();
    let rest: Picos = rest.sum();
    let mut rows = Vec::new();
    if rest != Picos::ZERO {
        rows.push([format!("({lines} more)"), rest.to_string(), signed(rest)]);
    } else if lines > 0 {
        rows.push([format!("({lines} more: no difference)"), String::new(), "0".to_owned()]);
    }
    rows.push(["sum".to_owned(), all.to_string(), signed(all)]);
    rows
}

/// What ran, on one line or two.
fn headline(side: &Side) -> String {
    let run = &side.run;
    let mut text = format!(
        "`{}` on {}, machine {}, kernel {}",
        run.guest.argv.join(" "),
        run.arch,
        run.machine,
        run.kernel
    );
    for (size, when) in &run.settings.thp {
        let _ = write!(text, ", {size}={when}");
    }
    for (key, value) in &run.settings.set {
        let _ = write!(text, ", {key}={value}");
    }
    let estimate = side.breakdown().estimate();
    let (time, low, high) = (estimate.time, estimate.low, estimate.high);
    let _ = write!(text, ": {time} (90 %: {low} to {high}), prices of {}", side.prices.name());
    text
}

/// The saving in words, in picoseconds and as a bar.
fn cells(saved: Picos, largest: Picos) -> [String; 3] {
    [saved.to_string(), signed(saved), bar(saved, largest)]
}

fn bar(saved: Picos, largest: Picos) -> String {
    let (size, largest) = (saved.get().abs(), largest.get().abs().max(1));
    let length = usize::try_from((size * BAR + largest / 2) / largest).unwrap_or(0);
    let block = if saved < Picos::ZERO { "▒" } else { "█" };
    match length {
        0 if size > 0 => if saved < Picos::ZERO { "-" } else { "+" }.to_owned(),
        n => block.repeat(n),
    }
}

/// Picoseconds with separators: `-1,234`.
pub(super) fn signed(time: Picos) -> String {
    let digits = grouped(u64::try_from(time.get().unsigned_abs()).unwrap_or(u64::MAX));
    if time < Picos::ZERO { format!("-{digits}") } else { digits }
}

/// Entry and op path, from the inside if there is no room for all of it.
fn place(part: &Part, room: usize) -> String {
    let (entry, path) = &part.place;
    if path.is_empty() {
        return short(entry, room);
    }
    let whole = format!("{entry} {path}");
    if whole.chars().count() <= room {
        return whole;
    }
    let mut ops: Vec<&str> = path.split('/').collect();
    while ops.len() > 1 {
        ops.remove(0);
        let cut = format!("{entry} …/{}", ops.join("/"));
        if cut.chars().count() <= room {
            return cut;
        }
    }
    short(&format!("{entry} …/{}", ops.join("/")), room)
}

fn short(text: &str, room: usize) -> String {
    if text.chars().count() <= room {
        return text.to_owned();
    }
    text.chars().take(room - 1).chain(['…']).collect()
}
