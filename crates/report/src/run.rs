//! `ptescope.run/1`: one run.

use events::{ByOp, Counters, Event, Sink};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// The schema of [`RunReport`].
pub const RUN_SCHEMA: &str = "ptescope.run/1";

/// The name of the context that page faults are counted in.
const FAULT: &str = "fault";

/// Counters by name; only those that are not zero.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct EventCounts(BTreeMap<String, u64>);

impl EventCounts {
    /// No counts.
    pub const fn new() -> Self {
        EventCounts(BTreeMap::new())
    }

    /// How often `event` occurred.
    pub fn get(&self, event: Event) -> u64 {
        self.0.get(event.name()).copied().unwrap_or(0)
    }

    /// Names and counts in the order of the names.
    pub fn iter(&self) -> impl Iterator<Item = (&str, u64)> {
        self.0.iter().map(|(name, &n)| (name.as_str(), n))
    }

    /// As a sink's counters; names that this version does not know are left out.
    pub fn counters(&self) -> Counters {
        let mut counters = Counters::new();
        for (name, n) in self.iter() {
            if let Some(event) = Event::parse(name) {
                counters.add(event, n);
            }
        }
        counters
    }

    /// Whether nothing was counted.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl From<&Counters> for EventCounts {
    fn from(counters: &Counters) -> Self {
        EventCounts(counters.nonzero().map(|(e, n)| (e.name().to_owned(), n)).collect())
    }
}

/// How the guest ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Exit {
    /// The signal that killed it, if one did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub signal: Option<u32>,
    /// As a shell sees it: the exit code, or 128 + signal.
    pub status: u32,
}

/// Page faults.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Faults {
    /// Counts by op path inside the fault; `""` is the fault itself.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub by_op: BTreeMap<String, EventCounts>,
    /// Counts of all faults together.
    pub events: EventCounts,
    /// Faults that waited for backing store.
    pub major: u64,
    /// Faults that did not.
    pub minor: u64,
}

/// The program that ran.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Guest {
    /// Its arguments, its name first.
    pub argv: Vec<String>,
    /// The path or `@name` as given.
    pub path: String,
    /// Hash of the file.
    pub sha256: String,
}

/// What was set for the run; what is absent had its default.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Settings {
    /// The oracles were on.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub check: bool,
    /// The guest's environment.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub env: Vec<String>,
    /// The limit on instructions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_instructions: Option<u64>,
    /// Guest RAM in bytes.
    pub mem_bytes: u64,
    /// Seed of everything random.
    pub seed: u64,
    /// Fields of the kernel and the machine that were overridden.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub set: BTreeMap<String, String>,
    /// Swap space in bytes.
    pub swap_bytes: u64,
    /// Folio sizes and when they are used: `"64kB": "always"`.
    pub thp: BTreeMap<String, String>,
    /// The user that the guest ran as.
    #[serde(default, skip_serializing_if = "is_root")]
    pub uid: u32,
    /// What was written to the kernel's files before the guest started.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub write: BTreeMap<String, String>,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde asks by reference")]
fn is_root(uid: &u32) -> bool {
    *uid == 0
}

/// What one kind of kernel entry did, its page faults apart.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SyscallReport {
    /// Counts by op path; `""` is the entry itself.
    pub by_op: BTreeMap<String, EventCounts>,
    /// How often it was entered.
    pub calls: u64,
    /// Counts of all calls together.
    pub events: EventCounts,
    /// Name, with the sub-command where there is one: `madvise(MADV_PAGEOUT)`.
    pub syscall: String,
}

/// Modelled time of the whole run.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Time {
    /// The part of it that guest instructions took.
    #[serde(default)]
    pub guest_ns: u64,
    /// Upper end of the 90 % interval.
    pub high_ns: u64,
    /// Lower end.
    pub low_ns: u64,
    /// The price list.
    pub model: String,
    /// The expected value.
    pub ns: u64,
}

