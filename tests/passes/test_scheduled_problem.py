"""The problem that a run poses: exact where the run was made up and all its times are known."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from augury.build.problem.layer_problem import layer_problem
from augury.build.problem.recorded_problem import recorded_order, recorded_problem
from augury.build.synthetic.job import PARAMETER_SERVER
from augury.build.synthetic.layers import ModelSize
from augury.build.synthetic.training_run import SyntheticJob, synthesize
from augury.core.cluster.cluster import Cluster, Link
from augury.core.enums import OpKind
from augury.core.errors import InputError
from augury.core.ledger import Ledger
from augury.core.plan.problem import Problem, Scheme
from augury.core.trace.trace import Calibration
from augury.costs.collective_costs import fit_network
from augury.costs.link_fit import fit_link
from augury.costs.p2p_exchange import fit_p2p
from augury.costs.piece_costs import ASSUMED_OVERHEAD_NS, extra_during_compute, piece_costs
from augury.costs.transfer_times import TransferCost, fit_transfers
from augury.replay.run import replay
from augury.schedule.evaluate import step_ns
from augury.schedule.policies.ddp import order_of_buckets
from tests.build.recorded_runs import MS
from tests.passes.applied import change_bandwidth
from tests.passes.recorded import recorded

NEEDS = {"parameter3": 0.0, "parameter2": 0.25, "parameter1": 0.5, "parameter0": 0.9}


def problem_of(needs: dict[str, float] | None = None, **options: Any) -> tuple[Problem, Ledger]:
    graph, costs = recorded(**options)
    ledger = Ledger()
    told = NEEDS if needs is None else needs
    return recorded_problem(replay(graph), costs, needs=told, ledger=ledger), ledger


def test_what_was_recorded_is_what_is_asked() -> None:
    problem, ledger = problem_of(
        num_steps=5, buckets=((0,), (1, 2, 3)), ns_per_byte=2.0, detailed=[4]
    )
    assert [gradient.name for gradient in problem.gradients] == list(NEEDS)
    assert [gradient.size_bytes for gradient in problem.gradients] == [
        3_000_000,
        2_000_000,
        1_000_000,
        4_000_000,
    ]
    releases = [gradient.release_ns for gradient in problem.gradients]
    assert releases == pytest.approx([11 * MS, 9 * MS, 5 * MS, 3 * MS], abs=4)
    assert problem.backward_ns == pytest.approx(11 * MS, abs=4)
    assert problem.forward_ns == 5 * MS
    assert [gradient.need_ns for gradient in problem.gradients] == [
        0,
        1_250_000,
        2_500_000,
        4_500_000,
    ]
    # The optimizer's 1 ms, and the copies' 0.1.
    assert sum(gradient.update_ns for gradient in problem.gradients) == pytest.approx(
        1_100_000, abs=4
    )
    assert problem.network.ns_per_byte == pytest.approx(2.0, rel=0.01)
    assert problem.network.overhead_ns == pytest.approx(100_000, rel=0.05)
    assert len(ledger) == 0


def test_unrecorded_modules_are_needed_in_reverse_order() -> None:
    problem, ledger = problem_of({})
    assert [gradient.name for gradient in problem.gradients] == [
        "parameter3",
        "parameter2",
        "parameter1",
        "parameter0",
    ]
    assert problem.gradients[0].need_ns == 0
    assert ledger["needs-guessed"].count == 4


def test_steps_that_vary_have_a_spread() -> None:
    problem, _ = problem_of(
        num_steps=6, vary={(rank, step): 1 + 0.05 * step for rank in (0, 1) for step in range(6)}
    )
    assert problem.gradients[0].spread_ns > 0.5 * MS
    assert problem.gradients[0].spread_ns > problem.gradients[-1].spread_ns


@settings(max_examples=20)
@given(st.floats(0.5, 6), st.integers(0, 100_000))
def test_the_recorded_order_evaluates_to_the_recorded_step(ns_per_byte: float, unseen: int) -> None:
    graph, costs = recorded(
        num_steps=4, buckets=((0,), (1, 2, 3)), ns_per_byte=ns_per_byte, unseen=unseen
    )
    timeline = replay(graph)
    problem = recorded_problem(timeline, costs, needs=NEEDS, ledger=Ledger())
    order = recorded_order(graph, problem)
    assert [piece.size_bytes for piece in order.pieces] == [4_000_000, 6_000_000]
    assert step_ns(problem, order) == pytest.approx(timeline.step_ns, rel=0.02)


def test_backward_is_what_it_is_with_communication_beside_it() -> None:
    """At seven tenths of its speed, as long as there is anything to send."""
    for ns_per_byte, backward_ns in ((10.0, 11 / 0.7 * MS), (0.5, (11 + 0.3 * 5) * MS)):
        problem, _ = problem_of(
            num_steps=5, buckets=((0,), (1, 2, 3)), ns_per_byte=ns_per_byte, compute_rate=0.7
        )
        assert problem.backward_ns == pytest.approx(backward_ns, rel=0.01)
        assert problem.gradients[0].release_ns == problem.backward_ns
        assert problem.gradients[-1].release_ns == pytest.approx(backward_ns * 3 / 11, rel=0.01)
        assert problem.forward_ns == pytest.approx(5 * MS, rel=0.01)


def test_ranks_whose_gradients_differ_are_refused() -> None:
    graph, costs = recorded()
    sizes = graph.gradients.size_bytes.copy()
    sizes[0] += 1
    columns = dict(graph.gradients.columns()) | {"size_bytes": sizes}
    odd = graph.evolve(gradients=type(graph.gradients)(**columns))
    with pytest.raises(InputError, match="differ in their gradients"):
        recorded_problem(replay(odd), costs, needs=NEEDS, ledger=Ledger())


def test_gradients_of_several_backwards_are_refused() -> None:
    graph, costs = recorded()
    kind = graph.ops.kind.copy()
    made_by = graph.gradients.made_by
    kind[made_by[1]] = OpKind.FORWARD  # a second model's forward, after the first one's gradient
    columns = dict(graph.ops.columns()) | {"kind": kind}
    odd = graph.evolve(ops=type(graph.ops)(**columns))
    with pytest.raises(InputError, match="in several backwards"):
        recorded_problem(replay(odd), costs, needs=NEEDS, ledger=Ledger())


def row(
    size_bytes: int, ns: int, *, during_compute: bool = False, concurrent: int = 1
) -> Calibration:
    return Calibration(
        collective="all_reduce",
        group=0,
        size_bytes=size_bytes,
        concurrent=concurrent,
        beside_compute=during_compute,
        durations_ns=[ns],
    )


def test_small_pieces_hide_behind_each_other_and_a_burst_does_not_come_again() -> None:
    # Of 2 ms, or 10 ns a byte; the smaller of the large ones were let through at once.
    cost = TransferCost(
        sizes_bytes=(0, 1 << 16, 1 << 20, 1 << 24),
        times_ns=(2e6, 2.4e6, 8e6, 10 * float(1 << 24)),
        ns_per_byte=10.0,
        residual=0.0,
    )
    found = piece_costs({OpKind.ALL_REDUCE: cost}, [row(1, 1)], Ledger(), at_once=2)[
        OpKind.ALL_REDUCE
    ]
    assert found.times_ns[0] == pytest.approx(2e6 * 2 / 3)
    assert found.times_ns[1] == pytest.approx(1.6e6)
    assert found.times_ns[2] == pytest.approx(10 * (1 << 20))
    assert found.times_ns[3] == cost.times_ns[3]
    one_by_one = piece_costs({OpKind.ALL_REDUCE: cost}, [row(1, 1)], Ledger())[OpKind.ALL_REDUCE]
    assert one_by_one.times_ns[:2] == cost.times_ns[:2]


def messages(
    size_bytes: int, ns: int, *, at_once: int = 1, rate: float | None = None
) -> Calibration:
    return Calibration(
        collective="send",
        group=0,
        size_bytes=size_bytes,
        concurrent=at_once,
        beside_compute=rate is not None,
        durations_ns=[ns, ns, ns],
        compute_rate=rate,
    )


def test_messages_between_two_ranks_are_what_they_were_seen_to_be() -> None:
    """8 ns a byte, 0.3 ms each besides, 0.7 ms on their way."""
    mib = 1 << 20
    alone = {size: 8 * size + 1_000_000 for size in (mib, 4 * mib)}
    calibration = [
        *(messages(size, ns) for size, ns in alone.items()),
        messages(mib, alone[mib] + 7 * (8 * mib + 300_000), at_once=8),
        messages(4 * mib, alone[4 * mib], rate=0.8),
    ]
    graph, _ = recorded()
    costs = fit_network(graph, calibration)
    found = fit_p2p(costs, calibration)
    assert found is not None
    assert found.network.ns_per_byte == pytest.approx(8)
    assert found.network.overhead_ns == pytest.approx(300_000)
    assert found.network.latency_ns == pytest.approx(700_000)
    assert found.compute_rate == pytest.approx(0.8)
    _, slower = change_bandwidth(graph, costs, 0.5)
    changed = fit_p2p(slower, calibration)
    assert changed is not None
    assert changed.network.ns_per_byte == pytest.approx(16)
    assert changed.network.overhead_ns == pytest.approx(300_000)
    # The same work is spread over twice the time, but for what is not the wire's.
    assert changed.compute_rate == pytest.approx(0.9, abs=0.005)


def test_unmeasured_messages_move_the_bytes_of_an_all_reduce() -> None:
    graph, _ = recorded(ns_per_byte=2.0)
    costs = fit_network(graph, [])
    found = fit_p2p(costs, [])
    assert found is not None
    assert found.network.ns_per_byte == costs[OpKind.ALL_REDUCE].ns_per_byte
    assert found.compute_rate is None
    assert fit_p2p({}, []) is None


def test_an_unmeasured_overhead_is_assumed_and_noted() -> None:
    cost = fit_transfers([(10_000_000, 1e8)])
    assert cost is not None
    ledger = Ledger()
    found = piece_costs({OpKind.ALL_REDUCE: cost}, [], ledger)[OpKind.ALL_REDUCE]
    assert found.time_ns(0) == ASSUMED_OVERHEAD_NS
    assert found.time_ns(10_000_000) == 1e8
    assert "overhead-assumed" in ledger


def test_what_pieces_take_more_beside_compute() -> None:
    graph, costs = recorded(buckets=((0,), (1, 2, 3)))
    known = costs[OpKind.ALL_REDUCE]
    assert extra_during_compute(graph, costs, []) is None
    calibration = [
        row(1 << 20, round(known.time_ns(1 << 20)) + 3 * MS, during_compute=True),
        row(4 << 20, round(known.time_ns(4 << 20)) + MS, during_compute=True),
        row(16 << 20, round(known.time_ns(16 << 20)), during_compute=True),
    ]
    extra = extra_during_compute(graph, costs, calibration)
    assert extra is not None
    assert extra.time_ns(1 << 18) == pytest.approx(3 * MS, abs=2)
    assert extra.time_ns(4 << 20) == pytest.approx(MS, abs=2)
    assert extra.time_ns(64 << 20) == pytest.approx(0, abs=2)
    alone = fit_link(known, total_bytes=10_000_000)
    beside = fit_link(known, total_bytes=10_000_000, during_compute=extra, compute_ns=100 * MS)
    assert beside.overhead_ns > alone.overhead_ns + MS


@settings(max_examples=30)
@given(st.integers(0, 3 * MS), st.floats(0.1, 100))
def test_lines_are_found_again(overhead_ns: int, ns_per_byte: float) -> None:
    samples = [(size, overhead_ns + ns_per_byte * size) for size in (1 << 12, 1 << 20, 1 << 24)]
    cost = fit_transfers([], samples)
    assert cost is not None
    network = fit_link(cost, total_bytes=100_000_000)
    assert network.ns_per_byte == pytest.approx(ns_per_byte, rel=1e-3)
    assert network.overhead_ns == pytest.approx(overhead_ns, rel=0.01, abs=2_000)


@pytest.mark.parametrize("time_ns", [100_000, 3_141_592, 7_777_777])
def test_pieces_that_take_equally_long_have_no_rate(time_ns: int) -> None:
    cost = fit_transfers([], [(size, time_ns) for size in (1 << 12, 1 << 20, 1 << 24)])
    assert cost is not None
    network = fit_link(cost, total_bytes=3_450_000)
    assert network.ns_per_byte == 0
    assert network.overhead_ns == pytest.approx(time_ns)


LINK = Link(latency_ns=20_000, bandwidth_bytes_per_s=1_000_000_000, overhead_ns=5_000)
CLUSTER = Cluster.of_hosts(num_hosts=2, ranks_per_host=1, intra=LINK, inter=LINK)


@pytest.mark.parametrize("micro_batches", [1, 2])
def test_layers_of_made_up_runs(micro_batches: int) -> None:
    job = SyntheticJob(cluster=CLUSTER, num_steps=2, num_micro_batches=micro_batches)
    graph = synthesize(job)
    problem = layer_problem(graph)
    assert [gradient.name for gradient in problem.gradients] == [one.name for one in job.layers]
    assert [gradient.size_bytes for gradient in problem.gradients] == [
        one.parameter_bytes for one in job.layers
    ]
    size = ModelSize()
    passes = size.forward_ns + size.backward_ns
    assert problem.forward_ns + problem.backward_ns == passes
    assert problem.backward_ns == pytest.approx(size.backward_ns // micro_batches, abs=100)
    assert problem.gradients[0].release_ns == problem.backward_ns
    order = order_of_buckets("as synthesized", problem, (job.bucket_bytes,))
    assert step_ns(problem, order) == pytest.approx(replay(graph).step_ns, rel=0.02)


def test_parameter_servers() -> None:
    job = SyntheticJob(
        cluster=CLUSTER, algorithm=PARAMETER_SERVER, num_servers=1, has_barrier=False, num_steps=2
    )
    network = layer_problem(synthesize(job)).network
    assert network.scheme is Scheme.PARAMETER_SERVER
    # Two workers share the one server's link.
    assert network.ns_per_byte == pytest.approx(2.0, rel=0.01)
    assert network.latency_ns == LINK.latency_ns
    assert network.server_ns_per_byte == pytest.approx(0.4, rel=0.01)


def test_graphs_that_do_not_tell() -> None:
    with pytest.raises(InputError, match="as a whole"):
        layer_problem(synthesize(SyntheticJob(cluster=CLUSTER, algorithm="ring")))
    graph, _ = recorded()
    with pytest.raises(InputError, match="parameters of its layers"):
        layer_problem(graph)
    pipeline = SyntheticJob(cluster=CLUSTER, num_stages=2, num_micro_batches=2)
    with pytest.raises(InputError, match=r"no rank runs every layer|as a whole"):
        layer_problem(synthesize(pipeline))
