"""Finds what each operation of a table waits for in one step.

An operation waits for the one before on its stream, for its cause, and, if neither explains its
start, for the operations of its rank that ended just before. Communication is launched when an
operation of the compute stream starts or ends. Only waits that the recorded times allow are kept:
every operation then starts after all that it waits for, so that waits never form a cycle.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from dataclasses import dataclass, field

import numpy as np

from augury.core.columns import I8
from augury.core.enums import OpKind, StreamKind
from augury.core.graph.graph import NONE
from augury.core.trace.trace import Trace

MIN_TOLERANCE_NS = 200_000
TOLERANCE = 0.2
"""Compute may start before the end of an operation that it waits for, by this share of its
duration. Time stamps are inexact."""


@dataclass(frozen=True, slots=True)
class Wait:
    """The end of another operation, or its start."""

    row: int
    is_end: bool = True


@dataclass(slots=True)
class StepWaits:
    """Waits of the operations of one step, by row of the trace's events."""

    rows: list[int]
    """All operations by start."""
    lane: dict[int, int]
    """Lane of an operation that computes. Operations of one lane do not overlap."""
    waits: dict[int, list[Wait]] = field(default_factory=dict)
    ready_ns: dict[int, int] = field(default_factory=dict)
    """Time of the last event that an operation waits for."""
    begin_ns: dict[int, int] = field(default_factory=dict)
    """Start of an operation: as recorded, or when it was ready if that is later."""


def step_waits(trace: Trace, rows: I8, start_ns: int) -> StepWaits:
    """Returns the waits of these events, all of one step that starts at ``start_ns``."""
    order = rows[np.lexsort((trace.events.dur_ns[rows], trace.events.start_ns[rows]))]
    found = StepWaits(order.tolist(), {})
    of_rank: dict[int, list[int]] = defaultdict(list)
    for row, rank in zip(found.rows, trace.events.rank[order].tolist(), strict=True):
        of_rank[rank].append(row)
    for own in of_rank.values():
        _RankWaits(trace, own, start_ns, found).find()
    return found


