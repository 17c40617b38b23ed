"""Reports of the runtime about a plan: refusals and outcomes of trials, as text and as status."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping

import msgspec

from augury.core.plan.plan import FREES_MEMORY, Plan, PlanSection
from augury.core.plan.plan_board import board
from augury.core.plan.plan_status import (
    ModeTime,
    PlanStatus,
    SectionStatus,
    TrainingMode,
    TrialResult,
)
from augury.core.units import format_bytes
from augury.runtime.say import say
from augury.runtime.trial_modes import SWITCHED, StepMode, mode_names, mode_of_time, winner_of

MUCH_SLOWER_PCT = -50.0
"""Below this gain, a factor reads better than a percentage."""
MOST_SIZES = 8
_MIB = 1 << 20


def why_no_trial(plan: Plan, refused: Collection[PlanSection]) -> str | None:
    """Returns why the plan is followed without a trial; None: a trial judges its time, also where
    all of its sections that free memory are refused."""
    freeing = {one for one in FREES_MEMORY if one in plan.sections}
    is_useless = bool(freeing) and freeing <= {*refused}
    if plan.memory_limit_bytes is None or is_useless:
        return None
    return f"it was made for a memory limit of {format_bytes(plan.memory_limit_bytes)}"


def why_dropped(verdict: TrialResult) -> str:
    """Returns why a trial did not choose the plan's own mode."""
    if verdict.winner is TrainingMode.BUCKETS:
        return (
            "the trial in the job chose other bucket sizes of stock DDP: of the modes that are"
            " certainly faster than it, these are the fastest"
        )
    reason = (
        "the plan is slower than stock DDP"
        if verdict.is_decided
        else "the plan is not measurably faster"
    )
    return f"the trial in the job kept stock DDP: {reason}"


def trial_summary(verdict: TrialResult, whole: StepMode | None = None) -> str:
    """Returns the outcome of a trial as one line; ``whole``: the mode with all parts of the plan,
    by default the second one of the trial."""
    stock, *others = verdict.times
    modes = [mode_of_time(one) for one in verdict.times]
    names = mode_names(modes, whole or modes[min(1, len(modes) - 1)])
    compared = "; ".join(_compared(*pair) for pair in zip(names[1:], others, strict=True))
    steps = verdict.last_step - verdict.first_step + 1
    outcome = _outcome(names[modes.index(winner_of(verdict))])
    if not verdict.is_decided:
        outcome = f"no measurable difference, {outcome}"
    return f"trial of {steps} steps: stock {stock.step_ns / 1e6:.4g} ms; {compared}: {outcome}"


def _outcome(winner: str) -> str:
    """Returns the outcome, in words, of a trial that the mode of this name has won."""
    if winner == TrainingMode.BUCKETS:
        return "stock DDP with the plan's buckets is used"
    if winner == TrainingMode.STOCK:
        return "stock DDP stays"
    left_out = f" {winner}" if winner.startswith("without ") else ""
    return f"the plan is followed{left_out}"


def _compared(name: str, one: ModeTime) -> str:
    low, high = one.interval_pct
    return (
        f"{name} {one.step_ns / 1e6:.4g} ms, {gain_text(one.gain_pct)} "
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
        sections=[_not_applied(one, reason) for one in status.sections],
    )
    board.is_trial_due = False
    if is_said:
        say(f"the plan is not followed: {reason}")


def _not_applied(one: SectionStatus, reason: str) -> SectionStatus:
    return msgspec.structs.replace(one, is_applied=False, reason=one.reason or reason)


def section_statuses(
    plan: Plan | None,
    mode: StepMode,
    refused: Mapping[PlanSection, str],
    *,
    otherwise: str | None,
) -> list[SectionStatus]:
    """Returns the status of every section of a plan while a mode is in force; ``otherwise``: why
    sections that could be applied are not."""
    found = []
    for section in plan.applied if plan is not None else ():
        is_on = section in mode.sections
        if section is PlanSection.COMMUNICATION:
            is_on = mode.exchange is not TrainingMode.STOCK
        elif section not in SWITCHED:
            is_on = True
        reason = refused.get(section) or (None if is_on else otherwise)
        is_applied = is_on and section not in refused
        found.append(SectionStatus(section=section, is_applied=is_applied, reason=reason))
    return found


def note_applied(section: PlanSection) -> None:
    """Publishes that a section of the plan is applied."""
    _note(SectionStatus(section=section, is_applied=True))


def note_refusal(section: PlanSection, reason: str, *, is_said: bool) -> None:
    """Publishes that a section of the plan is not applied, and why."""
    _note(SectionStatus(section=section, is_applied=False, reason=reason))
    status = board.status
    if status is not None and status.is_followed:
        is_left = any(one.is_applied for one in status.sections)
        kept = {} if is_left else {"is_followed": False, "from_step": None, "reason": reason}
        board.status = msgspec.structs.replace(status, **kept)
    if is_said:
        say_refusal(section, reason)


def say_refusal(section: PlanSection, reason: str, *, rank: int | None = None) -> None:
    say(f"section {section} of the plan is not applied: {reason}", rank=rank)


def _note(new: SectionStatus) -> None:
    status = board.status or PlanStatus()
    others = [one for one in status.sections if one.section is not new.section]
    board.status = msgspec.structs.replace(status, sections=[*others, new])


def section_words(plan: Plan, refused: Collection[PlanSection]) -> Iterator[str]:
    """Yields what each section besides communication does, in a few words."""
    for section in plan.applied:
        if section not in refused and section is not PlanSection.COMMUNICATION:
            content = getattr(plan, section.value)
            if hasattr(content, "modules"):
                detail = f"{len(content.modules)} modules"
            else:
                detail = ", ".join(
                    f"{name} {getattr(content, name)}" for name in type(content).__slots__
                )
            yield f"{section} ({detail})"


def bucket_sizes(caps_bytes: tuple[int, ...]) -> str:
    sizes = ", ".join(f"{size_bytes / _MIB:.3g}" for size_bytes in caps_bytes[:MOST_SIZES])
    return f"buckets of {sizes}{', ...' if len(caps_bytes) > MOST_SIZES else ''} MiB"
