"""Peak memory equals the maximum over the memory held at every time stamp."""

from __future__ import annotations

from collections import Counter

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from augury.core.enums import MemoryKind
from augury.core.graph.builder import GraphBuilder
from augury.core.graph.graph import NONE, Buffers, Graph
from augury.core.timeline import Holder, PeakMemory
from augury.replay import kernel, reference
from augury.replay.op_times import OpTimes
from augury.replay.peak_memory import peak_memory, peak_memory_in_python
from augury.replay.unroll import unroll
from tests.campaigns import campaign
from tests.engines.strategies import graphs

NEVER = 1 << 62


@st.composite
def buffers(draw: st.DrawFn, graph: Graph) -> Buffers:
    """Of any operations of one rank: they may be given back before they are taken."""
    rows = []
    for _ in range(draw(st.integers(1, 20))):
        op = draw(st.integers(0, graph.num_ops - 1))
        rank = int(graph.ops.rank[op])
        own = np.flatnonzero(graph.ops.rank == rank).tolist()
        rows.append(
            (
                rank,
                draw(st.integers(0, 5)),
                draw(st.sampled_from(MemoryKind)),
                draw(st.sampled_from((op, op, NONE))),
                draw(st.sampled_from((*own, NONE))),
                draw(st.sampled_from((0, 0, 0, 1))),
                draw(st.integers(NONE, 1)),
            )
        )
    names = [name for name, _ in Buffers.schema()]
    return Buffers(**dict(zip(names, np.array(rows).T, strict=True)))


def _asked_at_every_moment(graph: Graph, op_times: OpTimes) -> tuple[PeakMemory, ...]:
    table = graph.buffers
    lives: dict[int, list[tuple[int, int, int]]] = {}
    for i in range(len(table)):
        taken_by, given_by = int(table.taken_by[i]), int(table.given_by[i])
        taken_ns = 0 if taken_by == NONE else int(op_times.start_ns[taken_by])
        is_given = given_by != NONE and not table.later[i]
        given_ns = int(op_times.end_ns[given_by]) if is_given else NEVER
        if taken_ns < given_ns:
            lives.setdefault(int(table.rank[i]), []).append((taken_ns, given_ns, i))
    return tuple(_peak(graph, rank, lives[rank]) for rank in sorted(lives))


def _peak(graph: Graph, rank: int, lives: list[tuple[int, int, int]]) -> PeakMemory:
    def held_at(now_ns: int) -> list[int]:
        return [i for taken_ns, given_ns, i in lives if taken_ns <= now_ns < given_ns]

    def size_at(now_ns: int) -> int:
        return int(graph.buffers.size_bytes[held_at(now_ns)].sum())

    moments = sorted({t for taken_ns, given_ns, _ in lives for t in (taken_ns, given_ns)} - {NEVER})
    peak_bytes = max(map(size_at, moments))
    at_ns = [now_ns for now_ns in moments if size_at(now_ns) == peak_bytes][-1]
    sizes: Counter[tuple[MemoryKind, str]] = Counter()
    for i in held_at(at_ns):
        kind = MemoryKind(int(graph.buffers.kind[i]))
        sizes[kind, graph.strings[int(graph.buffers.layer[i])]] += int(graph.buffers.size_bytes[i])
    holders = [Holder(kind=k, layer=layer, size_bytes=n) for (k, layer), n in sizes.items()]
    holders.sort(key=lambda h: (-h.size_bytes, h.kind, h.layer))
    return PeakMemory(rank=rank, size_bytes=peak_bytes, at_ns=at_ns, holders=tuple(holders))


@campaign(150)
@given(st.data())
def test_peak_of_every_rank(data: st.DataObject):
    graph = data.draw(graphs(gangs=True))
    graph = graph.evolve(buffers=data.draw(buffers(graph)))
    op_times = kernel.simulate(graph)
    peaks = peak_memory(graph, op_times)
    assert peaks == _asked_at_every_moment(graph, op_times)
    for peak in peaks:
        assert sum(holder.size_bytes for holder in peak.holders) == peak.size_bytes


