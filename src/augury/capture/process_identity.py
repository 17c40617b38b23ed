"""Rank, world size, number of restarts and hosts of this process's job."""

from __future__ import annotations

import os

_learned = 0, 1


def own_rank() -> tuple[int, int]:
    """Returns rank and world size from the launcher or, failing that, from the framework. A
    process without either is rank 0 of 1."""
    if "RANK" not in os.environ:
        return _learned
    return int(os.environ["RANK"]), int(os.environ.get("WORLD_SIZE", "1"))


def learn_rank(rank: int, world_size: int) -> None:
    """Stores rank and world size of the framework: a program that spawns its own ranks sets no
    environment variables."""
    global _learned  # noqa: PLW0603
    _learned = rank, world_size


def rank_name(rank: int) -> str:
    """Returns the common prefix of a rank's files, which sorts by rank."""
    return f"rank-{rank:05d}"


def has_other_hosts() -> bool:
    """Whether the job has ranks on other hosts, according to the launcher."""
    world_size = os.environ.get("WORLD_SIZE")
    return world_size is not None and os.environ.get("LOCAL_WORLD_SIZE", world_size) != world_size


def num_restarts() -> int:
    """Returns how often torchrun has restarted all ranks after a failure."""
    text = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")
    return int(text) if text.isascii() and text.isdecimal() else 0


def is_restarted() -> bool:
    """Whether files in the run's folder come from an earlier start of this job."""
    return num_restarts() > 0
