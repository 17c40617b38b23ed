"""Recorded collectives, each with what every member saw of it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from augury.core.enums import OpKind, are_communication
from augury.core.graph.graph import NONE
from augury.core.trace.trace import Trace

Awaited = dict[tuple[int, int], tuple[int, "RecordedCollective"]]
TRANSFERS_AT_ONCE = 2
"""Gloo's threads per process group; what they send at the same time shares the link."""

SAME_MOMENT = 0.05
"""Of an exchange's time: what overlaps by less does not, but for who noted it when."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedCollective:
    """One collective. Its members' spans include waiting for the last one; all progress from the
    latest start to the earliest end."""

    kind: OpKind
    name: str
    group: int
    sequence: int
    step: int
    size_bytes: int
    rows: dict[int, int]
    """The event of each member rank."""
    arrival_ns: dict[int, int]
    """When each member asked for it."""
    start_ns: dict[int, int]
    end_ns: dict[int, int]

    @property
    def is_message(self) -> bool:
        """Sent by one rank to another that only waits for it."""
        return self.kind == OpKind.SEND and len(self.rows) == 1

    @property
    def is_collective(self) -> bool:
        """All members ask for such in the same order, which is that of the sequence."""
        return self.kind not in (OpKind.SEND, OpKind.RECV)

    @property
    def begin_ns(self) -> int:
        return min(max(self.start_ns.values()), self.done_ns)

    @property
    def done_ns(self) -> int:
        return min(self.end_ns.values())


def exchanges_of(trace: Trace, steps: set[int], ranks: set[int]) -> list[RecordedCollective]:
    """Of these steps and ranks, in the order in which they began, but collectives of one group in
    the order in which they were asked for; a collective of which a member left no record stands
    with the members that did."""
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
    exchanges = [
        _exchange(trace, group, sequence, rows) for (group, sequence), rows in found.items()
    ]
    exchanges.sort(key=lambda exchange: (exchange.step, exchange.begin_ns))
    places: dict[tuple[int, int], list[int]] = defaultdict(list)
    for place, exchange in enumerate(exchanges):
        if exchange.is_collective:
            places[exchange.group, exchange.step].append(place)
    ordered = list(exchanges)
    for own in places.values():
        asked = sorted(own, key=lambda place: exchanges[place].sequence)
        for place, other in zip(own, asked, strict=True):
            ordered[place] = exchanges[other]
    return ordered


def _exchange(trace: Trace, group: int, sequence: int, rows: list[int]) -> RecordedCollective:
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


def transfers_at_once(exchanges: Sequence[RecordedCollective]) -> dict[int, int]:
    """By group. Gloo's have two threads, unless they were made otherwise: one whose exchanges
    were called for while another was under way, and always began when that had ended, has one."""
    of_place: dict[tuple[int, int], list[tuple[int, int, int]]] = defaultdict(list)
    for exchange in exchanges:
        for rank in exchange.rows:
            of_place[exchange.group, rank].append(
                (exchange.start_ns[rank], exchange.end_ns[rank], exchange.arrival_ns[rank])
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
    in_line = {exchange.group for exchange in exchanges if exchange.is_message}
    return {
        exchange.group: 1
        if exchange.group in in_line | (has_waited - has_shared)
        else TRANSFERS_AT_ONCE
        for exchange in exchanges
    }


def second_halves(trace: Trace, exchanges: Sequence[RecordedCollective]) -> dict[int, int]:
    """Under a plan, keys of gathers, each with the key of the exchange whose sums it gathers: the
    first of its step that is as large and was not gathered yet. The end of that one is what they
    are asked for upon, by threads of gloo's, whatever the main thread does meanwhile."""
    groups = {group for facts in trace.ranks for group in facts.piece_groups}
    firsts: dict[tuple[int, int, int], list[int]] = defaultdict(list)
    found: dict[int, int] = {}
    for key, one in enumerate(exchanges):
        if one.group not in groups:
            continue
        place = one.group, one.step, one.size_bytes
        if one.kind in (OpKind.ALL_TO_ALL, OpKind.REDUCE_SCATTER):
            firsts[place].append(key)
        elif one.kind == OpKind.ALL_GATHER and firsts[place]:
            found[key] = firsts[place].pop(0)
    return found


def awaited_of(
    trace: Trace, exchanges: Sequence[RecordedCollective], steps: Sequence[int]
) -> Awaited:
    """By group and sequence, exchanges and their keys. Where a timed step waits for what one that
    is not among ``steps`` has sent, as the first of a window does without a barrier, the timed step
    before it stands for that one: its own messages are awaited by nobody else."""
    found = {(one.group, one.sequence): (key, one) for key, one in enumerate(exchanges)}
    at_place: dict[tuple[int, int], list[int]] = defaultdict(list)
    for key in sorted(range(len(exchanges)), key=lambda key: exchanges[key].sequence):
        at_place[exchanges[key].group, exchanges[key].step].append(key)
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
                    found.setdefault(name, (key, exchanges[key]))
    return found


def _sent_elsewhere(
    trace: Trace, known: set[tuple[int, int]]
) -> dict[tuple[int, int], set[tuple[int, int]]]:
    """By group and step, what was sent in steps that are not looked at: groups and sequences."""
    events = trace.events
    found: dict[tuple[int, int], set[tuple[int, int]]] = defaultdict(set)
    sent = are_communication(events.kind) & (events.group != NONE) & (events.sequence != NONE)
    for row in np.flatnonzero(sent).tolist():
        name = int(events.group[row]), int(events.sequence[row])
        if name not in known:
            found[name[0], int(events.step[row])].add(name)
    return found
