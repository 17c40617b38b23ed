"""Pass for faster or slower compute, on all ranks or on some."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from augury.core.columns import I8
from augury.core.enums import ResourceKind, are_communication
from augury.core.errors import UsageError
from augury.core.graph.graph import RATE_ONE, Graph, Interference
from augury.passes.protocol import Changed, ErrorModel, Scene, changed

Floats = np.ndarray[tuple[int], np.dtype[np.float64]]


@dataclass(frozen=True, slots=True, kw_only=True)
class ComputeFactor:
    """A factor on the duration of compute."""

    factor: float
    ranks: tuple[int, ...] | None = None
    """Ranks that it applies to; None means all."""


@dataclass(frozen=True, slots=True)
class ComputeScale:
    """Scales compute. A slower processor also loses more of its time to communication."""

    name = "compute-scale"
    plan_section = None
    advice = "Use processors of this speed."

    def applies(self, _scene: Scene) -> list[str]:
        return []

    def apply(self, scene: Scene, parameters: ComputeFactor) -> Changed:
        graph, ranks = scene.graph, parameters.ranks
        if ranks and max(ranks) >= len(graph.ranks):
            raise UsageError(
                f"there is no rank {max(ranks)}", remedy=f"name 0 to {len(graph.ranks) - 1}"
            )
        chosen = np.zeros(len(graph.ranks), dtype=bool)
        chosen[list(ranks) if ranks is not None else slice(None)] = True
        factor = parameters.factor
        scaled = with_scaled_work(
            graph,
            np.where(chosen[graph.ops.rank] & ~are_communication(graph.ops.kind), factor, 1.0),
            np.where(chosen, factor, 1.0),
        )
        return changed(scene, replace(scene, graph=scaled))

    def error_model(self, _parameters: ComputeFactor) -> ErrorModel:
        return ErrorModel(0.01)


COMPUTE_SCALE = ComputeScale()


def with_scaled_work(
    graph: Graph, op_factors: Floats, rank_factors: Floats, *, transfer_factor: float = 1.0
) -> Graph:
    """Scales the work of each operation, and the processor time that communication takes from the
    compute of each rank. ``transfer_factor`` scales by how much compute slows communication."""
    ops, rules, resources = graph.ops, graph.interference, graph.resources
    work_ns: I8 = np.rint(ops.work_ns * op_factors).astype(np.int64)
    rate = rules.rate.copy()
    for row in range(len(rules)):
        victim = int(rules.victim[row])
        rank = int(resources.rank[victim])
        factor = transfer_factor
        if resources.kind[victim] == ResourceKind.COMPUTE and rank >= 0:
            factor = float(rank_factors[rank])
        if factor != 1.0:
            taken = (RATE_ONE - int(rate[row])) * factor
            rate[row] = min(RATE_ONE, max(RATE_ONE // 10, round(RATE_ONE - taken)))
    # A zero-work operation on a resource would take a round of its own.
    resource = np.where((work_ns == 0) & (ops.gang < 0), -1, ops.resource)
    columns = dict(ops.columns()) | {"work_ns": work_ns, "resource": resource}
    return graph.evolve(
        ops=type(ops)(**columns),
        interference=Interference(victim=rules.victim, aggressor=rules.aggressor, rate=rate),
    )
