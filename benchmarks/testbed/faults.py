"""Faults of the training script: a slow loader, pauses, a late rank, uneven batches."""

from __future__ import annotations

import time
import zlib
from dataclasses import dataclass
from typing import Any

import torch.distributed as dist
from torch.utils.data import TensorDataset

LATE_RANK = 1
PAUSED_RANK = 0
PAUSE_PERIOD = 4
_PACKED = zlib.compress(bytes(range(256)) * 1024, 1)


@dataclass(frozen=True, slots=True)
class Fault:
    """A fault by kind: ``loader``, ``storage``, ``pause`` and ``late`` have milliseconds,
    ``uneven`` a share of the batch that moves from the first rank to the last one."""

    kind: str = "none"
    amount: float = 0.0

    @classmethod
    def parse(cls, words: str) -> Fault:
        """Parses ``none``, or a kind and an amount such as ``loader-40``."""
        kind, _, amount = words.partition("-")
        if kind not in ("none", "loader", "storage", "pause", "late", "uneven"):
            raise ValueError(f"no fault {kind!r}")
        return cls(kind, float(amount or 0))

    @property
    def loading_s(self) -> float:
        return self.amount / 1e3 if self.kind == "loader" else 0.0

    @property
    def fetching_s(self) -> float:
        return self.amount / 1e3 if self.kind == "storage" else 0.0

    def batch_share(self, rank: int, num_ranks: int) -> float:
        """Factor of this rank's batch; the factors of all ranks have a mean of 1."""
        if self.kind != "uneven" or num_ranks < 2:
            return 1.0
        return 1.0 + self.amount * (2 * rank / (num_ranks - 1) - 1)

    def before_step(self, step: int) -> None:
        """Delays this rank where the fault says so."""
        rank = dist.get_rank()
        if self.kind == "late" and rank == LATE_RANK:
            time.sleep(self.amount / 1e3)
        if self.kind == "pause" and rank == PAUSED_RANK and step % PAUSE_PERIOD == 0:
            time.sleep(self.amount / 1e3)


NO_FAULT = Fault()


class DecodedDataset(TensorDataset):  # type: ignore[misc]
    """Samples whose batches take ``loading_s`` to decode, as compressed data does, after waiting
    ``fetching_s`` for storage, without the processor."""

    loading_s = 0.0
    fetching_s = 0.0

    def __getitems__(self, indices: list[int]) -> list[Any]:
        time.sleep(self.fetching_s)
        until_s = time.perf_counter() + self.loading_s
        while time.perf_counter() < until_s:
            zlib.decompress(_PACKED)
        return [self[index] for index in indices]
