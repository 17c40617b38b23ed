"""A framework without any training behind it, to test the recorder itself."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from augury.capture.framework import FrameworkFacts, PhaseTimes
from augury.capture.window_schedule import Mode
from augury.core.trace.rank_record import CalibrationRecord, Group, RecordedCall, RecordedMemory


class FakeWindow:
    def __init__(self, framework: FakeFramework, mode: Mode) -> None:
        self._framework = framework
        self._mode = mode

    def start_probes(self) -> None:
        self._framework.events.append("probes")

    def end_step(self) -> None:
        self._framework.events.append("step")

    def stop_probes(self) -> None:
        if self._framework.fails_to_stop_probes:
            raise RuntimeError("probes are stuck")

    def stop_profiler(self) -> None:
        self._framework.events.append("stop")

    def ranges_open_since(self, ns: int) -> list[str]:
        return self._framework.open_ranges if ns else []

    def export(self, path: Path) -> None:
        path.write_text(self._mode)

    def saved_memory(self) -> list[RecordedMemory]:
        if self._mode == "light":
            return []
        return [RecordedMemory(kind="activation", layer="a", size_bytes=8)]


class FakePhases:
    """Parts of steps that take no time."""

    def start(self) -> None: ...

    def end_step(self) -> PhaseTimes:
        return PhaseTimes()

    def stop(self) -> None: ...


class FakeFramework:
    """Implements ``FrameworkRecorder``."""

    def __init__(self) -> None:
        self.events: list[str] = []
        self.open_ranges: list[str] = []
        self.fails_to_open = False
        self.fails_to_stop_probes = False
        self.on_rival: Callable[[], None] | None = None

    def version(self) -> str:
        return "fake 1.0"

    def job_store(self) -> None:
        return None

    def open_window(self, mode: Mode, on_rival: Callable[[], None]) -> FakeWindow:
        if self.fails_to_open:
            raise RuntimeError("busy")
        self.events.append(mode)
        self.on_rival = on_rival
        return FakeWindow(self, mode)

    def phases(self) -> FakePhases:
        return FakePhases()

    def facts(self) -> FrameworkFacts:
        memory = [RecordedMemory(kind="parameter", layer="a", size_bytes=4)]
        return FrameworkFacts(groups=[Group(name="0", ranks=[0])], memory=memory)

    def calls(self) -> list[RecordedCall]:
        return [RecordedCall(1, 2, "send", "0", 0)]

    def forget_calls(self, begin_ns: int, end_ns: int) -> None:
        self.events.append(f"forget {end_ns >= begin_ns}")

    def calibrate(self) -> list[CalibrationRecord]:
        self.events.append("calibrate")
        return [CalibrationRecord(size_bytes=1, durations_ns=[5])]

    def store_modules(self, path: Path) -> None:
        self.events.append(f"store {path.name}")
