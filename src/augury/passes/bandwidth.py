"""Pass for another bandwidth, of all links or of the link of one rank."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from augury.core.enums import OpKind, are_communication
from augury.core.errors import InputError, UsageError
from augury.core.graph.graph import Graph
from augury.core.graph.graph_spec import MAX_WORK_NS
from augury.costs.collective_costs import link_rate
from augury.passes.processor_time import keep_processor_time
from augury.passes.protocol import Changed, ErrorModel, Scene, changed
from augury.passes.scale_collectives import with_costs

EXPANDED = "collectives are expanded already: change the network before they are"
"""Reason why passes over the network refuse an expanded scene."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rate:
    """A bandwidth: a factor on the present one, or an absolute value."""

    factor: float | None = None
    bytes_per_s: float | None = None

    def __post_init__(self) -> None:
        if (self.factor is None) == (self.bytes_per_s is None):
            raise ValueError("a rate is either a factor or an absolute value")
        if not (self.factor or self.bytes_per_s or 0) > 0:
            raise UsageError("bandwidth must be positive", remedy="give more than 0")

    def over(self, present_bytes_per_s: float) -> float:
        """Returns an absolute value as a factor on the present one."""
        assert self.bytes_per_s is not None
        return self.bytes_per_s / present_bytes_per_s


@dataclass(frozen=True, slots=True)
class Bandwidth:
    """Changes the bandwidth of all links."""

    name = "bandwidth"
    plan_section = None
    advice = "Use a network of this bandwidth."

    def applies(self, scene: Scene) -> list[str]:
        return [EXPANDED] if scene.is_expanded else []

    def apply(self, scene: Scene, parameters: Rate) -> Changed:
        for reason in self.applies(scene):
            raise InputError(reason, remedy="expand collectives last")
        if scene.links is not None:
            factor = parameters.factor or parameters.over(scene.links.typical_rate)
            return changed(scene, replace(scene, links=scene.links.all_faster(factor)))
        factor = parameters.factor or parameters.over(link_rate(scene.graph, scene.costs))
        costs = {kind: cost.changed(wire=1 / factor) for kind, cost in scene.costs.items()}
        graph = _with_unsized(with_costs(scene.graph, scene.costs, costs), 1 / factor)
        return changed(scene, replace(scene, graph=graph, costs=costs))

    def error_model(self, _parameters: Rate) -> ErrorModel:
        return ErrorModel(0.015)


def _with_unsized(graph: Graph, factor: float) -> Graph:
    """Scales transfers of unknown size as a whole: they have no constant part to keep apart."""
    ops = graph.ops
    moves = are_communication(ops.kind) & (ops.kind != OpKind.BARRIER)
    unsized = moves & (ops.size_bytes == 0) & (ops.work_ns > 0)
    if not unsized.any():
        return graph
    work_ns = np.where(unsized, np.rint(ops.work_ns * factor), ops.work_ns)
    columns = dict(ops.columns()) | {"work_ns": np.minimum(work_ns, 2 * MAX_WORK_NS)}
    return keep_processor_time(graph, graph.evolve(ops=type(ops)(**columns)))


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkRate:
    """A bandwidth of the link of one rank, in the ways that it is used."""

    rank: int
    rate: Rate
    sends: bool = True
    receives: bool = True


@dataclass(frozen=True, slots=True)
class LinkBandwidth:
    """Changes the bandwidth of the link of one rank."""

    name = "link-bandwidth"
    plan_section = None
    advice = "Connect this rank by a link of this bandwidth."

    def applies(self, scene: Scene) -> list[str]:
        if scene.is_expanded:
            return [EXPANDED]
        return [] if scene.links is not None else ["single links are known to fine replays only"]

    def apply(self, scene: Scene, parameters: LinkRate) -> Changed:
        for reason in self.applies(scene):
            raise UsageError(reason, remedy="add --fine")
        links, rate = scene.links, parameters.rate
        assert links is not None
        factor = rate.factor or rate.over(links.rate_of(parameters.rank))
        links = links.faster(
            parameters.rank, factor, sends=parameters.sends, receives=parameters.receives
        )
        return changed(scene, replace(scene, links=links))

    def error_model(self, _parameters: LinkRate) -> ErrorModel:
        return ErrorModel(0.015)


BANDWIDTH = Bandwidth()
LINK_BANDWIDTH = LinkBandwidth()
