"""Links fitted to messages, and times derived from them."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from augury.core.cluster.cluster import Link
from augury.core.errors import InputError, UsageError
from augury.core.string_table import StringTable
from augury.core.wire import Connections, MessageKind, Messages, Wire, WireProcess
from augury.costs.closed_forms import all_reduce_ring_ns
from augury.costs.collective_steps import ring
from augury.costs.links import Links, fit_links
from augury.passes.removals.level_links import levelled

MIB = 1 << 20


def equal_links(num_ranks: int, ns_per_byte: float = 8.0, latency_ns: float = 50_000.0) -> Links:
    apart = 1 - np.eye(num_ranks)
    return Links.of(apart * ns_per_byte, apart * latency_ns)


def wire_of(rows: list[tuple[int, int, int, int, int]]) -> Wire:
    """Rows of sender, receiver, bytes, when sent, when received."""
    src, dst, size, send, received = np.array(rows, dtype=np.int64).T
    same = np.zeros(len(rows), dtype=np.int64)
    return Wire(
        processes=[WireProcess(pid=10 + rank, host=f"h{rank}", rank=rank) for rank in range(4)],
        connections=Connections.empty(),
        messages=Messages(
            connection=same,
            src=src,
            dst=dst,
            position=same,
            size_bytes=size,
            payload_bytes=size,
            send_ns=send,
            sent_ns=send,
            arrived_ns=received,
            received_ns=received,
            refused_ns=same,
            num_receives=same + 1,
            kind=same + MessageKind.COLLECTIVE,
            group=same,
            sequence=same,
            turn=same,
        ),
        strings=StringTable.of([]),
    )


def stream(src: int, dst: int, ns_per_byte: float, latency_ns: int) -> list[tuple[int, ...]]:
    """A dozen small messages on an idle link, then large ones, each sent before the last is in."""
    rows = [(src, dst, 48, i * 10**7, i * 10**7 + latency_ns) for i in range(12)]
    at = 10**9
    free = at + latency_ns
    for i in range(20):
        free += round(ns_per_byte * MIB)
        rows.append((src, dst, MIB, at + i * 1000, free))
    return rows


def test_rate_and_latency_of_every_way_are_found() -> None:
    wire = wire_of([*stream(0, 1, 8.5, 60_000), *stream(1, 0, 42.0, 90_000)])
    links = fit_links(wire, 2)
    assert links.ns_per_byte[0, 1] == pytest.approx(8.5, rel=0.01)
    assert links.ns_per_byte[1, 0] == pytest.approx(42.0, rel=0.01)
    assert links.latency_ns[0, 1] == pytest.approx(60_000, rel=0.01)


def test_bursts_after_pauses_and_stalls_are_told_from_the_usual_rate() -> None:
    usual = stream(0, 1, 6.0, 60_000)
    at = 2 * 10**9
    large = (0, 1, 8 * MIB, at, at + 60_000 + round(9.0 * 8 * MIB))
    assert fit_links(wire_of([*usual, *stream(1, 0, 30.0, 60_000)]), 2).burst == 1.0
    links = fit_links(wire_of([*usual, large, *stream(1, 0, 30.0, 60_000)]), 2)
    assert links.burst == pytest.approx(1.5, rel=0.01)
    assert links.ns_per_byte[0, 1] == pytest.approx(6.0, rel=0.01)
    assert links.stall == 1.0
    stalled = (1, 0, MIB, at, at + 60_000 + round(30.0 * 8 * MIB))
    links = fit_links(wire_of([*usual, *stream(1, 0, 30.0, 60_000), stalled]), 2)
    assert links.stall == pytest.approx(28 / 21, rel=0.01)
    assert links.ns_per_byte[1, 0] == pytest.approx(30.0, rel=0.01)


def test_a_levelled_link_has_neither_pauses_nor_stalls() -> None:
    uneven = Links.of(np.array([[0.0, 6.0], [30.0, 0.0]]), np.full((2, 2), 60_000.0))
    level = levelled(replace(uneven, burst=1.5, stall=1.2))
    assert level.ns_per_byte[0, 1] == level.ns_per_byte[1, 0] == pytest.approx(9.0)
    assert level.stall == 1.0
    assert levelled(replace(uneven, burst=8.0)).ns_per_byte.max() == pytest.approx(30.0)


def test_a_pair_that_never_talked_is_as_slow_as_its_slower_end() -> None:
    wire = wire_of([*stream(0, 1, 8.0, 50_000), *stream(1, 2, 40.0, 50_000)])
    links = fit_links(wire, 3)
    assert links.ns_per_byte[0, 2] == pytest.approx(40.0, rel=0.01)


def test_a_wire_without_payload_tells_no_rate() -> None:
    with pytest.raises(InputError, match="no large message"):
        fit_links(wire_of([(0, 1, 48, 0, 1000)]), 2)


@pytest.mark.parametrize("num_ranks", [2, 4])
def test_a_ring_alone_takes_what_the_closed_form_says(num_ranks: int) -> None:
    links = equal_links(num_ranks)
    size_bytes = 64 * MIB
    alone_ns = links.alone_ns(ring(size_bytes, num_ranks), range(num_ranks))
    closed_ns = all_reduce_ring_ns(
        size_bytes, num_ranks, Link(bandwidth_bytes_per_s=125_000_000, latency_ns=50_000)
    )
    assert alone_ns == pytest.approx(closed_ns, rel=0.02)


def test_one_slow_link_slows_the_whole_ring() -> None:
    links = equal_links(4)
    sends = ring(64 * MIB, 4)
    before, after = links.alone_ns(sends, range(4)), links.faster(2, 0.5).alone_ns(sends, range(4))
    assert after == pytest.approx(2 * before, rel=0.1)
    assert links.all_faster(2).alone_ns(sends, range(4)) < 0.6 * before


def test_one_way_is_one_way() -> None:
    changed = equal_links(3).faster(1, 0.5, receives=False)
    assert changed.ns_per_byte[1, 0] == 16
    assert changed.ns_per_byte[0, 1] == 8


def test_a_faster_link_helps_no_further_than_the_other_end() -> None:
    links = equal_links(2)
    assert links.faster(1, 4).ns_per_byte[0, 1] == links.faster(1, 4).ns_per_byte[1, 0] == 8
    assert links.faster(1, 4).faster(0, 4).ns_per_byte[0, 1] == 2


def test_the_one_slow_rank_of_a_ring_is_told_from_its_neighbours() -> None:
    """Messages in which ranks send to the one before; those to and from rank 1 are slow."""
    seen = [*stream(0, 3, 8.0, 50_000), *stream(3, 2, 8.0, 50_000)]
    seen += [*stream(2, 1, 32.0, 50_000), *stream(1, 0, 32.0, 50_000)]
    links = fit_links(wire_of(seen), 4)
    assert links.out == pytest.approx([8, 32, 8, 8], rel=0.01)
    restored = links.faster(1, 8)
    assert restored.ns_per_byte[2, 1] == pytest.approx(8, rel=0.01)


def test_a_rank_that_is_not_there() -> None:
    with pytest.raises(UsageError, match="no rank 7"):
        equal_links(2).faster(7, 0.5)


def test_further_ranks_have_links_as_the_others() -> None:
    grown = equal_links(2).grown(4)
    off = ~np.eye(4, dtype=bool)
    assert (grown.ns_per_byte[off] == 8).all()
