"""Buckets of gradients as recorded, and the collectives that carry them."""

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
    """Buckets of one rank. Gradients are numbered in the order in which backward makes them."""

    group: int
    members: list[list[int]]
    """Gradients of each bucket."""
    names: list[str]
    size_bytes: list[int]
    """Size of each gradient."""

    def last_gradient(self, bucket: int) -> int:
        """Returns the gradient that starts the reduction of a bucket: buckets leave in order, so it
        is the last gradient of this bucket and all before it."""
        return max(max(members) for members in self.members[: bucket + 1])


def buckets_of(trace: Trace, rank: int) -> BucketTable:
    """Returns the recorded buckets of a rank."""
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
    collectives: list[RecordedCollective], buckets: dict[int, BucketTable]
) -> dict[int, list[int]]:
    """Returns the collectives that carry the buckets of each step, in order. A step whose
    collectives do not match the buckets is left out: its collectives count as the program's own."""
    counts = {len(own.members) for own in buckets.values()}
    groups = {own.group for own in buckets.values()}
    if len(counts) != 1 or len(groups) != 1 or counts == {0}:
        return {}
    num_buckets, group = counts.pop(), groups.pop()
    some = next(iter(buckets.values()))
    sizes = [sum(some.size_bytes[i] for i in members) for members in some.members]
    found: dict[int, list[int]] = defaultdict(list)
    for index, one in enumerate(collectives):
        is_whole = buckets.keys() <= one.rows.keys()
        if one.kind == OpKind.ALL_REDUCE and one.group == group and is_whole:
            found[one.step].append(index)
    in_order = {
        step: sorted(indices, key=lambda index: collectives[index].sequence)
        for step, indices in found.items()
    }
    return {
        step: indices[at : at + num_buckets]
        for step, indices in in_order.items()
        if (at := _place_of(sizes, [collectives[i].size_bytes for i in indices])) is not None
    }


def earlier_reductions(
    collectives: list[RecordedCollective], carrying: dict[int, list[int]]
) -> dict[int, list[list[int]]]:
    """Returns the collectives that carried the buckets of earlier backwards of each step, the
    latest backward first: without ``no_sync``, DDP reduces the gradients of every micro-batch.
    ``carrying`` are those of the last backward. Unknown sizes are not compared."""
    groups = {collectives[own[0]].group for own in carrying.values()}
    before: dict[int, list[int]] = defaultdict(list)
    for index, one in enumerate(collectives):
        is_alike = one.kind == OpKind.ALL_REDUCE and one.group in groups
        if is_alike and one.step in carrying:
            before[one.step].append(index)
    found: dict[int, list[list[int]]] = {}
    for step, last in carrying.items():
        sizes = [collectives[i].size_bytes for i in last]
        first = collectives[last[0]].sequence
        indices = sorted(
            (i for i in before[step] if collectives[i].sequence < first),
            key=lambda index: collectives[index].sequence,
        )
        end, own = len(indices), []
        while all(sizes) and end >= len(sizes):
            some = indices[end - len(sizes) : end]
            is_backward = [collectives[i].size_bytes for i in some] == sizes
            if is_backward:
                own.append(some)
            end -= len(sizes) if is_backward else 1
        found[step] = own
    return found


def _place_of(buckets: list[int], exchanged: list[int]) -> int | None:
    """Returns the place at which the buckets begin among the sizes that a step exchanged: the last
    one that fits. The program's own reductions precede backward; DDP sends a map of the used
    parameters after the buckets if some may be unused."""
    num_buckets = len(buckets)
    places = range(len(exchanged) - num_buckets, -1, -1)
    exact = (at for at in places if exchanged[at : at + num_buckets] == buckets)
    alike = (at for at in places if _are_alike(exchanged[at : at + num_buckets], buckets))
    return next(exact, next(alike, None))


def _are_alike(exchanged: list[int], buckets: list[int]) -> bool:
    """Tells whether sizes agree up to a common factor: hooks may compress all buckets alike. Under
    a plan, pieces of other sizes are sent."""
    if not (all(exchanged) and all(buckets)):
        return True  # a size was not recorded
    ratios = [size / bucket for size, bucket in zip(exchanged, buckets, strict=True)]
    return max(ratios) <= 1.01 * min(ratios)
