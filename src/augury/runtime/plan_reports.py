"""Reports of the runtime about a plan: refusals and outcomes of trials, in words and as status."""

from __future__ import annotations

import msgspec

from augury.core.plan.plan_board import board
from augury.core.plan.plan_status import PlanStatus, TrainingMode, TrialResult
from augury.runtime.say import say

_MIB = 1 << 20


def why_dropped(verdict: TrialResult) -> str:
    if verdict.winner is TrainingMode.BUCKETS:
        return "the trial in the job chose other bucket sizes of stock DDP, which were faster"
    reason = "it is slower than stock DDP" if verdict.is_decided else "a tie"
    return f"the trial in the job kept stock DDP: {reason}"


def trial_summary(verdict: TrialResult) -> str:
    """One line."""
    stock, *others = verdict.times
    compared = "; ".join(
        f"{one.mode.value} {one.step_ns / 1e6:.4g} ms, {one.gain_pct:+.1f} % "
        f"({one.interval_pct[0]:+.1f} to {one.interval_pct[1]:+.1f})"
        for one in others
    )
    steps = verdict.last_step - verdict.first_step + 1
    kept = {TrainingMode.STOCK: "stock DDP stays", TrainingMode.PLANNED: "the plan is followed"}
    outcome = kept.get(verdict.winner, "stock DDP with the plan's buckets is used")
    if not verdict.is_decided:
        outcome = f"no difference could be trial_summary: {outcome}"
    return f"trial of {steps} steps: stock {stock.step_ns / 1e6:.4g} ms; {compared}. {outcome}"


def refuse_plan(reason: str, *, is_said: bool) -> None:
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
    sizes = ", ".join(f"{size_bytes / _MIB:.3g}" for size_bytes in caps_bytes[:8])
    return f"buckets of {sizes}{', ...' if len(caps_bytes) > 8 else ''} MiB"
