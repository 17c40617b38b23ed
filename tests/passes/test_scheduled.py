"""Recorded runs under any order of pieces: what must hold whatever the order, and that replay and
evaluator, which know nothing of each other, agree on the step."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from augury.build.problem.recorded_problem import recorded_order, recorded_problem
from augury.core.enums import OpKind
from augury.core.errors import InputError
from augury.core.graph.graph import NONE, Graph
from augury.core.graph.graph_spec import verify
from augury.core.ledger import Ledger
from augury.core.plan.plan import Order, Piece, Slice, is_swapped
from augury.core.plan.problem import Problem
from augury.costs.collective_costs import Costs
from augury.costs.p2p_exchange import PeerCosts
from augury.costs.runtime_overhead import RuntimeOverhead
from augury.costs.transfer_times import TransferCost
from augury.replay.run import replay
from augury.schedule.evaluate import step_ns
from augury.schedule.policies.registry import POLICIES
from tests.build import recorded_runs
from tests.build.recorded_runs import MS
from tests.passes.applied import apply_order, change_buckets
from tests.passes.recorded import recorded

SIZES = (4_000_000, 1_000_000, 2_000_000, 3_000_000)
NEEDS = {"parameter3": 0.0, "parameter2": 0.25, "parameter1": 0.5, "parameter0": 0.9}


def case(**options: Any) -> tuple[Graph, Costs, Problem]:
    """Buckets of two sizes, so that the run tells what a small piece costs."""
    options = {"buckets": ((0,), (1, 2, 3)), "sizes": SIZES, "num_steps": 5} | options
    graph, costs = recorded(**options)
    problem = recorded_problem(replay(graph), costs, needs=NEEDS, ledger=Ledger())
    return graph, costs, problem


@st.composite
def orders(draw: st.DrawFn, problem: Problem) -> Order:
    """Gradients cut and merged at random, in a random order, whole or in halves."""
    parts: list[Slice] = []
    for place, gradient in enumerate(problem.gradients):
        items = gradient.size_bytes // gradient.item_bytes
        cuts = sorted({0, items, *draw(st.lists(st.integers(1, items - 1), max_size=2))})
        for begin, end in pairwise(cuts):
            parts.append(
                Slice(
                    gradient=place,
                    offset_bytes=begin * gradient.item_bytes,
                    size_bytes=(end - begin) * gradient.item_bytes,
                )
            )
    parts = draw(st.permutations(parts))
    messages: list[tuple[Slice, ...]] = []
    while parts:
        count = draw(st.integers(1, 3))
        messages.append(tuple(parts[:count]))
        parts = parts[count:]
    marks = st.sampled_from([0, 0, 3 * MS, 9 * MS])
    if draw(st.booleans()):
        pieces = [
            Piece(op=OpKind.ALL_REDUCE, slices=message, not_before_ns=draw(marks))
            for message in messages
        ]
    else:
        pieces = [Piece(op=OpKind.REDUCE_SCATTER, slices=message) for message in messages]
        back = draw(st.permutations(range(len(messages))))
        pieces += [
            Piece(op=OpKind.ALL_GATHER, slices=messages[place], after=place) for place in back
        ]
    return Order(
        policy="random",
        pieces=tuple(pieces),
        has_barrier=draw(st.booleans()),
        window_bytes=draw(st.sampled_from([None, 1, 2_000_000, 5_000_000])),
    )


@settings(max_examples=60)
@given(st.data(), st.integers(1, 3), st.floats(0.5, 6), st.booleans(), st.integers(0, 100_000))
def test_replay_and_evaluator_agree(
    data: st.DataObject, num_ranks: int, ns_per_byte: float, broadcast: bool, unseen: int
) -> None:
    graph, costs, problem = case(
        num_ranks=num_ranks, ns_per_byte=ns_per_byte, broadcast=broadcast, unseen=unseen
    )
    order = data.draw(orders(problem))
    changed = apply_order(graph, costs, problem, order)
    verify(changed)
    assert replay(changed).step_ns == pytest.approx(step_ns(problem, order), rel=0.015)


SWAPS = PeerCosts(
    cost=TransferCost(sizes_bytes=(0,), times_ns=(80_000.0,), ns_per_byte=2.0, residual=0.0),
    latency_ns=200_000,
)


@settings(max_examples=40)
@given(st.data(), st.booleans(), st.integers(0, 100_000))
def test_replay_and_evaluator_agree_where_two_swap(
    data: st.DataObject, broadcast: bool, unseen: int
) -> None:
    graph, costs, _ = case(broadcast=broadcast, unseen=unseen)
    problem = recorded_problem(replay(graph), costs, needs=NEEDS, p2p=SWAPS, ledger=Ledger())
    order = replace(data.draw(orders(problem)), window_bytes=None)
    assume(is_swapped(order, 2))
    changed = apply_order(graph, costs, problem, order, p2p=SWAPS)
    verify(changed)
    assert replay(changed).step_ns == pytest.approx(step_ns(problem, order), rel=0.015)


def test_a_rank_takes_in_what_the_other_sends_before_it_sends_itself() -> None:
    """One whose backward is late delays what it sends, not what it gets."""
    graph, costs, problem = case(vary={(1, step): 1.5 for step in range(5)})
    order = next(policy for policy in POLICIES if policy.name == "prophet").compile(problem)
    changed = apply_order(graph, costs, problem, order, p2p=SWAPS)
    ops, timeline = changed.ops, replay(changed)
    sent = [
        np.flatnonzero((ops.kind == OpKind.ALL_REDUCE) & (ops.rank == rank))[0] for rank in (0, 1)
    ]
    assert timeline.start_ns[sent[0]] < timeline.start_ns[sent[1]]
    assert timeline.end_ns[sent[0]] == timeline.start_ns[sent[0]] + ops.work_ns[sent[0]]
    assert (ops.gang[ops.kind == OpKind.ALL_REDUCE] == NONE).all()


@pytest.mark.parametrize("policy", POLICIES, ids=lambda policy: policy.name)
@pytest.mark.parametrize("num_steps", [1, 2, 6])
def test_every_policy_moves_every_byte(policy: Any, num_steps: int) -> None:
    graph, costs, problem = case(num_steps=num_steps, compute_rate=0.7, transfer_rate=0.8)
    order = policy.compile(problem)
    changed = apply_order(graph, costs, problem, order)
    verify(changed)
    ops = changed.ops
    first = np.isin(ops.kind, (OpKind.ALL_REDUCE, OpKind.REDUCE_SCATTER))
    for rank in (0, 1):
        assert ops.size_bytes[first & (ops.rank == rank)].sum() == num_steps * sum(SIZES)
    timeline = replay(changed)
    busiest_ns = max(
        int(ops.work_ns[ops.resource == resource].sum())
        for resource in range(len(changed.resources))
    )
    assert timeline.step_ns * num_steps >= 0.6 * busiest_ns
    assert replay(changed, engine="reference").step_ns == timeline.step_ns


def test_steps_joined_to_themselves_are_like_those_in_a_row() -> None:
    for name in ("p3", "augury", "dear"):
        policy = next(one for one in POLICIES if one.name == name)
        found = []
        for num_steps in (1, 2, 8):
            graph, costs, problem = case(num_steps=num_steps, ns_per_byte=2.0)
            order = policy.compile(problem)
            found.append(replay(apply_order(graph, costs, problem, order)).step_ns)
        assert found[0] == pytest.approx(found[2], rel=0.01)
        assert found[1] == pytest.approx(found[2], rel=0.01)


@settings(max_examples=25)
@given(
    st.integers(1, 3),
    st.lists(st.integers(0, 60_000), min_size=4, max_size=4),
    st.floats(0.2, 10),
    st.sampled_from([1.0, 0.7]),
    st.booleans(),
)
def test_the_recorded_order_changes_nothing(
    num_ranks: int, copies: list[int], ns_per_byte: float, rate: float, detailed: bool
) -> None:
    graph, costs, problem = case(
        num_ranks=num_ranks,
        copies=copies,
        ns_per_byte=ns_per_byte,
        compute_rate=rate,
        detailed=[2] if detailed else [],
    )
    order = recorded_order(graph, problem)
    again = replay(apply_order(graph, costs, problem, order)).step_ns
    assert again == pytest.approx(replay(graph).step_ns, rel=0.01)
    assert again == pytest.approx(
        replay(change_buckets(graph, costs, [1, 1 << 30])).step_ns, rel=0.01
    )


def test_without_a_barrier_forward_waits_for_its_own_parameters_only() -> None:
    graph, costs, problem = case(ns_per_byte=3.0)
    first_needed = problem.gradients[0]
    assert first_needed.name == "parameter3"
    order = next(one for one in POLICIES if one.name == "p3").compile(problem)
    changed = apply_order(graph, costs, problem, order)
    timeline = replay(changed)
    ops, gradients = changed.ops, changed.gradients
    own = (gradients.step == 11) & (gradients.rank == 0)
    used = {
        changed.strings[int(gradients.name[row])]: int(gradients.used_by[row])
        for row in np.flatnonzero(own).tolist()
    }
    forward = np.flatnonzero((ops.kind == OpKind.FORWARD) & (ops.step == 12) & (ops.rank == 0))
    begins = np.sort(timeline.start_ns[forward])
    updates = {name: int(timeline.end_ns[op]) for name, op in used.items()}
    # The last parameter to be updated is so long after forward began.
    assert begins[0] >= updates["parameter3"]
    assert begins[0] < max(updates.values())
    assert all(ops.step[op] == 12 for op in used.values())


def test_pieces_follow_each_other_strictly() -> None:
    graph, costs, problem = case()
    order = next(one for one in POLICIES if one.name == "p3").compile(problem)
    changed = apply_order(graph, costs, problem, order)
    timeline = replay(changed)
    ops = changed.ops
    own = (ops.kind == OpKind.ALL_REDUCE) & (ops.rank == 0)
    sizes = [piece.size_bytes for piece in order.pieces]
    for step in (11, 12, 13):
        rows = np.flatnonzero(own & (ops.step == step))
        rows = rows[np.argsort(timeline.start_ns[rows], kind="stable")]
        assert ops.size_bytes[rows].tolist() == sizes
        assert (timeline.start_ns[rows][1:] >= timeline.end_ns[rows][:-1]).all()


def test_pieces_at_once_share_the_link() -> None:
    graph, costs, problem = case()
    order = next(one for one in POLICIES if one.name == "fifo").compile(problem)
    alone, shared = (
        replay(apply_order(graph, costs, problem, order, concurrent=number)) for number in (1, 2)
    )
    assert shared.step_ns == pytest.approx(alone.step_ns, rel=0.02)
    ops = shared.graph.ops
    own = np.flatnonzero((ops.kind == OpKind.ALL_REDUCE) & (ops.rank == 0) & (ops.step == 12))
    order_of_start = np.argsort(shared.start_ns[own], kind="stable")
    assert ops.size_bytes[own][order_of_start].tolist() == [p.size_bytes for p in order.pieces]
    begins, ends = shared.start_ns[own][order_of_start], shared.end_ns[own][order_of_start]
    assert (begins[1:] < ends[:-1]).any()
    assert (begins[2:] >= ends[:-2]).all()


def test_small_pieces_wait_for_cores_only_beside_compute() -> None:
    sizes = (1_000_000, 1_000_000, 1_000_000, 7_000_000)
    graph, costs, problem = case(sizes=sizes, buckets=((0, 1, 2, 3),))
    beside = TransferCost(
        sizes_bytes=(2_000_000, 4_000_000), times_ns=(4e6, 0.0), ns_per_byte=0.0, residual=0.0
    )
    large = recorded_order(graph, problem)
    fifo = next(one for one in POLICIES if one.name == "fifo").compile(problem)
    took = {
        (name, slow): replay(
            apply_order(graph, costs, problem, order, during_compute=beside if slow else None)
        ).step_ns
        for name, order in (("large", large), ("fifo", fifo))
        for slow in (False, True)
    }
    assert took["fifo", True] > took["fifo", False] + MS
    # One bucket leaves when compute is over.
    assert took["large", True] == pytest.approx(took["large", False], rel=0.01)


def test_other_collectives_and_memory_stay() -> None:
    graph, costs, problem = case(broadcast=True, micro_batches=2)
    for policy in POLICIES:
        changed = apply_order(graph, costs, problem, policy.compile(problem))
        for kind in (OpKind.BROADCAST, OpKind.FORWARD, OpKind.BACKWARD, OpKind.UNEXPLAINED):
            before, after = (
                int(one.ops.work_ns[one.ops.kind == kind].sum()) for one in (graph, changed)
            )
            assert before == after
        assert len(changed.buffers) == len(graph.buffers)


def test_orders_for_other_gradients_are_refused() -> None:
    graph, costs, problem = case()
    other = Problem(
        gradients=problem.gradients[1:],
        backward_ns=problem.backward_ns,
        forward_ns=problem.forward_ns,
        network=problem.network,
    )
    order = POLICIES[0].compile(other)
    with pytest.raises(InputError, match="other gradients"):
        apply_order(graph, costs, other, order)
    with pytest.raises(InputError, match="invalid order of pieces"):
        apply_order(graph, costs, problem, order)
    bare, whole = graph.evolve(gradients=graph.gradients.empty()), POLICIES[0].compile(problem)
    with pytest.raises(InputError, match="which bucket"):
        apply_order(bare, costs, problem, whole)


@pytest.mark.parametrize("at_once", [1, 2])
@pytest.mark.parametrize("num_ranks", [2, 3])
def test_other_collectives_do_not_queue_among_pieces(
    at_once: int, num_ranks: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """BatchNorm's buffers are broadcast in another process group than the pieces travel in: ranks
    that are not in step would wait for each other in a circle."""
    monkeypatch.setattr(recorded_runs, "AT_ONCE", at_once)
    vary = {(rank, step): 1 + 0.4 * ((rank + step) % 2) for rank in range(3) for step in range(5)}
    graph, costs, problem = case(
        num_ranks=num_ranks, broadcast=True, num_broadcasts=2, ns_per_byte=4.0, vary=vary
    )
    for policy in POLICIES:
        changed = apply_order(
            graph, costs, problem, policy.compile(problem), overhead=RuntimeOverhead()
        )
        assert replay(changed).step_ns > 0
        of_pieces = np.isin(changed.ops.kind, (OpKind.ALL_REDUCE, OpKind.REDUCE_SCATTER))
        of_buffers = changed.ops.kind == OpKind.BROADCAST
        resource = changed.ops.resource
        assert not {*resource[of_pieces].tolist()} & {*resource[of_buffers].tolist()}
