"""Counts optimizer steps of a PyTorch process and profiles windows of them.

Nothing here may harm the training: whatever goes wrong is noted in the rank's record and goes no
further. What takes time is done at the ends of steps at which windows open or close, and
``resumed`` says when the job was let go again, so that it can be kept out of the steps' times.
"""

from __future__ import annotations

import atexit
import time
import weakref
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from augury.capture.cpu_clock import CpuClock
from augury.capture.gather import gather
from augury.capture.handshake import exchange
from augury.capture.rank_record import (
    host_facts,
    learn_rank,
    own_rank,
    rank_name,
    write_rank_record,
)
from augury.capture.run_folder import is_restarted
from augury.capture.settings import Settings
from augury.capture.torch_calibrate import calibrate
from augury.capture.torch_calls import CallRecorder
from augury.capture.torch_facts import DetailProbes, job_facts
from augury.capture.torch_windows import Mode, TorchWindow
from augury.capture.wire import keep_wire
from augury.capture.wire_pack import drop_former, pack_own
from augury.core.rest import rest

if TYPE_CHECKING:
    from torch.optim import Optimizer

MAX_STEPS_NOTED = 100_000
MAX_TROUBLE_CHARS = 2000
NUM_DETAIL_STEPS = 3


@dataclass(slots=True)
class Window:
    """Steps ``first + 1`` to ``last`` are inside."""

    first: int
    last: int
    mode: Mode
    trace: str | None = None


def plan_windows(settings: Settings) -> list[Window]:
    """The detail comes last: it slows its steps, and may be missed if the job is short.

    There is a plain step between any two windows. Steps end within the optimizer's own profiler
    range, and a range that begins under one profiler and ends under the next one makes torch
    write into memory that is freed. (For the program's own ranges see ``_close_window``.)
    """
    timed = [Window(first, last, "light") for first, last in settings.windows]
    first = timed[-1].last + 1
    return [*timed, Window(first, first + NUM_DETAIL_STEPS, "detail")]


