"""Messages of two ranks that exchange pieces of a plan, from the log of the runtime."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from augury.build.recorded.recorded_graph import build_recorded
from augury.core.enums import OpKind
from augury.core.graph.graph import NONE
from augury.core.trace.trace import Trace
from augury.core.trace.trace_spec import problems
from augury.ingest.recorded import read_run
from augury.replay.run import replay
from tests.ingest.written import EPOCH_NS, MS, STEP_NS, Run, skewed

SIZES = [3_000_000, 1_000_000]


def told(record: dict[str, Any], clock: Any) -> None:
    """Both ranks send at 60 and 70 ms of a step; messages take 3 ms, and 12 ms more to the first
    rank. The next forward waits for the second piece at 12 ms, and for the first at 20 ms."""
    later = 12 * MS if record["rank"] == 0 else 0
    steps = []
    for number in range(6, 25):
        begin_ns = EPOCH_NS + (number - 1) * STEP_NS + 50 * MS
        steps.append(
            {
                "start_ns": clock(begin_ns),
                "order": 0,
                "watched_ns": 9 * MS,
                "issued_ns": [10 * MS, 20 * MS],
                "arrived_ns": [13 * MS + later, 23 * MS + later],
                "waited_from_ns": [70 * MS, 62 * MS],
                "waited_until_ns": [70 * MS + 1000, 62 * MS + 1000],
            }
        )
    record["pieces"] = {"groups": ["7"], "orders": [SIZES], "steps": steps}


def swapped(folder: Path, change: Any = lambda record: None, clock: Any = None) -> Trace:  # noqa: ARG005
    clocks = (skewed(0, 0.0), clock or skewed(0, 0.0))

    def both(record: dict[str, Any]) -> None:
        told(record, clocks[record["rank"]])
        change(record)

    return read_run(Run(folder, clocks=clocks, change=both).write())


def rows(trace: Trace, kind: OpKind, rank: int, step: int) -> list[int]:
    events = trace.events
    own = (events.kind == kind) & (events.rank == rank) & (events.step == step)
    return [*(own & (events.group != NONE)).nonzero()[0].tolist()]


@pytest.mark.parametrize("clock", [skewed(0, 0.0), skewed(5_000 * MS, 20.0)])
def test_messages_and_waits(tmp_path: Path, clock: Any) -> None:
    trace = swapped(tmp_path / "run", clock=clock)
    assert list(problems(trace)) == []
    events = trace.events
    begin_ns = EPOCH_NS + 7 * STEP_NS
    for rank, later in ((0, 0), (1, 12 * MS)):
        sent = rows(trace, OpKind.SEND, rank, 8)
        assert events.size_bytes[sent].tolist() == SIZES
        asked = events.arrival_ns[sent] - begin_ns
        assert asked.tolist() == pytest.approx([60 * MS, 70 * MS], abs=MS)
        # One connection: the second begins when the first has arrived.
        start_ns, end_ns = events.start_ns[sent] - begin_ns, events.dur_ns[sent]
        assert start_ns.tolist() == pytest.approx([60 * MS, max(70 * MS, 63 * MS + later)], abs=MS)
        ends = (start_ns + end_ns).tolist()
        assert ends == pytest.approx([63 * MS + later, 73 * MS + later], abs=MS)
        # The other rank waits for them in the step after.
        names = {*zip(events.group[sent].tolist(), events.sequence[sent].tolist(), strict=True)}
        waits = rows(trace, OpKind.SYNC, 1 - rank, 9)
        found = zip(events.group[waits].tolist(), events.sequence[waits].tolist(), strict=True)
        assert {*found} == names
    assert all(facts.piece_groups for facts in trace.ranks)


def test_exchanges_replay(tmp_path: Path) -> None:
    graph = build_recorded(swapped(tmp_path / "run"))
    sent = graph.ops.kind == OpKind.SEND
    assert sent.any()
    assert (graph.ops.gang[sent] == NONE).all()
    assert replay(graph).step_ns == pytest.approx(STEP_NS, rel=0.02)


def test_unseen_arrivals_take_no_longer_than_others(tmp_path: Path) -> None:
    def change(record: dict[str, Any]) -> None:
        for step in record["pieces"]["steps"][::2]:
            step["watched_ns"] = 40 * MS
            step["arrived_ns"] = [40 * MS + 1000, 40 * MS + 2000]

    trace = swapped(tmp_path / "run", change)
    events = trace.events
    of_rank = (events.kind == OpKind.SEND) & (events.rank == 0)
    assert (events.dur_ns[of_rank] < 10 * MS).all()


def test_calls_of_the_runtime_are_not_calls_of_the_program(tmp_path: Path) -> None:
    def change(record: dict[str, Any]) -> None:
        at_ns = EPOCH_NS + 7 * STEP_NS + 60 * MS
        other = 1 - record["rank"]
        record["groups"].append({"name": "7", "ranks": [0, 1]})
        record["calls"] = [
            [at_ns, at_ns + MS, kind, "7", 0, 3_000_000, other, 0, 0] for kind in ("send", "recv")
        ]

    trace = swapped(tmp_path / "run", change)
    assert not (trace.events.kind == OpKind.RECV).any()
    assert len(rows(trace, OpKind.SEND, 0, 8)) == 2


def test_pieces_of_one_rank_alone_are_noted(tmp_path: Path) -> None:
    def change(record: dict[str, Any]) -> None:
        if record["rank"] == 1:
            del record["pieces"]

    trace = swapped(tmp_path / "run", change)
    assert "unmatched-pieces" in trace.ledger
    assert not (trace.events.kind == OpKind.SEND).any()


@pytest.mark.parametrize(
    "damage",
    [
        lambda steps: steps[0].update(issued_ns=[1]),
        lambda steps: steps[0].update(order=3),
        lambda steps: steps[0].update(order=-1),
        lambda steps: steps[0].update(arrived_ns=[1, 10**30]),
        lambda steps: steps[0].update(waited_from_ns=None),
    ],
)
def test_damaged_logs(tmp_path: Path, damage: Any) -> None:
    def change(record: dict[str, Any]) -> None:
        if record["rank"] == 1:
            damage(record["pieces"]["steps"])

    trace = swapped(tmp_path / "run", change)
    assert "unreadable-record" in trace.ledger
    assert not (trace.events.kind == OpKind.SEND).any()
