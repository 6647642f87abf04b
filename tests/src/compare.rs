//! Equal or not, event by event and scope by scope.

use crate::groundtruth::{Counts, Record};
use events::{Event, EventKind};
use std::collections::BTreeSet;

/// One counter that differs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Difference {
    /// The innermost kernel function group.
    pub scope: String,
    /// The event.
    pub event: String,
    /// What Linux counted.
    pub linux: u64,
    /// What was counted here.
    pub ours: u64,
}

impl std::fmt::Display for Difference {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Difference { scope, event, linux, ours } = self;
        write!(f, "{scope}.{event}: Linux {linux}, here {ours}")
    }
}

/// What to compare.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum What {
    /// Touches of page tables, TLB instructions, barriers and flush decisions.
    Touches,
    /// Entries of functions.
    Functions,
}

/// What an event is compared as; `None` if the instrumented kernels do not count it.
fn kind(event: &str) -> Option<What> {
    match Event::parse(event).map(Event::kind) {
        Some(EventKind::Struct) => None,
        Some(EventKind::Function) => Some(What::Functions),
        Some(_) => Some(What::Touches),
        None if event.starts_with("fn_") => Some(What::Functions),
        None => Some(What::Touches),
    }
}

/// The counters of `record` that differ from `ours`, restarts of scan loops allowed for.
pub fn differences(record: &Record, ours: &Counts, what: What) -> Vec<Difference> {
    let wanted = |key: &&(String, String)| kind(&key.1) == Some(what);
    let keys: BTreeSet<&(String, String)> =
        record.counts.keys().chain(ours.keys()).filter(wanted).collect();
    let found: Vec<Difference> = keys
        .into_iter()
        .filter_map(|key| {
            let (linux, ours) = (record.counts.get(key).copied(), ours.get(key).copied());
            let (linux, ours) = (linux.unwrap_or(0), ours.unwrap_or(0));
            (linux != ours).then(|| Difference {
                scope: key.0.clone(),
                event: key.1.clone(),
                linux,
                ours,
            })
        })
        .collect();
    if what == What::Touches && is_restart(&found) { Vec::new() } else { found }
}

/// Whether the only difference is that Linux was asked to reschedule inside a scan loop and
/// looked at an entry again: at most 4 more `ptep_get`, at most 72 more raw reads.
pub(crate) fn is_restart(found: &[Difference]) -> bool {
    let extra = |event: &str| {
        found
            .iter()
            .filter(|d| d.event == event)
            .map(|d| d.linux.checked_sub(d.ours))
            .try_fold(0, |sum, d| Some(sum + d?))
    };
    found.iter().all(|d| d.event == "ptep_get" || d.event == "pte_read")
        && extra("ptep_get").is_some_and(|n| n <= 4)
        && extra("pte_read").is_some_and(|n| n <= 72)
}
