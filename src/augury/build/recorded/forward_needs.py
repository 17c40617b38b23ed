"""Times in forward at which parameters are first needed, measured in detailed steps.

Timed steps record forward as a single event. The start of each module is therefore taken from
detailed steps, as a share of the duration of forward.
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
"""Share of forward that has passed when a parameter is first needed, by parameter name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Forward:
    """The forward of one step on one rank. It lasts from its first operation until the start of the
    last backward, after which gradients are communicated."""

    begin_ns: int
    end_ns: int
    event_starts_ns: I8
    """Starts of the main thread's events during forward, in ascending order."""
    module_starts_ns: dict[str, int]
    """First start of each module, by module name."""

    @property
    def dur_ns(self) -> int:
        return self.end_ns - self.begin_ns


def forward_needs(trace: Trace) -> Needs:
    """Returns the median needs over the detailed steps of all ranks; empty without detailed steps.
    A module may have no events of its own, because it is compiled or because another module uses
    its parameters. Its parameters are then needed when the module that contains it starts."""
    names = sorted({trace.strings[int(name)] for name in trace.gradients.name.tolist()})
    timed_dur_ns = _median_timed_dur_ns(trace)
    shares: dict[str, list[float]] = defaultdict(list)
    for forward in _forwards(trace, StepState.DETAILED):
        for name in names:
            at_ns = _first_use_ns(forward, name)
            shares[name].append(_share_before(forward, at_ns, timed_dur_ns))
    return {name: float(np.median(found)) for name, found in shares.items()}


def _first_use_ns(forward: _Forward, parameter: str) -> int:
    """Returns the start of the innermost module with events that contains the parameter."""
    module = parameter.rpartition(".")[0]
    while module:
        if module in forward.module_starts_ns:
            return forward.module_starts_ns[module]
        module = module.rpartition(".")[0]
    return forward.begin_ns


def _share_before(forward: _Forward, at_ns: int, timed_dur_ns: int | None) -> float:
    """Returns the share of forward that has passed at ``at_ns``, without the overhead of the
    profiler. The overhead is the excess over the forward of timed steps. Each event costs the
    profiler about the same, so the overhead before ``at_ns`` is proportional to the events."""
    starts_ns = forward.event_starts_ns
    overhead_ns = max(0, forward.dur_ns - timed_dur_ns) if timed_dur_ns else 0
    num_before = bisect_left(starts_ns, at_ns)
    passed_ns = at_ns - forward.begin_ns - overhead_ns * num_before / max(1, len(starts_ns))
    return float(np.clip(passed_ns / max(1, forward.dur_ns - overhead_ns), 0.0, 1.0))


def _median_timed_dur_ns(trace: Trace) -> int | None:
    """Returns the median duration of forward in timed steps; None without timed steps."""
    durations_ns = [forward.dur_ns for forward in _forwards(trace, StepState.TIMED)]
    return round(float(np.median(durations_ns))) if durations_ns else None


def _forwards(trace: Trace, state: StepState) -> list[_Forward]:
    """Returns the forwards of all steps in this recording state, on all ranks."""
    steps = trace.steps
    found = [
        _forward(trace, int(steps.rank[row]), int(steps.start_ns[row]), int(steps.end_ns[row]))
        for row in np.flatnonzero(steps.state == state).tolist()
    ]
    return [forward for forward in found if forward is not None]


def _forward(trace: Trace, rank: int, start_ns: int, end_ns: int) -> _Forward | None:
    """Returns the forward of the step between two times; None if the step has no forward before a
    backward."""
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
    begin_ns = int(events.start_ns[forward[0]])
    backward_ns = _last_backward_start_ns(trace, rows)
    if backward_ns <= begin_ns:
        return None
    within = rows[(events.start_ns[rows] >= begin_ns) & (events.start_ns[rows] < backward_ns)]
    module_starts_ns: dict[str, int] = {}
    for row in forward.tolist():
        module = trace.strings[int(events.layer[row])]
        while module and module not in module_starts_ns:
            module_starts_ns[module] = int(events.start_ns[row])
            module = module.rpartition(".")[0]
    return _Forward(
        begin_ns=begin_ns,
        end_ns=backward_ns,
        event_starts_ns=events.start_ns[within],
        module_starts_ns=module_starts_ns,
    )


def _last_backward_start_ns(trace: Trace, rows: I8) -> int:
    """Returns the start of the last backward; earlier ones belong to other micro-batches."""
    phases = _forward_or_backward(trace.events.phase[rows].tolist())
    begins = [
        index
        for index, (before, phase) in enumerate(pairwise([Phase.NONE, *phases]))
        if phase == Phase.BACKWARD and before != Phase.BACKWARD
    ]
    return int(trace.events.start_ns[rows[begins[-1]]])


def _forward_or_backward(phases: list[int]) -> list[int]:
    """Replaces each phase other than forward and backward by the last of these two before it."""
    replaced, last = [], int(Phase.NONE)
    for phase in phases:
        last = phase if phase in (Phase.FORWARD, Phase.BACKWARD) else last
        replaced.append(last)
    return replaced
