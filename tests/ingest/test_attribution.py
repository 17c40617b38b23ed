"""Attribution of messages to collectives by order, length and time, or by lengths alone."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from augury.core.enums import OpKind
from augury.core.graph.graph import NONE
from augury.core.wire import MessageKind, attributed_share
from augury.ingest.wire.attribution.find_rings import find_rings
from augury.ingest.wire.attribution.gloo_messages import all_reduce_lengths
from augury.ingest.wire.attribution.match_messages import Span, assign
from augury.ingest.wire.read_wire import read_wire
from tests.ingest.wire_written import Talk, Written, connection

MIB = 1 << 20


def _span(start: int, end: int, *lengths: int) -> Span:
    return Span(start_ns=start, end_ns=end, lengths=lengths or None)


def test_collectives_one_after_the_other():
    spans = [_span(0, 100, 5, 5), _span(101, 200, 5, 5)]
    assert assign([10, 20, 110, 120], [5, 5, 5, 5], spans) == [0, 0, 1, 1]


def test_collectives_one_after_the_other_with_inexact_clocks():
    """Each may begin before its predecessor has ended by the clocks, although it does not."""
    spans = [_span(begin, begin + 90, 5, 5, 5, 5) for begin in (0, 100, 200)]
    times = [begin + at for begin in (0, 100, 200) for at in (1, 30, 60, 89)]
    assert assign(times, [5] * 12, spans, slack_ns=50) == [0] * 4 + [1] * 4 + [2] * 4
    late = [time + 20 for time in times]
    assert assign(late, [5] * 12, spans, slack_ns=50) == [0] * 4 + [1] * 4 + [2] * 4


def test_lengths_separate_two_collectives_at_once():
    spans = [_span(0, 100, 5, 7, 5), _span(0, 100, 5, 5, 7)]
    # Assigning each message to the first collective that expects its length would fail.
    lengths = [5, 5, 7, 5, 7, 5]
    found = assign(list(range(6)), lengths, spans)
    for number, span in enumerate(spans):
        own = [length for length, of in zip(lengths, found, strict=True) if of == number]
        assert tuple(own) == span.lengths


def test_two_equal_collectives_at_once_are_both_complete():
    spans = [_span(0, 100, 5, 5, 5, 5), _span(0, 100, 5, 5, 5, 5)]
    given_to = assign(list(range(0, 80, 10)), [5] * 8, spans)
    assert sorted(given_to) == [0] * 4 + [1] * 4


def test_unexpected_messages_are_left():
    spans = [_span(0, 100, 5, 5)]
    assert assign([10, 20, 30], [5, 6, 5], spans) == [0, NONE, 0]
    assert assign([10, 500], [5, 5], spans) == [0, NONE]
    assert assign([], [], spans) == []


def test_a_collective_of_unknown_lengths_gets_the_rest():
    spans = [_span(0, 100), _span(0, 100, 5, 5)]
    assert assign([10, 20, 30, 200], [5, 9, 5, 9], spans) == [1, 0, 1, NONE]


def test_a_lost_message_does_not_affect_others():
    spans = [_span(0, 100, 5, 5, 6), _span(150, 250, 5, 5, 6)]
    assert assign([10, 20, 160, 170, 180], [5, 5, 5, 5, 6], spans) == [0, 0, 1, 1, 1]


@settings(max_examples=40)
@given(st.data())
def test_rings_are_found_by_their_lengths(data: st.DataObject):
    num_ranks = data.draw(st.integers(2, 6))
    place = data.draw(st.integers(0, num_ranks - 1))
    sizes = data.draw(
        st.lists(st.integers(num_ranks * 4, 6_000_000).map(lambda n: 4 * n), min_size=1, max_size=5)
    )
    parts = [all_reduce_lengths(size, num_ranks, place) for size in sizes]
    lengths = np.concatenate(parts)
    pauses = np.concatenate([[5_000, *[100] * (len(part) - 1)] for part in parts])
    rings = find_rings(np.cumsum(pauses), lengths, num_ranks, place)
    assert [ring.size_bytes for ring in rings] == sizes
    assert [len(ring.rows) for ring in rings] == [len(part) for part in parts]


@pytest.mark.parametrize("size", [10_000_000, 8 * MIB])
def test_two_rings_of_one_size_are_not_one_of_twice_the_size(size: int):
    lengths = np.concatenate([all_reduce_lengths(size, 2, 0)] * 3)
    pauses = np.full(len(lengths), 100)
    pauses[:: len(lengths) // 3] = 5_000
    rings = find_rings(np.cumsum(pauses), lengths, 2, 0)
    assert [ring.size_bytes for ring in rings] == [size] * 3


@pytest.mark.parametrize(("num_ranks", "place"), [(2, 0), (2, 1), (4, 1)])
def test_two_rings_at_once(num_ranks: int, place: int):
    sizes = (2_548_828, 842_800)
    parts = [all_reduce_lengths(size, num_ranks, place).tolist() for size in sizes]
    mixed: list[int] = []
    for _ in range(3):
        left = [list(part) for part in parts]
        for turn in (0, 0, 1, 1, 0, 1) * 8:
            mixed += left[turn][:1]
            left[turn] = left[turn][1:]
    rings = find_rings(np.arange(len(mixed)) * 100, np.array(mixed), num_ranks, place)
    assert sorted(ring.size_bytes for ring in rings) == sorted(3 * sizes)
    assert sum(len(ring.rows) for ring in rings) == len(mixed)


def test_messages_of_no_ring_are_skipped():
    lengths = np.array([77_777, *all_reduce_lengths(1_000_000, 2, 1).tolist(), 3, 99_999, 31])
    rings = find_rings(np.arange(len(lengths)) * 100, lengths, 2, 1)
    long = [(ring.rows[0], ring.size_bytes) for ring in rings if len(ring.rows) > 1]
    assert long == [(1, 1_000_000)]


def _all_reduce(talk: Talk, size: int) -> None:
    both = [all_reduce_lengths(size, 2, rank).tolist() for rank in (0, 1)]
    for turn in range(max(map(len, both))):
        for rank in (0, 1):
            talk.send_framed(1 - rank, 0)
            if turn < len(both[rank]):
                talk.send_framed(rank, both[rank][turn])
    talk.now += 10_000_000


@pytest.mark.parametrize("is_told", [True, False])
def test_all_reduces_of_a_job_without_a_trace(tmp_path: Path, is_told: bool):
    talk = Talk()
    sizes = [10_000_000, 4_004, 2_500_000, 4_004]
    for size in sizes:
        _all_reduce(talk, size)
    if not is_told:
        for file in talk.files:
            file.rank = -1
        # In an order that tells nothing.
        talk.files[0].pid, talk.files[0].host = 300, "zzz"
    wire = read_wire(talk.write(tmp_path))
    assert attributed_share(wire) == 1
    assert wire.collectives.size_bytes.tolist() == sizes
    assert wire.collectives.payload_bytes.tolist() == [2 * size for size in sizes]
    assert wire.collectives.expected_bytes.tolist() == [2 * size for size in sizes]
    assert (wire.collectives.kind == OpKind.ALL_REDUCE).all()
    rows = wire.messages
    assert set(rows.group[rows.kind == MessageKind.COLLECTIVE].tolist()) == {0}
    first = (rows.sequence == 0) & (rows.src == 0)
    assert rows.turn[first].tolist() == list(range(int(first.sum())))
    assert ("wire-ranks-inferred" in wire.ledger) != is_told
    if not is_told:
        assert [(process.pid, process.rank) for process in wire.processes] == [(101, 1), (300, 0)]


def test_payload_that_fits_nothing_is_unknown(tmp_path: Path):
    talk = Talk()
    _all_reduce(talk, 1_000_000)
    talk.send_framed(0, 500_000)
    wire = read_wire(talk.write(tmp_path))
    assert attributed_share(wire) == pytest.approx(2_000_000 / 2_500_000)


def test_small_messages_beside_gloo_are_control(tmp_path: Path):
    talk = Talk()
    _all_reduce(talk, 1_000_000)
    talk.write(tmp_path)
    store = Talk()
    store.send(0, 500)
    store.send(1, 90)
    here, there = ("10.0.0.1", 9), ("10.0.0.2", 9)
    for side, file in enumerate(talk.files):
        own, peer = (here, there) if side == 0 else (there, here)
        other = store.files[side]
        file.connections.append(
            connection(own, peer, sent=500 if side == 0 else 90, received=90 if side == 0 else 500)
        )
        for one in other.events:
            moved = bytearray(one)
            moved[0:8] = (len(file.events) + 1).to_bytes(8, "little")
            moved[52:54] = (1).to_bytes(2, "little")
            file.events.append(bytes(moved))
        file.write(tmp_path)
    wire = read_wire(tmp_path)
    rows = wire.messages
    talked = rows.connection == 1
    assert (rows.kind[talked] == MessageKind.CONTROL).all()
    assert rows.size_bytes[talked].tolist() == [500, 90]
    assert attributed_share(wire) == 1


def test_one_process_alone(tmp_path: Path):
    Written(rank=-1, connections=[connection(("10.0.0.1", 1), ("10.0.0.2", 2))]).write(tmp_path)
    wire = read_wire(tmp_path)
    assert len(wire.messages) == 0
    assert attributed_share(wire) == 1
