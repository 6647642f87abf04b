//! Results beside the reference: a full account, and the table of `docs/selftests.md`.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use anyhow::{Context, Result};

use super::Arch;
use super::reference::Reference;
use super::run::Ran;
use super::tap::counted;

/// How one run compares.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Compared {
    /// Lines that are ok on Linux.
    pub(crate) ok_there: usize,
    /// Those of them that are ok here.
    pub(crate) ok_here: usize,
    /// Lines that only one side has, each with how often: `-` only Linux, `+` only here.
    pub(crate) differences: Vec<String>,
    pub(crate) same_status: bool,
}

impl Compared {
    /// Every line and the exit status are as on Linux.
    pub(crate) fn is_equal(&self) -> bool {
        self.differences.is_empty() && self.same_status
    }
}

pub(crate) fn compare(reference: &Reference, ran: &Ran) -> Compared {
    let (there, here) = (counted(reference.lines.iter()), counted(ran.lines.iter()));
    let mut compared = Compared {
        ok_there: 0,
        ok_here: 0,
        differences: Vec::new(),
        same_status: ran.status == Some(reference.status),
    };
    for (&line, &nr) in &there {
        let same = nr.min(here.get(line).copied().unwrap_or(0));
        if line.starts_with("ok ") {
            compared.ok_there += nr;
            compared.ok_here += same;
        }
        if same < nr {
            compared.differences.push(format!("- {}x {line}", nr - same));
        }
    }
    for (&line, &nr) in &here {
        let same = nr.min(there.get(line).copied().unwrap_or(0));
        if same < nr {
            compared.differences.push(format!("+ {}x {line}", nr - same));
        }
    }
    compared
}

/// One run of the account.
pub(crate) fn account(reference: &Reference, ran: &Ran, compared: &Compared) -> String {
    let verdict = if compared.is_equal() { "as on Linux" } else { "differs" };
    let mut text = format!(
        "== {} {}: {verdict}; {} of {} ok\n",
        reference.arch.name(),
        reference.name(),
        compared.ok_here,
        compared.ok_there
    );
    if !compared.same_status {
        let here = ran.status.map_or_else(|| "none".to_owned(), |status| status.to_string());
        let _ = writeln!(text, "   exit status {here}, on Linux {}", reference.status);
    }
    for (what, said) in [("stopped", &ran.stopped), ("ENOSYS", &ran.missing)] {
        if let Some(said) = said {
            let _ = writeln!(text, "   {what}: {said}");
        }
    }
    for line in &compared.differences {
        let _ = writeln!(text, "   {line}");
    }
    text
}

const COLUMNS: &str = "| program | x86-64 | arm64 | what is missing |\n|---|---|---|---|\n";
const EQUAL: &str = "as Linux";

/// Rows by the name of the run.
pub(crate) type Rows = Vec<(String, Row)>;

/// One row of the table: a cell for each architecture.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Row {
    pub(crate) cells: BTreeMap<&'static str, String>,
    pub(crate) why: String,
}

fn cell(compared: &Compared) -> String {
    let verdict = match (compared.is_equal(), compared.same_status) {
        (true, _) => format!(", {EQUAL}"),
        (false, true) => String::new(),
        (false, false) => ", other exit".to_owned(),
    };
    format!("{}/{}{verdict}", compared.ok_here, compared.ok_there)
}

/// Rows by the name of the run, in the order of the reference.
pub(crate) fn rows(results: &[(Reference, Compared)]) -> Rows {
    let mut rows: Rows = Vec::new();
    let mut matrix: BTreeMap<&'static str, (usize, usize)> = BTreeMap::new();
    for (reference, compared) in results {
        let arch = reference.arch.name();
        if reference.matrix {
            let (equal, all) = matrix.entry(arch).or_default();
            *equal += usize::from(compared.is_equal());
            *all += 1;
            continue;
        }
        let name = reference.name();
        let at = rows.iter().position(|(known, _)| *known == name).unwrap_or_else(|| {
            rows.push((name, Row::default()));
            rows.len() - 1
        });
        rows[at].1.cells.insert(arch, cell(compared));
    }
    if !matrix.is_empty() {
        let mut row = Row::default();
        for (arch, (equal, all)) in matrix {
            let verdict = if equal == all { format!(", {EQUAL}") } else { String::new() };
            row.cells.insert(arch, format!("{equal}/{all}{verdict}"));
        }
        rows.push(("gup_test, all calls of `run_vmtests.sh -a`".to_owned(), row));
    }
    rows
}

pub(crate) fn render(rows: &[(String, Row)]) -> String {
    let mut text = COLUMNS.to_owned();
    for (name, row) in rows {
        let cell = |arch: Arch| row.cells.get(arch.name()).map_or("", String::as_str);
        let (x86_64, arm64) = (cell(Arch::X86_64), cell(Arch::Arm64));
        let _ = writeln!(text, "| {name} | {x86_64} | {arm64} | {} |", row.why);
    }
    text
}

