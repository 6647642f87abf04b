//! What can be named: machines, kernels, events, guests.

use crate::output;
use cost::PriceList;
use events::{Event, EventKind};
use machine::{KernelConfig, Machine, SETTINGS};
use report::{Align, Failure, Table};
use study::{Guest, wrap};
use units::ArchId;

const WIDTH: usize = 100;

type Outcome = Result<u8, Failure>;

fn show(text: &str) -> Outcome {
    output::text(text).map(|()| 0)
}

pub(crate) fn machines(name: Option<&str>) -> Outcome {
    let Some(name) = name else { return show(&all_machines()?) };
    let machine = Machine::by_name(name)
        .map_err(|error| Failure { message: error.to_string(), status: study::status::USAGE })?;
    let mut text = format!("{} ({}): {}\n\n", machine.name, machine.arch, machine.about);
    let mut table = Table::new(&[Align::Left; 4]);
    table.row(["figure", "value", "confidence", "source"]);
    table.rule();
    for figure in machine.figures() {
        table.row([&figure.key, &figure.value, figure.confidence.name(), &figure.source]);
    }
    text.push_str(&table.render());
    show(&text)
}

fn all_machines() -> Result<String, Failure> {
    let mut table = Table::new(&[Align::Left; 4]);
    table.row(["machine", "arch", "prices", "what it stands for"]);
    table.rule();
    for machine in Machine::all() {
        let prices = PriceList::for_machine(machine.name, machine.arch).map_err(internal)?;
        let own = if prices.is_generic() { "generic" } else { "own" };
        table.row([machine.name, machine.arch.name(), own, machine.about]);
    }
    let mut text = table.render();
    text.push_str(
        "\n`ptescope machines MACHINE` shows its figures. --set machine.KEY=VALUE changes:\n",
    );
    for setting in SETTINGS {
        let only = setting.arch.map_or(String::new(), |arch| format!("{arch}: "));
        text.push_str(&entry(
            setting.key,
            &format!("{only}{}; {}", setting.about, setting.expected),
        ));
    }
    Ok(text)
}

pub(crate) fn kernels() -> Outcome {
    let mut table = Table::new(&[Align::Left, Align::Left]);
    table.row(["preset", "what it stands for"]);
    table.rule();
    KernelConfig::presets().for_each(|(name, summary)| table.row([name, summary]));
    table.row([""]);
    table.row(["patch", "what it does"]);
    table.rule();
    KernelConfig::patches().for_each(|(name, summary)| table.row([name, summary]));
    let fields = study::kernel_fields().join(", ");
    let text = format!(
        "{}\n{}{}",
        table.render(),
        wrap("Use: --kernel PRESET[+PATCH|-PATCH]…, --set kernel.FIELD=VALUE. Fields:", WIDTH, 0),
        indent(&wrap(&fields, WIDTH - 2, 0)),
    );
    show(&text)
}

fn indent(text: &str) -> String {
    text.lines().map(|line| format!("  {line}\n")).collect()
}

const KINDS: [(EventKind, &str); 6] = [
    (EventKind::PteApi, "Primitives of page tables, as Linux calls them"),
    (EventKind::PteTouch, "Touches of page tables by the kernel"),
    (EventKind::Tlb, "TLB instructions, barriers and interrupts"),
    (EventKind::FlushDecision, "Decisions how to flush"),
    (EventKind::Struct, "Touches of other kernel structures"),
    (EventKind::Function, "Entries of kernel functions"),
];

pub(crate) fn events() -> Outcome {
    show(&event_list())
}

fn event_list() -> String {
    let mut text = String::new();
    for (kind, title) in KINDS {
        text.push_str(&format!("{title}\n"));
        let events = Event::ALL.iter().filter(|e| e.kind() == kind);
        events.for_each(|e| text.push_str(&entry(e.name(), e.meaning())));
        text.push('\n');
    }
    text
}

/// A name and its meaning beside it, or under it if the name is long.
fn entry(name: &str, meaning: &str) -> String {
    const COLUMN: usize = 34;
    let meaning = wrap(meaning, WIDTH - COLUMN - 3, 0);
    let (mut left, mut text) = (name, String::new());
    if name.len() > COLUMN {
        text.push_str(&format!("  {name}\n"));
        left = "";
    }
    for line in meaning.lines() {
        text.push_str(&format!("  {left:<COLUMN$} {line}\n"));
        left = "";
    }
    text
}

pub(crate) fn guests() -> Outcome {
    let mut text = String::new();
    for guest in Guest::all() {
        let builds = ArchId::ALL.into_iter().filter(|&a| guest.elf(a).is_some());
        let builds: Vec<&str> = builds.map(ArchId::name).collect();
        let usage: String = guest.arguments.iter().map(|a| format!(" [{}]", a.name)).collect();
        text.push_str(&format!("@{}{usage}    ({})\n", guest.name, builds.join(", ")));
        text.push_str(&indent(&wrap(guest.summary, WIDTH - 2, 0)));
        for argument in guest.arguments {
            let line =
                format!("{}: {} (default {})", argument.name, argument.meaning, argument.default);
            text.push_str(&indent(&indent(&wrap(&line, WIDTH - 4, 2))));
        }
        text.push('\n');
    }
    text.push_str("Run one with: ptescope run [--arch A] -- @NAME [ARG…]\n");
    show(&text)
}

fn internal(error: cost::PriceError) -> Failure {
    let message = format!("internal error in the built-in price lists: {error}; please report it");
    Failure { message, status: study::status::INTERNAL }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_event_is_listed_once_within_the_width() {
        let text = event_list();
        assert!(text.lines().all(|l| l.chars().count() <= WIDTH));
        for event in Event::ALL {
            let starts = |l: &&str| l.trim_start().split(' ').next() == Some(event.name());
            assert_eq!(text.lines().filter(starts).count(), 1, "{}", event.name());
        }
    }
}
