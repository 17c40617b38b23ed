"""Pass for communication that takes no time."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from augury.core.enums import OpKind, are_communication
from augury.core.graph.graph import NONE
from augury.passes.protocol import Changed, ErrorModel, Scene, changed


@dataclass(frozen=True, slots=True)
class FreeCommunication:
    """Removes the time of all transfers, and the delays before and after them. Ranks still wait
    for each other: communication ends when its last member has called it."""

    name = "free-communication"
    plan_section = None
    advice = "An upper bound on the gain from a faster network and from more overlap."

    def applies(self, _scene: Scene) -> list[str]:
        return []

    def apply(self, scene: Scene, _parameters: None = None) -> Changed:
        ops = scene.graph.ops
        moves = are_communication(ops.kind) | ((ops.kind == OpKind.DELAY) & (ops.step >= 0))
        work_ns = np.where(moves, 0, ops.work_ns)
        # Without a stream, free collectives cannot keep each other from starting.
        resource = np.where((work_ns == 0) & (ops.gang < 0) | moves, NONE, ops.resource)
        columns = dict(ops.columns()) | {"work_ns": work_ns, "resource": resource}
        graph = scene.graph.evolve(ops=type(ops)(**columns))
        return changed(scene, replace(scene, graph=graph))

    def error_model(self, _parameters: None = None) -> ErrorModel:
        return ErrorModel(0.02)


FREE_COMMUNICATION = FreeCommunication()
