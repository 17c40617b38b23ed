"""Steps of collectives: the messages of each algorithm, their sizes and their dependencies.

Ranks are positions in their group. ``ring``, ``tree`` and ``halving_doubling`` list the messages of
an all-reduce in an order in which each rank posts them; the same list is timed alone and expanded
into a graph. ``ring_rounds`` and ``tree_levels`` are the topologies that build/collectives/ uses.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from augury.core.errors import UsageError
from augury.core.gloo_segments import ELEMENT_SIZES, segments

TREE_CHUNKS = 8
"""Number of chunks of a tensor that follow each other through a tree."""


class Send(NamedTuple):
    """A message of a collective. Dependencies are indices of earlier messages."""

    src: int
    dst: int
    size_bytes: int
    has: tuple[int, ...]
    """Messages that the sender must have received."""
    room: tuple[int, ...]
    """Messages that the receiver must have received, so that its buffer is free."""
    reduces: bool
    """The receiver adds the message to its own data."""


class RingHop(NamedTuple):
    """A rank passes a chunk to the next rank of a ring."""

    src: int
    dst: int
    chunk: int


Algorithm = Callable[[int, int], list[Send]]
"""Lists the messages of an all-reduce for a size in bytes and a number of ranks."""


def ring_rounds(num_ranks: int, *, lead: int) -> Iterator[list[RingHop]]:
    """Yields the rounds in which every chunk travels once around a ring with one chunk per rank.
    The rank at position i begins with chunk i + ``lead``."""
    for turn in range(num_ranks - 1):
        yield [
            RingHop(rank, (rank + 1) % num_ranks, (rank + lead - turn) % num_ranks)
            for rank in range(num_ranks)
        ]


def tree_parent(node: int) -> int:
    """Returns the parent in a complete binary tree, numbered from the root as in a heap."""
    return (node - 1) // 2


def tree_children(node: int) -> tuple[int, int]:
    return 2 * node + 1, 2 * node + 2


def tree_levels(num_ranks: int) -> list[range]:
    """Returns the nodes below the root, level by level."""
    starts = [(1 << depth) - 1 for depth in range(1, num_ranks.bit_length())]
    return [range(start, min(2 * start + 1, num_ranks)) for start in starts]


def ring(size_bytes: int, num_ranks: int, *, element_bytes: int = ELEMENT_SIZES[0]) -> list[Send]:
    """Lists the messages of gloo's ring: segments go to the previous rank, two of them in flight
    at a time, once around to be summed and once more to distribute the sums."""
    per_rank, segment = segments(size_bytes, num_ranks, element_bytes)
    num_turns = per_rank * (num_ranks - 1)
    sends: list[Send] = []
    last: list[tuple[int, ...]] = [()] * num_ranks
    for reduces in (True, False):
        # Messages that each rank received, by turn, after the last one of the first half.
        received: list[list[tuple[int, ...]]] = [
            [last[rank], last[rank]] for rank in range(num_ranks)
        ]
        for turn in range(num_turns):
            arriving: list[tuple[int, ...]] = [()] * num_ranks
            for rank in range(num_ranks):
                first = (rank + reduces) * per_rank + turn
                offset = first % (per_rank * num_ranks) * segment
                length = min(segment, size_bytes - offset)
                if length > 0:
                    dst = (rank - 1) % num_ranks
                    arriving[dst] = (len(sends),)
                    sends.append(
                        Send(rank, dst, length, received[rank][turn], received[dst][turn], reduces)
                    )
            for rank in range(num_ranks):
                received[rank].append(arriving[rank])
        last = [_newest(received[rank]) for rank in range(num_ranks)]
    return sends


def halving_doubling(size_bytes: int, num_ranks: int) -> list[Send]:
    """Lists the messages of recursive halving, which exchanges and sums half of the remaining data
    with an ever nearer partner, and of recursive doubling, which goes back."""
    if num_ranks & (num_ranks - 1):
        raise UsageError(
            f"halving and doubling needs a power of two as the number of ranks, not {num_ranks}",
            remedy="choose ring or tree",
        )
    sends: list[Send] = []
    had: list[tuple[int, ...]] = [()] * num_ranks
    distances = [num_ranks >> (turn + 1) for turn in range(num_ranks.bit_length() - 1)]
    part = [(distance, True) for distance in distances]
    part += [(distance, False) for distance in reversed(distances)]
    for distance, reduces in part:
        length = -(-size_bytes * distance // num_ranks)
        first = len(sends)
        for rank in range(num_ranks):
            dst = rank ^ distance
            sends.append(Send(rank, dst, length, had[rank], had[dst], reduces))
        had = [(first + (rank ^ distance),) for rank in range(num_ranks)]
    return sends


def tree(size_bytes: int, num_ranks: int) -> list[Send]:
    """Lists the messages of chunks that go up a binary tree to rank 0, and down again."""
    sends: list[Send] = []
    order = range(num_ranks - 1, 0, -1)
    chunk_bytes = -(-size_bytes // TREE_CHUNKS)
    before: dict[tuple[int, int], int] = {}
    for number in range(TREE_CHUNKS):
        length = min(chunk_bytes, size_bytes - number * chunk_bytes)
        if length <= 0:
            break
        came: list[tuple[int, ...]] = [()] * num_ranks
        for rank in order:
            parent = tree_parent(rank)
            sends.append(
                Send(rank, parent, length, came[rank], _of(before, rank, parent), reduces=True)
            )
            before[rank, parent] = len(sends) - 1
            came[parent] += (len(sends) - 1,)
        whole: list[tuple[int, ...]] = [()] * num_ranks
        whole[0] = came[0]
        for rank in range(1, num_ranks):
            parent = tree_parent(rank)
            sends.append(
                Send(parent, rank, length, whole[parent], _of(before, parent, rank), reduces=False)
            )
            before[parent, rank] = len(sends) - 1
            whole[rank] = (len(sends) - 1,)
    return sends


ALGORITHMS: dict[str, Algorithm] = {
    "ring": ring,
    "tree": tree,
    "halving-doubling": halving_doubling,
}


def _of(before: dict[tuple[int, int], int], src: int, dst: int) -> tuple[int, ...]:
    return (before[src, dst],) if (src, dst) in before else ()


def _newest(received: Sequence[tuple[int, ...]]) -> tuple[int, ...]:
    return next((own for own in reversed(received) if own), ())
