"""Valid graphs of extreme shapes: long, deep, empty, enormous."""

from __future__ import annotations

import numpy as np
import pytest

from augury.core.graph.builder import GraphBuilder
from augury.core.graph.graph import NONE, RATE_ONE, Edges, Graph, Ops, Ranks, Resources
from augury.core.graph.graph_spec import MAX_SLOWED_NS, MAX_TOTAL_WORK_NS, MAX_WORK_NS, verify
from augury.core.string_table import StringTable
from augury.core.timeline import Reason
from augury.replay import kernel, reference
from augury.replay.critical_path import critical_path, walk_back_in_python
from augury.replay.engine import EngineName
from augury.replay.run import replay

from .path_truth import assert_tiles

every_engine = pytest.mark.parametrize("engine", ["native", "reference"])
on_many_operations = pytest.mark.parametrize(
    "engine", ["native", pytest.param("reference", marks=pytest.mark.more)]
)
"""The reference takes seconds for them."""


def _graph(
    work_ns: np.ndarray | int,
    src: np.ndarray,
    dst: np.ndarray,
    *,
    num_ops: int,
    rank: np.ndarray | int = 0,
    resource: np.ndarray | int = NONE,
    gang: np.ndarray | int = NONE,
    priority: np.ndarray | int = 0,
    widths: tuple[int, ...] = (),
    ranks_of_resources: tuple[int, ...] = (),
    discipline: int = 0,
) -> Graph:
    """From columns: a builder would take longer than the replay."""
    num_ranks = int(np.max(rank)) + 1
    zeros = np.zeros(num_ops, np.int64)
    graph = Graph(
        ops=Ops(
            kind=zeros,
            rank=zeros + rank,
            resource=zeros + resource,
            work_ns=zeros + work_ns,
            size_bytes=zeros,
            priority=zeros + priority,
            gang=zeros + gang,
            layer=zeros + NONE,
            step=zeros,
            name=zeros,
        ),
        edges=Edges.from_pairs(src.astype(np.int32), dst.astype(np.int32), num_ops=num_ops),
        resources=Resources(
            kind=np.zeros(len(widths)),
            rank=np.array(ranks_of_resources, np.int32),
            width=np.array(widths, np.int32),
            capacity=np.zeros(len(widths)),
            discipline=np.full(len(widths), discipline),
            name=np.zeros(len(widths)),
        ),
        ranks=Ranks(role=np.zeros(num_ranks), host=np.zeros(num_ranks)),
        strings=StringTable.of(["op"]),
    )
    verify(graph)
    return graph


NOTHING = np.empty(0, np.int32)


# -- small and empty -----------------------------------------------------------------------


@every_engine
@pytest.mark.parametrize("work_ns", [0, 7])
def test_one_operation(engine: EngineName, work_ns: int):
    b = GraphBuilder()
    b.op("only", rank=b.rank(), work_ns=work_ns)
    timeline = replay(b.build(), engine=engine)
    assert timeline.step_ns == timeline.makespan_ns == work_ns
    assert timeline.rank_step_ns == (work_ns,)
    assert timeline.critical_path.reason.tolist() == [Reason.START]
    assert timeline.peak_memory == ()
    assert len(timeline.utilization) == 0


@every_engine
def test_a_window_that_takes_no_time(engine: EngineName):
    b = GraphBuilder()
    rank = b.rank()
    stream = b.resource("stream", rank=rank)
    first = b.op("first", rank=rank, resource=stream, work_ns=0)
    second = b.op("second", rank=rank, resource=stream, work_ns=0, after=[first])
    b.carry(second, first)
    timeline = replay(b.build(), engine=engine)
    assert timeline.step_ns == timeline.makespan_ns == 0
    assert timeline.utilization.busy_ns.tolist() == timeline.utilization.idle_ns.tolist() == [0]


