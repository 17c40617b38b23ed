"""Groups of ranks that communicate, and a stand-in that skips the communication."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import torch
import torch.distributed as dist
from torch import Tensor


class Group(Protocol):
    rank: int
    size: int

    def all_reduce(self, tensor: Tensor) -> None:
        """Sums in place."""

    def all_gather(self, piece: Tensor, dim: int) -> Tensor:
        """Concatenates pieces of equal shape."""

    def swap(self, to_before: Tensor, to_after: Tensor) -> tuple[Tensor, Tensor]:
        """Exchanges with the previous and the next rank; zeros where there is no neighbour."""


class Ranks:
    """A group of torch.distributed, given by global ranks."""

    def __init__(self, ranks: Sequence[int], handle: Any) -> None:
        self._ranks, self.handle = list(ranks), handle
        self.rank, self.size = self._ranks.index(dist.get_rank()), len(self._ranks)

    def all_reduce(self, tensor: Tensor) -> None:
        dist.all_reduce(tensor, group=self.handle)

    def all_gather(self, piece: Tensor, dim: int) -> Tensor:
        pieces = [torch.empty_like(piece) for _ in range(self.size)]
        dist.all_gather(pieces, piece, group=self.handle)
        return torch.cat(pieces, dim)

    def swap(self, to_before: Tensor, to_after: Tensor) -> tuple[Tensor, Tensor]:
        from_before, from_after = torch.zeros_like(to_after), torch.zeros_like(to_before)
        under_way = []
        for step, sent, received in ((-1, to_before, from_before), (1, to_after, from_after)):
            if not 0 <= self.rank + step < self.size:
                continue
            other = self._ranks[self.rank + step]
            if received.numel():
                under_way.append(dist.irecv(received, other, group=self.handle))
            if sent.numel():
                under_way.append(dist.isend(sent, other, group=self.handle))
        for work in under_way:
            work.wait()
        return from_before, from_after


@dataclass
class Alone:
    """One process in place of a rank: the same layers and copies, no communication."""

    rank: int
    size: int

    def all_reduce(self, tensor: Tensor) -> None: ...

    def all_gather(self, piece: Tensor, dim: int) -> Tensor:
        return torch.cat([piece] * self.size, dim)

    def swap(self, to_before: Tensor, to_after: Tensor) -> tuple[Tensor, Tensor]:
        return torch.zeros_like(to_after), torch.zeros_like(to_before)


@dataclass(frozen=True, kw_only=True)
class Mesh:
    """All ranks; and, if their number is even, pairs of neighbours and the groups of equal position
    across pairs."""

    world: Group
    pair: Group
    across: Group

    @classmethod
    def of_world(cls) -> Mesh:
        """Creates all groups; a collective call: all ranks create them in the same order."""
        size, rank = dist.get_world_size(), dist.get_rank()
        pairs = [[first, first + 1] for first in range(0, size, 2)]
        across = [list(range(place, size, 2)) for place in range(2)]
        made = {tuple(ranks): dist.new_group(ranks) for ranks in (*pairs, *across)}
        own = [ranks for ranks in made if rank in ranks]
        pair, others = own[0], own[-1]
        return cls(
            world=Ranks(range(size), dist.group.WORLD),
            pair=Ranks(pair, made[pair]),
            across=Ranks(others, made[others]),
        )

    @classmethod
    def alone(cls, rank: int, size: int) -> Mesh:
        """A mesh in place of one of ``size`` ranks."""
        return cls(
            world=Alone(rank, size),
            pair=Alone(rank % 2, 2),
            across=Alone(rank // 2, size // 2),
        )
