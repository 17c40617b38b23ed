"""Time per step of one run by phase, kind of operation, layer and operation.

Phases and kinds come from timing windows, which cost little; layers and operations from the
detailed window, whose steps are slower in both runs. The time of an event is its own: without the
events that it encloses on its stream.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from augury.core.columns import I4, I8
from augury.core.enums import OpKind, Phase, StepState, StreamKind, are_communication
from augury.core.graph.graph import NONE
from augury.core.measured_step import StepLevel, level_of_windows
from augury.core.trace.trace import Trace
from augury.ingest.vocabulary.torch import PROFILER_STEP

MAX_PARTS = 300
"""Most parts of a table, those with the most time: a hostile run may have millions of names."""

NO_LAYER = "(no layer)"

Bools = NDArray[np.bool_]


@dataclass(frozen=True, slots=True, kw_only=True)
class PartLevel:
    """Time per step of one part, as the mean over the ranks."""

    level: StepLevel
    is_in_every_step: bool


Parts = dict[str, PartLevel]


@dataclass(frozen=True, slots=True, kw_only=True)
class RunParts:
    phases: Parts
    """Time on the main thread by phase, and the gaps between phases: together the whole step."""
    kinds: Parts
    layers: Parts
    operations: Parts
    timed_delay: float
    """Share of the steps in timing windows for which the main thread had no core."""
    detailed_delay: float
    """The same in detailed windows."""


def run_parts(trace: Trace) -> RunParts:
    events = trace.events
    own_ns = _own_ns(trace)
    timed, detailed = (_steps_in(trace, state) for state in (StepState.TIMED, StepState.DETAILED))
    is_waiting = np.isin(events.kind, [OpKind.LAUNCH, OpKind.SYNC]) | are_communication(events.kind)
    return RunParts(
        phases=_phases(trace, timed),
        kinds=levels_of(
            timed, events.step, events.kind, own_ns, events.rank, lambda kind: OpKind(kind).label
        ),
        layers=levels_of(
            detailed,
            events.step,
            events.layer,
            np.where(is_waiting, 0, own_ns),
            events.rank,
            lambda layer: trace.strings[layer] if layer != NONE else NO_LAYER,
        ),
        operations=levels_of(
            detailed,
            events.step,
            events.name,
            own_ns,
            events.rank,
            lambda name: trace.strings[name],
        ),
        timed_delay=_delay_share(trace, StepState.TIMED),
        detailed_delay=_delay_share(trace, StepState.DETAILED),
    )


def levels_of(
    steps: I4,
    step: NDArray[np.integer],
    group: NDArray[np.integer],
    dur_ns: NDArray[np.number],
    rank: I4,
    name_of: Callable[[int], str],
) -> Parts:
    """Sums durations by group in each of ``steps``, and returns the level of each group. All
    columns are of the same events, or of gaps beside them."""
    rows = np.flatnonzero(np.isin(step, steps) & (dur_ns > 0))
    if not len(rows):
        return {}
    groups, place = np.unique(group[rows], return_inverse=True)
    column = np.searchsorted(steps, step[rows])
    sums = np.bincount(
        place * len(steps) + column, weights=dur_ns[rows], minlength=len(groups) * len(steps)
    ).reshape(len(groups), len(steps)) / len(np.unique(rank[rows]))
    largest = np.argsort(-sums.sum(axis=1), kind="stable")[:MAX_PARTS]
    found: Parts = {}
    for index in sorted(largest.tolist()):
        is_in = sums[index] > 0
        level = level_of_windows(steps[is_in], sums[index][is_in])
        found[name_of(int(groups[index]))] = PartLevel(
            level=level, is_in_every_step=bool(is_in.all())
        )
    return found


def _own_ns(trace: Trace) -> I8:
    events = trace.events
    own_ns = events.dur_ns.copy()
    enclosed = np.flatnonzero(events.parent != NONE)
    np.subtract.at(own_ns, events.parent[enclosed], events.dur_ns[enclosed])
    return np.maximum(own_ns, 0)


def _steps_in(trace: Trace, state: StepState) -> I4:
    return np.unique(trace.steps.step[trace.steps.state == state])


def _delay_share(trace: Trace, state: StepState) -> float:
    """0 where it is unknown."""
    steps = trace.steps
    rows = np.flatnonzero((steps.state == state) & (steps.delay_ns >= 0))
    step_ns = int((steps.end_ns[rows] - steps.start_ns[rows]).sum())
    return min(1.0, int(steps.delay_ns[rows].sum()) / step_ns) if step_ns > 0 else 0.0


def _phases(trace: Trace, timed: I4) -> Parts:
    """A gap between two events of one phase belongs to the phase. Ranges around whole steps, such
    as those of torch's profiler, have none: what is in them counts."""
    events, steps = trace.events, trace.steps
    is_main = trace.streams.kind[events.stream] == StreamKind.MAIN_THREAD
    chosen = is_main & _are_outermost_with_phase(trace) & np.isin(events.step, timed)
    rows = np.flatnonzero(chosen)
    rows = rows[np.lexsort((events.start_ns[rows], events.step[rows], events.rank[rows]))]
    if not len(rows):
        return {}
    key = (events.rank[rows].astype(np.int64) << 32) + events.step[rows]
    step_key = (steps.rank.astype(np.int64) << 32) + steps.step
    place = np.minimum(np.searchsorted(step_key, key), len(step_key) - 1)
    is_known = step_key[place] == key
    rows, key, place = rows[is_known], key[is_known], place[is_known]
    if not len(rows):
        return {}
    phase = events.phase[rows].astype(np.int64)
    start_ns, end_ns = events.start_ns[rows], events.start_ns[rows] + events.dur_ns[rows]
    is_first = np.concatenate(([True], key[1:] != key[:-1]))
    is_last = np.concatenate((is_first[1:], [True]))
    before_ns = np.where(is_first, steps.start_ns[place], np.roll(end_ns, 1))
    before = np.where(is_first, _EDGE, np.roll(phase, 1))
    spans = [
        (rows, phase, phase, events.dur_ns[rows]),
        (rows, before, phase, start_ns - before_ns),
        (
            rows[is_last],
            phase[is_last],
            np.full(is_last.sum(), _EDGE),
            steps.end_ns[place[is_last]] - end_ns[is_last],
        ),
    ]
    event = np.concatenate([event for event, *_ in spans])
    return levels_of(
        timed,
        events.step[event],
        np.concatenate([first * (_EDGE + 1) + second for _, first, second, _ in spans]),
        np.concatenate([dur_ns for *_, dur_ns in spans]),
        events.rank[event],
        _phase_name,
    )


def _are_outermost_with_phase(trace: Trace) -> NDArray[np.bool_]:
    """Marks the outermost events, but those within a step range in place of the range."""
    is_range = np.array([text.startswith(PROFILER_STEP) for text in trace.strings], dtype=bool)
    events = trace.events
    is_around = is_range[events.name]
    found: NDArray[np.bool_] = ~is_around & (
        (events.parent == NONE) | (is_around[events.parent] & (events.parent != NONE))
    )
    return found


_EDGE = 1 + max(Phase)
"""Stands for the start and the end of a step, beside the phases."""


def _phase_name(group: int) -> str:
    first, second = divmod(group, _EDGE + 1)
    names = {phase.value: phase.label for phase in Phase} | {Phase.NONE: "other"}
    if first == second:
        return names[first]
    return f"between {names.get(first, 'start')} and {names.get(second, 'end')}"
