"""Strategies as graphs: replayed, they match the closed forms wherever both make the same
assumptions."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from augury.build.pipeline_order import stage_tasks
from augury.core.cluster.cluster import Cluster, NetworkLevel
from augury.core.enums import OpKind, are_communication
from augury.core.errors import LimitError
from augury.core.graph.graph import Graph
from augury.core.model import LayerKind, Model, ModelLayer
from augury.oracle.fitting.corrections import BARE, Constants
from augury.oracle.graphs.program import MAX_OPS
from augury.oracle.graphs.replay_sweep import replay_each
from augury.oracle.graphs.strategy_graph import MAX_WHOLE, strategy_graph
from augury.oracle.strategies.registry import STRATEGIES, find_strategy
from augury.oracle.strategy import StrategyCase
from augury.replay.run import replay
from tests.oracle.small import CLUSTER, DEVICE, MODEL, case, convolution, judged

FITTED = Constants(
    compute_ratio=0.97, filter_redundancy=1.2, channel_redundancy=0.7, group_redundancy=0.9,
    spatial_redundancy=0.3, piece_s=2e-6, node_contention=0.3, filter_contention=0.5,
    channel_contention=2, gradient_contention=1.5, staging_s_per_byte=1e-9, crossing_s=1e-3,
    group_messages=0.8, spatial_messages=1.1,
)  # fmt: skip
LEVEL = NetworkLevel(name="node", devices=64, latency_ns=1_000, bandwidth_bytes_per_s=10**10)
FLAT = Cluster(name="flat", device=DEVICE, levels=(LEVEL,))
FREE = replace(FLAT, levels=(replace(LEVEL, latency_ns=0, bandwidth_bytes_per_s=10**15),))
THREE = replace(
    CLUSTER, levels=(*CLUSTER.levels, replace(CLUSTER.levels[1], name="more", devices=4096))
)
EVEN = Model(
    name="even",
    layers=tuple(convolution(f"layer {i}", 64, 64, 16) for i in range(48)),
    input_shape=(64, 16, 16),
)
"""Stages with equal numbers of layers are equal."""
UNEVEN = Model(
    name="uneven",
    layers=(
        convolution("first", 8, 16, 32),
        ModelLayer(
            name="norm", kind=LayerKind.NORMALISATION, input_shape=(16, 32, 32),
            output_shape=(16, 32, 32), num_parameters=32, forward_items=32768, backward_items=65536,
        ),
        ModelLayer(
            name="pool", kind=LayerKind.POOLING, input_shape=(16, 32, 32),
            output_shape=(16, 16, 16), kernel=(2, 2), stride=(2, 2), padding=(0, 0),
            forward_items=20480, backward_items=20480,
        ),
        convolution("second", 16, 16, 16),
        *MODEL.layers[2:],
    ),
    input_shape=(8, 32, 32),
)  # fmt: skip
LAYERED = [strategy.name for strategy in STRATEGIES if strategy.name != "pipeline"]


def _replayed_s(strategy: str, asked: StrategyCase) -> float:
    return replay(strategy_graph(find_strategy(strategy), asked)).step_ns / 1e9


@pytest.mark.parametrize("strategy", LAYERED)
@pytest.mark.parametrize("model", [MODEL, UNEVEN, EVEN], ids=lambda model: model.name)
@pytest.mark.parametrize("constants", [BARE, FITTED], ids=["bare", "fitted"])
def test_a_replayed_step_is_the_closed_form(strategy: str, model: Model, constants: Constants):
    for cluster in (CLUSTER, FLAT, THREE):
        for devices, more in (
            (1, {}),
            (4, {"is_bare": constants is BARE}),
            (8, {"recompute": True}),
            (8, {"group": 2}),
            (64, {}),
            (256, {"optimizer_copies": 2}),
        ):
            asked = case(
                [devices], [1024], model=model, cluster=cluster, constants=constants, **more
            )
            closed = judged(strategy, asked)
            if closed.feasible[0]:
                assert _replayed_s(strategy, asked) == pytest.approx(closed.step_s[0], rel=1e-3)


@pytest.mark.parametrize("strategy", LAYERED)
def test_one_rank_stands_for_all(strategy: str):
    for overlap in (0.0, 1.0):
        asked = case([16], [64], constants=FITTED, overlap=overlap, group=4)
        if not judged(strategy, asked).feasible[0]:
            asked = case([8], [64], constants=FITTED, overlap=overlap, group=4)
        one, whole = (
            strategy_graph(find_strategy(strategy), asked, whole=w) for w in (False, True)
        )
        assert (one.num_ranks, whole.num_ranks) == (1, int(asked.devices[0]))
        assert whole.num_gangs
        assert replay(whole).step_ns == replay(one).step_ns


@pytest.mark.parametrize("strategy", LAYERED)
def test_a_slow_rank_delays_all(strategy: str):
    """No wait is circular."""
    asked = case([8], [4096], model=EVEN, constants=FITTED, overlap=1.0, group=4)
    if not judged(strategy, asked).feasible[0]:
        return
    graph = strategy_graph(find_strategy(strategy), asked, whole=True)
    before = replay(graph)
    is_slowed = (graph.ops.rank == 3) & ~are_communication(graph.ops.kind)
    columns = dict(graph.ops.columns())
    columns["work_ns"] = np.where(is_slowed, 2 * graph.ops.work_ns, graph.ops.work_ns)
    after = replay(graph.evolve(ops=type(graph.ops)(**columns)))
    assert before.step_ns < after.step_ns <= 2 * before.step_ns
    assert min(after.rank_step_ns) > before.step_ns


def test_large_scales_use_representative_ranks():
    asked = case([2 * MAX_WHOLE], [2 * MAX_WHOLE], cluster=THREE)
    assert strategy_graph(find_strategy("data"), asked, whole=True).num_ranks == 1


@pytest.mark.parametrize("micro_batches", [1, 2, 3, 4, 6, 12, 24])
@pytest.mark.parametrize("devices", [1, 2, 3, 4, 8])
def test_pipelines_have_the_textbook_bubble(devices: int, micro_batches: int):
    """The bubble is p - 1 of m micro-batches; interleaved, a share of that."""
    batch = 48 * micro_batches
    for schedule in ("gpipe", "1f1b", "interleaved"):
        asked = case(
            [devices], [batch], model=EVEN, cluster=FREE,
            micro_batches=micro_batches, schedule=schedule,
        )  # fmt: skip
        closed = judged("pipeline", asked)
        each_s = batch / micro_batches * asked.work.sample_s / devices
        update_s = asked.work.total_update_s / devices
        chunks = 2 if schedule == "interleaved" else 1
        found_s = _replayed_s("pipeline", asked)
        if chunks == 1 or micro_batches >= devices:
            bubble_s = (devices - 1) * each_s / chunks
            assert found_s - update_s == pytest.approx(micro_batches * each_s + bubble_s, rel=1e-3)
        assert found_s == pytest.approx(closed.step_s[0], rel=1e-3)


@pytest.mark.parametrize("schedule", ["gpipe", "1f1b", "interleaved"])
@pytest.mark.parametrize("overlap", [0.0, 1.0])
def test_a_pipeline_takes_no_longer_than_its_closed_form(schedule: str, overlap: float):
    """The closed form serializes all messages. GPipe does so too where nothing overlaps."""
    for devices, micro_batches in ((2, 4), (4, 4), (4, 8), (6, 12), (8, 32)):
        asked = case(
            [devices], [48 * micro_batches], model=EVEN, cluster=FLAT, overlap=overlap,
            micro_batches=micro_batches, schedule=schedule,
        )  # fmt: skip
        closed, found_s = judged("pipeline", asked), _replayed_s("pipeline", asked)
        if schedule == "gpipe" and not overlap:
            assert found_s == pytest.approx(closed.step_s[0], rel=1e-3)
        assert closed.compute_s[0] * 0.999 < found_s < closed.step_s[0] * 1.001


@pytest.mark.parametrize("schedule", ["gpipe", "1f1b"])
def test_unequal_stages_take_no_longer_than_the_slowest_of_each(schedule: str):
    for cluster in (CLUSTER, FLAT, THREE):
        for recompute in (False, True):
            asked = case(
                [3, 6], [240, 240], model=UNEVEN, cluster=cluster, schedule=schedule,
                constants=FITTED, recompute=recompute, group=2,
            )  # fmt: skip
            (again,), notes = replay_each([judged("pipeline", asked)], [find_strategy("pipeline")])
            closed = judged("pipeline", asked)
            assert not notes
            assert again.is_replayed is not None
            assert again.is_replayed.all()
            assert np.all(again.step_s <= closed.step_s * 1.001)
            assert np.allclose(again.step_s, again.compute_s + again.exposed_comm_s)


@pytest.mark.parametrize("strategy", STRATEGIES, ids=lambda strategy: strategy.name)
def test_nothing_is_faster_than_its_compute_and_overlap_never_slower(strategy):
    for devices in (2, 4, 8, 64):
        steps = []
        for overlap in (0.0, 0.3, 0.7, 1.0):
            asked = case([devices], [256], model=EVEN, overlap=overlap, group=2, constants=FITTED)
            closed = judged(strategy.name, asked)
            if not closed.feasible[0]:
                break
            steps.append(_replayed_s(strategy.name, asked))
            least_s = 256 * asked.work.sample_s * FITTED.compute_ratio / devices
            assert steps[-1] > least_s * 0.999
            assert steps[-1] <= steps[0] * (1 + 1e-6)
        assert sorted(steps, reverse=True) == pytest.approx(steps, rel=2e-2)


def _peak_bytes(strategy: str, asked: StrategyCase) -> int:
    timeline = replay(strategy_graph(find_strategy(strategy), asked))
    return max(peak.size_bytes for peak in timeline.peak_memory)


@pytest.mark.parametrize("strategy", LAYERED)
def test_memory_equals_the_closed_form(strategy: str):
    for model in (MODEL, UNEVEN, EVEN):
        for more in ({}, {"is_bare": True}, {"optimizer_copies": 2, "group": 2}):
            for devices, batch in ((1, 64), (4, 64), (8, 2048)):
                asked = case([devices], [batch], model=model, constants=FITTED, **more)
                closed = judged(strategy, asked)
                if not closed.feasible[0]:
                    continue
                found, expected = _peak_bytes(strategy, asked), float(closed.memory_bytes[0])
                # Which layers ZeRO-3 has gathered at the peak, only a replay knows.
                least = 0.9 if strategy == "zero3" else 0.999
                assert least * expected < found < 1.001 * expected


@pytest.mark.parametrize("schedule", ["gpipe", "1f1b", "interleaved"])
def test_memory_of_a_pipeline_is_that_of_its_fullest_stage(schedule: str):
    for more in ({}, {"is_bare": True}, {"recompute": True}):
        for devices, batch in ((1, 48), (4, 48), (6, 144)):
            asked = case([devices], [batch], model=EVEN, cluster=FLAT, schedule=schedule, **more)
            closed = float(judged("pipeline", asked).memory_bytes[0])
            if schedule != "interleaved" or "recompute" not in more:
                assert _peak_bytes("pipeline", asked) == pytest.approx(closed, rel=1e-3)
        asked = case([3], [48], model=UNEVEN, cluster=FLAT, schedule=schedule, **more)
        closed = float(judged("pipeline", asked).memory_bytes[0])
        if schedule != "interleaved":  # whose chunks are cut elsewhere, and each keep their input
            assert _peak_bytes("pipeline", asked) <= closed * 1.001


def test_gradients_are_sent_during_backward():
    graph = strategy_graph(find_strategy("data"), case([8], [8000], overlap=1.0))
    timeline = replay(graph)
    is_sent = graph.ops.kind == OpKind.ALL_REDUCE
    is_backward = graph.ops.kind == OpKind.BACKWARD
    assert timeline.start_ns[is_sent].min() < timeline.end_ns[is_backward].max()
    # The first layer's gradient is made last, and has nothing to hide behind.
    assert timeline.end_ns[is_sent].max() > timeline.end_ns[is_backward].max()


def test_parameters_of_the_next_layer_are_gathered_beside_this_one():
    steps = [_replayed_s("zero3", case([8], [8000], overlap=share)) for share in (0.0, 1.0)]
    assert steps[1] < steps[0]
    graph = strategy_graph(find_strategy("zero3"), case([8], [8000], overlap=1.0))
    gathered = np.flatnonzero(graph.ops.kind == OpKind.ALL_GATHER)
    assert len(gathered) == 2 * len(MODEL.layers)
    forward = np.flatnonzero(graph.ops.kind == OpKind.FORWARD)
    timeline = replay(graph)
    for place in range(2, len(forward)):
        # Not earlier, though: two layers are whole at a time.
        before = timeline.start_ns[forward[place - 1]]
        assert timeline.start_ns[gathered[place]] >= before


def test_slow_reading_of_samples_lengthens_the_step():
    for strategy in ("data", "pipeline"):
        slow = replace(CLUSTER, input_bandwidth_bytes_per_s=1e6)
        asked = case([4], [400], cluster=slow)
        closed = judged(strategy, asked)
        assert _replayed_s(strategy, asked) == pytest.approx(closed.step_s[0], rel=1e-6)
        (again,), _ = replay_each([closed], [find_strategy(strategy)])
        assert again.step_s[0] == pytest.approx(closed.step_s[0], rel=1e-6)
        quick = replace(CLUSTER, input_bandwidth_bytes_per_s=1e14)
        assert _replayed_s(strategy, case([4], [400], cluster=quick)) == pytest.approx(
            _replayed_s(strategy, case([4], [400])), rel=1e-6
        )


@pytest.mark.parametrize("schedule", ["gpipe", "1f1b", "interleaved"])
def test_every_task_runs_once_without_a_cycle(schedule):
    for devices in (1, 2, 3, 5):
        for micro_batches in (1, 2, 3, 4, 5, 7, 11):
            chunks = 3 if schedule == "interleaved" and devices > 1 else 1
            for device in range(devices):
                tasks = stage_tasks(
                    schedule,
                    stage=device,
                    num_stages=devices,
                    num_micro_batches=micro_batches,
                    num_chunks=chunks,
                )
                assert len(tasks) == len(set(tasks)) == 2 * micro_batches * chunks
            asked = case(
                [devices], [micro_batches], model=EVEN, cluster=FLAT, schedule=schedule,
                micro_batches=micro_batches, chunks=3,
            )  # fmt: skip
            assert _replayed_s("pipeline", asked) > 0


def test_1f1b_holds_fewer_micro_batches_than_gpipe():
    def most_ahead(schedule) -> int:
        tasks = stage_tasks(schedule, stage=0, num_stages=4, num_micro_batches=16)
        return int(np.cumsum([1 if task.is_forward else -1 for task in tasks]).max())

    assert (most_ahead("gpipe"), most_ahead("1f1b")) == (16, 4)


def test_graphs_that_are_too_large_are_refused():
    micro_batches = MAX_OPS // (2 * len(EVEN.layers))
    asked = case([4], [micro_batches], model=EVEN, micro_batches=micro_batches)
    with pytest.raises(LimitError, match="operations, more than") as refused:
        strategy_graph(find_strategy("pipeline"), asked)
    assert "--fidelity closed" in refused.value.remedy
    (again,), (note,) = replay_each([judged("pipeline", asked)], [find_strategy("pipeline")])
    assert note.startswith("pipeline on 4 devices is not replayed: a graph of")
    assert again.is_replayed is not None
    assert not again.is_replayed.any()
    assert again.step_s[0] == judged("pipeline", asked).step_s[0]


def test_steps_that_take_too_long_are_refused():
    with pytest.raises(LimitError, match="too long for a replay"):
        strategy_graph(find_strategy("data"), case([1], [1 << 30]))


def test_models_without_weights_or_with_a_single_layer_are_built():
    pool = ModelLayer(
        name="pool", kind=LayerKind.POOLING, input_shape=(8, 8), output_shape=(8, 8), kernel=(3,),
        forward_items=10_000, backward_items=10_000,
    )  # fmt: skip
    for layers in ((pool,), (convolution("only", 8, 8, 16),)):
        model = Model(name="one", layers=layers, input_shape=(8, 8))
        for strategy in LAYERED:
            asked = case([4], [64], model=model)
            closed = judged(strategy, asked)
            if closed.feasible[0]:
                assert _replayed_s(strategy, asked) == pytest.approx(closed.step_s[0], rel=1e-3)


def _links(graph: Graph) -> set[str]:
    return {graph.resource_name(i) for i in range(len(graph.resources))} - {"device"}


def test_links_are_those_of_the_levels_crossed():
    asked = case([8], [64])
    assert _links(strategy_graph(find_strategy("data"), asked)) == {"link of network"}
    assert _links(strategy_graph(find_strategy("data_spatial"), asked)) == {
        "link of node",
        "link of network",
    }
