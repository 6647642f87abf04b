//! What the table says, in sentences made from the counts.

use super::model::{Cell, Pair, Side, TLBI, published};
use super::{FOLIO_KB, size};
use cost::{Difference, Picos};
use events::{Event, EventKind};
use report::{StudyRecord, decimal};
use units::ArchId;

/// Price classes of flushing itself.
const FLUSHES: &[&str] =
    &["tlbi_page", "tlbi_range", "tlbi_asid", "dsb_ish", "dsb_ishst", "invlpg", "cr3_flush"];

/// The folio size that the published times are about.
const MAIN_KB: u64 = 64;

pub(super) fn sentences(sides: &[Side], records: &[StudyRecord]) -> Vec<String> {
    let mut all = Vec::new();
    for side in sides {
        let main = Pair::of(side, MAIN_KB, records);
        if let (Some((vanilla, batched)), Some(saved)) = (main.both(), main.difference()) {
            all.push(flushes(side, vanilla, batched, &saved));
            all.push(savings(side, batched, &saved));
        }
        all.extend(larger(side, records));
    }
    all.extend(unchanged(sides, records));
    all.extend(fitted(sides));
    all
}

/// How often each kernel flushes, and why.
fn flushes(side: &Side, vanilla: &Cell, batched: &Cell, saved: &Difference) -> String {
    let folios = vanilla.counts.get(Event::FnPageout).max(1);
    let per = |n| decimal(n, folios);
    let at = format!("{}, {} folios", side.arch, size(MAIN_KB));
    match side.arch {
        ArchId::Arm64 => {
            let (before, after) = (vanilla.sum(TLBI), batched.sum(TLBI));
            let unfold = vanilla.sum_inside("contpte_unfold", TLBI);
            let pages = before - unfold;
            format!(
                "{at}: {} → {} TLBI per folio. Clearing the first page alone unfolds its contiguous \
                 block, which costs {} of the {}; the other {} are one for each page, each after a \
                 DSB ISHST of its own. In one batch nothing is unfolded, and one TLBI covers the range.",
                per(before),
                per(after),
                per(unfold),
                per(before),
                per(pages),
            )
        }
        ArchId::X86_64 => {
            let invlpg = |cell: &Cell| per(cell.counts.get(Event::Invlpg));
            let same = vanilla.counts.get(Event::Invlpg) == batched.counts.get(Event::Invlpg);
            let (before, after) = (invlpg(vanilla), invlpg(batched));
            let requests = |cell: &Cell| per(cell.counts.get(Event::FnFlushTlbMmRange));
            let (r0, r1) = (requests(vanilla), requests(batched));
            let flush = saved_in(saved, FLUSHES);
            if same {
                format!(
                    "{at}: the same {before} INVLPG per folio in both kernels: {r0} requests for one \
                     page each become {r1} for the range, and a range of up to 33 pages is still \
                     flushed page by page. The flushes themselves save {flush}."
                )
            } else {
                format!("{at}: {before} → {after} INVLPG per folio, in {r0} → {r1} requests.")
            }
        }
    }
}

/// What was saved, and what is left.
fn savings(side: &Side, batched: &Cell, saved: &Difference) -> String {
    let folios = i128::from(batched.counts.get(Event::FnPageout).max(1));
    let per = |time: Picos| Picos::new(time.get() / folios).to_string();
    let flush = saved_in(saved, FLUSHES);
    let total = saved.total();
    let largest: Vec<String> = saved
        .changes()
        .iter()
        .filter(|c| c.saved().get().abs() >= 1000 * folios)
        .take(3)
        .map(|c| format!("{} ({})", c.words, per(c.saved())))
        .collect();
    let rest = batched.time.terms().first();
    let left = rest.map_or_else(String::new, |term| {
        format!(
            " What is left is mostly {}: {} of {}.",
            term.words,
            per(term.time),
            per(batched.time.total())
        )
    });
    format!(
        "{}: {} saved per folio, {} of it in TLB flushes and their barriers. The largest terms: {}.{left}",
        side.arch,
        per(total),
        percent(flush, total),
        largest.join(", "),
    )
}

/// Ranges beyond the ceiling of x86-64, if a study has any.
fn larger(side: &Side, records: &[StudyRecord]) -> Option<String> {
    if side.arch != ArchId::X86_64 {
        return None;
    }
    let changed = FOLIO_KB.into_iter().filter_map(|kb| {
        let pair = Pair::of(side, kb, records);
        let (vanilla, batched) = pair.both()?;
        let (before, after) =
            (vanilla.counts.get(Event::Invlpg), batched.counts.get(Event::Invlpg));
        let folios = vanilla.counts.get(Event::FnPageout).max(1);
        let full = batched.counts.get(Event::Cr3Reload);
        (before != after).then(|| {
            let [before, after, full] = [before, after, full].map(|n| decimal(n, folios));
            format!("{}: {before} INVLPG become {after} and {full} CR3 reloads per folio", size(kb))
        })
    });
    let changed: Vec<String> = changed.collect();
    let why = "because a range above 33 pages is flushed whole";
    (!changed.is_empty()).then(|| format!("{}, {}, {why}.", side.arch, changed.join("; ")))
}

/// Sizes at which the patch changes nothing.
fn unchanged(sides: &[Side], records: &[StudyRecord]) -> Option<String> {
    let same = |kb: u64| {
        sides.iter().all(|side| {
            let pair = Pair::of(side, kb, records);
            pair.both().is_some_and(|(vanilla, batched)| same_work(vanilla, batched))
        })
    };
    let sizes: Vec<String> = FOLIO_KB.into_iter().filter(|&kb| same(kb)).map(size).collect();
    (!sizes.is_empty()).then(|| {
        format!(
            "{} folios: the same page-table accesses, flushes, locks and barriers in both kernels, on \
             both architectures: a folio of one page has nothing to batch.",
            sizes.join(", ")
        )
    })
}

/// Whether everything but the functions entered was counted alike.
fn same_work(a: &Cell, b: &Cell) -> bool {
    let mut events = Event::ALL.iter().filter(|e| e.kind() != EventKind::Function);
    events.all(|&e| a.counts.get(e) == b.counts.get(e))
}

/// Which times are no predictions.
fn fitted(sides: &[Side]) -> Option<String> {
    let fitted = |side: &&Side| {
        let row = published(side, MAIN_KB);
        row.is_some_and(|o| o.fitted_in.iter().any(|list| list == side.prices.name()))
    };
    let machines: Vec<&str> = sides.iter().filter(fitted).map(|s| s.machine).collect();
    (!machines.is_empty()).then(|| {
        format!(
            "The prices of {} were fitted on the published {} times, so those speed-ups are no \
             predictions; all other times are.",
            machines.join(" and "),
            size(MAIN_KB)
        )
    })
}

fn saved_in(difference: &Difference, classes: &[&str]) -> Picos {
    classes.iter().filter_map(|c| difference.change(c)).map(cost::Change::saved).sum()
}

fn percent(part: Picos, whole: Picos) -> String {
    if whole <= Picos::ZERO {
        return "none".to_owned();
    }
    format!("{} %", (part.get() * 100 + whole.get() / 2).div_euclid(whole.get()))
}
