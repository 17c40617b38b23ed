"""Collectives scaled to changed costs, with the processor time that they take from compute."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from augury.core.enums import OpKind, ResourceKind
from augury.core.graph.graph import RATE_ONE, Graph, Interference
from augury.core.graph.graph_spec import MAX_WORK_NS
from augury.costs.collective_costs import Costs
from augury.costs.transfer_times import TransferCost

_NETWORK = (ResourceKind.COMMUNICATION, ResourceKind.LINK_OUT, ResourceKind.LINK_IN)


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


def keep_processor_time(old: Graph, new: Graph, *, of: Sequence[ResourceKind] = _NETWORK) -> Graph:
    """Returns ``new`` with interference by communication rescaled. Communication takes the same
    processor time for the same bytes: if it lasts longer it slows concurrent compute less, if it is
    faster it slows compute more. ``of`` are the kinds of the resources that it occupies."""
    rules = new.interference
    rate = rules.rate.copy()
    on_network = np.isin(new.resources.kind, of)
    for row, aggressor in enumerate(rules.aggressor.tolist()):
        before_ns, now_ns = _work_on(old, aggressor), _work_on(new, aggressor)
        if on_network[aggressor] and before_ns and now_ns:
            taken = (RATE_ONE - int(rate[row])) * before_ns / now_ns
            rate[row] = min(RATE_ONE, max(RATE_ONE // 10, round(RATE_ONE - taken)))
    return new.evolve(
        interference=Interference(victim=rules.victim, aggressor=rules.aggressor, rate=rate)
    )


def _work_on(graph: Graph, resource: int) -> int:
    """Returns the total work of a resource, in nanoseconds."""
    return int(graph.ops.work_ns[graph.ops.resource == resource].sum())
