"""Diagnoses of ranks and steps that differ: the findings agree with the waterfall, and each cause
is told from those that look like it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import augury
from tests.diagnose.small_graphs import (
    MODEL,
    diagnosis,
    finding,
    kinds,
    part_names,
    synthetic,
    two_ranks,
)
from tests.ingest.written import MS, STEP_NS, Run


def test_equal_ranks_do_not_wait_for_each_other() -> None:
    found = diagnosis(two_ranks([MODEL] * 5))
    assert part_names(found) == ["exposed communication"]
    assert found.waterfall[-1].step_ns == 1_000_000


def test_long_batches_are_no_pauses() -> None:
    lengths = [(4, 1), (1, 4), (1, 1)] * 6
    steps = [{"forward": [100 * a, 100 * b], "backward": [200 * a, 200 * b]} for a, b in lengths]
    found = diagnosis(two_ranks(steps))
    assert kinds(found) == ["batch-imbalance"]
    assert "pauses" not in part_names(found)
    assert found.bound == "straggler"


def test_slow_ranks_that_are_most_of_the_ranks_are_in_the_waterfall() -> None:
    found = diagnosis(synthetic(ranks=3, straggler=["0:1.5", "2:1.5"]))
    assert found.findings[0].where.ranks == [0, 2]
    slow = next(part for part in found.waterfall if part.name == "slow ranks")
    gain_pct = 100 * slow.removed_ns / found.replayed_step_ns
    assert gain_pct == pytest.approx(found.findings[0].gain_pct, abs=0.1)
    assert found.bound == "straggler"


def test_uneven_batches_are_one_finding() -> None:
    lengths = [(1, 3), (3, 1), (1, 3), (1, 3)]
    steps = [{"forward": [100 * a, 100 * b], "backward": [200 * a, 200 * b]} for a, b in lengths]
    assert kinds(diagnosis(two_ranks(steps))) == ["batch-imbalance"]


def test_input_of_all_ranks_is_found_beside_a_slow_rank() -> None:
    slow = {"data": [300, 300], "forward": [300, 300], "unexplained": [20, 500]}
    found = diagnosis(two_ranks([{**slow, "backward": [600, 600]}] * 5))
    assert kinds(found) == ["straggler-host", "input"]
    assert finding(found, "input").gain_pct == pytest.approx(100 * 300 / 1810, abs=0.5)


@pytest.mark.parametrize("workers", [3, 4])
def test_batches_that_workers_deliver_in_bursts_are_input(workers: int) -> None:
    steps = [{"data": [5 + 3000 * (i % workers == 0)] * 2, **MODEL} for i in range(24)]
    found = diagnosis(two_ranks(steps))
    assert kinds(found) == ["input"]
    mean = 3000 / workers
    assert found.findings[0].gain_pct == pytest.approx(100 * (mean + 5) / (mean + 1015), abs=1)
    assert found.findings[0].predicted_step_ns is None


def test_disturbed_steps_of_one_part_of_the_run_are_no_regular_pauses() -> None:
    steps = [
        {"forward": [300 + 5000 * (i in range(20, 32, 2))] * 2, "backward": [600, 600]}
        for i in range(60)
    ]
    pause = finding(diagnosis(two_ranks(steps)), "pause")
    assert "in 6 of 60 steps" in pause.title
    assert pause.confidence == "low"


@pytest.mark.parametrize("every", [4, 6])
def test_pauses_of_one_rank_that_others_see_a_step_later_are_regular(
    every: int, tmp_path: Path
) -> None:
    """Rank 0 pauses after the last collective of a step; rank 1 waits for it in the next one."""

    def change(record: dict[str, Any]) -> None:
        own = np.full(120, STEP_NS)
        own[29 + record["rank"] :: every] += 200 * MS
        own[: len(record["step_end_ns"])] = STEP_NS
        record["step_end_ns"] = (record["step_end_ns"][0] + np.cumsum(own) - STEP_NS).tolist()

    found = augury.open(Run(tmp_path / "run", change=change).write()).diagnose().result
    pause = finding(found, "pause")
    figures = {one.name: one.value for one in pause.evidence}
    assert figures["steps from pause to pause"] == every
    assert figures["mean pause"] == 200 * MS
    assert pause.confidence == "high"


def test_loads_that_pause_too_rarely_for_the_windows_stay_a_pause() -> None:
    steps = [{"data": [5 + 5000 * (i % 20 == 19)] * 2, **MODEL} for i in range(60)]
    found = diagnosis(two_ranks(steps))
    assert len(found.findings) == 1
    assert found.findings[0].gain_pct == pytest.approx(100 * 250 / 1265, abs=1)
    assert "loader" in found.findings[0].action or found.findings[0].kind == "input"


def test_a_rank_with_smaller_batches_than_all_others_is_found() -> None:
    sizes = [1, 4, 4, 4]
    steps = [
        {"forward": [100 * size + i for size in sizes], "backward": [200 * size for size in sizes]}
        for i in range(6)
    ]
    found = diagnosis(two_ranks(steps))
    assert kinds(found) == ["batch-imbalance"]
    assert found.findings[0].where.ranks == [0]
    assert "smaller" in found.findings[0].title
    assert found.findings[0].gain_pct == pytest.approx(100 * (1200 - 975) / 1310, abs=0.5)


def test_a_rank_that_is_faster_than_all_others_has_no_smaller_batches() -> None:
    builder_steps = [
        {
            "forward": [100, 200, 200, 200],
            "backward": [200, 400, 400, 400],
            "update": [50, 100, 100, 100],
        }
    ] * 6
    assert kinds(diagnosis(two_ranks(builder_steps))) == []


def test_the_gap_of_each_step_is_not_the_mean_with_a_pause() -> None:
    steps = [
        {"forward": [300] * 2, "unexplained": [400 + 20_000 * (i == 3)] * 2, "backward": [600] * 2}
        for i in range(8)
    ]
    gap = finding(diagnosis(two_ranks(steps)), "host-gap")
    assert gap.title.startswith("400 us of each step")


@pytest.mark.parametrize("num_steps", [4, 6])
def test_a_rank_that_is_always_slow_has_no_uneven_batches(num_steps: int) -> None:
    """Its speed and that of the others vary a little from step to step."""
    slow = [1.0, 1.0, 1.4, 1.0]
    noise = [(3, -2, 2, 0), (-3, 1, -2, 2), (1, 3, -1, -2), (-1, -2, 2, 1), (2, 0, -2, 3)]
    steps = []
    for percent in (noise * 2)[:num_steps]:
        factor = [one * (1 + more / 100) for one, more in zip(slow, percent, strict=True)]
        steps.append(
            {
                kind: [round(work * each) for each in factor]
                for kind, work in (("forward", 300), ("backward", 600), ("update", 200))
            }
        )
    found = diagnosis(two_ranks(steps))
    assert kinds(found) == ["straggler-compute"]
    assert found.findings[0].where.ranks == [2]
