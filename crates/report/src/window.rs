//! The lines that the guest `probe` prints, natively and emulated: `@@{json}` per window.

use events::{Counters, Event, Sink};
use serde::Deserialize;
use std::collections::BTreeMap;

/// One window.
#[derive(Clone, Debug, PartialEq, Deserialize)]
pub struct WindowLine {
    /// What was done in it.
    pub phase: String,
    /// How long it took.
    pub ns: u64,
    /// How long the thread ran in it.
    #[serde(default)]
    pub cpu_ns: u64,
    /// Changes of the mTHP statistics: `"64k.anon_fault_alloc"`.
    #[serde(default)]
    pub mthp: BTreeMap<String, i64>,
    /// `"task.SCOPE.EVENT"`.
    #[serde(default)]
    counters: BTreeMap<String, u64>,
}

impl WindowLine {
    /// Every line of `text` that is one; others are output of the guest.
    pub fn parse_all(text: &str) -> Vec<WindowLine> {
        let lines = text.lines().filter_map(|line| line.strip_prefix("@@"));
        lines.filter_map(|json| serde_json::from_str(json).ok()).collect()
    }

    /// What the kernel counted in it, over all scopes.
    pub fn counters(&self) -> Counters {
        let mut sum = Counters::new();
        for (key, &n) in &self.counters {
            if let Some(event) = key.rsplit('.').next().and_then(Event::parse) {
                sum.add(event, n);
            }
        }
        sum
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn windows_are_found_between_other_lines() {
        let text = "hello\n@@ERR mmap\n@@{\"phase\":\"munmap\",\"ns\":5,\"cpu_ns\":4,\"mthp\":{},\"vmstat\":{},\
                    \"counters\":{\"task.zap.ptep_get\":3,\"task.none.ptep_get\":1,\"task.zap.new\":9}}\n";
        let found = WindowLine::parse_all(text);
        assert_eq!(found.len(), 1);
        assert_eq!((found[0].phase.as_str(), found[0].ns, found[0].cpu_ns), ("munmap", 5, 4));
        assert_eq!(found[0].counters().get(Event::PtepGet), 4);
    }
}
