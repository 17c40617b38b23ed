"""More or fewer ranks: every collective has them all, and all tables follow."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from augury.build.recorded.recorded_graph import build_recorded
from augury.build.synthetic.layers import ModelSize, conv_layers
from augury.build.synthetic.training_run import SyntheticJob, synthesize
from augury.core.enums import MemoryKind, OpKind, Role
from augury.core.errors import InputError, UsageError
from augury.core.graph.builder import GraphBuilder
from augury.core.graph.graph import Graph
from augury.core.graph.graph_spec import verify
from augury.core.trace.trace import Events, MemoryUse
from augury.costs.collective_costs import fit_network, link_rate
from augury.costs.transfer_times import TransferCost
from augury.replay.run import replay
from tests.build.recorded_runs import ddp_run
from tests.passes.applied import change_buckets, change_ranks
from tests.passes.recorded import recorded, reduced_ns


def gang_sizes(graph: Graph) -> set[int]:
    return set(np.diff(graph.gang_members.first).tolist())


@settings(max_examples=25)
@given(
    st.integers(2, 4),
    st.integers(1, 9),
    st.integers(1, 4),
    st.booleans(),
    st.sampled_from([1.0, 0.7]),
)
def test_every_collective_has_all_ranks(
    was: int, now: int, num_steps: int, broadcast: bool, rate: float
) -> None:
    vary = {(rank, step): 1 + 0.1 * rank + 0.07 * step for rank in range(4) for step in range(4)}
    graph, costs = recorded(
        num_ranks=was, num_steps=num_steps, broadcast=broadcast, compute_rate=rate, vary=vary
    )
    changed, _ = change_ranks(graph, costs, now)
    verify(changed)
    assert changed.num_ranks == now
    assert gang_sizes(changed) == ({now} if now > 1 else set())
    assert changed.num_ops == graph.num_ops // was * now
    assert len(changed.gradients) == len(graph.gradients) // was * now
    assert len(changed.interference) == len(graph.interference) // was * now
    assert sorted(set(changed.ops.step.tolist())) == sorted(set(graph.ops.step.tolist()))
    timeline = replay(changed)
    assert len(timeline.rank_step_ns) == now
    assert all(step_ns > 0 for step_ns in timeline.rank_step_ns)


@pytest.mark.parametrize("now", [3, 4, 7])
def test_buffers_that_are_broadcast(now: int) -> None:
    """BatchNorm's, of two types. They end at one rank later than at the other, so that the graph
    has delays that are not the thread's: new ranks must not begin a step with them."""
    trace = ddp_run(num_steps=4, broadcast=True, num_broadcasts=2, ns_per_byte=5.0).trace()
    events = trace.events
    is_late = (events.kind == OpKind.BROADCAST) & (events.rank == 1)
    columns = dict(events.columns()) | {"dur_ns": events.dur_ns + np.where(is_late, 50_000, 0)}
    graph = build_recorded(trace.evolve(events=Events(**columns)))
    assert (graph.ops.kind == OpKind.DELAY).any()
    changed, _ = change_ranks(graph, fit_network(graph), now)
    assert replay(changed).step_ns > replay(graph).step_ns


def test_as_many_as_there_are_changes_nothing() -> None:
    graph, costs = recorded()
    assert change_ranks(graph, costs, 2) == (graph, costs)


@pytest.mark.parametrize(("was", "now"), [(2, 4), (4, 2), (2, 3), (3, 8)])
def test_bytes_on_the_wire_follow_a_ring(was: int, now: int) -> None:
    graph, costs = recorded(num_ranks=was, latency_ns=0)
    changed, _ = change_ranks(graph, costs, now)
    volume = ((now - 1) / now) / ((was - 1) / was)
    assert reduced_ns(changed)[0] == pytest.approx(reduced_ns(graph)[0] * volume, rel=1e-3)


def test_one_rank_has_nothing_to_send() -> None:
    graph, costs = recorded(num_ranks=3, ns_per_byte=20.0)
    alone, _ = change_ranks(graph, costs, 1)
    assert (reduced_ns(alone) == 0).all()
    assert replay(alone).step_ns == pytest.approx(17_000_000, rel=0.02)


def test_a_broadcasts_rounds_are_levels_of_a_tree() -> None:
    graph, _ = recorded(broadcast=True)
    flat = TransferCost(
        sizes_bytes=(0, 1 << 20), times_ns=(1e5, 1e5), ns_per_byte=0.0, residual=0.0
    )
    for now, took_ns in ((3, 200_000), (4, 200_000), (8, 300_000)):
        changed, _ = change_ranks(graph, {OpKind.BROADCAST: flat}, now)
        of_broadcasts = changed.ops.work_ns[changed.ops.kind == OpKind.BROADCAST]
        assert set(of_broadcasts.tolist()) == {took_ns}


