"""Clocks from files of socket calls: which connections are used."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np
import pytest

from augury.core.ledger import Ledger
from augury.core.trace.trace import Clock
from augury.ingest.wire.clocks.byte_flows import clocks_of_files, clocks_of_ranks, flows
from augury.ingest.wire.pair_endpoints import End, Pair
from augury.ingest.wire.wire_file import WireFile
from augury.ingest.wire.wire_file_rows import RECEIVED, SENT, Calls, Ends, TcpStates

AT = 10**18
MS = 1_000_000
BEHIND = 30 * MS
"""The second host's clock is ahead by this much; messages take 1 ms."""
PAIRS = [Pair(End(0, 0), End(1, 0)), Pair(End(0, 1), None)]


def file(rank: int, host: str, *, ahead_ns: int = 0) -> WireFile:
    """A process that sends ten bytes every 10 ms and receives as many 6 ms later."""
    count = 50
    position = np.tile(np.arange(count) * 10, 2)
    sent = AT + np.arange(count) * 10 * MS + rank * 5 * MS
    received = AT + np.arange(count) * 10 * MS + (1 - rank) * 5 * MS + MS
    start = np.concatenate([sent, received - 100]) + ahead_ns
    return WireFile(
        name=f"rank-{rank:05d}.wire-1-a.bin",
        pid=1,
        rank=rank,
        host=host,
        started_ns=AT,
        ends=Ends(
            opened_ns=[AT, AT],
            closed_ns=[-1, -1],
            sent_bytes=[10 * count, 0],
            received_bytes=[10 * count, 0],
            is_late=[0, 0],
            is_inherited=[0, 0],
        ),
        own=["10.0.0.1:1", "10.0.0.1:2"],
        peer=["10.0.0.2:1", "10.0.0.3:1"],
        calls=Calls(
            connection=np.zeros(2 * count),
            kind=np.repeat([SENT, RECEIVED], count),
            start_ns=start,
            end_ns=start + 100,
            position=position,
            refused_ns=np.zeros(2 * count),
            asked=np.full(2 * count, 10),
            done=np.full(2 * count, 10),
            thread=np.ones(2 * count),
        ),
        states=TcpStates.empty(),
        calls_written_over=0,
        calls_not_kept=0,
        bytes_not_kept=0,
        connections_lost=0,
    )


@pytest.fixture
def files() -> list[WireFile]:
    return [file(0, "one"), file(1, "two", ahead_ns=BEHIND)]


def test_both_directions_bound_the_clocks(files: list[WireFile]):
    there, back = flows(files, PAIRS)
    assert (there.sender, there.receiver) == (back.receiver, back.sender) == (0, 1)
    assert there.sent_ns[0] == AT
    assert there.received_ns[0] == AT + MS + BEHIND
    assert back.sent_ns[0] == AT + 5 * MS + BEHIND
    assert back.received_ns[0] == AT + 6 * MS
    clocks = clocks_of_files(files, PAIRS, Ledger())
    assert clocks[0] == Clock()
    assert clocks[1].offset_ns == pytest.approx(-BEHIND, abs=1000)
    assert clocks[1].residual_ns == pytest.approx(MS, rel=0.05)
    assert clocks_of_files(files, PAIRS, Ledger(), reference=1)[0].offset_ns > 0


@pytest.mark.parametrize("column", ["is_late", "is_inherited"])
def test_ends_that_count_from_different_bytes_are_ignored(files: list[WireFile], column: str):
    late = dataclasses.replace(files[1].ends, **{column: [1, 0]})
    files[1] = dataclasses.replace(files[1], ends=late)
    assert len(list(flows(files, PAIRS))) == 2  # seen late, but in time for all bytes
    missed = dataclasses.replace(late, sent_bytes=[501, 0], received_bytes=[499, 0])
    files[1] = dataclasses.replace(files[1], ends=missed)
    assert list(flows(files, PAIRS)) == []
    ledger = Ledger()
    assert clocks_of_files(files, PAIRS, ledger) == {0: Clock()}
    assert ledger["clock-not-on-wire"].example == "rank 1 on two"


def test_flows_with_more_received_than_sent_are_ignored(files: list[WireFile]):
    ends = dataclasses.replace(files[1].ends, received_bytes=[501, 0])
    files[1] = dataclasses.replace(files[1], ends=ends)
    assert [(flow.sender, flow.receiver) for flow in flows(files, PAIRS)] == [(1, 0)]


def test_a_folder_without_files_gives_no_clocks(tmp_path: Path):
    ledger = Ledger()
    assert clocks_of_ranks(tmp_path, 0, ledger) == {}
    assert list(ledger) == []