@campaign(150)
@given(st.data(), st.integers(1, 4))
def test_peak_of_windows_in_a_row_is_that_of_the_unrolled_graph(
    data: st.DataObject, num_windows: int
):
    graph = data.draw(graphs(gangs=True, extras=True))
    graph = graph.evolve(buffers=data.draw(buffers(graph)))
    op_times = kernel.simulate(graph, num_windows)
    peaks = peak_memory(graph, op_times)
    unrolled = unroll(graph, num_windows)
    assert peaks == peak_memory_in_python(unrolled, op_times)
    assert peaks == _asked_at_every_moment(unrolled, op_times)


# -- by hand -------------------------------------------------------------------------------


class Scene:
    """Three operations in a row on one rank: [0, 10), [10, 20), [20, 30)."""

    def __init__(self) -> None:
        self.builder = GraphBuilder()
        rank = self.builder.rank()
        self.ops: list[int] = []
        for name in ("a", "b", "c"):
            op = self.builder.op(name, rank=rank, work_ns=10, after=self.ops[-1:])
            self.ops.append(op)

    def hold(
        self,
        size_bytes: int,
        taken_by: int = NONE,
        given_by: int = NONE,
        *,
        later: bool = False,
        layer: str = "l",
    ) -> None:
        self.builder.buffer(
            size_bytes,
            rank=0,
            kind=MemoryKind.ACTIVATION,
            taken_by=taken_by,
            given_by=given_by,
            later=later,
            layer=layer,
        )

    def peak(self) -> tuple[int, int]:
        """Bytes, and when."""
        graph = self.builder.build()
        [peak] = peak_memory(graph, reference.simulate(graph))
        assert sum(holder.size_bytes for holder in peak.holders) == peak.size_bytes
        return peak.size_bytes, peak.at_ns


def test_what_ends_is_given_back_before_what_starts_takes_its_own():
    scene = Scene()
    scene.hold(100, 0, 0)
    scene.hold(80, 1, 1)
    assert scene.peak() == (100, 0)


def test_what_is_held_from_the_beginning_and_for_ever():
    scene = Scene()
    scene.hold(1_000)
    scene.hold(100, 2)
    scene.hold(50, NONE, 0)
    assert scene.peak() == (1_100, 20)


def test_what_is_given_back_in_the_next_window_is_held_to_the_end_of_this_one():
    scene = Scene()
    scene.hold(100, 0, 0, later=True)
    scene.hold(80, 2, 2)
    assert scene.peak() == (180, 20)


def test_of_equal_peaks_the_last():
    scene = Scene()
    scene.hold(100, 0, 0)
    scene.hold(100, 2, 2)
    assert scene.peak() == (100, 20)


def test_what_is_given_back_before_it_is_taken_takes_nothing_from_others():
    scene = Scene()
    scene.hold(100, 2, 0)
    scene.hold(30, 1, 1)
    assert scene.peak() == (30, 10)


def test_one_layers_memory_is_one_holder_and_the_largest_comes_first():
    scene = Scene()
    for layer, size_bytes in (("small", 10), ("large", 30), ("large", 30), ("alike", 10)):
        scene.hold(size_bytes, 0, 1, layer=layer)
    graph = scene.builder.build()
    [peak] = peak_memory(graph, reference.simulate(graph))
    assert [(holder.layer, holder.size_bytes) for holder in peak.holders] == [
        ("large", 60),
        ("alike", 10),
        ("small", 10),
    ]


def test_ranks_without_memory_have_no_peak():
    b = GraphBuilder()
    for _ in range(3):
        b.op("op", rank=b.rank(), work_ns=1)
    graph = b.build()
    assert peak_memory(graph, reference.simulate(graph)) == ()
    b.buffer(7, rank=1)
    b.buffer(9, rank=2, taken_by=2, given_by=2)
    graph = b.build()
    peaks = peak_memory(graph, reference.simulate(graph))
    assert [(peak.rank, peak.size_bytes) for peak in peaks] == [(1, 7), (2, 9)]


def test_sizes_of_many_ranks_do_not_add_up():
    b = GraphBuilder()
    huge_bytes = 1 << 62
    for _ in range(5):
        rank = b.rank()
        b.op("op", rank=rank, work_ns=1)
        b.buffer(huge_bytes, rank=rank)
    graph = b.build()
    peaks = peak_memory(graph, reference.simulate(graph))
    assert [peak.size_bytes for peak in peaks] == [huge_bytes] * 5
