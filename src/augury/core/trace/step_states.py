"""Start and recording state of each step of a rank, from the rank's record."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from augury.core.columns import I8, U1
from augury.core.enums import StepState

WARM_UP_STEPS = 3

RecordedSteps = tuple[int, int, StepState]
"""``first, last, state``: steps ``first + 1`` to ``last`` have that state."""


def step_starts(step_end_ns: Sequence[int], resumed: Iterable[tuple[int, int]]) -> I8:
    """Returns the end of the step before, or the time at which the recorder resumed the job. The
    start of the first step is unknown: its duration is 0."""
    ends = np.array(step_end_ns, dtype=np.int64)
    starts = np.concatenate([ends[:1], ends[:-1]])
    for step, ns in resumed:
        if step < len(ends):
            starts[step] = min(max(ns, starts[step]), ends[step])
    return starts


def step_states(num_steps: int, windows: Iterable[RecordedSteps], resumed: Iterable[int]) -> U1:
    """Returns a StepState for each step; ``resumed`` are the steps before the recorder's work."""
    state = np.full(num_steps + 2, StepState.PLAIN, dtype=np.uint8)
    for first, last, inside in windows:
        state[first + 1 : min(last, num_steps) + 1] = inside
        for step in (first + 1, last + 1):
            # The duration of a detailed step does not count: its window may open in it.
            if step <= num_steps and state[step] != StepState.DETAILED:
                state[step] = StepState.DISTURBED
    for step in resumed:
        if step + 1 <= num_steps and state[step + 1] != StepState.DETAILED:
            state[step + 1] = StepState.DISTURBED
    warm = max(1, min(WARM_UP_STEPS, num_steps // 4))
    state[: warm + 1] = StepState.DISTURBED
    return state[1 : num_steps + 1]