def test_identical_ranks_only_wait_for_the_longer_collective() -> None:
    graph, costs = recorded(latency_ns=0, ns_per_byte=5.0)
    changed, _ = change_ranks(graph, costs, 4)
    longer = ddp_run(num_ranks=4, latency_ns=0, ns_per_byte=7.5).trace()
    real = replay(build_recorded(longer)).step_ns
    assert replay(changed).step_ns == pytest.approx(real, rel=0.01)


def test_new_ranks_vary_on_their_own() -> None:
    vary = {(rank, step): 1 + 0.05 * step for rank in range(2) for step in range(5)}
    graph, costs = recorded(num_steps=5, vary=vary)
    changed, _ = change_ranks(graph, costs, 4)

    def forward_ns(rank: int, step: int) -> int:
        own = (changed.ops.rank == rank) & (changed.ops.step == step)
        return int(changed.ops.work_ns[own & (changed.ops.kind == OpKind.FORWARD)].sum())

    steps = range(10, 15)
    assert [forward_ns(2, step) for step in steps] != [forward_ns(0, step) for step in steps]
    assert sorted(forward_ns(2, step) for step in steps) == sorted(
        forward_ns(0, step) for step in steps
    )


def test_memory_follows() -> None:
    memory = MemoryUse(
        rank=[0, 0, 1, 1],
        kind=[MemoryKind.PARAMETER, MemoryKind.ACTIVATION] * 2,
        layer=[-1] * 4,
        size_bytes=[1_000, 500, 1_000, 700],
    )
    graph = build_recorded(ddp_run().trace().evolve(memory=memory))
    for now, peaks in ((4, [1_500, 1_700, 1_500, 1_700]), (1, [1_500])):
        changed, _ = change_ranks(graph, fit_network(graph), now)
        assert [peak.size_bytes for peak in replay(changed).peak_memory] == peaks


def test_new_ranks_are_slowed_like_the_others() -> None:
    graph, costs = recorded(compute_rate=0.6, latency_ns=0)
    changed, _ = change_ranks(graph, costs, 4)
    rates = set(changed.interference.rate.tolist())
    assert max(rates) - min(rates) <= 0.01 * max(rates)
    assert max(rates) > graph.interference.rate.max()


@pytest.mark.parametrize("num_steps", [1, 3])
def test_ranks_of_a_steady_state(num_steps: int) -> None:
    """What one window leaves to the next is copied too."""
    layers = conv_layers(ModelSize(num_layers=6))
    graph = synthesize(SyntheticJob(layers=layers, num_steps=num_steps))
    assert graph.num_ranks == 8
    changed, _ = change_ranks(graph, fit_network(graph), 16)
    assert len(changed.carries) == 2 * len(graph.carries)
    assert gang_sizes(changed) == {16}
    ratio = reduced_ns(changed)[0] / reduced_ns(graph)[0]
    assert ratio == pytest.approx(15 / 14, rel=0.05)
    assert replay(graph).step_ns <= replay(changed).step_ns <= 1.1 * replay(graph).step_ns


def test_costs_follow_for_the_changes_after_it() -> None:
    graph, costs = recorded(buckets=((0, 1, 2), (3,)), ns_per_byte=8.0)
    changed, grown = change_ranks(graph, costs, 4)
    assert link_rate(changed, grown) == pytest.approx(link_rate(graph, costs), rel=1e-6)
    rebucketed = change_buckets(changed, grown, [1])
    assert gang_sizes(rebucketed) == {4}
    assert rebucketed.num_gangs == 12


@pytest.mark.parametrize(
    ("graph", "now", "error"),
    [
        (recorded, 0, UsageError),
        (recorded, 1 << 30, UsageError),
        (lambda: recorded(num_ranks=1), 2, InputError),
    ],
)
def test_refusals(graph, now: int, error: type[Exception]) -> None:
    with pytest.raises(error):
        change_ranks(*graph(), now)


def test_servers_and_part_groups_are_refused() -> None:
    builder = GraphBuilder()
    for role in (Role.WORKER, Role.WORKER, Role.SERVER):
        builder.op("work", rank=builder.rank(role=role), work_ns=1)
    with pytest.raises(InputError, match="servers"):
        change_ranks(builder.build(), {}, 4)
    builder = GraphBuilder()
    ranks = [builder.rank() for _ in range(3)]
    gang = builder.gang()
    for rank in ranks:
        builder.op("work", rank=rank, work_ns=1)
    for rank in ranks[:2]:
        builder.op("reduce", kind=OpKind.ALL_REDUCE, rank=rank, work_ns=1, gang=gang)
    with pytest.raises(InputError, match="part of the ranks"):
        change_ranks(builder.build(), {}, 4)
    builder = GraphBuilder()
    sent = builder.op("send", rank=builder.rank(), work_ns=1)
    builder.op("receive", rank=builder.rank(), work_ns=1, after=[sent])
    with pytest.raises(InputError, match="single messages"):
        change_ranks(builder.build(), {}, 1)
