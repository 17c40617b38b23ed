"""The protocol of passes: renumbering, touched operations, memory, errors, composition."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from augury.core.enums import MemoryKind
from augury.core.errors import AuguryError
from augury.core.graph.graph import Buffers, Graph
from augury.core.trace.trace import Calibration
from augury.passes.bandwidth import BANDWIDTH, LINK_BANDWIDTH, LinkRate, Rate
from augury.passes.buckets import BUCKETS, BucketCaps
from augury.passes.communication_order import COMMUNICATION_ORDER
from augury.passes.compute_scale import COMPUTE_SCALE, ComputeFactor
from augury.passes.latency import LATENCY, LatencyChange
from augury.passes.no_stragglers import NO_STRAGGLERS
from augury.passes.perfect_overlap import PERFECT_OVERLAP
from augury.passes.pieces.piece_exchange import OrderedPieces
from augury.passes.protocol import ErrorModel, Scene, Step, compose
from augury.passes.ranks import CHANGE_RANKS, NumRanks
from augury.passes.registry import PASSES, find_pass
from augury.predict import changes
from augury.replay.run import replay
from augury.schedule.policies.registry import find_policy
from tests.passes.applied import check_change
from tests.passes.recorded import recorded
from tests.passes.test_scheduled import case

STEPS: tuple[Step, ...] = (
    (CHANGE_RANKS, NumRanks(3)),
    (CHANGE_RANKS, NumRanks(1)),
    (BUCKETS, BucketCaps((1, 5_000_000))),
    (BANDWIDTH, Rate(factor=0.5)),
    (LATENCY, LatencyChange(more_ns=50_000)),
    (NO_STRAGGLERS, None),
    (COMPUTE_SCALE, ComputeFactor(factor=1.5, ranks=(0,))),
    (PERFECT_OVERLAP, None),
)


def scene_of(**options: Any) -> Scene:
    graph, costs = recorded(**options)
    return Scene(graph=graph, costs=costs)


def ready_ns(graph: Graph, end_ns: np.ndarray) -> np.ndarray:
    ready = np.zeros(graph.num_ops, dtype=np.int64)
    np.maximum.at(ready, graph.edges.dst, end_ns[graph.edges.sources()])
    return ready


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.sampled_from(STEPS), min_size=1, max_size=3, unique_by=lambda step: step[0].name),
    st.sampled_from([1.0, 0.7]),
    st.booleans(),
)
def test_replays_agree_until_a_touched_operation_is_ready(
    steps: list[Step], rate: float, broadcast: bool
) -> None:
    """A partial replay may keep all that started before."""
    scene = scene_of(compute_rate=rate, broadcast=broadcast, slower={1: 1.3})
    try:
        found = compose(scene, steps)
    except AuguryError:
        return  # some changes exclude each other, such as buckets after perfect overlap
    check_change(scene, found)
    before, after = replay(scene.graph), replay(found.scene.graph)
    ready = ready_ns(found.scene.graph, after.end_ns)
    first_ns = ready[found.touched].min(initial=1 << 62)
    kept = np.flatnonzero(found.new_op_of >= 0)
    now = found.new_op_of[kept]
    early = (before.start_ns[kept] < first_ns) | (after.start_ns[now] < first_ns)
    assert (before.start_ns[kept][early] == after.start_ns[now][early]).all()
    removed = found.new_op_of < 0
    assert (before.start_ns[removed] >= first_ns).all()


def test_a_change_late_in_the_run_leaves_the_beginning() -> None:
    graph, costs, problem = case()
    order = find_policy("p3").compile(problem)
    scene = Scene(graph=graph, costs=costs)
    pieces = OrderedPieces(problem=problem, order=order, costs=costs)
    found = COMMUNICATION_ORDER.apply(scene, pieces)
    check_change(scene, found)
    after = replay(found.scene.graph)
    assert ready_ns(found.scene.graph, after.end_ns)[found.touched].min() > 0


def test_nothing_is_touched_where_nothing_changes() -> None:
    scene = scene_of(compute_rate=0.7)
    for step in (
        (BANDWIDTH, Rate(factor=1.0)),
        (COMPUTE_SCALE, ComputeFactor(factor=1.0)),
        (CHANGE_RANKS, NumRanks(2)),
    ):
        found = compose(scene, [step])
        assert found.scene.graph == scene.graph
        assert not len(found.touched)
        assert found.new_op_of.tolist() == list(range(scene.graph.num_ops))


def test_only_the_scaled_rank_is_touched() -> None:
    scene = scene_of()
    found = compose(scene, [(COMPUTE_SCALE, ComputeFactor(factor=2.0, ranks=(1,)))])
    assert set(found.scene.graph.ops.rank[found.touched].tolist()) == {1}


def test_composition_equals_one_pass_after_the_other() -> None:
    scene = scene_of()
    steps = [STEPS[0], STEPS[2], STEPS[3]]
    one_by_one = scene
    for one, parameters in steps:
        one_by_one = one.apply(one_by_one, parameters).scene
    assert compose(scene, steps).scene == one_by_one
    assert compose(scene, []).scene is scene


def test_memory_of_new_ranks_counts() -> None:
    scene = scene_of()
    held = Buffers(
        rank=[0, 0, 1],
        size_bytes=[100, 20, 7],
        kind=[MemoryKind.PARAMETER, MemoryKind.ACTIVATION, MemoryKind.PARAMETER],
        taken_by=[-1, 0, -1],
        given_by=[-1, 1, -1],
        later=[0, 0, 0],
        layer=[0, 0, 0],
    )
    scene = Scene(graph=scene.graph.evolve(buffers=held), costs=scene.costs)
    assert compose(scene, [STEPS[3]]).memory_bytes.tolist() == [0, 0]
    grown = compose(scene, [(CHANGE_RANKS, NumRanks(4)), (BANDWIDTH, Rate(factor=2.0))])
    assert grown.memory_bytes.tolist()[:2] == [0, 0]
    assert grown.memory_bytes[2] >= 100
    assert grown.memory_bytes[3] == 7
    assert len(compose(scene, [(CHANGE_RANKS, NumRanks(1))]).memory_bytes) == 1


def test_errors_of_changes_combine_by_the_root_of_squares() -> None:
    assert ErrorModel.combined([]) == ErrorModel(0.0)
    assert ErrorModel.combined([ErrorModel(0.03), ErrorModel(0.04)]).relative == pytest.approx(0.05)
    wanted = [changes.bandwidth("0.5x"), changes.latency("2x")]
    assert changes.error_of(wanted).relative == pytest.approx((0.015**2 + 0.02**2) ** 0.5)


def test_passes_have_names_and_a_way_into_training() -> None:
    assert len({one.name for one in PASSES}) == len(PASSES)
    for one in PASSES:
        assert find_pass(one.name) is one
        assert bool(one.plan_section) != bool(one.advice)
    with pytest.raises(AuguryError, match="no pass 'magic'"):
        find_pass("magic")


def test_a_pass_says_why_it_does_not_apply() -> None:
    graph, costs = recorded()
    bare = Scene(graph=graph.evolve(gradients=graph.gradients.empty()), costs=costs)
    for one, parameters in (
        (BUCKETS, BucketCaps((1,))),
        (LINK_BANDWIDTH, LinkRate(rank=0, rate=Rate(factor=0.5))),
        (find_pass("expand-collectives"), None),
        (CHANGE_RANKS, NumRanks(4)),
    ):
        scene = scene_of(num_ranks=1) if one is CHANGE_RANKS else bare
        (reason,) = one.applies(scene)
        with pytest.raises(AuguryError) as error:
            one.apply(scene, parameters)
        assert error.value.cause == reason


def test_changes_and_scenes_are_picklable() -> None:
    """They go to other processes."""
    calibration = [
        Calibration(
            group=0, collective="all_reduce", size_bytes=1 << 20, concurrent=1,
            beside_compute=False, durations_ns=[1_000_000],
        )
    ]  # fmt: skip
    graph, _ = recorded()
    scene = Scene.recorded(graph, calibration)
    for change in (
        changes.bandwidth("10Gbit/s"), changes.link_bandwidth("1.out:0.5x"),
        changes.latency("+1ms"), changes.buckets("1,25"), changes.ranks(3),
        changes.compute_scale("1:1.5"), changes.no_straggler(), changes.perfect_overlap(),
        changes.expanded(changes.topology_of("tree", "1,0", True)),
    ):  # fmt: skip
        assert pickle.loads(pickle.dumps(change)) == change
    copied = pickle.loads(pickle.dumps(scene))
    change = changes.bandwidth("0.5x")
    assert change.apply(copied).scene.graph == change.apply(scene).scene.graph
