"""The trial of a plan: alternating blocks, and a verdict that noise does not decide."""

from __future__ import annotations

from random import Random

import pytest

from augury.core.plan.plan_status import TrainingMode, TrialResult
from augury.runtime.trial import Trial, TrialRules
from augury.runtime.trial_modes import StepMode, winner_of

STOCK, PLANNED, BUCKETS = (
    StepMode(exchange=one)
    for one in (TrainingMode.STOCK, TrainingMode.PLANNED, TrainingMode.BUCKETS)
)
RULES = TrialRules()
MS = 1_000_000


def _run(
    times_ms: dict[StepMode, float],
    *,
    noise: float = 0.02,
    drift: float = 0.0,
    seed: int = 0,
    pause_every: int = 0,
) -> TrialResult:
    """A job whose steps take that long, with noise, a drift per step, and long pauses."""
    random = Random(seed)
    trial = Trial([*times_ms], 1, RULES)
    now_ns = 0.0
    for step in range(1, 400):
        took_ms = times_ms[trial.mode_of(step)] * (1 + drift * step) * random.gauss(1, noise)
        if pause_every and step % pause_every == 0:
            took_ms *= 20
        now_ns += took_ms * MS
        trial.note_end(step, round(now_ns))
        verdict = trial.verdict(step)
        if verdict is not None:
            return verdict
    raise AssertionError("no verdict")


def test_blocks_alternate_back_and_forth() -> None:
    trial = Trial([STOCK, PLANNED, BUCKETS], 1, TrialRules(warm_up_steps=2, block_steps=2))
    modes = [trial.mode_of(step) for step in range(1, 15)]
    assert modes[:2] == [STOCK] * 2
    there = [STOCK] * 2 + [PLANNED] * 2 + [BUCKETS] * 2
    assert modes[2:] == there + there[::-1]


def test_stock_ddp_runs_after_the_last_round() -> None:
    trial = Trial([STOCK, PLANNED], 1, RULES)
    assert {trial.mode_of(step) for step in range(206, 250)} == {STOCK}


@pytest.mark.parametrize("seed", range(5))
def test_a_faster_plan_wins(seed: int) -> None:
    verdict = _run({STOCK: 100, PLANNED: 85, BUCKETS: 95}, seed=seed)
    assert verdict.is_decided
    assert winner_of(verdict) == PLANNED
    planned = verdict.times[1]
    assert planned.gain_pct == pytest.approx(15, abs=3)
    assert planned.interval_pct[0] < 15 < planned.interval_pct[1] + 3
    assert verdict.last_step - verdict.first_step + 1 == 120


@pytest.mark.parametrize("seed", range(5))
def test_a_slower_plan_loses(seed: int) -> None:
    verdict = _run({STOCK: 100, PLANNED: 119}, seed=seed)
    assert verdict.is_decided
    assert winner_of(verdict) == STOCK


def test_the_better_of_two_wins() -> None:
    assert _run({STOCK: 100, PLANNED: 96, BUCKETS: 80}).winner is TrainingMode.BUCKETS


def test_a_tie_keeps_stock_most_of_the_time() -> None:
    """Few of the trials pick a mode that is no faster: intervals of 90 %, checked up to seven
    times."""
    verdicts = [_run({STOCK: 100, PLANNED: 100}, seed=seed) for seed in range(100)]
    assert sum(winner_of(one) == STOCK for one in verdicts) >= 75
    assert max(one.last_step - one.first_step + 1 for one in verdicts) == 200


def test_drift_does_not_decide_a_trial() -> None:
    """A machine that becomes slower by half over the trial."""
    verdicts = [_run({STOCK: 100, PLANNED: 100}, drift=0.0025, seed=seed) for seed in range(40)]
    assert sum(winner_of(one) == STOCK for one in verdicts) >= 28
    assert _run({STOCK: 100, PLANNED: 88}, drift=0.0025).winner is TrainingMode.PLANNED


def test_pauses_of_the_program_do_not_decide_a_trial() -> None:
    """Evaluation or a checkpoint at regular intervals."""
    verdict = _run({STOCK: 100, PLANNED: 90}, pause_every=25)
    assert winner_of(verdict) == PLANNED
    assert verdict.times[0].step_ns == pytest.approx(100 * MS, rel=0.03)
