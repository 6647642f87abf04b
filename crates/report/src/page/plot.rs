//! Plots as SVG, in the colours of the page they stand in.

use super::{Line, Plot, PlotKind};
use plotters::coord::types::RangedCoordf64;
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

/// Size in the units of the drawing; it is scaled to the width that there is.
const SIZE: (u32, u32) = (480, 300);
const FONT: (&str, u32) = ("sans-serif", 13);

/// How many colours there are; more parts or lines begin again at the first.
pub(super) const COLOURS: usize = 8;
/// Colours of the drawing that stand for those of the style sheet, `--c0` to `--c7`: a page has two themes.
const SERIES: [RGBColor; COLOURS] = [
    RGBColor(1, 2, 240),
    RGBColor(1, 2, 241),
    RGBColor(1, 2, 242),
    RGBColor(1, 2, 243),
    RGBColor(1, 2, 244),
    RGBColor(1, 2, 245),
    RGBColor(1, 2, 246),
    RGBColor(1, 2, 247),
];
const INK: RGBColor = RGBColor(1, 2, 250);
const GRID: RGBColor = RGBColor(1, 2, 251);

type Chart<'a, 'b> = ChartContext<'a, SVGBackend<'b>, Cartesian2d<RangedCoordf64, RangedCoordf64>>;
type Drawn = Result<(), Box<dyn std::error::Error>>;

/// The plot as an `<svg>` element; empty if there is nothing to draw.
pub(super) fn svg(plot: &Plot) -> String {
    let mut text = String::new();
    if plot.x.is_empty() || draw(plot, &mut text).is_err() {
        return String::new();
    }
    let named = SERIES.iter().enumerate().map(|(i, colour)| (*colour, format!("--c{i}")));
    for (colour, name) in named.chain([(INK, "--ink".to_owned()), (GRID, "--grid".to_owned())]) {
        let RGBColor(r, g, b) = colour;
        text = text.replace(&format!("\"#{r:02X}{g:02X}{b:02X}\""), &format!("\"var({name})\""));
    }
    let sized = format!("width=\"{}\" height=\"{}\"", SIZE.0, SIZE.1);
    text.replace(&sized, "role=\"img\"")
}

fn draw(plot: &Plot, into: &mut String) -> Drawn {
    let root = SVGBackend::with_string(into, SIZE).into_drawing_area();
    let top = top(plot);
    let label_width = axis_label(top).len();
    let places = f64_of(plot.x.len());
    let mut chart = ChartBuilder::on(&root)
        .margin(6)
        .margin_right(14)
        .x_label_area_size(26)
        .y_label_area_size(u32::try_from(18 + 8 * label_width).unwrap_or(60))
        .build_cartesian_2d(0.0..places, 0.0..top)?;
    let text = FONT.into_font().color(&INK);
    chart
        .configure_mesh()
        .disable_x_mesh()
        .x_labels(0)
        .y_labels(6)
        .y_label_formatter(&|y| axis_label(*y))
        .label_style(text)
        .axis_style(GRID)
        .bold_line_style(GRID)
        .light_line_style(TRANSPARENT)
        .draw()?;
    match &plot.kind {
        PlotKind::Stacks { bars, heights, .. } => stacks(&mut chart, bars.len(), heights)?,
        PlotKind::Lines(lines) => {
            for (i, line) in lines.iter().enumerate() {
                one_line(&mut chart, line, i, lines.len())?;
            }
        }
    }
    names(&root, &chart, &plot.x)?;
    drop(chart);
    root.present()?;
    Ok(())
}

