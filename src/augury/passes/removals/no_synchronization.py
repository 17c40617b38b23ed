"""Pass for host threads that do not wait for devices."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from augury.core.enums import OpKind
from augury.core.graph.graph import NONE, Edges, Graph
from augury.passes.protocol import Changed, ErrorModel, Scene, changed
from augury.passes.removals.device_ends import on_device, with_device_ends
from augury.passes.removals.fast_host import NO_DEVICE, has_host_threads

Mask = np.ndarray[tuple[int], np.dtype[np.bool_]]


@dataclass(frozen=True, slots=True)
class NoSynchronization:
    """Removes the waits of host threads for kernels and copies on devices. The step still ends
    when its last kernel has ended."""

    name = "no-synchronization"
    plan_section = None
    advice = "Avoid .item(), .cpu(), prints of tensors and pageable copies within steps."

    def applies(self, scene: Scene) -> list[str]:
        return [] if has_host_threads(scene.graph) else [NO_DEVICE]

    def apply(self, scene: Scene, _parameters: None = None) -> Changed:
        graph = scene.graph
        keep = ~device_waits(graph)
        src, dst = graph.edges.sources(), graph.edges.dst
        edges = Edges.from_pairs(src[keep], dst[keep], num_ops=graph.num_ops)
        return changed(scene, replace(scene, graph=with_device_ends(graph.evolve(edges=edges))))

    def error_model(self, _parameters: None = None) -> ErrorModel:
        return ErrorModel(0.03)


NO_SYNCHRONIZATION = NoSynchronization()


def device_waits(graph: Graph) -> Mask:
    """Marks edges by which a call of a host thread waits for work on a device."""
    ops = graph.ops
    src, dst = graph.edges.sources(), graph.edges.dst
    is_kernel = on_device(graph)
    # The start of a kernel is a launch, too: it takes time on no resource.
    is_start = (ops.resource == NONE) & (ops.work_ns > 0)
    is_call = np.isin(ops.kind, [OpKind.SYNC, OpKind.LAUNCH]) & ~is_kernel & ~is_start
    return np.asarray(is_kernel[src] & is_call[dst])
