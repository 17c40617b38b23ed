"""Pass for gradients that travel in half precision."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from augury.core.enums import MemoryKind, OpKind
from augury.core.graph.graph import NONE, Graph
from augury.core.graph.graph_spec import MAX_WORK_NS
from augury.core.plan.plan import PlanSection
from augury.core.plan.sections import CompressionSection, HalfPrecision
from augury.costs.collective_costs import Costs
from augury.passes.protocol import Changed, ErrorModel, Scene
from augury.passes.sections.gradient_carriers import GradientCarrier, gradient_carriers
from augury.passes.sections.held_memory import NewBuffer, with_buffers
from augury.passes.sections.section_pass import check_section, with_section

_HALF_BYTES = 2
_COMPRESS, _RESTORE = 2.0, 0.5
"""Time of casts relative to a copy of the same gradients: to half precision, into new memory, with
a division there; and back."""
_SUM_NS = {HalfPrecision.FLOAT16: 1.2, HalfPrecision.BFLOAT16: 0.1}
"""Additional time to add two numbers on a processor, which converts them."""
_RECORDED_BYTES = 4
"""Bytes of a gradient's number as recorded."""
_COPY_NS_PER_BYTE = 0.25
"""Time to copy a byte of gradients if the run shows none."""
_DEVICE_COPY_NS_PER_BYTE = 0.002
"""The same on a device."""


@dataclass(frozen=True, slots=True)
class CompressGradients:
    """Halves the bytes of gradients on the wire. The rank casts them before, and back after."""

    name = "compression"
    plan_section = PlanSection.COMPRESSION.value
    advice = ""

    def applies(self, scene: Scene) -> list[str]:
        graph = scene.graph
        reasons = []
        if graph.num_ranks < 2:
            reasons.append("one rank sends no gradients")
        elif not gradient_carriers(graph):
            reasons.append("the run exchanges no gradients by all-reduce")
        if scene.is_expanded:
            reasons.append("collectives are expanded into messages")
        return reasons

    def apply(self, scene: Scene, section: CompressionSection) -> Changed:
        check_section(self, scene, section)
        graph = scene.graph
        carriers = gradient_carriers(graph)
        work_ns = graph.ops.work_ns.astype(np.float64)
        ns_per_byte = _copy_ns_per_byte(graph, carriers)
        sum_ns_per_byte = _sum_ns_per_byte(graph, section.dtype)
        buffers: list[NewBuffer] = []
        for one in carriers:
            kind = OpKind(int(graph.ops.kind[one.op]))
            work_ns[one.op] *= _half_factor(scene.costs, kind, one.size_bytes)
            work_ns[one.op] += sum_ns_per_byte * one.size_bytes
            for op, share in ((one.made_by, _COMPRESS), (one.used_by, _RESTORE)):
                if op != NONE:
                    work_ns[op] += share * ns_per_byte * one.size_bytes
            buffers.append(
                NewBuffer(
                    rank=one.rank,
                    size_bytes=one.size_bytes // _HALF_BYTES,
                    kind=MemoryKind.COMMUNICATION,
                    taken_by=one.op if one.made_by == NONE else one.made_by,
                    given_by=one.op if one.used_by == NONE else one.used_by,
                )
            )
        rounded = np.minimum(np.rint(work_ns), 2 * MAX_WORK_NS).astype(np.int64)
        new = replace(scene, graph=graph.with_work_ns(rounded))
        return with_section(scene, with_buffers(new, buffers), PlanSection.COMPRESSION, section)

    def error_model(self, _section: CompressionSection) -> ErrorModel:
        return ErrorModel(0.05)

    def error_in(self, _scene: Scene, section: CompressionSection) -> ErrorModel:
        return self.error_model(section)


COMPRESSION = CompressGradients()


def _half_factor(costs: Costs, kind: OpKind, size_bytes: int) -> float:
    """Returns the time of half the bytes, relative to that of all; never less than half."""
    cost = costs.get(kind)
    whole_ns = cost.time_ns(size_bytes) if cost is not None else 0.0
    if cost is None or whole_ns <= 0:
        return 1 / _HALF_BYTES
    return min(1.0, max(1 / _HALF_BYTES, cost.time_ns(size_bytes // _HALF_BYTES) / whole_ns))


def _copy_ns_per_byte(graph: Graph, carriers: list[GradientCarrier]) -> float:
    """Returns the time in which a rank copies a byte of reduced gradients."""
    ops = graph.ops
    copies = np.unique([one.used_by for one in carriers if one.used_by != NONE])
    copies = copies.astype(np.int32)
    copies = copies[(ops.kind[copies] == OpKind.COPY) & (ops.size_bytes[copies] > 0)]
    total_bytes = int(ops.size_bytes[copies].sum())
    if not total_bytes:
        return _COPY_NS_PER_BYTE if not _has_devices(graph) else _DEVICE_COPY_NS_PER_BYTE
    return min(4 * _COPY_NS_PER_BYTE, float(ops.work_ns[copies].sum()) / total_bytes)


def _sum_ns_per_byte(graph: Graph, dtype: HalfPrecision) -> float:
    """Returns the additional time of a reduction, in which each rank adds up all but its own share
    of the others' gradients."""
    if _has_devices(graph):
        return 0.0
    return _SUM_NS[dtype] / _RECORDED_BYTES * (graph.num_ranks - 1) / graph.num_ranks


def _has_devices(graph: Graph) -> bool:
    return graph.meta.get("source") == "recorded on devices"
