//! From the records of a study to a page: tables, plots and the runs behind them.

use crate::findings;
use crate::measure::Measured;
use crate::plan::{Axis, Look, Matrix, Per, Plan, Show, folio_name};
use crate::point;
use cost::PriceList;
use report::page::{Cell, Grid, Line, Page, Plot, PlotKind, Run, RunId, Section};
use report::{Point, StudyRecord, decimal};
use std::collections::BTreeSet;
use units::ArchId;

/// Parts of a stack that have a colour of their own; the rest is one part.
const PARTS: usize = 7;

/// A study with its results, ready to be looked at.
#[derive(Debug)]
struct View<'s> {
    plan: &'s Plan,
    records: &'s [StudyRecord],
}

/// One matrix of a study, with the values of its dimensions.
#[derive(Debug)]
pub(crate) struct Facet<'v> {
    pub(crate) look: &'v Look,
    show: &'v Show,
    title: Option<&'v str>,
    /// The results, each with the record that it comes from and what is looked at in it.
    results: Vec<(&'v Point, RunId, Measured)>,
    /// Names and architectures.
    pub(crate) machines: Vec<(String, String)>,
    /// Values of the horizontal axis.
    pub(crate) x: Vec<String>,
    /// Values that have a line each; one, if none was named.
    pub(crate) series: Vec<String>,
    /// Before and after; one, if nothing is compared.
    pub(crate) compare: Vec<String>,
}

/// A place in a facet: indices into its lists.
#[derive(Clone, Copy, Debug)]
pub(crate) struct At {
    pub(crate) machine: usize,
    pub(crate) x: usize,
    pub(crate) series: usize,
    pub(crate) compare: usize,
}

/// The page of a study; `found` are sentences of its own, else they are made from the counts.
pub fn page(plan: &Plan, records: &[StudyRecord], found: Option<Vec<String>>) -> Page {
    let facets: Vec<Facet<'_>> =
        plan.matrix.iter().filter_map(|matrix| Facet::new(plan, matrix, records)).collect();
    let view = View { plan, records };
    Page {
        title: plan.title.clone(),
        lead: plan.question.clone(),
        findings: found.unwrap_or_else(|| facets.iter().flat_map(findings::of).collect()),
        sections: facets.iter().map(Facet::section).collect(),
        fidelity: fidelity(&plan.fidelity),
        runs: (0..records.len()).map(|i| view.run(i, &facets)).collect(),
        provenance: view.provenance(),
    }
}

/// The value of a point on an axis.
fn value(axis: Axis, point: &Point) -> String {
    match axis {
        Axis::Folio => folio_name(point.folio_kb),
        Axis::Cpus => point.cpus.to_string(),
        Axis::Kib => {
            point.args.first().and_then(|kb| kb.parse().ok()).map_or_else(String::new, folio_name)
        }
        Axis::Arg => point.args.first().cloned().unwrap_or_default(),
        Axis::Arg2 => point.args.get(1).cloned().unwrap_or_default(),
        Axis::Kernel => point.kernel.clone(),
        Axis::Set if point.set.is_empty() => "as it is".to_owned(),
        Axis::Set => point.set.join(" "),
        Axis::Seed => point.seed.to_string(),
    }
}

/// Different values in the order in which they come.
fn values(points: &[Point], of: impl Fn(&Point) -> String) -> Vec<String> {
    let mut found = Vec::new();
    for value in points.iter().map(of) {
        if !found.contains(&value) {
            found.push(value);
        }
    }
    found
}

