"""Measures steps of one rank in watch windows: a few steps at a time, without a profiler."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from enum import Enum
from statistics import median

from augury.capture.framework import FrameworkPhases, PhaseTimes
from augury.capture.step_log import CpuClock
from augury.core.results.watch import RankTimes

NUM_STEPS = 8
"""Measured steps of a window. The step before them, in which hooks are set, is not measured."""
_MAX_PROBES = 100


class WatchState(Enum):
    IDLE = "between two windows"
    SUSPENDED = "a window is due, but steps are profiled or disturbed"
    STARTING = "hooks are set, and the step is not measured"
    MEASURING = "steps are measured"


@dataclass(frozen=True, slots=True, kw_only=True)
class WatchWindow:
    """A complete window of this rank."""

    number: int
    first_step: int
    last_step: int
    times: RankTimes


@dataclass(frozen=True, slots=True)
class _Measured:
    step_ns: int
    delay_ns: int
    phases: PhaseTimes


class WatchedSteps:
    """Counts steps by itself, because the recorder's log of steps is limited. The positions of
    windows depend on the number of the step alone, so they are the same on all ranks."""

    def __init__(
        self, distance: int, phases: FrameworkPhases, speed: Callable[[], Sequence[tuple[int, int]]]
    ) -> None:
        """``speed`` returns the probes of the machine's speed: step and duration."""
        self._distance = distance
        self._phases = phases
        self._speed = speed
        self._clock = CpuClock()
        self._state = WatchState.IDLE
        self._step = 0
        self._number = 0
        self._first_step = 0
        self._measured: list[_Measured] = []
        self._began_ns = 0
        self._began_delay_ns = 0

    def end_step(self, rank: int, *, is_next_plain: bool) -> WatchWindow | None:
        """Called at the end of each step; ``is_next_plain`` says whether the next step is neither
        profiled nor disturbed by the recorder. Returns the window that is complete now."""
        self._step += 1
        complete = None
        if self._state is WatchState.IDLE:
            if self._step % self._distance:
                return None
            self._number = self._step // self._distance
            self._first_step = 0
            self._state = WatchState.SUSPENDED
        elif self._state is WatchState.MEASURING:
            self._take_step()
            if len(self._measured) == NUM_STEPS:
                complete = self._complete(rank)
        elif self._state is WatchState.STARTING:
            self._phases.end_step()
            self._state = WatchState.MEASURING
            self._first_step = self._first_step or self._step + 1
        if self._state is not WatchState.IDLE:
            self._go_on(is_next_plain=is_next_plain)
        return complete

    def stop(self) -> None:
        """Ends a window that is open, without a result."""
        if self._state in (WatchState.STARTING, WatchState.MEASURING):
            self._phases.stop()
        self._state = WatchState.IDLE
        self._measured.clear()

    def _go_on(self, *, is_next_plain: bool) -> None:
        if not is_next_plain:
            if self._state is not WatchState.SUSPENDED:
                self._phases.stop()
            self._state = WatchState.SUSPENDED
        elif self._state is WatchState.SUSPENDED:
            self._phases.start()
            self._state = WatchState.STARTING
        self._began_delay_ns = self._clock.delay_ns()
        self._began_ns = time.monotonic_ns()

    def _take_step(self) -> None:
        step_ns = time.monotonic_ns() - self._began_ns
        delay_ns = self._clock.delay_ns() - self._began_delay_ns
        self._measured.append(_Measured(step_ns, delay_ns, self._phases.end_step()))

    def _complete(self, rank: int) -> WatchWindow:
        self._phases.stop()
        self._state = WatchState.IDLE
        window = WatchWindow(
            number=self._number,
            first_step=self._first_step,
            last_step=self._step,
            times=self._times(rank),
        )
        self._measured.clear()
        return window

    def _times(self, rank: int) -> RankTimes:
        steps = [one.step_ns for one in self._measured]
        step_ns = round(median(steps))
        input_ns = _median(one.phases.input_ns for one in self._measured)
        forward_ns = _median(one.phases.forward_ns for one in self._measured)
        communication_ns = _median(one.phases.communication_ns for one in self._measured)
        update_ns = _median(one.phases.update_ns for one in self._measured)
        known_ns = input_ns + forward_ns + communication_ns + update_ns
        return RankTimes(
            rank=rank,
            step_ns=step_ns,
            spread_ns=_median(abs(one - step_ns) for one in steps),
            input_ns=input_ns,
            forward_ns=forward_ns,
            backward_ns=max(0, step_ns - known_ns),
            communication_ns=communication_ns,
            update_ns=update_ns,
            delay_ns=_median(max(0, one.delay_ns) for one in self._measured)
            if self._began_delay_ns >= 0
            else None,
            copy_ns=self._copy_ns(),
        )

    def _copy_ns(self) -> int | None:
        """Median of the probes since the former window."""
        since = self._step - self._distance
        probes = [dur_ns for step, dur_ns in self._speed()[-_MAX_PROBES:] if step >= since]
        return _median(probes) if probes else None


def _median(values: Iterable[int]) -> int:
    return round(median(values))
