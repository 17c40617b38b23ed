"""Gradients in other buckets: filled as DDP fills them, and the step that follows from it."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from augury.build.recorded.recorded_graph import build_recorded
from augury.core.enums import OpKind
from augury.core.errors import InputError
from augury.core.graph.graph import Graph
from augury.core.graph.graph_spec import verify
from augury.core.trace.trace import Calibration
from augury.costs.collective_costs import fit_network
from augury.passes.buckets import BUCKETS, BucketCaps
from augury.passes.protocol import Scene
from augury.replay.run import replay
from augury.schedule.order_parts import fill_buckets
from tests.build.recorded_runs import MS, ddp_run
from tests.passes.applied import change_buckets
from tests.passes.recorded import recorded, reduced_ns

KILO = 1_000


@settings(max_examples=60)
@given(
    st.lists(st.integers(1, 50_000), min_size=1, max_size=20),
    st.lists(st.integers(1, 400_000), min_size=1, max_size=4),
)
def test_buckets_fill_as_torch_fills_them(numbers: list[int], caps: list[int]) -> None:
    torch = pytest.importorskip("torch")
    import torch.distributed as dist

    tensors = [torch.empty(number, device="meta") for number in numbers]
    theirs, _ = dist._compute_bucket_assignment_by_size(tensors, caps)
    assert fill_buckets([4 * number for number in numbers], caps) == theirs


def test_buckets_that_follow_others_repeat_no_burst() -> None:
    """Calibrated collectives of 1 MB took 0.6 ns per byte after a pause, larger ones 1."""
    rows = [
        Calibration(
            collective="all_reduce",
            group=0,
            size_bytes=size,
            concurrent=1,
            beside_compute=False,
            durations_ns=[size * 6 // 10 if size <= 1 << 20 else size],
        )
        for size in (1 << 18, 1 << 20, 4 << 20, 16 << 20)
    ]
    graph = build_recorded(ddp_run(buckets=((0, 1, 2, 3),), latency_ns=0).trace())
    scene = Scene.recorded(graph, rows)
    changed = BUCKETS.apply(scene, BucketCaps((1_000_000,))).scene.graph
    assert bucket_sizes(changed) == [4_000_000, 1_000_000, 2_000_000, 3_000_000]
    assert reduced_ns(changed).sum() >= 0.98 * reduced_ns(graph).sum()


def bucket_sizes(graph: Graph, step: int = 10, rank: int = 0) -> list[int]:
    ops = graph.ops
    own = (ops.kind == OpKind.ALL_REDUCE) & (ops.step == step) & (ops.rank == rank)
    return ops.size_bytes[own].tolist()


def test_sizes_follow_the_caps() -> None:
    graph, costs = recorded()
    assert bucket_sizes(graph) == [5_000_000, 5_000_000]
    for caps, sizes in (
        ([1], [4_000_000, 1_000_000, 2_000_000, 3_000_000]),
        ([1 << 30], [10_000_000]),
        ([1, 5_000_000], [4_000_000, 6_000_000]),
        ([5_000_000], [5_000_000, 5_000_000]),
    ):
        changed = change_buckets(graph, costs, caps)
        verify(changed)
        for step in (10, 11, 12):
            assert [bucket_sizes(changed, step, rank) for rank in (0, 1)] == [sizes, sizes]
        assert len(changed.gradients) == len(graph.gradients)
        assert changed.num_gangs == 3 * len(sizes)


@settings(max_examples=25)
@given(
    st.integers(1, 3),
    st.lists(st.integers(0, 60_000), min_size=4, max_size=4),
    st.floats(0.2, 10),
    st.sampled_from([1.0, 0.7]),
    st.booleans(),
)
def test_buckets_that_are_there_already_change_nothing(
    num_ranks: int, copies: list[int], ns_per_byte: float, rate: float, detailed: bool
) -> None:
    graph, costs = recorded(
        num_ranks=num_ranks,
        copies=copies,
        ns_per_byte=ns_per_byte,
        compute_rate=rate,
        detailed=[2] if detailed else [],
    )
    changed = change_buckets(graph, costs, [5_000_000])
    before, after = replay(graph), replay(changed)
    assert after.step_ns == pytest.approx(before.step_ns, rel=1e-3)
    assert after.rank_steps.end_ns == pytest.approx(before.rank_steps.end_ns, rel=2e-3)


CAPS = st.lists(st.integers(1, 6_000_000), min_size=1, max_size=3)


@settings(max_examples=30)
@given(CAPS, st.floats(0.5, 6), st.integers(10 * KILO, MS))
def test_other_buckets_take_the_time_that_they_really_take(
    caps: list[int], ns_per_byte: float, latency_ns: int
) -> None:
    """One job recorded, the same job simulated with the other buckets."""
    sizes = (4_000_000, 1_000_000, 2_000_000, 3_000_000)
    network = {"sizes": sizes, "ns_per_byte": ns_per_byte, "latency_ns": latency_ns}
    graph, costs = recorded(buckets=((0,), (1, 2, 3)), detailed=[2], **network)
    predicted = replay(change_buckets(graph, costs, caps)).step_ns
    real = ddp_run(buckets=fill_buckets(sizes, caps), **network).trace()
    assert predicted == pytest.approx(replay(build_recorded(real)).step_ns, rel=0.01)


def test_changes_of_buckets_follow_each_other() -> None:
    graph, costs = recorded()
    there = change_buckets(graph, costs, [1])
    back = change_buckets(there, costs, [5_000_000])
    assert replay(back).step_ns == pytest.approx(replay(graph).step_ns, rel=1e-3)


def test_accumulation_and_buffers_of_the_program_stay() -> None:
    graph, costs = recorded(micro_batches=2, broadcast=True)
    changed = change_buckets(graph, costs, [1 << 30])
    assert bucket_sizes(changed) == [10_000_000]
    for kind in (OpKind.BROADCAST, OpKind.FORWARD, OpKind.BACKWARD, OpKind.UPDATE):
        assert (changed.ops.kind == kind).sum() == (graph.ops.kind == kind).sum()


def test_without_gradients_there_is_nothing_to_fill() -> None:
    graph, costs = recorded()
    with pytest.raises(InputError, match="which bucket"):
        change_buckets(graph.evolve(gradients=graph.gradients.empty()), costs, [1])


def test_ranks_whose_gradients_differ_are_refused() -> None:
    graph, costs = recorded()
    sizes = graph.gradients.size_bytes.copy()
    sizes[0] += 1
    columns = dict(graph.gradients.columns()) | {"size_bytes": sizes}
    odd = graph.evolve(gradients=type(graph.gradients)(**columns))
    with pytest.raises(InputError, match="different orders"):
        change_buckets(odd, fit_network(odd), [1])
    assert costs
