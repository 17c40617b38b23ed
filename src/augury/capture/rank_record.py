"""What one rank says of itself, in a small file beside its trace."""

from __future__ import annotations

import json
import os
import socket
import sys
from pathlib import Path
from typing import Any


def rank_name(rank: int) -> str:
    """Sorts as it counts."""
    return f"rank-{rank:05d}"


_learned = 0, 1


def own_rank() -> tuple[int, int]:
    """Rank and world size, as launchers tell them, or the framework; alone, rank 0 of 1."""
    if "RANK" not in os.environ:
        return _learned
    return int(os.environ["RANK"]), int(os.environ.get("WORLD_SIZE", "1"))


def learn_rank(rank: int, world_size: int) -> None:
    """From the framework: a program that spawns its processes by itself tells nobody else."""
    global _learned  # noqa: PLW0603
    _learned = rank, world_size


def write_rank_record(folder: Path, record: dict[str, Any]) -> None:
    """Whole or not at all: a reader may come at any time."""
    path = folder / f"{rank_name(record['rank'])}.json"
    partial = path.with_suffix(f".{os.getpid()}.partial")
    try:
        partial.write_text(json.dumps(record))
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)


def host_facts() -> dict[str, Any]:
    return {
        "host": socket.gethostname(),
        "pid": os.getpid(),
        "python": sys.version.split()[0],
        "cores": len(os.sched_getaffinity(0)),
        "command": sys.argv,
    }
