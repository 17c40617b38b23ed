"""Pass for batches that other processes load ahead of the training."""

from __future__ import annotations

from dataclasses import dataclass

from augury.core.enums import are_communication
from augury.core.plan.plan import PlanSection
from augury.core.plan.sections import LoaderSection
from augury.passes.protocol import Changed, ErrorModel, Scene
from augury.passes.removals.no_input_wait import NO_INPUT, input_ops
from augury.passes.sections.module_work import ModuleWork
from augury.passes.sections.section_pass import check_section, with_section

_COPY_SHARE = 0.02
"""Share of the loading time that remains: a batch still has to be taken from its process."""


@dataclass(frozen=True, slots=True)
class Loader:
    """Takes away the waits for input, as far as the processes keep up: each step of the training
    needs a batch, which takes one process the whole time of loading."""

    name = "loader"
    plan_section = PlanSection.LOADER.value
    advice = ""

    def applies(self, scene: Scene) -> list[str]:
        return [] if input_ops(scene.graph).any() else [NO_INPUT]

    def apply(self, scene: Scene, section: LoaderSection) -> Changed:
        check_section(self, scene, section)
        work = ModuleWork(scene)
        graph, waits = scene.graph, input_ops(scene.graph)
        num_steps = max(1, graph.num_steps)
        for rank in range(len(graph.ranks)):
            own = waits & (graph.ops.rank == rank)
            loading_ns = float(work.work_ns[own].sum()) / num_steps
            if loading_ns <= 0:
                continue
            elsewhere = (graph.ops.rank == rank) & ~own & ~are_communication(graph.ops.kind)
            rest_ns = float(work.work_ns[elsewhere].sum()) / num_steps
            # With enough processes, a batch is ready each time; otherwise they set the pace.
            missing_ns = max(0.0, loading_ns / section.num_workers - rest_ns)
            left = max(_COPY_SHARE, missing_ns / loading_ns)
            work.work_ns[own] *= min(1.0, left)
        return with_section(scene, work.scene(), PlanSection.LOADER, section)

    def error_model(self, _section: LoaderSection) -> ErrorModel:
        return ErrorModel(0.03)

    def error_in(self, _scene: Scene, section: LoaderSection) -> ErrorModel:
        return self.error_model(section)


LOADER = Loader()
