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
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

import msgspec

from augury.capture.cpu_clock import CpuClock, machine_reading
from augury.capture.launcher.run_folder import is_restarted, num_restarts
from augury.capture.rank_record import (
    host_facts,
    learn_rank,
    own_rank,
    rank_name,
    write_rank_record,
)
from augury.capture.rendezvous.clock_handshake import exchange, has_other_hosts
from augury.capture.rendezvous.gather import gather
from augury.capture.rendezvous.rendezvous import known_job
from augury.capture.settings import Settings
from augury.capture.speed_probe import SpeedProbe
from augury.capture.torch.calibrate import calibrate
from augury.capture.torch.distributed_calls import CallRecorder
from augury.capture.torch.profiler_window import TorchWindow
from augury.capture.torch.rank_facts import DetailProbes, job_facts
from augury.capture.window_schedule import StepWindow, WindowSchedule, stride_for
from augury.capture.window_spacing import agree_on_stride
from augury.capture.wire.pack import drop_former, pack_own
from augury.capture.wire.preload import keep_wire
from augury.core.plan.plan_board import board
from augury.core.plan.plan_status import TrainingMode
from augury.core.quiesce import quiesce

if TYPE_CHECKING:
    from torch.optim import Optimizer

MAX_STEPS_NOTED = 100_000
MAX_TROUBLE_CHARS = 2000


