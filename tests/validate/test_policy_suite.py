"""Rows and checks of the schedule suite from measured and predicted policies."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from benchmarks.validate.checks import Check
from benchmarks.validate.gates import Gates, broken
from benchmarks.validate.measured import Measured
from benchmarks.validate.policy_job import labels_of
from benchmarks.validate.policy_rows import Outcome, outcome_of, rows_of
from benchmarks.validate.policy_settings import ALL, CASES, FEW
from benchmarks.validate.policy_suite import SCHEDULE, over_all
from benchmarks.validate.rows import Row, summarize

from augury.core.plan.plan import CommunicationSection, Mode, communication_plan
from augury.core.plan.plan_file import save_plan
from augury.core.plan.problem import Gradient, Network, Problem
from augury.schedule.policies.registry import find_policy

MS = 1_000_000


def measured(step_ms: float, noise_pct: float = 0.5) -> Measured:
    return Measured(step_ns=round(step_ms * MS), noise_pct=noise_pct, num_steps=32)


def predicted(step_ms: float, *, is_stock_ddp: bool = False) -> dict[str, Any]:
    interval = [round(0.95 * step_ms * MS), round(1.05 * step_ms * MS)]
    return {"step_ns": step_ms * MS, "interval_ns": interval, "is_stock_ddp": is_stock_ddp}


FOUND = Outcome(
    case="case",
    measured={
        "ddp": measured(120),
        "ddp-best": measured(101),
        "ddp-pilot": measured(100),
        "augury": measured(90),
    },
    labels={name: name for name in FEW},
    predicted={
        "ddp": predicted(118, is_stock_ddp=True),
        "ddp-best": predicted(100, is_stock_ddp=True),
        "augury": predicted(91),
    },
    ratio=1.2,
    bound_ns=84 * MS,
    num_ranks=2,
)


def test_gains_are_over_the_better_of_two_ways_to_find_a_bucket_size() -> None:
    assert FOUND.best_bucket.step_ns == 100 * MS
    assert FOUND.gain_pct(FOUND.best_bucket) == pytest.approx(10)


def test_predictions_are_compared_as_they_were_made() -> None:
    """A machine that got a tenth slower after recording is an error of a tenth."""
    slower = {name: measured(1.1 * own.step_ns / MS) for name, own in FOUND.measured.items()}
    before, now = rows_of(FOUND), rows_of(replace(FOUND, measured=slower))
    assert [row.predicted_ns for row in now] == [118 * MS, 100 * MS, 91 * MS]
    for one, other in zip(before, now, strict=True):
        assert 1 + (other.error_pct or 0) / 100 == pytest.approx(
            (1 + (one.error_pct or 0) / 100) / 1.1
        )


def test_stock_ddp_does_not_count_as_a_predicted_policy() -> None:
    rows = rows_of(FOUND)
    assert [(row.case, row.kind) for row in rows] == [
        ("case/ddp", "stock"),
        ("case/ddp-best", "policy"),
        ("case/augury", "policy"),
    ]
    assert summarize(rows)["policy"]["cases"] == 2


def test_policies_with_the_same_buckets_count_once() -> None:
    same = replace(FOUND, labels={"ddp": "ddp", "ddp-best": "ddp-best", "augury": "ddp-best"})
    assert [row.case for row in rows_of(same)] == ["case/ddp", "case/ddp-best"]
    assert same.gain_pct(same.of("ddp")) == pytest.approx(100 * (1 - 101 / 120))
    as_stock = replace(FOUND, labels={"ddp": "ddp", "ddp-best": "ddp", "augury": "augury"})
    assert [row.case for row in rows_of(as_stock)] == ["case/ddp", "case/augury"]


def test_stock_ddp_has_its_own_row_whatever_is_named_first() -> None:
    """Nothing that is measured as stock DDP takes its place."""
    predicted = {"fifo": FOUND.predicted["augury"], **FOUND.predicted}
    found = replace(FOUND, predicted=predicted, labels=FOUND.labels | {"fifo": "ddp"})
    (stock,) = [row for row in rows_of(found) if row.kind == "stock"]
    assert (stock.case, stock.predicted_ns) == ("case/ddp", 118 * MS)


def test_same_buckets_have_one_label(tmp_path: Path) -> None:
    problem = Problem(
        gradients=tuple(
            Gradient(name=str(i), size_bytes=4_000_000, release_ns=(4 - i) * MS, need_ns=i * MS)
            for i in range(4)
        ),
        backward_ns=4 * MS,
        forward_ns=4 * MS,
        network=Network(ns_per_byte=1.0, overhead_ns=100_000),
    )

    def plan(label: str, policy: str, mode: Mode) -> Path:
        order = find_policy(policy).compile(problem)
        caps = tuple(piece.size_bytes for piece in order.pieces) if mode is Mode.DDP_BUCKETS else ()
        path = tmp_path / f"{label}.plan.json"
        save_plan(
            communication_plan(
                CommunicationSection(
                    mode=mode, problem=problem, order=order, bucket_caps_bytes=caps
                ),
                num_ranks=2,
            ),
            path,
        )
        return path

    paths = {
        "ddp": plan("ddp", "ddp", Mode.DDP_BUCKETS),
        "fifo": plan("fifo", "fifo", Mode.DDP_BUCKETS),
        "ddp-best": plan("ddp-best", "ddp", Mode.DDP_BUCKETS),
        "augury": plan("augury", "fifo", Mode.PIECES),
        "dear": tmp_path / "none.json",
    }
    assert labels_of(paths) == {
        "ddp": "ddp",
        "fifo": "fifo",
        "ddp-best": "ddp",
        "augury": "augury",
        "dear": "ddp",
    }


@pytest.mark.parametrize(("chosen_ms", "picks"), [(90, True), (91.5, True), (95, False)])
def test_the_predicted_winner_wins_or_is_within_noise(chosen_ms: float, picks: bool) -> None:
    others = FOUND.measured | {"augury": measured(chosen_ms), "ddp-best": measured(90)}
    assert replace(FOUND, measured=others).picks_winner is picks


def test_a_bucket_size_found_by_trying_can_win() -> None:
    tried = FOUND.measured | {"ddp-pilot": measured(80)}
    assert not replace(FOUND, measured=tried).picks_winner


def test_noise_of_other_policies_does_not_excuse() -> None:
    noisy = FOUND.measured | {"augury": measured(130, 1.0), "ddp-best": measured(101, 20.0)}
    found = replace(FOUND, measured=noisy)
    assert found.slower_than_stock_pct == pytest.approx(100 * (130 / 120 - 1) - 1.5)
    assert not found.picks_winner


@pytest.mark.parametrize(
    ("winner", "slower_pct"), [("stock", 0.0), ("planned", 100 / 12 - 1), ("buckets", 5 - 1)]
)
def test_the_mode_that_the_trial_chose_is_compared_with_stock_ddp(
    winner: str, slower_pct: float
) -> None:
    assert FOUND.trial_slower_pct is None
    slow = FOUND.measured | {"augury": measured(130), "trial-buckets": measured(126)}
    found = replace(FOUND, measured=slow, trial={"winner": winner})
    assert found.trial_slower_pct == pytest.approx(slower_pct)


def test_a_measured_step_below_the_bound_is_counted() -> None:
    assert not FOUND.is_below_bound
    low = replace(FOUND, bound_ns=95 * MS)
    assert low.is_below_bound
    checks = {check.case: check for check in over_all([FOUND, low])}
    assert checks["measured-below-bound"].value == 50
    assert checks["measured-below-bound"].holds is False


def _row(error_pct: float, noise_pct: float) -> Row:
    return Row(
        suite="schedule",
        case="case/augury",
        kind="policy",
        measured_ns=1000,
        predicted_ns=round(1000 + 10 * error_pct),
        interval_ns=None,
        noise_pct=noise_pct,
    )


def test_noisy_rows_are_undecided() -> None:
    rows = [_row(1, 0.5)] * 8 + [_row(30, 6)] * 2
    found = summarize(rows)
    assert (found["policy"]["decided"], found["policy"]["decided_within"]) == (8, 8)
    assert broken(rows, [], found, Gates()) == []
    rows += [_row(1, 6)]
    (said,) = broken(rows, [], summarize(rows), Gates())
    assert "undecided" in said


def test_a_cost_below_its_noise_is_undecided() -> None:
    def check(value: float, noise: float) -> Check:
        return Check(
            suite="torch", case="c", kind="cost", value=value, unit="%", at_most=1.0, noise=noise
        )

    assert check(0.5, 0.8).holds is True
    assert check(1.2, 0.8).holds is False
    assert check(1.2, 2.0).holds is None
    assert check(0.5, 2.0).holds is None
    assert check(-1.5, 2.0).holds is True
    assert check(3.5, 2.0).holds is False
    undecided = check(1.2, 2.0)
    assert broken([], [undecided], {}, Gates()) == []
    assert undecided.as_json()["holds"] is None


def test_the_number_of_cases_is_as_documented() -> None:
    nine = [case for case in CASES if case.policies == ALL]
    assert len(ALL) == 9
    assert len(nine) >= 5
    assert {case.setting.num_ranks for case in CASES} == {2, 3, 4}
    assert {case.setting.model for case in CASES} == {"last", "first", "conv", "transformer"}
    assert len({setting.name for setting in SCHEDULE.settings}) == len(CASES)


def test_results_of_a_job_are_read(tmp_path: Path) -> None:
    case = replace(CASES[0], policies=FEW)
    labels = [*FEW, "ddp-pilot"]
    blocks = [
        {"block": f"words:3@{label}", "warm_up": 1, "stamps_ns": [0, 50, 150, 250, 350]}
        for label in [*labels, "pilot-1", "trial"] * 2
    ]
    (tmp_path / "times-00000.json").write_text(json.dumps({"blocks": blocks}))
    (tmp_path / "layouts.json").write_text(json.dumps({name: name for name in FEW}))
    (tmp_path / "trial.json").write_text(json.dumps({"winner": "stock"}))
    for policy in FEW:
        step = {"policy": policy, "step_ns": 100, "interval_ns": None}
        answer = {"ratio": 1.5, "bound_ns": 90, "policies": [step]}
        (tmp_path / f"{policy}.predicted.json").write_text(json.dumps(answer))
    found = outcome_of(case, tmp_path)
    assert set(found.measured) == set(labels)
    assert found.of("augury").step_ns == 100
    assert found.predicted["ddp"]["policy"] == "ddp"
    assert found.trial_slower_pct == 0
