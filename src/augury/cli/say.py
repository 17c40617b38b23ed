"""Prints lines for the user, escaped for terminals, and the next command to type."""

from __future__ import annotations

import os
import shlex
from collections.abc import Mapping, Sequence

MAX_JOB_CHARS = 1500
"""A longer command of a job is not repeated."""


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


def given(options: Mapping[str, str | None]) -> list[str]:
    """Returns the words of the options that have a value."""
    return [word for name, value in options.items() if value is not None for word in (name, value)]


def next_planned_run(plan: str | os.PathLike[str], job: Sequence[str]) -> None:
    """Prints the command that runs the recorded ``job`` with the plan; an example where the job's
    command is unknown."""
    # Characters that would be escaped make the printed command another one.
    is_short = len(shlex.join(job)) <= MAX_JOB_CHARS
    can_copy = is_short and all(word.isprintable() for word in job)
    words = job if job and can_copy else ("torchrun", "...", "train.py")
    next_command("run", "--plan", plan, "--out", "planned-run", "--", *words)