const BEGIN: &str = "<!-- table: xtask selftests run --update -->\n";
const END: &str = "<!-- end of table -->\n";

/// The table in the page, and what is around it.
pub(crate) fn split(page: &str) -> Result<(&str, Rows, &str)> {
    let (before, rest) = page.split_once(BEGIN).context("the page has no table")?;
    let (table, after) = rest.split_once(END).context("the table has no end")?;
    let rows = table.lines().skip(2).filter_map(parse_row).collect();
    Ok((before, rows, after))
}

pub(crate) fn join(before: &str, rows: &[(String, Row)], after: &str) -> String {
    format!("{before}{BEGIN}{}{END}{after}", render(rows))
}

fn parse_row(line: &str) -> Option<(String, Row)> {
    let parts: Vec<&str> = line.trim_matches('|').split('|').map(str::trim).collect();
    let [name, x86_64, arm64, why] = parts[..] else { return None };
    let cells = [(Arch::X86_64.name(), x86_64), (Arch::Arm64.name(), arm64)];
    let cells = cells.into_iter().filter(|(_, cell)| !cell.is_empty());
    let cells = cells.map(|(arch, cell)| (arch, cell.to_owned())).collect();
    Some((name.to_owned(), Row { cells, why: why.to_owned() }))
}

/// How good a cell is: as on Linux, and then the number of lines that are ok.
fn merit(cell: &str) -> (bool, usize) {
    let digits = cell.split('/').next().and_then(|nr| nr.parse().ok());
    (cell.ends_with(EQUAL), digits.unwrap_or(0))
}

/// What became worse, and what became better, since the table in the page.
pub(crate) fn changes(old: &[(String, Row)], new: &[(String, Row)]) -> (Vec<String>, Vec<String>) {
    let (mut worse, mut better) = (Vec::new(), Vec::new());
    for (name, row) in new {
        let Some((_, before)) = old.iter().find(|(known, _)| known == name) else { continue };
        for (arch, cell) in &row.cells {
            let Some(was) = before.cells.get(arch) else { continue };
            let line = format!("{name} on {arch}: {was} became {cell}");
            match merit(cell).cmp(&merit(was)) {
                std::cmp::Ordering::Less => worse.push(line),
                std::cmp::Ordering::Greater => better.push(line),
                std::cmp::Ordering::Equal => {}
            }
        }
    }
    (worse, better)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reference(lines: &[&str]) -> Reference {
        Reference {
            arch: Arch::Arm64,
            program: "cow".to_owned(),
            args: Vec::new(),
            nr_hugepages: 0,
            overcommit: None,
            shmmax: None,
            nobody: false,
            matrix: false,
            status: 0,
            lines: lines.iter().map(|line| (*line).to_owned()).collect(),
        }
    }

    fn ran(lines: &[&str], status: u64) -> Ran {
        let lines = lines.iter().map(|line| (*line).to_owned()).collect();
        Ran { status: Some(status), lines, stopped: None, missing: None }
    }

    #[test]
    fn lines_are_matched_by_name_however_often_they_come() {
        let there = reference(&["ok a", "ok a", "ok b", "skip c"]);
        let equal = compare(&there, &ran(&["ok b", "ok a", "skip c", "ok a"], 0));
        assert!(equal.is_equal() && equal.ok_here == 3);
        let less = compare(&there, &ran(&["ok a", "not ok b", "skip c"], 0));
        assert_eq!((less.ok_here, less.ok_there), (1, 3));
        assert_eq!(less.differences, ["- 1x ok a", "- 1x ok b", "+ 1x not ok b"]);
        assert!(!compare(&there, &ran(&["ok b", "ok a", "skip c", "ok a"], 1)).is_equal());
    }

    #[test]
    fn a_table_survives_its_page_and_shows_what_changed() {
        let there = reference(&["ok a", "ok b"]);
        let table = |lines: &[&str]| rows(&[(there.clone(), compare(&there, &ran(lines, 0)))]);
        let (good, bad) = (table(&["ok a", "ok b"]), table(&["ok a"]));
        let page = join("before\n", &good, "after\n");
        let (before, parsed, after) = split(&page).expect("a table");
        assert_eq!((before, after), ("before\n", "after\n"));
        assert_eq!(parsed, good);
        let (worse, better) = changes(&parsed, &bad);
        assert_eq!((worse.len(), better.len()), (1, 0));
        assert!(worse[0].contains("2/2, as Linux became 1/2"), "{worse:?}");
        let (worse, better) = changes(&bad, &good);
        assert_eq!((worse.len(), better.len()), (0, 1));
    }
}
