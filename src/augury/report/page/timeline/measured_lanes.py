"""Lanes of the measured timeline: events of the steps that were replayed, on their streams."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from augury.core.columns import I8
from augury.core.enums import StepState, StreamKind
from augury.core.trace.collective_waits import collective_waits_ns
from augury.core.trace.trace import Trace
from augury.report.page.timeline.replayed_lanes import LaneSet
from augury.report.page.timeline.slices import NONE, Lane, Slices, Source, colours_of
from augury.report.tracks import free_lanes

MAX_DEPTH = 3
"""Levels of enclosed events that are shown below each other."""


@dataclass(frozen=True, kw_only=True, eq=False)
class ShownSteps:
    """Steps of some ranks, on the clock of the page: it starts with the first of them, and leaves
    out the time between recorded windows."""

    ranks: NDArray[np.int64]
    """Rank in the trace of each rank of the graph; ``rank`` is that of the graph."""
    rank: NDArray[np.int64]
    step: NDArray[np.int32]
    start_ns: I8
    end_ns: I8
    shift_ns: dict[int, int]
    """By step: difference between the run's clock and the page's."""


def recorded_ranks(trace: Trace, num_ranks: int) -> NDArray[np.int64]:
    """Returns the rank in the trace of each rank of the graph, which has only the recorded ones."""
    timed = np.unique(trace.steps.rank[trace.steps.state == StepState.TIMED])
    known = timed if len(timed) == num_ranks else np.arange(num_ranks)
    return np.asarray(known, dtype=np.int64)


def _rows_of(rank: NDArray[np.int32], ranks: NDArray[np.int64]) -> NDArray[np.int64]:
    """Returns the place of each rank in ``ranks``, which is sorted; NONE if it is not there."""
    place = np.minimum(np.searchsorted(ranks, rank), max(0, len(ranks) - 1))
    return np.where(ranks[place] == rank, place, NONE) if len(ranks) else np.full(len(rank), NONE)


def shown_steps(trace: Trace, steps: NDArray[np.int32], ranks: NDArray[np.int64]) -> ShownSteps:
    """Timed steps among ``steps``. Those of one window keep their distance."""
    table = trace.steps
    rows = np.flatnonzero((table.state == StepState.TIMED) & np.isin(table.step, steps))
    shift_ns: dict[int, int] = {}
    at_ns, last = 0, None
    for step in sorted(set(table.step[rows].tolist())):
        own = rows[table.step[rows] == step]
        first_ns = int(table.start_ns[own].min())
        follows = last is not None and step == last + 1
        shift_ns[step] = shift_ns[last] if follows and last is not None else first_ns - at_ns
        at_ns = max(at_ns, int(table.end_ns[own].max()) - shift_ns[step])
        last = step
    shift = np.array([shift_ns[step] for step in table.step[rows].tolist()], dtype=np.int64)
    return ShownSteps(
        rank=_rows_of(table.rank[rows], ranks),
        ranks=ranks,
        step=table.step[rows],
        start_ns=table.start_ns[rows] - shift,
        end_ns=table.end_ns[rows] - shift,
        shift_ns=shift_ns,
    )


def measured_lanes(trace: Trace, steps: ShownSteps, ranks: NDArray[np.int64]) -> LaneSet:
    events = trace.events
    wanted = np.isin(events.step, np.array(sorted(steps.shift_ns), dtype=np.int32))
    depth = _depths(events.parent)
    shown = np.flatnonzero(
        wanted
        & np.isin(events.rank, steps.ranks[ranks])
        & (events.dur_ns > 0)
        & (depth < MAX_DEPTH)
    )
    start_ns = events.start_ns[shown] - _shifts(events.step[shown], steps)
    level = events.stream[shown].astype(np.int64) * MAX_DEPTH + depth[shown]
    # Collectives of one group overlap without enclosing each other.
    number = free_lanes(level, start_ns, start_ns + events.dur_ns[shown])
    spread = int(number.max(initial=0)) + 1
    lane, lanes = _ordered_lanes(trace, steps.ranks, level * spread + number, spread)
    by_lane = np.lexsort((start_ns, lane))
    shown, lane, start_ns = shown[by_lane], lane[by_lane], start_ns[by_lane]
    slices = Slices.of(
        lane=lane,
        start_ns=start_ns,
        dur_ns=events.dur_ns[shown],
        wait_ns=collective_waits_ns(trace)[shown],
        colour=colours_of(events.kind[shown]),
        name=events.name[shown],
        layer=events.layer[shown],
        step=events.step[shown],
        size_bytes=np.maximum(0, events.size_bytes[shown]),
    )
    row_of = np.full(len(events), NONE, dtype=np.int64)
    row_of[shown] = np.arange(len(shown))
    caused = shown[events.cause[shown] >= 0]
    flows = np.stack([row_of[events.cause[caused]], row_of[caused]], axis=1)
    return LaneSet(lanes=lanes, slices=slices, flows=flows[flows[:, 0] >= 0])


def _ordered_lanes(
    trace: Trace, ranks: NDArray[np.int64], key: NDArray[np.int64], spread: int
) -> tuple[NDArray[np.int64], list[Lane]]:
    """Returns the lane of each event, and the lanes. Those of one rank stand together: the main
    thread first, then other threads, devices and communication."""
    keys, lane, _ = np.unique(key, return_inverse=True, return_counts=True)
    level, number = np.divmod(keys, spread)
    stream, depth = np.divmod(level, MAX_DEPTH)
    kind = trace.streams.kind[stream].astype(np.int64)
    last = np.where(kind == StreamKind.OTHER, 99, kind)
    order = np.lexsort((number, depth, stream, last, trace.streams.rank[stream]))
    place = np.empty(len(order), dtype=np.int64)
    place[order] = np.arange(len(order))
    rows = _rows_of(trace.streams.rank[stream], ranks)
    names = [trace.strings[int(trace.streams.name[one])] for one in stream.tolist()]
    lanes = [
        Lane(
            Source.MEASURED,
            int(rows[i]),
            _lane_name(names[i], int(depth[i]), int(number[i])),
        )
        for i in order.tolist()
    ]
    return place[lane], lanes


def _lane_name(stream: str, depth: int, number: int) -> str:
    below = f", level {depth + 1}" if depth else ""
    return f"{stream}{below} #{number + 1}" if number else f"{stream}{below}"


def _depths(parent: NDArray[np.int32]) -> NDArray[np.int64]:
    """Number of enclosing events, at most ``MAX_DEPTH``."""
    depth = np.zeros(len(parent), dtype=np.int64)
    above = parent
    for _ in range(MAX_DEPTH):
        inside = above >= 0
        if not inside.any():
            break
        depth += inside
        above = np.where(inside, parent[above], NONE)
    return depth


def _shifts(step: NDArray[np.int32], steps: ShownSteps) -> I8:
    known = np.array(sorted(steps.shift_ns), dtype=np.int64)
    shifts = np.array([steps.shift_ns[one] for one in known.tolist()], dtype=np.int64)
    return np.asarray(shifts[np.searchsorted(known, step)]) if len(known) else np.zeros(0, "<i8")
