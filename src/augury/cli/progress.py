"""What is going on, on stderr, for somebody who watches; silent otherwise."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def working(what: str) -> Iterator[None]:
    if not sys.stderr.isatty():
        yield
        return
    from rich.console import Console

    from augury.report.safe_text import safe

    console = Console(stderr=True, markup=False, emoji=False, highlight=False)
    with console.status(safe(what, max_chars=console.width - 4), spinner="line"):
        yield
