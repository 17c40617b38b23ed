"""Steps without annotations are found by their periods."""

from __future__ import annotations

import random

import numpy as np
import pytest

from augury.ingest.rank.step_periods import step_periods

LAYER = ["layer_norm", "linear", "softmax", "linear", "gelu"]
STEP = (
    ["zero_grad", "embedding"]
    + LAYER * 6
    + ["cross_entropy"]
    + [f"{name}_backward" for name in reversed(LAYER)] * 6
    + ["embedding_backward", "all_reduce", "all_reduce", "adam"]
)


def found(names: list[str]) -> tuple[list[tuple[int, int]], np.ndarray]:
    start_ns = np.arange(len(names), dtype=np.int64) * 1000
    return step_periods(names, start_ns, start_ns + 900), start_ns


@pytest.mark.parametrize("num_steps", [2, 3, 10])
def test_whole_steps(num_steps: int):
    periods, _ = found(STEP * num_steps)
    assert len(periods) == num_steps
    lengths = {end - begin for begin, end in periods[:-1]}
    assert lengths == {len(STEP) * 1000}


@pytest.mark.parametrize("cut", [1, 10, 40, 60])
def test_the_first_and_the_last_step_may_be_cut(cut: int):
    names = (STEP * 5)[cut:-7]
    periods, _ = found(names)
    assert len(periods) in (3, 4)
    assert {end - begin for begin, end in periods[:3]} == {len(STEP) * 1000}


def test_steps_may_differ_a_little():
    rng = random.Random(1)
    names: list[str] = []
    starts = []
    for step in range(12):
        starts.append(len(names) * 1000)
        own = [name for name in STEP if rng.random() > 0.03]
        own[0] = "zero_grad"
        names += own + (["log", "item"] if step % 5 == 0 else [])
    periods, _ = found(names)
    assert abs(len(periods) - 12) <= 1


def test_names_may_count_steps():
    names = [name if name != "adam" else f"update {step}" for step in range(4) for name in STEP]
    assert len(found(names)[0]) == 4


@pytest.mark.parametrize("names", [[], ["a"], ["a", "b", "c"], [chr(97 + i) for i in range(20)]])
def test_what_does_not_repeat_has_no_periods(names: list[str]):
    assert found(names)[0] == []
