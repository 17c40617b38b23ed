"""The progress callback that functions with long work accept."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext

Progress = Callable[[str], AbstractContextManager[None]]
"""Returns a context for a named piece of work; the command line shows a spinner inside of it."""


def silent(_work: str) -> AbstractContextManager[None]:
    """Shows nothing."""
    return nullcontext()
