"""Recorded collectives, each with what every member saw of it."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass

import numpy as np

from augury.core.graph import NONE
from augury.core.kinds import OpKind, are_communication
from augury.core.trace import Trace


@dataclass(frozen=True, slots=True, kw_only=True)
class Exchange:
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
    def begin_ns(self) -> int:
        return min(max(self.start_ns.values()), self.done_ns)

    @property
    def done_ns(self) -> int:
        return min(self.end_ns.values())


def exchanges_of(trace: Trace, steps: set[int], ranks: set[int]) -> list[Exchange]:
    """Of these steps and ranks, in the order in which they began; a collective of which a member
    left no record stands with the members that did."""
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
    return sorted(exchanges, key=lambda exchange: (exchange.step, exchange.begin_ns))


def _exchange(trace: Trace, group: int, sequence: int, rows: list[int]) -> Exchange:
    events = trace.events
    of_rank = {int(events.rank[row]): row for row in rows}
    first = rows[0]
    return Exchange(
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
