//! Prose for terminals.

/// Breaks `text` into lines of at most `width` characters, each but the first indented by
/// `indent` spaces; a newline after each.
pub fn wrap(text: &str, width: usize, indent: usize) -> String {
    let mut out = String::new();
    let mut column = 0;
    for word in text.split_whitespace() {
        let length = word.chars().count();
        if column > 0 && column + 1 + length > width {
            out.push('\n');
            out.push_str(&" ".repeat(indent));
            column = indent;
        } else if column > 0 {
            out.push(' ');
            column += 1;
        }
        out.push_str(word);
        column += length;
    }
    out.push('\n');
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_break_between_words_and_hang() {
        assert_eq!(wrap("one two three four", 9, 2), "one two\n  three\n  four\n");
        assert_eq!(wrap("incomprehensible", 5, 0), "incomprehensible\n");
        assert_eq!(wrap("", 5, 0), "\n");
    }
}
