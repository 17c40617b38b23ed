"""Pass for compiled modules: fewer, longer operations that release gradients together."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from augury.core.enums import MemoryKind
from augury.core.plan.plan import PlanSection
from augury.core.plan.sections import FusionSection
from augury.core.trace.module_timing import COMPILED
from augury.costs.module_costs import MODEL_ERRORS
from augury.passes.protocol import Changed, ErrorModel, Scene
from augury.passes.sections.held_memory import layer_names, of_kind, with_sizes
from augury.passes.sections.module_tree import check_modules, known_modules
from augury.passes.sections.module_work import ModuleWork
from augury.passes.sections.section_pass import check_section, ratio_of_change, with_section


@dataclass(frozen=True, slots=True)
class Fusion:
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
        saved = np.ones(len(scene.graph.buffers))
        layers, is_activation = layer_names(scene), of_kind(scene, MemoryKind.ACTIVATION)
        for module in section.modules:
            ratio = ratio_of_change(scene, module, is_compiled=True)
            work.scale(module, ratio)
            work.gather(module)
            if ratio.saved != 1:
                inside = np.array([work.covers(module, layer) for layer in layers], dtype=bool)
                saved[inside & is_activation] *= ratio.saved
        new = work.scene()
        if (saved != 1).any():
            new = with_sizes(new, saved)
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


FUSION = Fusion()
