"""What is under way is waited for before the program ends, and before it is measured."""

from __future__ import annotations

import atexit
import weakref
from contextlib import suppress
from typing import Any

from augury.core.quiesce import quiesce_actions


class AtExit:
    """Does not keep what it is for."""

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
