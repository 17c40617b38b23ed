"""Brings the watch windows of all ranks together at rank 0, which judges them and writes the lines.

Ranks send their times over the recorder's own rendezvous, from a thread of their own: training
never waits for it. A rank whose times do not arrive in time is named as missing.
"""

from __future__ import annotations

import os
import queue
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import msgspec

from augury.capture.process_identity import num_restarts
from augury.capture.rendezvous.framed_socket import FramedSocket
from augury.capture.rendezvous.rendezvous import PATIENCE_S, Rendezvous, RendezvousMember
from augury.capture.watch.verdict import VerdictInForce, job_times
from augury.capture.watch.window import NUM_STEPS, WatchedSteps, WatchWindow
from augury.core.results.watch import WATCH_FILE, RankTimes, WatchLine

_SERVICE = "watch"
MAX_LISTED_RANKS = 16
MAX_PENDING = 4
"""Most windows for which rank 0 keeps times of other ranks."""
EXIT_PATIENCE_S = 2.0


class JobWatcher:
    """One rank's part in watching the job. After its first failure it does nothing any more."""

    def __init__(self, steps: WatchedSteps, rendezvous: Rendezvous, folder: Path) -> None:
        self._steps = steps
        self._rendezvous = rendezvous
        self._folder = folder
        self._windows: queue.SimpleQueue[WatchWindow | None] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None
        self._pid = os.getpid()
        self._has_failed = False

    def end_step(self, rank: int, world_size: int, *, is_next_plain: bool) -> None:
        """Called on the training thread. Never raises."""
        try:
            if self._has_failed:
                self._steps.stop()
                return
            window = self._steps.end_step(rank, is_next_plain=is_next_plain)
            if window is not None and os.getpid() == self._pid:
                self._submit(window, rank, world_size)
        except Exception as error:
            self._fail(rank, error)

    def finish(self) -> None:
        """Waits a short time for windows that are complete but not yet written."""
        with suppress(Exception):
            self._steps.stop()
        if self._thread is not None and os.getpid() == self._pid:
            self._windows.put(None)
            self._thread.join(EXIT_PATIENCE_S)

    def _submit(self, window: WatchWindow, rank: int, world_size: int) -> None:
        if self._thread is None:
            # All ranks are at the same step, so none waits long for the rendezvous.
            member = self._rendezvous.join()
            self._thread = threading.Thread(
                target=self._work,
                args=(rank, self._handler(member, rank, world_size)),
                name="augury-watch",
                daemon=True,
            )
            self._thread.start()
        self._windows.put(window)

    def _handler(
        self, member: RendezvousMember | None, rank: int, world_size: int
    ) -> Callable[[WatchWindow], None]:
        if rank == 0:
            writer = _LineWriter(self._folder, world_size)
            if member is not None and member.server is not None:
                member.server.offer(_SERVICE, writer.receive)
            return writer.write
        if member is None:
            raise ConnectionError("the ranks could not connect to rank 0")
        return lambda window: _send(member, window)

    def _work(self, rank: int, handle: Callable[[WatchWindow], None]) -> None:
        try:
            while (window := self._windows.get()) is not None:
                handle(window)
        except Exception as error:
            self._fail(rank, error)

    def _fail(self, rank: int, error: Exception) -> None:
        self._has_failed = True
        with suppress(Exception):
            print(
                f"augury: rank {rank} is not watched any more: {type(error).__name__}: {error}",
                file=sys.stderr,
                flush=True,
            )


def _send(member: RendezvousMember, window: WatchWindow) -> None:
    """A window that cannot be sent is lost; the next one may arrive."""
    with suppress(OSError, ValueError, KeyError), member.call(_SERVICE) as call:
        call.send_message(number=window.number, times=msgspec.to_builtins(window.times))


class _LineWriter:
    """Rank 0's side."""

    def __init__(self, folder: Path, world_size: int) -> None:
        self._path = folder / WATCH_FILE
        self._world_size = world_size
        self._arrived: dict[int, dict[int, RankTimes]] = {}
        self._changed = threading.Condition()
        self._last_written = 0
        self._verdicts = VerdictInForce()

    def receive(self, call: FramedSocket, rank: int) -> None:
        """Called on the rendezvous thread."""
        message = call.receive_message()
        number = int(message["number"])
        times = msgspec.convert(message["times"], RankTimes)
        if times.rank == rank and 0 < rank < self._world_size:
            self._keep(number, times)

    def write(self, window: WatchWindow) -> None:
        """Called on the watch thread with the window of rank 0, in the order of the windows."""
        number = window.number
        with self._changed:
            ranks = self._arrived.setdefault(number, {})
            ranks[0] = window.times
            self._changed.wait_for(lambda: len(ranks) == self._world_size, PATIENCE_S)
            for known in [known for known in self._arrived if known <= number]:
                del self._arrived[known]
            self._last_written = number
        line = self._line(window, [ranks[rank] for rank in sorted(ranks)])
        with self._path.open("ab") as file:
            file.write(msgspec.json.encode(line) + b"\n")
        if line.text is not None:
            with suppress(Exception):
                print(f"augury: {line.text}", file=sys.stderr, flush=True)

    def _keep(self, number: int, times: RankTimes) -> None:
        with self._changed:
            is_known = number in self._arrived
            if number > self._last_written and (is_known or len(self._arrived) < MAX_PENDING):
                self._arrived.setdefault(number, {})[times.rank] = times
                self._changed.notify_all()

    def _line(self, window: WatchWindow, ranks: list[RankTimes]) -> WatchLine:
        now = job_times(ranks)
        own, text = self._verdicts.add(now, window.last_step)
        assert self._verdicts.baseline is not None
        baseline_ns = self._verdicts.baseline.step_ns
        heard = {one.rank for one in ranks}
        missing = (rank for rank in range(self._world_size) if rank not in heard)
        listed = sorted(ranks, key=lambda one: -one.own_ns)[:MAX_LISTED_RANKS]
        return WatchLine(
            start=num_restarts(),
            time_ns=time.time_ns(),
            first_step=window.first_step,
            last_step=window.last_step,
            num_steps=NUM_STEPS,
            world_size=self._world_size,
            step_ns=now.step_ns,
            baseline_step_ns=baseline_ns,
            slower_pct=round(100 * (now.step_ns / baseline_ns - 1), 2),
            straggler_pct=round(100 * now.straggler_share, 2),
            window_verdict=own,
            verdict=self._verdicts.verdict,
            changed=text is not None,
            text=text,
            parts_ns=now.parts_ns,
            ranks=sorted(listed, key=lambda one: one.rank),
            missing_ranks=[rank for rank, _ in zip(missing, range(MAX_LISTED_RANKS), strict=False)],
        )
