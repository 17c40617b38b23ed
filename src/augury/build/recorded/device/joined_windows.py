"""Windows of recorded steps, moved together: the time between them was not recorded."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from augury.core.columns import I8
from augury.core.enums import StepState
from augury.core.trace.trace import Allocations, Events, Steps, Trace


def watched_steps(trace: Trace) -> NDArray[np.intp]:
    """Returns the rows of the recorded steps, sorted by rank and step."""
    return np.flatnonzero(np.isin(trace.steps.state, [StepState.TIMED, StepState.DETAILED]))


def join_windows(trace: Trace) -> Trace:
    """Returns the trace with the steps of all windows in a row. A window ends when its last kernel
    has ended; windows of different ranks that overlap move together."""
    steps, events, rows = trace.steps, trace.events, watched_steps(trace)
    if not len(rows):
        return trace
    place = _places(trace, rows)
    ends_ns = steps.end_ns[rows].copy()
    inside = np.flatnonzero(place >= 0)
    np.maximum.at(ends_ns, place[inside], events.start_ns[inside] + events.dur_ns[inside])
    order = np.argsort(steps.start_ns[rows], kind="stable")
    start_ns = steps.start_ns[rows][order]
    reached_ns = np.maximum.accumulate(np.concatenate([start_ns[:1], ends_ns[order]]))[:-1]
    removed_ns = np.empty(len(rows), dtype=np.int64)
    removed_ns[order] = np.cumsum(np.maximum(start_ns - reached_ns, 0))
    if not removed_ns.any():
        return trace
    earlier_ns = np.where(place >= 0, removed_ns[place], 0)
    moved = {"start_ns": events.start_ns - earlier_ns, "arrival_ns": events.arrival_ns - earlier_ns}
    step_earlier_ns = np.zeros(len(steps), dtype=np.int64)
    step_earlier_ns[rows] = removed_ns
    moved_steps = {
        "start_ns": steps.start_ns - step_earlier_ns,
        "end_ns": steps.end_ns - step_earlier_ns,
    }
    return trace.evolve(
        allocations=_moved_allocations(trace, rows, removed_ns),
        events=Events(**dict(events.columns()) | moved),
        steps=Steps(**dict(steps.columns()) | moved_steps),
    )


def _moved_allocations(trace: Trace, rows: NDArray[np.intp], removed_ns: I8) -> Allocations:
    """Moves allocations with the step that they happened in, or with the one before them."""
    steps, found = trace.steps, trace.allocations
    at_ns = found.at_ns.copy()
    for rank in np.unique(found.rank).tolist():
        own = np.flatnonzero(steps.rank[rows] == rank)
        here = slice(*np.searchsorted(found.rank, [rank, rank + 1]).tolist())
        if len(own):
            place = np.searchsorted(steps.start_ns[rows[own]], at_ns[here], side="right") - 1
            at_ns[here] -= removed_ns[own[np.maximum(place, 0)]]
            at_ns[here] = np.maximum.accumulate(at_ns[here])
    return Allocations(**dict(found.columns()) | {"at_ns": at_ns})


def _places(trace: Trace, rows: NDArray[np.intp]) -> I8:
    """Returns the place in ``rows`` of the step of each event; -1 for events of other steps."""
    steps, events = trace.steps, trace.events
    name = (steps.rank[rows].astype(np.int64) << 32) + steps.step[rows]
    wanted = (events.rank.astype(np.int64) << 32) + events.step
    place = np.minimum(np.searchsorted(name, wanted), len(rows) - 1)
    return np.where(name[place] == wanted, place, -1)
