//! The kernel's log: what `printk()` keeps, for syslog(2) and `/dev/kmsg`.
//!
//! Source: Linux kernel/printk/printk.c; Documentation/ABI/testing/dev-kmsg.

#![deny(clippy::unwrap_used, clippy::indexing_slicing, clippy::arithmetic_side_effects)]

use std::collections::VecDeque;

/// Bytes of text that are kept (`CONFIG_LOG_BUF_SHIFT` of 18).
pub(crate) const LOG_BYTES: usize = 1 << 18;

/// How grave a message is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Level {
    /// `KERN_WARNING`
    Warning = 4,
    /// `KERN_INFO`
    Info = 6,
}

#[derive(Clone, Debug)]
struct Record {
    level: Level,
    at_us: u64,
    text: String,
}

/// The log, the oldest messages gone when it is full.
#[derive(Clone, Debug, Default)]
pub(crate) struct Log {
    records: VecDeque<Record>,
    bytes: usize,
    /// Sequence number of the oldest record.
    first: u64,
    /// Sequence number of the first record that was not cleared away from syslog(2).
    clear: u64,
}

impl Log {
    /// `printk()`, at `now_ns` since boot.
    pub(crate) fn printk(&mut self, level: Level, now_ns: u64, text: String) {
        self.bytes = self.bytes.saturating_add(text.len());
        self.records.push_back(Record { level, at_us: now_ns / 1000, text });
        while self.bytes > LOG_BYTES {
            let Some(oldest) = self.records.pop_front() else { break };
            self.bytes = self.bytes.saturating_sub(oldest.text.len());
            self.first = self.first.saturating_add(1);
        }
    }

    fn numbered(&self) -> impl Iterator<Item = (u64, &Record)> {
        (self.first..).zip(&self.records)
    }

    /// As `dmesg` shows it: seconds since boot, and the text.
    pub(crate) fn dmesg(&self) -> Vec<String> {
        self.records.iter().map(line).collect()
    }

    /// What syslog(2) reads: lines with their levels that were not cleared away.
    pub(crate) fn syslog(&self) -> String {
        let kept = self.numbered().filter(|(seq, _)| *seq >= self.clear);
        kept.map(|(_, r)| format!("<{}>{}\n", r.level as u8, line(r))).collect()
    }

    /// Nothing so far is read by syslog(2) again.
    pub(crate) fn clear(&mut self) {
        self.clear = self.first.saturating_add(self.records.len() as u64);
    }

    /// What `/dev/kmsg` reads.
    pub(crate) fn kmsg(&self) -> String {
        let show = |(seq, r): (u64, &Record)| {
            format!("{},{seq},{},-;{}\n", r.level as u8, r.at_us, r.text)
        };
        self.numbered().map(show).collect()
    }
}

fn line(record: &Record) -> String {
    let (s, us) = (record.at_us / 1_000_000, record.at_us % 1_000_000);
    format!("[{s:5}.{us:06}] {}", record.text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_log_forgets_its_oldest_messages() {
        let mut log = Log::default();
        for i in 0..1000 {
            log.printk(Level::Info, i * 1_500_000, format!("{i:01000}"));
        }
        let lines = log.dmesg();
        assert_eq!(lines.len(), LOG_BYTES / 1000);
        let first = lines.first().expect("messages");
        assert!(first.starts_with("[    1.107000] 000"), "{first}");
        assert!(log.kmsg().starts_with("6,738,1107000,-;000"));
        log.clear();
        assert_eq!(log.syslog(), "");
        log.printk(Level::Warning, 2_000_000_000, "later".to_owned());
        assert_eq!(log.syslog(), "<4>[    2.000000] later\n");
    }
}
