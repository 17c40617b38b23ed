"""Gives recorded communications the numbers by which ranks know them as one."""

from __future__ import annotations

from collections import Counter, defaultdict

from augury.core.enums import OpKind
from augury.core.ledger import Ledger
from augury.ingest.collectives.calls import Collective, communicator, group_ranks
from augury.ingest.rank.recorded_rank import RecordedRank
from augury.ingest.trace_builder import Workshop


def number(ranks: list[RecordedRank], workshop: Workshop, ledger: Ledger) -> None:
    """Ranks step together: the n-th collective of a group within a step is the same one on all of
    them. Sends pair with receives by their peers."""
    places: dict[tuple[int, int], dict[int, list[Collective]]] = defaultdict(
        lambda: defaultdict(list)
    )
    by_rank = {rank.record.rank: rank for rank in ranks}
    for rank in ranks:
        for item in rank.collectives:
            group = workshop.group(
                group_ranks(rank.record, item.group), communicator(rank.record, item.group)
            )
            rank.drafts[item.window].group[item.row] = group
            places[group, item.step][rank.record.rank].append(item)
    members = workshop.groups
    following: Counter[int] = Counter()
    for (group, _), parts in sorted(places.items()):
        expected = [rank for rank in members[group] if rank in by_rank]
        numbered = _collectives(parts, expected, following[group], ledger)
        following[group] = max((n + 1 for n in numbered.values()), default=following[group])
        numbered |= _pairs(parts, following[group], ledger)
        following[group] = max((n + 1 for n in numbered.values()), default=following[group])
        for (member, at), sequence in numbered.items():
            item = parts[member][at]
            by_rank[member].drafts[item.window].sequence[item.row] = sequence


def _collectives(
    parts: dict[int, list[Collective]], expected: list[int], first: int, ledger: Ledger
) -> dict[tuple[int, int], int]:
    """(rank, place in its list) to number, as far as all ranks did the same."""
    lists = {
        rank: [(at, c.kind) for at, c in enumerate(parts.get(rank, [])) if not c.is_from_one_to_one]
        for rank in expected
    }
    agreed = 0
    for same in zip(*lists.values(), strict=False):
        if len({kind for _, kind in same}) > 1:
            break
        agreed += 1
    left = sum(len(items) - agreed for items in lists.values())
    _note_unmatched(ledger, left, OpKind.ALL_REDUCE)
    return {
        (rank, at): first + place
        for rank, items in lists.items()
        for place, (at, _) in enumerate(items[:agreed])
    }


def _pairs(
    parts: dict[int, list[Collective]], first: int, ledger: Ledger
) -> dict[tuple[int, int], int]:
    ends: dict[tuple[int, int], tuple[list[tuple[int, int]], list[tuple[int, int]]]]
    ends = defaultdict(lambda: ([], []))
    for rank, items in parts.items():
        for at, item in enumerate(items):
            if item.kind == OpKind.SEND:
                ends[rank, item.peer][0].append((rank, at))
            elif item.kind == OpKind.RECV:
                ends[item.peer, rank][1].append((rank, at))
    numbered: dict[tuple[int, int], int] = {}
    for _, (sends, receives) in sorted(ends.items()):
        for one, other in zip(sends, receives, strict=False):
            numbered[one] = numbered[other] = first
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
