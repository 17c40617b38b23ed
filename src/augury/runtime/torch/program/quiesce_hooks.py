"""Quiesces the runtime before the program ends, before it is measured, and before a profiler stops.

Torch notes the end of a communication in the profiler that saw it begin, and crashes where that
profiler no longer exists.
"""

from __future__ import annotations

import atexit
import functools
import weakref
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from torch.autograd.profiler import profile

from augury.core.quiesce import quiesce_actions


class AtExit:
    """Flushes a training when the program ends, and quiesces it before measurements. It keeps no
    reference to the training."""

    def __init__(self, handle: Any) -> None:
        self._handle = weakref.ref(handle)
        atexit.register(self._end)
        quiesce_actions.add(self._rest)

    def remove(self) -> None:
        atexit.unregister(self._end)
        quiesce_actions.discard(self._rest)

    def _end(self) -> None:
        handle = self._handle()
        if handle is not None:
            with suppress(Exception):  # the program is over
                handle.flush()

    def _rest(self) -> None:
        handle = self._handle()
        if handle is not None:
            handle.quiesce()


class BeforeProfilersStop:
    """Calls ``quiesce`` before a torch profiler stops, until it is removed. Every profiler of torch
    stops through this method."""

    def __init__(self, quiesce: Callable[[], None]) -> None:
        self._quiesce = quiesce
        self._is_on = True
        self._was = was = profile.__exit__

        @functools.wraps(was)
        def stop(profiler: Any, *error: Any) -> Any:
            if self._is_on:
                self._quiesce()
            return was(profiler, *error)

        self._new = profile.__exit__ = stop

    def remove(self) -> None:
        """Restores the method; without effect where another wrapper was put around it."""
        self._is_on = False
        if profile.__exit__ is self._new:
            profile.__exit__ = self._was
