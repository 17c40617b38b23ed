"""Collectives scaled to changed costs."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from augury.core.enums import OpKind
from augury.core.graph.graph import Graph
from augury.core.graph.graph_spec import MAX_WORK_NS
from augury.costs.collective_costs import Costs
from augury.costs.transfer_times import TransferCost
from augury.passes.processor_time import keep_processor_time


def with_costs(graph: Graph, costs: Costs, new_costs: Mapping[OpKind, TransferCost]) -> Graph:
    """Scales each collective by the ratio of its new to its old cost, so that the variation of
    recorded times stays."""
    ops = graph.ops
    work_ns = ops.work_ns.astype(np.float64)
    for kind, cost in costs.items():
        for size in np.unique(ops.size_bytes[ops.kind == kind]).tolist():
            where = (ops.kind == kind) & (ops.size_bytes == size)
            before_ns, now_ns = cost.time_ns(size), new_costs[kind].time_ns(size)
            work_ns[where] *= now_ns / before_ns if before_ns else 1.0
    # A graph's spec refuses works beyond its limit; here they only have to fit the column.
    columns = dict(ops.columns()) | {"work_ns": np.minimum(np.rint(work_ns), 2 * MAX_WORK_NS)}
    return keep_processor_time(graph, graph.evolve(ops=type(ops)(**columns)))
