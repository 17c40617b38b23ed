"""Pass for batches that other processes load ahead of the training."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from augury.core.enums import OpKind, are_communication
from augury.core.graph.graph import Graph
from augury.core.plan.plan import PlanSection
from augury.core.plan.sections import LoaderSection
from augury.passes.protocol import Changed, ErrorModel, Scene
from augury.passes.sections.module_work import ModuleWork
from augury.passes.sections.section_pass import check_section, with_section

_TAKE_NS = 300_000
"""Least time to take a batch from another process, and least share of the time of loading."""
_TAKE_SHARE = 0.02
_OTHER_PROCESSES = "MultiProcessing"
"""Part of the names of loading where other processes load already."""
_ERROR = 0.1
"""Relative error of the time that is taken away: loading itself changes in another process."""


@dataclass(frozen=True, slots=True)
class LoadAhead:
    """Takes away the waits for input, as far as processes and processor cores keep up: every step
    needs a batch, on which one process works as long as the training did."""

    name = "loader"
    plan_section = PlanSection.LOADER.value
    advice = ""

    def applies(self, scene: Scene) -> list[str]:
        loading = _loading(scene.graph)
        if not loading.any():
            return ["no operation loads data"]
        names = {scene.graph.op_name(int(op)) for op in np.flatnonzero(loading)}
        if any(_OTHER_PROCESSES in name for name in names):
            return ["other processes load already, and the record does not say how many"]
        return []

    def apply(self, scene: Scene, section: LoaderSection) -> Changed:
        check_section(self, scene, section)
        work, graph, loading = ModuleWork(scene), scene.graph, _loading(scene.graph)
        for rank in range(len(graph.ranks)):
            own = loading & (graph.ops.rank == rank)
            loading_ns = float(work.work_ns[own].sum()) / max(1, graph.num_steps)
            if loading_ns > 0:
                left_ns = _left_ns(scene, work, rank, loading_ns, section.num_workers)
                work.work_ns[own] *= min(1.0, left_ns / loading_ns)
        return with_section(scene, work.scene(), PlanSection.LOADER, section)

    def error_model(self, _section: LoaderSection) -> ErrorModel:
        return ErrorModel(_ERROR)

    def error_in(self, scene: Scene, _section: LoaderSection) -> ErrorModel:
        work, loading = ModuleWork(scene), _loading(scene.graph)
        taken_ns = work.of_ranks(np.where(loading, work.work_ns, 0.0)).max(initial=0.0)
        return ErrorModel(_ERROR * float(taken_ns) / work.step_ns())


LOADER = LoadAhead()


def _loading(graph: Graph) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    return np.asarray((graph.ops.kind == OpKind.DATA) & (graph.ops.work_ns > 0))


def _left_ns(
    scene: Scene, work: ModuleWork, rank: int, loading_ns: float, num_workers: int
) -> float:
    """Returns the time that each step of a rank still waits for its batch."""
    ops = scene.graph.ops
    others = (ops.rank == rank) & ~_loading(scene.graph) & ~are_communication(ops.kind)
    rest_ns = float(work.work_ns[others].sum()) / max(1, scene.graph.num_steps)
    late_ns = loading_ns / num_workers - rest_ns
    return max(
        min(loading_ns, max(_TAKE_NS, _TAKE_SHARE * loading_ns)),
        late_ns,
        _without_core_ns(scene, rank, loading_ns, rest_ns),
    )


def _without_core_ns(scene: Scene, rank: int, loading_ns: float, rest_ns: float) -> float:
    """Returns the part of loading that finds no processor core. It takes as much of the processor
    as the main thread took beyond all other work, and may use cores that compute leaves free and
    the time in which the training waits for communication."""
    facts = scene.training
    if rank >= len(facts.main_cpu_ns) or not facts.main_cpu_ns[rank]:
        return 0.0
    cpu_ns = min(loading_ns, max(0.0, facts.main_cpu_ns[rank] - rest_ns))
    cores, num_threads = facts.cores_per_rank[rank], max(1, facts.num_threads[rank])
    if not cores:
        return 0.0
    measured = scene.graph.measured
    steps_ns = measured.dur_ns[measured.rank == rank]
    step_ns = float(np.median(steps_ns)) if len(steps_ns) else loading_ns + rest_ns
    waiting_ns = max(0.0, step_ns - loading_ns - rest_ns)
    free_cores = max(0.0, cores - num_threads)
    free_ns = free_cores * (rest_ns + waiting_ns) + min(1.0, cores) * waiting_ns
    return max(0.0, cpu_ns - free_ns)
