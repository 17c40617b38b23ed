"""When a rank asked for a collective: seen in detail windows, inferred in light ones."""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Sequence

import numpy as np

from augury.core.enums import OpKind
from augury.core.trace.rank_record import RecordedDdp
from augury.ingest.collectives.calls import Collective, num_elements
from augury.ingest.formats.kineto import KinetoTrace
from augury.ingest.rank.event_names import ACCUMULATE, collective_kind


def from_launches(collectives: list[Collective], trace: KinetoTrace, step: Sequence[int]) -> None:
    """``c10d::`` operations launch; gloo takes what was launched in order."""
    launches: dict[tuple[int, OpKind], list[int]] = defaultdict(list)
    for i in sorted(trace.named("c10d::"), key=trace.start_ns.__getitem__):
        kind = collective_kind(trace.name[i])
        if kind is not None:
            launches[step[i], kind].append(i)
    by_kind: dict[tuple[int, OpKind], list[Collective]] = defaultdict(list)
    for item in collectives:
        by_kind[item.step, item.kind].append(item)
    for key, items in by_kind.items():
        rows = launches.get(key, [])
        if len(rows) != len(items):
            continue
        for item, row in zip(items, rows, strict=True):
            item.cause = row
            item.arrival_ns = min(int(trace.start_ns[row]), item.start_ns)


def in_order_of_launch(collectives: list[Collective], trace: KinetoTrace) -> list[Collective]:
    """As they were asked for, which is the same order on all ranks.

    Gloo's threads take them in that order, but the one that took the first may be the last to say
    that it began: sizes tell which is which, where launches were recorded. ``collectives`` come in
    order of their starts; those of which no launch is known keep their places."""
    launched: dict[tuple[OpKind, int], deque[int]] = defaultdict(deque)
    for row in sorted(trace.named("c10d::"), key=trace.start_ns.__getitem__):
        kind = collective_kind(trace.name[row])
        if kind is not None:
            launched[kind, num_elements(trace.args[row])].append(int(trace.start_ns[row]))
    asked_ns: dict[int, int] = {}
    for place, item in enumerate(collectives):
        launches = launched[item.kind, num_elements(trace.args[item.row])]
        if launches and launches[0] <= item.start_ns:
            asked_ns[place] = launches.popleft()
    result = list(collectives)
    by_launch = sorted(asked_ns, key=asked_ns.__getitem__)
    for place, number in zip(asked_ns, by_launch, strict=True):
        result[place] = collectives[number]
    return result


def from_gradients(
    collectives: list[Collective],
    trace: KinetoTrace,
    nodes: list[tuple[int, int]],
    ddp: list[RecordedDdp],
) -> None:
    """A bucket is launched by the hook of its last gradient: after that one was accumulated and
    before the main thread goes on with the next node. ``nodes`` are (step, row) of backward nodes
    in order of time."""
    order = ready_order(ddp)
    last_of = last_gradient_of_buckets(ddp)
    if not order or not last_of:
        return
    accumulated: dict[int, list[int]] = defaultdict(list)
    followed_by: dict[int, int] = {}
    for i, (step, row) in enumerate(nodes):
        if trace.name[row] == ACCUMULATE:
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
        launched = 0
        for i, item in enumerate(items):
            at_pass = i // len(last_of)
            row = rows[at_pass * len(order) + last_of[item.bucket]]
            earliest = int(trace.start_ns[row] + trace.dur_ns[row])
            after = followed_by.get(row)
            latest = item.start_ns if after is None else int(trace.start_ns[after])
            # Buckets are launched in their order, however their gradients come.
            launched = max(launched, earliest, min(item.start_ns, latest))
            item.arrival_ns = min(launched, item.start_ns)


def ready_order(ddp: list[RecordedDdp]) -> list[tuple[int, int]]:
    """(instance, parameter) in the order in which backward makes gradients."""
    result = []
    for number, one in enumerate(ddp):
        count = len(one.parameters)
        order = [i for i in one.ready_order if 0 <= i < count]
        if len(set(order)) != len(order) or not order:
            order = [i for bucket in one.buckets for i in bucket.parameters if 0 <= i < count]
        result += [(number, i) for i in order]
    return result


def last_gradient_of_buckets(ddp: list[RecordedDdp]) -> list[int]:
    """For each bucket, the place in the ready order of its last gradient."""
    place = {key: at for at, key in enumerate(ready_order(ddp))}
    result = []
    for number, one in enumerate(ddp):
        for bucket in one.buckets:
            places = [place[number, i] for i in bucket.parameters if (number, i) in place]
            if not places:
                return []
            result.append(int(np.max(places)))
    return result
