"""Recorded collectives and messages, with the times that each member recorded."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from augury.core.enums import OpKind, are_communication
from augury.core.graph.graph import NONE
from augury.core.trace.trace import Trace
from augury.core.vocabulary.torch import GLOO_THREADS

Awaited = dict[tuple[int, int], int]
"""Index of a collective, by group and sequence."""

SAME_MOMENT = 0.05
"""Overlap as a share of a collective's time that is attributed to inexact time stamps."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedCollective:
    """One collective or message. The spans of its members include the wait for the last one; all
    progress from the latest start to the earliest end."""

    kind: OpKind
    name: str
    group: int
    sequence: int
    step: int
    size_bytes: int
    rows: dict[int, int]
    """The event of each member rank."""
    arrival_ns: dict[int, int]
    """Time of the call on each member rank."""
    start_ns: dict[int, int]
    end_ns: dict[int, int]
    """Start and end on each member rank."""

    @property
    def is_message(self) -> bool:
        """Whether one rank sends it to another, which only waits for it."""
        return self.kind == OpKind.SEND and len(self.rows) == 1

    @property
    def is_collective(self) -> bool:
        """Whether all members call it in the same order, the order of sequence numbers."""
        return self.kind not in (OpKind.SEND, OpKind.RECV)

    @property
    def begin_ns(self) -> int:
        """Time from which all members progress."""
        return min(max(self.start_ns.values()), self.done_ns)

    @property
    def done_ns(self) -> int:
        """Time until which all members progress."""
        return min(self.end_ns.values())


def collectives_of(trace: Trace, steps: set[int], ranks: set[int]) -> list[RecordedCollective]:
    """Returns the collectives of these steps and ranks in the order in which they began, those of
    one group and step in the order of their calls. Members without a record are left out."""
    events = trace.events
    found: dict[tuple[int, int], list[int]] = defaultdict(list)
    is_communication = are_communication(events.kind)
    for row in np.flatnonzero(is_communication & (events.group != NONE)).tolist():
        if (
            int(events.step[row]) in steps
            and int(events.rank[row]) in ranks
            and events.sequence[row] != NONE
        ):
            found[int(events.group[row]), int(events.sequence[row])].append(row)
    collectives = [
        _collective(trace, group, sequence, rows) for (group, sequence), rows in found.items()
    ]
    collectives.sort(key=lambda one: (one.step, one.begin_ns))
    places: dict[tuple[int, int], list[int]] = defaultdict(list)
    for place, one in enumerate(collectives):
        if one.is_collective:
            places[one.group, one.step].append(place)
    ordered = list(collectives)
    for own in places.values():
        asked = sorted(own, key=lambda place: collectives[place].sequence)
        for place, other in zip(own, asked, strict=True):
            ordered[place] = collectives[other]
    return ordered


def _collective(trace: Trace, group: int, sequence: int, rows: list[int]) -> RecordedCollective:
    events = trace.events
    of_rank = {int(events.rank[row]): row for row in rows}
    first = rows[0]
    return RecordedCollective(
        kind=OpKind(int(events.kind[first])),
        name=trace.name(first),
        group=group,
        sequence=sequence,
        step=int(events.step[first]),
        size_bytes=max(0, int(events.size_bytes[rows].max())),
        rows=of_rank,
        arrival_ns={
            rank: int(min(events.arrival_ns[row], events.start_ns[row]))
            for rank, row in of_rank.items()
        },
        start_ns={rank: int(events.start_ns[row]) for rank, row in of_rank.items()},
        end_ns={
            rank: int(events.start_ns[row] + events.dur_ns[row]) for rank, row in of_rank.items()
        },
    )


def concurrent_transfers(collectives: Sequence[RecordedCollective]) -> dict[int, int]:
    """Returns the number of collectives that each group runs at a time. Groups have gloo's default
    number of threads; a group has one if collectives were called while another was in flight, and
    always began after it had ended."""
    of_place: dict[tuple[int, int], list[tuple[int, int, int]]] = defaultdict(list)
    for one in collectives:
        for rank in one.rows:
            of_place[one.group, rank].append(
                (one.start_ns[rank], one.end_ns[rank], one.arrival_ns[rank])
            )
    has_waited: set[int] = set()
    has_shared: set[int] = set()
    for (group, _), spans in of_place.items():
        spans.sort()
        for (start_ns, end_ns, _), (next_ns, _, called_ns) in pairwise(spans):
            if next_ns < end_ns - SAME_MOMENT * (end_ns - start_ns):
                has_shared.add(group)
            elif called_ns < end_ns:
                has_waited.add(group)
    in_line = {one.group for one in collectives if one.is_message}
    return {
        one.group: 1 if one.group in in_line | (has_waited - has_shared) else GLOO_THREADS
        for one in collectives
    }


def second_halves(trace: Trace, collectives: Sequence[RecordedCollective]) -> dict[int, int]:
    """Returns, for each all-gather of a plan, the collective whose sums it gathers: the first of
    its step that is as large and was not gathered yet. Communication threads call the all-gather
    when that one has ended, independently of the main thread."""
    groups = {group for facts in trace.ranks for group in facts.piece_groups}
    firsts: dict[tuple[int, int, int], list[int]] = defaultdict(list)
    found: dict[int, int] = {}
    for key, one in enumerate(collectives):
        if one.group not in groups:
            continue
        place = one.group, one.step, one.size_bytes
        if one.kind in (OpKind.ALL_TO_ALL, OpKind.REDUCE_SCATTER):
            firsts[place].append(key)
        elif one.kind == OpKind.ALL_GATHER and firsts[place]:
            found[key] = firsts[place].pop(0)
    return found


def awaited_of(
    trace: Trace, collectives: Sequence[RecordedCollective], steps: Sequence[int]
) -> Awaited:
    """Returns the collectives that main threads may wait for. The first step of a window may wait,
    without a barrier, for messages of a step that is not among ``steps``. The messages of the last
    timed step before it stand for those: no other step waits for them."""
    found = {(one.group, one.sequence): key for key, one in enumerate(collectives)}
    at_place: dict[tuple[int, int], list[int]] = defaultdict(list)
    for key in sorted(range(len(collectives)), key=lambda key: collectives[key].sequence):
        at_place[collectives[key].group, collectives[key].step].append(key)
    before = dict(pairwise(reversed(steps)))
    elsewhere = _sent_elsewhere(trace, {*found})
    for step in steps:
        earlier = before.get(step)
        for (group, sent_in), names in elsewhere.items():
            if earlier is None or not earlier < sent_in < step:
                continue
            stands_for = at_place[group, earlier]
            if len(stands_for) == len(names):
                for name, key in zip(sorted(names), stands_for, strict=True):
                    found.setdefault(name, key)
    return found


def _sent_elsewhere(
    trace: Trace, known: set[tuple[int, int]]
) -> dict[tuple[int, int], set[tuple[int, int]]]:
    """Returns groups and sequences of communication that is not ``known``, by group and step."""
    events = trace.events
    found: dict[tuple[int, int], set[tuple[int, int]]] = defaultdict(set)
    sent = are_communication(events.kind) & (events.group != NONE) & (events.sequence != NONE)
    for row in np.flatnonzero(sent).tolist():
        name = int(events.group[row]), int(events.sequence[row])
        if name not in known:
            found[name[0], int(events.step[row])].add(name)
    return found