@on_many_operations
def test_nothing_but_marks(engine: EngineName):
    count = 100_000
    at_once = _graph(0, NOTHING, NOTHING, num_ops=count)
    ids = np.arange(count)
    in_a_row = _graph(0, ids[:-1], ids[1:], num_ops=count)
    backwards = _graph(0, ids[1:], ids[:-1], num_ops=count)
    for graph in (at_once, in_a_row, backwards):
        timeline = replay(graph, engine=engine)
        assert timeline.makespan_ns == 0
        assert not timeline.end_ns.any()
        assert_tiles(timeline.critical_path, 0, 0)


# -- long ----------------------------------------------------------------------------------


@on_many_operations
@pytest.mark.parametrize("resource", [NONE, 0], ids=["free", "on a stream"])
def test_a_chain_of_200_000(engine: EngineName, resource: int):
    count = 200_000
    ids = np.arange(count)
    graph = _graph(
        3, ids[:-1], ids[1:], num_ops=count, resource=resource, widths=(1,), ranks_of_resources=(0,)
    )
    timeline = replay(graph, engine=engine)
    assert timeline.makespan_ns == 3 * count
    assert timeline.start_ns.tolist() == (3 * ids).tolist()
    assert timeline.critical_path.op.tolist() == ids.tolist()
    assert_tiles(timeline.critical_path, 0, 3 * count)


def test_a_chain_walked_back_in_python():
    count = 200_000
    ids = np.arange(count)
    graph = _graph(1, ids[1:], ids[:-1], num_ops=count)
    op_times = kernel.simulate(graph)
    path = walk_back_in_python(graph, op_times, 0, 0)
    assert path == critical_path(graph, op_times)
    assert path.op.tolist() == ids[::-1].tolist()


@every_engine
def test_a_queue_of_50_000_on_one_stream(engine: EngineName):
    # All ready at once, the most urgent last.
    count = 50_000
    graph = _graph(
        2, NOTHING, NOTHING, num_ops=count, resource=0, priority=-np.arange(count), widths=(1,),
        ranks_of_resources=(0,),
    )  # fmt: skip
    timeline = replay(graph, engine=engine)
    assert timeline.start_ns.tolist() == (2 * np.arange(count)[::-1]).tolist()


# -- deep ----------------------------------------------------------------------------------

NUM_GANGS = 50_000
LATE_NS = 10**9
WIDTHS = {"one at a time": (1, 1), "all at once": (1 << 30, 1 << 30), "few at a time": (3, 2)}


