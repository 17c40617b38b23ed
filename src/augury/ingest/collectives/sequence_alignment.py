"""Matches collectives of several ranks in traces without reliable sequence numbers.

Recordings of two ranks may start some collectives apart, so the n-th collective of one rank need
not be the n-th of another. The sequences of two ranks are shifted against each other. The right
shift has equal kinds and sizes, and ends at nearly equal times. Starts are not compared: a rank
that arrives early waits in the collective.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from augury.core.columns import I8
from augury.core.enums import OpKind
from augury.core.errors import InputError
from augury.core.ledger import Ledger
from augury.ingest.collectives.rank_collectives import Collective
from augury.ingest.rank.kineto_rank import KinetoRank
from augury.ingest.trace_builder import TraceBuilder

MAX_SHIFT = 256
MAX_SPREAD_NS = 20_000_000
"""Ends of one collective differ by milliseconds at most; beyond, the match is wrong."""
MAX_OFFSET_NS = 60_000_000_000
"""Clocks of two hosts never differ by a minute; beyond, the traces are of different jobs."""
_SAME_CLOCK_NS = 5_000_000
_PAIRS_PER_MISMATCH = 20
"""One pair in so many may differ."""


@dataclass(frozen=True, slots=True)
class CollectiveSequence:
    """Collectives of one rank in one communicator, in order."""

    signature: Sequence[tuple[object, ...]]
    """Kind and size: equal on all ranks for the same collective."""
    end_ns: I8
    number: Sequence[int | None] = ()
    """Sequence numbers by the profiler, if it recorded them."""


@dataclass(frozen=True, slots=True)
class Alignment:
    """The i-th collective of a rank is the (i + ``shift``)-th of the reference."""

    shift: int
    spread_ns: int
    """Median deviation of the ends' differences from ``offset_ns``."""
    offset_ns: int
    """Median difference of the ends."""

    @property
    def doubt(self) -> str:
        """Reason why the alignment is implausible; empty if it is plausible."""
        if self.offset_ns > MAX_OFFSET_NS:
            return f"their collectives end {self.offset_ns / 1e9:,.0f} s apart"
        if self.spread_ns > MAX_SPREAD_NS:
            return f"the differences of their ends vary by {self.spread_ns / 1e6:,.0f} ms"
        return ""


def align_sequences(own: CollectiveSequence, reference: CollectiveSequence) -> Alignment | None:
    """Returns the best alignment; None if no shift has matching signatures."""
    tried = []
    for shift in _shifts(own, reference):
        low = max(0, -shift)
        high = min(len(own.signature), len(reference.signature) - shift)
        if high <= low:
            continue
        pairs = range(low, high)
        num_mismatched = sum(own.signature[i] != reference.signature[i + shift] for i in pairs)
        if num_mismatched > len(pairs) // _PAIRS_PER_MISMATCH:
            continue
        gap_ns = reference.end_ns[low + shift : high + shift] - own.end_ns[low:high]
        middle_ns = int(np.median(gap_ns))
        spread_ns = int(np.median(np.abs(gap_ns - middle_ns)))
        tried.append((shift, high - low, abs(middle_ns), spread_ns))
    # A short overlap matches by chance.
    longest = max((size for _, size, _, _ in tried), default=0)
    tried = [entry for entry in tried if 2 * entry[1] >= longest]
    if not tried:
        return None
    # Steps look alike; ranks with a common clock have the smallest difference at the right step.
    nearest = min(tried, key=lambda entry: entry[2] + entry[3])
    if nearest[2] + nearest[3] <= _SAME_CLOCK_NS:
        return Alignment(nearest[0], nearest[3], nearest[2])
    best = min(tried, key=lambda entry: (entry[3], -entry[1], entry[2]))
    return Alignment(best[0], best[3], best[2])


