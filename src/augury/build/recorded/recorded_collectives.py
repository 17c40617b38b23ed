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
"""Index of a collective, by group and sequence number."""

OVERLAP_TOLERANCE = 0.05
"""Share of a collective's duration. A shorter overlap is attributed to inexact time stamps."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedCollective:
    """One collective or message. The recorded span of each member includes its wait for the last
    member; data moves only from the latest start to the earliest end."""

    kind: OpKind
    name: str
    group: int
    sequence: int
    step: int
    size_bytes: int
    rows: dict[int, int]
    """Row of the event of each member rank in the trace."""
    arrival_ns: dict[int, int]
    """Time at which each member rank called it."""
    start_ns: dict[int, int]
    end_ns: dict[int, int]
    """Start and end on each member rank."""

    @property
    def is_message(self) -> bool:
        """Whether only the sender is a member; the receiver then only waits for the message."""
        return self.kind == OpKind.SEND and len(self.rows) == 1

    @property
    def is_collective(self) -> bool:
        """Whether it is not point-to-point. All members call it in order of sequence numbers."""
        return self.kind not in (OpKind.SEND, OpKind.RECV)

    @property
    def begin_ns(self) -> int:
        """Time at which the last member starts."""
        return min(max(self.start_ns.values()), self.done_ns)

    @property
    def done_ns(self) -> int:
        """Time at which the first member ends."""
        return min(self.end_ns.values())


def collectives_of(trace: Trace, steps: set[int], ranks: set[int]) -> list[RecordedCollective]:
    """Returns the collectives of these steps and ranks in the order in which they began. Within a
    group and step, collectives are in the order of their calls. Members that were not recorded are
    left out."""
    events = trace.events
    rows_of: dict[tuple[int, int], list[int]] = defaultdict(list)
    is_communication = are_communication(events.kind)
    for row in np.flatnonzero(is_communication & (events.group != NONE)).tolist():
        if (
            int(events.step[row]) in steps
            and int(events.rank[row]) in ranks
            and events.sequence[row] != NONE
        ):
            rows_of[int(events.group[row]), int(events.sequence[row])].append(row)
    collectives = [
        _collective(trace, group, sequence, rows) for (group, sequence), rows in rows_of.items()
    ]
    collectives.sort(key=lambda one: (one.step, one.begin_ns))
    return _in_call_order(collectives)


def _in_call_order(collectives: list[RecordedCollective]) -> list[RecordedCollective]:
    """Sorts the collectives of each group and step by sequence number, within the positions that
    they occupy. Messages keep their positions."""
    positions_of: dict[tuple[int, int], list[int]] = defaultdict(list)
    for position, one in enumerate(collectives):
        if one.is_collective:
            positions_of[one.group, one.step].append(position)
    ordered = list(collectives)
    for positions in positions_of.values():
        in_sequence = sorted((collectives[i] for i in positions), key=lambda one: one.sequence)
        for position, one in zip(positions, in_sequence, strict=True):
            ordered[position] = one
    return ordered


def _collective(trace: Trace, group: int, sequence: int, rows: list[int]) -> RecordedCollective:
    events = trace.events
    row_of_rank = {int(events.rank[row]): row for row in rows}
    first = rows[0]
    return RecordedCollective(
        kind=OpKind(int(events.kind[first])),
        name=trace.name(first),
        group=group,
        sequence=sequence,
        step=int(events.step[first]),
        size_bytes=max(0, int(events.size_bytes[rows].max())),
        rows=row_of_rank,
        arrival_ns={
            rank: int(min(events.arrival_ns[row], events.start_ns[row]))
            for rank, row in row_of_rank.items()
        },
        start_ns={rank: int(events.start_ns[row]) for rank, row in row_of_rank.items()},
        end_ns={
            rank: int(events.start_ns[row] + events.dur_ns[row])
            for rank, row in row_of_rank.items()
        },
    )


def concurrent_transfers(collectives: Sequence[RecordedCollective]) -> dict[int, int]:
    """Returns how many collectives each group runs at a time. This is 1 for a group with messages,
    and for a group whose collectives never overlapped although one was called while another was in
    flight. All other groups are assumed to have gloo's default number of threads."""
    spans_of: dict[tuple[int, int], list[tuple[int, int, int]]] = defaultdict(list)
    for one in collectives:
        for rank in one.rows:
            spans_of[one.group, rank].append(
                (one.start_ns[rank], one.end_ns[rank], one.arrival_ns[rank])
            )
    queued: set[int] = set()
    overlapped: set[int] = set()
    for (group, _), spans in spans_of.items():
        spans.sort()
        for (start_ns, end_ns, _), (next_start_ns, _, next_called_ns) in pairwise(spans):
            if next_start_ns < end_ns - OVERLAP_TOLERANCE * (end_ns - start_ns):
                overlapped.add(group)
            elif next_called_ns < end_ns:
                queued.add(group)
    with_messages = {one.group for one in collectives if one.is_message}
    serial = with_messages | (queued - overlapped)
    return {one.group: 1 if one.group in serial else GLOO_THREADS for one in collectives}


