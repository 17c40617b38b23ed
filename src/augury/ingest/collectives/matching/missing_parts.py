"""Restores the part of a rank in a collective that only other ranks recorded.

A profiler loses single kernels. Work that waited for a lost kernel would seem to start without a
cause, and the other ranks would wait for one rank less. A collective ends on all ranks at the same
time, so its end is known; it is taken to have arrived last, which no other time contradicts.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from augury.core.enums import OpKind
from augury.core.graph.graph import NONE
from augury.core.ledger import Ledger
from augury.core.trace.trace import Clock
from augury.ingest.clocks.rank_clocks import from_common, to_common
from augury.ingest.collectives.matching.matched_collectives import MatchedCollective, Matching
from augury.ingest.collectives.rank_collectives import Collective, note_unmatched
from augury.ingest.rank.staged_rank import StagedRank
from augury.ingest.trace_builder import MutableEvents

_RIVAL_NS = 2_000_000
_NUM_NEIGHBOURS = 7
"""Matched collectives whose ends correct the clock at a lost one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _LostPart:
    """The part of a rank in a collective, on the rank's own clock."""

    one: MatchedCollective
    kind: OpKind
    stream: int
    cause: int
    """Row of the call that launched it."""
    start_ns: int
    end_ns: int


def restore_missing_parts(
    ranks: Mapping[int, StagedRank],
    matching: Matching,
    clocks: Mapping[int, Clock],
    ledger: Ledger,
) -> None:
    """Adds an event to each rank whose recording covers a collective or message that it lacks.
    Collectives of one rank alone for which nothing could be restored stay unmatched."""
    matched = matching.collectives
    lacking = [
        one
        for one in [*matched, *_without_rival(matching.alone)]
        if one.lacking and _is_on_device(one)
    ]
    ends_ns = {
        (one.group, one.sequence): _end_ns(one, clocks) for one in [*matched, *matching.alone]
    }
    num_restored = 0
    restored: set[int] = set()
    for rank in sorted({rank for one in lacking for rank in one.lacking}):
        wanted = sorted((one for one in lacking if rank in one.lacking), key=lambda o: o.place)
        events = ranks[rank].load()
        timing = _RankTiming(ranks[rank], events, matched, clocks[rank], ends_ns)
        launches = _Launches(ranks[rank], events)
        lost = [part for one in wanted if (part := timing.lost_part(one, launches)) is not None]
        if lost:
            ranks[rank].append(_added(ranks[rank], events, lost))
        num_restored += len(lost)
        restored |= {id(part.one) for part in lost}
    ledger.note(
        "restored-communication",
        "a rank lacks a collective that other ranks recorded; its end is taken from them",
        count=num_restored,
        example="the profiler lost single events",
    )
    for one in matching.alone:
        if id(one) in restored:
            one.fill_sequence(ranks)
    num_alone = sum(id(one) not in restored for one in matching.alone)
    note_unmatched(ledger, num_alone, "only one rank recorded it")


def _without_rival(alone: Sequence[MatchedCollective]) -> list[MatchedCollective]:
    """Leaves out collectives of one rank where a rank that lacks one has a similar one alone: the
    two may be the same, and only their match failed."""
    of_rank: dict[tuple[int, OpKind], list[int]] = defaultdict(list)
    for one in alone:
        rank, item = next(iter(one.parts.items()))
        of_rank[rank, item.kind].append(item.end_ns)
    for ends in of_rank.values():
        ends.sort()
    kept = []
    for one in alone:
        item = next(iter(one.parts.values()))
        kind = _kind_of_other(item.kind)
        near = (item.end_ns - _RIVAL_NS, item.end_ns + _RIVAL_NS)
        if not any(
            bisect_left(of_rank[rank, kind], near[0]) < bisect_right(of_rank[rank, kind], near[1])
            for rank in one.lacking
        ):
            kept.append(one)
    return kept


def _kind_of_other(kind: OpKind) -> OpKind:
    """Kind of the part of another rank."""
    return {OpKind.SEND: OpKind.RECV, OpKind.RECV: OpKind.SEND}.get(kind, kind)


def _is_on_device(one: MatchedCollective) -> bool:
    return all(item.is_on_device for item in one.parts.values())


def _end_ns(one: MatchedCollective, clocks: Mapping[int, Clock]) -> int:
    """Median of the ends on the common clock."""
    ends = [_common(clocks[rank], item.end_ns) for rank, item in one.parts.items()]
    return round(float(np.median(np.array(ends) - ends[0]))) + ends[0]


def _common(clock: Clock, own_ns: int) -> int:
    return int(to_common(clock, np.array([own_ns], dtype=np.int64))[0])


