"""Rows of ranks in the timeline: classes of identical ranks, those shown in detail, and the coarse
utilization of all of them."""

from __future__ import annotations

from dataclasses import dataclass
from hashlib import blake2b

import numpy as np
from numpy.typing import NDArray

from augury.core.enums import ResourceKind, are_communication, are_work
from augury.core.time_intervals import GroupedIntervals
from augury.core.timeline import Timeline

MIN_DETAILED = 64
"""Classes of ranks whose operations are in the page, however many they are."""
MAX_DETAILED_OPS = 100_000
"""Further classes are in the page as long as they have fewer operations."""
MAX_ROWS = 4_096
"""Ranks that have a row."""
STRIP_BINS = 160


@dataclass(frozen=True, kw_only=True, eq=False)
class RankRows:
    """``class_of[rank]`` is the first rank that is identical to it; ``detailed`` are the ranks with
    operations; ``strips`` has a row of compute and one of communication for each class."""

    class_of: NDArray[np.int64]
    detailed: NDArray[np.int64]
    classes: NDArray[np.int64]
    strips: NDArray[np.uint8]
    """Per cent of each part of the window, [class, compute or communication, part]."""


def rank_rows(timeline: Timeline, end_ns: int, *, is_measured: bool) -> RankRows:
    """Measured ranks differ, so each is a class of its own."""
    num_ranks = min(len(timeline.graph.ranks), MAX_ROWS)
    class_of = np.arange(num_ranks)
    if not is_measured:
        class_of = _classes(timeline, num_ranks)
    classes = np.flatnonzero(class_of == np.arange(num_ranks))
    return RankRows(
        class_of=class_of,
        detailed=_detailed(timeline, classes),
        classes=classes,
        strips=_strips(timeline, classes, end_ns),
    )


def _classes(timeline: Timeline, num_ranks: int) -> NDArray[np.int64]:
    graph, ops = timeline.graph, timeline.graph.ops
    resource_name = np.append(graph.resources.name, -1)[ops.resource]
    order = np.lexsort((timeline.start_ns, resource_name, ops.rank))
    first = np.searchsorted(ops.rank[order], np.arange(num_ranks + 1))
    columns = np.stack(
        [
            timeline.start_ns[order],
            timeline.end_ns[order],
            resource_name[order].astype(np.int64),
            ops.kind[order].astype(np.int64),
            ops.name[order].astype(np.int64),
            ops.layer[order].astype(np.int64),
            ops.step[order].astype(np.int64),
        ],
        axis=1,
    )
    class_of = np.arange(num_ranks)
    seen: dict[bytes, int] = {}
    for rank in range(num_ranks):
        own = columns[first[rank] : first[rank + 1]].tobytes()
        class_of[rank] = seen.setdefault(blake2b(own).digest(), rank)
    return class_of


def _detailed(timeline: Timeline, classes: NDArray[np.int64]) -> NDArray[np.int64]:
    """All classes where they fit; else those on the critical path, the slowest, the fastest, and
    others at equal distances."""
    ops_per_rank = timeline.graph.num_ops / max(1, len(timeline.graph.ranks))
    limit = max(MIN_DETAILED, int(MAX_DETAILED_OPS / max(1, ops_per_rank)))
    if len(classes) <= limit:
        return classes
    path, ops = timeline.critical_path, timeline.graph.ops
    critical = np.bincount(ops.rank[path.op], path.dur_ns, minlength=len(timeline.graph.ranks))
    step_ns = np.array(timeline.rank_step_ns)[classes]
    by_path = classes[np.argsort(-critical[classes], kind="stable")]
    by_path = by_path[critical[by_path] > 0][: limit // 2]
    by_step = classes[np.argsort(-step_ns, kind="stable")]
    spread = classes[np.linspace(0, len(classes) - 1, limit).astype(int)]
    wanted = [*by_path, classes[0], *by_step[:8], *by_step[::-1][:4], *spread]
    return np.array(sorted(list(dict.fromkeys(int(r) for r in wanted))[:limit]))


def _strips(timeline: Timeline, classes: NDArray[np.int64], end_ns: int) -> NDArray[np.uint8]:
    graph, ops = timeline.graph, timeline.graph.ops
    kinds = np.append(graph.resources.kind, ResourceKind.OTHER)
    is_host = kinds[ops.resource] == ResourceKind.HOST
    place = np.full(len(graph.ranks), -1)
    place[classes] = np.arange(len(classes))
    edges = np.linspace(0, end_ns, STRIP_BINS + 1).astype(np.int64)
    found = []
    for chosen in (are_work(ops.kind) & ~is_host, are_communication(ops.kind)):
        rows = np.flatnonzero(chosen & (place[ops.rank] >= 0))
        union = GroupedIntervals(
            place[ops.rank[rows]],
            timeline.progress_start_ns[rows],
            timeline.end_ns[rows],
            num_groups=len(classes),
            until_ns=end_ns,
        )
        share = np.diff(union.until(edges), axis=1) / np.maximum(1, np.diff(edges))
        found.append(np.rint(100 * np.clip(share, 0, 1)).astype(np.uint8))
    return np.stack(found, axis=1)
