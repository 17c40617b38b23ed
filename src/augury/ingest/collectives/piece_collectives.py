"""Python's calls for the collectives that carry pieces of a plan: the step that each belongs to,
and when those ran that left no event.

The main thread asks for a piece when its gradients are there. The second half of a piece is asked
for when the first has arrived, by one of gloo's own threads: the profiler does not watch that
thread and records no event, and the next step may have begun by then on one rank and not on
another.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise

import numpy as np

from augury.core.enums import OpKind
from augury.core.trace.rank_record import RankRecord, RecordedCall
from augury.ingest.collectives.calls import Collective
from augury.ingest.rank.event_names import collective_kind

BLOCKED_NS = 20_000
"""A wait that took less found that its collective had ended before."""

Typical = Mapping[OpKind, float]
"""How long collectives of each kind take, in ns."""


def is_piece(record: RankRecord, call: RecordedCall) -> bool:
    return record.pieces is not None and call.group in record.pieces.groups


def step_of_piece(call: RecordedCall, backward_ns: Mapping[int, int]) -> int | None:
    """The step whose backward made the gradients, of those in ``backward_ns``: when the first
    backward of each step of a window began. The pieces of a step have all arrived when the next
    backward begins. None: the piece is of a step before the window."""
    steps = sorted(backward_ns, key=backward_ns.__getitem__)
    place = bisect_right([backward_ns[step] for step in steps], call.start_ns)
    return steps[place - 1] if place else None


def spans_of_unseen(
    calls: Sequence[RecordedCall], seen: Sequence[Collective]
) -> dict[RecordedCall, tuple[int, int]]:
    """When the collectives of ``calls``, of which there are no events, began and ended. ``seen``
    are those of the same rank that have both a call and an event. One that the program had to wait
    for ended with the wait; others take as long as is usual for their kind, and had ended when the
    program asked for them."""
    found: dict[RecordedCall, tuple[int, int]] = {}
    for group in {call.group for call in calls}:
        own = [call for call in calls if call.group == group]
        known = {
            item.call: (item.start_ns, item.end_ns)
            for item in seen
            if item.call is not None and item.call.group == group
        }
        blocked = {call for call in own if _has_blocked(call)}
        first = _spans(own, known, {})
        sure = known | {call: span for call, span in first.items() if call in blocked}
        found |= _spans(own, known, _typical(sure))
    return found


def _spans(
    calls: Sequence[RecordedCall], known: Mapping[RecordedCall, tuple[int, int]], typical: Typical
) -> dict[RecordedCall, tuple[int, int]]:
    has_one_thread = not _overlap(known.values())
    found: dict[RecordedCall, tuple[int, int]] = {}
    free_ns = 0
    for call in sorted({*known, *calls}, key=lambda call: call.start_ns):
        if call in known:
            free_ns = max(free_ns, known[call][1])
            continue
        start_ns = max(call.start_ns, free_ns if has_one_thread else 0)
        if call.waited_until_ns:
            start_ns = min(start_ns, max(call.waited_until_ns, call.start_ns))
        end_ns = max(_end_ns(call, start_ns, typical), start_ns)
        found[call] = start_ns, end_ns
        free_ns = max(free_ns, end_ns)
    return found


def _end_ns(call: RecordedCall, start_ns: int, typical: Typical) -> int:
    if _has_blocked(call):
        return call.waited_until_ns
    usual_ns = typical.get(_kind(call))
    latest_ns = call.waited_from_ns or None
    if usual_ns is None:
        return call.end_ns if latest_ns is None else latest_ns
    end_ns = start_ns + round(usual_ns)
    return end_ns if latest_ns is None else min(end_ns, latest_ns)


def _typical(spans: Mapping[RecordedCall, tuple[int, int]]) -> Typical:
    of_kind: dict[OpKind, list[int]] = defaultdict(list)
    for call, (start_ns, end_ns) in spans.items():
        of_kind[_kind(call)].append(end_ns - start_ns)
    return {kind: float(np.median(times)) for kind, times in of_kind.items()}


def _has_blocked(call: RecordedCall) -> bool:
    return call.waited_until_ns - call.waited_from_ns > BLOCKED_NS


def _kind(call: RecordedCall) -> OpKind:
    return collective_kind(call.kind) or OpKind.OTHER


def _overlap(spans: Iterable[tuple[int, int]]) -> bool:
    return any(start_ns < end_ns for (_, end_ns), (start_ns, _) in pairwise(sorted(spans)))
