//! Aligned text.

/// On which side a column is flush.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Align {
    /// Text.
    Left,
    /// Numbers.
    Right,
}

#[derive(Clone, Debug)]
enum Row {
    Cells(Vec<String>),
    Rule,
}

/// A table of text: columns as wide as their widest cell, two spaces between them.
#[derive(Clone, Debug)]
pub struct Table {
    columns: Vec<Align>,
    indent: usize,
    rows: Vec<Row>,
}

impl Table {
    /// A table without rows.
    pub fn new(columns: &[Align]) -> Self {
        Table { columns: columns.to_vec(), indent: 0, rows: Vec::new() }
    }

    /// The same table moved to the right by `spaces`.
    #[must_use]
    pub fn indented(mut self, spaces: usize) -> Self {
        self.indent = spaces;
        self
    }

    /// Appends a row; cells that are missing at its end stay empty.
    ///
    /// # Panics
    /// If there are more cells than columns.
    pub fn row<I>(&mut self, cells: I)
    where
        I: IntoIterator,
        I::Item: Into<String>,
    {
        let cells: Vec<String> = cells.into_iter().map(Into::into).collect();
        assert!(cells.len() <= self.columns.len(), "more cells than columns");
        self.rows.push(Row::Cells(cells));
    }

    /// Appends a line across the table.
    pub fn rule(&mut self) {
        self.rows.push(Row::Rule);
    }

    /// The text, a newline after each row.
    pub fn render(&self) -> String {
        let widths = self.widths();
        let total = widths.iter().sum::<usize>() + 2 * widths.len().saturating_sub(1);
        let mut text = String::new();
        for row in &self.rows {
            let line = match row {
                Row::Cells(cells) => self.line(cells, &widths),
                Row::Rule => "─".repeat(total),
            };
            text.push_str(&" ".repeat(self.indent));
            text.push_str(&line);
            text.truncate(text.trim_end_matches(' ').len());
            text.push('\n');
        }
        text
    }

    fn widths(&self) -> Vec<usize> {
        let mut widths = vec![0; self.columns.len()];
        for row in &self.rows {
            if let Row::Cells(cells) = row {
                for (width, cell) in widths.iter_mut().zip(cells) {
                    *width = (*width).max(cell.chars().count());
                }
            }
        }
        widths
    }

    fn line(&self, cells: &[String], widths: &[usize]) -> String {
        let cells = cells.iter().zip(widths).zip(&self.columns);
        let padded: Vec<String> = cells
            .map(|((cell, &width), align)| match align {
                Align::Left => format!("{cell:<width$}"),
                Align::Right => format!("{cell:>width$}"),
            })
            .collect();
        padded.join("  ")
    }
}

/// A count with separators: `65,536`.
pub fn grouped(n: u64) -> String {
    let digits = n.to_string();
    let mut text = String::new();
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// `n / d` with up to two decimals, none if it is whole: `17`, `0.03`, `6.5`.
pub fn decimal(n: u64, d: u64) -> String {
    if d == 0 {
        return "–".to_owned();
    }
    let hundredths = (u128::from(n) * 100 + u128::from(d) / 2) / u128::from(d);
    let whole = u64::try_from(hundredths / 100).unwrap_or(u64::MAX);
    match hundredths % 100 {
        0 if n > 0 && whole == 0 => "<0.01".to_owned(),
        0 => grouped(whole),
        rest if rest % 10 == 0 => format!("{}.{}", grouped(whole), rest / 10),
        rest => format!("{}.{rest:02}", grouped(whole)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_align_and_lines_end_without_spaces() {
        let mut table = Table::new(&[Align::Left, Align::Right, Align::Left]).indented(2);
        table.row(["event", "count", "note"]);
        table.rule();
        table.row(["ptep_get", "65,536", ""]);
        table.row(["µs", "1"]);
        let expected = "  event      count  note\n  ──────────────────────\n  \
                        ptep_get  65,536\n  µs             1\n";
        assert_eq!(table.render(), expected);
    }

    #[test]
    fn counts_are_grouped() {
        assert_eq!(grouped(0), "0");
        assert_eq!(grouped(999), "999");
        assert_eq!(grouped(1000), "1,000");
        assert_eq!(grouped(1_234_567), "1,234,567");
    }

    #[test]
    fn quotients_have_as_many_decimals_as_they_need() {
        assert_eq!(decimal(69_632, 4096), "17");
        assert_eq!(decimal(69_759, 4096), "17.03");
        assert_eq!(decimal(3, 2), "1.5");
        assert_eq!(decimal(1, 65_536), "<0.01");
        assert_eq!(decimal(0, 7), "0");
        assert_eq!(decimal(1, 0), "–");
        assert_eq!(decimal(524_288, 1), "524,288");
    }
}
