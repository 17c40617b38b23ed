"""Forward and backward times of each layer of a recorded run.

Backward is timed in timed steps, where the profiler hardly interferes and nodes name their layers.
Operations of forward are visible only in detailed steps, where each event has profiling overhead;
the overhead is estimated from backward, which is recorded in both kinds of step.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np

from augury.core.enums import OpKind, Phase, StepState, StreamKind
from augury.core.errors import InputError
from augury.core.graph.graph import NONE
from augury.core.trace.trace import Trace
from augury.core.vocabulary.torch import MODULE_RANGE

_REMEDY = "record it anew with augury run, long enough for its detailed window"


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerTimes:
    """Medians over ranks and steps for one step of one rank; by layer, in the order of forward."""

    forward_ns: dict[str, float]
    backward_ns: dict[str, float]
    update_ns: float
    operations: dict[str, list[str]]
    """Names of the operations of each layer's forward."""


@dataclass(slots=True)
class _StepTimes:
    """Time and number of events of each layer in one step of one rank."""

    ns: Counter[str] = field(default_factory=Counter)
    num_events: Counter[str] = field(default_factory=Counter)


def layer_times(trace: Trace) -> LayerTimes:
    if (trace.streams.kind == StreamKind.DEVICE).any():
        raise InputError(
            "times of layers cannot be read from a run on devices that compute asynchronously",
            remedy="record one on CPUs, or give measured times in the model's JSON",
        )
    forward, order, operations = _forward(trace)
    detailed = _by_step(trace, StepState.DETAILED, Phase.BACKWARD)
    timed = _by_step(trace, StepState.TIMED, Phase.BACKWARD)
    if not forward or not detailed:
        raise InputError("the run has no steps that were recorded in detail", remedy=_REMEDY)
    event_ns = _event_overhead_ns(detailed, timed)
    backward = _medians(timed) if timed else _medians(detailed, event_ns)
    plain = _at_most(_medians(forward, event_ns), _timed_forward_ns(trace))
    return LayerTimes(
        forward_ns={name: plain[name] for name in order},
        backward_ns={name: backward.get(name, 0.0) for name in order},
        update_ns=_update_ns(trace),
        operations=operations,
    )


def _forward(trace: Trace) -> tuple[list[_StepTimes], list[str], dict[str, list[str]]]:
    """Operations directly inside modules; the time around them is hooks and Python."""
    events, strings = trace.events, trace.strings
    steps: list[_StepTimes] = []
    first_ns: dict[str, int] = {}
    operations: dict[str, list[str]] = defaultdict(list)
    for rows in _rows(trace, StepState.DETAILED):
        step, top = _StepTimes(), dict[int, str]()
        for row in rows:
            if events.phase[row] != Phase.FORWARD or events.layer[row] == NONE:
                continue
            if trace.name(row).startswith(MODULE_RANGE):
                continue
            layer = strings[int(events.layer[row])]
            around = int(events.parent[row])
            top[row] = top.get(around, layer)
            step.num_events[top[row]] += 1
            if around not in top:
                step.ns[layer] += int(events.dur_ns[row])
                operations[layer].append(trace.name(row))
                first_ns.setdefault(layer, int(events.start_ns[row]))
            else:
                operations[top[row]].append(trace.name(row))
        if step.ns:
            steps.append(step)
    return steps, sorted(first_ns, key=first_ns.__getitem__), operations


def _by_step(trace: Trace, state: StepState, phase: Phase) -> list[_StepTimes]:
    """Outermost events of layers; nested events belong to them."""
    events, steps = trace.events, []
    for rows in _rows(trace, state):
        step, top = _StepTimes(), dict[int, str]()
        for row in rows:
            if events.phase[row] != phase or events.kind[row] != OpKind.BACKWARD:
                continue
            around = int(events.parent[row])
            own = int(events.layer[row])
            if around in top:
                top[row] = top[around]
            elif own != NONE:
                top[row] = trace.strings[own]
                step.ns[top[row]] += int(events.dur_ns[row])
            else:
                continue
            step.num_events[top[row]] += 1
        if step.ns:
            steps.append(step)
    return steps


def _rows(trace: Trace, state: StepState) -> Iterator[list[int]]:
    """Yields the rows of the main thread's events, by rank and step."""
    events, steps = trace.events, trace.steps
    is_main = trace.streams.kind[events.stream] == StreamKind.MAIN_THREAD
    for at in np.flatnonzero(steps.state == state).tolist():
        own = trace.of_rank(int(steps.rank[at]))
        mine = is_main[own] & (events.step[own] == steps.step[at])
        yield (own.start + np.flatnonzero(mine)).tolist()


def _event_overhead_ns(detailed: list[_StepTimes], timed: list[_StepTimes]) -> float:
    """Profiling overhead per event: from the shortest detailed and the shortest timed backward of
    each layer (others may be disturbed by other programs), the median over layers."""
    each = []
    for name in {name for step in timed for name in step.ns}:
        (long_ns, many), (short_ns, few) = (
            min((step.ns[name], step.num_events[name]) for step in steps if name in step.ns)
            if any(name in step.ns for step in steps)
            else (0, 0)
            for steps in (detailed, timed)
        )
        if many > few:
            each.append((long_ns - short_ns) / (many - few))
    return max(0.0, float(np.median(each))) if each else 0.0


def _medians(steps: list[_StepTimes], event_ns: float = 0.0) -> dict[str, float]:
    """Medians without overhead; at most half of a layer's time is subtracted, because events may
    cost less than estimated."""
    return {
        name: float(
            np.median(
                [
                    max(step.ns[name] / 2, step.ns[name] - event_ns * (step.num_events[name] - 1))
                    for step in steps
                ]
            )
        )
        for name in {name for step in steps for name in step.ns}
    }


def _at_most(times: dict[str, float], whole_ns: float | None) -> dict[str, float]:
    """Scales times so that layers do not take longer than the forward that they make up."""
    total_ns = sum(times.values())
    if whole_ns is None or total_ns <= whole_ns:
        return times
    return {name: ns * whole_ns / total_ns for name, ns in times.items()}


def _timed_forward_ns(trace: Trace) -> float | None:
    """Time of forward as one event, where a wrapper such as DDP records it."""
    spent = [_outermost_ns(trace, rows, Phase.FORWARD) for rows in _rows(trace, StepState.TIMED)]
    return float(np.median(spent)) if spent and min(spent) > 0 else None


def _update_ns(trace: Trace) -> float:
    spent = [_outermost_ns(trace, rows, Phase.UPDATE) for rows in _rows(trace, StepState.TIMED)]
    return float(np.median(spent)) if spent else 0.0


def _outermost_ns(trace: Trace, rows: list[int], phase: Phase) -> int:
    events = trace.events
    return sum(
        int(events.dur_ns[row])
        for row in rows
        if events.phase[row] == phase and events.parent[row] == NONE
    )
