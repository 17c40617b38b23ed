"""Finds the ranks that take part in each collective of a table."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass

import numpy as np

from augury.core.columns import I8
from augury.ingest.formats.table.message_matching import TOLERANCE_NS
from augury.ingest.formats.table.rank_places import RankPlaces
from augury.ingest.formats.table.table_rows import TableRows

MIN_OVERLAPPING = 0.9
"""Share of collectives whose members overlap in time, below which a group is refused."""


@dataclass(frozen=True, slots=True)
class TableCollective:
    ranks: tuple[int, ...]
    """Ranks of the group, including those without a row."""
    rows: list[int]


def match_collectives(
    rows: TableRows, places: RankPlaces, optypes: list[int]
) -> list[TableCollective]:
    """Matches the rows of these kinds of operations. The members of a collective end together: a
    group whose members often do not overlap in time is refused."""
    found: list[TableCollective] = []
    for optype in optypes:
        own = np.flatnonzero(rows.optype == optype)
        identity = _identities(rows, own)
        for group_of in places.candidates(rows.optypes[optype]):
            matched = _grouped(rows, own, identity, group_of)
            together = [one for one in matched if len(one.rows) > 1]
            if together and _overlapping(rows, together) >= MIN_OVERLAPPING:
                found += matched
                break
    return found


def _identities(rows: TableRows, own: I8) -> list[tuple[int, int]]:
    """Returns the step and number of each row: its sequence number if these are unique within a
    rank and step, otherwise its position."""
    keys = [*zip(rows.step[own].tolist(), rows.rank[own].tolist(), strict=True)]
    numbers = rows.seq_id[own].tolist()
    triples = {(*key, number) for key, number in zip(keys, numbers, strict=True)}
    if len(triples) != len(keys) or min(numbers, default=0) < 0:
        counts: dict[tuple[int, int], int] = defaultdict(int)
        numbers = []
        for key in keys:
            numbers.append(counts[key])
            counts[key] += 1
    return [(step, number) for (step, _), number in zip(keys, numbers, strict=True)]


def _grouped(
    rows: TableRows,
    own: I8,
    identity: list[tuple[int, int]],
    group_of: dict[int, tuple[int, ...]],
) -> list[TableCollective]:
    members: dict[tuple[tuple[int, ...], tuple[int, int]], list[int]] = defaultdict(list)
    for row, rank, which in zip(own.tolist(), rows.rank[own].tolist(), identity, strict=True):
        if rank in group_of:
            members[group_of[rank], which].append(row)
    return [TableCollective(ranks, list(found)) for (ranks, _), found in members.items()]


def _overlapping(rows: TableRows, matched: list[TableCollective]) -> float:
    """Returns the share of collectives whose last member started before the first one ended."""
    good = sum(
        rows.start_ns[one.rows].max() <= rows.end_ns[one.rows].min() + TOLERANCE_NS
        for one in matched
    )
    return float(good) / len(matched)