/// A system call that the kernel layer answered with ENOSYS.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Unsupported {
    /// How often.
    pub calls: u64,
    /// Its name.
    pub syscall: String,
}

/// Everything one run leaves behind.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunReport {
    /// Architecture of the guest.
    pub arch: String,
    /// Counts by kernel entry, page faults apart; in the order of the names.
    pub by_syscall: Vec<SyscallReport>,
    /// How many CPUs the machine had.
    pub cpus: u16,
    /// The kernel's log, as dmesg(1) shows it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub dmesg: Vec<String>,
    /// Counts of everything.
    pub events: EventCounts,
    /// How the guest ended.
    pub exit: Exit,
    /// Page faults.
    pub faults: Faults,
    /// The program.
    pub guest: Guest,
    /// Guest instructions executed.
    pub instructions: u64,
    /// Kernel version and patches.
    pub kernel: String,
    /// Machine preset.
    pub machine: String,
    /// Version of the tool.
    pub ptescope: String,
    /// [`RUN_SCHEMA`].
    pub schema: String,
    /// What was set.
    pub settings: Settings,
    /// Statistics of each folio size, by the names of sysfs; only what is not zero.
    pub thp: BTreeMap<String, BTreeMap<String, u64>>,
    /// Modelled time.
    pub time: Time,
    /// Statistics of the TLB model.
    pub tlb: BTreeMap<String, u64>,
    /// System calls that do not exist here.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unsupported: Vec<Unsupported>,
    /// Statistics by the names of `/proc/vmstat`; only what is not zero.
    pub vmstat: BTreeMap<String, u64>,
    /// What the user should know about the run.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<String>,
}

impl RunReport {
    /// Splits a sink's counts into kernel entries and page faults.
    ///
    /// The numbers of minor and major faults are statistics, not events: they stay 0 here.
    pub fn split(sink: &ByOp) -> (Vec<SyscallReport>, Faults) {
        let mut syscalls = Vec::new();
        let mut faults = Faults::default();
        for (name, calls, ops) in sink.by_context() {
            let mut sum = Counters::new();
            ops.values().for_each(|counters| sum.merge(counters));
            let events = EventCounts::from(&sum);
            let by_op = ops.iter().map(|(path, c)| (path.clone(), EventCounts::from(c))).collect();
            if name == FAULT {
                faults = Faults { by_op, events, major: 0, minor: 0 };
            } else {
                syscalls.push(SyscallReport { by_op, calls, events, syscall: name.to_owned() });
            }
        }
        (syscalls, faults)
    }

    /// The entry of a system call, if it was called.
    pub fn syscall(&self, name: &str) -> Option<&SyscallReport> {
        self.by_syscall.iter().find(|s| s.syscall == name)
    }

    /// As indented JSON with sorted keys and a newline at the end.
    ///
    /// # Errors
    /// None in practice: the schema has no value that JSON cannot hold.
    pub fn to_json(&self) -> Result<String, serde_json::Error> {
        serde_json::to_string_pretty(self).map(|text| text + "\n")
    }

