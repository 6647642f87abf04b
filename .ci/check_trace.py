#!/usr/bin/env python3
"""Reads a trace with Perfetto's own message definitions (PyPI `perfetto`) and checks what it says.

Usage: check_trace.py FILE. With a trace processor at hand ($TRACE_PROCESSOR, a trace_processor_shell) the same
questions are asked of it in SQL too.
"""
import collections
import os
import sys

try:
    from perfetto.protos.perfetto.trace import perfetto_trace_pb2 as pb
except ImportError:  # older layouts of the package
    from perfetto.protos.perfetto.trace.perfetto_trace_pb2 import Trace as _Trace

    class pb:
        Trace = _Trace


def fail(what):
    sys.exit(f"check_trace: {what}")


def read(path):
    trace = pb.Trace()
    trace.ParseFromString(open(path, "rb").read())
    return trace


def check_messages(trace):
    """Every field is known, slices nest on each track, time does not run backwards, arrows join."""
    names, tracks, depth, last = {}, {}, collections.Counter(), collections.Counter()
    starts, ends, counts = set(), [], collections.Counter()
    for packet in trace.packet:
        for entry in packet.interned_data.event_names:
            names[entry.iid] = entry.name
        if packet.HasField("track_descriptor"):
            tracks[packet.track_descriptor.uuid] = packet.track_descriptor.name
        if not packet.HasField("track_event"):
            continue
        event = packet.track_event
        track = event.track_uuid
        if track not in tracks:
            fail(f"an event on an unknown track {track}")
        if packet.timestamp < last[track]:
            fail(f"time runs backwards on {tracks[track]}")
        last[track] = packet.timestamp
        if event.type == event.TYPE_SLICE_BEGIN:
            depth[track] += 1
            counts[names[event.name_iid]] += 1
        elif event.type == event.TYPE_SLICE_END:
            depth[track] -= 1
            if depth[track] < 0:
                fail(f"an end without a start on {tracks[track]}")
        starts.update(event.flow_ids)
        ends.extend(event.terminating_flow_ids)
    if any(depth.values()):
        fail(f"slices that do not end: {depth}")
    if not ends:
        fail("no flush has a change that made it necessary")
    lost = [flow for flow in ends if flow not in starts]
    if lost:
        fail(f"{len(lost)} arrows come from nowhere")
    return counts, len(ends), sorted(tracks.values())


def check_queries(path, shell, counts, arrows):
    """The same numbers from the trace processor."""
    from perfetto.trace_processor import TraceProcessor, TraceProcessorConfig

    processor = TraceProcessor(trace=path, config=TraceProcessorConfig(bin_path=shell))
    slices = {row.name: row.n for row in processor.query("select name, count(*) as n from slice group by name")}
    if slices != dict(counts):
        fail(f"the trace processor counts other slices: {slices} instead of {dict(counts)}")
    flows = next(iter(processor.query("select count(*) as n from flow"))).n
    if flows != arrows:
        fail(f"the trace processor sees {flows} arrows, not {arrows}")
    print(f"trace processor: {sum(slices.values())} slices, {flows} arrows")


def main():
    path = sys.argv[1]
    counts, arrows, tracks = check_messages(read(path))
    print(f"{sum(counts.values())} slices, {arrows} arrows, tracks: {', '.join(tracks)}")
    for name, n in counts.most_common(8):
        print(f"  {n:7} {name}")
    shell = os.environ.get("TRACE_PROCESSOR")
    if shell:
        check_queries(path, shell, counts, arrows)
    else:
        print("SKIPPED: no trace processor ($TRACE_PROCESSOR): its queries are not asked")


main()
