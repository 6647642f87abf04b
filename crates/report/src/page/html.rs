//! The page for browsers: one file, no other needed.

use super::plot::{COLOURS, svg};
use super::{Cell, Grid, Page, Plot, PlotKind, Run, RunId, Section};
use crate::grouped;

const STYLE: &str = include_str!("style.css");
/// Opens the run that a link leads to.
const SCRIPT: &str = "function open_run(){const e=document.getElementById(location.hash.slice(1));\
                      if(e&&e.tagName==='DETAILS'){e.open=true;e.scrollIntoView();}}\
                      addEventListener('hashchange',open_run);open_run();";

impl Page {
    /// The report as one self-contained HTML page, for wide and narrow windows, light and dark.
    pub fn html(&self) -> String {
        let mut out =
            String::from("<!DOCTYPE html>\n<html lang=\"en\">\n<meta charset=\"utf-8\">\n");
        out.push_str("<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n");
        out.push_str("<meta name=\"color-scheme\" content=\"light dark\">\n");
        out.push_str(&format!("<title>{}</title>\n", escape(&self.title)));
        out.push_str(&format!("<style>\n{STYLE}</style>\n<main>\n"));
        out.push_str(&format!(
            "<h1>{}</h1>\n<p class=\"lead\">{}</p>\n",
            escape(&self.title),
            escape(&self.lead)
        ));
        self.failures(&mut out);
        if !self.findings.is_empty() {
            out.push_str("<h2>What the counts show</h2>\n<ul class=\"findings\">\n");
            for finding in &self.findings {
                out.push_str(&format!("<li>{}</li>\n", escape(finding)));
            }
            out.push_str("</ul>\n");
        }
        self.sections.iter().for_each(|section| self.section(section, &mut out));
        definitions("What the numbers leave out", &self.fidelity, &mut out);
        out.push_str(
            "<h2>Runs</h2>\n<p>Each number above links to the run that it comes from.</p>\n",
        );
        for (i, run) in self.runs.iter().enumerate() {
            one_run(RunId(i), run, &mut out);
        }
        definitions("How this page was made", &self.provenance, &mut out);
        out.push_str(&format!("</main>\n<script>{SCRIPT}</script>\n</html>\n"));
        out
    }

    fn failures(&self, out: &mut String) {
        for (i, run) in self.runs.iter().enumerate() {
            if let Some(failure) = &run.failure {
                let (name, failure) = (escape(&run.name), escape(failure));
                out.push_str(&format!(
                    "<p class=\"failure\">Failed: <a href=\"#r{i}\">{name}</a>: {failure}</p>\n"
                ));
            }
        }
    }

    fn section(&self, section: &Section, out: &mut String) {
        out.push_str("<section>\n");
        if !section.title.is_empty() {
            out.push_str(&format!("<h2>{}</h2>\n", escape(&section.title)));
        }
        out.push_str("<div class=\"plots\">\n");
        section.plots.iter().for_each(|plot| figure(plot, out));
        out.push_str("</div>\n");
        section.tables.iter().for_each(|grid| table(grid, out));
        out.push_str("</section>\n");
    }
}

/// A plot with its caption and legend. The legend is text of the page, so that it wraps.
fn figure(plot: &Plot, out: &mut String) {
    out.push_str(&format!(
        "<figure>\n<figcaption><b>{}</b>, {}</figcaption>\n",
        escape(&plot.caption),
        escape(&plot.unit)
    ));
    out.push_str(&svg(plot));
    let names: Vec<&str> = match &plot.kind {
        // A part that is nowhere to be seen needs no name.
        PlotKind::Stacks { parts, heights, .. } => {
            let seen = |i: usize| heights.iter().flatten().any(|bar| bar.get(i) > Some(&0.0));
            parts.iter().enumerate().map(|(i, p)| if seen(i) { p.as_str() } else { "" }).collect()
        }
        PlotKind::Lines(lines) => lines.iter().map(|line| line.name.as_str()).collect(),
    };
    out.push_str("<ul class=\"legend\">\n");
    for (i, name) in names.iter().enumerate().filter(|(_, name)| !name.is_empty()) {
        let colour = i % COLOURS;
        out.push_str(&format!(
            "<li><span style=\"background:var(--c{colour})\"></span>{}</li>\n",
            escape(name)
        ));
    }
    out.push_str("</ul>\n");
    if let PlotKind::Stacks { bars, .. } = &plot.kind
        && bars.len() > 1
    {
        out.push_str(&format!("<p class=\"bars\">Bars: {}.</p>\n", escape(&bars.join(", then "))));
    }
    out.push_str("</figure>\n");
}

fn table(grid: &Grid, out: &mut String) {
    out.push_str("<div class=\"scroll\"><table>\n");
    out.push_str(&format!("<caption>{}</caption>\n<thead><tr>", escape(&grid.caption)));
    grid.head.iter().for_each(|head| out.push_str(&format!("<th>{}</th>", escape(head))));
    out.push_str("</tr></thead>\n<tbody>\n");
    for row in &grid.rows {
        out.push_str("<tr>");
        for (i, cell) in row.iter().enumerate() {
            let tag = if i == 0 { "th" } else { "td" };
            out.push_str(&format!("<{tag}>{}</{tag}>", linked(cell)));
        }
        out.push_str("</tr>\n");
    }
    out.push_str("</tbody></table></div>\n");
}

fn linked(cell: &Cell) -> String {
    let parts = cell.0.iter().map(|(text, run)| match run {
        Some(RunId(id)) => format!("<a href=\"#r{id}\">{}</a>", escape(text)),
        None => escape(text),
    });
    parts.collect::<Vec<_>>().join(" → ")
}

fn one_run(RunId(id): RunId, run: &Run, out: &mut String) {
    out.push_str(&format!("<details id=\"r{id}\"><summary>{}</summary>\n", escape(&run.name)));
    if let Some(failure) = &run.failure {
        out.push_str(&format!("<p class=\"failure\">{}</p>\n", escape(failure)));
    }
    out.push_str("<dl>\n");
    for (name, value) in &run.facts {
        let (name, value) = (escape(name), escape(value));
        out.push_str(&format!("<dt>{name}</dt><dd><code>{value}</code></dd>\n"));
    }
    out.push_str("</dl>\n<ul class=\"counts\">\n");
    for (name, n) in &run.counts {
        out.push_str(&format!("<li><code>{}</code> {}</li>\n", escape(name), grouped(*n)));
    }
    out.push_str("</ul></details>\n");
}

fn definitions(title: &str, pairs: &[(String, String)], out: &mut String) {
    if pairs.is_empty() {
        return;
    }
    out.push_str(&format!("<h2>{}</h2>\n<dl>\n", escape(title)));
    for (name, value) in pairs {
        out.push_str(&format!("<dt>{}</dt><dd>{}</dd>\n", escape(name), escape(value)));
    }
    out.push_str("</dl>\n");
}

/// Text as HTML shows it.
fn escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            c => out.push(c),
        }
    }
    out
}
