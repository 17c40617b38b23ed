"""The collectives of a Trace as the wire should show them: from whom to whom, when, how large."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from augury.core.columns import I8
from augury.core.enums import OpKind, are_communication
from augury.core.gloo_segments import ELEMENT_SIZES
from augury.core.graph.graph import NONE
from augury.core.trace.trace import Trace
from augury.core.wire import Algorithm
from augury.ingest.wire.attribution.gloo_messages import all_gather_lengths, all_reduce_lengths
from augury.ingest.wire.attribution.match_messages import Span

SLACK_NS = 2_000_000
"""Profilers and sockets read one clock in two ways, and clocks of hosts are aligned so well."""
MAX_SIZE_BYTES = 1 << 36
"""What is larger was not sent, but made up."""
_AROUND = (OpKind.ALL_REDUCE, OpKind.REDUCE_SCATTER)
"""Gloo scatters sums by reducing all of them."""
_WITHOUT_PAYLOAD = (OpKind.BARRIER,)


@dataclass(slots=True)
class Shared:
    """A collective, or a send with its receive."""

    group: int
    sequence: int
    kind: OpKind
    members: Sequence[int]
    size_bytes: int = 0
    start_ns: dict[int, int] = field(default_factory=dict)
    end_ns: dict[int, int] = field(default_factory=dict)
    sender: int = NONE
    receiver: int = NONE
    element_bytes: int = 0
    """Of an all-reduce whose lengths were found on the wire; 0: they were not yet."""
    algorithm: Algorithm = Algorithm.UNKNOWN
    """Whose lengths are on the wire."""

    @property
    def is_from_one_to_one(self) -> bool:
        return self.kind == OpKind.SEND


def shared_of(trace: Trace) -> list[Shared]:
    events = trace.events
    is_communication = are_communication(events.kind)
    rows = np.flatnonzero(is_communication & (events.group != NONE) & (events.sequence != NONE))
    found: dict[tuple[int, int], Shared] = {}
    for row in rows.tolist():
        group, sequence = int(events.group[row]), int(events.sequence[row])
        kind, rank = OpKind(int(events.kind[row])), int(events.rank[row])
        if kind in _WITHOUT_PAYLOAD:
            continue
        as_one = OpKind.SEND if kind == OpKind.RECV else kind
        one = found.setdefault(
            (group, sequence), Shared(group, sequence, as_one, trace.groups[group])
        )
        one.size_bytes = max(one.size_bytes, int(events.size_bytes[row]))
        start_ns = int(events.start_ns[row])
        if one.is_from_one_to_one:
            # It may be sent as soon as it is asked for.
            start_ns = min(start_ns, int(events.arrival_ns[row]))
            if kind == OpKind.SEND:
                one.sender = rank
            else:
                one.receiver = rank
        one.start_ns[rank] = min(start_ns, one.start_ns.get(rank, start_ns))
        end_ns = int(events.start_ns[row] + events.dur_ns[row])
        one.end_ns[rank] = max(end_ns, one.end_ns.get(rank, end_ns))
    return list(found.values())


def spans_between(
    shared: Sequence[Shared], src: int, dst: int, times_ns: I8, lengths: I8
) -> tuple[list[int], list[Span]]:
    """Of those in which ``src`` sends to ``dst``: which of ``shared``, and its span. ``times_ns``
    and ``lengths`` are of the messages that are to be explained."""
    found: list[tuple[Span, int]] = []
    for number, one in enumerate(shared):
        if not {src, dst} <= set(one.members) or not (src in one.start_ns or dst in one.start_ns):
            continue
        if one.is_from_one_to_one and (one.sender, one.receiver) != (src, dst):
            continue
        begin_ns = one.start_ns.get(src, one.start_ns.get(dst, 0))
        end_ns = max(one.end_ns.get(rank, begin_ns) for rank in (src, dst))
        first, last = np.searchsorted(times_ns, [begin_ns - SLACK_NS, end_ns + SLACK_NS])
        expected = _lengths(one, src, dst, set(lengths[first:last].tolist()))
        if expected is None or expected:
            found.append((Span(start_ns=begin_ns, end_ns=end_ns, lengths=expected), number))
    found.sort(key=lambda entry: entry[0].start_ns)
    return [number for _, number in found], [span for span, _ in found]


def _lengths(one: Shared, src: int, dst: int, seen: set[int]) -> tuple[int, ...] | None:
    """In order; none if nothing goes this way, None if nothing is known of them."""
    if one.size_bytes > MAX_SIZE_BYTES:
        return None
    members = list(one.members)
    size, place = len(members), members.index(src)
    if one.kind in _AROUND and one.size_bytes > 0:
        if members.index(dst) != (place - 1) % size:
            return ()
        for element_bytes in [one.element_bytes] if one.element_bytes else ELEMENT_SIZES:
            around = all_reduce_lengths(one.size_bytes, size, place, element_bytes).tolist()
            if around and seen.issuperset(around):
                one.element_bytes, one.algorithm = element_bytes, Algorithm.RING
                return tuple(around)
        return None
    if one.kind == OpKind.ALL_GATHER and one.size_bytes > 0:
        if members.index(dst) != (place + 1) % size:
            return ()
        passed_on = all_gather_lengths(one.size_bytes // size, size).tolist()
        if not passed_on or not seen.issuperset(passed_on):
            return None
        one.algorithm = Algorithm.RING
        return tuple(passed_on)
    if one.is_from_one_to_one and one.size_bytes in seen:
        one.algorithm = Algorithm.DIRECT
        return (one.size_bytes,)
    return None