class StepRecorder:
    """A step ends when the first optimizer that stepped, and still lives, has stepped again."""

    def __init__(self, settings: Settings) -> None:
        self._folder = Path(settings.out)
        self._is_wired = settings.wire
        self._calibrate = settings.calibrate
        self._chosen = settings.ranks
        self._note_rank()
        self._schedule = WindowSchedule(settings.windows)
        self._window_cost_ns = 0
        self._leader: weakref.ref[Optimizer] | None = None
        self._seen: dict[int, weakref.ref[Optimizer]] = {}
        self._cpu = CpuClock()
        self._speed = SpeedProbe()
        self._step_end_ns: list[int] = []
        self._resumed: list[list[int]] = []
        self._step_cpu: list[list[int]] = []
        self._step_delay_ns: list[int] = []
        self._machine: list[list[int] | None] = []
        self._open: StepWindow | None = None
        self._profiler: TorchWindow | None = None
        self._calls = CallRecorder()
        self._probes: DetailProbes | None = None
        self._mode: tuple[bool, str] | None = None
        """Whether a trial was due, and the mode that was in force otherwise."""
        self._settled_step: int | None = None
        self._facts: dict[str, Any] = {}
        self._trouble: str | None = None

    def on_step(self, optimizer: Optimizer, _args: Any, _options: Any) -> None:
        now = time.time_ns()
        self._attempt(lambda: self._on_step(optimizer, now))

    def _on_step(self, optimizer: Optimizer, now: int) -> None:
        if not self._is_leader(optimizer) or len(self._step_end_ns) == MAX_STEPS_NOTED:
            return
        self._step_end_ns.append(now)
        self._step_delay_ns.append(self._cpu.delay_ns())
        step = len(self._step_end_ns)
        self._note_mode(step)
        if board.is_trial_due:
            self._schedule.postpone(step)
        board.is_recording = self._schedule.covers(step)
        self._note_cpu(step)
        if self._probes is not None:
            self._attempt(self._probes.end_first_step)
        is_edge = self._schedule.is_edge(step)
        if is_edge:
            self._read_machine()
            self._between_steps(step)
        if self._is_wired and (step == 1 or is_edge):
            # Be this rank profiled or not: a message has two ends.
            self._attempt(lambda: keep_wire(self._schedule.covers(step)))
        if is_edge:
            self._resumed.append([step, time.time_ns()])
            self._note_cpu(step)
        elif not board.is_recording:
            self._speed.probe(step)

    def _note_mode(self, step: int) -> None:
        """A change that is known when a step ends takes effect in the next one."""
        status = board.status
        if status is None:
            return
        mode = (board.is_trial_due, "" if board.is_trial_due else status.mode.value)
        if mode != self._mode:
            self._mode = mode
            is_changed = bool(status.trials) or status.mode is not TrainingMode.STOCK
            self._settled_step = step + 1 if is_changed else None

    def _plan_told(self) -> Any:
        status = board.status
        if status is not None and not board.is_trial_due:
            status = msgspec.structs.replace(status, settled_step=self._settled_step)
        return msgspec.to_builtins(status)

    def _read_machine(self) -> None:
        """Keep the first reading and the newest."""
        self._machine[1:] = [machine_reading()]

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
        self._attempt(quiesce)
        if self._is_wired:
            # Handshakes and calibration too: they tell of clocks and links.
            self._attempt(lambda: keep_wire(True))
        schedule = self._schedule
        if step == schedule.windows[0].first:
            self._attempt(lambda: self._shake_hands("start"))
        began_ns = time.monotonic_ns()
        if (closing := schedule.closing_at(step)) is not None:
            if closing is self._open:
                self._attempt(self._close_window)
            self._attempt(lambda: self._drop(schedule.after(closing)))
        if (opening := schedule.opening_at(step)) is not None and self._is_profiled:
            self._attempt(lambda: self._open_window(opening))
        if schedule.last_light in (opening, closing):
            self._window_cost_ns += time.monotonic_ns() - began_ns
        if closing is schedule.last_light and self._calibrate:
            self._attempt(self._measure_network)
        if closing is schedule.detail:
            self._attempt(lambda: self._shake_hands("end"))
            if schedule.is_spread:
                self._attempt(self._spread_windows)
            self._attempt(self._write)
            self._attempt(self._pack_wire)
            self._attempt(self._gather)
        elif closing is not None and closing.first > schedule.detail.first and has_other_hosts():
            self._attempt(lambda: self._shake_hands(f"step {step}"))

    def _spread_windows(self) -> None:
        """Go on recording short windows over the rest of the job."""
        window = self._schedule.last_light
        ends = self._step_end_ns[window.first : window.last]
        step_ns = round(median(b - a for a, b in pairwise(ends)))
        stride = agree_on_stride(stride_for(self._window_cost_ns, step_ns))
        if stride is not None:
            self._schedule.spread(stride)

    def _drop(self, windows: list[StepWindow]) -> None:
        """Remove the traces of windows that made room for later ones."""
        for window in windows:
            begin_ns = self._step_end_ns[window.first - 1]
            end_ns = self._step_end_ns[window.last - 1]
            self._calls.forget(begin_ns, end_ns)
            board.pieces.forget(begin_ns, end_ns)
            if window.trace is not None:
                (self._folder / window.trace).unlink(missing_ok=True)
                window.trace = None
        if windows:
            self._write()

    def _open_window(self, window: StepWindow) -> None:
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
            if window is not self._schedule.windows[-1]:
                self._note(f"no window after step {window.last}: the range {lasting[0]!r} was open")
        number = self._schedule.windows.index(window)
        name = f"{rank_name(self._rank)}.{number}.trace.json.gz"
        profiler.export(self._folder / name)
        window.trace = name
        window.training_mode = board.status.mode.value if board.status is not None else None
        if window.mode == "detail" or "groups" not in self._facts:
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
        self._attempt(self._read_machine)
        schedule = self._schedule
        # A job that ends before the detail, or between spread windows, lacks nothing.
        for window in schedule.windows[: 1 if schedule.is_spread else -1]:
            if self._is_profiled and num_steps < window.last:
                self._note(f"the job ended after {num_steps} steps, {self._missed(window)}")
                break
        self._attempt(self._drop_window)
        self._attempt(self._pack_wire)
        self._attempt(self._write)
        self._attempt(lambda: self._gather(at_exit=True))

    def _missed(self, window: StepWindow) -> str:
        if len(self._step_end_ns) >= window.first:
            return f"before the window's end at {window.last}"
        if board.is_trial_due:
            return "while the plan was on trial: record more steps, or follow it with --no-trial"
        return f"before the window's start at {window.first}"

    def _write(self) -> None:
        import torch

        write_rank_record(
            self._folder,
            {
                "schema_version": 2,
                "rank": self._rank,
                "world_size": self._world_size,
                "job": known_job(),
                "start": num_restarts(),
                "framework": f"torch {torch.__version__}",
                **host_facts(),
                "trouble": self._trouble,
                "windows": self._schedule.told(len(self._step_end_ns)) if self._is_chosen else [],
                "step_end_ns": self._step_end_ns,
                "resumed": self._resumed,
                "step_cpu": self._step_cpu,
                "step_delay_ns": self._step_delay_ns,
                "speed": self._speed.probes,
                "machine": [reading for reading in self._machine if reading is not None],
                "calls": self._calls.calls,
                "plan": self._plan_told(),
                "pieces": board.pieces.told(),
                **self._facts,
            },
        )
