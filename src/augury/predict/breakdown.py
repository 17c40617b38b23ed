"""Breaks a replayed run down: time by rank and layer, and utilization of links."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from augury.core.columns import I8
from augury.core.enums import OpKind, ResourceKind, are_communication, are_work
from augury.core.graph.graph import Graph
from augury.core.results.breakdown import (
    Breakdown,
    LayerBreakdown,
    LinkBreakdown,
    RankBreakdown,
)
from augury.core.time_intervals import GroupedIntervals, IntervalSet
from augury.core.timeline import Timeline
from augury.core.trace.trace import Trace
from augury.predict.collective_breakdown import break_down_collectives

MAX_ROWS = 300
"""Limit on layers, collectives and links."""
SLICES = 48
"""Number of equal slices of the window in which the utilization of a link is given."""

Mask = NDArray[np.bool_]

_LINKS = (ResourceKind.COMMUNICATION, ResourceKind.LINK_OUT, ResourceKind.LINK_IN)


def break_down(timeline: Timeline, trace: Trace | None = None) -> Breakdown:
    """``trace`` adds the measured times of collectives."""
    layers, links = _layers(timeline), _links(timeline)
    collectives = break_down_collectives(timeline, trace)
    return Breakdown(
        ranks=_ranks(timeline),
        layers=layers[:MAX_ROWS],
        num_layers=len(layers),
        collectives=collectives[:MAX_ROWS],
        num_collectives=len(collectives),
        links=links,
        num_links=int(np.isin(timeline.graph.resources.kind, _LINKS).sum()),
    )


def _ranks(timeline: Timeline) -> list[RankBreakdown]:
    graph, steps = timeline.graph, timeline.rank_steps
    num_ranks = len(graph.ranks)
    count = np.bincount(steps.rank, minlength=num_ranks)
    first = np.full(num_ranks, np.iinfo(np.int64).max)
    last = np.zeros(num_ranks, dtype=np.int64)
    np.minimum.at(first, steps.rank, steps.start_ns)
    np.maximum.at(last, steps.rank, steps.end_ns)
    first = np.where(count > 0, first, 0)

    is_communication = are_communication(graph.ops.kind)
    is_host = _resource_kind(graph) == ResourceKind.HOST
    works = are_work(graph.ops.kind)
    start, progress, end = timeline.start_ns, timeline.progress_start_ns, timeline.end_ns
    parts = [
        (works & ~is_host, progress, end),
        (is_communication, progress, end),
        (is_communication, start, progress),
        (works & is_host, progress, end),
    ]

    def covered(chosen: list[tuple[Mask, I8, I8]]) -> NDArray[np.float64]:
        """Time of each rank's window with at least one of the chosen operations."""
        rank = np.concatenate([graph.ops.rank[mask] for mask, _, _ in chosen])
        starts = np.concatenate([times[mask] for mask, times, _ in chosen])
        ends = np.concatenate([times[mask] for mask, _, times in chosen])
        until_ns = int(last.max(initial=0))
        union = GroupedIntervals(rank, starts, ends, num_groups=num_ranks, until_ns=until_ns)
        return np.diff(union.until(np.stack([first, last], axis=1)), axis=1)[:, 0]

    nested = [covered(parts[: n + 1]) for n in range(len(parts))]
    communication = covered([(is_communication, start, end)])
    spans = last - first
    own = np.diff(np.stack([np.zeros(num_ranks), *nested, spans]), axis=0)
    per_step = np.rint(np.maximum(0, own) / np.maximum(1, count)).astype(np.int64)
    return [
        RankBreakdown(
            rank=rank,
            step_ns=round(int(spans[rank]) / int(count[rank])),
            compute_ns=int(per_step[0, rank]),
            exposed_transfer_ns=int(per_step[1, rank]),
            exposed_waiting_ns=int(per_step[2, rank]),
            host_ns=int(per_step[3, rank]),
            idle_ns=int(per_step[4, rank]),
            communication_ns=round(float(communication[rank]) / int(count[rank])),
        )
        for rank in np.flatnonzero(count).tolist()
    ]