impl View<'_> {
    fn run(&self, i: usize, facets: &[Facet<'_>]) -> Run {
        let record = &self.records[i];
        let mut facts = vec![("command".to_owned(), record.command.clone())];
        if let Some(run) = &record.run {
            let time = &run.time;
            let whole = format!(
                "{} ns, 90 %: {} to {} ns, by the prices of {}",
                time.ns, time.low_ns, time.high_ns, time.model
            );
            facts.push(("hash of the program".to_owned(), run.guest.sha256.clone()));
            facts.push(("hash of all inputs".to_owned(), record.key.clone()));
            facts.push(("modelled time of the whole run".to_owned(), whole));
            facts.push(("guest instructions".to_owned(), run.instructions.to_string()));
        }
        let mut counts = Vec::new();
        for facet in facets {
            let Some((_, _, m)) = facet.results.iter().find(|result| result.1 == RunId(i)) else {
                continue;
            };
            if facet.look.tlb {
                let nonzero = m.tlb.iter().filter(|(_, n)| **n != 0);
                counts = nonzero.map(|(name, n)| (name.clone(), *n)).collect();
                continue;
            }
            let time = m.time.estimate();
            let looked = format!("{}, 90 %: {} to {}", time.time, time.low, time.high);
            facts.push((format!("modelled time of {}", facet.looked_at()), looked));
            counts.extend(m.counts.nonzero().map(|(e, n)| (e.name().to_owned(), n)));
        }
        let failure = record.error.as_ref().map(|error| error.message.clone());
        Run { name: name(&record.point), facts, counts, failure }
    }

    fn provenance(&self) -> Vec<(String, String)> {
        let mut lines = vec![
            ("study".to_owned(), self.plan.name.clone()),
            ("ptescope".to_owned(), env!("CARGO_PKG_VERSION").to_owned()),
            ("source".to_owned(), point::SOURCE.to_owned()),
        ];
        let machines: BTreeSet<(&str, &str)> = self
            .records
            .iter()
            .map(|r| (r.point.machine.as_str(), r.point.arch.as_str()))
            .collect();
        for (machine, arch) in machines {
            let prices = ArchId::parse(arch).and_then(|a| PriceList::for_machine(machine, a).ok());
            if let Some(prices) = prices.filter(|_| !self.plan.look.tlb) {
                let fitted = match prices.fitted_on() {
                    [] => "fitted on nothing".to_owned(),
                    rows => format!("fitted on {}", rows.join(", ")),
                };
                let text = format!("{}: {} ({fitted})", prices.name(), prices.summary());
                lines.push((format!("prices for {machine}"), text));
            }
        }
        lines
    }
}

/// What a point is, in a line.
fn name(point: &Point) -> String {
    let mut parts = vec![point.machine.clone(), point.kernel.clone()];
    if point.folio_kb != 0 {
        parts.push(format!("{} folios", folio_name(point.folio_kb)));
    }
    if point.cpus > 1 {
        parts.push(format!("{} CPUs", point.cpus));
    }
    parts.extend(point.set.iter().cloned());
    parts.push(format!("{} {}", point.program, point.args.join(" ")).trim_end().to_owned());
    parts.join(", ")
}

