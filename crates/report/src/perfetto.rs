//! A trace as ui.perfetto.dev reads it: a track for each CPU, counters, and an arrow from each change of page-table
//! entries to the flush that it made necessary.
//!
//! The messages are those of Perfetto's `protos/perfetto/trace/`, as far as they are used here.

use events::{ChangeId, Record, Span, TRACKS, TraceLog, What};
use prost::Message;
use std::collections::BTreeSet;
use units::CpuId;

#[derive(Clone, PartialEq, Message)]
struct Trace {
    #[prost(message, repeated, tag = "1")]
    packet: Vec<TracePacket>,
}

#[derive(Clone, PartialEq, Message)]
struct TracePacket {
    #[prost(uint64, optional, tag = "8")]
    timestamp: Option<u64>,
    #[prost(uint32, optional, tag = "10")]
    trusted_packet_sequence_id: Option<u32>,
    #[prost(message, optional, tag = "11")]
    track_event: Option<TrackEvent>,
    #[prost(message, optional, tag = "12")]
    interned_data: Option<InternedData>,
    #[prost(uint32, optional, tag = "13")]
    sequence_flags: Option<u32>,
    #[prost(message, optional, tag = "60")]
    track_descriptor: Option<TrackDescriptor>,
}

#[derive(Clone, PartialEq, Message)]
struct TrackDescriptor {
    #[prost(uint64, optional, tag = "1")]
    uuid: Option<u64>,
    #[prost(string, optional, tag = "2")]
    name: Option<String>,
    #[prost(uint64, optional, tag = "5")]
    parent_uuid: Option<u64>,
    #[prost(message, optional, tag = "8")]
    counter: Option<CounterDescriptor>,
}

#[derive(Clone, PartialEq, Message)]
struct CounterDescriptor {
    #[prost(string, optional, tag = "6")]
    unit_name: Option<String>,
}

#[derive(Clone, PartialEq, Message)]
struct TrackEvent {
    #[prost(message, repeated, tag = "4")]
    debug_annotations: Vec<DebugAnnotation>,
    #[prost(int32, optional, tag = "9")]
    kind: Option<i32>,
    #[prost(uint64, optional, tag = "10")]
    name_iid: Option<u64>,
    #[prost(uint64, optional, tag = "11")]
    track_uuid: Option<u64>,
    #[prost(int64, optional, tag = "30")]
    counter_value: Option<i64>,
    #[prost(fixed64, repeated, packed = "false", tag = "47")]
    flow_ids: Vec<u64>,
    #[prost(fixed64, repeated, packed = "false", tag = "48")]
    terminating_flow_ids: Vec<u64>,
}

#[derive(Clone, PartialEq, Message)]
struct DebugAnnotation {
    #[prost(uint64, optional, tag = "3")]
    uint_value: Option<u64>,
    #[prost(string, optional, tag = "6")]
    string_value: Option<String>,
    #[prost(string, optional, tag = "10")]
    name: Option<String>,
}

#[derive(Clone, PartialEq, Message)]
struct InternedData {
    #[prost(message, repeated, tag = "2")]
    event_names: Vec<EventName>,
}

#[derive(Clone, PartialEq, Message)]
struct EventName {
    #[prost(uint64, optional, tag = "1")]
    iid: Option<u64>,
    #[prost(string, optional, tag = "2")]
    name: Option<String>,
}

const SLICE_BEGIN: i32 = 1;
const SLICE_END: i32 = 2;
const COUNTER: i32 = 4;
/// The one sequence of packets.
const SEQUENCE: u32 = 1;
const STATE_CLEARED: u32 = 1;
const NEEDS_STATE: u32 = 2;
/// Tracks of CPUs and of counters are numbered from these.
const CPUS: u64 = 1000;
const COUNTERS: u64 = 1;
/// Flow 0 is none.
const FLOWS: u64 = 1;

/// The trace as the bytes of a file.
pub fn encode(log: &TraceLog) -> Vec<u8> {
    let mut writer = Writer { names: Vec::new(), packets: Vec::new() };
    writer.tracks(log);
    let first = writer.packets.len();
    log.records.iter().for_each(|record| writer.record(log, record));
    // Names are known when everything is written, but must come first.
    let names = writer
        .names
        .iter()
        .zip(1..)
        .map(|(name, iid)| EventName { iid: Some(iid), name: Some(name.clone()) });
    let names = TracePacket {
        trusted_packet_sequence_id: Some(SEQUENCE),
        interned_data: Some(InternedData { event_names: names.collect() }),
        sequence_flags: Some(STATE_CLEARED),
        ..TracePacket::default()
    };
    writer.packets.insert(first, names);
    Trace { packet: writer.packets }.encode_to_vec()
}

struct Writer {
    names: Vec<String>,
    packets: Vec<TracePacket>,
}

impl Writer {
    /// A track for each CPU on which something happens, and one for each counter.
    fn tracks(&mut self, log: &TraceLog) {
        let cpus: BTreeSet<CpuId> = log.records.iter().map(|record| record.cpu).collect();
        for cpu in cpus {
            self.track(cpu_track(cpu), format!("CPU {}", cpu.index()), None);
        }
        for (uuid, (name, _)) in (COUNTERS..).zip(TRACKS) {
            let counter = CounterDescriptor { unit_name: Some("events".to_owned()) };
            self.track(uuid, name.to_owned(), Some(counter));
        }
    }

