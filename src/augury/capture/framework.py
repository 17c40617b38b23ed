"""The protocols that each framework's folder implements for the recorder.

The recorder counts steps, decides which windows are recorded, connects the ranks and writes the
files; it imports no framework. One folder per framework (``torch/``) profiles the windows and finds
the facts that only the framework knows.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Protocol

from augury.capture.window_schedule import Mode
from augury.core.trace.rank_record import (
    CalibrationRecord,
    Group,
    RecordedCall,
    RecordedDdp,
    RecordedMemory,
)


class JobStore(Protocol):
    """Rank and world size of a job, and a key-value store that all of its ranks reach."""

    @property
    def rank(self) -> int: ...

    @property
    def world_size(self) -> int: ...

    def set(self, key: str, value: str) -> None: ...

    def get(self, key: str, *, timeout_s: float) -> str:
        """Returns the value, once a rank has set it."""


@dataclass(slots=True, kw_only=True)
class FrameworkFacts:
    """Facts of a rank that the framework knows; None for those that could not be determined."""

    groups: list[Group] | None = None
    modules: dict[str, str] | None = None
    ddp: list[RecordedDdp] | None = None
    memory: list[RecordedMemory] | None = None
    refusals: list[str] | None = None
    num_threads: int | None = None
    """Number of threads that share the work of one operation."""

    def update(self, newer: FrameworkFacts, *, at_exit: bool = False) -> None:
        """Replaces each fact that was determined again. At exit the program may have freed its
        model already: then facts that are empty now are kept."""
        for field in fields(self):
            value = getattr(newer, field.name)
            if value or (value is not None and not at_exit):
                setattr(self, field.name, value)


class FrameworkWindow(Protocol):
    """A window of steps under the framework's profiler, running from the moment it is made."""

    def start_probes(self) -> None:
        """Starts everything that is observed besides the profiler."""

    def end_step(self) -> None:
        """Called at the end of each step inside the window."""

    def stop_probes(self) -> None: ...

    def stop_profiler(self) -> None: ...

    def ranges_open_since(self, ns: int) -> list[str]:
        """Returns names of profiler ranges that began before ``ns`` and had not ended when the
        profiler stopped."""

    def export(self, path: Path) -> None:
        """Writes the trace: a complete file or none."""

    def saved_memory(self) -> list[RecordedMemory]:
        """Returns memory that the probes saw in use during the window."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PhaseTimes:
    """Parts of one step that can be timed without a profiler; 0 where unknown."""

    input_ns: int = 0
    """Time before the first forward."""
    forward_ns: int = 0
    communication_ns: int = 0
    """Time for which the training thread waited in collectives."""
    update_ns: int = 0


class FrameworkPhases(Protocol):
    """Times the parts of steps by hooks, without a profiler, between ``start`` and ``stop``."""

    def start(self) -> None: ...

    def end_step(self) -> PhaseTimes:
        """Called at the end of each step; returns the parts of the step."""

    def stop(self) -> None: ...


class FrameworkRecorder(Protocol):
    """The recorder's view of one framework in this process."""

    def version(self) -> str:
        """Returns name and version, such as ``torch 2.13.0``."""

    def job_store(self) -> JobStore | None:
        """Returns None as long as this process is connected to no other rank."""

    def open_window(self, mode: Mode, on_rival: Callable[[], None]) -> FrameworkWindow:
        """Starts the profiler. ``on_rival`` is called when the program starts a profiler itself,
        before that profiler starts."""

    def phases(self) -> FrameworkPhases:
        """Returns timers of the parts of steps, for watch windows."""

    def facts(self) -> FrameworkFacts: ...

    def calls(self) -> list[RecordedCall]:
        """Returns the communication calls of all windows so far."""

    def forget_calls(self, begin_ns: int, end_ns: int) -> None:
        """Removes the calls that began in this interval."""

    def calibrate(self) -> list[CalibrationRecord]:
        """Measures the network; all ranks call this after the same step."""

    def store_modules(self, path: Path) -> None:
        """Stores the modules that the last detailed window has seen in a file, to be timed after
        the job."""
