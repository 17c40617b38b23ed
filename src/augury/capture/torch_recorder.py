"""Counts optimizer steps of a PyTorch process and profiles a window of them.

Nothing here may harm the training: whatever goes wrong ends the recording, is noted in the rank's
record, and goes no further.
"""

from __future__ import annotations

import atexit
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from augury.capture.rank_record import host_facts, own_rank, rank_name, write_rank_record
from augury.capture.settings import Settings

if TYPE_CHECKING:
    from torch.optim import Optimizer
    from torch.profiler import profile

MAX_STEPS_NOTED = 100_000


class StepRecorder:
    """A step ends when the first optimizer that ever stepped has stepped again."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._leader: int | None = None
        self._step_end_ns: list[int] = []
        self._profile: profile | None = None
        self._trace: str | None = None
        self._trouble: str | None = None

    def on_step(self, optimizer: Optimizer, _args: Any, _options: Any) -> None:
        try:
            self._on_step(id(optimizer))
        except Exception as error:
            self._give_up(f"{type(error).__name__}: {error}")

    def _on_step(self, optimizer: int) -> None:
        if self._leader is None:
            self._leader = optimizer
            atexit.register(self._at_exit)
        if optimizer != self._leader or len(self._step_end_ns) == MAX_STEPS_NOTED:
            return
        self._step_end_ns.append(time.time_ns())
        if self._trouble is not None:
            return
        if len(self._step_end_ns) == self._settings.first:
            self._open_window()
        elif len(self._step_end_ns) == self._settings.last and self._profile is not None:
            self._close_window()

    def _open_window(self) -> None:
        from torch.profiler import ProfilerActivity, profile

        activities = [ProfilerActivity.CPU]
        import torch

        if torch.cuda.is_available():
            activities.append(ProfilerActivity.CUDA)
        self._yield_to_others()
        window = profile(activities=activities)
        window.start()
        self._profile = window

    def _yield_to_others(self) -> None:
        """A profiler that the program itself starts within the window takes over."""
        from torch.profiler import profile

        start = profile.start

        def start_instead(other: profile) -> None:
            if self._profile is not None and other is not self._profile:
                self._give_up("the program started a profiler of its own within the window")
            start(other)

        profile.start = start_instead

    def _close_window(self) -> None:
        window, self._profile = self._profile, None
        assert window is not None
        window.stop()
        rank, _ = own_rank()
        name = f"{rank_name(rank)}.trace.json.gz"
        partial = Path(self._settings.out) / f".{name}"
        window.export_chrome_trace(str(partial))
        partial.replace(partial.with_name(name))
        self._trace = name
        self._write()

    def _give_up(self, why: str) -> None:
        self._trouble = why
        window, self._profile = self._profile, None
        try:
            if window is not None:
                window.stop()
        except Exception as error:
            self._trouble += f"; and the profiler would not stop: {error}"

    def _at_exit(self) -> None:
        if self._profile is not None:
            self._give_up(
                f"the job ended after {len(self._step_end_ns)} steps,"
                f" before the window's end at {self._settings.last}"
            )
        elif self._trace is None and self._trouble is None:
            self._trouble = (
                f"the job ended after {len(self._step_end_ns)} steps,"
                f" before the window's start at {self._settings.first}"
            )
        try:
            self._write()
        except OSError as error:
            self._trouble = f"cannot write the record: {error}"

    def _write(self) -> None:
        import torch

        rank, world_size = own_rank()
        write_rank_record(
            Path(self._settings.out),
            {
                "schema_version": 1,
                "rank": rank,
                "world_size": world_size,
                "framework": f"torch {torch.__version__}",
                "window": [self._settings.first, self._settings.last],
                "trace": self._trace,
                "trouble": self._trouble,
                "step_end_ns": self._step_end_ns,
                **host_facts(),
            },
        )
