//! What a selftest printed, as the lines that are compared.

use std::collections::BTreeMap;

/// The outcome of one line, and which test it is about.
///
/// Words are those of the reference: `<ok|not ok|skip|xfail> [<remark> :: ]<name as printed>`.
pub(crate) fn lines(program: &str, output: &str) -> Vec<String> {
    match program {
        "khugepaged" => khugepaged(output),
        "uffd-unit-tests" => uffd(output),
        "protection_keys" => {
            let done = output.lines().any(|line| line == "done (all tests OK)");
            done.then(|| "ok done (all tests OK)".to_owned()).into_iter().collect()
        }
        _ => tap(program, output),
    }
}

/// Programs whose result lines say only how a case went; which case it was is in the remark before.
const REMARKS: [&str; 5] =
    ["cow", "gup_longterm", "mkdirty", "madv_populate", "ksm_functional_tests"];

fn tap(program: &str, output: &str) -> Vec<String> {
    let joins = REMARKS.contains(&program);
    let mut remark = None;
    let mut lines = Vec::new();
    for line in output.lines() {
        if let Some(text) = line.strip_prefix("# [RUN] ").or(line.strip_prefix("# [INFO] ")) {
            remark = Some(text.trim());
        }
        let Some((outcome, name)) = result(line) else { continue };
        lines.push(match remark.filter(|_| joins) {
            Some(remark) => format!("{outcome} {remark} :: {name}"),
            None => format!("{outcome} {name}"),
        });
    }
    lines
}

/// `ok 12 name # SKIP why` is a skip of `name # SKIP why`.
fn result(line: &str) -> Option<(&'static str, &str)> {
    let (outcome, rest) = match line.strip_prefix("not ok ") {
        Some(rest) => ("not ok", rest),
        None => ("ok", line.strip_prefix("ok ")?),
    };
    let rest = rest.trim_start_matches(|c: char| c.is_ascii_digit()).trim_start();
    let name = rest.strip_prefix("- ").unwrap_or(rest).trim_end();
    let outcome = match () {
        () if name.contains("# SKIP") => "skip",
        () if name.contains("# XFAIL") => "xfail",
        () => outcome,
    };
    Some((outcome, name))
}

/// `Run test: NAME`, and then `what it does...  OK`.
fn khugepaged(output: &str) -> Vec<String> {
    let mut test = String::new();
    let mut lines = Vec::new();
    for line in output.lines() {
        if let Some(name) = line.strip_prefix("Run test: ") {
            test = format!("{} / ", name.trim());
            continue;
        }
        let plain = without_colours(line);
        // A counter is written over itself.
        let plain = plain.rsplit('\r').next().unwrap_or_default();
        let Some((name, said)) = plain.split_once("...") else { continue };
        let said = said.trim_start_matches(['.', ' ']).trim();
        let outcome = match said {
            "OK" => "ok",
            "Skip" => "skip",
            _ if said.starts_with("Fail") => "not ok",
            _ => continue,
        };
        lines.push(format!("{outcome} {test}{}", name.trim()));
    }
    lines
}

fn without_colours(line: &str) -> String {
    let mut plain = String::new();
    let mut rest = line;
    while let Some((before, after)) = rest.split_once('\x1b') {
        plain += before;
        rest = after.split_once('m').map_or("", |(_, rest)| rest);
    }
    plain + rest
}

/// `Testing NAME... done`.
fn uffd(output: &str) -> Vec<String> {
    let mut lines = Vec::new();
    for part in output.split("Testing ").skip(1) {
        let Some((name, said)) = part.split_once("... ") else { continue };
        let outcome = match said.split_whitespace().next() {
            Some("done") => "ok",
            Some("skipped") => "skip",
            _ => "not ok",
        };
        let said = said.lines().next().unwrap_or_default().trim();
        let why = if outcome == "ok" { String::new() } else { format!(" # {said}") };
        lines.push(format!("{outcome} {name}{why}"));
    }
    lines
}

/// How often each line occurs.
pub(crate) fn counted<'a>(lines: impl Iterator<Item = &'a String>) -> BTreeMap<&'a str, usize> {
    let mut counts = BTreeMap::new();
    for line in lines {
        *counts.entry(line.as_str()).or_default() += 1;
    }
    counts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_keep_outcome_and_name_and_lose_their_number() {
        let output =
            "1..3\nok 1 mmap\nnot ok 12 munmap\nok 3 # SKIP no swap\nok 4 # XFAIL late\nnoise\n";
        let expected = ["ok mmap", "not ok munmap", "skip # SKIP no swap", "xfail # XFAIL late"];
        assert_eq!(lines("mremap_test", output), expected);
    }

    #[test]
    fn a_remark_names_the_case_where_the_line_does_not() {
        let output = "# [RUN] COW ... with base page\nok 1 No leak\n";
        assert_eq!(lines("cow", output), ["ok COW ... with base page :: No leak"]);
        assert_eq!(lines("soft-dirty", output), ["ok No leak"]);
    }

    #[test]
    fn programs_with_words_of_their_own_are_understood() {
        let output = "Allocate huge page on fault... \x1b[32mOK\x1b[0m\nRun test: full (anon)\nCollapse... Fail: check\n";
        let expected = ["ok Allocate huge page on fault", "not ok full (anon) / Collapse"];
        assert_eq!(lines("khugepaged", output), expected);
        let output = "Testing pagemap on anon... done\nTesting move on anon... skipped [reason: no memory]\n";
        assert_eq!(
            lines("uffd-unit-tests", output),
            ["ok pagemap on anon", "skip move on anon # skipped [reason: no memory]"]
        );
        assert_eq!(lines("protection_keys", "done (all tests OK)\n"), ["ok done (all tests OK)"]);
        assert!(lines("protection_keys", "has pkeys: 1\n").is_empty());
    }
}
