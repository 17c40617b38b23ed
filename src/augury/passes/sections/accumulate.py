"""Pass for batches that are split into micro-batches, with one exchange of gradients for all."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from augury.core.enums import MemoryKind
from augury.core.graph.graph import NONE
from augury.core.plan.plan import PlanSection
from augury.core.plan.sections import AccumulateSection
from augury.passes.protocol import Changed, ErrorModel, Scene
from augury.passes.sections.held_memory import (
    OF_BATCH,
    NewBuffer,
    of_kind,
    with_buffers,
    with_columns,
    with_sizes,
)
from augury.passes.sections.module_work import ModuleWork
from augury.passes.sections.section_pass import check_section, with_section

_ERROR = 0.05
"""Small micro-batches use a processor less well."""


@dataclass(frozen=True, slots=True)
class SplitBatches:
    """Splits each batch. All micro-batches but the last run before the recorded forward and
    backward, which become those of the last one: gradients are released there alone."""

    name = "accumulate"
    plan_section = PlanSection.ACCUMULATE.value
    advice = """\
for number, part in enumerate(zip(inputs.chunk(NUM), targets.chunk(NUM))):
    is_last = number == NUM - 1
    with contextlib.nullcontext() if is_last else model.no_sync():
        (loss_function(model(part[0]), part[1]) / NUM).backward()
optimizer.step()"""

    def applies(self, scene: Scene) -> list[str]:
        work = ModuleWork(scene)
        is_whole = work.forward.any() and work.backward.any()
        return [] if is_whole else ["the run has no recorded forward and backward"]

    def apply(self, scene: Scene, section: AccumulateSection) -> Changed:
        check_section(self, scene, section)
        num, work = section.num_micro_batches, ModuleWork(scene)
        compute = work.forward | work.backward
        adding, pass_of = work.structure.adds_gradients, work.structure.pass_of
        inside = pass_of != NONE
        each_ns = np.bincount(pass_of[inside], weights=work.work_ns[inside])
        adding_ns = np.bincount(
            pass_of[adding], weights=work.work_ns[adding], minlength=len(each_ns)
        )
        # A micro-batch divides the work on data; it adds up gradients of the same size.
        earlier_ns = (num - 1) * ((each_ns - adding_ns) / num + adding_ns)
        work.work_ns[compute] /= num
        begins = np.flatnonzero(work.forward & (scene.graph.ops.resource != NONE))
        _, first = np.unique(pass_of[begins], return_index=True)
        work.work_ns[begins[first]] += earlier_ns[pass_of[begins[first]]]
        new = _with_micro_batches(work.scene(), num, work) if num > 1 else scene
        return with_section(scene, new, PlanSection.ACCUMULATE, section)

    def error_model(self, _section: AccumulateSection) -> ErrorModel:
        return ErrorModel(_ERROR)

    def error_in(self, _scene: Scene, section: AccumulateSection) -> ErrorModel:
        return self.error_model(section)


ACCUMULATE = SplitBatches()


def _with_micro_batches(scene: Scene, num: int, work: ModuleWork) -> Scene:
    """Returns the memory of the last micro-batch: it begins with the gradients of those before, and
    each gradient that it makes exists beside the sum until it is added."""
    of_batch = of_kind(scene, *OF_BATCH)
    new = with_sizes(scene, np.where(of_batch, 1 / num, 1.0)) if of_batch.any() else scene
    buffers, pass_of = new.graph.buffers, work.structure.pass_of
    forward = np.flatnonzero(work.forward)
    passes, first = np.unique(pass_of[forward], return_index=True)
    begin_of = dict(zip(passes.tolist(), forward[first].tolist(), strict=True))
    taken_by = buffers.taken_by.copy()
    added: list[NewBuffer] = []
    for row in np.flatnonzero(of_kind(new, MemoryKind.GRADIENT) & (taken_by != NONE)).tolist():
        made_by = int(taken_by[row])
        taken_by[row] = begin_of.get(int(pass_of[made_by]), made_by)
        added.append(
            NewBuffer(
                rank=int(buffers.rank[row]),
                size_bytes=int(buffers.size_bytes[row]),
                kind=MemoryKind.WORKSPACE,
                taken_by=made_by,
                given_by=made_by,
                layer=int(buffers.layer[row]),
            )
        )
    return with_buffers(with_columns(new, taken_by=taken_by), added)
