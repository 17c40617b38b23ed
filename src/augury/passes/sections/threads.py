"""Pass for another number of threads that share the work of one operation."""

from __future__ import annotations

from dataclasses import dataclass

from augury.core.plan.plan import PlanSection
from augury.core.plan.sections import ThreadsSection
from augury.costs.module_costs import MODEL_ERRORS
from augury.passes.protocol import Changed, ErrorModel, Scene
from augury.passes.sections.module_work import ModuleWork
from augury.passes.sections.section_pass import check_section, ratios_of_change, with_section


@dataclass(frozen=True, slots=True)
class ShareAmongThreads:
    """Divides the work of forward and backward among another number of threads of each rank."""

    name = "threads"
    plan_section = PlanSection.THREADS.value
    advice = ""

    def applies(self, scene: Scene) -> list[str]:
        reasons = [] if ModuleWork(scene).has_compute else ["the run has no forward or backward"]
        if scene.graph.meta.get("source") == "recorded on devices":
            reasons.append("the run computes on devices")
        return reasons

    def apply(self, scene: Scene, section: ThreadsSection) -> Changed:
        check_section(self, scene, section)
        work = ModuleWork(scene)
        work.scale_all(ratios_of_change(scene, num_threads=section.num_threads))
        return with_section(scene, work.scene(), PlanSection.THREADS, section)

    def error_model(self, _section: ThreadsSection) -> ErrorModel:
        return ErrorModel(MODEL_ERRORS["threads"])

    def error_in(self, scene: Scene, section: ThreadsSection) -> ErrorModel:
        work = ModuleWork(scene)
        ratio_of = ratios_of_change(scene, num_threads=section.num_threads)
        return ErrorModel(work.wrong_ns(lambda path: ratio_of(path).error) / work.step_ns())


THREADS = ShareAmongThreads()
