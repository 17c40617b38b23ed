"""Gives each collective of a recorded run the same group and sequence number on all its ranks."""

from __future__ import annotations

from collections import Counter, defaultdict

from augury.core.enums import OpKind
from augury.core.ledger import Ledger
from augury.ingest.collectives.calls import communicator, group_ranks
from augury.ingest.collectives.rank_collectives import Collective
from augury.ingest.rank.recorded_rank import RecordedRank
from augury.ingest.trace_builder import TraceBuilder

_Place = tuple[int, int]
"""Rank and position in that rank's list."""


def number_collectives(ranks: list[RecordedRank], builder: TraceBuilder, ledger: Ledger) -> None:
    """The n-th collective of a group within a step is the same one on all ranks, because all ranks
    record the same steps. Sends pair with receives by their peers."""
    by_step: dict[tuple[int, int], dict[int, list[Collective]]] = defaultdict(
        lambda: defaultdict(list)
    )
    by_rank = {rank.record.rank: rank for rank in ranks}
    for rank in ranks:
        for item in rank.collectives:
            group = builder.group(
                group_ranks(rank.record, item.group, item.members),
                communicator(rank.record, item.group),
            )
            rank.parts[item.window].group[item.row] = group
            by_step[group, item.step][rank.record.rank].append(item)
    members = builder.groups
    next_number: Counter[int] = Counter()
    for (group, _), parts in sorted(by_step.items()):
        expected = [rank for rank in members[group] if rank in by_rank]
        numbered = _number_alike(parts, expected, next_number[group], ledger)
        next_number[group] = max((n + 1 for n in numbered.values()), default=next_number[group])
        numbered |= _number_pairs(parts, next_number[group], ledger)
        next_number[group] = max((n + 1 for n in numbered.values()), default=next_number[group])
        for (member, position), sequence in numbered.items():
            item = parts[member][position]
            by_rank[member].parts[item.window].sequence[item.row] = sequence


def _number_alike(
    parts: dict[int, list[Collective]], expected: list[int], first: int, ledger: Ledger
) -> dict[_Place, int]:
    """Numbers collectives up to the first position at which ranks differ."""
    lists = {
        rank: [(i, c.kind) for i, c in enumerate(parts.get(rank, [])) if not c.is_point_to_point]
        for rank in expected
    }
    num_alike = 0
    for same in zip(*lists.values(), strict=False):
        if len({kind for _, kind in same}) > 1:
            break
        num_alike += 1
    num_left = sum(len(items) - num_alike for items in lists.values())
    _note_unmatched(ledger, num_left, OpKind.ALL_REDUCE)
    return {
        (rank, position): first + number
        for rank, items in lists.items()
        for number, (position, _) in enumerate(items[:num_alike])
    }


def _number_pairs(
    parts: dict[int, list[Collective]], first: int, ledger: Ledger
) -> dict[_Place, int]:
    ends: dict[tuple[int, int], tuple[list[_Place], list[_Place]]]
    ends = defaultdict(lambda: ([], []))
    for rank, items in parts.items():
        for position, item in enumerate(items):
            if item.kind == OpKind.SEND:
                ends[rank, item.peer][0].append((rank, position))
            elif item.kind == OpKind.RECV:
                ends[item.peer, rank][1].append((rank, position))
    numbered: dict[_Place, int] = {}
    for _, (sends, receives) in sorted(ends.items()):
        for send, receive in zip(sends, receives, strict=False):
            numbered[send] = numbered[receive] = first
            first += 1
        _note_unmatched(ledger, abs(len(sends) - len(receives)), OpKind.SEND)
    return numbered


def _note_unmatched(ledger: Ledger, count: int, kind: OpKind) -> None:
    ledger.note(
        "unmatched-communication",
        "a communication has no counterpart on another rank",
        count=count,
        remedy="record all ranks, over the same steps",
        example=kind.label,
    )
