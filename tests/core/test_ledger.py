from __future__ import annotations

import pytest

from augury.core.ledger import Anomaly, Ledger, Severity


def test_noting_again_adds_to_the_count_and_keeps_the_first_example():
    ledger = Ledger()
    ledger.note("gap", "an event without an end", example="rank 0", remedy="look there")
    ledger.note("gap", "an event without an end", count=3, example="rank 7")
    assert len(ledger) == 1
    assert ledger["gap"] == Anomaly(
        name="gap",
        severity=Severity.WARNING,
        count=4,
        meaning="an event without an end",
        remedy="look there",
        example="rank 0",
    )


@pytest.mark.parametrize("count", [0, -1])
def test_what_did_not_happen_is_not_noted(count: int):
    ledger = Ledger()
    ledger.note("gap", "an event without an end", count=count)
    assert "gap" not in ledger
    assert not list(ledger)


def test_merging_keeps_order_and_changes_neither():
    one, two = Ledger(), Ledger()
    one.note("a", "first", severity=Severity.INFO)
    two.note("b", "second", severity=Severity.ERROR)
    two.note("a", "first", count=2)
    merged = one.merged(two)
    assert [(anomaly.name, anomaly.count) for anomaly in merged] == [("a", 3), ("b", 1)]
    assert (one["a"].count, two["a"].count) == (1, 2)


def test_equality_is_by_content():
    one, two = Ledger(), Ledger()
    one.note("a", "first")
    assert one != two
    two.note("a", "first")
    assert one == two
    assert one != "ledger"
    assert Ledger(one) == one


def test_a_ledger_grows_and_has_no_hash():
    with pytest.raises(TypeError):
        hash(Ledger())


def test_an_unknown_anomaly_is_a_key_error():
    with pytest.raises(KeyError):
        Ledger()["gap"]
