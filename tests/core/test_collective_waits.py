"""Waits of the members of measured collectives."""

import numpy as np

from augury.core.enums import OpKind
from augury.core.string_table import StringTable
from augury.core.trace.collective_waits import collective_waits_ns
from augury.core.trace.trace import Events, Steps, Streams, Trace


def trace_of(rows: list[tuple[int, int, int, int]]) -> Trace:
    """``rows``: rank, start, duration and sequence of events of one group."""
    rank, start, dur, sequence = np.array(rows, dtype=np.int64).reshape(-1, 4).T
    fields = {name: np.zeros(len(rows)) for name, _ in Events.schema()}
    events = Events(
        **fields
        | {
            "kind": np.full(len(rows), OpKind.ALL_REDUCE),
            "rank": rank,
            "start_ns": start,
            "dur_ns": dur,
            "sequence": sequence,
        }
    )
    return Trace(
        events=events,
        streams=Streams.empty(),
        steps=Steps.empty(),
        strings=StringTable.of([""]),
        ranks=[],
        world_size=2,
    )


def test_members_wait_for_the_last_one() -> None:
    trace = trace_of([(0, 10, 100, 0), (0, 200, 50, 1), (1, 40, 70, 0), (1, 190, 60, 1)])
    assert collective_waits_ns(trace).tolist() == [30, 0, 0, 10]


def test_unmatched_events_do_not_wait_and_no_wait_exceeds_its_event() -> None:
    trace = trace_of([(0, 0, 10, 0), (0, 50, 10, -1), (1, 90, 10, 0)])
    assert collective_waits_ns(trace).tolist() == [10, 0, 0]


def test_a_trace_without_collectives() -> None:
    assert collective_waits_ns(trace_of([])).tolist() == []
