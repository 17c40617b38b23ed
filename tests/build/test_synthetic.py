"""Synthetic runs behave like real ones and match textbook formulas."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from augury.build.collectives.placement import Placement
from augury.build.collectives.ports import PortKind
from augury.build.pipeline_order import PipelineSchedule
from augury.build.synthetic.layers import (
    MODELS,
    ModelSize,
    conv_layers,
    transformer_layers,
    uniform_layers,
)
from augury.build.synthetic.training_run import PARAMETER_SERVER, SyntheticJob, synthesize
from augury.core.cluster.cluster import Cluster, Link
from augury.core.enums import MemoryKind, OpKind, Role
from augury.core.errors import UsageError
from augury.core.graph.graph import Graph
from augury.core.graph.graph_file import load_graph, save_graph
from augury.replay.reference import simulate
from tests.build.scenes import contributions, rows_of_rank

FREE = Link(latency_ns=0, bandwidth_bytes_per_s=10**15)
NET = Link(latency_ns=5_000, bandwidth_bytes_per_s=5_000_000_000)
SMALL = ModelSize(
    num_layers=6, parameter_bytes=6_000_000, forward_ns=600_000, backward_ns=1_200_000
)
ALL_ALGORITHMS = ("gang", "gang-tree", "gang-two-level", "ring", "tree", "two-level")


SCHEDULES = (PipelineSchedule.GPIPE, PipelineSchedule.ONE_F_ONE_B)


def _cluster(num_hosts: int, ranks_per_host: int, link: Link = NET) -> Cluster:
    return Cluster.of_hosts(
        num_hosts=num_hosts, ranks_per_host=ranks_per_host, intra=link, inter=link
    )


def _job(**changes: object) -> SyntheticJob:
    base = SyntheticJob(layers=conv_layers(SMALL), cluster=_cluster(2, 2), bucket_bytes=2_000_000)
    return replace(base, **changes)


def _makespan_ns(graph: Graph) -> int:
    schedule = simulate(graph)
    assert schedule.is_complete
    return int(schedule.end_ns.max())


jobs = st.builds(
    _job,
    algorithm=st.sampled_from([*ALL_ALGORITHMS, PARAMETER_SERVER]),
    ports=st.sampled_from(PortKind),
    num_stages=st.sampled_from([1, 2, 4]),
    num_micro_batches=st.integers(1, 3),
    schedule=st.sampled_from(SCHEDULES),
    num_steps=st.integers(1, 3),
    has_barrier=st.booleans(),
    placement=st.sampled_from(Placement),
    jitter=st.sampled_from([0.0, 0.3]),
    stragglers=st.sampled_from([(), ((1, 2.0),)]),
    compute_rate=st.sampled_from([1.0, 0.8]),
    seed=st.integers(0, 3),
)


@given(job=jobs)
@settings(max_examples=60, deadline=None)
def test_every_job_runs_to_its_end_and_its_order_is_that_of_ids(job):
    graph = synthesize(job)
    assert simulate(graph).is_complete
    assert (graph.edges.sources() < graph.edges.dst).all()
    assert graph.num_steps == job.num_steps
    assert graph.num_ranks == job.cluster.num_devices


@given(job=jobs)
@settings(max_examples=30, deadline=None)
def test_operations_start_no_earlier_than_their_step(job):
    graph = synthesize(replace(job, num_steps=2))
    start_ns, ops = simulate(graph).start_ns, graph.ops
    second = ops.step == 1
    assert start_ns[second].min() == start_ns[second & (ops.kind == OpKind.FORWARD)].min()
    # Carried edges must do between windows what edges do between steps.
    assert set(graph.ops.kind[graph.carries.dst]) == {OpKind.FORWARD}


@given(job=jobs)
@settings(max_examples=20, deadline=None)
def test_same_seed_same_graph(job):
    assert synthesize(job) == synthesize(job)


def test_other_seed_other_times():
    one, other = (synthesize(_job(jitter=0.2, seed=seed)) for seed in (1, 2))
    assert one.ops.work_ns.tolist() != other.ops.work_ns.tolist()
    assert one.edges == other.edges


@pytest.mark.parametrize("algorithm", ["ring", PARAMETER_SERVER])
@pytest.mark.parametrize("ports", PortKind)
def test_graph_files_round_trip(tmp_path, algorithm, ports):
    graph = synthesize(_job(algorithm=algorithm, ports=ports, jitter=0.1, compute_rate=0.9))
    save_graph(graph, tmp_path / "run.augury")
    assert load_graph(tmp_path / "run.augury") == graph


@pytest.mark.parametrize("algorithm", ["gang", "ring", PARAMETER_SERVER])
@pytest.mark.parametrize("ports", PortKind)
def test_equal_ranks_are_equal_op_for_op(algorithm, ports):
    layers = uniform_layers(replace(SMALL, parameter_bytes=24_000))
    graph = synthesize(_job(algorithm=algorithm, ports=ports, layers=layers, num_steps=2))
    first = rows_of_rank(graph, 0)
    assert all(rows_of_rank(graph, rank) == first for rank in range(1, 4))


def test_replicas_of_a_stage_are_equal_op_for_op():
    graph = synthesize(_job(num_stages=2, num_micro_batches=3, algorithm="gang"))
    assert rows_of_rank(graph, 0) == rows_of_rank(graph, 1)
    assert rows_of_rank(graph, 2) == rows_of_rank(graph, 3)
    assert rows_of_rank(graph, 0) != rows_of_rank(graph, 2)


def test_ranks_know_their_hosts():
    graph = synthesize(_job(algorithm=PARAMETER_SERVER, num_servers=2))
    hosts = [graph.strings[host] for host in graph.ranks.host]
    assert hosts == ["host0", "host0", "host1", "host1", "server0", "server1"]
    assert graph.ranks.role.tolist() == [Role.WORKER] * 4 + [Role.SERVER] * 2


# -- time ----------------------------------------------------------------------------------


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize(("num_stages", "num_micro_batches"), [(2, 1), (2, 4), (4, 4), (4, 12)])
def test_pipelines_have_the_textbook_bubble(schedule, num_stages, num_micro_batches):
    compute_ns = 9 * num_stages * num_micro_batches * 1_000
    size = ModelSize(
        num_layers=2 * num_stages,
        output_bytes=0,
        forward_ns=compute_ns // 3,
        backward_ns=2 * compute_ns // 3,
        update_ns=0,
    )
    graph = synthesize(
        SyntheticJob(
            layers=uniform_layers(size),
            cluster=_cluster(1, num_stages, FREE),
            num_stages=num_stages,
            num_micro_batches=num_micro_batches,
            schedule=schedule,
        )
    )
    makespan_ns = _makespan_ns(graph)
    busy_ns = compute_ns // num_stages
    bubble = (num_stages - 1) / (num_micro_batches + num_stages - 1)
    assert 1 - busy_ns / makespan_ns == pytest.approx(bubble)


def test_one_straggler_slows_everyone():
    graph = synthesize(_job())
    slow = synthesize(_job(stragglers=((2, 1.5),)))
    compute_ns = SMALL.forward_ns + SMALL.backward_ns
    assert _makespan_ns(slow) >= _makespan_ns(graph) + 0.3 * compute_ns
    schedule = simulate(slow)
    ends = [schedule.end_ns[slow.ops.rank == rank].max() for rank in range(4)]
    assert min(ends) > _makespan_ns(graph)


def test_communication_hides_behind_backward():
    """Less than one after the other, but not for free."""
    hidden = _makespan_ns(synthesize(_job(algorithm="ring")))
    exposed = _makespan_ns(synthesize(_job(algorithm="ring", bucket_bytes=10**9)))
    without = _makespan_ns(synthesize(_job(cluster=_cluster(2, 2, FREE))))
    assert without < hidden < exposed


def test_interference_slows_compute_only_beside_communication():
    same = _makespan_ns(synthesize(_job(bucket_bytes=10**9, compute_rate=0.5)))
    assert same == _makespan_ns(synthesize(_job(bucket_bytes=10**9)))
    slowed = _makespan_ns(synthesize(_job(compute_rate=0.5)))
    assert slowed > _makespan_ns(synthesize(_job()))


def test_jitter_keeps_the_mean():
    layers = uniform_layers(replace(SMALL, num_layers=500, forward_ns=500_000_000))
    graph = synthesize(_job(layers=layers, jitter=0.2))
    forward = graph.ops.work_ns[graph.ops.kind == OpKind.FORWARD]
    assert forward.mean() == pytest.approx(1_000_000, rel=0.03)
    assert forward.std() == pytest.approx(200_000, rel=0.15)


# -- structure -----------------------------------------------------------------------------


def test_buckets_close_at_the_cap():
    job = _job()
    graph = synthesize(job)
    one_rank = (graph.ops.rank == 0) & (graph.ops.kind == OpKind.ALL_REDUCE)
    sizes = graph.ops.size_bytes[one_rank].tolist()
    assert sum(sizes) == SMALL.parameter_bytes
    assert len(sizes) > 1
    assert all(size >= job.bucket_bytes for size in sizes[:-1])


def test_a_bucket_waits_for_its_last_gradient():
    graph = synthesize(_job())
    schedule = simulate(graph)
    (last,) = np.flatnonzero((graph.ops.kind == OpKind.ALL_REDUCE) & (graph.ops.rank == 0))[-1:]
    (before,) = graph.predecessors.of(last).tolist()
    assert graph.op_name(before) == "conv0.backward"
    assert schedule.start_ns[last] >= schedule.end_ns[before]


def test_urgent_layers_overtake():
    job = _job(
        algorithm=PARAMETER_SERVER,
        has_barrier=False,
        num_steps=3,
        cluster=_cluster(2, 2, replace(NET, bandwidth_bytes_per_s=1_000_000_000)),
        partition_bytes=200_000,
    )
    in_turn, urgent = (
        _makespan_ns(synthesize(replace(job, urgent_first=u))) for u in (False, True)
    )
    assert urgent < in_turn


@pytest.mark.parametrize("has_barrier", [True, False])
@pytest.mark.parametrize("algorithm", ["gang", PARAMETER_SERVER])
def test_the_next_window_waits_for_this_ones_updates(has_barrier, algorithm):
    job = _job(has_barrier=has_barrier, algorithm=algorithm)
    graph = synthesize(job)
    names = {
        (graph.op_name(src), graph.op_name(dst))
        for src, dst in zip(graph.carries.src, graph.carries.dst, strict=True)
    }
    forwards = {dst for _, dst in names}
    if has_barrier:
        assert forwards == {"conv0.forward"}
    else:
        assert forwards == {f"conv{i}.forward" for i in range(6)}
    assert graph.ops.rank[graph.carries.src].tolist() == graph.ops.rank[graph.carries.dst].tolist()
    if algorithm == "gang":
        assert all(src.endswith(".update") for src, _ in names)


def test_carried_edges_join_like_edges_of_one_long_window():
    """The next window begins when this one ends, as between two steps of one window."""
    two = synthesize(_job(num_steps=2))
    one = synthesize(_job(num_steps=1))
    schedule = simulate(two)
    second = schedule.start_ns[two.ops.step == 1].min()
    ends = simulate(one).end_ns[np.unique(one.carries.src)]
    assert second == ends.min()


@pytest.mark.parametrize("algorithm", ["gang", "ring", PARAMETER_SERVER])
def test_behind_a_barrier_the_first_forward_needs_every_update(algorithm):
    graph = synthesize(_job(num_steps=2, algorithm=algorithm))
    ops = graph.ops
    kind = OpKind.PULL if algorithm == PARAMETER_SERVER else OpKind.UPDATE
    updates = np.flatnonzero((ops.kind == kind) & (ops.rank == 0) & (ops.step == 0)).tolist()
    needs = contributions(graph, updates)
    first = np.flatnonzero((ops.kind == OpKind.FORWARD) & (ops.rank == 0) & (ops.step == 1))[0]
    assert len(updates) >= 6
    assert needs[first] == (1 << len(updates)) - 1


def test_gradients_are_held_from_the_first_micro_batch_to_the_update():
    graph = synthesize(_job(num_micro_batches=3))
    gradients = graph.buffers.kind == MemoryKind.GRADIENT
    taken = {graph.op_name(op) for op in graph.buffers.taken_by[gradients]}
    given = {graph.op_name(op) for op in graph.buffers.given_by[gradients]}
    assert taken == {f"conv{i}.backward.0" for i in range(6)}
    assert given == {f"conv{i}.update" for i in range(6)}


def test_memory_is_taken_and_given_back():
    job = _job()
    graph = synthesize(job)
    buffers = graph.buffers
    per_kind = {
        kind: int(buffers.size_bytes[(buffers.kind == kind) & (buffers.rank == 0)].sum())
        for kind in MemoryKind
    }
    assert per_kind[MemoryKind.PARAMETER] == SMALL.parameter_bytes
    assert per_kind[MemoryKind.OPTIMIZER] == 2 * SMALL.parameter_bytes
    assert per_kind[MemoryKind.GRADIENT] == SMALL.parameter_bytes
    assert per_kind[MemoryKind.ACTIVATION] == SMALL.saved_bytes
    saved = buffers.kind == MemoryKind.ACTIVATION
    assert (graph.ops.kind[buffers.taken_by[saved]] == OpKind.FORWARD).all()
    assert (graph.ops.kind[buffers.given_by[saved]] == OpKind.BACKWARD).all()
    assert (graph.ops.layer[buffers.given_by[saved]] == buffers.layer[saved]).all()


def test_1f1b_holds_fewer_activations_than_gpipe():
    def peak(schedule: PipelineSchedule) -> int:
        graph = synthesize(_job(num_stages=2, num_micro_batches=6, schedule=schedule))
        when = simulate(graph)
        held = (graph.buffers.kind == MemoryKind.ACTIVATION) & (graph.buffers.rank == 0)
        start = when.start_ns[graph.buffers.taken_by[held]]
        end = when.end_ns[graph.buffers.given_by[held]]
        size = graph.buffers.size_bytes[held]
        return max(int(size[(start <= at) & (at < end)].sum()) for at in start)

    assert peak(PipelineSchedule.ONE_F_ONE_B) < 0.5 * peak(PipelineSchedule.GPIPE)


def test_pipeline_stages_exchange_activations_and_gradients():
    graph = synthesize(_job(num_stages=4, num_micro_batches=2))
    sends = graph.ops.kind == OpKind.SEND
    assert np.bincount(graph.ops.rank[sends]).tolist() == [2, 4, 4, 2]
    receives = graph.ops.kind == OpKind.RECV
    assert np.bincount(graph.ops.rank[receives]).tolist() == [2, 4, 4, 2]


# -- models and refusals -------------------------------------------------------------------


@pytest.mark.parametrize("make", MODELS.values(), ids=MODELS)
@given(num_layers=st.integers(1, 40), seed=st.integers(0, 9))
@settings(deadline=None)
def test_models_add_up(make, num_layers, seed):
    size = ModelSize(num_layers=num_layers)
    layers = make(size, seed=seed)
    assert layers == make(size, seed=seed)
    assert len({layer.name for layer in layers}) == num_layers
    for name in ("parameter_bytes", "saved_bytes", "forward_ns", "backward_ns", "update_ns"):
        values = [getattr(layer, name) for layer in layers]
        assert sum(values) == getattr(size, name)
        assert min(values) >= 0
    assert max(layer.output_bytes for layer in layers) == size.output_bytes


def test_conv_parameters_grow_and_activations_shrink():
    layers = conv_layers(ModelSize(num_layers=20))
    assert layers[-1].parameter_bytes > 4 * layers[0].parameter_bytes
    assert layers[0].saved_bytes > 4 * layers[-1].saved_bytes


def test_transformer_begins_with_a_large_cheap_embedding():
    first, *blocks = transformer_layers(ModelSize(num_layers=21))
    assert first.parameter_bytes > 2 * max(layer.parameter_bytes for layer in blocks)
    assert first.forward_ns < min(layer.forward_ns for layer in blocks)


def test_impossible_models_are_refused_with_a_remedy():
    for changes in ({"num_layers": 0}, {"forward_ns": -1}):
        with pytest.raises(UsageError) as caught:
            ModelSize(**changes)
        assert caught.value.remedy


@pytest.mark.parametrize(
    "changes",
    [
        {"schedule": PipelineSchedule.INTERLEAVED},
        {"num_stages": 3},
        {"num_stages": 0},
        {"num_micro_batches": 0},
        {"num_steps": 0},
        {"bucket_bytes": 0},
        {"algorithm": "smoke-signals"},
        {"algorithm": "gang", "urgent_first": True},
        {"jitter": -0.1},
        {"jitter": float("nan")},
        {"compute_rate": 0.0},
        {"compute_rate": 1.5},
        {"stragglers": ((4, 2.0),)},
        {"stragglers": ((0, 0.0),)},
        {"stragglers": ((0, float("inf")),)},
        {"layers": ()},
        {"optimizer_bytes_per_parameter_byte": -1},
    ],
    ids=str,
)
def test_impossible_jobs_are_refused_with_a_remedy(changes):
    with pytest.raises(UsageError) as caught:
        _job(**changes)
    assert caught.value.remedy
