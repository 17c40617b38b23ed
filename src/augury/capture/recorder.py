"""Counts the steps of a training process and records windows of them, whatever the framework.

The recorder must not harm the training: every failure is noted in the rank's record and goes no
further. Slow work is done at the ends of steps at which windows open or close; the record says when
the job continued, so that these pauses are not counted as step time.
"""

from __future__ import annotations

import atexit
import time
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

from augury.capture.framework import FrameworkRecorder, FrameworkWindow
from augury.capture.process_identity import (
    has_other_hosts,
    is_restarted,
    learn_rank,
    own_rank,
    rank_name,
)
from augury.capture.progress import ProgressLines
from augury.capture.rank_record import RankNotes, build_record, write_rank_record
from augury.capture.rendezvous.clock_handshake import exchange_clocks
from augury.capture.rendezvous.gather import FileGatherer
from augury.capture.rendezvous.rendezvous import PATIENCE_S, Rendezvous
from augury.capture.settings import Settings
from augury.capture.step_log import StepTimeLog
from augury.capture.watch.job_watcher import JobWatcher
from augury.capture.watch.window import WatchedSteps
from augury.capture.window_schedule import StepWindow, WindowSchedule, stride_for
from augury.capture.wire.pack import drop_former, pack_own
from augury.capture.wire.preload import keep_wire
from augury.core.plan.plan_board import board
from augury.core.quiesce import quiesce

_STRIDE_SERVICE = "windows/stride"


class RecorderState(Enum):
    WAITING = "no step has ended yet"
    BETWEEN_WINDOWS = "steps are counted, and windows may open"
    IN_WINDOW = "a window is open"
    COUNTING = "steps are counted, and no window opens any more"


@dataclass(frozen=True, slots=True)
class _OpenWindow:
    planned: StepWindow
    profiled: FrameworkWindow


