"""Pass for modules whose activations are dropped after forward and computed again in backward."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial

import numpy as np

from augury.core.columns import I4
from augury.core.enums import MemoryKind
from augury.core.graph.graph import NONE
from augury.core.plan.plan import PlanSection
from augury.core.plan.sections import FusionSection, RecomputeSection
from augury.passes.protocol import Changed, ErrorModel, Scene
from augury.passes.sections.held_memory import by_layer, of_kind, with_columns
from augury.passes.sections.module_tree import check_modules, covers, known_modules, roots_of
from augury.passes.sections.module_work import ModulePass, ModuleWork
from augury.passes.sections.section_pass import check_allowed, check_section, with_section

_ERROR = 0.1
"""Relative error of the time of a repeated forward: caches and the allocator differ."""


@dataclass(frozen=True, slots=True)
class RecomputeModules:
    """Repeats the forward of modules before their backward. From the end of forward until then,
    only the input of each module is held."""

    name = "recompute"
    plan_section = PlanSection.RECOMPUTE.value
    advice = ""

    def applies(self, scene: Scene) -> list[str]:
        reasons = [] if known_modules(scene) else ["the run has no recorded modules"]
        if not of_kind(scene, MemoryKind.ACTIVATION).any():
            reasons.append("the run has no record of activations")
        return reasons

    def refusal(self, scene: Scene, module: str) -> str | None:
        """Returns the reason why a module cannot be recomputed; None if none is known."""
        known = known_modules(scene)
        roots = roots_of(scene.training.module_classes)
        normalized = next(
            (
                path
                for path, name in known.items()
                if "BatchNorm" in name and covers(module, path, roots)
            ),
            None,
        )
        if normalized is not None:
            return f"a second forward would change the running statistics of {normalized!r:.80}"
        fusion = scene.sections.get(PlanSection.FUSION)
        if isinstance(fusion, FusionSection):
            around = next(
                (one for one in fusion.modules if one != module and covers(one, module, roots)),
                None,
            )
            if around is not None:
                return f"it lies within the compiled module {around!r:.80}"
        return None

    def apply(self, scene: Scene, section: RecomputeSection) -> Changed:
        check_section(self, scene, section)
        work = ModuleWork(scene)
        check_modules(section.modules, known_modules(scene), roots=work.roots)
        check_allowed(section.modules, partial(self.refusal, scene), change="recomputed")
        passes = {module: work.passes_of(module) for module in section.modules}
        for own in passes.values():
            for one in own:
                if one.backward_begin != NONE:
                    work.work_ns[one.backward_begin] += one.forward_ns
        new = with_columns(work.scene(), taken_by=_taken_again(scene, work, passes))
        return with_section(scene, new, PlanSection.RECOMPUTE, section)

    def error_model(self, _section: RecomputeSection) -> ErrorModel:
        return ErrorModel(0.03)

    def error_in(self, scene: Scene, section: RecomputeSection) -> ErrorModel:
        work = ModuleWork(scene)
        added = np.zeros(len(scene.graph.ranks))
        for module in section.modules:
            for one in work.passes_of(module):
                added[one.rank] += one.forward_ns / max(1, scene.graph.num_steps)
        return ErrorModel(_ERROR * float(added.max(initial=0.0)) / work.step_ns())


RECOMPUTE = RecomputeModules()


def _taken_again(scene: Scene, work: ModuleWork, passes: Mapping[str, list[ModulePass]]) -> I4:
    """Returns the operations that take buffers: activations of recomputed modules are taken when
    their backward begins. Those of the first layer inside, its input, stay: its backward is the
    last to end."""
    graph, pass_of = scene.graph, work.structure.pass_of
    buffers = graph.buffers
    taken_by = buffers.taken_by.copy()
    order = {path: number for number, path in enumerate(known_modules(scene))}
    place = by_layer(scene, lambda layer: order.get(layer, len(order)))
    is_taken = of_kind(scene, MemoryKind.ACTIVATION) & (taken_by != NONE)
    for module, own in passes.items():
        inside = by_layer(scene, partial(_covers, module, work)) > 0
        rows = np.flatnonzero(inside & is_taken)
        rows = rows[np.lexsort((place[rows], -buffers.given_by[rows], pass_of[taken_by[rows]]))]
        numbers = pass_of[taken_by[rows]]
        is_first = np.diff(numbers, prepend=NONE) != 0
        begin_of = np.full(work.structure.num_passes + 1, NONE, dtype=np.int32)
        for one in own:
            begin_of[one.number] = one.backward_begin
        begins = begin_of[numbers]
        is_dropped = ~is_first & (begins != NONE) & work.forward[taken_by[rows]]
        taken_by[rows[is_dropped]] = begins[is_dropped]
    return taken_by


def _covers(module: str, work: ModuleWork, layer: str) -> float:
    return float(work.covers(module, layer))
