"""Matched collectives are ordered as the streams of all ranks ran them."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from augury.core.enums import OpKind
from augury.core.ledger import Ledger
from augury.ingest.collectives.matching.common_order import in_common_order
from augury.ingest.collectives.matching.matched_collectives import MatchedCollective
from augury.ingest.collectives.rank_collectives import Collective


def job(orders: list[list[int]]) -> list[MatchedCollective]:
    """One stream per rank, which runs the collectives with these numbers one after the other."""
    parts: dict[int, dict[int, Collective]] = {}
    for rank, order in enumerate(orders):
        for row, number in enumerate(order):
            start = 100 * row
            parts.setdefault(number, {})[rank] = Collective(
                row=row,
                kind=OpKind.ALL_REDUCE,
                start_ns=start,
                end_ns=start + 50,
                arrival_ns=start,
                stream=0,
            )
    return [MatchedCollective(group=0, parts=own, lacking=()) for own in parts.values()]


def agrees(ordered: list[MatchedCollective], num_ranks: int) -> bool:
    """Whether every rank runs its parts in this order."""
    rows = [[one.parts[r].row for one in ordered if r in one.parts] for r in range(num_ranks)]
    return all(own == sorted(own) for own in rows)


def test_an_order_of_all_ranks_is_kept():
    found = job([[0, 1, 3], [1, 2, 3], [0, 2]])
    ledger = Ledger()
    ordered = in_common_order(found, {}, ledger)
    assert [one.sequence for one in ordered] == [0, 1, 2, 3]
    assert sum(len(one.parts) for one in ordered) == 8
    assert agrees(ordered, 3)
    assert not len(ledger)


def test_contradicting_matches_are_dropped_and_counted():
    found = job([[0, 1, 2], [1, 0, 2]])
    ledger = Ledger()
    ordered = in_common_order(found, {}, ledger)
    assert agrees(ordered, 2)
    assert sum(len(one.parts) for one in ordered) == 5
    assert ledger["unmatched-communication"].count == 1


@given(st.lists(st.permutations(range(7)), min_size=2, max_size=4))
def test_any_orders_end_in_one_that_agrees(orders: list[list[int]]):
    found = job(orders)
    ordered = in_common_order(found, {}, Ledger())
    assert agrees(ordered, len(orders))
    assert [one.place for one in ordered] == list(range(len(ordered)))
    assert len(ordered) == 7
