//! A report for people: prose, tables, plots and the runs behind them, as text or as one HTML page.
//!
//! [`Page`] says what is shown and not how: [`Page::text`] is for terminals, [`Page::html`] for
//! browsers. Whoever makes one brings every number as text; nothing is computed here but the
//! geometry of plots.

mod html;
mod plot;

use crate::{Align, Table, wrap};
use std::fmt::Write as _;

/// Index of a [`Run`] of the page.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct RunId(pub usize);

/// A report.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Page {
    /// Its heading.
    pub title: String,
    /// A paragraph on what it is about.
    pub lead: String,
    /// What was found, a sentence or two each.
    pub findings: Vec<String>,
    /// Tables and plots.
    pub sections: Vec<Section>,
    /// What the numbers leave out: a name and a sentence each.
    pub fidelity: Vec<(String, String)>,
    /// The runs behind the numbers.
    pub runs: Vec<Run>,
    /// What it takes to make the page again: a name and a value each.
    pub provenance: Vec<(String, String)>,
}

/// A part of a report.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Section {
    /// Its heading; may be empty.
    pub title: String,
    /// Tables.
    pub tables: Vec<Grid>,
    /// Plots; browsers only.
    pub plots: Vec<Plot>,
}

/// A table. The first column is text, the others are numbers.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Grid {
    /// What it shows.
    pub caption: String,
    /// Column heads.
    pub head: Vec<String>,
    /// Rows.
    pub rows: Vec<Vec<Cell>>,
}

/// A cell: parts that are separated by arrows, each with the run that it comes from.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Cell(pub Vec<(String, Option<RunId>)>);

impl Cell {
    /// Text without a run behind it.
    pub fn text(text: impl Into<String>) -> Cell {
        Cell(vec![(text.into(), None)])
    }

    fn plain(&self) -> String {
        self.0.iter().map(|part| part.0.as_str()).collect::<Vec<_>>().join(" → ")
    }
}

/// A plot; its horizontal axis has names, not numbers.
#[derive(Clone, Debug, PartialEq)]
pub struct Plot {
    /// What it shows.
    pub caption: String,
    /// What the vertical axis is.
    pub unit: String,
    /// Names along the horizontal axis.
    pub x: Vec<String>,
    /// What is drawn.
    pub kind: PlotKind,
}

/// What a plot draws.
#[derive(Clone, Debug, PartialEq)]
pub enum PlotKind {
    /// At each place a group of bars, each a stack with one part for each name.
    Stacks {
        /// Names of the parts, from the bottom.
        parts: Vec<String>,
        /// Names of the bars of a group.
        bars: Vec<String>,
        /// Heights, by place, bar and part.
        heights: Vec<Vec<Vec<f64>>>,
    },
    /// Lines with an interval at each point.
    Lines(Vec<Line>),
}

/// A line of a plot.
#[derive(Clone, Debug, PartialEq)]
pub struct Line {
    /// Its name.
    pub name: String,
    /// At each place the lower end, the value and the upper end, where there is one.
    pub points: Vec<Option<[f64; 3]>>,
}

/// A run behind the numbers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Run {
    /// What it is, in a line.
    pub name: String,
    /// Names and values: command, hashes, what it measured.
    pub facts: Vec<(String, String)>,
    /// What it counted.
    pub counts: Vec<(String, u64)>,
    /// Why it has no counts, if it failed.
    pub failure: Option<String>,
}

impl Page {
    /// The report for a terminal that is `width` wide: prose and tables.
    pub fn text(&self, width: usize) -> String {
        let mut text = wrap(&format!("{}. {}", self.title, self.lead), width, 0);
        for section in &self.sections {
            if !section.title.is_empty() {
                text.push('\n');
                text.push_str(&wrap(&section.title, width, 0));
            }
            for grid in &section.tables {
                let _ = write!(text, "\n{}\n", grid.caption);
                text.push_str(&grid.text());
            }
        }
        text.push('\n');
        for finding in &self.findings {
            text.push_str(&wrap(finding, width, 2));
        }
        for run in &self.runs {
            if let Some(failure) = &run.failure {
                text.push_str(&wrap(&format!("FAILED: {}: {failure}", run.name), width, 2));
            }
        }
        text
    }
}

impl Grid {
    fn text(&self) -> String {
        let columns = self.head.len();
        let mut aligns = vec![Align::Right; columns];
        if let Some(first) = aligns.first_mut() {
            *first = Align::Left;
        }
        let mut table = Table::new(&aligns).indented(2);
        table.row(self.head.clone());
        table.rule();
        for row in &self.rows {
            table.row(row.iter().map(Cell::plain));
        }
        table.render()
    }
}

#[cfg(test)]
mod tests;