impl<'v> Facet<'v> {
    fn new(plan: &'v Plan, matrix: &'v Matrix, records: &'v [StudyRecord]) -> Option<Facet<'v>> {
        let (look, show) = (plan.look(matrix), plan.show(matrix));
        // The run that is subtracted is no result.
        let is_result =
            |p: &Point| look.baseline.is_none() || p.args.last() != look.baseline.as_ref();
        let points: Vec<Point> = matrix.points().ok()?.into_iter().filter(is_result).collect();
        let axis = |axis: Option<Axis>| match axis {
            Some(axis) => values(&points, |point| value(axis, point)),
            None => vec![String::new()],
        };
        let machines = values(&points, |p| p.machine.clone()).into_iter().map(|machine| {
            let arch = points.iter().find(|p| p.machine == machine).map(|p| p.arch.clone());
            (machine, arch.unwrap_or_default())
        });
        let results = records.iter().enumerate().filter_map(|(i, record)| {
            let measured =
                points.contains(&record.point).then(|| Measured::of(look, record, records));
            Some((&record.point, RunId(i), measured??))
        });
        Some(Facet {
            look,
            show,
            title: matrix.title.as_deref(),
            results: results.collect(),
            machines: machines.collect(),
            x: axis(Some(show.x)),
            series: axis(show.series),
            compare: axis(show.compare).into_iter().take(2).collect(),
        })
    }

    pub(crate) fn title(&self) -> Option<&str> {
        self.title
    }

    /// `munmap`, `the whole run`.
    pub(crate) fn looked_at(&self) -> String {
        let look = self.look;
        look.op.clone().or_else(|| look.entry.clone()).unwrap_or_else(|| "the whole run".to_owned())
    }

    /// The run at a place, and what is looked at in it.
    pub(crate) fn at(&self, at: At) -> Option<(RunId, &Measured)> {
        let is = |axis: Option<Axis>, point: &Point, wanted: &str| {
            axis.is_none_or(|axis| value(axis, point) == wanted)
        };
        let (_, run, measured) = self.results.iter().find(|(point, _, _)| {
            point.machine == self.machines[at.machine].0
                && is(Some(self.show.x), point, &self.x[at.x])
                && is(self.show.series, point, &self.series[at.series])
                && is(self.show.compare, point, &self.compare[at.compare])
        })?;
        Some((*run, measured))
    }

    /// What before and after are called.
    pub(crate) fn compare_name(&self, i: usize) -> &str {
        self.show.names.get(i).unwrap_or(&self.compare[i])
    }

    /// `64K folios`, `8 CPUs`, `16 pages`: a value of the horizontal axis in a sentence.
    pub(crate) fn x_name(&self, x: usize) -> String {
        let unit = match (&self.show.unit, self.show.x) {
            (Some(unit), _) => unit,
            (None, Axis::Folio) => "folios",
            (None, Axis::Cpus) if self.x[x] == "1" => "CPU",
            (None, Axis::Cpus) => "CPUs",
            (None, _) => "",
        };
        format!("{} {unit}", self.x[x]).trim_end().to_owned()
    }

    fn section(&self) -> Section {
        let title = self.title.unwrap_or_default().to_owned();
        let mut section = Section { title, ..Section::default() };
        let machines = 0..self.machines.len();
        if self.look.tlb {
            for machine in machines {
                section.tables.push(self.tlb_table(machine));
                section.plots.extend(TLB.map(|(name, words)| self.tlb_plot(machine, name, words)));
            }
            return section;
        }
        section.tables.push(self.time_table());
        section.tables.extend(machines.clone().map(|machine| self.class_table(machine)));
        if self.series.len() == 1 {
            // Kind by kind, so that the machines stand side by side.
            let parts = self.parts();
            for by in [Stack::Events, Stack::Time] {
                let plots = machines.clone().map(|machine| self.stack_plot(machine, by, &parts));
                section.plots.extend(plots);
            }
        }
        section.plots.push(self.time_plot());
        section
    }

    /// Every (x, series), with what it is called.
    fn rows(&self) -> impl Iterator<Item = (usize, usize, String)> + '_ {
        (0..self.x.len()).flat_map(move |x| {
            (0..self.series.len()).map(move |s| {
                (x, s, format!("{} {}", self.x_name(x), self.series[s]).trim_end().to_owned())
            })
        })
    }

    /// A cell with before and after, or one of them if they are alike; `show` is given what was measured.
    fn cell(
        &self,
        machine: usize,
        x: usize,
        series: usize,
        show: &dyn Fn(&Measured) -> String,
    ) -> Cell {
        let parts = (0..self.compare.len()).map(|compare| {
            match self.at(At { machine, x, series, compare }) {
                Some((run, measured)) => (show(measured), Some(run)),
                None => ("–".to_owned(), None),
            }
        });
        let mut parts: Vec<(String, Option<RunId>)> = parts.collect();
        parts.dedup_by(|after, before| after.0 == before.0);
        Cell(parts)
    }

    fn time_table(&self) -> Grid {
        let mut head = vec![String::new()];
        let compared = self.compare.len() > 1;
        for (machine, _) in &self.machines {
            head.push(machine.clone());
            head.push("90 %".to_owned());
            if compared {
                head.extend(["ratio".to_owned(), "90 %".to_owned()]);
            }
        }
        let rows = self.rows().map(|(x, series, label)| {
            let mut row = vec![Cell::text(label)];
            for machine in 0..self.machines.len() {
                row.push(self.cell(machine, x, series, &time_of));
                row.push(self.cell(machine, x, series, &interval_of));
                if compared {
                    row.extend(self.ratio_cells(machine, x, series));
                }
            }
            row
        });
        let what = format!("Modelled time of {} per {}", self.looked_at(), self.look.per.name());
        let rows = rows.collect();
        Grid { caption: self.captioned(&what), head, rows }
    }

    fn ratio_cells(&self, machine: usize, x: usize, series: usize) -> [Cell; 2] {
        let side = |compare| self.at(At { machine, x, series, compare });
        let Some(((_, before), (_, after))) = side(0).zip(side(1)) else {
            return [Cell::text("–"), Cell::text("–")];
        };
        let ratio = before.time.ratio(&after.time);
        let range = format!("{:.2}–{:.2}", ratio.low, ratio.high);
        [Cell::text(format!("{:.2}×", ratio.value)), Cell::text(range)]
    }

