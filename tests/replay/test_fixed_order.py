"""Estimates of steps by sweeps in a fixed service order."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given

from augury.build.collectives.ports import PortKind
from augury.build.synthetic.layers import ModelSize, conv_layers
from augury.build.synthetic.training_run import SyntheticJob, synthesize
from augury.core.errors import UsageError
from augury.core.graph.builder import GraphBuilder
from augury.replay.engine import find_engine
from augury.replay.fixed_order import FixedOrder
from augury.replay.kernel import Replayer, simulate
from augury.replay.run import replay
from tests.campaigns import campaign
from tests.engines import strategies


def a_job(algorithm: str, **options) -> SyntheticJob:
    return SyntheticJob(
        layers=conv_layers(ModelSize(num_layers=6)), algorithm=algorithm, jitter=0.1, **options
    )


def varied(graph, count: int, by: float, seed: int = 0):
    """Returns rows of random durations. Members of a gang keep theirs: they have to agree."""
    rng = np.random.default_rng(seed)
    factor = rng.uniform(1 - by, 1 + by, size=(count, graph.num_ops))
    factor[:, graph.ops.gang >= 0] = 1.0
    return np.maximum(1, np.rint(graph.ops.work_ns * factor)).astype(np.int64)


@pytest.mark.parametrize("algorithm", ["gang", "ring", "tree", "two-level", "parameter-server"])
@pytest.mark.parametrize("has_barrier", [True, False])
def test_a_sweep_with_unchanged_durations_equals_the_replay(algorithm: str, has_barrier: bool):
    graph = synthesize(a_job(algorithm, has_barrier=has_barrier))
    exact = replay(graph, fold=False)
    assert FixedOrder(graph).step_ns(graph.ops.work_ns).tolist() == [exact.step_ns]


@pytest.mark.parametrize("algorithm", ["gang", "ring", "parameter-server"])
def test_small_changes_are_estimated_closely(algorithm: str):
    graph = synthesize(a_job(algorithm))
    rows = varied(graph, 11, by=0.02)  # not a multiple of the number of lanes
    estimates = FixedOrder(graph).step_ns(rows)
    exact = [replay(graph.with_work_ns(row), fold=False).step_ns for row in rows]
    np.testing.assert_allclose(estimates, exact, rtol=0.01)


def test_sharing_slows_by_the_same_factor_as_in_the_replay():
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
        # Operations without work at one time stamp: a session then replays every candidate.
        assert (graph.ops.work_ns == 0).any()
        return
    assert order.step_ns(graph.ops.work_ns).tolist() == [round(makespan_ns / steps)]


def test_a_wrong_number_of_durations_is_refused():
    graph = synthesize(a_job("gang"))
    too_few = graph.ops.work_ns[:-1]
    for run in (FixedOrder(graph).step_ns, Replayer(graph).simulate):
        with pytest.raises(UsageError, match="durations for"):
            run(too_few)


def test_a_replayer_takes_other_durations():
    graph = synthesize(a_job("ring"))
    replayer = Replayer(graph)
    for row in varied(graph, 3, by=0.3):
        found = replayer.simulate(row)
        assert found.same_as(simulate(graph.with_work_ns(row)))
    assert replayer.simulate().same_as(simulate(graph))


def test_places_of_a_wide_resource_are_taken_in_order():
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


def test_durations_are_slowed_by_the_factor_of_sharing():
    b = GraphBuilder()
    rank = b.rank()
    link = b.shared_resource("link", rank=rank)
    for _ in range(2):
        b.op("flow", rank=rank, resource=link, work_ns=10)
    graph = b.build()
    assert FixedOrder(graph).step_ns(np.array([[10, 10], [20, 20]])).tolist() == [20, 40]
