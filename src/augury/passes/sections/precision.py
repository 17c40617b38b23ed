"""Pass for forward and backward under autocast."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from augury.core.errors import InputError
from augury.core.plan.plan import PlanSection
from augury.core.plan.sections import PrecisionSection
from augury.costs.module_costs import MODEL_ERRORS
from augury.passes.protocol import Changed, ErrorModel, Scene
from augury.passes.sections.held_memory import OF_BATCH, by_layer, of_kind, with_sizes
from augury.passes.sections.module_work import ModuleWork
from augury.passes.sections.section_pass import (
    check_section,
    ratios_of_change,
    with_section,
)


@dataclass(frozen=True, slots=True)
class HalvePrecision:
    """Runs forward and backward in half precision, as far as autocast does. Parameters, gradients
    and their communication stay as they are."""

    name = "precision"
    plan_section = PlanSection.PRECISION.value
    advice = ""

    def applies(self, scene: Scene) -> list[str]:
        reasons = [] if ModuleWork(scene).has_compute else ["the run has no forward or backward"]
        if scene.training.uses_autocast:
            reasons.append("the run is under autocast already")
        return reasons

    def apply(self, scene: Scene, section: PrecisionSection) -> Changed:
        check_section(self, scene, section)
        for module in scene.training.module_classes:
            trouble = scene.module_costs.trouble(module, section.dtype.value)
            if trouble is not None:
                raise InputError(
                    f"module {module!r:.80} cannot run in {section.dtype.value}: {trouble}",
                    remedy="leave the section precision out",
                )
        work = ModuleWork(scene)
        ratio_of = ratios_of_change(scene, dtype=section.dtype)
        work.scale_all(ratio_of)
        new, own = work.scene(), of_kind(scene, *OF_BATCH)
        if own.any():
            saved = by_layer(scene, lambda layer: ratio_of(layer).saved)
            new = with_sizes(new, np.where(own, saved, 1.0))
        return with_section(scene, new, PlanSection.PRECISION, section)

    def error_model(self, _section: PrecisionSection) -> ErrorModel:
        return ErrorModel(MODEL_ERRORS["half"])

    def error_in(self, scene: Scene, section: PrecisionSection) -> ErrorModel:
        work = ModuleWork(scene)
        ratio_of = ratios_of_change(scene, dtype=section.dtype)
        return ErrorModel(work.wrong_ns(lambda path: ratio_of(path).error) / work.step_ns())


PRECISION = HalvePrecision()
