"""The schedule of recording windows: as given, or spread over a job of unknown length.

Spread windows stay evenly apart whatever the job's length: when there are too many, every second
one is dropped and the stride doubles. All positions are counted in steps, so that all ranks open
the same windows without communicating.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from augury.core.plan.plan_status import TrainingMode
from augury.core.trace.rank_record import RecordedWindow

Mode = Literal["light", "detail"]

EARLY_WINDOWS: tuple[tuple[int, int, Mode], ...] = ((1, 4, "light"), (5, 7, "detail"))
"""Windows for jobs that end before the regular ones; their traces are dropped for those."""
FIRST_WINDOWS = ((10, 15), (17, 22))
"""Timed windows that every longer job has: after a warm-up, before the detailed window."""
NUM_DETAIL_STEPS = 3
NUM_SPREAD_STEPS = 5
MIN_STRIDE = 15
MAX_WINDOWS = 12
"""Most light windows that are kept; half of them are dropped when there is one more."""
MAX_SHARE = 0.02
"""Share of the job's time that spread windows may take before the stride first doubles."""
LIGHT_COST = 0.03
"""Overhead of a light window, as a share of the step."""


@dataclass(slots=True)
class StepWindow:
    """One planned window: steps ``first + 1`` to ``last``."""

    first: int
    last: int
    mode: Mode
    trace: str | None = None
    dropped: bool = False
    """Whether its trace was removed to make room for later windows."""
    training_mode: TrainingMode | None = None
    """How gradients were exchanged; None if the job has no plan."""
    is_early: bool = False

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
    """The detailed window follows the timed windows that are planned from the start: it slows its
    steps, and a short job may end before it. Spread windows come after the detailed one.

    There is a plain step between any two windows. Steps end within the optimizer's own profiler
    range, and a range that begins under one profiler and ends under the next one makes torch
    write into freed memory.
    """

    def __init__(self, windows: Sequence[tuple[int, int]] = ()) -> None:
        """``windows`` are those of the user; if empty, windows are spread over the job."""
        self.is_spread = not windows
        self.windows = [
            StepWindow(*window, is_early=True) for window in EARLY_WINDOWS if self.is_spread
        ]
        self.windows += [
            StepWindow(first, last, "light") for first, last in (windows or FIRST_WINDOWS)
        ]
        first = self.windows[-1].last + 1
        self.windows.append(StepWindow(first, first + NUM_DETAIL_STEPS, "detail"))
        self.last_light = self.windows[-2]
        self.detail = self.windows[-1]
        self.stride: int | None = None
        """Steps between the starts of spread windows; None before these are planned."""
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

    def leave_out_early(self) -> None:
        """Leaves out the early windows, before the first of them opens."""
        self.windows = [one for one in self.windows if not one.is_early]
        self._edges = {at for one in self.windows for at in (one.first, one.last)}

    def postpone(self, step: int) -> None:
        """Moves a window that would open at the end of this step, and all later ones, by one
        step."""
        waiting = [window for window in self.windows if window.first >= step]
        if waiting and waiting[0].first == step:
            for window in waiting:
                window.first += 1
                window.last += 1
            self._edges = {at for one in self.windows for at in (one.first, one.last)}

    def spread(self, stride: int) -> None:
        """Plans windows that begin ``stride`` steps apart, after the detailed window."""
        self.stride = max(MIN_STRIDE, stride)
        self._plan(self.detail.first + self.stride)

    def after(self, window: StepWindow) -> list[StepWindow]:
        """Plans the window after a spread one. Returns the windows that are dropped now, chosen by
        their number alone, so that all ranks drop the same ones: early ones after a regular window
        of their mode, and every second one if there are too many."""
        early = [
            one
            for one in self.windows
            if one.is_early and one.mode == window.mode and not (window.is_early or one.dropped)
        ]
        for one in early:
            one.dropped = True
        return early + self._after_spread(window)

    def _after_spread(self, window: StepWindow) -> list[StepWindow]:
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
    """Returns the stride at which spread windows take at most ``MAX_SHARE`` of the time;
    ``cost_ns`` is the time to open and close one."""
    cost = cost_ns / max(1, step_ns) + LIGHT_COST * NUM_SPREAD_STEPS
    return max(MIN_STRIDE, math.ceil(cost / MAX_SHARE))
