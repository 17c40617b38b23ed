"""Pass for gradients that travel in half precision."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from augury.core.columns import I4
from augury.core.enums import MemoryKind, OpKind
from augury.core.graph.graph import NONE, Graph
from augury.core.graph.graph_spec import MAX_WORK_NS
from augury.core.plan.plan import PlanSection
from augury.core.plan.sections import CompressionSection
from augury.costs.collective_costs import Costs
from augury.passes.protocol import Changed, ErrorModel, Scene
from augury.passes.sections.held_memory import NewBuffer, with_buffers
from augury.passes.sections.section_pass import check_section, with_section

_HALF_BYTES = 2
_COMPRESS, _RESTORE = 1.25, 0.75
"""Bytes that a cast reads and writes, relative to a copy of the same gradients: one to half
precision and a division there; one back."""
_COPY_NS_PER_BYTE = 0.25
"""Time to copy a byte of gradients if the run shows none."""


@dataclass(frozen=True, slots=True)
class Compression:
    """Halves the bytes of gradients on the wire. The rank casts them before, and back after."""

    name = "compression"
    plan_section = PlanSection.COMPRESSION.value
    advice = ""

    def applies(self, scene: Scene) -> list[str]:
        graph = scene.graph
        reasons = []
        if graph.num_ranks < 2:
            reasons.append("one rank sends no gradients")
        elif not len(graph.gradients):
            reasons.append("the run's gradients are not known")
        if scene.is_expanded:
            reasons.append("collectives are expanded into messages")
        return reasons

    def apply(self, scene: Scene, section: CompressionSection) -> Changed:
        check_section(self, scene, section)
        graph = scene.graph
        carriers, last_made, first_used = _buckets(graph)
        work_ns = graph.ops.work_ns.astype(np.float64)
        size_bytes = graph.ops.size_bytes
        factor = {
            (kind, size): _half_factor(scene.costs, OpKind(kind), size)
            for kind, size in {
                (int(graph.ops.kind[op]), int(size_bytes[op])) for op in carriers.tolist()
            }
        }
        ns_per_byte = _copy_ns_per_byte(graph)
        buffers: list[NewBuffer] = []
        for op, made_by, used_by in zip(
            carriers.tolist(), last_made.tolist(), first_used.tolist(), strict=True
        ):
            size = int(size_bytes[op])
            work_ns[op] *= factor[int(graph.ops.kind[op]), size]
            work_ns[made_by] += _COMPRESS * ns_per_byte * size
            work_ns[used_by] += _RESTORE * ns_per_byte * size
            buffers.append(
                NewBuffer(
                    rank=int(graph.ops.rank[op]),
                    size_bytes=size // _HALF_BYTES,
                    kind=MemoryKind.COMMUNICATION,
                    taken_by=made_by,
                    given_by=used_by,
                )
            )
        rounded = np.minimum(np.rint(work_ns), 2 * MAX_WORK_NS).astype(np.int64)
        new = replace(scene, graph=graph.with_work_ns(rounded))
        return with_section(scene, with_buffers(new, buffers), PlanSection.COMPRESSION, section)

    def error_model(self, _section: CompressionSection) -> ErrorModel:
        return ErrorModel(0.05)

    def error_in(self, _scene: Scene, section: CompressionSection) -> ErrorModel:
        return self.error_model(section)


COMPRESSION = Compression()


def _half_factor(costs: Costs, kind: OpKind, size_bytes: int) -> float:
    """Returns the time of half the bytes, relative to that of all; never less than half."""
    cost = costs.get(kind)
    whole_ns = cost.time_ns(size_bytes) if cost is not None else 0.0
    if cost is None or whole_ns <= 0:
        return 1 / _HALF_BYTES
    return min(1.0, max(1 / _HALF_BYTES, cost.time_ns(size_bytes // _HALF_BYTES) / whole_ns))


def _buckets(graph: Graph) -> tuple[I4, I4, I4]:
    """Returns the operations that carry gradients, and for each the last one that makes a gradient
    of it and the first that uses one."""
    gradients = graph.gradients
    carriers = np.unique(gradients.carried_by[gradients.carried_by != NONE])
    made = {int(op): NONE for op in carriers}
    used = {int(op): NONE for op in carriers}
    for made_by, carrier, used_by in zip(
        gradients.made_by.tolist(),
        gradients.carried_by.tolist(),
        gradients.used_by.tolist(),
        strict=True,
    ):
        if carrier in made and made_by != NONE:
            made[carrier] = max(made[carrier], made_by)
        if carrier in used and used_by != NONE:
            used[carrier] = used_by if used[carrier] == NONE else min(used[carrier], used_by)
    is_whole = [made[int(op)] != NONE and used[int(op)] != NONE for op in carriers]
    kept = carriers[np.array(is_whole, dtype=bool)]
    return (
        kept,
        np.array([made[int(op)] for op in kept], dtype=np.int32),
        np.array([used[int(op)] for op in kept], dtype=np.int32),
    )


def _copy_ns_per_byte(graph: Graph) -> float:
    """Returns the time in which the main thread copies a byte of reduced gradients."""
    ops = graph.ops
    copies = np.unique(graph.gradients.used_by[graph.gradients.used_by != NONE])
    copies = copies[(ops.kind[copies] == OpKind.COPY) & (ops.size_bytes[copies] > 0)]
    total_bytes = int(ops.size_bytes[copies].sum())
    if not total_bytes:
        return _COPY_NS_PER_BYTE
    return min(4 * _COPY_NS_PER_BYTE, float(ops.work_ns[copies].sum()) / total_bytes)
