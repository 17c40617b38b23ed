"""Settings of a recording, which the launcher passes to the job in an environment variable."""

from __future__ import annotations

import json
import os
from dataclasses import asdict, dataclass
from typing import ClassVar

from augury.core.errors import UsageError

AUTO = "auto"
"""Value of ``--steps`` for windows spread over the whole job."""
DEFAULT_WIRE_EVENTS = 1 << 20
DEFAULT_CALIBRATE_SECONDS = 30.0

MIN_WATCH_DISTANCE = 10
"""Smallest distance of watch windows, in steps."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """Steps are counted from 1. A window lasts from the end of its first step to the end of its
    last."""

    VARIABLE: ClassVar[str] = "AUGURY_RECORD"

    out: str
    windows: tuple[tuple[int, int], ...] = ()
    """Empty: windows are spread over the whole job."""
    calibrate: bool = False
    """Whether the network is measured, and modules are timed after the job."""
    calibrate_seconds: float = DEFAULT_CALIBRATE_SECONDS
    """Longest time for timing modules; 0 leaves it out."""
    snapshot: str = ".modules.pickle"
    """File in ``out`` in which rank 0 stores the modules that are timed after the job."""
    ranks: tuple[int, ...] | None = None
    """Ranks to profile; None means all."""
    wire: bool = False
    """Whether the TCP traffic of every process is recorded."""
    wire_events: int = DEFAULT_WIRE_EVENTS
    """Number of calls that a process keeps: the newest."""
    watch: int = 0
    """Steps between watch windows; 0 means none."""
    job_command: tuple[str, ...] = ()
    """The command that ``augury run`` starts; empty where another launcher started the ranks."""

    def to_environment(self) -> str:
        return json.dumps(asdict(self))

    @property
    def times_modules(self) -> bool:
        return self.calibrate and self.calibrate_seconds > 0

    @classmethod
    def from_environment(cls) -> Settings | None:
        text = os.environ.get(cls.VARIABLE)
        if not text:
            return None
        values = json.loads(text)
        ranks = values["ranks"]
        return cls(
            out=values["out"],
            windows=tuple((first, last) for first, last in values["windows"]),
            calibrate=values["calibrate"],
            calibrate_seconds=values["calibrate_seconds"],
            snapshot=values["snapshot"],
            ranks=None if ranks is None else tuple(ranks),
            wire=values["wire"],
            wire_events=values["wire_events"],
            watch=values["watch"],
            job_command=tuple(values["job_command"]),
        )


def parse_windows(steps: str) -> tuple[tuple[int, int], ...]:
    """Parses ``auto`` or ``10:20,30:40``. Windows must be in order and apart, so that there are
    plain steps between them."""
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


def checked_distance(watch: int | None) -> int:
    """Returns the distance of watch windows, 0 for none."""
    if watch is None:
        return 0
    if watch < MIN_WATCH_DISTANCE:
        raise UsageError(
            f"watch windows cannot be {watch} steps apart",
            remedy=f"give {MIN_WATCH_DISTANCE} steps or more, such as --watch 500",
        )
    return watch
