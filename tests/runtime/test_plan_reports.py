"""Reports about a trial read as plain sentences."""

from __future__ import annotations

import pytest

from augury.core.plan.plan_status import ModeTime, TrainingMode, TrialResult
from augury.runtime.plan_reports import gain_text, trial_summary, why_dropped


@pytest.mark.parametrize(
    ("gain_pct", "text"),
    [(21.5, "21.5 % faster"), (-3.0, "3.0 % slower"), (-137.5, "2.4x slower")],
)
def test_a_gain_is_stated_in_words(gain_pct: float, text: str) -> None:
    assert gain_text(gain_pct) == text


def test_a_trial_without_a_significant_difference_keeps_stock_ddp() -> None:
    times = [
        ModeTime(mode=TrainingMode.STOCK, num_blocks=4, step_ns=112_000_000),
        ModeTime(
            mode=TrainingMode.PLANNED,
            num_blocks=4,
            step_ns=111_000_000,
            gain_pct=0.9,
            interval_pct=(-1.0, 2.8),
        ),
    ]
    verdict = TrialResult(
        first_step=6, last_step=205, is_decided=False, winner=TrainingMode.STOCK, times=times
    )
    assert trial_summary(verdict) == (
        "trial of 200 steps: stock 112 ms; planned 111 ms, 0.9 % faster (90 % interval of the gain "
        "-1.0 to +2.8 %): no measurable difference, stock DDP stays"
    )
    assert why_dropped(verdict).endswith("the plan is not measurably faster")
