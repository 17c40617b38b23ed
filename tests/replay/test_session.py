"""A session's replays equal full replays to the nanosecond, whatever they reuse."""

from __future__ import annotations

import numpy as np
import pytest
from benchmarks.recorded_graphs import RATED_STYLES, recorded
from hypothesis import given
from hypothesis import strategies as st

from augury.build.synthetic.training_run import SCHEMES, SyntheticJob, synthesize
from augury.core.errors import DeadlockError, GraphError, UsageError
from augury.core.graph.builder import GraphBuilder
from augury.core.graph.graph import Graph, Ops
from augury.core.timeline import Timeline
from augury.replay import kernel
from augury.replay.fixed_order import FixedOrder
from augury.replay.kernel import Replayer
from augury.replay.run import replay
from augury.replay.session import ReplaySession
from tests.campaigns import campaign
from tests.engines.strategies import COARSE, graphs, symmetric_graphs

from .test_fixed_order import a_job, varied


def assert_equal(found: Timeline, full: Timeline) -> None:
    """Everything but the ranks that the critical path leads through, of which several may tie."""
    assert found.start_ns.tolist() == full.start_ns.tolist()
    assert found.end_ns.tolist() == full.end_ns.tolist()
    assert found.step_ns == full.step_ns
    assert found.rank_step_ns == full.rank_step_ns
    assert found.rank_steps == full.rank_steps
    assert found.utilization == full.utilization
    assert found.peak_memory == full.peak_memory
    assert found.ledger == full.ledger
    assert found.critical_path.dur_ns.sum() == full.critical_path.dur_ns.sum()


def outcome(graph: Graph, replayed) -> Timeline | str:
    try:
        return replayed(graph)
    except DeadlockError:
        return "deadlock"


def with_some_changed(graph: Graph, data: st.DataObject, *, alike: bool = False) -> Graph:
    """Changes a few durations, for all members of a gang; on all ranks alike, if asked."""
    ops = data.draw(st.lists(st.integers(0, graph.num_ops - 1), min_size=1, max_size=4))
    works = data.draw(st.lists(st.sampled_from([0, 1, 5, 1000, 12_345]), min_size=4, max_size=4))
    work_ns = graph.ops.work_ns.copy()
    for op, work in zip(ops, works, strict=False):
        same = np.array([op])
        if alike:
            same = np.flatnonzero(graph.ops.name == graph.ops.name[op])
        gangs = graph.ops.gang[same]
        in_gangs = np.isin(graph.ops.gang, gangs[gangs >= 0])
        work_ns[same] = work_ns[in_gangs] = work
    return graph.with_work_ns(work_ns)


def assert_session_is_exact(graph: Graph, data: st.DataObject, *, alike: bool = False) -> None:
    try:
        session = ReplaySession(graph)
    except GraphError:
        return  # random extras may break a rule
    for _ in range(3):
        changed = with_some_changed(graph, data, alike=alike)
        full = outcome(changed, replay)
        found = outcome(changed, session.replay)
        if isinstance(full, str) or isinstance(found, str):
            assert full == found
            continue
        assert found.graph is changed
        assert_equal(found, full)
        assert session.step_ns(changed.ops.work_ns) == full.step_ns
    base = outcome(graph, replay)
    if not isinstance(base, str):
        assert_equal(session.replay(), base)


@campaign(300)
@given(graphs(gangs=True, shared=True, interference=True, extras=True), st.data())
def test_with_links_and_interference(graph: Graph, data: st.DataObject):
    assert_session_is_exact(graph, data)


@campaign(200)
@given(graphs(gangs=True, servers=True, extras=True, may_deadlock=True), st.data())
def test_any_graph(graph: Graph, data: st.DataObject):
    assert_session_is_exact(graph, data)


@campaign(200)
@given(symmetric_graphs(max_classes=3, works=COARSE, shared=True, extras=True), st.data())
def test_folded_ranks(graph: Graph, data: st.DataObject):
    assert_session_is_exact(graph, data)


@campaign(200)
@given(symmetric_graphs(max_classes=2, shared=True, interference=True), st.data())
def test_folded_ranks_that_change_alike(graph: Graph, data: st.DataObject):
    assert_session_is_exact(graph, data, alike=True)


@campaign(300)
@given(
    graphs(gangs=True, shared=True, interference=True, extras=True), st.data(), st.integers(1, 4)
)
def test_resumed_schedules(graph: Graph, data: st.DataObject, num_windows: int):
    """Also to the cause of every start."""
    replayer = Replayer(graph, num_windows)
    for _ in range(3):
        changed = with_some_changed(graph, data)
        found = replayer.simulate_change(changed.ops.work_ns)
        assert found.same_as(kernel.simulate(changed, num_windows))


@pytest.mark.parametrize("algorithm", SCHEMES)
@pytest.mark.parametrize("has_barrier", [True, False])
def test_synthetic_jobs(algorithm: str, has_barrier: bool):
    graph = synthesize(SyntheticJob(algorithm=algorithm, has_barrier=has_barrier))
    session = ReplaySession(graph)
    for factor in (0.5, 1.25):
        changed = graph.with_work_ns(np.rint(graph.ops.work_ns * factor).astype(np.int64))
        assert_equal(session.replay(changed), replay(changed))
        assert session.step_ns(changed) == replay(changed).step_ns


