//! Counts by ground-truth scope, as `/sys/kernel/debug/mm_events` shows them.

use events::{ByOp, Counters, Scope, Sink};
use std::collections::BTreeMap;

/// A sink whose counts can be read back by scope.
pub trait CountsByScope: Sink {
    /// What was counted so far in each scope. Empty for a sink that does not keep counts.
    fn by_scope(&self) -> BTreeMap<Scope, Counters>;
}

impl CountsByScope for () {
    fn by_scope(&self) -> BTreeMap<Scope, Counters> {
        BTreeMap::new()
    }
}

impl CountsByScope for Counters {
    /// A flat array knows no scopes: everything is in `none`.
    fn by_scope(&self) -> BTreeMap<Scope, Counters> {
        BTreeMap::from([(Scope::None, self.clone())])
    }
}

impl CountsByScope for ByOp {
    fn by_scope(&self) -> BTreeMap<Scope, Counters> {
        ByOp::by_scope(self)
    }
}
