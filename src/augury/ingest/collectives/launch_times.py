"""Launch times of collectives that host threads run: from launch events, or from gradients.

Detail windows contain the operators that launch collectives. In light windows the launch of a DDP
bucket is inferred from the accumulation of its last gradient. Kernels have a launch of their own
and are left alone.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Sequence

import numpy as np

from augury.core.enums import OpKind
from augury.core.trace.rank_record import RecordedDdp
from augury.core.vocabulary.torch import ACCUMULATES_GRADIENT
from augury.ingest.collectives.rank_collectives import Collective, num_elements
from augury.ingest.formats.kineto import KinetoTrace
from augury.ingest.vocabulary.torch import COLLECTIVE_LAUNCH, collective_kind


def from_launches(collectives: list[Collective], trace: KinetoTrace, step: Sequence[int]) -> None:
    """Assigns launch operators to collectives in order: gloo's queue is first in, first out."""
    launches: dict[tuple[int, OpKind], list[int]] = defaultdict(list)
    for i in sorted(trace.named(COLLECTIVE_LAUNCH), key=trace.start_ns.__getitem__):
        kind = collective_kind(trace.name[i])
        if kind is not None:
            launches[step[i], kind].append(i)
    by_kind: dict[tuple[int, OpKind], list[Collective]] = defaultdict(list)
    for item in collectives:
        if not item.is_on_device:
            by_kind[item.step, item.kind].append(item)
    for key, items in by_kind.items():
        rows = launches.get(key, [])
        if len(rows) != len(items):
            continue
        for item, row in zip(items, rows, strict=True):
            item.cause = row
            item.arrival_ns = min(int(trace.start_ns[row]), item.start_ns)


def in_order_of_launch(collectives: list[Collective], trace: KinetoTrace) -> list[Collective]:
    """Sorts collectives by their launches, whose order is the same on all ranks.

    Gloo's threads take collectives in that order, but the thread of the first may be the last to
    record its start; sizes tell them apart where launches were recorded. ``collectives`` are in
    order of their starts; those without a known launch keep their places."""
    launched: dict[tuple[OpKind, int], deque[int]] = defaultdict(deque)
    for row in sorted(trace.named(COLLECTIVE_LAUNCH), key=trace.start_ns.__getitem__):
        kind = collective_kind(trace.name[row])
        if kind is not None:
            launched[kind, num_elements(trace.args[row])].append(int(trace.start_ns[row]))
    launch_ns: dict[int, int] = {}
    for place, item in enumerate(collectives):
        if item.is_on_device:
            continue
        launches = launched[item.kind, num_elements(trace.args[item.row])]
        if launches and launches[0] <= item.start_ns:
            launch_ns[place] = launches.popleft()
    result = list(collectives)
    by_launch = sorted(launch_ns, key=launch_ns.__getitem__)
    for place, number in zip(launch_ns, by_launch, strict=True):
        result[place] = collectives[number]
    return result


def from_gradients(
    collectives: list[Collective],
    trace: KinetoTrace,
    nodes: list[tuple[int, int]],
    ddp: list[RecordedDdp],
) -> None:
    """Infers launches from gradients. The hook of a bucket's last gradient launches the bucket:
    after the accumulation of that gradient, before the main thread starts the next node.
    ``nodes`` are (step, row) of backward nodes in order of time."""
    order = ready_order(ddp)
    last_of = last_gradient_of_buckets(ddp)
    if not order or not last_of:
        return
    accumulated: dict[int, list[int]] = defaultdict(list)
    followed_by: dict[int, int] = {}
    for i, (step, row) in enumerate(nodes):
        if trace.name[row] == ACCUMULATES_GRADIENT:
            accumulated[step].append(row)
        if i + 1 < len(nodes) and nodes[i + 1][0] == step:
            followed_by[row] = nodes[i + 1][1]
    buckets: dict[int, list[Collective]] = defaultdict(list)
    for item in collectives:
        if item.bucket >= 0:
            buckets[item.step].append(item)
    for step, items in buckets.items():
        rows = accumulated[step]
        num_passes, rest = divmod(len(items), len(last_of))
        if rest or len(rows) % len(order) or len(rows) < num_passes * len(order):
            continue
        # Passes without synchronisation come first.
        rows = rows[len(rows) - num_passes * len(order) :]
        launched_ns = 0
        for i, item in enumerate(items):
            in_pass = i // len(last_of)
            row = rows[in_pass * len(order) + last_of[item.bucket]]
            earliest_ns = int(trace.start_ns[row] + trace.dur_ns[row])
            after = followed_by.get(row)
            latest_ns = item.start_ns if after is None else int(trace.start_ns[after])
            # Buckets are launched in their order, in whatever order their gradients are ready.
            launched_ns = max(launched_ns, earliest_ns, min(item.start_ns, latest_ns))
            item.arrival_ns = min(launched_ns, item.start_ns)


def ready_order(ddp: list[RecordedDdp]) -> list[tuple[int, int]]:
    """Returns (instance, parameter) in the order in which backward computes gradients."""
    result = []
    for number, one in enumerate(ddp):
        count = len(one.parameters)
        order = [i for i in one.ready_order if 0 <= i < count]
        if len(set(order)) != len(order) or not order:
            order = [i for bucket in one.buckets for i in bucket.parameters if 0 <= i < count]
        result += [(number, i) for i in order]
    return result


def last_gradient_of_buckets(ddp: list[RecordedDdp]) -> list[int]:
    """Returns, for each bucket, the position of its last gradient in the ready order."""
    position = {key: i for i, key in enumerate(ready_order(ddp))}
    result = []
    for number, one in enumerate(ddp):
        for bucket in one.buckets:
            positions = [position[number, i] for i in bucket.parameters if (number, i) in position]
            if not positions:
                return []
            result.append(int(np.max(positions)))
    return result
