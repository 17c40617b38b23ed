"""Facts of a training: shares of forward, cores, and habits of the program."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from augury.build.recorded.forward_shares import forward_shares
from augury.build.recorded.training_facts import training_facts, uses_autocast
from augury.core.enums import Phase, StepState, StreamKind
from augury.core.graph.graph import NONE
from augury.core.string_table import StringPool
from augury.core.trace.trace import (
    Events,
    GradientEvents,
    RankFacts,
    Steps,
    Streams,
    Trace,
)
from augury.core.vocabulary.torch import MODULE_RANGE
from augury.predict.opened_run import open_source
from tests.build.recorded_runs import rows

GOLDEN = Path(__file__).parents[1] / "golden" / "runs"
STEP_NS = 100_000
Row = tuple[str, int, int, Phase, int, str]
"""Name, start, length, phase, row of the enclosing event, layer."""


def trace(detailed: list[Row], timed_ns: int = 0, **facts: Any) -> Trace:
    """One detailed step, then one timed step with a forward of ``timed_ns``."""
    pool = StringPool([""])
    events: list[Row] = [*detailed]
    if timed_ns:
        events.append(("forward", STEP_NS, timed_ns, Phase.FORWARD, NONE, ""))
    table = [
        {
            **dict.fromkeys(("kind", "rank", "stream", "size_bytes"), 0),
            **dict.fromkeys(("group", "sequence", "cause"), NONE),
            "name": pool.number(name),
            "start_ns": start_ns,
            "dur_ns": dur_ns,
            "arrival_ns": start_ns,
            "step": start_ns // STEP_NS,
            "phase": phase,
            "layer": pool.number(layer),
            "parent": parent,
        }
        for name, start_ns, dur_ns, phase, parent, layer in events
    ]
    steps = [
        {
            **dict.fromkeys(("rank",), 0),
            **dict.fromkeys(("delay_ns", "helper_cpu_ns"), NONE),
            "cpu_ns": 70_000,
            "step": step,
            "start_ns": step * STEP_NS,
            "end_ns": (step + 1) * STEP_NS,
            "state": state,
        }
        for step, state in enumerate((StepState.DETAILED, StepState.TIMED))
    ]
    gradients = [
        {
            **dict.fromkeys(("rank", "order", "bucket", "group"), 0),
            "name": pool.number("a.weight"),
            "size_bytes": 4,
        }
    ]
    stream = {"kind": StreamKind.MAIN_THREAD, "rank": 0, "name": pool.number("main")}
    return Trace(
        events=rows(Events, table),
        streams=rows(Streams, [stream]),
        steps=rows(Steps, steps),
        gradients=rows(GradientEvents, gradients),
        strings=pool.table(),
        ranks=[RankFacts(rank=0, host="h", **facts)],
        world_size=1,
    )


def module(path: str, start_ns: int, dur_ns: int, parent: int) -> Row:
    return MODULE_RANGE + path, start_ns, dur_ns, Phase.FORWARD, parent, path


def test_a_module_has_the_time_that_modules_inside_of_it_have_not() -> None:
    found = forward_shares(
        trace(
            [
                ("forward", 0, 10_000, Phase.FORWARD, NONE, ""),
                module("Net", 1_000, 8_000, 0),
                module("a", 1_000, 5_000, 1),
                module("a.b", 2_000, 1_000, 2),
            ],
            timed_ns=10_000,
        )
    )
    assert found == pytest.approx({"Net": 0.3, "a": 0.4, "a.b": 0.1})


def test_time_of_the_profiler_is_taken_out_by_event() -> None:
    """Each of six events costs 1 us; without them, both modules take as long."""
    found = forward_shares(
        trace(
            [
                ("forward", 0, 26_000, Phase.FORWARD, NONE, ""),
                module("a", 0, 11_000, 0),
                module("b", 11_000, 14_000, 0),
                *[("op", 12_000, 10, Phase.FORWARD, 2, "b") for _ in range(3)],
            ],
            timed_ns=20_000,
        )
    )
    assert found["a"] == pytest.approx(found["b"])
    assert sum(found.values()) == pytest.approx(1)


def test_without_detailed_steps_no_shares_are_known() -> None:
    assert forward_shares(trace([], timed_ns=1_000)) == {}


def test_cores_are_shared_by_the_ranks_of_a_host_and_limited_by_control_groups() -> None:
    own = training_facts(trace([], cores=8, num_threads=3, modules={"Net": "Net"}))
    assert own.cores_per_rank == (8,)
    assert own.num_threads == (3,)
    assert own.main_cpu_ns == (70_000,)
    assert own.module_classes == {"Net": "Net"}
    assert training_facts(trace([], cores=8, cpu_limit=1.5)).cores_per_rank == (1.5,)
    two = open_source(GOLDEN / "buckets-2").training
    assert two.cores_per_rank == (1.0, 1.0)
    assert two.module_classes["0"] == "Linear"
    assert not two.uses_autocast


@pytest.mark.parametrize(("layer", "expected"), [("a", True), ("", False), ("loss", False)])
def test_casts_in_modules_with_parameters_show_autocast(layer: str, expected: bool) -> None:
    cast = ("ToCopyBackward0", 100, 10, Phase.BACKWARD, NONE, layer)
    assert uses_autocast(trace([cast])) is expected
