"""Prints messages of the runtime to stderr, one line each."""

from __future__ import annotations

import sys


def say(text: str, *, rank: int | None = None) -> None:
    who = "augury" if rank is None else f"augury: rank {rank}"
    print(f"{who}: {text}", file=sys.stderr, flush=True)