    /// Reads what [`RunReport::to_json`] wrote, or a later minor version of it.
    ///
    /// # Errors
    /// Text that is no JSON of this schema.
    pub fn from_json(text: &str) -> Result<RunReport, serde_json::Error> {
        let report: RunReport = serde_json::from_str(text)?;
        if report.schema != RUN_SCHEMA {
            let found = format!("schema `{}` is not `{RUN_SCHEMA}`", report.schema);
            return Err(serde::de::Error::custom(found));
        }
        Ok(report)
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use events::Op;

    pub(crate) fn sample() -> RunReport {
        let mut sink = ByOp::new();
        sink.begin("madvise(MADV_PAGEOUT)");
        sink.add(Event::SyscallTrap, 1);
        sink.enter(Op::ReclaimPages);
        sink.enter(Op::TryToUnmapOne);
        sink.add(Event::PtepGet, 63);
        sink.exit();
        sink.exit();
        sink.begin("fault");
        sink.add(Event::PageZero, 1);
        sink.end();
        sink.end();
        let (by_syscall, faults) = RunReport::split(&sink);
        let thp = BTreeMap::from([("64kB".to_owned(), "always".to_owned())]);
        RunReport {
            arch: "arm64".to_owned(),
            by_syscall,
            cpus: 1,
            dmesg: Vec::new(),
            events: EventCounts::from(&sink.total()),
            exit: Exit { signal: None, status: 0 },
            faults,
            guest: Guest::default(),
            instructions: 123_456,
            kernel: "v7.3".to_owned(),
            machine: "apple-m3-vm".to_owned(),
            ptescope: "0.1.0".to_owned(),
            schema: RUN_SCHEMA.to_owned(),
            settings: Settings { thp, ..Settings::default() },
            thp: BTreeMap::new(),
            time: Time {
                guest_ns: 1,
                high_ns: 3,
                low_ns: 1,
                model: "apple-m3-vm".to_owned(),
                ns: 2,
            },
            tlb: BTreeMap::from([("walks".to_owned(), 5)]),
            unsupported: vec![Unsupported { calls: 2, syscall: "io_uring_setup".to_owned() }],
            vmstat: BTreeMap::new(),
            warnings: Vec::new(),
        }
    }

    #[test]
    fn a_report_survives_its_json() {
        let report = sample();
        let text = report.to_json().expect("writes");
        assert_eq!(RunReport::from_json(&text).expect("reads"), report);
    }

    #[test]
    fn keys_are_sorted_and_counts_are_integers() {
        let text = serde_json::to_string(&sample()).expect("writes");
        let value: serde_json::Value = serde_json::from_str(&text).expect("reads");
        assert_eq!(sorted(&value).to_string(), text);
        assert!(!floats(&value));
    }

    /// The same value with every object's keys in order, whatever map serde_json uses.
    pub(crate) fn sorted(value: &serde_json::Value) -> serde_json::Value {
        use serde_json::Value;
        match value {
            Value::Object(map) => {
                let ordered: BTreeMap<_, _> = map.iter().collect();
                Value::Object(ordered.into_iter().map(|(k, v)| (k.clone(), sorted(v))).collect())
            }
            Value::Array(items) => items.iter().map(sorted).collect(),
            other => other.clone(),
        }
    }

    fn floats(value: &serde_json::Value) -> bool {
        match value {
            serde_json::Value::Number(n) => n.is_f64(),
            serde_json::Value::Array(items) => items.iter().any(floats),
            serde_json::Value::Object(map) => map.values().any(floats),
            _ => false,
        }
    }

    #[test]
    fn faults_inside_a_syscall_are_not_its_own() {
        let report = sample();
        let madvise = report.syscall("madvise(MADV_PAGEOUT)").expect("called");
        assert_eq!((madvise.calls, madvise.events.get(Event::PtepGet)), (1, 63));
        assert_eq!(madvise.events.get(Event::PageZero), 0);
        assert_eq!(report.faults.events.get(Event::PageZero), 1);
        let op = &madvise.by_op["reclaim_pages/try_to_unmap_one"];
        assert_eq!(op.get(Event::PtepGet), 63);
    }

    #[test]
    fn counters_come_back_and_unknown_names_are_skipped() {
        let report = sample();
        assert_eq!(report.events.counters().get(Event::PtepGet), 63);
        let later: EventCounts =
            serde_json::from_str(r#"{"pte_read":2,"pte_wish":7}"#).expect("reads");
        assert_eq!(later.counters().get(Event::PteRead), 2);
    }

    #[test]
    fn another_schema_is_refused() {
        let text = sample().to_json().expect("writes").replace(RUN_SCHEMA, "ptescope.run/9");
        let err = RunReport::from_json(&text).expect_err("wrong schema");
        assert!(err.to_string().contains("ptescope.run/9"), "{err}");
    }
}
