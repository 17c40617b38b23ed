"""The modes that a trial compares: stock, the whole plan, and the plan without one of its parts."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace

from augury.core.plan.plan import Plan, PlanSection
from augury.core.plan.plan_status import ModeTime, TrainingMode, TrialResult, mode_of

SWITCHED = (
    PlanSection.FUSION,
    PlanSection.RECOMPUTE,
    PlanSection.PRECISION,
    PlanSection.COMPRESSION,
    PlanSection.THREADS,
)
"""Sections, besides communication, that can be switched on and off between steps."""
PARTS_PER_TRIAL = 2
"""Parts of a plan that one trial leaves out, each in a mode of its own."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StepMode:
    """How a step trains: the exchange of its gradients, and the sections that are on."""

    exchange: TrainingMode = TrainingMode.STOCK
    sections: tuple[PlanSection, ...] = ()


STOCK = StepMode()


def whole_mode(plan: Plan, agreed: Collection[PlanSection]) -> StepMode:
    """Returns the mode with all agreed sections of the plan that can be switched."""
    has_exchange = PlanSection.COMMUNICATION in agreed
    return StepMode(
        exchange=mode_of(plan) if has_exchange else TrainingMode.STOCK,
        sections=tuple(one for one in plan.applied if one in agreed and one in SWITCHED),
    )


def parts_of(whole: StepMode) -> list[PlanSection]:
    """Returns the parts of a mode that can be left out, if it has several."""
    has_exchange = whole.exchange is not TrainingMode.STOCK
    parts = [*([PlanSection.COMMUNICATION] if has_exchange else []), *whole.sections]
    return parts if len(parts) > 1 else []


def left_out_first(plan: Plan, whole: StepMode) -> list[PlanSection]:
    """Returns the parts of the mode, those with the smallest predicted share of the gain first."""
    known = plan.prediction.without_ns if plan.prediction is not None else {}
    return sorted(parts_of(whole), key=lambda part: known.get(part, 0))


def without(whole: StepMode, part: PlanSection) -> StepMode:
    if part is PlanSection.COMMUNICATION:
        return replace(whole, exchange=TrainingMode.STOCK)
    return replace(whole, sections=tuple(one for one in whole.sections if one is not part))


def mode_of_time(time: ModeTime) -> StepMode:
    return StepMode(exchange=time.mode, sections=tuple(time.sections))


def winner_of(verdict: TrialResult) -> StepMode:
    return StepMode(exchange=verdict.winner, sections=tuple(verdict.sections))


def mode_names(modes: Sequence[StepMode], whole: StepMode) -> list[str]:
    """Returns the names of the modes of a trial: those of the exchange where the plan has no other
    section, otherwise ``plan`` and ``without`` its missing parts. ``whole``: with all parts."""
    if not whole.sections:
        return [mode.exchange.value for mode in modes]
    names = []
    for mode in modes:
        there = {
            *mode.sections,
            *([PlanSection.COMMUNICATION] if mode.exchange != STOCK.exchange else []),
        }
        missing = [part.value for part in parts_of(whole) if part not in there]
        name = f"without {' and '.join(missing)}" if missing else "plan"
        names.append(mode.exchange.value if mode == STOCK else name)
    return names
