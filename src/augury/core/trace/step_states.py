"""When each step of a rank began, and how it was recorded: from what the rank's record says."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from augury.core.columns import I8, U1
from augury.core.enums import StepState

WARM_UP_STEPS = 3

RecordedSteps = tuple[int, int, StepState]
"""``first, last, state``: steps ``first + 1`` to ``last`` were recorded in that way."""


def step_starts(step_end_ns: Sequence[int], resumed: Iterable[tuple[int, int]]) -> I8:
    """The end of the step before, or the time at which the recorder let the job go on. The start
    of the first step is unknown: it is given no duration."""
    ends = np.array(step_end_ns, dtype=np.int64)
    starts = np.concatenate([ends[:1], ends[:-1]])
    for step, ns in resumed:
        if step < len(ends):
            starts[step] = min(max(ns, starts[step]), ends[step])
    return starts


def step_states(num_steps: int, windows: Iterable[RecordedSteps], resumed: Iterable[int]) -> U1:
    """A StepState for each step; ``resumed`` are the steps after which the recorder was at work."""
    state = np.full(num_steps + 2, StepState.PLAIN, dtype=np.uint8)
    for first, last, inside in windows:
        state[first + 1 : min(last, num_steps) + 1] = inside
        for step in (first + 1, last + 1):
            # A detailed step is not timed anyway, so opening its window disturbs nothing.
            if step <= num_steps and state[step] != StepState.DETAILED:
                state[step] = StepState.DISTURBED
    for step in resumed:
        if step + 1 <= num_steps and state[step + 1] != StepState.DETAILED:
            state[step + 1] = StepState.DISTURBED
    warm = max(1, min(WARM_UP_STEPS, num_steps // 4))
    state[: warm + 1] = StepState.DISTURBED
    return state[1 : num_steps + 1]
