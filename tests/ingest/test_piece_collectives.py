"""Collectives of a plan with no event, or with ambiguous events."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from augury.build.recorded.recorded_graph import build_recorded
from augury.core.enums import OpKind
from augury.core.graph.graph import NONE
from augury.core.trace.rank_record import RecordedCall
from augury.core.trace.trace import Trace
from augury.ingest.collectives.calls import in_order_of_calls, match_calls
from augury.ingest.collectives.piece_collectives import spans_without_events, step_of_piece
from augury.ingest.collectives.rank_collectives import Collective
from augury.ingest.recorded import read_run
from augury.replay.run import replay
from tests.ingest.written import EPOCH_NS, MS, STEP_NS, Run


def call(start_ns: int, kind: str = "all_gather", **facts: Any) -> RecordedCall:
    return RecordedCall(start_ns, start_ns + 10, kind, "7", 0, **facts)


def event(start_ns: int, end_ns: int, kind: OpKind, **facts: Any) -> Collective:
    times = {"start_ns": start_ns, "end_ns": end_ns, "arrival_ns": start_ns}
    return Collective(window=0, row=0, kind=kind, step=1, **times, **facts)


def test_an_event_that_starts_after_the_wait_belongs_to_another_call() -> None:
    first = call(1 * MS, waited_from_ns=4 * MS, waited_until_ns=5 * MS)
    second = call(11 * MS, waited_from_ns=14 * MS, waited_until_ns=15 * MS)
    seen = event(12 * MS, 13 * MS, OpKind.ALL_GATHER)
    assert match_calls([seen], [first, second]) == [first]
    assert seen.call == second


def test_collectives_are_numbered_in_order_of_their_calls() -> None:
    """Two threads of gloo: the one with the second collective logged its start first."""
    first, second = call(1 * MS, size_bytes=16), call(2 * MS, size_bytes=1024)
    large = event(3 * MS, 5 * MS, OpKind.ALL_GATHER, traced_bytes=1024)
    small = event(4 * MS, 6 * MS, OpKind.ALL_GATHER, traced_bytes=16)
    of_ddp = event(3 * MS, 4 * MS, OpKind.ALL_REDUCE)
    assert not match_calls([large, of_ddp, small], [first, second])
    assert in_order_of_calls([large, of_ddp, small]) == [small, of_ddp, large]


def test_a_piece_belongs_to_the_step_of_the_last_backward() -> None:
    backward_ns = {6: 50 * MS, 7: 150 * MS}
    assert step_of_piece(call(10 * MS), backward_ns) is None
    assert step_of_piece(call(60 * MS), backward_ns) == 6
    assert step_of_piece(call(120 * MS), backward_ns) == 6
    assert step_of_piece(call(160 * MS), backward_ns) == 7


def test_a_collective_without_event_runs_between_call_and_wait() -> None:
    half = event(0, 2 * MS, OpKind.ALL_TO_ALL, call=call(0, "all_to_all"))
    blocked = call(1 * MS, waited_from_ns=3 * MS, waited_until_ns=5 * MS)
    late = call(10 * MS, waited_from_ns=30 * MS, waited_until_ns=30 * MS + 1000)
    soon = call(40 * MS, waited_from_ns=41 * MS, waited_until_ns=41 * MS + 1000)
    spans = spans_without_events([late, blocked, soon], [half])
    # The group has one thread, which was busy with the first half until then.
    assert spans[blocked] == (2 * MS, 5 * MS)
    assert spans[late] == (10 * MS, 13 * MS)
    assert spans[soon] == (40 * MS, 41 * MS)


def test_collectives_on_several_threads_do_not_block_each_other() -> None:
    halves = [
        event(0, 4 * MS, OpKind.ALL_TO_ALL, call=call(0, "all_to_all")),
        event(1 * MS, 3 * MS, OpKind.ALL_TO_ALL, call=call(1, "all_to_all")),
    ]
    second = call(3 * MS, waited_from_ns=5 * MS, waited_until_ns=6 * MS)
    assert spans_without_events([second], halves)[second] == (3 * MS, 6 * MS)


def halved(folder: Path) -> Trace:
    """Second halves without events: the first rank issues them at the end of a step, the second one
    after the next step has begun. Both wait for them in the next forward."""

    def change(record: dict[str, Any]) -> None:
        asked_ns = (-2 * MS, 2 * MS)[record["rank"]]
        record["pieces"] = {"groups": ["7"], "orders": [], "steps": []}
        record["groups"].append({"name": "7", "ranks": [0, 1]})
        record["calls"] = []
        for step in range(5, 12):
            end_ns = EPOCH_NS + step * STEP_NS
            begin_ns, waited = end_ns + asked_ns, [end_ns + 3 * MS, end_ns + 5 * MS]
            record["calls"].append(
                [begin_ns, begin_ns + 1000, "all_gather", "7", step, 64, -1, *waited]
            )

    return read_run(Run(folder, change=change).write())


def test_second_halves_without_events(tmp_path: Path) -> None:
    trace = halved(tmp_path / "run")
    events = trace.events
    gathers = [
        {
            int(events.sequence[row]): int(events.step[row])
            for row in ((events.kind == OpKind.ALL_GATHER) & (events.rank == rank)).nonzero()[0]
        }
        for rank in (0, 1)
    ]
    assert gathers[0] == gathers[1]
    assert NONE not in gathers[0]
    assert {7, 8, 9} <= {*gathers[0].values()}
    assert not any(one.name == "unmatched-communication" for one in trace.ledger)
    assert replay(build_recorded(trace)).step_ns > 0
