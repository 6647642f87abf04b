//! The report for people after a run, in the manner of `perf stat`.

use cost::{Picos, PriceList};
use events::Event;
use report::{Align, EventCounts, RunReport, Table, grouped};
use std::collections::BTreeMap;
use study::wrap;
use units::ArchId;

const WIDTH: usize = 100;
/// The row of what the guest computed itself.
const GUEST_CODE: &str = "(guest code)";
static NOTHING: EventCounts = EventCounts::new();
static NO_OPS: BTreeMap<String, EventCounts> = BTreeMap::new();
/// How many kernel entries are shown unless everything is.
const ENTRIES_MAX: usize = 12;
/// How many lines of the kernel's log are shown unless everything is.
const LOG_LINES_MAX: usize = 24;

/// How much to say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Detail {
    /// One line per kernel entry, the columns that matter most.
    Main,
    /// Every counter of every op.
    Everything,
}

/// A line of the table of kernel entries.
struct Entry<'r> {
    name: &'r str,
    calls: u64,
    events: &'r EventCounts,
    by_op: &'r BTreeMap<String, EventCounts>,
    time: Picos,
}

pub(crate) fn render(report: &RunReport, detail: Detail) -> String {
    let prices = ArchId::parse(&report.arch)
        .and_then(|arch| PriceList::for_machine(&report.machine, arch).ok());
    let entries = entries(report, prices.as_ref());
    let mut text = format!("\n{}\n\n", headline(report));
    text.push_str(&totals(report));
    text.push('\n');
    text.push_str(&entry_table(&entries, detail));
    if detail == Detail::Everything {
        text.push_str(&all_counters(report, &entries));
    }
    text.push_str(&statistics(report, detail));
    text.push_str(&kernel_log(report, detail));
    text.push_str(&remarks(report, prices.as_ref()));
    text
}

fn headline(report: &RunReport) -> String {
    let RunReport { arch, machine, kernel, cpus, guest, exit, .. } = report;
    let cpus = if *cpus == 1 { "1 CPU".to_owned() } else { format!("{cpus} CPUs") };
    let end = match exit.signal {
        Some(signal) => format!("killed by signal {signal}"),
        None => format!("exit status {}", exit.status),
    };
    let command = guest.argv.join(" ");
    format!(" ptescope: `{command}` on {arch}, machine {machine}, {cpus}, kernel {kernel}: {end}")
}

fn totals(report: &RunReport) -> String {
    let mut table = Table::new(&[Align::Right, Align::Left, Align::Left]).indented(1);
    let time = |ns: u64| Picos::new(i128::from(ns) * 1000).to_string();
    let t = &report.time;
    table.row([
        time(t.ns),
        "modelled time".to_owned(),
        format!("90 %: {} to {}; prices of {}", time(t.low_ns), time(t.high_ns), t.model),
    ]);
    table.row([grouped(report.instructions), "instructions".to_owned()]);
    let faults = report.faults.minor + report.faults.major;
    let kinds =
        format!("{} minor, {} major", grouped(report.faults.minor), grouped(report.faults.major));
    table.row([grouped(faults), "page faults".to_owned(), kinds]);
    for (label, events) in COLUMNS {
        let n: u64 = events.iter().map(|&e| report.events.get(e)).sum();
        table.row([grouped(n), (*label).to_owned()]);
    }
    table.render()
}

const COLUMNS: &[(&str, &[Event])] = &[
    ("PTE loads", &[Event::PteRead]),
    ("PTE atomics", &[Event::PteXchg, Event::PteCmpxchg, Event::PmdXchg, Event::PmdCmpxchg]),
    ("PTE stores", &[Event::PteWrite, Event::PmdWrite, Event::HugeLeafWrite]),
    (
        "TLB flushes",
        &[
            Event::TlbiVale1is,
            Event::TlbiVae1is,
            Event::TlbiRvale1is,
            Event::TlbiRvae1is,
            Event::TlbiAside1is,
            Event::TlbiVale1,
            Event::TlbiRvale1,
            Event::TlbiVmalle1,
            Event::Invlpg,
            Event::Invpcid,
            Event::Cr3Reload,
        ],
    ),
    ("barriers", &[Event::DsbIsh, Event::DsbIshst, Event::DsbNsh, Event::DsbNshst]),
];

/// Kernel entries, the most expensive first; page faults are one of them.
fn entries<'r>(report: &'r RunReport, prices: Option<&PriceList>) -> Vec<Entry<'r>> {
    let faults = &report.faults;
    let time = |events: &EventCounts| {
        prices.map_or(Picos::ZERO, |prices| prices.time(&events.counters(), 0))
    };
    let mut entries: Vec<Entry> = report
        .by_syscall
        .iter()
        .map(|s| (s.syscall.as_str(), s.calls, &s.events, &s.by_op))
        .chain([("page faults", faults.minor + faults.major, &faults.events, &faults.by_op)])
        .map(|(name, calls, events, by_op)| Entry {
            name,
            calls,
            events,
            by_op,
            time: time(events),
        })
        .filter(|entry| entry.calls > 0 || !entry.events.is_empty())
        .collect();
    let time = Picos::new(i128::from(report.time.guest_ns) * 1000);
    entries.push(Entry { name: GUEST_CODE, calls: 0, events: &NOTHING, by_op: &NO_OPS, time });
    entries.sort_by(|a, b| b.time.cmp(&a.time).then_with(|| a.name.cmp(b.name)));
    entries
}

