"""Assigns operations to tracks of a timeline viewer.

A rank is a process and a resource is a track; it has several lanes where operations run at once,
because slices of one track must not overlap.
"""

from __future__ import annotations

from dataclasses import dataclass
from heapq import heappop, heappush

import numpy as np
from numpy.typing import NDArray

from augury.core.enums import Role
from augury.core.graph.graph import Graph
from augury.core.timeline import Timeline


@dataclass(frozen=True, slots=True)
class TrackProcess:
    """``order`` is its position from the top."""

    pid: int
    name: str
    order: int


@dataclass(frozen=True, slots=True)
class Track:
    pid: int
    tid: int
    name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class TrackLayout:
    """``tid`` is unique over all processes; ``op_pid`` and ``op_tid`` are the track of each
    operation."""

    processes: list[TrackProcess]
    tracks: list[Track]
    path: Track
    op_pid: NDArray[np.int64]
    op_tid: NDArray[np.int64]


def lay_out(timeline: Timeline) -> TrackLayout:
    graph = timeline.graph
    num_ranks, num_resources = len(graph.ranks), len(graph.resources)
    shared_pid, path_pid = num_ranks + 1, num_ranks + 2
    # Resources are numbered first; operations without a resource form one more group per rank.
    group = np.where(graph.ops.resource >= 0, graph.ops.resource, num_resources + graph.ops.rank)
    lane = free_lanes(group, timeline.start_ns, timeline.end_ns)
    owner = np.concatenate([graph.resources.rank, np.arange(num_ranks, dtype=np.int32)])
    group_pid = np.where(owner >= 0, owner + 1, shared_pid).astype(np.int64)

    spread = int(lane.max(initial=0)) + 1
    keys, op_track = np.unique(group * np.int64(spread) + lane, return_inverse=True)
    first_tid = path_pid + 2
    tracks = [
        Track(int(group_pid[g]), first_tid + i, _track_name(graph, g, number))
        for i, (g, number) in enumerate(zip(*np.divmod(keys, spread), strict=True))
    ]
    processes = [TrackProcess(path_pid, "critical path", 0)]
    processes += [TrackProcess(r + 1, _rank_name(graph, r), r + 1) for r in range(num_ranks)]
    if (graph.resources.rank < 0).any():
        processes.append(TrackProcess(shared_pid, "shared", num_ranks + 1))
    return TrackLayout(
        processes=processes,
        tracks=tracks,
        path=Track(path_pid, path_pid + 1, "critical path"),
        op_pid=group_pid[group],
        op_tid=op_track.astype(np.int64) + first_tid,
    )


def free_lanes(
    group: NDArray[np.int64], start_ns: NDArray[np.int64], end_ns: NDArray[np.int64]
) -> NDArray[np.int64]:
    """Returns for each operation the lowest lane of its group that is free when it starts."""
    lane = np.zeros(len(group), dtype=np.int64)
    order = np.lexsort((end_ns, start_ns, group))
    group, start_ns, end_ns = group[order], start_ns[order], end_ns[order]
    early = (group[1:] == group[:-1]) & (start_ns[1:] < end_ns[:-1])
    crowded = np.isin(group, np.unique(group[1:][early]))
    if not crowded.any():
        return lane
    current = -1
    running: list[tuple[int, int]] = []
    free: list[int] = []
    for i in np.flatnonzero(crowded).tolist():
        if group[i] != current:
            current, running, free = int(group[i]), [], []
            opened = 0
        while running and running[0][0] <= start_ns[i]:
            heappush(free, heappop(running)[1])
        if free:
            chosen = heappop(free)
        else:
            chosen, opened = opened, opened + 1
        lane[order[i]] = chosen
        heappush(running, (int(end_ns[i]), chosen))
    return lane


def _rank_name(graph: Graph, rank: int) -> str:
    role = "server" if graph.ranks.role[rank] == Role.SERVER else "rank"
    host = graph.strings[int(graph.ranks.host[rank])]
    return f"{role} {rank} ({host})" if host else f"{role} {rank}"


def _track_name(graph: Graph, group: int, lane: int) -> str:
    num_resources = len(graph.resources)
    name = graph.resource_name(group) if group < num_resources else "no resource"
    return f"{name} #{lane + 1}" if lane else name
