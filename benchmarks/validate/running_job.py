"""The processes of a running job, with a limit of time, and the windows that its recorder opens."""

from __future__ import annotations

import re
import subprocess
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.validate.job import JobError

TIMEOUT_S = 300
WINDOWS_DONE = "augury: windows complete"
"""Message of the recorder after calibration and the detailed window, which need the recorded
rate."""
_OPENS = re.compile(r"^augury: recording steps (\d+)-\d+$", re.MULTILINE)


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
