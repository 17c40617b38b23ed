"""Times of collectives by kind, size and number of ranks: waiting against transfer, as replayed and
as measured."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from augury.core.columns import I8
from augury.core.enums import OpKind, StepState, are_communication
from augury.core.graph.graph import NONE
from augury.core.results.breakdown import CollectiveBreakdown, CollectiveTimes
from augury.core.timeline import Timeline
from augury.core.trace.collective_waits import collective_waits_ns
from augury.core.trace.trace import Trace
from augury.costs.collective_costs import bus_factor

Ints = NDArray[np.int64]


@dataclass(frozen=True, kw_only=True)
class _Sums:
    """One row per kind, size and number of ranks."""

    key: Ints
    """Columns: kind, size_bytes, number of ranks."""
    count: Ints
    waiting_ns: NDArray[np.float64]
    transfer_ns: NDArray[np.float64]


def break_down_collectives(timeline: Timeline, trace: Trace | None) -> list[CollectiveBreakdown]:
    """Returns the collectives that take most time first."""
    replayed = _replayed(timeline)
    measured = None if trace is None else _measured(trace, timeline)
    num_steps = max(1, timeline.graph.num_steps)
    rows: dict[tuple[int, int, int], dict[str, CollectiveTimes]] = {}
    counts: dict[tuple[int, int, int], int] = {}
    for source, sums in (("measured", measured), ("replayed", replayed)):
        for i, key in enumerate([] if sums is None else map(tuple, sums.key.tolist())):
            assert sums is not None
            found = rows.setdefault(key, {})
            found[source] = _times(key, float(sums.waiting_ns[i]), float(sums.transfer_ns[i]))
            counts[key] = int(sums.count[i])
    table = [
        CollectiveBreakdown(
            kind=OpKind(kind).label,
            size_bytes=size_bytes,
            num_ranks=num_ranks,
            per_step=round(counts[kind, size_bytes, num_ranks] / num_steps, 2),
            replayed=found.get("replayed"),
            measured=found.get("measured"),
        )
        for (kind, size_bytes, num_ranks), found in rows.items()
    ]
    return sorted(table, key=lambda one: -_total_ns(one))


def _times(key: tuple[int, int, int], waiting_ns: float, transfer_ns: float) -> CollectiveTimes:
    kind, size_bytes, num_ranks = key
    moved = size_bytes * bus_factor(OpKind(kind), num_ranks)
    rate = 1e9 * moved / transfer_ns if moved > 0 and transfer_ns >= 1 else None
    return CollectiveTimes(
        waiting_ns=round(waiting_ns),
        transfer_ns=round(transfer_ns),
        bus_bandwidth_bytes_per_s=rate,
    )


def _total_ns(one: CollectiveBreakdown) -> float:
    times = one.replayed or one.measured
    assert times is not None
    return one.per_step * (times.waiting_ns + times.transfer_ns)


def _replayed(timeline: Timeline) -> _Sums:
    ops = timeline.graph.ops
    rows = np.flatnonzero(are_communication(ops.kind))
    gang = ops.gang[rows].astype(np.int64)
    # Communication outside of gangs, such as a message, is a collective of its own.
    instance = np.where(gang >= 0, gang, timeline.graph.num_gangs + rows)
    return _sums(
        instance,
        ops.kind[rows],
        ops.size_bytes[rows],
        waiting_ns=(timeline.progress_start_ns - timeline.start_ns)[rows],
        transfer_ns=(timeline.end_ns - timeline.progress_start_ns)[rows],
    )


def _measured(trace: Trace, timeline: Timeline) -> _Sums:
    """Matched collectives in the timed steps that the graph has."""
    events, steps = trace.events, trace.steps
    timed = np.unique(steps.step[steps.state == StepState.TIMED], return_counts=True)[0]
    timed = timed[np.isin(timed, timeline.graph.ops.step)]
    rows = np.flatnonzero(
        are_communication(events.kind) & (events.sequence != NONE) & np.isin(events.step, timed)
    )
    key = (events.group[rows].astype(np.int64) << 32) | events.sequence[rows]
    _, instance, _ = np.unique(key, return_inverse=True, return_counts=True)
    waiting_ns = collective_waits_ns(trace)[rows]
    return _sums(
        instance,
        events.kind[rows],
        events.size_bytes[rows],
        waiting_ns=waiting_ns,
        transfer_ns=events.dur_ns[rows] - waiting_ns,
    )


def _sums(
    instance: Ints, kind: NDArray[np.uint8], size_bytes: I8, *, waiting_ns: I8, transfer_ns: I8
) -> _Sums:
    """Means over members, then over collectives of one kind, size and number of ranks."""
    _, first, number, num_ranks = np.unique(
        instance, return_index=True, return_inverse=True, return_counts=True
    )
    own_kind = kind[first].astype(np.int64)
    size = np.zeros(len(first), dtype=np.int64)
    np.maximum.at(size, number, size_bytes)
    waiting, transfer = (
        np.bincount(number, values, minlength=len(first)) / np.maximum(1, num_ranks)
        for values in (waiting_ns, transfer_ns)
    )
    keys, group, count = np.unique(
        np.stack([own_kind, np.maximum(0, size), num_ranks], axis=1).reshape(-1, 3),
        axis=0,
        return_inverse=True,
        return_counts=True,
    )
    group = group.ravel()
    return _Sums(
        key=keys,
        count=count,
        waiting_ns=np.bincount(group, waiting, minlength=len(keys)) / np.maximum(1, count),
        transfer_ns=np.bincount(group, transfer, minlength=len(keys)) / np.maximum(1, count),
    )
