"""Phases of events inside ranges that contain several phases."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from augury.core.enums import Phase
from augury.core.ledger import Ledger
from augury.ingest.formats.kineto import read_kineto
from augury.ingest.rank.phases_and_layers import phases

from .written import write_trace_file

FORWARD, BACKWARD, UPDATE, NONE = Phase.FORWARD, Phase.BACKWARD, Phase.UPDATE, Phase.NONE
STEP = "Optimizer.step#Adam.step"
ZERO = "Optimizer.zero_grad#Adam.zero_grad"
NODE = "AddmmBackward0"
GRADIENT = "torch::autograd::AccumulateGrad"
MODEL = "DistributedDataParallel.forward"

Event = tuple[str, int, int]
"""Name, start and end in microseconds. Names in lower case with ``::`` are operators."""


def phases_of(folder: Path, *events: Event, **sequence: int) -> list[tuple[str, Phase]]:
    def written(name: str, start: int, end: int) -> dict[str, Any]:
        is_op = "::" in name or name == NODE
        args = {"Sequence number": sequence[name]} if name in sequence else {}
        return {
            **{"ph": "X", "cat": "cpu_op" if is_op else "user_annotation", "name": name},
            **{"pid": 1, "tid": 1, "ts": start, "dur": end - start, "args": args},
        }

    path = folder / "trace.json.gz"
    write_trace_file(path, [written(*event) for event in events])
    trace = read_kineto(path, Ledger())
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
