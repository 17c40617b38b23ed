"""What the schedule suite makes of measured and foretold policies."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from benchmarks.validate.measured import Measured
from benchmarks.validate.policy_rows import Outcome, outcome_of, rows_of
from benchmarks.validate.policy_settings import ALL, CASES, FEW
from benchmarks.validate.policy_suite import SCHEDULE

MS = 1_000_000


def measured(step_ms: float, noise_pct: float = 0.5) -> Measured:
    return Measured(step_ns=round(step_ms * MS), noise_pct=noise_pct, num_steps=32)


FOUND = Outcome(
    case="case",
    measured={
        "ddp": measured(120),
        "ddp-best": measured(101),
        "ddp-pilot": measured(100),
        "augury": measured(90),
    },
    foretold={
        "ddp": {"step_ns": 118 * MS, "interval_ns": [110 * MS, 125 * MS]},
        "ddp-best": {"step_ns": 100 * MS, "interval_ns": None},
        "augury": {"step_ns": 91 * MS, "interval_ns": [85 * MS, 95 * MS]},
    },
    ratio=1.2,
    baseline_ns=120 * MS,
    bound_ns=84 * MS,
    num_ranks=2,
)


def test_gains_are_over_the_better_of_two_ways_to_find_a_bucket_size() -> None:
    assert FOUND.best_bucket_ns == 100 * MS
    assert FOUND.gain_pct(FOUND.best_bucket_ns) == pytest.approx(10)
    assert FOUND.realised == pytest.approx(10 / 16)


def test_what_is_foretold_are_shares_of_the_recorded_step() -> None:
    """All of the machine is a tenth slower than when it was recorded."""
    slower = {name: measured(1.1 * own.step_ns / MS) for name, own in FOUND.measured.items()}
    found = replace(FOUND, measured=slower)
    for before, now in zip(rows_of(FOUND), rows_of(found), strict=True):
        assert now.error_pct == pytest.approx(before.error_pct, abs=1e-4)
    assert found.realised == pytest.approx(FOUND.realised)


def test_a_bound_that_is_reached_leaves_nothing_to_realise() -> None:
    assert replace(FOUND, bound_ns=100 * MS).realised is None


@pytest.mark.parametrize(("chosen_ms", "picks"), [(90, True), (91.5, True), (95, False)])
def test_who_is_foretold_to_win_wins_or_is_within_noise(chosen_ms: float, picks: bool) -> None:
    others = FOUND.measured | {"augury": measured(chosen_ms), "ddp-best": measured(90)}
    assert replace(FOUND, measured=others).picks_winner is picks


def test_a_row_for_every_policy() -> None:
    rows = rows_of(FOUND)
    assert [row.case for row in rows] == ["case/ddp", "case/ddp-best", "case/augury"]
    assert all(row.kind == "policy" and row.is_within for row in rows)
    assert rows[2].error_pct == pytest.approx(100 / 90)
    assert rows[2].is_covered


def test_what_the_cases_are() -> None:
    nine = [case for case in CASES if case.policies == ALL]
    assert len(ALL) == 9
    assert len(nine) == 6
    assert {case.setting.num_ranks for case in nine} == {2, 4}
    assert sum(set(FEW) <= set(case.policies) for case in CASES) >= 24
    assert len({setting.name for setting in SCHEDULE.settings}) == len(CASES)


def test_reads_what_a_job_left(tmp_path: Path) -> None:
    case = replace(CASES[0], policies=FEW)
    labels = [*FEW, "ddp-pilot"]
    blocks = [
        {"block": f"words:3@{label}", "warm_up": 1, "stamps_ns": [0, 50, 150, 250, 350]}
        for label in [*labels, "pilot-1"] * 2
    ]
    (tmp_path / "times-00000.json").write_text(json.dumps({"blocks": blocks}))
    for policy in FEW:
        step = {"policy": policy, "step_ns": 100, "interval_ns": None}
        answer = {"ratio": 1.5, "baseline_step_ns": 100, "bound_ns": 90, "policies": [step]}
        (tmp_path / f"{policy}.foretold.json").write_text(json.dumps(answer))
    found = outcome_of(case, tmp_path)
    assert set(found.measured) == set(labels)
    assert found.measured["augury"].step_ns == 100
    assert found.foretold["ddp"]["policy"] == "ddp"
