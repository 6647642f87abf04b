//! Just enough of Rust's grammar to search code without its comments and literals.

/// Replaces comments, strings and character literals by spaces; lines stay where they are.
pub(crate) fn code_only(source: &str) -> String {
    let source: Vec<char> = source.chars().collect();
    let mut code = String::with_capacity(source.len());
    let mut at = 0;
    while at < source.len() {
        let end = literal_end(&source, at);
        let token = &source[at..end.max(at + 1)];
        if end == at {
            code.push(source[at]);
        } else {
            code.extend(token.iter().map(|c| if *c == '\n' { '\n' } else { ' ' }));
        }
        at += token.len();
    }
    code
}

/// Where the comment or literal that starts at `at` ends; `at` itself if none starts there.
fn literal_end(source: &[char], at: usize) -> usize {
    let rest = &source[at..];
    let inside_word = at > 0 && is_word(source[at - 1]);
    let length = match rest {
        ['/', '/', ..] => rest.iter().position(|c| *c == '\n').unwrap_or(rest.len()),
        ['/', '*', ..] => block_comment_len(rest),
        ['"', ..] => quoted_len(rest, '"'),
        ['r' | 'b' | 'c', ..] if !inside_word => prefixed_len(rest),
        ['\'', '\\', ..] => quoted_len(rest, '\''),
        ['\'', _, '\'', ..] => 3,
        _ => 0,
    };
    at + length
}

fn block_comment_len(rest: &[char]) -> usize {
    let (mut depth, mut at) = (0_usize, 0);
    while at < rest.len() {
        match &rest[at..] {
            ['/', '*', ..] => (depth, at) = (depth + 1, at + 2),
            ['*', '/', ..] => (depth, at) = (depth - 1, at + 2),
            _ => at += 1,
        }
        if depth == 0 {
            break;
        }
    }
    at
}

fn quoted_len(rest: &[char], quote: char) -> usize {
    let mut at = 1;
    while at < rest.len() && rest[at] != quote {
        at += if rest[at] == '\\' { 2 } else { 1 };
    }
    (at + 1).min(rest.len())
}

/// The length of a literal with a prefix (`r"…"`, `br#"…"#`, `b'…'`, …); 0 if it is an identifier.
fn prefixed_len(rest: &[char]) -> usize {
    let prefix = rest.iter().take_while(|c| matches!(c, 'r' | 'b' | 'c')).count();
    let hashes = rest[prefix..].iter().take_while(|c| **c == '#').count();
    let raw = rest[..prefix].contains(&'r');
    let opening = prefix + hashes;
    match rest.get(opening) {
        Some('"') if raw => {
            let mut closing = vec!['"'];
            closing.resize(1 + hashes, '#');
            let body = &rest[opening + 1..];
            let end = body.windows(closing.len()).position(|window| window == closing);
            end.map_or(rest.len(), |end| opening + 1 + end + closing.len())
        }
        Some('"') if hashes == 0 => prefix + quoted_len(&rest[prefix..], '"'),
        Some('\'') if hashes == 0 && rest[..prefix] == ['b'] => {
            prefix + quoted_len(&rest[prefix..], '\'')
        }
        _ => 0,
    }
}

fn is_word(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

/// The lines (from 1) of `code` on which `word` stands by itself.
pub(crate) fn lines_with_word(code: &str, word: &str) -> Vec<usize> {
    let has_word = |line: &str| line.split(|c| !is_word(c)).any(|token| token == word);
    code.lines().zip(1..).filter(|(line, _)| has_word(line)).map(|(_, nr)| nr).collect()
}

/// A function and how long it is.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Function {
    pub(crate) name: String,
    /// Line of its `fn`, from 1.
    pub(crate) line: usize,
    pub(crate) lines_nr: usize,
}

/// The functions with a body in `code`, which has gone through [`code_only`].
pub(crate) fn functions(code: &str) -> Vec<Function> {
    let mut found = Vec::new();
    for (start, _) in code.match_indices("fn ") {
        let before = code[..start].chars().next_back();
        if before.is_some_and(is_word) {
            continue;
        }
        let name: String = code[start + 3..].chars().take_while(|c| is_word(*c)).collect();
        if name.is_empty() {
            continue; // a function pointer type
        }
        let Some(end) = body_end(code, start) else { continue };
        let line = 1 + code[..start].matches('\n').count();
        let lines_nr = 1 + code[start..end].matches('\n').count();
        found.push(Function { name, line, lines_nr });
    }
    found
}

/// Where the body of the function that starts at `start` ends; `None` for a mere declaration.
fn body_end(code: &str, start: usize) -> Option<usize> {
    let (mut braces, mut others) = (0_u32, 0_u32);
    for (offset, c) in code[start..].char_indices() {
        match c {
            '{' => braces += 1,
            '}' if braces == 1 => return Some(start + offset),
            '}' => braces = braces.checked_sub(1)?,
            '(' | '[' => others += 1,
            ')' | ']' => others = others.checked_sub(1)?,
            ';' if braces == 0 && others == 0 => return None,
            _ => {}
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(source: &str, code: &str) {
        assert_eq!(code_only(source), code, "of {source}");
    }

    #[test]
    fn comments_are_blanked() {
        check("a // unsafe\nb", "a          \nb");
        check("a /* x /* y */ z */ b", "a                   b");
        check("a /* x\ny */ b", "a     \n     b");
    }

    #[test]
    fn literals_are_blanked() {
        check(r#"f("a\"b", x)"#, "f(      , x)");
        check(r##"r#"a"b"# + c"##, "         + c");
        check(r#"b"ab" br"c" x"#, "            x");
        check(r"'a' + '\'' + b'x' + '\u{1}'", "    +      +      +        ");
    }

    #[test]
    fn lifetimes_and_identifiers_stay() {
        check("fn f<'a>(bar: &'a str, r: B)", "fn f<'a>(bar: &'a str, r: B)");
        check("attr\"x\" r#fn b", "attr    r#fn b");
    }

    #[test]
    fn words_are_whole_words() {
        assert_eq!(lines_with_word("unsafe_code\nx unsafe {\n", "unsafe"), [2]);
    }

    #[test]
    fn functions_are_measured() {
        let code =
            "trait T { fn a(); fn d(x: [u8; 2]) { } }\nfn b<F: fn(u8)>(\n) {\n  if x { }\n}\n";
        let function = |name: &str, line, lines_nr| Function { name: name.into(), line, lines_nr };
        assert_eq!(functions(code), [function("d", 1, 1), function("b", 2, 4)]);
    }
}
