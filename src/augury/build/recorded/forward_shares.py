"""Shares of forward that single modules take, measured in detailed steps.

Timed steps record forward as one operation. Detailed steps have a range around every call of every
module, and the profiler slows them: its time is about the same for each event, and is taken out.
"""

from __future__ import annotations

from collections import defaultdict

import numpy as np

from augury.core.columns import I4
from augury.core.enums import Phase, StepState, StreamKind
from augury.core.graph.graph import NONE
from augury.core.trace.trace import Trace
from augury.core.vocabulary.torch import MODULE_RANGE

Shares = dict[str, float]
"""Share of forward by path of a module, without the modules inside of it."""


def forward_shares(trace: Trace) -> Shares:
    """Returns the median shares over the detailed steps of all ranks; empty without any. The sum is
    at most 1; the rest is forward outside of trained modules, such as the loss."""
    steps = trace.steps
    if any(kind == StreamKind.DEVICE for kind in trace.streams.kind.tolist()):
        return {}  # operations of devices have layers of their own
    timed_ns = _timed_forward_ns(trace)
    found: dict[str, list[float]] = defaultdict(list)
    num_steps = 0
    for row in np.flatnonzero(steps.state == StepState.DETAILED).tolist():
        rank = int(steps.rank[row])
        rows = _forward_rows(trace, rank, int(steps.start_ns[row]), int(steps.end_ns[row]))
        own = _own_times(trace, rows, timed_ns.get(rank))
        if own:
            num_steps += 1
            for path, share in own.items():
                found[path].append(share)
    medians = {
        path: float(np.median([*shares, *[0.0] * (num_steps - len(shares))]))
        for path, shares in found.items()
    }
    total = sum(medians.values())
    return {path: share / max(1.0, total) for path, share in medians.items() if share > 0}


def _forward_rows(trace: Trace, rank: int, start_ns: int, end_ns: int) -> I4:
    """Returns the events of a rank's main thread in forward between two times."""
    events, own = trace.events, trace.of_rank(rank)
    rows = np.arange(own.start, own.stop, dtype=np.int32)
    is_main = trace.streams.kind[events.stream[rows]] == StreamKind.MAIN_THREAD
    inside = (events.start_ns[rows] >= start_ns) & (events.start_ns[rows] < end_ns)
    return np.asarray(rows[is_main & inside & (events.phase[rows] == Phase.FORWARD)])


def _own_times(trace: Trace, rows: I4, timed_ns: float | None) -> Shares:
    """Returns the share of each module in the forward of one step, without the profiler's time."""
    events = trace.events
    if not len(rows):
        return {}
    is_outer = events.parent[rows] == NONE
    if not is_outer.all():
        # An event of another phase may enclose forward, as a closure's range does.
        is_outer |= ~np.isin(events.parent[rows], rows)
    whole_ns = float(events.dur_ns[rows[is_outer]].sum())
    per_event_ns = max(0.0, whole_ns - timed_ns) / len(rows) if timed_ns else 0.0
    paths = {
        int(row): trace.name(int(row)).removeprefix(MODULE_RANGE)
        for row in rows.tolist()
        if trace.name(int(row)).startswith(MODULE_RANGE)
    }
    place = {int(row): number for number, row in enumerate(rows.tolist())}
    own_ns = np.zeros(len(rows))
    num_events = np.ones(len(rows))
    range_of = np.full(len(rows), NONE)
    # Enclosing events come first, so a row's parent is known before the row.
    for number, row in enumerate(rows.tolist()):
        parent = place.get(int(events.parent[row]), NONE)
        around = range_of[parent] if parent != NONE else NONE
        range_of[number] = number if row in paths else around
        if row in paths:
            own_ns[number] += float(events.dur_ns[row])
            if around != NONE:
                own_ns[around] -= float(events.dur_ns[row])
        elif around != NONE:
            num_events[around] += 1
    kept_ns: dict[str, float] = defaultdict(float)
    for row, path in paths.items():
        number = place[row]
        kept_ns[path] += max(0.0, own_ns[number] - per_event_ns * num_events[number])
    total_ns = max(1.0, whole_ns - per_event_ns * len(rows))
    return {path: ns / total_ns for path, ns in kept_ns.items()}


def _timed_forward_ns(trace: Trace) -> dict[int, float]:
    """Returns the median time of forward in the timed steps of each rank."""
    steps = trace.steps
    found: dict[int, list[float]] = defaultdict(list)
    for row in np.flatnonzero(steps.state == StepState.TIMED).tolist():
        rank = int(steps.rank[row])
        rows = _forward_rows(trace, rank, int(steps.start_ns[row]), int(steps.end_ns[row]))
        outer = rows[~np.isin(trace.events.parent[rows], rows)]
        if len(outer):
            found[rank].append(float(trace.events.dur_ns[outer].sum()))
    return {rank: float(np.median(times)) for rank, times in found.items()}
