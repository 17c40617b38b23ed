"""Which steps are recorded: windows as given, or windows spread over a job of unknown length.

Spread windows are kept evenly apart whatever the job's length: when there are too many of them,
every second one is dropped and the stride doubles. All positions are counted in steps, so that
all ranks open the same windows without talking to each other.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from augury.core.plan.plan_status import TrainingMode
from augury.core.trace.rank_record import RecordedWindow

Mode = Literal["light", "detail"]

FIRST_WINDOWS = ((10, 15), (17, 22))
"""Recorded in every job that is long enough: after a warm-up, and before the detail."""
NUM_DETAIL_STEPS = 3
NUM_SPREAD_STEPS = 5
MIN_STRIDE = 15
MAX_WINDOWS = 12
"""Light windows that are kept; never fewer than half of that once there were so many."""
MAX_SHARE = 0.02
"""Of the job's time that spread windows may take until the stride first doubles."""
LIGHT_COST = 0.03
"""Of a step, while it is recorded lightly."""


@dataclass(slots=True)
class StepWindow:
    """Steps ``first + 1`` to ``last`` are inside."""

    first: int
    last: int
    mode: Mode
    trace: str | None = None
    dropped: bool = False
    """It was recorded, and its trace removed to make room for later windows."""
    training_mode: TrainingMode | None = None
    """How gradients were exchanged; None if the job has no plan."""

    def recorded(self) -> RecordedWindow:
        return RecordedWindow(
            first=self.first,
            last=self.last,
            mode=self.mode,
            trace=self.trace,
            dropped=self.dropped,
            training_mode=self.training_mode,
        )


class WindowSchedule:
    """The detail comes after the windows that are planned from the start: it slows its steps, and
    may be missed if the job is short. Spread windows come after the detail.

    There is a plain step between any two windows. Steps end within the optimizer's own profiler
    range, and a range that begins under one profiler and ends under the next one makes torch
    write into memory that is freed.
    """

    def __init__(self, windows: Sequence[tuple[int, int]] = ()) -> None:
        """``windows`` as given by the user; spread ones if empty."""
        self.is_spread = not windows
        self.windows = [
            StepWindow(first, last, "light") for first, last in (windows or FIRST_WINDOWS)
        ]
        first = self.windows[-1].last + 1
        self.windows.append(StepWindow(first, first + NUM_DETAIL_STEPS, "detail"))
        self.last_light = self.windows[-2]
        self.detail = self.windows[-1]
        self.stride: int | None = None
        self._edges = {step for one in self.windows for step in (one.first, one.last)}

    def is_edge(self, step: int) -> bool:
        """Whether a window opens or closes at the end of this step."""
        return step in self._edges

    def covers(self, step: int) -> bool:
        """Whether the step after this one lies in a window."""
        return any(window.first <= step < window.last for window in self.windows)

    def opening_at(self, step: int) -> StepWindow | None:
        return next((window for window in self.windows if window.first == step), None)

    def closing_at(self, step: int) -> StepWindow | None:
        return next((window for window in self.windows if window.last == step), None)

    def postpone(self, step: int) -> None:
        """A window that would open at the end of this step opens one step later, and so do all
        that come after it."""
        waiting = [window for window in self.windows if window.first >= step]
        if waiting and waiting[0].first == step:
            for window in waiting:
                window.first += 1
                window.last += 1
            self._edges = {at for one in self.windows for at in (one.first, one.last)}

    def spread(self, stride: int) -> None:
        """Plan windows that begin ``stride`` steps apart, the first one after the detail."""
        self.stride = max(MIN_STRIDE, stride)
        self._plan(self.detail.first + self.stride)

    def after(self, window: StepWindow) -> list[StepWindow]:
        """Plan the window after this spread one. Returns the windows that are dropped for it:
        by their number alone, so that all ranks drop the same."""
        if self.stride is None or window is not self.windows[-1]:
            return []
        kept = [one for one in self.windows if one.mode == "light" and not one.dropped]
        dropped = kept[1::2] if len(kept) >= MAX_WINDOWS else []
        for one in dropped:
            one.dropped = True
        if dropped:
            self.stride *= 2
        last = next(one for one in reversed(self.windows) if not one.dropped)
        self._plan(last.first + self.stride)
        return dropped

    def recorded(self, num_steps: int) -> list[RecordedWindow]:
        """Returns the windows for the rank's record, without spread windows that a job of
        ``num_steps`` steps has not reached."""
        return [
            window.recorded()
            for window in self.windows
            if window.first < num_steps or window.first <= self.detail.first
        ]

    def _plan(self, first: int) -> None:
        self.windows.append(StepWindow(first, first + NUM_SPREAD_STEPS, "light"))
        self._edges |= {first, first + NUM_SPREAD_STEPS}


def stride_for(cost_ns: int, step_ns: int) -> int:
    """Steps between the starts of spread windows that take at most ``MAX_SHARE`` of the time:
    ``cost_ns`` is what opening and closing one takes."""
    cost = cost_ns / max(1, step_ns) + LIGHT_COST * NUM_SPREAD_STEPS
    return max(MIN_STRIDE, math.ceil(cost / MAX_SHARE))
