"""Reasons why sections of a plan cannot be applied to a training, each found before it starts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from augury.core.errors import InputError
from augury.core.plan.plan import CommunicationSection, Mode, Plan, PlanSection
from augury.runtime.torch.program.compatibility import (
    why_no_communication,
    why_no_exchange,
    why_no_model,
    why_not,
)
from augury.runtime.torch.program.ddp_buckets import why_no_buckets
from augury.runtime.torch.program.parameter_names import own_modules, planned_modules
from augury.runtime.torch.sections import fusion, precision, recompute, threads

_ADVICE = "it is advice for the program: Augury does not change the training loop"


def refused_sections(
    model: Any, plan: Plan, *, optimizer: Any | None = None, is_attached: bool = False
) -> dict[PlanSection, str]:
    """Returns the sections of the plan that this training cannot have, with reasons.
    ``is_attached``: gradients are exchanged by the runtime already."""
    refused = {section: reason for section, reason in _reasons(model, plan) if reason is not None}
    if plan.communication is not None:
        reason = None if is_attached else why_no_exchange(model, optimizer)
        reason = (
            reason
            or why_no_communication(model, plan.communication, plan.parameters_digest)
            or _why_not_together(plan.communication, plan, refused)
        )
        if reason is None and plan.communication.mode is Mode.DDP_BUCKETS:
            reason = why_no_buckets(model)
        if reason is not None:
            refused[PlanSection.COMMUNICATION] = reason
    return refused


def fit(model: Any, plan: Plan, optimizer: Any, *, is_attached: bool) -> dict[PlanSection, str]:
    """As ``refused_sections``; raises InputError where no section can be applied."""
    reason = None if is_attached else why_no_model(model)
    reason = reason or why_not(model, plan)
    if reason is not None:
        raise InputError(reason, remedy="make a plan for this training")
    return refused_sections(model, plan, optimizer=optimizer, is_attached=is_attached)


def why_nothing(plan: Plan, refused: Mapping[PlanSection, str]) -> str | None:
    """Returns the reason of the first section, where no section of the plan is left."""
    if any(section not in refused for section in plan.sections):
        return None
    return refused[plan.sections[0]]


def modules_of(model: Any, plan: Plan) -> tuple[Mapping[str, Any] | None, Mapping[str, Any] | None]:
    """Returns the modules of the sections fusion and recompute; None where there is no section, or
    where the paths do not match."""
    found = [
        planned_modules(model.module, section.modules) if section is not None else None
        for section in (plan.fusion, plan.recompute)
    ]
    return found[0], found[1]


def _why_not_together(
    section: CommunicationSection, plan: Plan, refused: Mapping[PlanSection, str]
) -> str | None:
    """Returns why the communication does not go with other sections of the plan."""
    if section.mode is Mode.PIECES:
        for other in (PlanSection.FUSION, PlanSection.COMPRESSION):
            if other in plan.sections and other not in refused:
                return f"ordered pieces do not go with section {other}"
    return None


def _reasons(model: Any, plan: Plan) -> Iterator[tuple[PlanSection, str | None]]:
    fused, recomputed = modules_of(model, plan)
    if plan.fusion is not None:
        reason = _unmatched(model, plan.fusion.modules) if fused is None else None
        yield PlanSection.FUSION, reason or fusion.why_not(model, fused or {})
    if plan.recompute is not None:
        reason = _unmatched(model, plan.recompute.modules) if recomputed is None else None
        reason = reason or recompute.why_not(recomputed or {}, fused or {})
        yield PlanSection.RECOMPUTE, reason
    if plan.precision is not None:
        yield PlanSection.PRECISION, precision.why_not(model, plan.precision)
    if plan.compression is not None:
        yield PlanSection.COMPRESSION, why_no_exchange(model, None) or why_no_buckets(model)
    if plan.threads is not None:
        yield PlanSection.THREADS, threads.why_not(plan.threads)
    for advice in (PlanSection.ACCUMULATE, PlanSection.SHARDING):
        if advice in plan.sections:
            yield advice, _ADVICE


def _unmatched(model: Any, paths: tuple[str, ...]) -> str:
    here = own_modules(model.module)
    missing = next((path for path in paths if path not in here), paths[0])
    return f"the model has no module {missing!r:.80}"
