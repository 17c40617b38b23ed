"""Lines for the user."""

from __future__ import annotations

import os
import shlex


def say(*lines: str) -> None:
    """Paths and names in them may hold anything."""
    from augury.report.safe_text import safe

    for line in lines:
        print(safe(line, max_chars=2000))


def next_command(*words: str | os.PathLike[str]) -> None:
    """What to type next, ready to be pasted."""
    say("", f"next: augury {' '.join(shlex.quote(os.fspath(word)) for word in words)}")
