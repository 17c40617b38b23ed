"""What the launcher tells the processes it starts: one variable of the environment."""

from __future__ import annotations

import json
import os
from dataclasses import asdict, dataclass
from typing import ClassVar

from augury.core.errors import UsageError

AUTO = "auto"
"""Windows spread over the whole job."""
DEFAULT_WIRE_EVENTS = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """Steps are counted from 1; a window is from the end of its first to the end of its last."""

    VARIABLE: ClassVar[str] = "AUGURY_RECORD"

    out: str
    windows: tuple[tuple[int, int], ...] = ()
    """Spread over the whole job if empty."""
    calibrate: bool = False
    ranks: tuple[int, ...] | None = None
    """Those that are profiled; all of them if None."""
    wire: bool = False
    """Whether what goes over the wire is recorded in every process."""
    wire_events: int = DEFAULT_WIRE_EVENTS
    """How many of its calls a process keeps: the newest."""

    def to_environment(self) -> str:
        return json.dumps(asdict(self))

    @classmethod
    def from_environment(cls) -> Settings | None:
        text = os.environ.get(cls.VARIABLE)
        if not text:
            return None
        told = json.loads(text)
        ranks = told["ranks"]
        return cls(
            out=told["out"],
            windows=tuple((first, last) for first, last in told["windows"]),
            calibrate=told["calibrate"],
            ranks=None if ranks is None else tuple(ranks),
            wire=told["wire"],
            wire_events=told["wire_events"],
        )


def parse_windows(steps: str) -> tuple[tuple[int, int], ...]:
    """``auto``, or ``10:20,30:40``: in order and apart, so that there are plain steps between
    them."""
    if steps == AUTO:
        return ()
    windows: list[tuple[int, int]] = []
    after = 0
    for window in steps.split(","):
        first, _, last = window.partition(":")
        if not (first.isdecimal() and last.isdecimal() and after < int(first) < int(last)):
            raise UsageError(
                f"{steps!r} is not a window of steps",
                remedy="write it as 10:20, or several, in order and apart, as 10:20,30:40; or auto",
            )
        after = int(last)
        windows.append((int(first), after))
    return tuple(windows)
