"""Prints lines for the user, escaped for terminals, and the next command to type."""

from __future__ import annotations

import os
import shlex


def say(*lines: str) -> None:
    """Prints lines that may contain paths and names of unknown origin."""
    from augury.report.safe_text import safe

    for line in lines:
        print(safe(line, max_chars=2000))


def say_written(*paths: os.PathLike[str] | None) -> None:
    """Prints which files were written; None stands for a file that was not asked for."""
    say(*(f"wrote {path}" for path in paths if path is not None))


def next_line(*words: str | os.PathLike[str]) -> str:
    """Returns the line that names the next command, quoted for a shell."""
    from augury.report.safe_text import safe

    command = " ".join(shlex.quote(os.fspath(word)) for word in words)
    return safe(f"next: augury {command}", max_chars=2000)


def next_command(*words: str | os.PathLike[str]) -> None:
    """Prints the next command to type, after an empty line."""
    print(f"\n{next_line(*words)}")
