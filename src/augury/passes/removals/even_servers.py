"""Passes for parameter servers with even loads, and for servers that take no time."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from augury.core.enums import OpKind, ResourceKind, Role
from augury.core.graph.graph import NONE, Graph
from augury.passes.compute_scale import Floats, with_scaled_work
from augury.passes.protocol import Changed, ErrorModel, Scene, changed

NO_SERVERS = "the graph has no parameter server"
_WORK = (OpKind.SERVER_COPY, OpKind.SERVER_SUM, OpKind.SERVER_UPDATE)
_SERVER_SIDE = (ResourceKind.SERVER, ResourceKind.LINK_IN, ResourceKind.LINK_OUT)


@dataclass(frozen=True, slots=True)
class EvenServers:
    """Scales the work on each server, and the transfers on its links, to the mean over servers."""

    name = "even-servers"
    plan_section = None
    advice = "Split large parameters among the servers, or place them by size."

    def applies(self, scene: Scene) -> list[str]:
        return [] if (scene.graph.ranks.role == Role.SERVER).any() else [NO_SERVERS]

    def apply(self, scene: Scene, _parameters: None = None) -> Changed:
        graph = scene.graph
        load = server_load_ns(graph)
        servers = graph.ranks.role == Role.SERVER
        mean = float(load[servers].mean())
        ratio = np.where(servers & (load > 0), mean / np.maximum(load, 1.0), 1.0)
        owner = _server_of(graph)
        factor = np.where(owner != NONE, ratio[owner], 1.0)
        graph = with_scaled_work(graph, factor, np.ones(len(graph.ranks)))
        return changed(scene, replace(scene, graph=graph))

    def error_model(self, _parameters: None = None) -> ErrorModel:
        return ErrorModel(0.02)


@dataclass(frozen=True, slots=True)
class FreeServers:
    """Removes the time in which servers copy, sum and update."""

    name = "free-servers"
    plan_section = None
    advice = "Use more servers, or faster ones."

    def applies(self, scene: Scene) -> list[str]:
        return [] if np.isin(scene.graph.ops.kind, _WORK).any() else [NO_SERVERS]

    def apply(self, scene: Scene, _parameters: None = None) -> Changed:
        graph = scene.graph
        factor = np.where(np.isin(graph.ops.kind, _WORK), 0.0, 1.0)
        graph = with_scaled_work(graph, factor, np.ones(len(graph.ranks)))
        return changed(scene, replace(scene, graph=graph))

    def error_model(self, _parameters: None = None) -> ErrorModel:
        return ErrorModel(0.02)


EVEN_SERVERS = EvenServers()
FREE_SERVERS = FreeServers()


def server_load_ns(graph: Graph) -> Floats:
    """Returns the work on each rank's server resources and links; 0 for workers."""
    owner = _server_of(graph)
    own = owner != NONE
    return np.bincount(
        owner[own], weights=graph.ops.work_ns[own], minlength=len(graph.ranks)
    ).astype(np.float64)


def _server_of(graph: Graph) -> np.ndarray[tuple[int], np.dtype[np.int32]]:
    """Returns the server that each operation loads; NONE for work that no server takes part in."""
    resource = graph.ops.resource
    kinds = np.append(graph.resources.kind, ResourceKind.OTHER)
    ranks = np.append(graph.resources.rank, NONE)
    roles = np.append(graph.ranks.role, Role.WORKER)
    is_server = np.isin(kinds[resource], _SERVER_SIDE) & (roles[ranks[resource]] == Role.SERVER)
    return np.where((resource != NONE) & is_server, ranks[resource], NONE).astype(np.int32)
