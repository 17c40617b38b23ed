"""Predictions agree with a simulation of the same job with the change made."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from augury.build.recorded.recorded_graph import build_recorded
from augury.core.enums import StepState
from augury.core.graph.graph import Graph
from augury.costs.collective_costs import fit_network
from augury.replay.run import replay
from augury.schedule.order_parts import fill_buckets
from tests.build.recorded_runs import ddp_run
from tests.passes.applied import (
    change_bandwidth,
    change_buckets,
    change_latency,
    change_ranks,
    scale_compute,
)

SIZES = (4_000_000, 1_000_000, 2_000_000, 3_000_000)
UNEVEN = ((0, 1, 2), (3,))
"""Two sizes: latency and bandwidth can be told apart."""


def came(**options: Any) -> int:
    return replay(build_recorded(ddp_run(**({"buckets": UNEVEN} | options)).trace())).step_ns


def known(**options: Any) -> Graph:
    """With a detailed step, so that it is known what copies take."""
    return build_recorded(ddp_run(buckets=UNEVEN, num_steps=4, detailed=[3], **options).trace())


jobs = st.fixed_dictionaries(
    {
        "ns_per_byte": st.floats(0.3, 8),
        "latency_ns": st.integers(50_000, 500_000),
        "slower": st.fixed_dictionaries({1: st.floats(0.8, 1.3)}),
    }
)


@settings(max_examples=25)
@given(jobs, st.sampled_from([0.2, 0.5, 2.0]), st.sampled_from([1.0, 0.7]))
def test_another_bandwidth(job: dict[str, Any], factor: float, rate: float) -> None:
    graph = known(compute_rate=rate, **job)
    changed, _ = change_bandwidth(graph, fit_network(graph), factor)
    # The same bytes take the same processor time, within another time.
    sizes = [sum(SIZES[i] for i in own) for own in UNEVEN]
    latency = len(sizes) * job["latency_ns"]
    then, now = (latency + sum(sizes) * job["ns_per_byte"] / f for f in (1, factor))
    left = max(0.1, 1 - (1 - rate) * then / now)
    real = came(**job | {"ns_per_byte": job["ns_per_byte"] / factor}, compute_rate=left)
    assert replay(changed).step_ns == pytest.approx(real, rel=0.015)


@settings(max_examples=15)
@given(jobs, st.floats(0.5, 4))
def test_another_latency(job: dict[str, Any], factor: float) -> None:
    graph = known(**job)
    changed, _ = change_latency(graph, fit_network(graph), factor=factor)
    real = came(**job | {"latency_ns": round(job["latency_ns"] * factor)})
    assert replay(changed).step_ns == pytest.approx(real, rel=0.015)


@settings(max_examples=15)
@given(jobs, st.floats(0.5, 3))
def test_one_slower_host(job: dict[str, Any], factor: float) -> None:
    """Copies out of buckets are compute too: the job has none, and so has the prediction."""
    free = {"copies": (0, 0, 0, 0)}
    changed = scale_compute(known(**job, **free), factor, [0])
    real = came(**job | {"slower": job["slower"] | {0: factor}}, **free)
    assert replay(changed).step_ns == pytest.approx(real, rel=0.015)


@settings(max_examples=15)
@given(jobs, st.integers(3, 6))
def test_more_ranks(job: dict[str, Any], num_ranks: int) -> None:
    graph = known(**job)
    changed, _ = change_ranks(graph, fit_network(graph), num_ranks)
    real = came(
        num_ranks=num_ranks,
        ns_per_byte=job["ns_per_byte"] * 2 * (num_ranks - 1) / num_ranks,
        latency_ns=job["latency_ns"] * (num_ranks - 1),
        slower=dict.fromkeys(range(1, num_ranks, 2), job["slower"][1]),
    )
    assert replay(changed).step_ns == pytest.approx(real, rel=0.02)


@settings(max_examples=25)
@given(
    jobs,
    st.lists(st.integers(1, 6_000_000), min_size=1, max_size=3),
    st.sampled_from([0.5, 2.0]),
    st.sampled_from([2, 4]),
)
def test_all_at_once(job: dict[str, Any], caps: list[int], factor: float, num_ranks: int) -> None:
    graph = known(**job)
    costs = fit_network(graph)
    changed, costs = change_ranks(graph, costs, num_ranks)
    changed = change_buckets(changed, costs, caps)
    changed, costs = change_bandwidth(changed, costs, factor)
    real = came(
        num_ranks=num_ranks,
        buckets=fill_buckets(SIZES, caps),
        ns_per_byte=job["ns_per_byte"] / factor * 2 * (num_ranks - 1) / num_ranks,
        latency_ns=job["latency_ns"] * (num_ranks - 1),
        slower=dict.fromkeys(range(1, num_ranks, 2), job["slower"][1]),
    )
    assert replay(changed).step_ns == pytest.approx(real, rel=0.03)


def test_windows_apart_and_ranks_that_begin_apart() -> None:
    """The graph begins in the middle of the job, and plain steps lie between its windows."""
    run = ddp_run(num_steps=12, slower={1: 1.4}, ns_per_byte=3.0)
    trace = run.trace(states=dict.fromkeys((10, 14, 15), StepState.PLAIN))
    graph = build_recorded(trace)
    assert graph.num_steps == 9
    timed = trace.steps.state == StepState.TIMED
    lasted = (trace.steps.end_ns - trace.steps.start_ns)[timed]
    assert replay(graph).step_ns == pytest.approx(sorted(lasted)[len(lasted) // 2], rel=1e-3)
