"""Lanes of the replayed timeline: operations on their resources, the critical path, and flows."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from augury.core.timeline import Timeline
from augury.report.page.timeline.slices import NONE, Lane, Slices, Source, colours_of
from augury.report.tracks import lay_out

Pairs = NDArray[np.int64]


@dataclass(frozen=True, kw_only=True, eq=False)
class LaneSet:
    """Lanes of one source with their slices, and flows as pairs of rows of ``slices``."""

    lanes: list[Lane]
    slices: Slices
    flows: Pairs


def replayed_lanes(timeline: Timeline, ranks: NDArray[np.int64]) -> LaneSet:
    """Lanes of some ranks and of shared resources. Operations without duration are left out."""
    graph, ops = timeline.graph, timeline.graph.ops
    layout = lay_out(timeline)
    shared_pid = len(graph.ranks) + 1
    shown_pids = np.append(ranks + 1, shared_pid)
    tracks = sorted(
        (track for track in layout.tracks if track.pid in set(shown_pids.tolist())),
        key=lambda track: (track.pid, track.tid),
    )
    lane_of = np.full(max((t.tid for t in layout.tracks), default=0) + 1, NONE)
    lane_of[[track.tid for track in tracks]] = np.arange(len(tracks))
    lane = lane_of[layout.op_tid]
    dur_ns = timeline.end_ns - timeline.start_ns
    shown = np.flatnonzero((lane >= 0) & (dur_ns > 0))
    shown = shown[np.lexsort((timeline.start_ns[shown], lane[shown]))]
    is_critical = np.zeros(graph.num_ops, dtype=np.uint8)
    is_critical[timeline.critical_path.op] = 1
    slices = Slices.of(
        lane=lane[shown],
        start_ns=timeline.start_ns[shown],
        dur_ns=dur_ns[shown],
        wait_ns=(timeline.progress_start_ns - timeline.start_ns)[shown],
        colour=colours_of(ops.kind[shown]),
        name=ops.name[shown],
        layer=ops.layer[shown],
        step=ops.step[shown],
        size_bytes=ops.size_bytes[shown],
        is_critical=is_critical[shown],
    )
    row_of = np.full(graph.num_ops, NONE, dtype=np.int64)
    row_of[shown] = np.arange(len(shown))
    lanes = [
        Lane(Source.REPLAYED, NONE if t.pid == shared_pid else t.pid - 1, t.name) for t in tracks
    ]
    return LaneSet(lanes=lanes, slices=slices, flows=_flows(timeline, row_of, slices))


def _flows(timeline: Timeline, row_of: Pairs, slices: Slices) -> Pairs:
    """Dependencies between lanes, those on the critical path first."""
    edges = timeline.graph.edges
    src, dst = row_of[edges.sources()], row_of[edges.dst]
    shown = (src >= 0) & (dst >= 0)
    src, dst = src[shown], dst[shown]
    across = slices.lane[src] != slices.lane[dst]
    src, dst = src[across], dst[across]
    is_critical = slices.is_critical[src] & slices.is_critical[dst]
    order = np.lexsort((slices.start_ns[src], -is_critical.astype(np.int64)))
    return np.stack([src[order], dst[order]], axis=1)


def critical_path_lane(timeline: Timeline) -> LaneSet:
    """The critical path as one lane."""
    graph, path = timeline.graph, timeline.critical_path
    shown = np.flatnonzero(path.dur_ns > 0)
    ops, op = graph.ops, path.op[shown]
    slices = Slices.of(
        start_ns=path.start_ns[shown],
        dur_ns=path.dur_ns[shown],
        colour=colours_of(ops.kind[op]),
        name=ops.name[op],
        layer=ops.layer[op],
        step=ops.step[op],
        size_bytes=ops.size_bytes[op],
        is_critical=np.ones(len(shown), dtype=np.uint8),
        reason=path.reason[shown],
    )
    no_flows = np.zeros((0, 2), dtype=np.int64)
    lane = Lane(Source.PATH, NONE, "critical path")
    return LaneSet(lanes=[lane], slices=slices, flows=no_flows)