def _resource_kind(graph: Graph) -> NDArray[np.uint8]:
    """Kind of the resource of each operation; OTHER without one."""
    kinds = np.append(graph.resources.kind, ResourceKind.OTHER).astype(np.uint8)
    return np.asarray(kinds[graph.ops.resource])


def _layers(timeline: Timeline) -> list[LayerBreakdown]:
    graph, ops, path = timeline.graph, timeline.graph.ops, timeline.critical_path
    named = np.flatnonzero(ops.layer >= 0)
    if not len(named):
        return []
    numbers, layer, _ = np.unique(ops.layer[named], return_inverse=True, return_counts=True)
    dur_ns = (timeline.end_ns - timeline.progress_start_ns)[named].astype(np.float64)
    kind = ops.kind[named]
    num_layers, num_steps = len(numbers), max(1, graph.num_steps)
    pairs, _ = np.unique(
        layer.astype(np.int64) * len(graph.ranks) + ops.rank[named], return_counts=True
    )
    num_ranks = np.bincount(pairs // max(1, len(graph.ranks)), minlength=num_layers)

    def total(chosen: Mask, values: NDArray[np.float64]) -> NDArray[np.int64]:
        sums = np.bincount(layer[chosen], values[chosen], minlength=num_layers)
        return np.rint(sums / num_steps / num_ranks).astype(np.int64)

    is_communication = are_communication(kind)
    known = {
        "forward_ns": kind == OpKind.FORWARD,
        "backward_ns": kind == OpKind.BACKWARD,
        "update_ns": kind == OpKind.UPDATE,
        "communication_ns": is_communication,
    }
    times = {name: total(chosen, dur_ns) for name, chosen in known.items()}
    times["other_ns"] = total(~np.any(list(known.values()), axis=0), dur_ns)
    sizes = total(is_communication, ops.size_bytes[named].astype(np.float64))
    place = np.searchsorted(numbers, ops.layer[path.op])
    on_path = ops.layer[path.op] >= 0
    critical = np.bincount(place[on_path], path.dur_ns[on_path], minlength=num_layers) / num_steps
    found = [
        LayerBreakdown(
            layer=graph.strings[number],
            num_ranks=int(num_ranks[i]),
            size_bytes=int(sizes[i]),
            critical_ns=round(float(critical[i])),
            **{name: int(values[i]) for name, values in times.items()},
        )
        for i, number in enumerate(numbers.tolist())
    ]
    return sorted((one for one in found if one.layer), key=lambda one: -_layer_ns(one))


def _layer_ns(one: LayerBreakdown) -> int:
    return one.forward_ns + one.backward_ns + one.update_ns + one.other_ns + one.communication_ns


def _links(timeline: Timeline) -> list[LinkBreakdown]:
    graph, use = timeline.graph, timeline.utilization
    rows = np.flatnonzero(np.isin(graph.resources.kind, _LINKS) & (use.num_ops > 0))
    rows = rows[np.argsort(-use.busy_ns[rows], kind="stable")][:MAX_ROWS]
    edges = np.rint(np.linspace(0, timeline.makespan_ns, SLICES + 1)).astype(np.int64)
    of_link = np.flatnonzero(np.isin(graph.ops.resource, rows))
    of_link = of_link[np.argsort(graph.ops.resource[of_link], kind="stable")]
    resource = graph.ops.resource[of_link]
    found = []
    for row in rows.tolist():
        low, high = np.searchsorted(resource, [row, row + 1])
        own = of_link[low:high]
        busy = IntervalSet(np.stack([timeline.progress_start_ns[own], timeline.end_ns[own]], 1))
        spent = np.diff(busy.until(edges)) / np.maximum(1, np.diff(edges))
        rank = int(graph.resources.rank[row])
        window = max(1, int(use.busy_ns[row] + use.waiting_ns[row] + use.idle_ns[row]))
        found.append(
            LinkBreakdown(
                name=graph.resource_name(row),
                rank=rank if rank >= 0 else None,
                kind=ResourceKind(int(graph.resources.kind[row])).label,
                busy_pct=round(100 * int(use.busy_ns[row]) / window, 2),
                waiting_pct=round(100 * int(use.waiting_ns[row]) / window, 2),
                over_window_pct=np.round(100 * spent, 1).tolist(),
            )
        )
    return found
