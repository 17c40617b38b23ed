"""Reports of the runtime about a plan: refusals and outcomes of trials, as text and as status."""

from __future__ import annotations

import msgspec

from augury.core.plan.plan_board import board
from augury.core.plan.plan_status import ModeTime, PlanStatus, TrainingMode, TrialResult
from augury.runtime.say import say

MUCH_SLOWER_PCT = -50.0
"""Below this gain, a factor reads better than a percentage."""
MOST_SIZES = 8
_MIB = 1 << 20


def why_dropped(verdict: TrialResult) -> str:
    """Returns why a trial did not choose the plan's own mode."""
    if verdict.winner is TrainingMode.BUCKETS:
        return "the trial in the job chose other bucket sizes of stock DDP, which were faster"
    reason = (
        "the plan is slower than stock DDP"
        if verdict.is_decided
        else "the plan is not measurably faster"
    )
    return f"the trial in the job kept stock DDP: {reason}"


def trial_summary(verdict: TrialResult) -> str:
    """Returns the outcome of a trial as one line."""
    stock, *others = verdict.times
    compared = "; ".join(_compared(one) for one in others)
    steps = verdict.last_step - verdict.first_step + 1
    kept = {TrainingMode.STOCK: "stock DDP stays", TrainingMode.PLANNED: "the plan is followed"}
    outcome = kept.get(verdict.winner, "stock DDP with the plan's buckets is used")
    if not verdict.is_decided:
        outcome = f"no measurable difference, {outcome}"
    return f"trial of {steps} steps: stock {stock.step_ns / 1e6:.4g} ms; {compared}: {outcome}"


def _compared(one: ModeTime) -> str:
    low, high = one.interval_pct
    return (
        f"{one.mode.value} {one.step_ns / 1e6:.4g} ms, {gain_text(one.gain_pct)} "
        f"(90 % interval of the gain {low:+.1f} to {high:+.1f} %)"
    )


def gain_text(gain_pct: float) -> str:
    """Returns a gain over stock DDP in words: "21.5 % faster", "3.0 % slower", "2.4x slower"."""
    if gain_pct >= 0:
        return f"{gain_pct:.1f} % faster"
    if gain_pct > MUCH_SLOWER_PCT:
        return f"{-gain_pct:.1f} % slower"
    return f"{1 - gain_pct / 100:.1f}x slower"


def refuse_plan(reason: str, *, is_said: bool) -> None:
    """Publishes that stock DDP stays, and why."""
    status = board.status or PlanStatus()
    board.status = msgspec.structs.replace(
        status,
        mode=TrainingMode.STOCK,
        is_followed=False,
        from_step=None,
        is_on_trial=False,
        reason=reason,
    )
    board.is_trial_due = False
    if is_said:
        say(f"the plan is not followed: {reason}")


def bucket_sizes(caps_bytes: tuple[int, ...]) -> str:
    sizes = ", ".join(f"{size_bytes / _MIB:.3g}" for size_bytes in caps_bytes[:MOST_SIZES])
    return f"buckets of {sizes}{', ...' if len(caps_bytes) > MOST_SIZES else ''} MiB"
