"""Pass for modules whose activations are dropped after forward and computed again in backward."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from augury.core.enums import MemoryKind
from augury.core.errors import InputError
from augury.core.graph.graph import NONE
from augury.core.plan.plan import PlanSection
from augury.core.plan.sections import FusionSection, RecomputeSection
from augury.passes.protocol import Changed, ErrorModel, Scene
from augury.passes.sections.held_memory import layer_names, of_kind, with_columns
from augury.passes.sections.module_tree import check_modules, covers, known_modules
from augury.passes.sections.module_work import ModulePass, ModuleWork
from augury.passes.sections.section_pass import check_section, with_section

_ERROR = 0.1
"""Relative error of the time of a repeated forward: caches and the allocator differ."""


@dataclass(frozen=True, slots=True)
class Recompute:
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
        known, work = known_modules(scene), ModuleWork(scene)
        normalized = next(
            (
                path
                for path, name in known.items()
                if "BatchNorm" in name and work.covers(module, path)
            ),
            None,
        )
        if normalized is not None:
            return f"a second forward would change the running statistics of {normalized!r:.80}"
        fusion = scene.sections.get(PlanSection.FUSION)
        if isinstance(fusion, FusionSection):
            around = next(
                (one for one in fusion.modules if one != module and work.covers(one, module)), None
            )
            if around is not None:
                return f"it lies within the compiled module {around!r:.80}"
        return None

    def apply(self, scene: Scene, section: RecomputeSection) -> Changed:
        check_section(self, scene, section)
        work = ModuleWork(scene)
        check_modules(section.modules, known_modules(scene), roots=work.roots)
        for module in section.modules:
            reason = self.refusal(scene, module)
            if reason is not None:
                raise InputError(
                    f"module {module!r:.80} cannot be recomputed: {reason}",
                    remedy="leave it out of the section",
                )
        passes = {module: work.passes_of(module) for module in section.modules}
        for own in passes.values():
            for one in own:
                if one.backward_begin != NONE:
                    work.work_ns[one.backward_begin] += one.forward_ns
        new = work.scene()
        for module, own in passes.items():
            new = _dropped(new, work, module, own)
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


RECOMPUTE = Recompute()


def _dropped(scene: Scene, work: ModuleWork, module: str, passes: list[ModulePass]) -> Scene:
    """Holds a module's activations only during its backward, and its input until then."""
    buffers, pass_of = scene.graph.buffers, work.structure.pass_of
    layers = layer_names(scene)
    inside = np.array([covers(module, layer, work.roots) for layer in layers], dtype=bool)
    inside &= of_kind(scene, MemoryKind.ACTIVATION) & (buffers.taken_by != NONE)
    taken_by = buffers.taken_by.copy()
    order = {path: number for number, path in enumerate(known_modules(scene))}
    for one in passes:
        if one.backward_begin == NONE:
            continue
        rows = np.flatnonzero(inside & (pass_of[taken_by] == pass_of[one.backward_begin]))
        rows = rows[~np.isin(taken_by[rows], one.backward)]
        if not len(rows):
            continue
        # What the first module in it saves is the input of all: it stays.
        first = min(rows.tolist(), key=lambda row: order.get(layers[row], len(order)))
        taken_by[rows[rows != first]] = one.backward_begin
    return with_columns(scene, taken_by=taken_by)
