"""Step and duration of the collectives that carry pieces of a plan.

The main thread launches a piece when its gradients are ready. One of gloo's threads launches the
second half of a piece when the first half has arrived. The profiler does not watch that thread, so
there is no event; and the next step may have begun on one rank and not on another.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise

import numpy as np

from augury.core.enums import OpKind
from augury.core.trace.rank_record import RankRecord, RecordedCall
from augury.ingest.collectives.rank_collectives import Collective
from augury.ingest.vocabulary.torch import collective_kind

BLOCKED_NS = 20_000
"""After a shorter wait the collective had ended before."""

Typical = Mapping[OpKind, float]
"""Typical duration in ns of collectives by kind."""


def is_piece(record: RankRecord, call: RecordedCall) -> bool:
    return record.pieces is not None and call.group in record.pieces.groups


def step_of_piece(call: RecordedCall, backward_ns: Mapping[int, int]) -> int | None:
    """Returns the step whose backward computed the gradients; None for a step before the window.
    ``backward_ns`` has the start of backward of each step. All pieces of a step have arrived when
    the next backward begins."""
    steps = sorted(backward_ns, key=backward_ns.__getitem__)
    place = bisect_right([backward_ns[step] for step in steps], call.start_ns)
    return steps[place - 1] if place else None


def spans_without_events(
    calls: Sequence[RecordedCall], seen: Sequence[Collective]
) -> dict[RecordedCall, tuple[int, int]]:
    """Estimates start and end of collectives without events. ``seen`` are collectives of the same
    rank with call and event. A collective that blocked the program ended with the wait. Others take
    as long as is typical for their kind, and ended before the program waited for them."""
    found: dict[RecordedCall, tuple[int, int]] = {}
    for group in {call.group for call in calls}:
        own = [call for call in calls if call.group == group]
        known = {
            item.call: (item.start_ns, item.end_ns)
            for item in seen
            if item.call is not None and item.call.group == group
        }
        blocked = {call for call in own if _blocked(call)}
        first = _spans(own, known, {})
        certain = known | {call: span for call, span in first.items() if call in blocked}
        found |= _spans(own, known, _typical(certain))
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
    if _blocked(call):
        return call.waited_until_ns
    typical_ns = typical.get(_kind(call))
    latest_ns = call.waited_from_ns or None
    if typical_ns is None:
        return call.end_ns if latest_ns is None else latest_ns
    end_ns = start_ns + round(typical_ns)
    return end_ns if latest_ns is None else min(end_ns, latest_ns)


def _typical(spans: Mapping[RecordedCall, tuple[int, int]]) -> Typical:
    by_kind: dict[OpKind, list[int]] = defaultdict(list)
    for call, (start_ns, end_ns) in spans.items():
        by_kind[_kind(call)].append(end_ns - start_ns)
    return {kind: float(np.median(times)) for kind, times in by_kind.items()}


def _blocked(call: RecordedCall) -> bool:
    return call.waited_until_ns - call.waited_from_ns > BLOCKED_NS


def _kind(call: RecordedCall) -> OpKind:
    return collective_kind(call.kind) or OpKind.OTHER


def _overlap(spans: Iterable[tuple[int, int]]) -> bool:
    return any(start_ns < end_ns for (_, end_ns), (start_ns, _) in pairwise(sorted(spans)))