    /// A caption, with the names of before and after.
    fn captioned(&self, what: &str) -> String {
        match self.compare.len() {
            2 => format!("{what}: {} → {}", self.compare_name(0), self.compare_name(1)),
            _ => what.to_owned(),
        }
    }

    /// Counts by price class, for one machine.
    fn class_table(&self, machine: usize) -> Grid {
        let columns: Vec<(usize, usize, String)> = self.rows().collect();
        let head = std::iter::once(String::new()).chain(columns.iter().map(|c| c.2.clone()));
        let rows = self.classes(machine, Stack::Events).into_iter().map(|((class, words), _)| {
            let count = |m: &Measured| {
                let term = m.time.terms().iter().find(|t| t.class == class);
                decimal(term.map_or(0, |t| t.count), m.units)
            };
            let cells = columns.iter().map(|&(x, s, _)| self.cell(machine, x, s, &count));
            std::iter::once(Cell::text(words)).chain(cells).collect()
        });
        let (name, arch) = &self.machines[machine];
        let what = format!("{name} ({arch}): events per {}", self.look.per.name());
        Grid { caption: self.captioned(&what), head: head.collect(), rows: rows.collect() }
    }

    /// Names of the classes that occur on a machine, and the most they weigh anywhere, the heaviest first.
    fn classes(&self, machine: usize, by: Stack) -> Vec<((String, String), f64)> {
        let mut found: Vec<(String, String, f64)> = Vec::new();
        for (x, series, _) in self.rows() {
            for compare in 0..self.compare.len() {
                let Some((_, m)) = self.at(At { machine, x, series, compare }) else { continue };
                for term in m.time.terms() {
                    let weight = by.height(term, m.plot_units);
                    match found.iter_mut().find(|f| f.0 == term.class) {
                        Some(known) => known.2 = known.2.max(weight),
                        None => found.push((term.class.clone(), term.words.clone(), weight)),
                    }
                }
            }
        }
        found.sort_by(|a, b| b.2.total_cmp(&a.2).then_with(|| a.0.cmp(&b.0)));
        found
            .into_iter()
            .filter(|f| f.2 > 0.0)
            .map(|(class, words, n)| ((class, words), n))
            .collect()
    }

    /// Names of the classes that weigh most in any plot: the same class has the same colour in all of them.
    fn parts(&self) -> Vec<(String, String)> {
        let mut ranked: Vec<((String, String), f64)> = Vec::new();
        for machine in 0..self.machines.len() {
            for by in [Stack::Events, Stack::Time] {
                let classes = self.classes(machine, by);
                let all: f64 = classes.iter().map(|class| class.1).sum();
                for (class, weight) in classes {
                    let share = weight / all;
                    match ranked.iter_mut().find(|known| known.0 == class) {
                        Some(known) => known.1 = known.1.max(share),
                        None => ranked.push((class, share)),
                    }
                }
            }
        }
        ranked.sort_by(|a, b| b.1.total_cmp(&a.1).then_with(|| a.0.cmp(&b.0)));
        ranked.into_iter().take(PARTS).map(|(class, _)| class).collect()
    }

    fn stack_plot(&self, machine: usize, by: Stack, classes: &[(String, String)]) -> Plot {
        let heights = |x: usize, compare: usize| -> Vec<f64> {
            let mut parts = vec![0.0; classes.len() + 1];
            let Some((_, m)) = self.at(At { machine, x, series: 0, compare }) else { return parts };
            for term in m.time.terms() {
                let known = classes.iter().position(|class| class.0 == term.class);
                parts[known.unwrap_or(classes.len())] += by.height(term, m.plot_units);
            }
            parts
        };
        let names = classes.iter().map(|class| class.1.clone());
        let parts: Vec<String> = names.chain(["others".to_owned()]).collect();
        let bars = (0..self.compare.len()).map(|i| self.compare_name(i).to_owned()).collect();
        let groups = (0..self.x.len())
            .map(|x| (0..self.compare.len()).map(|c| heights(x, c)).collect())
            .collect();
        let (name, arch) = &self.machines[machine];
        let (what, unit) = match by {
            Stack::Events => ("what it counts", "events"),
            Stack::Time => ("what it costs", "ns, modelled"),
        };
        Plot {
            caption: format!("{arch}, {name}: {what}"),
            unit: format!("{unit} per {}, by {}", self.plot_per(), self.x_words()),
            x: self.x.clone(),
            kind: PlotKind::Stacks { parts, bars, heights: groups },
        }
    }

