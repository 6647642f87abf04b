//! A waterfall as SVG: how one total becomes another, step by step.

use std::fmt::Write as _;

/// One step.
#[derive(Clone, Debug, PartialEq)]
pub struct Step {
    /// What it is.
    pub label: String,
    /// By how much the total grows; falls if negative.
    pub change: f64,
    /// The same for people.
    pub text: String,
}

const WIDTH: f64 = 760.0;
const ROW: f64 = 24.0;
/// Where bars begin and end; labels stand to the left of them, figures to the right.
const BARS: [f64; 2] = [280.0, 660.0];
const STYLE: &str = "text{font:13px sans-serif;fill:CanvasText}.total{fill:#4a6fa5}.less{fill:#3a8f5c}.more{fill:#b5483a}\
                     @media(prefers-color-scheme:dark){.total{fill:#7fa3d8}.less{fill:#6cc48f}.more{fill:#e58a7d}}";

/// From `first` by `steps` to the sum of both, which is `last`; each total with what people read.
pub fn waterfall(first: (&str, f64, &str), steps: &[Step], last: (&str, &str)) -> String {
    let mut top = first.1;
    let mut sum = first.1;
    for step in steps {
        sum += step.change;
        top = top.max(sum);
    }
    let scale = (BARS[1] - BARS[0]) / if top > 0.0 { top } else { 1.0 };
    let rows = steps.len() + 2;
    let mut rest = String::new();
    let mut row = 0.0;
    let mut bar = |class: &str, label: &str, from: f64, to: f64, text: &str| {
        let (low, high) = (from.min(to).max(0.0), from.max(to).max(0.0));
        let y = row * ROW + 4.0;
        let (x, width) = (BARS[0] + low * scale, ((high - low) * scale).max(1.0));
        let _ = writeln!(
            rest,
            "<text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{}</text>\
             <rect class=\"{class}\" x=\"{x:.1}\" y=\"{y:.1}\" width=\"{width:.1}\" height=\"{:.1}\"/>\
             <text x=\"{:.1}\" y=\"{:.1}\">{}</text>",
            BARS[0] - 8.0,
            y + 13.0,
            escape(label),
            ROW - 7.0,
            BARS[0] + high * scale + 6.0,
            y + 13.0,
            escape(text)
        );
        row += 1.0;
    };
    bar("total", first.0, 0.0, first.1, first.2);
    let mut at = first.1;
    for step in steps {
        let class = if step.change < 0.0 { "less" } else { "more" };
        bar(class, &step.label, at, at + step.change, &step.text);
        at += step.change;
    }
    bar("total", last.0, 0.0, at, last.1);
    #[expect(clippy::cast_precision_loss, reason = "there are a few dozen rows")]
    let height = rows as f64 * ROW + 4.0;
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" role=\"img\">\n<style>{STYLE}</style>\n{rest}</svg>\n"
    )
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bars_hang_from_where_the_last_one_ended() {
        let step = |label: &str, change| Step {
            label: label.to_owned(),
            change,
            text: format!("{change}"),
        };
        let svg =
            waterfall(("A", 100.0, "100"), &[step("x < y", -60.0), step("z", 10.0)], ("B", "50"));
        // 380 units wide: 100 is all of it, 60 are 228, from 40 on.
        assert!(svg.contains("class=\"less\" x=\"432.0\" y=\"28.0\" width=\"228.0\""), "{svg}");
        assert!(svg.contains("class=\"more\" x=\"432.0\""), "{svg}");
        assert!(svg.contains("x &lt; y") && svg.matches("<rect").count() == 4, "{svg}");
    }
}