def _shifts(own: CollectiveSequence, reference: CollectiveSequence) -> list[int]:
    """Candidate shifts; only one if the profiler recorded sequence numbers."""
    place_of = {number: i for i, number in enumerate(reference.number) if number is not None}
    apart = Counter(
        place_of[number] - i
        for i, number in enumerate(own.number)
        if number is not None and number in place_of
    )
    if apart:
        return [apart.most_common(1)[0][0]]
    reach = min(MAX_SHIFT, max(len(own.signature), len(reference.signature)))
    return list(range(-reach, reach + 1))


_OfRanks = dict[int, list[Collective]]


def align_collectives(
    ranks: Mapping[int, KinetoRank], world_size: int, builder: TraceBuilder, ledger: Ledger
) -> None:
    """Fills group and sequence of all collectives, one communicator at a time. Raises an InputError
    if a rank matches no other rank."""
    by_group: dict[int, _OfRanks] = defaultdict(lambda: defaultdict(list))
    all_ranks = tuple(range(world_size))
    for rank, one in ranks.items():
        for item in one.collectives:
            group = builder.group(item.members or all_ranks, item.communicator)
            one.events.group[item.row] = group
            by_group[group][rank].append(item)
    matched: set[int] = set()
    reason = "their collectives differ"
    for parts in by_group.values():
        # The rank with the most collectives is the most likely to have seen all of them.
        reference = max(parts, key=lambda rank: (len(parts[rank]), -rank))
        sequences = {rank: _sequence(items) for rank, items in parts.items()}
        shifts = {reference: 0}
        for rank in parts:
            if rank == reference:
                continue
            alignment = align_sequences(sequences[rank], sequences[reference])
            if alignment is None or alignment.doubt:
                reason = alignment.doubt if alignment else reason
                _note_unmatched(ledger, len(parts[rank]), reason)
                continue
            shifts[rank] = alignment.shift
            matched |= {rank, reference}
        _fill_sequence(parts, shifts, sequences, ranks, ledger)
    _refuse_unmatched_ranks(by_group, matched, reason)


def _sequence(items: list[Collective]) -> CollectiveSequence:
    return CollectiveSequence(
        # Ranks send different amounts in one all-to-all.
        signature=[(i.kind, 0 if i.kind == OpKind.ALL_TO_ALL else i.traced_bytes) for i in items],
        end_ns=np.array([i.end_ns for i in items], dtype=np.int64),
        number=[i.number for i in items],
    )


def _fill_sequence(
    parts: _OfRanks,
    shifts: dict[int, int],
    sequences: dict[int, CollectiveSequence],
    ranks: Mapping[int, KinetoRank],
    ledger: Ledger,
) -> None:
    first = min(shifts.values())
    places: dict[int, dict[int, int]] = defaultdict(dict)
    for rank, shift in shifts.items():
        for i in range(len(parts[rank])):
            places[i + shift - first][rank] = i
    for sequence, members in sorted(places.items()):
        signatures = {sequences[rank].signature[i] for rank, i in members.items()}
        if len(members) < len(shifts) or len(signatures) > 1:
            _note_unmatched(ledger, len(members), "not all ranks recorded it")
            continue
        for rank, i in members.items():
            ranks[rank].events.sequence[parts[rank][i].row] = sequence


def _refuse_unmatched_ranks(by_group: dict[int, _OfRanks], matched: set[int], reason: str) -> None:
    in_shared_groups = {rank for parts in by_group.values() if len(parts) > 1 for rank in parts}
    unmatched = sorted(in_shared_groups - matched)
    if unmatched:
        raise InputError(
            f"no collective of rank {unmatched[0]} matches those of other ranks: {reason}",
            remedy="give traces of one job over the same steps",
        )


def _note_unmatched(ledger: Ledger, count: int, reason: str) -> None:
    ledger.note(
        "unmatched-communication",
        "a communication has no counterpart on another rank",
        count=count,
        remedy="record all ranks over the same steps",
        example=reason,
    )
