"""Shows work in progress as a spinner on stderr; silent if stderr is not a terminal."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def working(work: str) -> Iterator[None]:
    """Names the work that is being done inside of the context."""
    if not sys.stderr.isatty():
        yield
        return
    from rich.console import Console

    from augury.report.safe_text import safe

    console = Console(stderr=True, markup=False, emoji=False, highlight=False)
    with console.status(safe(work, max_chars=console.width - 4), spinner="line"):
        yield
