"""Orders matched collectives as all ranks ran them, and drops matches that contradict this.

A stream runs one kernel after the other. If two ranks ran two collectives in different orders on
one stream each, both would wait for ever, so one of the two matches is wrong; or a short message
left before it was received, which is no collective step of two ranks.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from heapq import heapify, heappop, heappush
from itertools import pairwise

import numpy as np

from augury.core.ledger import Ledger
from augury.ingest.collectives.matching.collective_sequence import ClockLine
from augury.ingest.collectives.matching.matched_collectives import MatchedCollective
from augury.ingest.collectives.rank_collectives import Collective, note_unmatched

_Node = tuple[int, int]
"""Time of the end, and index of the collective."""


def in_common_order(
    found: Sequence[MatchedCollective],
    lines: Mapping[int, ClockLine],
    ledger: Ledger,
) -> list[MatchedCollective]:
    """Returns the collectives in an order that agrees with all streams of all ranks, else by their
    ends, with places and sequence numbers of that order. Parts that contradict it are dropped and
    counted."""
    order = _StreamOrder(found)
    ends_ns = [_end_ns(one, lines) for one in found]
    ready = [(ends_ns[i], i) for i in range(len(found)) if not order.num_waiting[i]]
    heapify(ready)
    left: list[_Node] = sorted((ends_ns[i], i) for i in range(len(found)))
    done: set[int] = set()
    kept: list[MatchedCollective] = []
    dropped: list[tuple[int, Collective]] = []
    next_left = 0
    while len(done) < len(found):
        if not ready:
            while left[next_left][1] in done:
                next_left += 1
            stuck = left[next_left][1]
            dropped += order.release(stuck, done)
            ready.append(left[next_left])
        _, i = heappop(ready)
        if i in done:
            continue
        done.add(i)
        parts = {rank: item for rank, item in found[i].parts.items() if (i, rank) not in order.cut}
        if parts:
            kept.append(replace(found[i], parts=parts, place=len(kept)))
        for j in order.followers[i]:
            order.num_waiting[j] -= 1
            if not order.num_waiting[j]:
                heappush(ready, (ends_ns[j], j))
    note_unmatched(
        ledger, len(dropped), "ranks ran it and another one of the same stream in different orders"
    )
    return _numbered(kept)


class _StreamOrder:
    """For each collective the ones that follow on a stream of one of its ranks."""

    def __init__(self, found: Sequence[MatchedCollective]) -> None:
        self._found = found
        self.num_waiting = [0] * len(found)
        self.followers: dict[int, list[int]] = defaultdict(list)
        self.cut: set[tuple[int, int]] = set()
        self._before: dict[tuple[int, int], int] = {}
        self._after: dict[tuple[int, int], int] = {}
        on_stream: dict[tuple[int, int], list[tuple[int, int]]] = defaultdict(list)
        for i, one in enumerate(found):
            for rank, item in one.parts.items():
                on_stream[rank, item.stream].append((item.start_ns, i))
        for (rank, _), items in on_stream.items():
            items.sort()
            for (_, i), (_, j) in pairwise(items):
                self.followers[i].append(j)
                self.num_waiting[j] += 1
                self._before[j, rank] = i
                self._after[i, rank] = j

    def release(self, i: int, done: set[int]) -> list[tuple[int, Collective]]:
        """Drops the parts of a collective whose turn on their streams has not come. Those that
        follow on these streams wait for the ones before instead."""
        late = [
            (rank, item)
            for rank, item in self._found[i].parts.items()
            if (i, rank) in self._before and self._before[i, rank] not in done
        ]
        for rank, _ in late:
            self.cut.add((i, rank))
            before, after = self._before.pop((i, rank)), self._after.pop((i, rank), None)
            if after is None:
                del self._after[before, rank]
                continue
            self.followers[i].remove(after)
            self.followers[before].append(after)
            self._before[after, rank] = before
            self._after[before, rank] = after
        return late


def _end_ns(one: MatchedCollective, lines: Mapping[int, ClockLine]) -> int:
    rank, item = next(iter(one.parts.items()))
    line = lines.get(rank, ClockLine(offset_ns=0.0))
    return int(line.to_other(np.array([item.end_ns], dtype=np.int64))[0])


def _numbered(kept: list[MatchedCollective]) -> list[MatchedCollective]:
    next_sequence: dict[int, int] = defaultdict(int)
    result = []
    for one in kept:
        result.append(replace(one, sequence=next_sequence[one.group]))
        next_sequence[one.group] += 1
    return result
