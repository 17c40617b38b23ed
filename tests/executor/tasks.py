"""Functions that workers run in tests: they are imported there by name."""

from __future__ import annotations

import os
import signal
import threading
import time

from augury.core.errors import DeadlockError, InputError

STARTED: list[int] = []
"""Items that threads of this process have started."""


def square(item: int) -> int:
    return item * item


def process_id(_item: int) -> int:
    return os.getpid()


def note_start(item: int) -> int:
    STARTED.append(item)
    return item


def slow_first(item: int) -> int:
    """The earlier the item, the later it ends."""
    time.sleep(0.3 if item == 0 else 0.0)
    if item in (0, 1):
        raise InputError(f"file {item} is damaged", remedy="record it again")
    return item


def refuse(item: int) -> int:
    if item == 1:
        raise DeadlockError("ops wait", cycle=("a", "b"), remedy="reorder them")
    return item


def unexpected(item: int) -> int:
    return {0: 0}[item]


def no_memory(item: int) -> int:
    if item:
        raise MemoryError
    return item


def die(item: int) -> int:
    if item == 2 and threading.current_thread() is threading.main_thread():
        os.kill(os.getpid(), signal.SIGKILL)
    return item


def sleep_long(_item: int) -> int:
    time.sleep(60)
    return 0