def first_halves(trace: Trace, collectives: Sequence[RecordedCollective]) -> dict[int, int]:
    """Maps each all-gather of a plan to the collective that computed the sums it gathers: the first
    one of the same group, step and size that has no all-gather yet. A communication thread calls
    the all-gather when the first half has ended, independently of the main thread."""
    groups = {group for facts in trace.ranks for group in facts.piece_groups}
    not_gathered: dict[tuple[int, int, int], list[int]] = defaultdict(list)
    first_half_of: dict[int, int] = {}
    for key, one in enumerate(collectives):
        if one.group not in groups:
            continue
        candidates = not_gathered[one.group, one.step, one.size_bytes]
        if one.kind in (OpKind.ALL_TO_ALL, OpKind.REDUCE_SCATTER):
            candidates.append(key)
        elif one.kind == OpKind.ALL_GATHER and candidates:
            first_half_of[key] = candidates.pop(0)
    return first_half_of


def awaited_collectives(
    trace: Trace, collectives: Sequence[RecordedCollective], steps: Sequence[int]
) -> Awaited:
    """Returns the collectives that main threads may wait for. Without a barrier, the first step of
    a window may wait for collectives of the step before the window, which is not among ``steps``.
    They are mapped to the collectives of the last timed step before that window, for which no other
    step waits."""
    awaited = {(one.group, one.sequence): key for key, one in enumerate(collectives)}
    timed_keys: dict[tuple[int, int], list[int]] = defaultdict(list)
    for key in sorted(range(len(collectives)), key=lambda key: collectives[key].sequence):
        timed_keys[collectives[key].group, collectives[key].step].append(key)
    untimed = _untimed_ids(trace, {*awaited})
    for previous, step in pairwise(steps):
        for (group, untimed_step), ids in untimed.items():
            if not previous < untimed_step < step:
                continue
            substitutes = timed_keys[group, previous]
            if len(substitutes) == len(ids):
                for id_, key in zip(sorted(ids), substitutes, strict=True):
                    awaited.setdefault(id_, key)
    return awaited


def _untimed_ids(
    trace: Trace, timed: set[tuple[int, int]]
) -> dict[tuple[int, int], set[tuple[int, int]]]:
    """Returns the group and sequence number of each collective that is not in ``timed``, by group
    and step."""
    events = trace.events
    untimed: dict[tuple[int, int], set[tuple[int, int]]] = defaultdict(set)
    has_id = are_communication(events.kind) & (events.group != NONE) & (events.sequence != NONE)
    for row in np.flatnonzero(has_id).tolist():
        group, sequence = int(events.group[row]), int(events.sequence[row])
        if (group, sequence) not in timed:
            untimed[group, int(events.step[row])].add((group, sequence))
    return untimed
