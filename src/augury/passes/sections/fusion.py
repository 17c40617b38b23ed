"""Pass for compiled modules: fewer, longer operations that release gradients together."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import numpy as np

from augury.core.enums import MemoryKind
from augury.core.plan.plan import PlanSection
from augury.core.plan.sections import FusionSection
from augury.core.trace.module_timing import COMPILED
from augury.costs.module_costs import MODEL_ERRORS
from augury.passes.protocol import Changed, ErrorModel, Scene
from augury.passes.sections.held_memory import by_layer, of_kind, with_sizes
from augury.passes.sections.module_tree import check_modules, known_modules
from augury.passes.sections.module_work import ModuleWork
from augury.passes.sections.section_pass import (
    check_allowed,
    check_section,
    ratio_of_change,
    with_section,
)


@dataclass(frozen=True, slots=True)
class FuseModules:
    """Compiles modules. A compiled module keeps its operations in the graph: the first one of its
    forward and of its backward take all of the time, and its gradients are released after it."""

    name = "fusion"
    plan_section = PlanSection.FUSION.value
    advice = ""

    def applies(self, scene: Scene) -> list[str]:
        return [] if known_modules(scene) else ["the run has no recorded modules"]

    def refusal(self, scene: Scene, module: str) -> str | None:
        """Returns the reason why a module cannot be compiled; None if none is known."""
        return scene.module_costs.trouble(module, COMPILED)

    def apply(self, scene: Scene, section: FusionSection) -> Changed:
        check_section(self, scene, section)
        work = ModuleWork(scene)
        check_modules(section.modules, known_modules(scene), roots=work.roots)
        check_allowed(section.modules, partial(self.refusal, scene), change="compiled")
        ratios = {
            module: ratio_of_change(scene, module, is_compiled=True) for module in section.modules
        }
        for module, ratio in ratios.items():
            work.scale(module, ratio)
            work.gather(module)
        new = work.scene()
        if any(ratio.saved != 1 for ratio in ratios.values()):

            def saved(layer: str) -> float:
                return next((r.saved for one, r in ratios.items() if work.covers(one, layer)), 1.0)

            own = of_kind(scene, MemoryKind.ACTIVATION)
            new = with_sizes(new, np.where(own, by_layer(scene, saved), 1.0))
        return with_section(scene, new, PlanSection.FUSION, section)

    def error_model(self, _section: FusionSection) -> ErrorModel:
        return ErrorModel(MODEL_ERRORS["compiled"])

    def error_in(self, scene: Scene, section: FusionSection) -> ErrorModel:
        work = ModuleWork(scene)
        errors = {
            module: ratio_of_change(scene, module, is_compiled=True).error
            for module in section.modules
        }

        def error_of(path: str) -> float:
            return next((e for module, e in errors.items() if work.covers(module, path)), 0.0)

        return ErrorModel(work.wrong_ns(error_of) / work.step_ns())


FUSION = FuseModules()