class StepRecorder:
    """Driven by the framework's hook, which calls ``end_step`` on the training thread."""

    def __init__(self, settings: Settings, framework: FrameworkRecorder) -> None:
        self._settings = settings
        self._framework = framework
        self._folder = Path(settings.out)
        self._rank, self._world_size = own_rank()
        self._rendezvous = Rendezvous(framework.job_store)
        self._gatherer = FileGatherer(self._rendezvous, self._folder)
        self._schedule = WindowSchedule(settings.windows)
        self._steps = StepTimeLog()
        self._notes = RankNotes()
        self._progress = ProgressLines(self._rank)
        self._state = RecorderState.WAITING
        self._open: _OpenWindow | None = None
        """Present exactly in the state IN_WINDOW."""
        self._window_cost_ns = 0
        self._watcher: JobWatcher | None = None
        if settings.watch:
            steps = WatchedSteps(settings.watch, framework.phases(), lambda: self._steps.speed)
            self._watcher = JobWatcher(steps, self._rendezvous, self._folder)

    def end_step(self, now_ns: int) -> None:
        self.attempt(lambda: self._end_step(now_ns))

    def attempt(self, action: Callable[[], object]) -> None:
        """Runs an action; notes its failure as trouble."""
        try:
            action()
        except Exception as error:
            self._notes.add_trouble(f"{type(error).__name__}: {error}")

    def _end_step(self, now_ns: int) -> None:
        if self._state is RecorderState.WAITING:
            self._begin()
        if self._steps.is_full:
            self._watch(is_next_plain=True)
            return
        step = self._steps.end_step(now_ns)
        self._notes.note_training_mode(step)
        if step == 1 and board.status is not None:
            # The first steps of a job with a plan change the mode of training.
            self._schedule.leave_out_early()
        if board.is_trial_due:
            self._schedule.postpone(step)
        board.is_recording = self._schedule.covers(step)
        self._read_cpu(step)
        if self._open is not None:
            self.attempt(self._open.profiled.end_step)
        is_edge = self._schedule.is_edge(step)
        self._watch(is_next_plain=not (is_edge or board.is_recording or board.is_trial_due))
        if is_edge:
            self._steps.read_machine()
            self._between_steps(step)
        if self._settings.wire and (step == 1 or is_edge):
            # Also on ranks that are not profiled: a message has two ends.
            self.attempt(lambda: keep_wire(self._schedule.covers(step)))
        if is_edge:
            self._steps.resume(step)
            self._read_cpu(step)
        elif not board.is_recording:
            self._steps.probe_speed(step)

    def _watch(self, *, is_next_plain: bool) -> None:
        """Before a profiled window opens: hooks of the watcher must be gone by then."""
        if self._watcher is not None:
            self._watcher.end_step(self._rank, self._world_size, is_next_plain=is_next_plain)

    def _begin(self) -> None:
        """Learns the rank, which the framework may know only now."""
        self._state = RecorderState.COUNTING
        atexit.register(self._at_exit)
        self.attempt(self._learn_rank)
        if self._is_chosen:
            self._state = RecorderState.BETWEEN_WINDOWS
        if self._settings.wire and is_restarted():
            self.attempt(lambda: drop_former(self._folder, self._rank))

    def _learn_rank(self) -> None:
        store = self._framework.job_store()
        if store is not None:
            learn_rank(store.rank, store.world_size)
            self._rank, self._world_size = own_rank()
            self._progress = ProgressLines(self._rank)

    @property
    def _is_chosen(self) -> bool:
        """Whether the settings want this rank profiled."""
        return self._settings.ranks is None or self._rank in self._settings.ranks

    def _read_cpu(self, step: int) -> None:
        if self._open is not None and self._open.planned.mode == "light":
            self._steps.read_cpu(step)

    def _between_steps(self, step: int) -> None:
        self.attempt(quiesce)
        if self._settings.wire:
            # Handshakes and calibration too: clocks and links are estimated from them.
            self.attempt(lambda: keep_wire(True))
        schedule = self._schedule
        if step == schedule.windows[0].first:
            self.attempt(lambda: self._shake_hands("start"))
        began_ns = time.monotonic_ns()
        if (closing := schedule.closing_at(step)) is not None:
            if self._open is not None and closing is self._open.planned:
                self.attempt(self._close_window)
            self.attempt(lambda: self._drop_traces(schedule.after(closing)))
        opening = schedule.opening_at(step)
        if opening is not None and self._state is RecorderState.BETWEEN_WINDOWS:
            self.attempt(lambda: self._open_window(opening))
        if schedule.last_light in (opening, closing):
            self._window_cost_ns += time.monotonic_ns() - began_ns
        if closing is schedule.last_light and self._settings.calibrate:
            self._progress.calibrating()
            self.attempt(self._calibrate)
        if closing is schedule.detail:
            self._finish_planned_windows()
        elif closing is not None and closing.first > schedule.detail.first and has_other_hosts():
            self.attempt(lambda: self._shake_hands(f"step {step}"))
        if closing is not None and closing.mode == "detail" and self._settings.times_modules:
            self.attempt(self._store_modules)

    def _finish_planned_windows(self) -> None:
        self.attempt(lambda: self._shake_hands("end"))
        if self._schedule.is_spread:
            self.attempt(self._spread_windows)
        self._progress.planned_windows_complete(self._schedule.stride)
        self.attempt(self._write)
        self.attempt(self._pack_wire)
        self.attempt(self._gatherer.gather)

    def _spread_windows(self) -> None:
        """Plans short windows over the rest of the job, at the same steps on all ranks."""
        window = self._schedule.last_light
        step_ns = self._steps.median_step_ns(window.first, window.last)
        stride = self._agree_on_stride(stride_for(self._window_cost_ns, step_ns))
        if stride is not None:
            self._schedule.spread(stride)

    def _agree_on_stride(self, own: int) -> int | None:
        """Returns the stride of rank 0. None where the ranks cannot agree: a window that only
        some ranks open is of no use."""
        member = self._rendezvous.join()
        if member is None:
            return own if own_rank()[1] == 1 else None
        if member.server is not None:
            member.server.offer(_STRIDE_SERVICE, lambda call, _rank: call.send_message(stride=own))
            member.server.wait_for(_STRIDE_SERVICE, patience_s=PATIENCE_S)
            return own
        with member.call(_STRIDE_SERVICE) as call:
            return int(call.receive_message()["stride"])

    def _open_window(self, window: StepWindow) -> None:
        profiled = self._framework.open_window(window.mode, self._yield_to_rival)
        self._open = _OpenWindow(window, profiled)
        self._state = RecorderState.IN_WINDOW
        self._progress.opening(window)
        profiled.start_probes()

    def _close_window(self, *, at_exit: bool = False) -> None:
        opened = self._stop_window()
        assert opened is not None
        window, profiled = opened.planned, opened.profiled
        lasting = [] if at_exit else profiled.ranges_open_since(self._steps.end_ns[-2])
        if lasting:
            # It may end inside a later window, which a profiler may not survive.
            self._state = RecorderState.COUNTING
            if window is not self._schedule.windows[-1]:
                self._notes.add_trouble(
                    f"no window after step {window.last}: the range {lasting[0]!r} was open"
                )
        number = self._schedule.windows.index(window)
        name = f"{rank_name(self._rank)}.{number}.trace.json.gz"
        profiled.export(self._folder / name)
        window.trace = name
        window.training_mode = board.status.mode if board.status is not None else None
        if window.mode == "detail" or self._notes.facts.groups is None:
            self._notes.facts.update(self._framework.facts(), at_exit=at_exit)
        self._notes.add_memory(profiled.saved_memory())
        self._write()

    def _yield_to_rival(self) -> None:
        self._notes.add_trouble("the program started a profiler of its own within the window")
        self.attempt(self._stop_window)

    def _stop_window(self) -> _OpenWindow | None:
        """Returns the window that was open."""
        opened, self._open = self._open, None
        if opened is not None:
            self._state = RecorderState.BETWEEN_WINDOWS
            self.attempt(opened.profiled.stop_probes)
            opened.profiled.stop_profiler()
        return opened

    def _drop_traces(self, windows: list[StepWindow]) -> None:
        """Removes the traces of windows that made room for later ones."""
        for window in windows:
            begin_ns = self._steps.end_ns[window.first - 1]
            end_ns = self._steps.end_ns[window.last - 1]
            self._framework.forget_calls(begin_ns, end_ns)
            board.pieces.forget(begin_ns, end_ns)
            if window.trace is not None:
                (self._folder / window.trace).unlink(missing_ok=True)
                window.trace = None
        if windows:
            self._write()

    def _shake_hands(self, moment: str) -> None:
        self._notes.handshakes += exchange_clocks(self._rendezvous, moment)

    def _calibrate(self) -> None:
        self._notes.calibration = self._framework.calibrate()

    def _store_modules(self) -> None:
        if self._rank == 0 and self._is_chosen:
            self._framework.store_modules(self._folder / self._settings.snapshot)

    def _pack_wire(self) -> None:
        """Calls that the process makes later are packed at its end."""
        if self._settings.wire:
            pack_own(self._folder)

    def _at_exit(self) -> None:
        self.attempt(self._steps.read_machine)
        if self._watcher is not None:
            self.attempt(self._watcher.finish)
        self._note_missed_windows()
        self.attempt(self._close_at_exit)
        self.attempt(self._stop_window)
        self.attempt(self._pack_wire)
        self.attempt(self._write)
        self.attempt(lambda: self._gatherer.gather(at_exit=True))

    def _note_missed_windows(self) -> None:
        """A job that ends before the detailed window, or between spread windows, lacks nothing."""
        num_steps, schedule = self._steps.num_steps, self._schedule
        if self._state is RecorderState.COUNTING:
            return
        if schedule.is_spread and (
            self._has_steps_in_window or any(w.trace for w in schedule.windows)
        ):
            return
        for window in schedule.windows[: 1 if schedule.is_spread else -1]:
            if num_steps < window.last:
                self._notes.add_trouble(
                    f"the job ended after {num_steps} steps, {self._why_missed(window)}"
                )
                break

    @property
    def _has_steps_in_window(self) -> bool:
        """Whether a window is open that has a step besides its first, whose time does not count."""
        return self._open is not None and self._steps.num_steps > self._open.planned.first + 1

    def _close_at_exit(self) -> None:
        """Keeps the complete steps of a window that is open when the job ends."""
        if self._open is not None and self._has_steps_in_window:
            self._open.planned.last = self._steps.num_steps
            self._close_window(at_exit=True)

    def _why_missed(self, window: StepWindow) -> str:
        if self._steps.num_steps >= window.first:
            return f"before the window's end at {window.last}"
        if board.is_trial_due:
            return "while the plan was on trial"
        return f"before the window's start at {window.first}"

    def _write(self) -> None:
        record = build_record(
            rank=self._rank,
            world_size=self._world_size,
            job=self._rendezvous.job_id(),
            framework=self._framework.version(),
            notes=self._notes,
            steps=self._steps,
            windows=self._schedule.recorded(self._steps.num_steps) if self._is_chosen else [],
            calls=self._framework.calls(),
            job_command=self._settings.job_command,
        )
        write_rank_record(self._folder, record)
