"""Typical times of one run, for comparisons with other runs.

These are the times of whole steps, of steps without the waits for a core, and of compute by kind of
operation.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from augury.core.enums import OpKind, StepState, StreamKind
from augury.core.graph.graph import NONE
from augury.core.measured_step import StepLevel, counted_rows, over_ranks
from augury.core.trace.trace import Trace
from augury.diagnose.machine_speed import TimedSteps
from augury.diagnose.run_parts import levels_of

COMPUTE_KINDS = (OpKind.DATA, OpKind.FORWARD, OpKind.BACKWARD, OpKind.UPDATE)
"""Kinds of operations that a change of communication does not affect."""

_MOST_DELAY = 0.95
"""Largest share of a step that counts as waiting for a core."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunLevels:
    step: TimedSteps
    undelayed: TimedSteps | None
    """Steps without the time for which a training thread was runnable and had no core; None where
    that time is unknown for some step."""
    compute: dict[str, StepLevel]
    """Time per step on the main thread, by kind of operation."""


def run_levels(trace: Trace) -> RunLevels:
    steps = trace.steps
    rows = np.flatnonzero(counted_rows(trace))
    own_ns = steps.end_ns[rows] - steps.start_ns[rows]
    number, dur_ns = over_ranks(steps.rank[rows], steps.step[rows], own_ns)
    undelayed = None
    if len(rows) and (steps.delay_ns[rows] >= 0).all():
        # Ranks wait for each other, so the longest delay of a rank delays all of them.
        longest = np.zeros(int(steps.step.max()) + 1, dtype=np.float64)
        np.maximum.at(longest, steps.step[rows], steps.delay_ns[rows])
        delay_ns = np.minimum(longest[number], _MOST_DELAY * dur_ns)
        undelayed = TimedSteps(number=number, dur_ns=dur_ns - delay_ns)
    return RunLevels(
        step=TimedSteps(number=number, dur_ns=dur_ns),
        undelayed=undelayed,
        compute=_compute_levels(trace),
    )


def _compute_levels(trace: Trace) -> dict[str, StepLevel]:
    """Sums over the outermost events of each kind, in the steps inside of timing windows."""
    events, steps = trace.events, trace.steps
    timed = np.unique(steps.step[steps.state == StepState.TIMED])
    is_main = trace.streams.kind[events.stream] == StreamKind.MAIN_THREAD
    is_compute = np.isin(events.kind, COMPUTE_KINDS)
    rows = np.flatnonzero(is_main & is_compute & (events.parent == NONE))
    found = levels_of(
        timed,
        events.step[rows],
        events.kind[rows],
        events.dur_ns[rows],
        events.rank[rows],
        lambda kind: OpKind(kind).label,
    )
    return {kind: part.level for kind, part in found.items() if part.is_in_every_step}