/// Names under the axis; every second or fourth only, if they would run into each other.
fn names(
    root: &DrawingArea<SVGBackend<'_>, plotters::coord::Shift>,
    chart: &Chart<'_, '_>,
    x: &[String],
) -> Drawn {
    let area = chart.plotting_area();
    let (width, _) = area.dim_in_pixel();
    let longest = x.iter().map(|name| name.chars().count()).max().unwrap_or(0);
    let fitting = (f64::from(width) / (8.0 * f64_of(longest) + 6.0)).max(1.0);
    let mut step = 1;
    while f64_of(x.len().div_ceil(step)) > fitting {
        step += 1;
    }
    let style = FONT.into_font().color(&INK).pos(Pos::new(HPos::Center, VPos::Top));
    for (i, name) in x.iter().enumerate().step_by(step) {
        let (px, py) = area.map_coordinate(&(f64_of(i) + 0.5, 0.0));
        root.draw_text(name, &style, (px, py + 7))?;
    }
    Ok(())
}

/// Groups of stacked bars with a gap between the groups.
fn stacks(chart: &mut Chart<'_, '_>, bars: usize, heights: &[Vec<Vec<f64>>]) -> Drawn {
    let width = 0.8 / f64_of(bars.max(1));
    for (place, group) in heights.iter().enumerate() {
        for (bar, parts) in group.iter().enumerate() {
            let left = f64_of(place) + 0.1 + width * f64_of(bar);
            let mut bottom = 0.0;
            for (part, height) in parts.iter().enumerate().filter(|part| *part.1 > 0.0) {
                let corners = [(left, bottom), (left + width * 0.92, bottom + height)];
                let colour = SERIES[part % COLOURS].filled();
                chart.draw_series([Rectangle::new(corners, colour)])?;
                bottom += height;
            }
        }
    }
    Ok(())
}

/// A line; the points of several lines stand beside each other, so that intervals can be told apart.
fn one_line(chart: &mut Chart<'_, '_>, line: &Line, index: usize, of: usize) -> Drawn {
    let colour = SERIES[index % COLOURS];
    let shift = (f64_of(index) + 0.5) / f64_of(of) * 0.3 - 0.15;
    let at = |place: usize| f64_of(place) + 0.5 + shift;
    let known: Vec<(f64, [f64; 3])> = line
        .points
        .iter()
        .enumerate()
        .filter_map(|(place, point)| point.map(|values| (at(place), values)))
        .collect();
    let middle = known.iter().map(|&(x, [_, y, _])| (x, y));
    chart.draw_series(LineSeries::new(middle.clone(), colour.stroke_width(2)))?;
    for &(x, [low, _, high]) in known.iter().filter(|(_, [low, _, high])| low < high) {
        chart.draw_series(LineSeries::new([(x, low), (x, high)], colour.stroke_width(1)))?;
    }
    chart.draw_series(middle.map(|point| Circle::new(point, 3, colour.filled())))?;
    Ok(())
}

/// Where the vertical axis ends: a little above everything.
fn top(plot: &Plot) -> f64 {
    let highest = match &plot.kind {
        PlotKind::Stacks { heights, .. } => {
            let sums = heights.iter().flatten().map(|parts| parts.iter().sum());
            sums.fold(0.0, f64::max)
        }
        PlotKind::Lines(lines) => {
            let points = lines.iter().flat_map(|line| line.points.iter().flatten());
            points.map(|point| point[2]).fold(0.0, f64::max)
        }
    };
    if highest > 0.0 { highest * 1.06 } else { 1.0 }
}

/// `0`, `0.25`, `30`, `1.5k`, `2M`.
fn axis_label(y: f64) -> String {
    let (value, suffix) = match y.abs() {
        size if size >= 1e6 => (y / 1e6, "M"),
        size if size >= 1e4 => (y / 1e3, "k"),
        _ => (y, ""),
    };
    let text = if value.abs() >= 100.0 { format!("{value:.0}") } else { format!("{value:.2}") };
    let text = if text.contains('.') {
        text.trim_end_matches('0').trim_end_matches('.').to_owned()
    } else {
        text
    };
    text + suffix
}

#[expect(clippy::cast_precision_loss, reason = "places in a plot are few")]
fn f64_of(n: usize) -> f64 {
    n as f64
}