class StepRecorder:
    """A step ends when the first optimizer that stepped, and still lives, has stepped again."""

    def __init__(self, settings: Settings) -> None:
        self._folder = Path(settings.out)
        self._is_wired = settings.wire
        self._calibrate = settings.calibrate
        self._chosen = settings.ranks
        self._note_rank()
        self._windows = plan_windows(settings)
        self._busy_steps = {step for w in self._windows for step in (w.first, w.last)}
        self._leader: weakref.ref[Optimizer] | None = None
        self._seen: dict[int, weakref.ref[Optimizer]] = {}
        self._cpu = CpuClock()
        self._step_end_ns: list[int] = []
        self._resumed: list[list[int]] = []
        self._step_cpu: list[list[int]] = []
        self._open: Window | None = None
        self._profiler: TorchWindow | None = None
        self._calls = CallRecorder()
        self._probes: DetailProbes | None = None
        self._facts: dict[str, Any] = {}
        self._trouble: str | None = None

    def on_step(self, optimizer: Optimizer, _args: Any, _options: Any) -> None:
        now = time.time_ns()
        self._attempt(lambda: self._on_step(optimizer, now))

    def _on_step(self, optimizer: Optimizer, now: int) -> None:
        if not self._is_leader(optimizer) or len(self._step_end_ns) == MAX_STEPS_NOTED:
            return
        self._step_end_ns.append(now)
        step = len(self._step_end_ns)
        self._note_cpu(step)
        if self._probes is not None:
            self._attempt(self._probes.end_first_step)
        if step in self._busy_steps:
            self._between_steps(step)
        if self._is_wired and (step == 1 or step in self._busy_steps):
            self._attempt(lambda: keep_wire(self._is_in_window(step)))
        if step in self._busy_steps:
            self._resumed.append([step, time.time_ns()])
            self._note_cpu(step)

    def _is_in_window(self, step: int) -> bool:
        """Whether the next one is, be this rank profiled or not: a message has two ends."""
        return any(window.first <= step < window.last for window in self._windows)

    def _note_rank(self) -> None:
        self._rank, self._world_size = own_rank()
        self._is_chosen = self._chosen is None or self._rank in self._chosen
        self._is_profiled = self._is_chosen

    def _learn_rank(self) -> None:
        from torch import distributed

        if distributed.is_available() and distributed.is_initialized():
            learn_rank(distributed.get_rank(), distributed.get_world_size())
            self._note_rank()

    def _is_leader(self, optimizer: Optimizer) -> bool:
        if not self._seen:
            atexit.register(self._at_exit)
            self._attempt(self._learn_rank)
            if self._is_wired and is_restarted():
                self._attempt(lambda: drop_former(self._folder, self._rank))
        known = self._seen.get(id(optimizer))
        if known is None or known() is None:
            self._seen[id(optimizer)] = weakref.ref(optimizer)
        leader = self._leader() if self._leader is not None else None
        if leader is None:
            self._leader = weakref.ref(optimizer)
            return True
        return leader is optimizer

    def _optimizers(self) -> list[Optimizer]:
        """In the order of their first steps."""
        return [optimizer for seen in self._seen.values() if (optimizer := seen()) is not None]

    def _note_cpu(self, step: int) -> None:
        if self._open is not None and self._open.mode == "light":
            self._step_cpu.append([step, *self._cpu.read()])

    def _between_steps(self, step: int) -> None:
        self._attempt(rest)
        if self._is_wired:
            # Handshakes and calibration too: they tell of clocks and links.
            self._attempt(lambda: keep_wire(True))
        if step == self._windows[0].first:
            self._attempt(lambda: self._shake_hands("start"))
        for window in self._windows:
            if window.last == step and window is self._open:
                self._attempt(self._close_window)
        if step == self._windows[-2].last and self._calibrate:
            self._attempt(self._measure_network)
        for window in self._windows:
            if window.first == step and self._is_profiled:
                self._attempt(lambda window=window: self._open_window(window))  # type: ignore[misc]
        if step == self._windows[-1].last:
            self._attempt(lambda: self._shake_hands("end"))
            self._attempt(self._write)
            self._attempt(self._pack_wire)
            self._attempt(self._gather)

    def _open_window(self, window: Window) -> None:
        self._profiler = TorchWindow(window.mode, self._yield_to_rival)
        self._open = window
        self._calls.start()
        if window.mode == "detail":
            self._probes = DetailProbes()
            self._probes.start(self._optimizers())

    def _close_window(self) -> None:
        window, profiler, probes = self._open, self._profiler, self._probes
        assert window is not None
        assert profiler is not None
        self._drop_window()
        if lasting := profiler.ranges_open_since(self._step_end_ns[-2]):
            # It may end in a later window, which torch does not survive.
            self._is_profiled = False
            if window is not self._windows[-1]:
                self._note(f"no window after step {window.last}: the range {lasting[0]!r} was open")
        name = f"{rank_name(self._rank)}.{self._windows.index(window)}.trace.json.gz"
        profiler.export(self._folder / name)
        window.trace = name
        self._facts |= job_facts(self._optimizers())
        if probes is not None:
            self._facts["memory"] = [*self._facts.get("memory", []), *probes.memory()]
        self._write()

    def _yield_to_rival(self) -> None:
        self._note("the program started a profiler of its own within the window")
        self._attempt(self._drop_window)

    def _drop_window(self) -> None:
        profiler, probes = self._profiler, self._probes
        self._open = self._profiler = self._probes = None
        self._calls.stop()
        if probes is not None:
            self._attempt(probes.stop)
        if profiler is not None:
            profiler.stop()

    def _shake_hands(self, moment: str) -> None:
        self._facts["handshake"] = [*self._facts.get("handshake", []), *exchange(moment)]

    def _measure_network(self) -> None:
        self._facts["calibration"] = calibrate()

    def _pack_wire(self) -> None:
        """What the process still sends is added at its end."""
        if self._is_wired:
            pack_own(self._folder)

    def _gather(self, *, at_exit: bool = False) -> None:
        gather(self._folder, at_exit=at_exit)

    def _attempt(self, action: Callable[[], None]) -> None:
        try:
            action()
        except Exception as error:
            self._note(f"{type(error).__name__}: {error}")

    def _note(self, trouble: str) -> None:
        said = f"{self._trouble}; {trouble}" if self._trouble else trouble
        self._trouble = said[:MAX_TROUBLE_CHARS]

    def _at_exit(self) -> None:
        num_steps = len(self._step_end_ns)
        for window in self._windows:
            # A job that ends before the detail lacks nothing that was asked for.
            if window.mode == "light" and self._is_profiled and num_steps < window.last:
                missed = "start" if num_steps < window.first else "end"
                at = window.first if missed == "start" else window.last
                self._note(
                    f"the job ended after {num_steps} steps, before the window's {missed} at {at}"
                )
                break
        self._attempt(self._drop_window)
        self._attempt(self._pack_wire)
        self._attempt(self._write)
        self._attempt(lambda: self._gather(at_exit=True))

    def _write(self) -> None:
        import torch

        write_rank_record(
            self._folder,
            {
                "schema_version": 2,
                "rank": self._rank,
                "world_size": self._world_size,
                "framework": f"torch {torch.__version__}",
                **host_facts(),
                "trouble": self._trouble,
                "windows": [asdict(w) for w in self._windows if self._is_chosen],
                "step_end_ns": self._step_end_ns,
                "resumed": self._resumed,
                "step_cpu": self._step_cpu,
                "calls": self._calls.calls,
                **self._facts,
            },
        )