@pytest.mark.parametrize("widths", WIDTHS.values(), ids=WIDTHS.keys())
@pytest.mark.parametrize("discipline", [0, 1], ids=["priority", "fifo"])
def test_gangs_that_wait_for_one_late_rank(widths: tuple[int, int], discipline: int):
    # Rank 0 is ready for all of them at once, rank 1 for none before it has done its own work.
    gang = np.arange(NUM_GANGS)
    late = 2 * NUM_GANGS
    graph = _graph(
        np.append(np.full(late, 5), LATE_NS),
        np.full(NUM_GANGS, late),
        NUM_GANGS + gang,
        num_ops=late + 1,
        rank=np.concatenate([gang * 0, gang * 0 + 1, [1]]),
        resource=np.concatenate([gang * 0, gang * 0 + 1, [NONE]]),
        gang=np.concatenate([gang, gang, [NONE]]),
        widths=widths,
        ranks_of_resources=(0, 1),
        discipline=discipline,
    )
    op_times = kernel.simulate(graph)
    at_a_time = min(*widths, NUM_GANGS)
    expected_ns = LATE_NS + 5 * (gang // at_a_time + 1)
    assert op_times.end_ns[:late].tolist() == [*expected_ns, *expected_ns]
    assert_tiles(critical_path(graph, op_times), 0, int(expected_ns[-1]))


@pytest.mark.parametrize("is_late_first", [False, True])
def test_gangs_that_each_rank_computes_for(is_late_first: bool):
    # Every gang waits for its rank's own compute, in a row: rank 0's is 1,000 times as fast, and
    # all that it computes for queues up behind the first gang.
    gang = np.arange(NUM_GANGS)
    compute, reduce = np.arange(2 * NUM_GANGS), np.arange(2 * NUM_GANGS, 4 * NUM_GANGS)
    rank = np.concatenate([gang * 0, gang * 0 + 1])
    is_slow = rank == (0 if is_late_first else 1)
    chained = compute[rank == np.roll(rank, -1)]
    graph = _graph(
        np.concatenate([np.where(is_slow, 1_000, 1), np.full(2 * NUM_GANGS, 10)]),
        np.concatenate([compute, chained[chained + 1 < 2 * NUM_GANGS]]),
        np.concatenate([reduce, chained[chained + 1 < 2 * NUM_GANGS] + 1]),
        num_ops=4 * NUM_GANGS,
        rank=np.concatenate([rank, rank]),
        resource=np.concatenate([rank, rank + 2]),
        gang=np.concatenate([compute * 0 + NONE, gang, gang]),
        widths=(1, 1, 1, 1),
        ranks_of_resources=(0, 1, 0, 1),
    )
    op_times = kernel.simulate(graph)
    expected_ns = 1_000 * (gang + 1) + 10
    assert op_times.end_ns[2 * NUM_GANGS :].tolist() == [*expected_ns, *expected_ns]


# -- enormous ------------------------------------------------------------------------------


@every_engine
def test_as_long_as_a_graph_may_be(engine: EngineName):
    count = MAX_TOTAL_WORK_NS // MAX_WORK_NS
    ids = np.arange(count)
    for resource, widths in ((NONE, ()), (0, (1,)), (0, (5,))):
        graph = _graph(
            MAX_WORK_NS, ids[:-1], ids[1:], num_ops=count, resource=resource, widths=widths,
            ranks_of_resources=(0,) * len(widths),
        )  # fmt: skip
        timeline = replay(graph, engine=engine)
        assert timeline.makespan_ns == timeline.step_ns == MAX_TOTAL_WORK_NS
        assert_tiles(timeline.critical_path, 0, MAX_TOTAL_WORK_NS)
        assert timeline.utilization.busy_ns.tolist() == [MAX_TOTAL_WORK_NS] * len(widths)


@every_engine
def test_windows_as_long_as_a_graph_may_be(engine: EngineName):
    b = GraphBuilder()
    rank = b.rank()
    stream = b.resource("stream", rank=rank)
    previous: list[int] = []
    for _ in range(MAX_TOTAL_WORK_NS // MAX_WORK_NS):
        op = b.op("op", rank=rank, resource=stream, work_ns=MAX_WORK_NS, after=previous)
        previous = [op]
    b.carry(op, 0)
    timeline = replay(b.build(), engine=engine)
    assert timeline.step_ns == MAX_TOTAL_WORK_NS
    assert_tiles(timeline.critical_path, 0, MAX_TOTAL_WORK_NS)


@every_engine
@pytest.mark.parametrize("num_flows", [1, 2, 4])
def test_as_slow_as_a_link_may_be(engine: EngineName, num_flows: int):
    slowest = MAX_SLOWED_NS // MAX_WORK_NS
    b = GraphBuilder()
    rank = b.rank()
    link = b.shared_resource("link", rank=rank, capacity=1 / slowest)
    for _ in range(num_flows):
        b.op("flow", rank=rank, resource=link, work_ns=MAX_WORK_NS // num_flows)
    timeline = replay(b.build(), engine=engine)
    assert timeline.end_ns.tolist() == [MAX_SLOWED_NS] * num_flows
    assert timeline.utilization.busy_ns.tolist() == [MAX_SLOWED_NS]
    assert_tiles(timeline.critical_path, 0, MAX_SLOWED_NS)


@every_engine
def test_as_slow_as_interference_may_be(engine: EngineName):
    b = GraphBuilder()
    rank = b.rank()
    victim, aggressor = b.resource("victim", rank=rank), b.resource("aggressor", rank=rank)
    b.interfere(victim=victim, aggressor=aggressor, rate=1 / 1_024)
    b.op("victim", rank=rank, resource=victim, work_ns=MAX_WORK_NS)
    previous: list[int] = []
    for _ in range(1_000):
        op = b.op("aggressor", rank=rank, resource=aggressor, work_ns=MAX_WORK_NS, after=previous)
        previous = [op]
    # 1,000 of 1,024 parts of the work took 1,024 times as long; the rest ran at full speed.
    slowed_ns, left_ns = 1_000 * MAX_WORK_NS, MAX_WORK_NS - 1_000 * MAX_WORK_NS // 1_024
    assert replay(b.build(), engine=engine).end_ns[0] == slowed_ns + left_ns


@every_engine
def test_windows_that_never_settle_stop_before_the_clock_does(engine: EngineName):
    # Each rank waits for another of the window before, in a round of five: unrolled 64 times this
    # would take longer than 64 bits can say.
    slowest = MAX_SLOWED_NS // MAX_WORK_NS
    b = GraphBuilder()
    ops = []
    for number in range(5):
        rank = b.rank()
        link = b.shared_resource("link", rank=rank, capacity=1 / slowest)
        work_ns = MAX_WORK_NS - 10 if number == 0 else 1
        ops.append(b.op("op", rank=rank, resource=link, work_ns=work_ns))
    for number, op in enumerate(ops):
        b.carry(op, ops[(number + 1) % 5])
    timeline = replay(b.build(), engine=engine)
    assert "no-steady-period" in timeline.ledger
    assert 0 < timeline.step_ns <= 4 * MAX_SLOWED_NS
    assert timeline.start_ns.min() >= 0
    assert (timeline.end_ns >= timeline.start_ns).all()


@every_engine
def test_widths_and_priorities_at_their_limits(engine: EngineName):
    b = GraphBuilder()
    rank = b.rank()
    pool = b.resource("pool", rank=rank, width=2**31 - 1)
    stream = b.resource("stream", rank=rank)
    for priority in (2**31 - 1, 0, -(2**31)):
        b.op("op", rank=rank, resource=pool, work_ns=5, priority=priority)
    for priority in (2**31 - 1, 0, -(2**31)):
        b.op("op", rank=rank, resource=stream, work_ns=5, priority=priority)
    timeline = replay(b.build(), engine=engine)
    assert timeline.start_ns.tolist() == [0, 0, 0, 10, 5, 0]


def test_engines_agree_on_lengths_of_every_magnitude():
    rng = np.random.default_rng(7)
    count = 600
    for seed in range(20):
        magnitude = rng.integers(0, 41, count)
        work_ns = 1 + rng.integers(0, 1 << magnitude)
        resource = rng.integers(NONE, 4, count)
        dst = rng.integers(1, count, count)
        graph = _graph(
            work_ns,
            (dst * rng.random(count)).astype(np.int64),
            dst,
            num_ops=count,
            resource=resource,
            priority=rng.integers(0, 3, count),
            widths=(1, 1, 2, 3),
            ranks_of_resources=(0,) * 4,
            discipline=seed % 2,
        )
        assert kernel.simulate(graph).same_as(reference.simulate(graph))


def test_rates_at_their_lowest():
    b = GraphBuilder()
    rank = b.rank()
    link = b.shared_resource("link", rank=rank, capacity=1 / RATE_ONE)
    for work_ns in (1, 2, 3):
        b.op("op", rank=rank, resource=link, work_ns=work_ns)
    graph = b.build()
    # A unit cannot be divided: each of the three gets it whole.
    assert kernel.simulate(graph).same_as(reference.simulate(graph))
    assert kernel.simulate(graph).end_ns.tolist() == [RATE_ONE, 2 * RATE_ONE, 3 * RATE_ONE]
