"""Screening: estimates in a fixed order, verdicts by exact replays."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given

from augury.build.collectives.ports import PortKind
from augury.build.synthetic.layers import ModelSize, conv_layers
from augury.build.synthetic.training_run import SyntheticJob, synthesize
from augury.core.errors import UsageError
from augury.core.graph.builder import GraphBuilder
from augury.replay import screen as screening
from augury.replay.engine import find_engine
from augury.replay.kernel import Replayer, simulate
from augury.replay.run import replay
from augury.replay.screen import FixedOrder, screen, with_work
from tests.campaigns import campaign
from tests.engines import strategies


def a_job(algorithm: str, **options) -> SyntheticJob:
    return SyntheticJob(
        layers=conv_layers(ModelSize(num_layers=6)), algorithm=algorithm, jitter=0.1, **options
    )


def varied(graph, count: int, by: float, seed: int = 0):
    """Rows of durations; members of a gang keep theirs, which they must agree about."""
    rng = np.random.default_rng(seed)
    factor = rng.uniform(1 - by, 1 + by, size=(count, graph.num_ops))
    factor[:, graph.ops.gang >= 0] = 1.0
    return np.maximum(1, np.rint(graph.ops.work_ns * factor)).astype(np.int64)


@pytest.mark.parametrize("algorithm", ["gang", "ring", "tree", "two-level", "parameter-server"])
@pytest.mark.parametrize("has_barrier", [True, False])
def test_with_unchanged_durations_the_sweep_is_the_replay(algorithm: str, has_barrier: bool):
    graph = synthesize(a_job(algorithm, has_barrier=has_barrier))
    exact = replay(graph, fold=False)
    assert FixedOrder(graph).step_ns(graph.ops.work_ns).tolist() == [exact.step_ns]


@pytest.mark.parametrize("algorithm", ["gang", "ring", "parameter-server"])
def test_small_changes_are_estimated_closely(algorithm: str):
    graph = synthesize(a_job(algorithm))
    rows = varied(graph, 11, by=0.02)  # not a multiple of what goes side by side
    estimates = FixedOrder(graph).step_ns(rows)
    exact = [replay(with_work(graph, row), fold=False).step_ns for row in rows]
    np.testing.assert_allclose(estimates, exact, rtol=0.01)


def test_sharing_is_taken_to_slow_as_it_did():
    graph = synthesize(a_job("ring", ports=PortKind.FAIR))
    estimate = FixedOrder(graph).step_ns(graph.ops.work_ns)[0]
    assert estimate == pytest.approx(replay(graph, fold=False).step_ns, rel=0.01)


@campaign(150)
@given(strategies.graphs(gangs=True, straggler=True))
def test_a_sweep_in_the_replays_own_order_gives_its_makespan(graph):
    graph = graph.evolve(carries=type(graph.carries).empty())
    makespan_ns = int(find_engine()(graph).end_ns.max())
    steps = max(graph.num_steps, 1)
    try:
        order = FixedOrder(graph)
    except ValueError:
        # Things without work at one time stamp: screen() replays every candidate instead.
        assert (graph.ops.work_ns == 0).any()
        return
    assert order.step_ns(graph.ops.work_ns).tolist() == [round(makespan_ns / steps)]


def test_a_wrong_number_of_durations_is_refused():
    graph = synthesize(a_job("gang"))
    too_few = graph.ops.work_ns[:-1]
    for judge in (FixedOrder(graph).step_ns, Replayer(graph).simulate):
        with pytest.raises(UsageError, match="durations for"):
            judge(too_few)


def test_a_replayer_takes_other_durations():
    graph = synthesize(a_job("ring"))
    replayer = Replayer(graph)
    for row in varied(graph, 3, by=0.3):
        found = replayer.simulate(row)
        assert found.same_as(simulate(with_work(graph, row)))
    assert replayer.simulate().same_as(simulate(graph))


def test_winners_are_exact_and_best_first():
    graph = synthesize(a_job("ring"))
    rows = varied(graph, 40, by=0.3)
    winners = screen(graph, rows, keep=5)
    assert len(winners) == 5
    assert [w.step_ns for w in winners] == sorted(w.step_ns for w in winners)
    for winner in winners:
        assert winner.step_ns == replay(with_work(graph, rows[winner.candidate])).step_ns
    best = min(replay(with_work(graph, row)).step_ns for row in rows)
    assert winners[0].step_ns <= best * 1.01


def test_without_a_kernel_every_candidate_is_replayed(monkeypatch: pytest.MonkeyPatch):
    graph = synthesize(a_job("gang"))
    rows = varied(graph, 4, by=0.3)
    with_kernel = screen(graph, rows, keep=4)
    monkeypatch.setattr(screening, "is_native_built", lambda: False)
    without = screen(graph, rows, keep=4, engine="reference")
    assert [(w.candidate, w.step_ns) for w in without] == [
        (w.candidate, w.step_ns) for w in with_kernel
    ]
    assert all(w.estimated_step_ns == w.step_ns for w in without)


def test_places_of_a_wide_resource_go_to_whoever_is_next():
    b = GraphBuilder()
    rank = b.rank()
    pool = b.resource("pool", rank=rank, width=2)
    for work_ns in (5, 7, 4, 3):
        b.op("task", rank=rank, resource=pool, work_ns=work_ns)
    graph = b.build()
    # 0-5 and 0-7; the third starts at 5, the fourth at 7: all done at 10.
    assert FixedOrder(graph).step_ns(graph.ops.work_ns).tolist() == [10]
    # The third still follows the first, the fourth the second: 2 + 4 and 9 + 3.
    assert FixedOrder(graph).step_ns(np.array([2, 9, 4, 3])).tolist() == [12]


def test_where_times_do_not_show_the_order_every_candidate_is_replayed():
    # The gang ends the moment its last member comes, and so does what waits for the first one:
    # by times alone the latter could as well have come before.
    b = GraphBuilder()
    slow, quick = b.rank(), b.rank()
    gang = b.gang()
    before = b.op("before", rank=slow, work_ns=5)
    b.op("after", rank=quick, work_ns=0, after=[b.op("meet", rank=quick, work_ns=0, gang=gang)])
    b.op("meet", rank=slow, work_ns=0, gang=gang, after=[before])
    graph = b.build()
    with pytest.raises(ValueError, match="before its last member"):
        FixedOrder(graph)
    (winner,) = screen(graph, np.array([[5, 0, 0, 0], [3, 0, 0, 0]]), keep=1)
    assert (winner.candidate, winner.step_ns) == (1, 3)


def test_durations_are_stretched_as_sharing_stretched_them():
    b = GraphBuilder()
    rank = b.rank()
    link = b.shared_resource("link", rank=rank)
    for _ in range(2):
        b.op("flow", rank=rank, resource=link, work_ns=10)
    graph = b.build()
    assert FixedOrder(graph).step_ns(np.array([[10, 10], [20, 20]])).tolist() == [20, 40]
