"""What each layer of a recorded run takes, in forward and backward, from its steps.

Backward is timed in steps that are hardly disturbed: there its nodes bear their layers. Forward's
operations show only in detailed steps, where each event costs the profiler's own time as well: how
much is learnt from backward, which was seen both ways.
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
from augury.ingest.vocabulary.torch import MODULE_RANGE

_REMEDY = "record it anew with augury run, long enough for its detailed window"


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerTimes:
    """Of one step of one rank, medians over ranks and steps; by layer, in the order of forward."""

    forward_ns: dict[str, float]
    backward_ns: dict[str, float]
    update_ns: float
    operations: dict[str, list[str]]
    """Names of what ran in each layer's forward."""


@dataclass(slots=True)
class _StepTimes:
    """Of one rank: what was spent on each layer, and in how many events."""

    ns: Counter[str] = field(default_factory=Counter)
    num_events: Counter[str] = field(default_factory=Counter)


def layer_times(trace: Trace) -> LayerTimes:
    if (trace.streams.kind == StreamKind.DEVICE).any():
        raise InputError(
            "times of layers are not known of a run on devices that compute beside their host",
            remedy="record one on CPUs, or give measured times in the model's JSON",
        )
    forward, order, operations = _forward(trace)
    detailed = _by_step(trace, StepState.DETAILED, Phase.BACKWARD)
    timed = _by_step(trace, StepState.TIMED, Phase.BACKWARD)
    if not forward or not detailed:
        raise InputError("the run has no steps that were recorded in detail", remedy=_REMEDY)
    event_ns = _cost_of_an_event(detailed, timed)
    backward = _medians(timed) if timed else _medians(detailed, event_ns)
    plain = _at_most(_medians(forward, event_ns), _timed_forward_ns(trace))
    return LayerTimes(
        forward_ns={name: plain[name] for name in order},
        backward_ns={name: backward.get(name, 0.0) for name in order},
        update_ns=_update_ns(trace),
        operations=operations,
    )


def _forward(trace: Trace) -> tuple[list[_StepTimes], list[str], dict[str, list[str]]]:
    """The operations directly inside modules: what is around them is hooks and Python."""
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
    """Outermost events of layers; what is inside is theirs."""
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
    """Of the main thread's events, by rank and step."""
    events, steps = trace.events, trace.steps
    is_main = trace.streams.kind[events.stream] == StreamKind.MAIN_THREAD
    for at in np.flatnonzero(steps.state == state).tolist():
        own = trace.of_rank(int(steps.rank[at]))
        mine = is_main[own] & (events.step[own] == steps.step[at])
        yield (own.start + np.flatnonzero(mine)).tolist()


def _cost_of_an_event(detailed: list[_StepTimes], timed: list[_StepTimes]) -> float:
    """What seeing one more event takes, from the same backward, seen in detail and hardly: the
    shortest of each, for other programs lengthen some, and the median layer."""
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
    """Events may cost less here than there: no layer is left with less than half."""
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
    """Layers cannot take longer than the forward that they make up."""
    total_ns = sum(times.values())
    if whole_ns is None or total_ns <= whole_ns:
        return times
    return {name: ns * whole_ns / total_ns for name, ns in times.items()}


def _timed_forward_ns(trace: Trace) -> float | None:
    """Seen as one event, where a wrapper such as DDP says so."""
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