    fn time_plot(&self) -> Plot {
        let mut lines = Vec::new();
        for machine in 0..self.machines.len() {
            for series in 0..self.series.len() {
                for compare in 0..self.compare.len() {
                    let point = |x| {
                        let (_, m) = self.at(At { machine, x, series, compare })?;
                        let time = m.time.estimate();
                        Some([time.low, time.time, time.high].map(|t| nanoseconds(t, m.plot_units)))
                    };
                    let parts = [
                        self.machines[machine].0.as_str(),
                        &self.series[series],
                        if self.compare.len() > 1 { self.compare_name(compare) } else { "" },
                    ];
                    let named = parts.into_iter().filter(|part| !part.is_empty());
                    lines.push(Line {
                        name: named.collect::<Vec<_>>().join(", "),
                        points: (0..self.x.len()).map(point).collect(),
                    });
                }
            }
        }
        Plot {
            caption: format!("Modelled time of {}", self.looked_at()),
            unit: format!("ns per {} with 90 % intervals, by {}", self.plot_per(), self.x_words()),
            x: self.x.clone(),
            kind: PlotKind::Lines(lines),
        }
    }

    /// What the horizontal axis is.
    fn x_words(&self) -> &str {
        match (&self.show.unit, self.show.x) {
            (Some(unit), _) => unit,
            (None, Axis::Folio) => "folio size",
            (None, Axis::Cpus) => "number of CPUs",
            (None, Axis::Kernel) => "kernel",
            (None, Axis::Seed) => "seed",
            (None, Axis::Kib) => "footprint",
            (None, Axis::Arg | Axis::Arg2) => "argument",
            (None, Axis::Set) => "setting",
        }
    }

    /// What plots divide by: see [`Measured::plot_units`].
    fn plot_per(&self) -> &'static str {
        if self.look.per == Per::Folio { Per::Page.name() } else { self.look.per.name() }
    }

    fn tlb_table(&self, machine: usize) -> Grid {
        let mut head = vec![self.x_words().to_owned()];
        for (_, words) in TLB {
            head.extend(self.series.iter().map(|series| format!("{series} {words}")));
        }
        let rows = (0..self.x.len()).map(|x| {
            let cells = TLB.iter().flat_map(|&(name, _)| {
                (0..self.series.len()).map(move |series| {
                    let rate = |m: &Measured| format!("{:.2}", m.tlb_percent(name));
                    self.cell(machine, x, series, &rate)
                })
            });
            std::iter::once(Cell::text(self.x[x].clone())).chain(cells).collect()
        });
        let (name, arch) = &self.machines[machine];
        let caption = format!("{name} ({arch}): of 100 accesses");
        Grid { caption, head, rows: rows.collect() }
    }

    fn tlb_plot(&self, machine: usize, statistic: &str, words: &str) -> Plot {
        let lines = (0..self.series.len()).map(|series| {
            let point = |x| {
                let (_, m) = self.at(At { machine, x, series, compare: 0 })?;
                Some([m.tlb_percent(statistic); 3])
            };
            let points = (0..self.x.len()).map(point).collect();
            Line { name: format!("{} folios", self.series[series]), points }
        });
        let (name, arch) = &self.machines[machine];
        Plot {
            caption: format!("{name} ({arch}): {words}"),
            unit: format!("of 100 accesses, by {}", self.x_words()),
            x: self.x.clone(),
            kind: PlotKind::Lines(lines.collect()),
        }
    }
}

/// The two statistics of TLBs that are shown, and what they are called.
pub(crate) const TLB: [(&str, &str); 2] = [("l1d_misses", "L1 misses"), ("walks", "walks")];

/// What a stack is made of.
#[derive(Clone, Copy, Debug)]
enum Stack {
    Events,
    Time,
}

impl Stack {
    #[expect(clippy::cast_precision_loss, reason = "a height has a few hundred steps")]
    fn height(self, term: &cost::Term, units: u64) -> f64 {
        match self {
            // Instructions would hide all else.
            Stack::Events if term.is_instructions() => 0.0,
            Stack::Events => term.count as f64 / units as f64,
            Stack::Time => nanoseconds(term.time, units),
        }
    }
}

