"""DDP's buckets as they were recorded: which gradients travel together, and in which exchange."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass

import numpy as np

from augury.build.recorded.recorded_collectives import RecordedCollective
from augury.core.enums import OpKind
from augury.core.graph.graph import NONE
from augury.core.trace.trace import Trace


@dataclass(frozen=True, slots=True, kw_only=True)
class BucketTable:
    """Of one rank. Gradients are numbered in the order in which backward makes them."""

    group: int
    members: list[list[int]]
    """The gradients of each bucket."""
    names: list[str]
    size_bytes: list[int]
    """Of each gradient."""

    def last_gradient(self, bucket: int) -> int:
        """The one whose arrival sends the bucket off: buckets leave in their order."""
        return max(max(members) for members in self.members[: bucket + 1])


def buckets_of(trace: Trace, rank: int) -> BucketTable:
    gradients = trace.gradients
    rows = np.flatnonzero(gradients.rank == rank)
    rows = rows[np.argsort(gradients.order[rows], kind="stable")]
    members: dict[int, list[int]] = defaultdict(list)
    for position, bucket in enumerate(gradients.bucket[rows].tolist()):
        members[bucket].append(position)
    return BucketTable(
        group=int(gradients.group[rows[0]]) if len(rows) else NONE,
        members=[members[bucket] for bucket in sorted(members)],
        names=[trace.strings[int(name)] for name in gradients.name[rows]],
        size_bytes=gradients.size_bytes[rows].tolist(),
    )


def reductions(
    exchanges: list[RecordedCollective], buckets: dict[int, BucketTable]
) -> dict[int, list[int]]:
    """Of every step: which exchanges carry its buckets, in order. A step in which they do not fit
    is left out, and its exchanges are taken as the program's own."""
    counts = {len(own.members) for own in buckets.values()}
    groups = {own.group for own in buckets.values()}
    if len(counts) != 1 or len(groups) != 1 or counts == {0}:
        return {}
    num_buckets, group = counts.pop(), groups.pop()
    some = next(iter(buckets.values()))
    sizes = [sum(some.size_bytes[i] for i in members) for members in some.members]
    found: dict[int, list[int]] = defaultdict(list)
    for index, exchange in enumerate(exchanges):
        is_whole = buckets.keys() <= exchange.rows.keys()
        if exchange.kind == OpKind.ALL_REDUCE and exchange.group == group and is_whole:
            found[exchange.step].append(index)
    last = {
        # What the program itself reduces before backward comes first.
        step: sorted(indices, key=lambda index: exchanges[index].sequence)[-num_buckets:]
        for step, indices in found.items()
        if len(indices) >= num_buckets
    }
    return {
        step: indices
        for step, indices in last.items()
        if _are_alike([exchanges[index].size_bytes for index in indices], sizes)
    }


def _are_alike(exchanged: list[int], buckets: list[int]) -> bool:
    """Hooks may compress all buckets alike; under a plan something else travels altogether."""
    if not (all(exchanged) and all(buckets)):
        return True  # somebody did not tell
    ratios = [size / bucket for size, bucket in zip(exchanged, buckets, strict=True)]
    return max(ratios) <= 1.01 * min(ratios)