fn entry_table(entries: &[Entry], detail: Detail) -> String {
    let shown = if detail == Detail::Everything { entries.len() } else { ENTRIES_MAX };
    let mut align = vec![Align::Left, Align::Right, Align::Right];
    align.extend(COLUMNS.iter().map(|_| Align::Right));
    let mut table = Table::new(&align).indented(1);
    let titles = COLUMNS.iter().map(|(label, _)| *label);
    table.row(["kernel entry", "calls", "time"].into_iter().chain(titles));
    table.rule();
    for entry in entries.iter().take(shown) {
        let counts = COLUMNS
            .iter()
            .map(|(_, events)| grouped(events.iter().map(|&e| entry.events.get(e)).sum()));
        if entry.name == GUEST_CODE {
            table.row([GUEST_CODE, "", &entry.time.to_string()]);
            continue;
        }
        let head = [entry.name.to_owned(), grouped(entry.calls), entry.time.to_string()];
        table.row(head.into_iter().chain(counts));
    }
    let mut text = table.render();
    if entries.len() > shown {
        let rest = entries.len() - shown;
        text.push_str(&format!(" and {rest} cheaper ones; --stat shows all\n"));
    }
    text
}

/// Every counter, in total and by op.
fn all_counters(report: &RunReport, entries: &[Entry]) -> String {
    let mut text = String::from("\n every counter\n");
    text.push_str(&counters(&report.events, 3));
    for entry in entries.iter().filter(|e| !e.events.is_empty()) {
        text.push_str(&format!("\n {}\n", entry.name));
        for (path, events) in entry.by_op {
            let path = if path.is_empty() { "(itself)" } else { path };
            text.push_str(&format!("   {path}\n"));
            text.push_str(&counters(events, 5));
        }
    }
    text
}

fn counters(events: &EventCounts, indent: usize) -> String {
    let mut table = Table::new(&[Align::Right, Align::Left]).indented(indent);
    events.iter().for_each(|(name, n)| table.row([grouped(n), name.to_owned()]));
    table.render()
}

/// The TLB model, and what the folio sizes did.
fn statistics(report: &RunReport, detail: Detail) -> String {
    let mut text = String::new();
    let list = |names: &BTreeMap<String, u64>| {
        let pairs = names.iter().filter(|(_, n)| **n != 0);
        pairs.map(|(name, &n)| format!("{name} {}", grouped(n))).collect::<Vec<_>>().join(", ")
    };
    let mut section = |title: &str, counts: &str| {
        if !counts.is_empty() {
            text.push_str(&format!(" {}", wrap(&format!("{title}: {counts}"), WIDTH - 1, 3)));
        }
    };
    section("TLB", &tlb(&report.tlb));
    for (size, stats) in &report.thp {
        section(&format!("folios of {size}"), &list(stats));
    }
    if detail == Detail::Everything {
        section("TLB counters", &list(&report.tlb));
        section("vmstat", &list(&report.vmstat));
    }
    if text.is_empty() { text } else { format!("\n{text}") }
}

/// The TLB model in a line.
fn tlb(counters: &BTreeMap<String, u64>) -> String {
    let get = |name: &str| counters.get(name).copied().unwrap_or(0);
    let accesses = get("data_accesses");
    let misses = get("l1d_misses");
    let percent =
        if accesses == 0 { 0 } else { u128::from(misses) * 10_000 / u128::from(accesses) };
    let entries: u64 = counters
        .iter()
        .filter(|(name, _)| name.starts_with("flush_") && name.ends_with("_entries"))
        .filter(|(name, _)| !name.ends_with("_walk_entries"))
        .map(|(_, n)| n)
        .sum();
    format!(
        "{} data accesses, {} first-level misses ({}.{:02} %), {} second-level hits, {} walks with \
         {} loads, {} entries flushed",
        grouped(accesses),
        grouped(misses),
        percent / 100,
        percent % 100,
        grouped(get("l2_hits")),
        grouped(get("walks")),
        grouped(get("walk_loads")),
        grouped(entries),
    )
}

/// The kernel's log, its end unless everything is wanted.
fn kernel_log(report: &RunReport, detail: Detail) -> String {
    let lines = &report.dmesg;
    let shown = if detail == Detail::Everything { lines.len() } else { LOG_LINES_MAX };
    let (earlier, last) = lines.split_at(lines.len().saturating_sub(shown));
    if last.is_empty() {
        return String::new();
    }
    let mut text = String::from("\n kernel log\n");
    if !earlier.is_empty() {
        text.push_str(&format!("   {} earlier lines; --stat shows all\n", earlier.len()));
    }
    last.iter().for_each(|line| text.push_str(&format!("   {line}\n")));
    text
}

