"""Nothing is in flight when a profiler of the program's stops.

Torch notes the end of a communication in the profiler that saw it begin. It does not survive that
profiler being gone.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from torch.autograd.profiler import profile


class BeforeProfilersStop:
    """Calls ``quiesce`` first, from the moment it is made until it is removed. Every profiler of
    torch stops through this method."""

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
        """Left, without effect, where another wrapper has been put around it since."""
        self._is_on = False
        if profile.__exit__ is self._new:
            profile.__exit__ = self._was
