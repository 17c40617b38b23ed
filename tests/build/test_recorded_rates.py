"""Interference between compute and communication, as estimated from a run."""

from __future__ import annotations

import numpy as np
import pytest

from augury.build.recorded.interference import SLOWEST_RATE
from augury.build.recorded.recorded_graph import build_recorded
from augury.core.enums import OpKind, ResourceKind
from augury.core.graph.graph import RATE_ONE, Graph
from augury.core.trace.trace import Calibration, RankFacts, Trace
from augury.replay.run import replay
from tests.build.recorded_runs import MS, ddp_run


def rates(graph: Graph) -> dict[int, float]:
    """Rate of each rank's compute while it communicates; 1 is not slowed."""
    rules, resources = graph.interference, graph.resources
    found = {int(rank): 1.0 for rank in range(graph.num_ranks)}
    for victim, rate in zip(rules.victim.tolist(), rules.rate.tolist(), strict=True):
        if resources.kind[victim] == ResourceKind.COMPUTE:
            found[int(resources.rank[victim])] = rate / RATE_ONE
    return found


def with_steps(trace: Trace, **columns: int) -> Trace:
    steps = dict(trace.steps.columns())
    for name, value in columns.items():
        steps[name] = np.full(len(trace.steps), value)
    return trace.evolve(steps=type(trace.steps)(**steps))


def on_hosts(trace: Trace, hosts: list[str], cores: int) -> Trace:
    facts = [RankFacts(rank=i, host=host, cores=cores) for i, host in enumerate(hosts)]
    return trace.evolve(ranks=facts)


def test_known_rates_come_back() -> None:
    for rate in (1.0, 0.9, 0.6):
        found = rates(build_recorded(ddp_run(compute_rate=rate, ns_per_byte=3.0).trace()))
        assert found == pytest.approx({0: rate, 1: rate}, abs=0.01)


def test_a_spare_core_prevents_interference() -> None:
    """The other threads of both ranks take 40 % of a core: two cores each, one each,
    one for both."""
    trace = with_steps(ddp_run(compute_rate=0.6, ns_per_byte=3.0).trace(), delay_ns=-1)
    assert rates(build_recorded(on_hosts(trace, ["a", "b"], 2))) == {0: 1.0, 1: 1.0}
    shared = rates(build_recorded(on_hosts(trace, ["a", "a"], 2)))
    assert shared == pytest.approx({0: 0.6, 1: 0.6}, abs=0.01)
    assert rates(build_recorded(on_hosts(trace, ["a", "b"], 0))) == {0: 1.0, 1: 1.0}


def test_slowdown_is_bounded_by_the_time_without_a_core() -> None:
    trace = ddp_run(compute_rate=0.6, ns_per_byte=3.0).trace()
    assert rates(build_recorded(with_steps(trace, delay_ns=0))) == {0: 1.0, 1: 1.0}


def test_without_delay_counters_no_interference_is_assumed() -> None:
    trace = ddp_run(compute_rate=0.6).trace(delays=False)
    assert rates(build_recorded(trace)) == {0: 1.0, 1: 1.0}


def test_implausible_rates_are_clamped() -> None:
    trace = with_steps(ddp_run().trace(), helper_cpu_ns=10**12, delay_ns=10**12)
    assert set(rates(build_recorded(trace)).values()) == {SLOWEST_RATE}


def test_calibration_gives_the_rates() -> None:
    rows = [
        Calibration(
            collective="all_reduce",
            group=0,
            size_bytes=size,
            concurrent=1,
            beside_compute=True,
            durations_ns=[MS],
            compute_rate=rate,
        )
        for size, rate in ((4_096, 0.99), (4 << 20, 0.7), (16 << 20, 0.72))
    ]
    graph = build_recorded(ddp_run().trace(calibration=rows))
    assert rates(graph) == pytest.approx({0: 0.71, 1: 0.71}, abs=0.001)


def test_a_bucket_moves_until_its_last_member_has_it() -> None:
    """On a link that is slow in one direction, the other rank has its sums earlier."""
    trace = ddp_run(ns_per_byte=3.0, copies=(0, 0, 0, 0)).trace()
    early = (trace.events.kind == OpKind.ALL_REDUCE) & (trace.events.rank == 1)
    columns = dict(trace.events.columns())
    columns["dur_ns"] = columns["dur_ns"] - np.where(early, columns["dur_ns"] // 4, 0)
    uneven = trace.evolve(events=type(trace.events)(**columns))
    before, after = (transferred_ns(build_recorded(own)) for own in (trace, uneven))
    assert after == pytest.approx(before, rel=1e-3)


def transferred_ns(graph: Graph) -> int:
    return int(graph.ops.work_ns[graph.ops.kind == OpKind.ALL_REDUCE].sum())


def test_a_late_end_event_does_not_delay_the_thread() -> None:
    """A thread loses its core between the end of a transfer and its time stamp."""
    trace = ddp_run(ns_per_byte=3.0, copies=(0, 0, 0, 0)).trace()
    late = (trace.events.kind == OpKind.ALL_REDUCE) & (trace.events.rank == 1)
    columns = dict(trace.events.columns())
    columns["dur_ns"] = columns["dur_ns"] + np.where(late, 300_000, 0)
    bent = trace.evolve(events=type(trace.events)(**columns))
    before, after = (replay(build_recorded(own)).step_ns for own in (trace, bent))
    assert after == pytest.approx(before, rel=1e-3)
