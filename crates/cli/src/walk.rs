//! `ptescope walk`: one translation, level by level and bit by bit, on both formats.

use crate::args::WalkArgs;
use crate::output;
use machine::walk::{
    Access, Fault, FaultKind, Field, Leaf, LevelExplanation, Step, Touch, WalkExplanation,
};
use report::{Align, Failure, Table};
use study::wrap;
use units::{ArchId, PhysAddr, VirtAddr};

const WIDTH: usize = 100;
/// Where the walk goes when no address is given.
const ADDRESS: u64 = 0x7f00_1234_5678;

pub(crate) fn walk(args: &WalkArgs) -> Result<u8, Failure> {
    let addresses = if args.addresses.is_empty() { &[ADDRESS][..] } else { &args.addresses };
    let mut text = String::new();
    for &va in addresses {
        let setups = study::walk_setups(&args.request(VirtAddr::new(va)))?;
        let mut ends = Vec::new();
        for setup in &setups {
            let walk = study::explain_walk(setup)?;
            let machine = &setup.machine;
            let touched = match setup.touch {
                Touch::Nothing => "never touched",
                Touch::Read => "read before",
                Touch::Write => "written before",
            };
            let folio = size(setup.folio.bytes());
            text.push_str(&format!(
                "{} on {}: {:#x}, {} in anonymous memory of {folio} folios, {touched}\n\n",
                machine.arch,
                machine.name,
                walk.va.get(),
                wanted(walk.access),
            ));
            text.push_str(&render(&walk, machine.arch));
            ends.push((machine.arch, walk));
        }
        text.push_str(&wrap(&comparison(&ends), WIDTH, 0));
        text.push('\n');
    }
    output::text(&text).map(|()| 0)
}

fn wanted(access: Access) -> &'static str {
    match access {
        Access::Read => "a read",
        Access::Write => "a write",
        Access::Exec => "a fetch",
    }
}

fn size(bytes: u64) -> String {
    if bytes >= 1 << 20 { format!("{}M", bytes >> 20) } else { format!("{}K", bytes >> 10) }
}

/// The whole walk.
pub(crate) fn render(walk: &WalkExplanation, arch: ArchId) -> String {
    let mut text = address(walk.va);
    for (nr, level) in walk.levels.iter().enumerate() {
        text.push('\n');
        text.push_str(&level_text(level, nr, arch));
    }
    text.push('\n');
    text.push_str(&outcome(&walk.outcome, arch));
    text.push('\n');
    text
}

/// How the address is cut into indices.
fn address(va: VirtAddr) -> String {
    let raw = va.get();
    let mut table = Table::new(&[Align::Left; 7]).indented(2);
    table.row(["bits", "63:48", "47:39", "38:30", "29:21", "20:12", "11:0"]);
    let index = |shift: u32| format!("{:09b}", raw >> shift & 511);
    table.row([
        "address".to_owned(),
        format!("{:016b}", raw >> 48),
        index(39),
        index(30),
        index(21),
        index(12),
        format!("{:012b}", raw & 4095),
    ]);
    let decimal = |shift: u32| (raw >> shift & 511).to_string();
    let offset = format!("byte {}", raw & 4095);
    let cells = [
        "index".to_owned(),
        String::new(),
        decimal(39),
        decimal(30),
        decimal(21),
        decimal(12),
        offset,
    ];
    table.row(cells);
    table.render()
}

/// What the manuals call the tables.
fn table_name(nr: usize, arch: ArchId) -> &'static str {
    match arch {
        ArchId::Arm64 => ["level 0 table", "level 1 table", "level 2 table", "level 3 table"][nr],
        ArchId::X86_64 => {
            ["PML4", "page-directory-pointer table", "page directory", "page table"][nr]
        }
    }
}

