"""Pass for another latency of all links."""

from __future__ import annotations

from dataclasses import dataclass, replace

from augury.core.enums import OpKind
from augury.core.errors import InputError
from augury.passes.bandwidth import EXPANDED
from augury.passes.protocol import Changed, ErrorModel, Scene, changed
from augury.passes.scale_collectives import with_costs


@dataclass(frozen=True, slots=True, kw_only=True)
class LatencyChange:
    """A factor on the part of communication that does not grow with size, and time per message."""

    factor: float = 1.0
    more_ns: int = 0


@dataclass(frozen=True, slots=True)
class Latency:
    """Scales the constant part of communication and adds time to each round of a collective."""

    name = "latency"
    plan_section = None
    advice = "Use a network of this latency."

    def applies(self, scene: Scene) -> list[str]:
        return [EXPANDED] if scene.is_expanded else []

    def apply(self, scene: Scene, parameters: LatencyChange) -> Changed:
        for reason in self.applies(scene):
            raise InputError(reason, remedy="expand collectives last")
        factor, more_ns = parameters.factor, parameters.more_ns
        if scene.links is not None:
            links = scene.links.slower_by(factor=factor, more_ns=more_ns)
            return changed(scene, replace(scene, links=links))
        rounds = 2 * max(1, scene.graph.num_ranks - 1)
        costs = {
            kind: cost.changed(
                rest=factor, more_ns=more_ns * (1 if kind == OpKind.SEND else rounds)
            )
            for kind, cost in scene.costs.items()
        }
        graph = with_costs(scene.graph, scene.costs, costs)
        return changed(scene, replace(scene, graph=graph, costs=costs))

    def error_model(self, _parameters: LatencyChange) -> ErrorModel:
        return ErrorModel(0.02)


LATENCY = Latency()
