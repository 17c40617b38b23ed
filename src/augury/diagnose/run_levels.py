"""Typical times of one run, for comparisons with other runs.

These are the times of whole steps, of steps without the waits for a core, and of compute by kind of
operation.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from augury.core.enums import OpKind, StepState, StreamKind
from augury.core.graph.graph import NONE
from augury.core.measured_step import StepLevel, counted_rows, level_of_windows, over_ranks
from augury.core.trace.trace import Trace
from augury.diagnose.machine_speed import TimedSteps

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
        compute=dict(_compute_levels(trace)),
    )


def _compute_levels(trace: Trace) -> list[tuple[str, StepLevel]]:
    """Sums over the outermost events of each kind, in the steps inside of timing windows."""
    events, steps = trace.events, trace.steps
    timed = np.unique(steps.step[steps.state == StepState.TIMED])
    is_main = trace.streams.kind[events.stream] == StreamKind.MAIN_THREAD
    outermost = is_main & (events.parent == NONE) & np.isin(events.step, timed)
    found = []
    for kind in COMPUTE_KINDS:
        rows = np.flatnonzero(outermost & (events.kind == kind))
        number, sums = _per_step(events.step[rows], events.dur_ns[rows])
        if len(timed) and len(number) == len(timed) and sums.all():
            ranks = max(1, len(np.unique(events.rank[rows])))
            found.append((kind.label, level_of_windows(number, sums / ranks)))
    return found


def _per_step(
    step: NDArray[np.int32], dur_ns: NDArray[np.int64]
) -> tuple[NDArray[np.int32], NDArray[np.float64]]:
    number, place = np.unique(step, return_inverse=True)
    sums = np.zeros(len(number), dtype=np.float64)
    np.add.at(sums, place, dur_ns)
    return number, sums