fn level_text(level: &LevelExplanation, nr: usize, arch: ArchId) -> String {
    let name = table_name(nr.min(3), arch);
    let mut text = format!(
        "  {name} at {:#x}, entry {} at {:#x}: {:#018x}\n",
        level.table.get(),
        level.index,
        level.slot.get(),
        level.raw
    );
    let mut table = Table::new(&[Align::Right, Align::Left, Align::Right, Align::Left]).indented(4);
    for field in level.fields.iter().filter(|f| !is_dull(f)) {
        table.row([bits(field), field.name.to_owned(), value(field), field.meaning.to_owned()]);
    }
    text.push_str(&table.render());
    if let Some(written) = level.written {
        text.push_str(&format!("    the walker writes {written:#018x} back\n"));
    }
    text.push_str(&format!("    {}\n", step(&level.step)));
    text
}

/// Bits that hardware does not look at and nobody set.
fn is_dull(field: &Field) -> bool {
    field.value == 0 && (field.name == "ignored" || field.name.starts_with("reserved"))
}

fn bits(field: &Field) -> String {
    if field.high == field.low {
        field.low.to_string()
    } else {
        format!("{}:{}", field.high, field.low)
    }
}

fn value(field: &Field) -> String {
    let width = usize::try_from(field.high - field.low + 1).unwrap_or(64);
    if width <= 12 { format!("{:0width$b}", field.value) } else { format!("{:#x}", field.value) }
}

fn step(step: &Step) -> String {
    match step {
        Step::Table { next, rights } => {
            format!("→ next table at {:#x}; still allowed {rights}", next.get())
        }
        Step::Leaf { base, rights } => format!("→ memory at {:#x}; allowed {rights}", base.get()),
        Step::Invalid => "→ not valid".to_owned(),
        Step::Malformed => "→ malformed: reserved bits, or an address that is not there".to_owned(),
    }
}

fn outcome(outcome: &Result<(PhysAddr, Leaf), Fault>, arch: ArchId) -> String {
    match outcome {
        Ok((pa, leaf)) => format!(
            "  physical address {:#x}; one TLB entry covers {} from {:#x} on, rights {}\n",
            pa.get(),
            leaf.reach,
            leaf.base.get(),
            leaf.rights
        ),
        Err(fault) => format!("  {}\n", fault_text(*fault, arch)),
    }
}

fn fault_text(fault: Fault, arch: ArchId) -> String {
    let level = |level: machine::walk::TableLevel| table_name(level as usize, arch);
    let why = match fault.kind {
        FaultKind::NonCanonical => "the address is not canonical".to_owned(),
        FaultKind::Translation(l) => format!("no valid entry in the {}", level(l)),
        FaultKind::AddressSize(l) => format!("the {} leads beyond physical memory", level(l)),
        FaultKind::AccessFlag(l) => format!("the access flag in the {} is clear", level(l)),
        FaultKind::Permission(l) => format!("the rights down to the {} do not allow it", level(l)),
        FaultKind::Reserved(l) => format!("a reserved bit is set in the {}", level(l)),
        FaultKind::ProtectionKey(_) => "the protection key denies it".to_owned(),
    };
    let code = match arch {
        ArchId::Arm64 => format!("ESR_EL1 {:#x}", fault.esr()),
        ArchId::X86_64 => {
            format!("vector {}, error code {:#x}", fault.vector(), fault.error_code())
        }
    };
    format!("fault: {why} ({code})")
}

/// The two formats against each other.
fn comparison(ends: &[(ArchId, WalkExplanation)]) -> String {
    let covers = |walk: &WalkExplanation| match &walk.outcome {
        Ok((_, leaf)) => {
            format!("{} loads, then {} with one TLB entry", walk.levels.len(), leaf.reach)
        }
        Err(_) => format!("{} loads, then a fault", walk.levels.len()),
    };
    let parts: Vec<String> =
        ends.iter().map(|(arch, walk)| format!("{arch}: {}", covers(walk))).collect();
    format!("{}.", parts.join("; "))
}
