"""Processor time that communication takes from compute, after changes of links and of buckets."""

from __future__ import annotations

import pytest

from augury.build.recorded.recorded_graph import build_recorded
from augury.core.enums import ResourceKind
from augury.core.graph.graph import RATE_ONE, Graph
from augury.core.trace.trace import Calibration, Trace
from augury.passes.bandwidth import BANDWIDTH, Rate
from augury.passes.buckets import BUCKETS, BucketCaps
from augury.passes.protocol import Scene
from tests.build.recorded_runs import MS, ddp_run
from tests.build.test_recorded_rates import on_hosts, with_steps

NUM_STEPS = 3


def calibrated(rate: float) -> Calibration:
    return Calibration(
        collective="all_reduce",
        group=0,
        size_bytes=4 << 20,
        concurrent=1,
        beside_compute=True,
        durations_ns=[MS],
        compute_rate=rate,
    )


def compute_rates(graph: Graph) -> list[float]:
    rules, kinds = graph.interference, graph.resources.kind
    return [
        rate / RATE_ONE
        for victim, rate in zip(rules.victim.tolist(), rules.rate.tolist(), strict=True)
        if kinds[victim] == ResourceKind.COMPUTE
    ]


def slow_link(used_ns: int) -> Trace:
    """Calibration found 10 % interference; the other threads used ``used_ns`` in each step."""
    trace = ddp_run(ns_per_byte=3.0, latency_ns=0).trace(calibration=[calibrated(0.9)])
    roomy = on_hosts(trace, ["a", "b"], cores=4)
    return with_steps(roomy, helper_cpu_ns=used_ns, cpu_ns=20 * MS, delay_ns=0)


def faster(trace: Trace) -> list[float]:
    scene = Scene.recorded(build_recorded(trace))
    return compute_rates(BANDWIDTH.apply(scene, Rate(factor=4.0)).scene.graph)


def test_a_faster_link_takes_no_more_processor_time_than_was_recorded() -> None:
    """Communication takes 30 ms of each step and 7.5 ms on the faster link."""
    assert compute_rates(build_recorded(slow_link(MS))) == pytest.approx([0.9, 0.9], abs=0.01)
    assert faster(slow_link(9 * MS)) == pytest.approx([0.6, 0.6], abs=0.02)
    assert faster(slow_link(round(1.5 * MS))) == pytest.approx([0.8, 0.8], abs=0.02)


def test_the_limit_does_not_reduce_the_calibrated_interference() -> None:
    assert faster(slow_link(0)) == pytest.approx([0.9, 0.9], abs=0.01)


def test_time_without_a_core_counts_for_communication_as_for_compute() -> None:
    """A main thread that has its core for half of the time waits twice as long."""
    waits = with_steps(slow_link(round(0.75 * MS)), delay_ns=20 * MS)
    assert faster(waits) == pytest.approx(faster(slow_link(round(1.5 * MS))), abs=1e-3)


def test_runs_without_processor_times_have_no_limit() -> None:
    unknown = with_steps(slow_link(MS), helper_cpu_ns=-1)
    assert build_recorded(unknown).communication_cpu_ns == ()
    assert faster(unknown) == pytest.approx([0.6, 0.6], abs=0.02)


def test_slower_links_slow_compute_less() -> None:
    scene = Scene.recorded(build_recorded(slow_link(0)))
    slower = BANDWIDTH.apply(scene, Rate(factor=0.5)).scene.graph
    assert compute_rates(slower) == pytest.approx([0.95, 0.95], abs=0.01)


def test_fewer_collectives_take_less_processor_time() -> None:
    """Small buckets take most of the processor for themselves. In a single one only its bytes
    count, with the share that calibration measured; the recorded ones keep theirs."""
    rows = [calibrated(0.8)]
    run = ddp_run(
        sizes=(40_000,) * 40,
        backward=(MS,) * 40,
        copies=(0,) * 40,
        buckets=tuple((i,) for i in range(40)),
        ns_per_byte=1.0,
        latency_ns=900_000,
        compute_rate=0.4,
    )
    trace = run.trace()
    graph = build_recorded(trace)
    small = compute_rates(graph)
    assert small == pytest.approx([0.4, 0.4], abs=0.02)
    scene = Scene.recorded(graph, [*rows, *alone()])
    large = BUCKETS.apply(scene, BucketCaps((1 << 30,))).scene
    assert min(compute_rates(large.graph)) > 0.6
    again = BUCKETS.apply(scene, BucketCaps((40_000,))).scene
    assert compute_rates(again.graph) == pytest.approx(small, abs=0.02)


def alone() -> list[Calibration]:
    """A collective takes 0.9 ms, and 1 ns per byte."""
    return [
        Calibration(
            collective="all_reduce",
            group=0,
            size_bytes=size,
            concurrent=1,
            beside_compute=False,
            durations_ns=[900_000 + size],
        )
        for size in (4_096, 65_536, 1 << 20, 4 << 20)
    ]
