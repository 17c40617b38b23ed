"""Checks of the wire suite on known numbers, and its cost check on real jobs."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from benchmarks.validate.checks import Check
from benchmarks.validate.gates import broken
from benchmarks.validate.rows import Row, summarize
from benchmarks.validate.suite import chosen
from benchmarks.validate.wire_checks import bytes_of_wire, not_received, off_by
from benchmarks.validate.wire_settings import WIRE_SETTINGS
from benchmarks.validate.wire_suite import WIRE, better_than_coarse

from augury.core.enums import OpKind
from augury.core.graph.graph import NONE
from augury.core.string_table import StringTable
from augury.core.trace.trace import Events, Steps, Streams, Trace
from augury.core.wire import Connections, MessageKind, Messages, Wire, WireProcess


def _table(table, rows: int, /, **columns):
    filled = {
        name: np.full(rows, NONE if dtype.kind == "i" else 0, dtype=dtype)
        for name, dtype in table.schema()
    }
    return table(**filled | {name: np.array(values) for name, values in columns.items()})


def _wire(**lost: int) -> Wire:
    """Two ranks, each of which sends 100 bytes to the other for the only all-reduce."""
    connections = _table(
        Connections,
        1,
        process_a=[0],
        process_b=[1],
        sent_a=[148],
        received_b=[148 - lost.get("there", 0)],
        sent_b=[148],
        received_a=[148 + lost.get("back", 0)],
        is_late=[lost.get("late", 0)],
    )
    messages = _table(
        Messages,
        2,
        connection=[0, 0],
        src=[0, 1],
        dst=[1, 0],
        position=[0, 0],
        size_bytes=[148, 148],
        payload_bytes=[100, 100 - lost.get("payload", 0)],
        kind=[MessageKind.COLLECTIVE, lost.get("kind", MessageKind.COLLECTIVE)],
        group=[0, 0],
        sequence=[7, NONE if "kind" in lost else 7],
    )
    processes = [WireProcess(pid=rank, host=f"host{rank}", rank=rank) for rank in range(2)]
    return Wire(
        processes=processes,
        connections=connections,
        messages=messages,
        strings=StringTable.of([]),
    )


def _trace(size_bytes: int = 100) -> Trace:
    events = _table(
        Events,
        2,
        kind=[OpKind.ALL_REDUCE] * 2,
        rank=[0, 1],
        size_bytes=[size_bytes] * 2,
        group=[0, 0],
        sequence=[7, 7],
    )
    return Trace(
        events=events,
        streams=Streams.empty(),
        steps=Steps.empty(),
        strings=StringTable.of([]),
        ranks=[],
        world_size=2,
    )


def test_bytes_are_compared_each_way():
    assert not_received(_wire()).tolist() == [0, 0]
    assert not_received(_wire(there=3, back=2)).tolist() == [3, -2]
    assert not_received(_wire(late=1)) is None
    assert not_received(_wire(), control=False).tolist() == [0, 0]
    without = _wire().evolve(messages=Messages.empty())
    assert not_received(without, control=False) is None


def test_missing_bytes_of_the_two_directions_do_not_cancel():
    lost, unattributed = bytes_of_wire(_wire(there=1, back=1), "one")
    assert (lost.value, lost.holds) == (2, False)
    assert (unattributed.value, unattributed.holds) == (0, True)
    _, unattributed = bytes_of_wire(_wire(kind=MessageKind.UNKNOWN), "one")
    assert (unattributed.value, unattributed.holds) == (50, False)


def test_an_all_reduce_is_known_to_the_byte():
    assert off_by(_trace(), _wire()) == [0]
    assert off_by(_trace(), _wire(payload=1)) == [-1]
    assert off_by(_trace(101), _wire()) == [-2]
    assert off_by(_trace(), _wire(kind=MessageKind.UNKNOWN)) == [-100]


def test_the_number_of_cases_is_as_documented():
    changes = [change for setting in WIRE_SETTINGS for change in setting.changes]
    assert len(changes) >= 8
    assert {change.link for change in changes} >= {None, (0, "both"), (1, "both"), (1, "out")}
    assert {setting.num_ranks for setting in WIRE_SETTINGS} == {2, 4}
    assert all(setting.wire and setting.mbit <= 1000 for setting in WIRE_SETTINGS)
    assert all(
        setting.mbit * change.rate <= 1000
        for setting in WIRE_SETTINGS
        for change in setting.changes
    )
    assert [s.name for s in chosen(WIRE_SETTINGS, "conv-*/link-1-0.5x")] == ["conv-1gbit"]


def _row(kind: str, predicted: int, case: str = "conv-1gbit/link-1-0.5x") -> Row:
    return Row(
        suite="wire",
        case=case,
        kind=kind,
        measured_ns=1000,
        predicted_ns=predicted,
        interval_ns=None,
        noise_pct=0.0,
    )


@pytest.mark.parametrize(("fine", "holds"), [(1010, True), (1100, False)])
def test_fine_is_held_against_coarse_where_links_differ(fine: int, holds: bool):
    rows = [_row("whatif", fine), _row("coarse", 1050)]
    equal = [_row("coarse", 1000, "conv-1gbit/bandwidth-0.5x")]
    (check,) = better_than_coarse([*rows, *equal], frozenset({rows[0].case}))
    assert check.value == pytest.approx((fine - 1000) / 50)
    assert check.holds is holds
    assert not list(better_than_coarse([*rows, *equal])), "too few of them"


def test_coarse_rows_break_no_gate():
    rows = [_row("whatif", 1040), *(_row("coarse", 3000) for _ in range(9))]
    assert not broken(rows, [], summarize(rows), WIRE.gates)
    rows = [_row("whatif", 1040)] * 8 + [_row("whatif", 1060)] * 2
    assert len(broken(rows, [], summarize(rows), WIRE.gates)) == 1
    assert len(broken(rows[:9], [], summarize(rows[:9]), replace(WIRE.gates, covered=0.5))) == 2


def test_a_negative_cost_passes():
    def check(kind: str, value: float) -> Check:
        return Check(suite="wire", case="one", kind=kind, value=value, unit="%", at_most=1)

    assert [check("cost", v).holds for v in (-3, 0.9, 1.1)] == [True, True, False]
    assert not check("clock", -3).holds