    fn track(&mut self, uuid: u64, name: String, counter: Option<CounterDescriptor>) {
        let descriptor =
            TrackDescriptor { uuid: Some(uuid), name: Some(name), parent_uuid: None, counter };
        self.packets.push(TracePacket {
            trusted_packet_sequence_id: Some(SEQUENCE),
            track_descriptor: Some(descriptor),
            ..TracePacket::default()
        });
    }

    fn record(&mut self, log: &TraceLog, record: &Record) {
        let track = cpu_track(record.cpu);
        match &record.what {
            What::Entry(name) => {
                let name = log.names.get(*name).map_or("", String::as_str);
                self.begin(record.ps, track, name, TrackEvent::default());
            }
            What::Op(op) => self.begin(record.ps, track, op.name(), TrackEvent::default()),
            What::EntryEnd | What::OpEnd => self.end(record.ps, track),
            What::Change(span, id) => {
                let event = TrackEvent {
                    debug_annotations: covers(Some(*span)),
                    flow_ids: vec![flow(*id)],
                    ..TrackEvent::default()
                };
                self.begin(record.ps, track, "page-table entries change", event);
                self.end(record.ps, track);
            }
            What::Flush(name, span, causes) => {
                let event = TrackEvent {
                    debug_annotations: covers(*span),
                    terminating_flow_ids: causes.iter().map(|&id| flow(id)).collect(),
                    ..TrackEvent::default()
                };
                self.begin(record.ps, track, name, event);
                self.end(record.ps, track);
            }
            What::Counts(values) => {
                for (uuid, &value) in (COUNTERS..).zip(values) {
                    let counter_value = Some(i64::try_from(value).unwrap_or(i64::MAX));
                    let event = TrackEvent { counter_value, ..TrackEvent::default() };
                    self.event(record.ps, uuid, COUNTER, event);
                }
            }
        }
    }

    fn begin(&mut self, ps: u64, track: u64, name: &str, event: TrackEvent) {
        let known = self.names.iter().position(|known| known == name);
        let index = known.unwrap_or_else(|| {
            self.names.push(name.to_owned());
            self.names.len() - 1
        });
        let name_iid = Some(index as u64 + 1);
        self.event(ps, track, SLICE_BEGIN, TrackEvent { name_iid, ..event });
    }

    fn end(&mut self, ps: u64, track: u64) {
        self.event(ps, track, SLICE_END, TrackEvent::default());
    }

    fn event(&mut self, ps: u64, track: u64, kind: i32, event: TrackEvent) {
        let event = TrackEvent { kind: Some(kind), track_uuid: Some(track), ..event };
        self.packets.push(TracePacket {
            timestamp: Some(ps / 1000),
            trusted_packet_sequence_id: Some(SEQUENCE),
            track_event: Some(event),
            sequence_flags: Some(NEEDS_STATE),
            ..TracePacket::default()
        });
    }
}

fn cpu_track(cpu: CpuId) -> u64 {
    CPUS + cpu.index() as u64
}

fn flow(ChangeId(id): ChangeId) -> u64 {
    FLOWS + id
}

fn covers(span: Option<Span>) -> Vec<DebugAnnotation> {
    let text = |name: &str, value: String| DebugAnnotation {
        name: Some(name.to_owned()),
        string_value: Some(value),
        uint_value: None,
    };
    let Some(span) = span else { return vec![text("covers", "the address space".to_owned())] };
    let bytes = DebugAnnotation {
        name: Some("bytes".to_owned()),
        uint_value: Some(span.bytes),
        string_value: None,
    };
    vec![text("from", span.start.to_string()), bytes]
}

#[cfg(test)]
mod tests {
    use super::*;
    use units::VirtAddr;

    fn log() -> TraceLog {
        let span = Span { start: VirtAddr::new(0x7000), bytes: 4096 };
        let record = |ps, cpu, what| Record { ps, cpu: CpuId::new(cpu), what };
        TraceLog {
            records: vec![
                record(1000, 0, What::Entry(0)),
                record(2000, 0, What::Change(span, ChangeId(0))),
                record(3000, 1, What::Flush("INVLPG", Some(span), vec![ChangeId(0)])),
                record(9000, 0, What::EntryEnd),
                record(9000, 0, What::Counts([1, 2, 3, 4, 5])),
            ],
            names: vec!["munmap".to_owned()],
            entries_skipped: 0,
            records_skipped: 0,
        }
    }

    #[test]
    fn slices_close_and_arrows_lead_from_changes_to_flushes() {
        let trace = Trace::decode(encode(&log()).as_slice()).expect("reads back");
        let events: Vec<&TrackEvent> =
            trace.packet.iter().filter_map(|p| p.track_event.as_ref()).collect();
        let kinds = |kind| events.iter().filter(|e| e.kind == Some(kind)).count();
        assert_eq!((kinds(SLICE_BEGIN), kinds(SLICE_END), kinds(COUNTER)), (3, 3, 5));
        let from = events.iter().find(|e| !e.flow_ids.is_empty()).expect("a change");
        let to = events.iter().find(|e| !e.terminating_flow_ids.is_empty()).expect("a flush");
        assert_eq!(from.flow_ids, to.terminating_flow_ids);
        assert_eq!((from.track_uuid, to.track_uuid), (Some(CPUS), Some(CPUS + 1)));
        let tracks = trace.packet.iter().filter_map(|p| p.track_descriptor.as_ref());
        let names: Vec<_> = tracks.filter_map(|t| t.name.as_deref()).collect();
        assert_eq!(names[..2], ["CPU 0", "CPU 1"]);
        assert_eq!(names.len(), 2 + TRACKS.len());
    }
}
