"""Times in forward at which parameters are needed, from detailed steps.

Timed steps record a forward as one event. The starts of its modules are taken from detailed steps,
as shares of the whole forward.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from augury.core.columns import I8
from augury.core.enums import Phase, StepState, StreamKind
from augury.core.trace.trace import Trace

Needs = dict[str, float]
"""Share of a forward that passes before a parameter is needed, by name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Forward:
    """Forward of one rank's step: from its first operation to the backward whose gradients are
    communicated."""

    begin_ns: int
    end_ns: int
    start_ns: I8
    """Starts of all events within."""
    modules: dict[str, int]
    """First start of each module."""


def forward_needs(trace: Trace) -> Needs:
    """Returns the needs of a run; empty without detailed steps. A module without events begins with
    the module that contains it: its parameters may be used elsewhere, or it is compiled."""
    names = sorted({trace.strings[int(name)] for name in trace.gradients.name.tolist()})
    plain_ns = _typical_length_ns(trace)
    seen: dict[str, list[float]] = defaultdict(list)
    for forward in _forwards(trace, StepState.DETAILED):
        for name in names:
            seen[name].append(_share(forward, _first_use_ns(forward, name), plain_ns))
    return {name: float(np.median(shares)) for name, shares in seen.items()}


def _first_use_ns(forward: _Forward, name: str) -> int:
    owner = name.rpartition(".")[0]
    while owner:
        if owner in forward.modules:
            return forward.modules[owner]
        owner = owner.rpartition(".")[0]
    return forward.begin_ns


def _share(forward: _Forward, at_ns: int, plain_ns: int | None) -> float:
    """Returns the share of forward before a time. The profiler costs the same for each event, so
    the excess of a detailed forward over a plain one is removed in proportion to its events."""
    length_ns, num_events = forward.end_ns - forward.begin_ns, len(forward.start_ns)
    excess_ns = max(0, length_ns - plain_ns) if plain_ns else 0
    before = bisect_left(forward.start_ns, at_ns)
    passed_ns = at_ns - forward.begin_ns - excess_ns * before / max(1, num_events)
    return float(np.clip(passed_ns / max(1, length_ns - excess_ns), 0.0, 1.0))


def _typical_length_ns(trace: Trace) -> int | None:
    lengths = [forward.end_ns - forward.begin_ns for forward in _forwards(trace, StepState.TIMED)]
    return round(float(np.median(lengths))) if lengths else None


def _forwards(trace: Trace, state: StepState) -> list[_Forward]:
    steps = trace.steps
    found = [
        _forward(trace, int(steps.rank[row]), int(steps.start_ns[row]), int(steps.end_ns[row]))
        for row in np.flatnonzero(steps.state == state).tolist()
    ]
    return [forward for forward in found if forward is not None]


def _forward(trace: Trace, rank: int, start_ns: int, end_ns: int) -> _Forward | None:
    events, own = trace.events, trace.of_rank(rank)
    rows = np.arange(own.start, own.stop)
    is_main = trace.streams.kind[events.stream[rows]] == StreamKind.MAIN_THREAD
    inside = (events.start_ns[rows] >= start_ns) & (events.start_ns[rows] < end_ns)
    rows = rows[is_main & inside]
    rows = rows[np.argsort(events.start_ns[rows], kind="stable")]
    forward = rows[events.phase[rows] == Phase.FORWARD]
    backward = rows[events.phase[rows] == Phase.BACKWARD]
    if not len(forward) or not len(backward):
        return None
    begin_ns, until_ns = int(events.start_ns[forward[0]]), _last_backward_ns(trace, rows)
    if until_ns <= begin_ns:
        return None
    within = rows[(events.start_ns[rows] >= begin_ns) & (events.start_ns[rows] < until_ns)]
    modules: dict[str, int] = {}
    for row in forward.tolist():
        layer = trace.strings[int(events.layer[row])]
        while layer and layer not in modules:
            modules[layer] = int(events.start_ns[row])
            layer = layer.rpartition(".")[0]
    return _Forward(
        begin_ns=begin_ns, end_ns=until_ns, start_ns=events.start_ns[within], modules=modules
    )


def _last_backward_ns(trace: Trace, rows: I8) -> int:
    """Returns the start of the last backward: earlier ones belong to other micro-batches."""
    phases = trace.events.phase[rows].tolist()
    begins = [
        place
        for place, (before, phase) in enumerate(pairwise([Phase.NONE, *_known(phases)]))
        if phase == Phase.BACKWARD and before != Phase.BACKWARD
    ]
    return int(trace.events.start_ns[rows[begins[-1]]])


def _known(phases: list[int]) -> list[int]:
    """Replaces phases other than forward and backward by the phase before."""
    known, before = [], int(Phase.NONE)
    for phase in phases:
        before = phase if phase in (Phase.FORWARD, Phase.BACKWARD) else before
        known.append(before)
    return known
