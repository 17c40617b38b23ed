"""Messages about the recording's progress, on the terminal of rank 0."""

from __future__ import annotations

import os
import sys
from contextlib import suppress

from augury.capture.window_schedule import StepWindow

VARIABLE = "AUGURY_PROGRESS"
"""``1`` prints progress also where stderr is no terminal, ``0`` never."""


class ProgressLines:
    """Prints one line per event. It never raises: a message must not harm the training."""

    def __init__(self, rank: int) -> None:
        self._is_shown = rank == 0 and _is_wanted()

    def opening(self, window: StepWindow) -> None:
        detail = " in detail" if window.mode == "detail" else ""
        self._print(f"recording steps {window.first + 1}-{window.last}{detail}")

    def calibrating(self) -> None:
        self._print("timed windows complete, calibrating the network")

    def timing_modules(self, seconds: float) -> None:
        self._print(f"the job has ended, timing modules for at most {seconds:g} s")

    def planned_windows_complete(self, stride: int | None) -> None:
        """``stride`` is the distance of further windows; None if there are none."""
        further = "" if stride is None else f", next ones every {stride} steps"
        self._print(f"windows complete{further}")

    def _print(self, text: str) -> None:
        if self._is_shown:
            with suppress(Exception):
                print(f"augury: {text}", file=sys.stderr, flush=True)


def _is_wanted() -> bool:
    asked = os.environ.get(VARIABLE, "")
    if asked:
        return asked == "1"
    with suppress(Exception):
        return sys.stderr.isatty()
    return False