#[expect(clippy::cast_precision_loss, reason = "for a plot, a few digits are enough")]
fn nanoseconds(time: cost::Picos, units: u64) -> f64 {
    time.get() as f64 / 1e3 / units as f64
}

fn time_of(m: &Measured) -> String {
    findings::per(m.time.total(), m.units)
}

fn interval_of(m: &Measured) -> String {
    let time = m.time.estimate();
    format!("{}–{}", findings::per(time.low, m.units), findings::per(time.high, m.units))
}

/// The rows of the table of fidelity with these names: what is simplified and absent.
fn fidelity(ids: &[String]) -> Vec<(String, String)> {
    let table = include_str!("../../../docs/fidelity.md");
    let rows = table.lines().filter_map(|line| {
        let mut cells = line.strip_prefix('|')?.splitn(3, '|').map(str::trim);
        let (id, state, text) = (cells.next()?, cells.next()?, cells.next()?);
        let text = text.trim_end_matches('|').trim_end();
        ids.iter().any(|wanted| wanted == id).then(|| (id.to_owned(), format!("{state}: {text}")))
    });
    rows.collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sweep::{Resume, Sweep};
    use std::num::NonZeroUsize;

    fn page_of(text: &str) -> Page {
        let plan = Plan::parse("test", text).expect("right");
        let sweep = Sweep { study: "t", jobs: NonZeroUsize::MIN, store: None, resume: Resume::No };
        let records = sweep.run(&plan.points().expect("right"), &mut |_| ()).records;
        page(&plan, &records, None)
    }

    fn row<'p>(page: &'p Page, table: usize, label: &str) -> Vec<&'p str> {
        let rows = &page.sections[0].tables[table].rows;
        let row = rows.iter().find(|row| row[0].0[0].0 == label).expect(label);
        row[1..].iter().flat_map(|cell| cell.0.iter().map(|part| part.0.as_str())).collect()
    }

    /// Giving back one page of a contiguous block unfolds it, which takes a range flush of its own; giving back all
    /// of it does not.
    #[test]
    fn folding_loses_on_parts_of_blocks_and_the_page_says_so() {
        let page = page_of(
            r#"
            name = "t"
            title = "T"
            look = { entry = "madvise(MADV_DONTNEED)", per = "call" }
            show = { x = "arg2", unit = "of 16 pages", compare = "set", names = ["off", "on"] }
            [[matrix]]
            program = "@partial-unmap"
            args = [["2", "1"], ["2", "16"]]
            machines = ["apple-m3-vm"]
            folios = ["64K"]
            set = [["kernel.contpte=off"], []]
            "#,
        );
        assert_eq!(row(&page, 1, "broadcast TLBI of a range"), ["0", "1", "1"]);
        assert_eq!(row(&page, 1, "loads of page-table entries")[2..], ["16", "3"]);
        let [finding] = page.findings.as_slice() else { panic!("{:?}", page.findings) };
        let turn = "With on it is slower up to 1 of 16 pages, and not with 16 of 16 pages.";
        assert!(finding.starts_with("apple-m3-vm (arm64): on against off: saves "), "{finding}");
        assert!(finding.ends_with(turn), "{finding}");
        let runs: Vec<_> = page.runs.iter().map(|run| run.counts.is_empty()).collect();
        assert_eq!(runs, [false; 4]);
    }

    /// 16 pages fit any first level; 4096 do not fit 64 entries.
    #[test]
    fn the_misses_of_filling_the_memory_are_subtracted() {
        let page = page_of(
            r#"
            name = "t"
            title = "T"
            look = { tlb = true, baseline = "0" }
            show = { x = "kib" }
            [[matrix]]
            program = "@reach"
            args = [["64", "2000"], ["16384", "2000"]]
            machines = ["zen2"]
            folios = ["4K"]
            "#,
        );
        assert_eq!(row(&page, 0, "64K"), ["0.00", "0.00"]);
        let misses: f64 = row(&page, 0, "16M")[0].parse().expect("a number");
        assert!((95.0..=100.0).contains(&misses), "{misses}");
        let [finding] = page.findings.as_slice() else { panic!("{:?}", page.findings) };
        assert!(finding.contains("miss up to 64K (L1 misses)"), "{finding}");
    }
}
