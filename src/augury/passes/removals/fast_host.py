"""Pass for host threads that launch work on devices without taking time."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from augury.core.enums import OpKind, ResourceKind
from augury.core.graph.graph import NONE, Graph
from augury.passes.compute_scale import with_scaled_work
from augury.passes.protocol import Changed, ErrorModel, Scene, changed
from augury.passes.removals.device_ends import with_device_ends

NO_DEVICE = "the run did not compute on devices"
Mask = np.ndarray[tuple[int], np.dtype[np.bool_]]


@dataclass(frozen=True, slots=True)
class FastHost:
    """Removes the time of launches and of the program between them. Loading of data stays, and
    host threads still wait for devices where they synchronize."""

    name = "fast-host"
    plan_section = None
    advice = "Launch less often: torch.compile, CUDA graphs, fused optimizers, larger batches."

    def applies(self, scene: Scene) -> list[str]:
        return [] if has_host_threads(scene.graph) else [NO_DEVICE]

    def apply(self, scene: Scene, _parameters: None = None) -> Changed:
        graph = scene.graph
        factor = np.where(host_ops(graph) & (graph.ops.kind != OpKind.DATA), 0.0, 1.0)
        graph = with_scaled_work(graph, factor, np.ones(len(graph.ranks)))
        graph = with_device_ends(graph)
        return changed(scene, replace(scene, graph=graph))

    def error_model(self, _parameters: None = None) -> ErrorModel:
        return ErrorModel(0.03)


FAST_HOST = FastHost()


def has_host_threads(graph: Graph) -> bool:
    return bool((graph.resources.kind == ResourceKind.HOST).any())


def host_ops(graph: Graph) -> Mask:
    """Marks operations with work on host threads."""
    resource = graph.ops.resource
    kinds = np.append(graph.resources.kind, ResourceKind.OTHER)
    return np.asarray((resource != NONE) & (kinds[resource] == ResourceKind.HOST))
