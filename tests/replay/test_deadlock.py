"""Ranks that wait for each other are reported as a deadlock, with the cycle."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given

from augury.core.enums import Discipline
from augury.core.errors import DeadlockError
from augury.core.graph.builder import GraphBuilder
from augury.core.graph.graph import Graph
from augury.core.graph.graph_file import save_graph
from augury.replay import kernel, reference
from augury.replay.deadlock import explain_deadlock
from augury.replay.engine import EngineName
from augury.replay.run import replay
from tests.campaigns import campaign
from tests.cli.conftest import environment
from tests.engines.strategies import COARSE, graphs

every_engine = pytest.mark.parametrize("engine", ["native", "reference"])


def crossed(orders: list[str], *, shared: bool = False, source: str = "") -> Graph:
    """Each rank issues the named gangs in its own order on a stream of its own; gang "X" has one
    member on every rank that names it."""
    b = GraphBuilder(meta={"source": source} if source else {})
    gangs = {name: b.gang() for name in sorted(set("".join(orders)))}
    for order in orders:
        rank = b.rank()
        comm = (
            b.shared_resource("comm", rank=rank, width=1)
            if shared
            else b.resource("comm", rank=rank)
        )
        for name in order:
            b.op(name, rank=rank, resource=comm, work_ns=5, gang=gangs[name])
    return b.build()


def _refused(graph: Graph, engine: EngineName = "auto", *, fold: bool = True) -> DeadlockError:
    with pytest.raises(DeadlockError) as caught:
        replay(graph, engine=engine, fold=fold)
    return caught.value


@every_engine
@pytest.mark.parametrize("shared", [False, True])
@pytest.mark.parametrize("fold", [False, True])
def test_two_ranks_that_order_two_gangs_differently(engine: EngineName, shared: bool, fold: bool):
    error = _refused(crossed(["AB", "BA"], shared=shared), engine, fold=fold)
    assert error.cycle == (
        "'A' (other, rank 0, op 0) holds its place and waits for its peer"
        " 'A' (other, rank 1, op 3)",
        "'A' (other, rank 1, op 3) waits for a place on 'comm', held by 'B' (other, rank 1, op 2)",
        "'B' (other, rank 1, op 2) holds its place and waits for its peer"
        " 'B' (other, rank 0, op 1)",
        "'B' (other, rank 0, op 1) waits for a place on 'comm', held by 'A' (other, rank 0, op 0)",
    )
    assert "deadlocks" in error.cause
    assert all(line in error.cause for line in error.cycle)
    assert "same order" in error.remedy
    assert error.exit_code == 3


@every_engine
def test_ranks_that_are_alike_keep_their_names(engine: EngineName):
    # Folding merges ranks 0 and 1, and 2 and 3: the cycle names the real ones.
    error = _refused(crossed(["AB", "AB", "BA", "BA"]), engine)
    assert error.cycle == _refused(crossed(["AB", "AB", "BA", "BA"]), engine, fold=False).cycle
    assert [line.split(" (")[1].split(")")[0] for line in error.cycle] == [
        "other, rank 0, op 0",
        "other, rank 2, op 5",
        "other, rank 2, op 4",
        "other, rank 0, op 1",
    ]


@every_engine
def test_a_chain_of_three_ranks(engine: EngineName):
    error = _refused(crossed(["AB", "BC", "CA"]), engine)
    assert [line.split(" ")[0] for line in error.cycle] == [
        "'A'",
        "'A'",
        "'C'",
        "'C'",
        "'B'",
        "'B'",
    ]
    for rank in range(3):
        assert sum(f"rank {rank}," in line.split(")")[0] for line in error.cycle) == 2


@every_engine
def test_a_long_circle_is_cut_short(engine: EngineName):
    names = "ABCDEFGHIJ"
    error = _refused(
        crossed([a + b for a, b in zip(names, names[1:] + names[0], strict=True)]), engine
    )
    assert len(error.cycle) == 20
    assert error.cause.endswith("; and 12 more")


@every_engine
def test_by_queueing_alone(engine: EngineName):
    # Equal numbers on both ranks, but the first to arrive is served first at any priority.
    b = GraphBuilder()
    gangs = [b.gang(), b.gang()]
    for rank in (b.rank(), b.rank()):
        comm = b.resource("comm", rank=rank, discipline=Discipline.FIFO)
        for number, gang in enumerate(gangs):
            after = b.op("compute", rank=rank, work_ns=1 + (number ^ rank))
            b.op(
                "AB"[number], rank=rank, resource=comm, work_ns=5, gang=gang, after=[after],
                priority=number,
            )  # fmt: skip
    error = _refused(b.build(), engine)
    assert [line.split(" ")[0] for line in error.cycle] == ["'A'", "'A'", "'B'", "'B'"]
    assert sum("waits for a place on 'comm'" in line for line in error.cycle) == 2


@every_engine
def test_through_a_result(engine: EngineName):
    # Rank 1 joins only after rank 0's "send", which waits for the place that rank 0's gang holds.
    b = GraphBuilder()
    gang = b.gang()
    ranks = [b.rank(), b.rank()]
    stream = b.resource("stream", rank=ranks[0])
    b.op("reduce", rank=ranks[0], resource=stream, work_ns=5, gang=gang)
    send = b.op("send", rank=ranks[0], resource=stream, work_ns=1)
    recv = b.op("recv", rank=ranks[1], work_ns=1, after=[send])
    b.op("reduce", rank=ranks[1], work_ns=5, gang=gang, after=[recv])
    assert _refused(b.build(), engine).cycle == (
        "'reduce' (other, rank 0, op 0) holds its place and waits for its peer"
        " 'reduce' (other, rank 1, op 3)",
        "'reduce' (other, rank 1, op 3) waits for the result of 'recv' (other, rank 1, op 2)",
        "'recv' (other, rank 1, op 2) waits for the result of 'send' (other, rank 0, op 1)",
        "'send' (other, rank 0, op 1) waits for a place on 'stream', held by"
        " 'reduce' (other, rank 0, op 0)",
    )


@every_engine
def test_what_only_waits_for_the_circle_is_not_named(engine: EngineName):
    b = GraphBuilder()
    gangs = [b.gang(), b.gang()]
    late = b.op("late", rank=b.rank(), work_ns=1)
    b.rank()
    for rank, order in ((0, (0, 1)), (1, (1, 0))):
        comm = b.resource("comm", rank=rank)
        for number in order:
            op = b.op("AB"[number], rank=rank, resource=comm, work_ns=5, gang=gangs[number])
    b.edge(op, late)
    error = _refused(b.build(), engine)
    assert len(error.cycle) == 4
    assert not any("late" in line for line in error.cycle)


@every_engine
def test_in_a_window_that_follows(engine: EngineName):
    # In the first window both ranks are ready for A at 1, for B at 5. In the second A is ready at
    # 101 on both; B at 5 on rank 1, where nothing keeps it back, at 206 on rank 0.
    b = GraphBuilder()
    gangs = [b.gang(), b.gang()]
    for rank in (b.rank(), b.rank()):
        comm = b.resource("comm", rank=rank)
        for_a = b.op("for A", rank=rank, work_ns=1)
        for_b = b.op("for B", rank=rank, work_ns=5)
        slow = b.op("slow", rank=rank, work_ns=100)
        b.op("A", rank=rank, resource=comm, work_ns=2, gang=gangs[0], after=[for_a])
        b.op("B", rank=rank, resource=comm, work_ns=2, gang=gangs[1], after=[for_b])
        b.carry(slow, for_a)
        b.carry(slow, slow)
        if rank == 0:
            slower = b.op("slower", rank=rank, work_ns=101, after=[slow])
            b.carry(slower, for_b)
    error = _refused(b.build(), engine)
    assert [line.split("' (")[0][1:] for line in error.cycle] == ["A", "A", "B", "B"]
    # Operations by their numbers in the graph that the user has.
    assert "'A' (other, rank 0, op 3) in window 2 holds its place" in error.cause
    assert "'B' (other, rank 1, op 10) in window 2 holds its place" in error.cause
    assert all("in window 2" in line for line in error.cycle)


@pytest.mark.parametrize("flavour", [{}, {"works": COARSE}, {"shared": True}])
def test_every_deadlock_has_a_circle(flavour: dict[str, object]):
    seen = 0

    @campaign(400)
    @given(graphs(gangs=True, may_deadlock=True, **flavour))
    def explained(graph: Graph) -> None:
        nonlocal seen
        op_times = kernel.simulate(graph)
        if op_times.is_complete:
            return
        seen += 1
        error = explain_deadlock(graph, op_times, num_ops=graph.num_ops)
        assert 2 <= len(error.cycle) <= graph.num_ops
        assert len(set(error.cycle)) == len(error.cycle)
        assert any("waits for its peer" in line for line in error.cycle)
        assert error.cycle == _refused(graph).cycle
        also = explain_deadlock(graph, reference.simulate(graph), num_ops=graph.num_ops)
        assert error.cycle == also.cycle

    explained()
    assert seen >= 10


def test_the_command_line_says_so_with_code_3(tmp_path: Path):
    path = tmp_path / "crossed.augury"
    save_graph(crossed(["AB", "BA"]), path)
    done = subprocess.run(
        [sys.executable, "-m", "augury", "replay", str(path)],
        capture_output=True,
        text=True,
        env=environment(),
        timeout=60,
        check=False,
    )
    assert done.returncode == 3
    assert done.stdout == ""
    assert "the replay deadlocks: 'A' (other, rank 0, op 0) holds its place" in done.stderr
    assert "remedy: make all ranks issue their collectives in the same order" in done.stderr
    assert "Traceback" not in done.stderr
