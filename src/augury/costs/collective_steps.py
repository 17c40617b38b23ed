"""What an all-reduce is made of: who sends how much to whom, and what must have come before.

Pure lists, in an order in which each rank posts them: the same one is timed alone and expanded
into a graph. Ranks are positions in their group.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from augury.core.errors import UsageError
from augury.core.gloo_segments import ELEMENT_SIZES, segments


class Send(NamedTuple):
    """``has``: earlier ones that the sender must have taken in; ``room``: those that the receiver
    must have. ``reduces``: what arrives is added to what is there."""

    src: int
    dst: int
    size_bytes: int
    has: tuple[int, ...]
    room: tuple[int, ...]
    reduces: bool


Algorithm = Callable[[int, int], list[Send]]
"""Of the bytes that every rank contributes and the number of ranks."""


def ring(size_bytes: int, num_ranks: int, *, element_bytes: int = ELEMENT_SIZES[0]) -> list[Send]:
    """As gloo does it: segment behind segment to the rank before, two of them under way at a
    time; once around to add up, once more to tell the sums."""
    per_rank, segment = segments(size_bytes, num_ranks, element_bytes)
    num_turns = per_rank * (num_ranks - 1)
    sends: list[Send] = []
    last: list[tuple[int, ...]] = [()] * num_ranks
    for reduces in (True, False):
        # What each rank took in, turn by turn; before them stands the end of the first half.
        taken: list[list[tuple[int, ...]]] = [[last[rank], last[rank]] for rank in range(num_ranks)]
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
                        Send(rank, dst, length, taken[rank][turn], taken[dst][turn], reduces)
                    )
            for rank in range(num_ranks):
                taken[rank].append(arriving[rank])
        last = [_newest(taken[rank]) for rank in range(num_ranks)]
    return sends


def halving_doubling(size_bytes: int, num_ranks: int) -> list[Send]:
    """With a partner ever nearer half of what is left is swapped and added up; then back."""
    if num_ranks & (num_ranks - 1):
        raise UsageError(
            f"halving and doubling needs 2, 4, 8, ... ranks, and there are {num_ranks}",
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


TREE_CHUNKS = 8


def tree(size_bytes: int, num_ranks: int) -> list[Send]:
    """Chunk behind chunk up a binary tree to the first rank, and down again."""
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
            parent = (rank - 1) // 2
            sends.append(
                Send(rank, parent, length, came[rank], _of(before, rank, parent), reduces=True)
            )
            before[rank, parent] = len(sends) - 1
            came[parent] += (len(sends) - 1,)
        whole: list[tuple[int, ...]] = [()] * num_ranks
        whole[0] = came[0]
        for rank in range(1, num_ranks):
            parent = (rank - 1) // 2
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


def _newest(taken: Sequence[tuple[int, ...]]) -> tuple[int, ...]:
    return next((own for own in reversed(taken) if own), ())
