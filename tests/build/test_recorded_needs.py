"""Times at which forward needs parameters, taken from detailed steps without the profiler's
overhead."""

from __future__ import annotations

from typing import Any

import pytest

from augury.build.recorded.forward_needs import forward_needs
from augury.core.enums import Phase, StepState, StreamKind
from augury.core.string_table import StringPool
from augury.core.trace.trace import Events, GradientEvents, RankFacts, Steps, Streams, Trace
from tests.build.recorded_runs import ddp_run, rows

NAMES = ("first.weight", "last.weight", "last.inner.bias", "own", "compiled.0.weight")


def trace(
    events: list[tuple[int, int, int, Phase, str]], states: list[StepState], step_ns: int
) -> Trace:
    """``events``: step, start and length within it, phase, layer."""
    pool = StringPool([""])
    table: list[dict[str, Any]] = [
        {
            "kind": 0,
            "rank": 0,
            "stream": 0,
            "name": pool.number("operation"),
            "start_ns": step * step_ns + start_ns,
            "dur_ns": dur_ns,
            "arrival_ns": step * step_ns + start_ns,
            "step": step,
            "phase": phase,
            "layer": pool.number(layer),
            "size_bytes": 0,
            "group": -1,
            "sequence": -1,
            "cause": -1,
            "parent": -1,
        }
        for step, start_ns, dur_ns, phase, layer in events
    ]
    gradients = [
        {
            "rank": 0,
            "order": order,
            "name": pool.number(name),
            "size_bytes": 4,
            "bucket": 0,
            "group": 0,
        }
        for order, name in enumerate(NAMES)
    ]
    steps = [
        {
            "rank": 0,
            "step": step,
            "start_ns": step * step_ns,
            "end_ns": (step + 1) * step_ns,
            "state": state,
            "cpu_ns": -1,
            "delay_ns": -1,
            "helper_cpu_ns": -1,
        }
        for step, state in enumerate(states)
    ]
    return Trace(
        events=rows(Events, table),
        streams=rows(Streams, [{"kind": StreamKind.MAIN_THREAD, "rank": 0, "name": 0}]),
        steps=rows(Steps, steps),
        gradients=rows(GradientEvents, gradients),
        strings=pool.table(),
        ranks=[RankFacts(rank=0, host="host")],
        world_size=1,
    )


def detailed(step: int, *layers: tuple[int, str]) -> list[tuple[int, int, int, Phase, str]]:
    forward = [(step, at_ns, 10, Phase.FORWARD, layer) for at_ns, layer in layers]
    return [*forward, (step, 1_000, 100, Phase.BACKWARD, ""), (step, 1_200, 50, Phase.UPDATE, "")]


SEEN = ((0, "Net"), (200, "first"), (500, "compiled"), (600, "last"), (700, "last.deep"))


def test_modules_begin_where_they_were_first_seen() -> None:
    needs = forward_needs(trace(detailed(0, *SEEN), [StepState.DETAILED], 2_000))
    assert needs == {
        "first.weight": 0.2,
        "last.weight": 0.6,
        # Not called itself: needed with the enclosing module; the outermost is needed at once.
        "last.inner.bias": 0.6,
        "own": 0.0,
        "compiled.0.weight": 0.5,
    }


def test_profiler_overhead_is_subtracted() -> None:
    """Five events cost 100 ns each: plain, forward takes 500 ns."""
    plain = [
        (1, 0, 400, Phase.FORWARD, ""),
        (1, 500, 100, Phase.BACKWARD, ""),
        (1, 700, 50, Phase.UPDATE, ""),
    ]
    states = [StepState.DETAILED, StepState.TIMED]
    needs = forward_needs(trace([*detailed(0, *SEEN), *plain], states, 2_000))
    assert needs["first.weight"] == pytest.approx((200 - 100) / 500)
    assert needs["last.weight"] == pytest.approx((600 - 300) / 500)


def test_a_module_used_twice_is_needed_at_its_first_use() -> None:
    seen = [*SEEN[:2], (300, "last"), *SEEN[2:]]
    needs = forward_needs(trace(detailed(0, *seen), [StepState.DETAILED], 2_000))
    assert needs["last.weight"] == 0.3


def test_all_micro_batches_are_part_of_forward() -> None:
    """Only the gradients of the last backward are sent: earlier micro-batches count as time before
    it."""
    twice = [
        *detailed(0, *SEEN)[:-1],
        (0, 1_100, 10, Phase.FORWARD, "first"),
        (0, 2_000, 100, Phase.BACKWARD, ""),
    ]
    needs = forward_needs(trace(twice, [StepState.DETAILED], 4_000))
    assert needs["first.weight"] == 0.1
    assert needs["last.weight"] == 0.3


def test_without_detailed_steps_no_needs_are_known() -> None:
    assert forward_needs(ddp_run().trace()) == {}
