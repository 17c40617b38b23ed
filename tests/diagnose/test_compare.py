"""Two runs held against each other: medians, their range, and whether a promise was kept."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from augury.core.errors import InputError
from augury.core.kinds import OpKind
from augury.core.plan import Foretold, Mode, Order, Piece, Plan, Slice
from augury.core.problem import Gradient, Network, Problem
from augury.core.trace import Trace
from augury.diagnose.compare import compare_runs, measured_run
from augury.ingest.run import open_run
from tests.ingest.written import MS, STEP_NS, Run


def faster(factor: float) -> Any:
    def change(record: dict[str, Any]) -> None:
        first = record["step_end_ns"][0]
        record["step_end_ns"] = [
            first + round((end - first) * factor) for end in record["step_end_ns"]
        ]
        record["windows"] = []
        record["resumed"] = []
        record["step_cpu"] = []

    return change


def run_of(folder: Path, factor: float = 1.0, **options: Any) -> Trace:
    return open_run(Run(folder, change=faster(factor), **options).write())


def plan_of(baseline_ns: int, step_ns: int, *, width: float = 0.01) -> Plan:
    problem = Problem(
        gradients=(Gradient(name="weight", size_bytes=8, release_ns=1, need_ns=0),),
        backward_ns=1,
        forward_ns=1,
        network=Network(ns_per_byte=1.0),
    )
    whole = (Slice(gradient=0, offset_bytes=0, size_bytes=8),)
    return Plan(
        mode=Mode.PIECES,
        num_ranks=2,
        problem=problem,
        order=Order(
            policy="augury",
            pieces=(Piece(op=OpKind.ALL_REDUCE, slices=whole),),
            has_barrier=False,
        ),
        foretold=Foretold(
            baseline_ns=baseline_ns,
            step_ns=step_ns,
            interval_ns=(round(step_ns * (1 - width)), round(step_ns * (1 + width))),
            bound_ns=1,
        ),
    )


def test_the_gain_is_that_of_the_median_step(tmp_path: Path) -> None:
    found = compare_runs(run_of(tmp_path / "before"), run_of(tmp_path / "after", 0.8))
    assert found.before.step_ns == STEP_NS
    assert found.after.step_ns == 80 * MS
    assert found.gain_pct == pytest.approx(20)
    assert found.is_told_apart
    assert found.came_true is None


def test_ranks_may_be_ahead_of_each_other(tmp_path: Path) -> None:
    """By turns: every second step of one is short where the other's is long."""
    before = run_of(tmp_path / "run")
    steps = before.steps
    ahead = 1 - 2 * ((steps.step + steps.rank) % 2)
    found = measured_run(
        replace(before, steps=replace(steps, end_ns=steps.end_ns + ahead * 7 * MS))
    )
    assert found.step_ns == STEP_NS
    assert found.noise == 0


def test_what_only_some_ranks_saw_does_not_count(tmp_path: Path) -> None:
    before = run_of(tmp_path / "run")
    steps = before.steps
    late = (steps.rank == 1) & (steps.step == steps.step.max())
    kept = type(steps)(**{name: own[~late] for name, own in steps.columns()})
    assert measured_run(replace(before, steps=kept)).num_steps == measured_run(before).num_steps - 1
    apart = replace(steps, step=steps.step + 1000 * steps.rank)
    with pytest.raises(InputError, match="on all ranks"):
        measured_run(replace(before, steps=apart))


@pytest.mark.parametrize(
    ("promised", "kept"), [(0.80, True), (0.83, True), (0.70, False), (0.95, False)]
)
def test_whether_a_prediction_came_true(tmp_path: Path, promised: float, kept: bool) -> None:
    """On a machine that is slower today by a third: shares are compared."""
    plan = plan_of(75 * MS, round(75 * MS * promised))
    found = compare_runs(run_of(tmp_path / "a"), run_of(tmp_path / "b", 0.8), plan)
    assert found.came_true is kept
    assert found.predicted_gain_pct == pytest.approx(100 * (1 - promised))
    assert found.predicted_step_ns == pytest.approx(STEP_NS * promised)


def test_a_wide_interval_promises_little_and_keeps_it(tmp_path: Path) -> None:
    plan = plan_of(100 * MS, 70 * MS, width=0.2)
    found = compare_runs(run_of(tmp_path / "a"), run_of(tmp_path / "b", 0.8), plan)
    assert found.came_true


def test_runs_of_different_jobs_are_not_compared(tmp_path: Path) -> None:
    before = run_of(tmp_path / "before")
    only = before.steps.rank == 0
    steps = type(before.steps)(**{name: own[only] for name, own in before.steps.columns()})
    with pytest.raises(InputError, match="2 and 1 ranks"):
        compare_runs(before, replace(before, steps=steps))


def test_no_steps_nothing_to_compare(tmp_path: Path) -> None:
    before = run_of(tmp_path / "before")
    with pytest.raises(InputError, match="no step"):
        measured_run(replace(before, steps=before.steps.empty()))
