"""Phases of events inside ranges that contain several phases."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from augury.core.enums import Phase
from augury.core.ledger import Ledger
from augury.ingest.formats.kineto import KinetoTrace, read_kineto
from augury.ingest.rank.phases_and_layers import phases
from augury.ingest.rank.training_in_forward import end_forward_at_backward

from .written import write_trace_file

FORWARD, BACKWARD, UPDATE, NONE = Phase.FORWARD, Phase.BACKWARD, Phase.UPDATE, Phase.NONE
STEP = "Optimizer.step#Adam.step"
ZERO = "Optimizer.zero_grad#Adam.zero_grad"
NODE = "AddmmBackward0"
GRADIENT = "torch::autograd::AccumulateGrad"
MODEL = "DistributedDataParallel.forward"

Event = tuple[str, int, int]
"""Name, start and end in microseconds. Names in lower case with ``::`` are operators."""


def written_trace(folder: Path, *events: Event, **sequence: int) -> KinetoTrace:
    def written(name: str, start: int, end: int) -> dict[str, Any]:
        is_op = "::" in name or name == NODE
        args = {"Sequence number": sequence[name]} if name in sequence else {}
        return {
            **{"ph": "X", "cat": "cpu_op" if is_op else "user_annotation", "name": name},
            **{"pid": 1, "tid": 1, "ts": start, "dur": end - start, "args": args},
        }

    path = folder / "trace.json.gz"
    write_trace_file(path, [written(*event) for event in events])
    return read_kineto(path, Ledger())


def phases_of(folder: Path, *events: Event, **sequence: int) -> list[tuple[str, Phase]]:
    trace = written_trace(folder, *events, **sequence)
    return [*zip(trace.name, map(Phase, phases(trace).tolist()), strict=True)]


def test_a_recorded_closure_separates_training_from_the_update(tmp_path: Path) -> None:
    assert phases_of(
        tmp_path,
        (STEP, 0, 100),
        ("augury.closure", 5, 80),
        (ZERO, 6, 7),
        (MODEL, 10, 30),
        ("aten::loss", 31, 35),
        (NODE, 40, 50),
        (GRADIENT, 51, 55),
        ("aten::norm", 70, 75),
        ("aten::addcdiv_", 85, 95),
    ) == [
        (STEP, UPDATE),
        ("augury.closure", NONE),
        (ZERO, UPDATE),
        (MODEL, FORWARD),
        ("aten::loss", FORWARD),
        (NODE, BACKWARD),
        (GRADIENT, BACKWARD),
        ("aten::norm", BACKWARD),
        ("aten::addcdiv_", UPDATE),
    ]


def test_an_unrecorded_closure_is_known_by_its_insides(tmp_path: Path) -> None:
    found = phases_of(
        tmp_path,
        (STEP, 0, 100),
        ("aten::copy_", 1, 2),
        ("aten::linear", 10, 30),
        ("aten::loss", 31, 35),
        (NODE, 40, 50),
        ("aten::addcdiv_", 85, 95),
        **{"aten::linear": 3},
    )
    assert [phase for _, phase in found] == [UPDATE, UPDATE, FORWARD, FORWARD, BACKWARD, UPDATE]


def test_an_update_without_a_closure_is_one_of_update(tmp_path: Path) -> None:
    found = phases_of(tmp_path, (STEP, 0, 9), ("profiled part", 1, 8), ("aten::add_", 2, 3))
    assert {phase for _, phase in found} == {UPDATE}


def test_a_range_of_the_program_around_a_step_states_no_phase(tmp_path: Path) -> None:
    found = phases_of(
        tmp_path,
        ("train step", 0, 100),
        ("inner range", 1, 60),
        (MODEL, 10, 30),
        ("aten::loss", 31, 35),
        (NODE, 40, 50),
        (STEP, 70, 90),
        ("aten::add_", 75, 80),
    )
    assert [phase for _, phase in found] == [
        *(NONE, NONE, FORWARD, FORWARD, BACKWARD, UPDATE, UPDATE)
    ]


def test_a_range_of_the_program_around_a_closure_states_no_phase(tmp_path: Path) -> None:
    found = phases_of(
        tmp_path,
        ("train step", 0, 100),
        (STEP, 10, 90),
        ("augury.closure", 15, 80),
        (MODEL, 20, 30),
        (NODE, 40, 50),
        ("aten::print", 95, 96),
    )
    assert [phase for _, phase in found] == [NONE, UPDATE, NONE, FORWARD, BACKWARD, NONE]


def test_recomputation_within_ranges_is_backward(tmp_path: Path) -> None:
    found = phases_of(
        tmp_path, (NODE, 0, 100), ("recompute", 5, 90), ("augury.module: a", 10, 80), (NODE, 85, 88)
    )
    assert {phase for _, phase in found} == {BACKWARD}


@pytest.mark.parametrize("outer", [MODEL, "validation"])
def test_evaluation_is_no_part_of_training(tmp_path: Path, outer: str) -> None:
    found = phases_of(
        tmp_path,
        (outer, 0, 10),
        ("augury.evaluation: net", 1, 9),
        ("aten::linear", 2, 8),
        (MODEL, 20, 30),
        (NODE, 40, 50),
    )
    assert [phase for _, phase in found] == [NONE, NONE, NONE, FORWARD, BACKWARD]


def ends_of_forward(folder: Path, *events: Event) -> list[int]:
    trace = end_forward_at_backward(written_trace(folder, *events))
    ends_us = (trace.start_ns + trace.dur_ns - trace.start_ns[0]) // 1000
    return [
        end
        for name, end in zip(trace.name, ends_us.tolist(), strict=True)
        if name == MODEL or name.startswith("augury.module")
    ]


def test_a_forward_that_contains_a_whole_step_ends_where_backward_begins(tmp_path: Path) -> None:
    step: list[Event] = [
        (MODEL, 0, 100),
        ("augury.module: net", 1, 90),
        (NODE, 30, 40),
        (GRADIENT, 41, 45),
        (STEP, 60, 70),
    ]
    assert ends_of_forward(tmp_path, *step) == [30, 30]
    trace = end_forward_at_backward(written_trace(tmp_path, *step))
    assert [Phase(phase) for phase in phases(trace).tolist()] == [
        *(FORWARD, FORWARD, BACKWARD, BACKWARD, UPDATE)
    ]
    assert trace.parent.tolist() == [-1, 0, -1, -1, -1]


def test_micro_batches_each_within_their_forward_end_it(tmp_path: Path) -> None:
    micro: list[Event] = [(MODEL, 0, 20), (NODE, 8, 9), (GRADIENT, 10, 11)]
    last: list[Event] = [(MODEL, 30, 90), (NODE, 40, 50), (GRADIENT, 51, 55), (STEP, 60, 70)]
    assert ends_of_forward(tmp_path, *micro, *last) == [8, 40]
    # The range of a step that the window cut is missing, and its gradients are in no forward.
    cut: list[Event] = [("aten::linear", 91, 95), (NODE, 96, 97), (GRADIENT, 98, 99)]
    assert ends_of_forward(tmp_path, *micro, *last, *cut) == [8, 40]


def test_a_forward_that_is_differentiated_afterwards_stays(tmp_path: Path) -> None:
    assert ends_of_forward(
        tmp_path,
        (MODEL, 0, 20),
        (NODE, 8, 9),
        (GRADIENT, 10, 11),
        (NODE, 30, 40),
        (GRADIENT, 41, 45),
        (STEP, 60, 70),
    ) == [20]
    usual: list[Event] = [(MODEL, 0, 20), (NODE, 30, 40), (GRADIENT, 41, 45), (STEP, 60, 70)]
    assert ends_of_forward(tmp_path, *usual) == [20]