class _RankWaits:
    """Finds the waits of one rank's operations."""

    def __init__(self, trace: Trace, rows: list[int], start_ns: int, found: StepWaits) -> None:
        events = trace.events
        self._rows, self._found, self._step_start_ns = rows, found, start_ns
        self._start = dict(zip(rows, events.start_ns[rows].tolist(), strict=True))
        durations = events.dur_ns[rows].tolist()
        # Every operation takes at least a nanosecond, so that order is strict.
        self._end = {
            row: self._start[row] + max(1, dur) for row, dur in zip(rows, durations, strict=True)
        }
        self._cause = dict(zip(rows, events.cause[rows].tolist(), strict=True))
        self._kind = dict(zip(rows, events.kind[rows].tolist(), strict=True))
        self._stream = dict(zip(rows, events.stream[rows].tolist(), strict=True))
        kinds = trace.streams.kind[events.stream[rows]].tolist()
        self._computes = {
            row: kind != StreamKind.COMMUNICATION for row, kind in zip(rows, kinds, strict=True)
        }
        self._by_end = sorted(rows, key=lambda row: (self._end[row], row))
        self._ends = [self._end[row] for row in self._by_end]

    def find(self) -> None:
        self._split_lanes()
        # Compute first: communication may wait for its starts.
        for row, previous in self._in_turn():
            if self._computes[row]:
                self._find_of_compute(row, previous)
        compute = [row for row in self._rows if self._computes[row] and not self._found.lane[row]]
        anchors = sorted(
            [(self._found.begin_ns[row], row, False) for row in compute]
            + [(self._end[row], row, True) for row in compute]
        )
        times = [at for at, _, _ in anchors]
        for row, previous in self._in_turn():
            if not self._computes[row]:
                self._find_of_communication(row, previous, anchors, times)

    def _split_lanes(self) -> None:
        """Puts compute on lanes: the model on the first ones, other operations on the first lane
        where they fit between the model's, and on one of their own otherwise."""
        compute = [row for row in self._rows if self._computes[row]]
        in_model = [row for row in compute if self._kind[row] not in (OpKind.OTHER, OpKind.DATA)]
        others = [row for row in compute if self._kind[row] in (OpKind.OTHER, OpKind.DATA)]
        reached: list[int] = []
        first_lane: list[tuple[int, int]] = []
        for row in in_model:
            lane = self._free_lane(row, reached, 0)
            self._found.lane[row] = lane
            if lane == 0:
                first_lane.append((self._start[row], self._end[row]))
        num_model_lanes = len(reached)
        for row in others:
            start, end = self._start[row], self._end[row]
            at = bisect_right(first_lane, (start, end))
            slack = min(MIN_TOLERANCE_NS, (end - start) // 10)
            fits_before = at == 0 or first_lane[at - 1][1] <= start + slack
            fits_after = at == len(first_lane) or end <= first_lane[at][0] + slack
            if fits_before and fits_after:
                self._found.lane[row] = 0
                first_lane.insert(at, (start, end))
            else:
                self._found.lane[row] = self._free_lane(row, reached, max(1, num_model_lanes))

    def _free_lane(self, row: int, reached: list[int], first: int) -> int:
        """Returns the first lane on which the operation before has ended."""
        reached.extend([0] * (first - len(reached)))
        lane = first
        while lane < len(reached) and not self._may_follow(row, reached[lane]):
            lane += 1
        reached.extend([0] * (lane + 1 - len(reached)))
        reached[lane] = self._end[row]
        return lane

    def _may_follow(self, row: int, end_ns: int) -> bool:
        """Whether an operation may wait for an event at ``end_ns``."""
        slack = MIN_TOLERANCE_NS
        if self._computes[row]:
            slack = max(slack, int(TOLERANCE * (self._end[row] - self._start[row])))
        return bool(end_ns <= self._start[row] + slack and end_ns < self._end[row])

    def _in_turn(self) -> list[tuple[int, int | None]]:
        """Returns all operations with the one before on the same lane or stream."""
        last: dict[tuple[bool, int], int] = {}
        turns: list[tuple[int, int | None]] = []
        for row in self._rows:
            computes = self._computes[row]
            key = computes, self._found.lane[row] if computes else self._stream[row]
            turns.append((row, last.get(key)))
            last[key] = row
        return turns

    def _find_of_compute(self, row: int, previous: int | None) -> None:
        chosen = {r for r in (previous, self._cause[row]) if r is not None and r != NONE}
        kind = self._kind[row]
        if kind == OpKind.UPDATE:
            chosen |= self._collectives_before(row, OpKind.ALL_REDUCE, OpKind.BARRIER)
        elif kind == OpKind.FORWARD and not any(self._kind.get(r) == kind for r in chosen):
            chosen |= self._collectives_before(row, OpKind.ALL_GATHER, OpKind.ALL_GATHER)
        ready_ns = max([self._step_start_ns, *(self._end.get(r, 0) for r in chosen)])
        chosen |= self._ended_between(row, ready_ns)
        self._keep(row, [Wait(other) for other in chosen])

    def _collectives_before(self, row: int, first: OpKind, last: OpKind) -> set[int]:
        """Returns the collectives of these kinds that had ended when the operation started."""
        until = bisect_right(self._ends, self._start[row])
        return {r for r in self._by_end[:until] if first <= self._kind[r] <= last}

    def _ended_between(self, row: int, ready_ns: int) -> set[int]:
        """Returns the operations that explain a gap before an operation: those that ended within
        it, except for sends, which seldom block; and any that ended close to the start."""
        gap_ns = self._start[row] - ready_ns
        if gap_ns <= 0:
            return set()
        first = bisect_right(self._ends, ready_ns)
        until = bisect_right(self._ends, self._start[row])
        return {
            other
            for other in self._by_end[first:until]
            if self._kind[other] not in (OpKind.SEND, OpKind.RECV)
            or self._start[row] - self._end[other] < gap_ns // 4
        }

    def _find_of_communication(
        self,
        row: int,
        previous: int | None,
        anchors: list[tuple[int, int, bool]],
        times: list[int],
    ) -> None:
        if self._kind[row] == OpKind.SYNC:
            # Began when compute that is not recorded was done.
            self._keep(row, [])
            return
        waits = [Wait(r) for r in (previous, self._cause[row]) if r is not None and r != NONE]
        at = bisect_right(times, self._start[row]) - 1
        if at >= 0 and self._cause[row] == NONE:
            waits.append(Wait(anchors[at][1], is_end=anchors[at][2]))
        self._keep(row, waits)

    def _keep(self, row: int, waits: list[Wait]) -> None:
        found = self._found
        times = {wait: self._time(wait) for wait in waits if wait.row in self._end}
        kept = {wait: at for wait, at in times.items() if self._may_follow(row, at)}
        found.waits[row] = sorted(kept, key=lambda wait: (wait.row, wait.is_end))
        found.ready_ns[row] = max([self._step_start_ns, *kept.values()])
        found.begin_ns[row] = max(self._start[row], found.ready_ns[row])

    def _time(self, wait: Wait) -> int:
        return self._end[wait.row] if wait.is_end else self._found.begin_ns[wait.row]
