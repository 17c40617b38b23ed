"""Measures sampled steps under a plan: times of pieces, and the CPU time of the runtime itself."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cache
from statistics import median
from typing import Any

from augury.core.plan.plan import CommunicationSection
from augury.core.plan.plan_board import board


@dataclass(slots=True, kw_only=True)
class StepLog:
    """One step, in ns from the start of its backward."""

    step: int
    issued_ns: list[int]
    """When each piece was sent; -1 where no time is known."""
    arrived_ns: list[int]
    expected_ns: tuple[int, ...]
    """Predicted arrival of each piece; empty where unknown."""
    released_ns: list[int]
    """When each gradient was released."""
    watched_ns: int = 0
    """Time from which arrivals were observed."""
    waited_ns: dict[int, tuple[int, int]] = field(default_factory=dict)
    """Interval in which the training thread waited for a piece, by piece."""
    backward_ns: int = 0
    step_ns: int = 0
    """From this step's backward to the next one's."""


@dataclass(slots=True, kw_only=True)
class OwnWork:
    """CPU time of the runtime itself on the main thread in one step, without copies, messages,
    waits and updates."""

    is_logged: bool
    """Whether the step was also logged, which takes time too."""
    own_ns: int = 0
    step_ns: int = 0


@cache
def _clock_ns() -> int:
    """Cost of reading the thread clock, which is a system call."""
    began_ns = time.thread_time_ns()
    for _ in range(100):
        time.thread_time_ns()
    return (time.thread_time_ns() - began_ns) // 101


@dataclass(slots=True, kw_only=True)
class Meter:
    """Logs every ``every``-th step and keeps the last ``keep`` logs. In those steps, and in as many
    others, the CPU time of the runtime itself is counted."""

    num_pieces: int
    num_gradients: int
    every: int = 4
    keep: int = 256
    expected_ns: tuple[int, ...] = ()
    step: int = 0
    log: list[StepLog] = field(default_factory=list)
    counted: list[OwnWork] = field(default_factory=list)
    swapped_bytes: tuple[int, ...] = ()
    """Sizes of the pieces, where two ranks exchange them directly: no profiler sees those."""
    is_on: bool = False
    """Whether this step is logged, as a sample or because it is recorded."""
    is_counting: bool = False
    _now: StepLog | None = None
    _count: OwnWork | None = None
    _start_ns: int = 0
    _is_own: bool = False

    def carry_on(self, before: Meter) -> None:
        """Continues the measurements of another meter, between two steps."""
        self.step, self.log, self.counted = before.step, before.log, before.counted
        self._now, self._count, self._start_ns = before._now, before._count, before._start_ns
        self.is_on, self.is_counting = before.is_on, before.is_counting

    @property
    def own_share(self) -> float | None:
        """CPU time of the runtime as a share of the step; None where too few steps were counted."""
        shares: dict[bool, list[float]] = {True: [], False: []}
        for one in self.counted:
            if one.step_ns > 0:
                shares[one.is_logged].append(one.own_ns / one.step_ns)
        if not shares[True] or not shares[False]:
            return None
        logged, plain = median(shares[True]), median(shares[False])
        return (logged + (self.every - 1) * plain) / self.every

    def begin(self, start_ns: int) -> None:
        """Begins a step: backward has begun."""
        if self._now is not None:
            self._now.step_ns = start_ns - self._start_ns
        if self._count is not None:
            self._count.step_ns = start_ns - self._start_ns
        self.step += 1
        self._start_ns = start_ns
        self._now = self._count = None
        is_due = self.every > 0 and self.step % self.every == 0
        is_recorded = board.is_recording and bool(self.swapped_bytes)
        self.is_on = is_due or is_recorded
        if self.is_on:
            self._now = StepLog(
                step=self.step,
                issued_ns=[-1] * self.num_pieces,
                arrived_ns=[-1] * self.num_pieces,
                expected_ns=self.expected_ns,
                released_ns=[-1] * self.num_gradients,
            )
        if is_due and self._now is not None:
            self.log.append(self._now)
            del self.log[: -self.keep]
        if is_recorded and self._now is not None:
            wall_ns = time.time_ns() - (time.perf_counter_ns() - start_ns)
            board.pieces.add_step(wall_ns, self.swapped_bytes, self._now)
        self.is_counting = is_due or (self.every > 1 and self.step % self.every == self.every // 2)
        if self.is_counting:
            self._count = OwnWork(is_logged=is_due)
            self.counted.append(self._count)
            del self.counted[: -self.keep]

    def end_backward(self) -> None:
        if self._now is not None:
            self._now.backward_ns = time.perf_counter_ns() - self._start_ns

    def note_release(self, gradient: int) -> None:
        if self._now is not None:
            self._now.released_ns[gradient] = time.perf_counter_ns() - self._start_ns

    def note_own(self, spent_ns: int) -> None:
        if self._count is not None:
            self._count.own_ns += spent_ns

    # Both are written out: they run between layers, where caches hold the data of the layers and
    # every call is slow, and their own cost is part of the count.

    def own(self, action: Callable[..., Any], *args: Any) -> Any:
        """Calls an action and counts its CPU time as the runtime's own."""
        count = self._count
        if count is None or self._is_own:
            return action(*args)
        self._is_own = True
        time.thread_time_ns()  # the first call after a layer is slow
        began_ns = time.thread_time_ns()
        try:
            return action(*args)
        finally:
            count.own_ns += time.thread_time_ns() - began_ns - _clock_ns()
            self._is_own = False

    def work(self, action: Callable[..., Any], *args: Any) -> Any:
        """Calls an action, within ``own``, that training without a plan would need too."""
        count = self._count
        if count is None or not self._is_own:
            return action(*args)
        self._is_own = False
        began_ns = time.thread_time_ns()
        try:
            return action(*args)
        finally:
            time.thread_time_ns()  # as above
            count.own_ns -= time.thread_time_ns() - began_ns + _clock_ns()
            self._is_own = True

    def note_issue(self, piece: int) -> None:
        if self._now is not None:
            self._now.issued_ns[piece] = time.perf_counter_ns() - self._start_ns

    def wait(self, piece: int, action: Callable[[], Any]) -> None:
        """Calls an action that waits for a piece of this step."""
        log, start_ns = self._now, self._start_ns
        began_ns = time.perf_counter_ns()
        self.work(action)
        if log is not None:
            first_ns = log.waited_ns.get(piece, (began_ns - start_ns, 0))[0]
            log.waited_ns[piece] = first_ns, time.perf_counter_ns() - start_ns

    def arrivals(self) -> Callable[[int], None] | None:
        """Returns a function to call when a piece of this step has arrived; None: not logged."""
        log, start_ns = self._now, self._start_ns
        if log is None:
            return None
        log.watched_ns = log.watched_ns or time.perf_counter_ns() - start_ns

        def arrived(piece: int) -> None:
            log.arrived_ns[piece] = time.perf_counter_ns() - start_ns

        return arrived


def expected_arrivals_ns(section: CommunicationSection) -> tuple[int, ...]:
    """Returns the predicted arrivals of pieces, for the log only."""
    with suppress(Exception):
        from augury.schedule.evaluate import evaluate  # noqa: PLC0415

        return tuple(int(ns) for ns in evaluate(section.problem, section.order).arrive_ns)
    return ()
