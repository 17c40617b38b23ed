"""A graph whose ranks share processor cores: ranks that compute at the same time divide a core."""

from __future__ import annotations

import numpy as np

from augury.core.enums import ResourceKind
from augury.core.graph.graph import NONE, RATE_ONE, Graph


def on_shared_cores(graph: Graph, cores: int) -> Graph:
    """Assigns ranks to cores round-robin, as on the bed."""
    resources, ops = graph.resources, graph.ops
    is_compute = resources.kind == ResourceKind.COMPUTE
    num_sharing = -(-len(graph.ranks) // cores)
    if num_sharing == 1:
        return graph
    of_core: dict[int, int] = {}
    moved = np.arange(len(resources))
    for index in np.flatnonzero(is_compute).tolist():
        core = int(resources.rank[index]) % cores
        moved[index] = of_core.setdefault(core, index)
    is_core = np.isin(np.arange(len(resources)), list(of_core.values()))
    columns = dict(resources.columns())
    columns["rank"] = np.where(is_core, NONE, resources.rank).astype(resources.rank.dtype)
    columns["capacity"] = np.where(is_core, RATE_ONE, resources.capacity)
    columns["width"] = np.where(is_core, num_sharing, resources.width).astype(resources.width.dtype)
    taken = np.append(moved, NONE)[ops.resource].astype(ops.resource.dtype)
    return graph.evolve(
        resources=type(resources)(**columns),
        ops=type(ops)(**{**dict(ops.columns()), "resource": taken}),
    )
