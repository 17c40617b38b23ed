"""Alternates the rate of the links under a job that records itself, and finds the steps of each
rate afterwards.

The program is not changed and does not know of it. The recorder's messages tell when its windows
open: the rate is halved only between them.
"""

from __future__ import annotations

import re
import subprocess
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.testbed.bed import Bed
from benchmarks.validate.job import JobError, bed_as_recorded, bed_changed
from benchmarks.validate.settings import Setting
from benchmarks.validate.trainers_settings import HALVED

RECORDED_S, HALVED_S, LEAST_S = 2.0, 2.0, 0.8
"""Longest time at each rate between two windows, and the least time that is worth a change."""
WINDOW_STEPS = 5
MARGIN_STEPS = 4
"""Steps at the recorded rate around a window, besides its own."""
SETTLING_STEPS = 2
"""Steps after each change of the rate that are not used."""
TIMEOUT_S = 300
WINDOWS_DONE = "augury: windows complete"
"""Message of the recorder after calibration and the detailed window, which need the recorded
rate."""
_OPENS = re.compile(r"^augury: recording steps (\d+)-\d+$", re.MULTILINE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Stretch:
    """A time in which the links had one rate."""

    is_halved: bool
    start_ns: int
    end_ns: int

    def steps(self, ends_ns: Sequence[int]) -> range:
        """Returns the steps of a rank that lie in this stretch, without the first ones after a
        change of the rate."""
        steps = [
            step
            for step in range(2, len(ends_ns) + 1)
            if self.start_ns <= ends_ns[step - 2] and ends_ns[step - 1] <= self.end_ns
        ]
        if not self.start_ns:
            return range(1, steps[-1] + 1) if steps else range(0)
        steps = steps[SETTLING_STEPS:]
        return range(steps[0], steps[-1] + 1) if steps else range(0)


@dataclass(slots=True)
class RunningJob:
    """The processes of a job, one launcher per host, with a limit of time."""

    launchers: Sequence[subprocess.Popen[bytes]]
    logs: Sequence[Path]
    _deadline_s: float = field(default_factory=lambda: time.monotonic() + TIMEOUT_S)
    _num_windows: int = 0
    _last_window: tuple[int, float] = (0, 0.0)
    """First step of the last window, and when it opened."""
    _step_s: float = float("inf")

    @property
    def is_running(self) -> bool:
        codes = [launcher.poll() for launcher in self.launchers]
        if any(codes) or time.monotonic() > self._deadline_s:
            failed = next((host for host, code in enumerate(codes) if code), 0)
            log = self.logs[failed].read_text(errors="replace")
            raise JobError(f"host {failed} ended with {codes[failed]}: {log[-800:]}")
        return any(code is None for code in codes)

    def wait(self, seconds: float = float("inf")) -> None:
        """Waits for so long, or until the job ends."""
        until_s = time.monotonic() + seconds
        while self.is_running and time.monotonic() < until_s:
            time.sleep(0.01)

    def next_gap(self) -> tuple[int, float] | None:
        """Waits until the next window opens. Returns the least number of steps until the one after
        it, and the time of a step at the recorded rate; None if the job ends before."""
        while self.is_running:
            log = self.logs[0].read_text(errors="replace")
            firsts = [int(first) for first in _OPENS.findall(log)]
            if len(firsts) > self._num_windows and WINDOWS_DONE in log:
                (before, then_s), now_s = self._last_window, time.monotonic()
                is_next = len(firsts) == self._num_windows + 1
                self._num_windows, self._last_window = len(firsts), (firsts[-1], now_s)
                if is_next and before:
                    num_steps = firsts[-1] - before
                    # Gaps at half the rate take longer.
                    self._step_s = min(self._step_s, (now_s - then_s) / num_steps)
                    return num_steps, self._step_s
            time.sleep(0.01)
        return None


def alternate(bed: Bed, setting: Setting, job: RunningJob) -> Iterator[Stretch]:
    """Halves the rate after each window, and restores it before the next one can open: at half the
    rate, fewer steps pass in the same time."""
    start_ns = 0
    while (gap := job.next_gap()) is not None:
        num_steps, step_s = gap
        free_s = (num_steps - WINDOW_STEPS - MARGIN_STEPS) * step_s
        if free_s < LEAST_S:
            continue
        job.wait((WINDOW_STEPS + MARGIN_STEPS / 2) * step_s)
        until_s = time.monotonic() + free_s
        while job.is_running and (left_s := until_s - time.monotonic()) >= LEAST_S:
            yield Stretch(is_halved=False, start_ns=start_ns, end_ns=time.time_ns())
            bed_changed(bed, setting, HALVED)
            start_ns = time.time_ns()
            job.wait(min(left_s, HALVED_S))
            yield Stretch(is_halved=True, start_ns=start_ns, end_ns=time.time_ns())
            bed_as_recorded(bed, setting)
            start_ns = time.time_ns()
            job.wait(RECORDED_S)
    yield Stretch(is_halved=False, start_ns=start_ns, end_ns=time.time_ns())
