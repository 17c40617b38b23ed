"""Collectives and messages of all ranks after matching, with the parts that ranks recorded."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass

from augury.core.graph.graph import NONE
from augury.ingest.collectives.rank_collectives import Collective
from augury.ingest.rank.staged_rank import StagedRank


@dataclass(frozen=True, slots=True, kw_only=True)
class MatchedCollective:
    """One collective or message, with the parts that ranks recorded."""

    group: int
    sequence: int = NONE
    parts: dict[int, Collective]
    """Part of each rank that recorded it."""
    lacking: tuple[int, ...]
    """Ranks that take part in it and have a trace without it."""
    place: int = 0
    """Place in an order that agrees with all streams of all ranks."""

    def fill_sequence(self, ranks: Mapping[int, StagedRank]) -> None:
        """Writes its number to the events of its parts."""
        for rank, item in self.parts.items():
            ranks[rank].matched.sequence[item.row] = self.sequence


@dataclass(frozen=True, slots=True, kw_only=True)
class Matching:
    """Collectives and messages of all ranks, and the ranks whose collectives match those of no
    other rank."""

    collectives: list[MatchedCollective]
    """Those with several parts, or of which only one rank has a trace."""
    alone: list[MatchedCollective]
    """Those that only one of several ranks recorded; they have no sequence in the trace yet."""
    refused: frozenset[int]


def ends_of(matched: list[MatchedCollective]) -> dict[int, dict[tuple[int, int], int]]:
    """Ends of matched collectives on the clock of each rank, by (group, sequence). Messages count
    only for ranks without collectives: one may have left its sender long before its end on the
    receiver."""
    is_message = [any(item.is_point_to_point for item in one.parts.values()) for one in matched]
    linked = {
        rank
        for one, is_one in zip(matched, is_message, strict=True)
        if not is_one and len(one.parts) > 1
        for rank in one.parts
    }
    ends: dict[int, dict[tuple[int, int], int]] = defaultdict(dict)
    for one, is_one in zip(matched, is_message, strict=True):
        if is_one and linked.issuperset(one.parts):
            continue
        for rank, item in one.parts.items():
            ends[rank][one.group, one.sequence] = item.end_ns
    return ends