/// What the reader must know: prices that are no machine's, missing calls, warnings.
fn remarks(report: &RunReport, prices: Option<&PriceList>) -> String {
    let mut lines = Vec::new();
    if prices.is_some_and(PriceList::is_generic) {
        lines.push(format!(
            "nobody has written down prices for {}: the time is an order of magnitude",
            report.machine
        ));
    }
    if !report.unsupported.is_empty() {
        let calls: Vec<String> =
            report.unsupported.iter().map(|u| format!("{} ({}×)", u.syscall, u.calls)).collect();
        lines.push(format!("system calls answered with ENOSYS: {}", calls.join(", ")));
    }
    lines.extend(report.warnings.iter().cloned());
    let text: String = lines.iter().map(|l| format!(" {}", wrap(l, WIDTH - 1, 3))).collect();
    if text.is_empty() { text } else { format!("\n{text}") }
}

#[cfg(test)]
mod tests {
    use super::*;
    use report::{Exit, Faults, Guest, RUN_SCHEMA, Settings, SyscallReport, Time, Unsupported};

    fn counts(list: &str) -> EventCounts {
        let mut counters = events::Counters::new();
        for part in list.split_whitespace() {
            let (name, n) = part.split_once('=').expect("name=n");
            let event = Event::parse(name).expect("an event");
            events::Sink::add(&mut counters, event, n.parse().expect("a number"));
        }
        EventCounts::from(&counters)
    }

    fn tlb_counters(list: &[(&str, u64)]) -> BTreeMap<String, u64> {
        list.iter().map(|&(name, n)| (name.to_owned(), n)).collect()
    }

    fn sample() -> RunReport {
        let call = counts("pte_read=417792 pte_xchg=131072 tlbi_vale1is=65536 dsb_ishst=65536");
        let by_op = BTreeMap::from([("try_to_unmap_one".to_owned(), call.clone())]);
        let syscall = "madvise(MADV_PAGEOUT)".to_owned();
        RunReport {
            arch: "arm64".to_owned(),
            by_syscall: vec![SyscallReport { by_op, calls: 1, events: call.clone(), syscall }],
            cpus: 1,
            dmesg: vec!["[    0.000012] page: refcount:1".to_owned()],
            events: call,
            exit: Exit { signal: None, status: 0 },
            faults: Faults { minor: 4096, events: counts("pte_write=65536"), ..Faults::default() },
            guest: Guest { argv: vec!["pageout".to_owned()], ..Guest::default() },
            instructions: 33_554_432,
            kernel: "v7.3".to_owned(),
            machine: "neoverse-n1".to_owned(),
            ptescope: "0.1.0".to_owned(),
            schema: RUN_SCHEMA.to_owned(),
            settings: Settings::default(),
            thp: BTreeMap::from([("64kB".to_owned(), BTreeMap::from([("swpout".to_owned(), 3)]))]),
            time: Time {
                guest_ns: 2_000_000,
                high_ns: 45_000_000,
                low_ns: 30_000_000,
                model: "generic-arm64".to_owned(),
                ns: 37_401_913,
            },
            tlb: tlb_counters(&[("data_accesses", 4000), ("l1d_misses", 50), ("walks", 40)]),
            unsupported: vec![Unsupported { calls: 2, syscall: "io_uring_setup".to_owned() }],
            vmstat: BTreeMap::new(),
            warnings: Vec::new(),
        }
    }

    #[test]
    fn the_report_says_what_happened() {
        let text = render(&sample(), Detail::Main);
        for part in [
            " ptescope: `pageout` on arm64, machine neoverse-n1, 1 CPU, kernel v7.3: exit status 0\n",
            "   37.40 ms  modelled time  90 %: 30.00 ms to 45.00 ms; prices of generic-arm64\n",
            " 33,554,432  instructions\n",
            "      4,096  page faults    4,096 minor, 0 major\n",
            "    417,792  PTE loads\n",
            " TLB: 4,000 data accesses, 50 first-level misses (1.25 %), 0 second-level hits, 40 walks",
            " folios of 64kB: swpout 3\n",
            " kernel log\n   [    0.000012] page: refcount:1\n",
            " nobody has written down prices for neoverse-n1",
            " system calls answered with ENOSYS: io_uring_setup (2×)\n",
        ] {
            assert!(text.contains(part), "no {part:?} in:\n{text}");
        }
        assert!(!text.contains("every counter"));
        let line = text.lines().find(|l| l.starts_with(" madvise")).expect("listed");
        let cells: Vec<_> = line.split_whitespace().collect();
        assert_eq!(cells[1], "1");
        assert_eq!(cells[4..], ["417,792", "131,072", "0", "65,536", "65,536"]);
    }

    #[test]
    fn lines_fit_and_everything_is_everything() {
        let text = render(&sample(), Detail::Everything);
        assert!(text.lines().all(|l| l.chars().count() <= WIDTH), "{text}");
        assert!(text.contains("   try_to_unmap_one\n"), "{text}");
        assert!(text.contains("417,792  pte_read\n"), "{text}");
    }
}