class _RankTiming:
    """Times of one rank that bound where a lost part can have been."""

    def __init__(
        self,
        own: StagedRank,
        events: MutableEvents,
        matched: Sequence[MatchedCollective],
        clock: Clock,
        ends_ns: Mapping[tuple[int, int], int],
    ) -> None:
        self._clock, self._ends_ns = clock, ends_ns
        known = [(one, one.parts[own.rank]) for one in matched if own.rank in one.parts]
        expected = np.array([ends_ns[one.group, one.sequence] for one, _ in known], dtype=np.int64)
        order = np.argsort(expected, kind="stable")
        self._expected_ns = from_common(clock, expected[order])
        real_ns = np.array([item.end_ns for _, item in known], dtype=np.int64)[order]
        self._late_ns = real_ns - self._expected_ns
        self._first_end_ns = int(real_ns.min(initial=1 << 62))
        self._stream_of_group: dict[int, int] = {}
        for one, item in known:
            self._stream_of_group[one.group] = item.stream
        seen = np.isin(events.kind, [OpKind.LAUNCH, OpKind.SYNC]) | own.are_on_device[events.stream]
        self._first_ns = int(events.start_ns[seen].min(initial=1 << 62))
        self._last_ns = int(events.end_ns[seen].max(initial=-(1 << 62)))
        self._on_stream: dict[int, list[tuple[int, int, int]]] = defaultdict(list)
        for one, item in known:
            self._on_stream[item.stream].append((one.place, item.start_ns, item.end_ns))
        for parts in self._on_stream.values():
            parts.sort()

    def lost_part(self, one: MatchedCollective, launches: _Launches) -> _LostPart | None:
        """Returns None if the rank did not record at the time of the collective. A kernel that was
        running when the recording began is not in it: one that comes before all others of the rank
        was lost only if its launch was recorded."""
        if not self._stream_of_group:
            return None
        fallback = Counter(self._stream_of_group.values()).most_common(1)[0][0]
        stream = self._stream_of_group.get(one.group, fallback)
        end_ns = self._own_end_ns(one)
        dur_ns = min(item.end_ns - item.start_ns for item in one.parts.values())
        if not self._first_ns < end_ns - dur_ns or not end_ns <= self._last_ns:
            return None
        # Streams run their collectives in the same order on all ranks.
        parts = self._on_stream[stream]
        at = bisect_left(parts, (one.place, 0, 0))
        free_ns = parts[at - 1][2] if at else -(1 << 62)
        if at < len(parts):
            end_ns = max(free_ns, min(end_ns, parts[at][1]))
        end_ns = max(end_ns, free_ns)
        start_ns = min(max(end_ns - dur_ns, free_ns), end_ns)
        kind = _kind_of_other(next(iter(one.parts.values())).kind)
        cause = launches.without_kernel(kind, end_ns)
        if cause == NONE and end_ns < self._first_end_ns:
            return None
        if cause == NONE:
            cause = launches.last_call(start_ns)
        parts.insert(at, (one.place, start_ns, end_ns))
        return _LostPart(
            one=one, kind=kind, stream=stream, cause=cause, start_ns=start_ns, end_ns=end_ns
        )

    def _own_end_ns(self, one: MatchedCollective) -> int:
        """The rank's own collectives around it say how far its ends are from those of others."""
        common_ns = np.array([self._ends_ns[one.group, one.sequence]], dtype=np.int64)
        own_ns = int(from_common(self._clock, common_ns)[0])
        place = int(np.searchsorted(self._expected_ns, own_ns))
        first = max(0, place - _NUM_NEIGHBOURS // 2 - 1)
        late_ns = self._late_ns[first : first + _NUM_NEIGHBOURS]
        return own_ns + round(float(np.median(late_ns)))


def _added(own: StagedRank, events: MutableEvents, lost: Sequence[_LostPart]) -> MutableEvents:
    start_ns = np.array([part.start_ns for part in lost], dtype=np.int64)
    end_ns = np.array([part.end_ns for part in lost], dtype=np.int64)
    added = MutableEvents.blank(start_ns, end_ns - start_ns)
    for i, part in enumerate(lost):
        parts = part.one.parts.values()
        cause = part.cause
        added.kind[i] = part.kind
        added.stream[i] = part.stream
        added.name[i] = own.string_number(next(iter(parts)).name)
        added.size_bytes[i] = max(item.traced_bytes for item in parts)
        added.group[i], added.sequence[i] = part.one.group, part.one.sequence
        added.step[i] = Counter(item.step for item in parts).most_common(1)[0][0]
        if cause != NONE:
            launched_ns = int(events.start_ns[cause])
            added.cause[i] = cause
            added.arrival_ns[i] = launched_ns
            added.phase[i] = events.phase[cause]
            added.start_ns[i] = max(part.start_ns, min(launched_ns, part.end_ns))
            added.dur_ns[i] = part.end_ns - added.start_ns[i]
    return added


class _Launches:
    """Calls of one rank that may have launched lost kernels."""

    def __init__(self, own: StagedRank, events: MutableEvents) -> None:
        self._events = events
        # Start and row of each launch without a kernel, in order.
        self._of_kind: dict[OpKind, list[tuple[int, int]]] = defaultdict(list)
        for row, kind in own.launches_alone:
            self._of_kind[kind].append((int(events.start_ns[row]), row))
        calls = np.flatnonzero(np.isin(events.kind, [OpKind.LAUNCH, OpKind.SYNC]))
        self._calls = calls[np.argsort(events.start_ns[calls], kind="stable")]
        launched = [item for item in own.collectives if item.cause != NONE]
        self._launched: list[Collective] = sorted(launched, key=lambda item: item.end_ns)
        self._launched_ends_ns = [item.end_ns for item in self._launched]

    def without_kernel(self, kind: OpKind, end_ns: int) -> int:
        """Takes the first launch without a kernel between those of the collectives before and
        after the one that ended then."""
        place = bisect_right(self._launched_ends_ns, end_ns)
        earliest_ns = self._launched[place - 1].arrival_ns if place else -(1 << 62)
        after = self._launched[place : place + 1]
        latest_ns = min(after[0].arrival_ns if after else 1 << 62, end_ns)
        launches = self._of_kind[kind]
        first = bisect_left(launches, (earliest_ns, -1))
        if first < len(launches) and launches[first][0] <= latest_ns:
            return launches.pop(first)[1]
        return NONE

    def last_call(self, start_ns: int) -> int:
        """The last call that began before: the program had come that far when the kernel began."""
        place = int(np.searchsorted(self._events.start_ns[self._calls], start_ns)) - 1
        return int(self._calls[place]) if place >= 0 else NONE