@pytest.mark.parametrize("is_loop", [True, False])
@pytest.mark.parametrize("style", RATED_STYLES)
def test_recorded_runs_reuse_the_time_before_the_first_change(style: str, is_loop: bool):
    graph = recorded(style, 4_000, num_ranks=4, is_loop=is_loop)
    session = ReplaySession(graph)
    begin_ns = session.replay().start_ns
    last = np.argsort(begin_ns)[-20:]
    last = last[graph.ops.gang[last] < 0]
    work_ns = graph.ops.work_ns[last] * 3 + 7
    found = session.replay(work_ns, touched=last)
    if not is_loop:
        assert session.num_reused_ops > 0.9 * graph.num_ops
    assert_equal(found, replay(found.graph))
    assert found.graph.ops.work_ns[last].tolist() == work_ns.tolist()
    assert_equal(session.replay(), replay(graph))


def test_a_result_outlives_the_next_replay():
    graph = recorded(RATED_STYLES[0], 1_000, num_ranks=2, is_loop=False)
    session = ReplaySession(graph)
    first = session.replay(graph.ops.work_ns * 2)
    end_ns = first.end_ns.copy()
    session.replay(graph.ops.work_ns * 3)
    session.step_ns()
    assert first.end_ns.tolist() == end_ns.tolist()


def test_ranks_that_no_longer_do_the_same_are_told_apart():
    graph = synthesize(SyntheticJob(algorithm="gang"))
    session = ReplaySession(graph)
    slow = np.flatnonzero((graph.ops.rank == 0) & (graph.ops.gang < 0))
    found = session.replay(2 * graph.ops.work_ns[slow], touched=slow)
    assert found.step_ns > session.step_ns()
    assert_equal(found, replay(found.graph))


def test_a_changed_structure_is_verified_and_replayed_as_a_whole():
    graph = synthesize(SyntheticJob(algorithm="ring"))
    session = ReplaySession(graph)
    shared = graph.evolve(
        resources=type(graph.resources)(
            **dict(graph.resources.columns()) | {"width": graph.resources.width + 1}
        )
    )
    assert_equal(session.replay(shared), replay(shared))
    broken = graph.evolve(
        ops=Ops(**dict(graph.ops.columns()) | {"rank": graph.ops.rank - 1}),
    )
    with pytest.raises(GraphError, match="belongs to rank"):
        session.replay(broken)


def test_bad_durations_are_refused():
    graph = synthesize(SyntheticJob(algorithm="gang"))
    session = ReplaySession(graph)
    with pytest.raises(GraphError, match="takes -1 ns"):
        session.replay([-1], touched=[0])
    member = int(np.flatnonzero(graph.ops.gang >= 0)[0])
    with pytest.raises(GraphError, match="ranks disagree about gang"):
        session.step_ns([1], touched=[member])
    with pytest.raises(UsageError, match="durations for"):
        session.replay(graph.ops.work_ns[:-1])
    for touched in ([0, 1], [-1], [graph.num_ops]):
        with pytest.raises(UsageError, match="touched operations"):
            session.replay([1], touched=touched)


def test_without_a_kernel_replays_are_the_same():
    graph = synthesize(a_job("gang"))
    changed = graph.with_work_ns(graph.ops.work_ns * 2)
    session = ReplaySession(graph, engine="reference")
    assert_equal(session.replay(changed), replay(changed))
    assert session.num_reused_ops == 0


# -- screening -----------------------------------------------------------------------------


def test_winners_are_exact_and_best_first():
    graph = synthesize(a_job("ring"))
    rows = varied(graph, 40, by=0.3)
    winners = ReplaySession(graph).screen(rows, keep=5)
    assert len(winners) == 5
    assert [w.step_ns for w in winners] == sorted(w.step_ns for w in winners)
    for winner in winners:
        assert winner.step_ns == replay(graph.with_work_ns(rows[winner.candidate])).step_ns
    best = min(replay(graph.with_work_ns(row)).step_ns for row in rows)
    assert winners[0].step_ns <= best * 1.01


def test_without_a_kernel_every_candidate_is_replayed():
    graph = synthesize(a_job("gang"))
    rows = varied(graph, 4, by=0.3)
    with_kernel = ReplaySession(graph).screen(rows, keep=4)
    without = ReplaySession(graph, engine="reference").screen(rows, keep=4)
    assert [(w.candidate, w.step_ns) for w in without] == [
        (w.candidate, w.step_ns) for w in with_kernel
    ]
    assert all(w.estimated_step_ns == w.step_ns for w in without)


def test_where_times_do_not_show_the_order_every_candidate_is_replayed():
    # The gang and the operation that waits for its first member end at the same time: times alone
    # do not show which of them came first.
    b = GraphBuilder()
    slow, quick = b.rank(), b.rank()
    gang = b.gang()
    before = b.op("before", rank=slow, work_ns=5)
    b.op("after", rank=quick, work_ns=0, after=[b.op("meet", rank=quick, work_ns=0, gang=gang)])
    b.op("meet", rank=slow, work_ns=0, gang=gang, after=[before])
    graph = b.build()
    with pytest.raises(ValueError, match="before its last member"):
        FixedOrder(graph)
    (winner,) = ReplaySession(graph).screen(np.array([[5, 0, 0, 0], [3, 0, 0, 0]]), keep=1)
    assert (winner.candidate, winner.step_ns) == (1, 3)


def test_folded_ranks_are_screened_once():
    graph = synthesize(SyntheticJob(algorithm="gang"))
    factors = np.linspace(0.5, 1.5, 20)[:, None]
    rows = np.rint(graph.ops.work_ns * factors).astype(np.int64)
    winners = ReplaySession(graph).screen(rows, keep=3)
    assert [w.candidate for w in winners] == [0, 1, 2]
    assert winners[0].step_ns == replay(graph.with_work_ns(rows[0])).step_ns
