"""torch's profiler for one window of steps, and the export of its trace.

A light window records only cheap events that show how a step's time passes (collectives, backward
nodes, the optimizer, data loading). A detailed window records every operation with its shapes; its
steps are not used for timing.
"""

from __future__ import annotations

import gzip
import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from augury.capture.window_schedule import Mode

if TYPE_CHECKING:
    from torch.profiler import profile


MAX_WAIT_S = 0.1
"""Longest wait for threads that are about to end their ranges when a window closes."""


class ProfilerBusyError(RuntimeError):
    """The program runs a profiler of its own."""


class TorchProfiler:
    """Runs from the moment it is made. ``on_rival`` is called when the program starts a profiler of
    its own, which takes precedence: only one can run."""

    def __init__(self, mode: Mode, on_rival: Callable[[], None]) -> None:
        import torch
        from torch.profiler import ProfilerActivity, profile

        if torch.autograd._profiler_enabled():
            raise ProfilerBusyError("the program's own profiler was on")
        activities = [ProfilerActivity.CPU]
        if torch.cuda.is_available():
            activities.append(ProfilerActivity.CUDA)
        detail = mode == "detail"
        # Shapes distinguish concurrent communication on two threads. Memory events are left out,
        # because torch warns about them on the job's stderr.
        self._profile: profile = profile(activities=activities, record_shapes=True)
        if detail:
            self._profile.start()
        else:
            with _cheap_scopes_only():
                self._profile.start()
        self._restore = _watch_for_rivals(on_rival)

    def stop(self) -> None:
        self._restore()
        _let_threads_finish()
        self._profile.stop()

    def ranges_open_since(self, ns: int) -> list[str]:
        """Returns names of ranges that began before ``ns`` and had not ended when the profiler
        stopped: torch gives all of these the same end."""
        with suppress(Exception):  # some versions of torch do not provide this
            events = self._profile.profiler.kineto_results.events()
            stopped_ns = max((event.end_ns() for event in events), default=0)
            return [e.name() for e in events if e.end_ns() == stopped_ns and e.start_ns() < ns]
        return []

    def export(self, path: Path) -> None:
        """Writes a complete file or none. It is compressed here: torch compresses line by line,
        which takes most of the time of closing a window."""
        plain = path.with_name(f".{path.name}.plain")
        partial = path.with_name(f".{path.name}")
        try:
            self._profile.export_chrome_trace(str(plain))
            partial.write_bytes(gzip.compress(plain.read_bytes(), compresslevel=1))
            partial.replace(path)
        finally:
            for left in (plain, plain.with_name(f"{plain.name}.tmp"), partial):
                with suppress(OSError):
                    # torch keeps an unfinished file open, which would still occupy the space that
                    # the record needs after its removal.
                    os.truncate(left, 0)
                    left.unlink()


def _let_threads_finish() -> None:
    """Waits until no other thread of this process is runnable, at most ``MAX_WAIT_S``.

    A thread of gloo reports its result first and ends its profiler range afterwards. On a busy
    machine it may lose its core in between, for longer than a short step takes.
    """
    deadline = time.monotonic() + MAX_WAIT_S
    own = str(threading.get_native_id())
    while time.monotonic() < deadline:
        if not any(_is_runnable(task) for task in _tasks() if task != own):
            return
        time.sleep(0.0005)


def _tasks() -> list[str]:
    with suppress(OSError):
        return os.listdir("/proc/self/task")
    return []


def _is_runnable(task: str) -> bool:
    with suppress(OSError, IndexError):
        content = Path(f"/proc/self/task/{task}/stat").read_text(errors="replace")
        return content.rpartition(")")[2].split()[0] == "R"
    return False


@contextmanager
def _cheap_scopes_only() -> Iterator[None]:
    """Restricts the scopes of the profiler: its public interface always records all operators."""
    from torch.autograd import profiler

    enable = getattr(profiler, "_enable_profiler", None)
    scopes = _cheap_scopes()
    if enable is None or scopes is None:
        yield
        return

    def enable_some(config: Any, activities: Any) -> None:
        try:
            enable(config, activities, scopes)
        except TypeError:  # a version of torch without scopes
            enable(config, activities)

    profiler._enable_profiler = enable_some
    try:
        yield
    finally:
        profiler._enable_profiler = enable


def _cheap_scopes() -> set[Any] | None:
    try:
        from torch._C._profiler import RecordScope

        return {RecordScope.USER_SCOPE, RecordScope.BACKWARD_FUNCTION}
    except (ImportError, AttributeError):
        return None


def _watch_for_rivals(on_rival: Callable[[], None]) -> Callable[[], None]:
    """Calls ``on_rival`` before any profiler of torch starts. Returns a function that ends this."""
    from torch.autograd.profiler import profile

    prepare = profile._prepare_trace

    def prepare_instead(other: Any) -> None:
        on_rival()
        prepare(other)

    profile._prepare_trace = prepare_instead

    def restore() -> None:
        profile._prepare_trace = prepare

    return restore
