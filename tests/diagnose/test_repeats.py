"""Runs that took turns: the gain is the mean of pairs, as uncertain as pairs differ."""

from __future__ import annotations

from pathlib import Path

import pytest

from augury.core.trace.trace import Trace
from augury.diagnose.compare_runs import compare_runs
from augury.diagnose.repeated_runs import compare_repeats
from tests.diagnose.test_compare import plan_of, run_of
from tests.ingest.written import MS


def pairs(folder: Path, *factors: tuple[float, float]) -> list[tuple[Trace, Trace]]:
    return [
        (run_of(folder / f"before-{i}", before), run_of(folder / f"after-{i}", after))
        for i, (before, after) in enumerate(factors)
    ]


def width(interval: tuple[float, float]) -> float:
    return interval[1] - interval[0]


def test_one_pair_is_two_runs(tmp_path: Path) -> None:
    ((before, after),) = pairs(tmp_path, (1.0, 0.9))
    assert compare_repeats([(before, after)]) == compare_runs(before, after)


def test_pairs_that_agree_know_the_gain_better_than_one(tmp_path: Path) -> None:
    """Though the machine is another one each time."""
    found = compare_repeats(pairs(tmp_path, (1.0, 0.9), (1.3, 1.17), (0.8, 0.72), (1.1, 0.99)))
    alone = compare_runs(*pairs(tmp_path / "alone", (1.0, 0.9))[0])
    assert found.num_pairs == 4
    assert found.gain_pct == pytest.approx(10)
    assert found.is_told_apart
    assert width(found.gain_interval_pct) < 0.75 * width(alone.gain_interval_pct)
    # The level of the runs themselves is not known as well.
    assert (found.before.high_ns - found.before.low_ns) / found.before.step_ns > 0.2


def test_pairs_that_disagree_claim_nothing(tmp_path: Path) -> None:
    found = compare_repeats(pairs(tmp_path, (1.0, 0.8), (1.0, 1.1), (1.0, 0.95)))
    assert not found.is_told_apart


def test_a_plan_is_judged_by_the_mean(tmp_path: Path) -> None:
    both = pairs(tmp_path, (1.0, 0.8), (1.2, 0.96))
    found = compare_repeats(both, plan_of(100 * MS, 80_500_000))
    assert found.came_true is True
    assert found.error_pct == pytest.approx(0.625, abs=0.01)
    assert compare_repeats(both, plan_of(100 * MS, 60 * MS)).came_true is False
