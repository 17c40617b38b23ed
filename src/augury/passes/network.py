"""x."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from augury.core.enums import OpKind, ResourceKind
from augury.core.graph.graph import RATE_ONE, Graph, Interference
from augury.core.graph.graph_spec import MAX_WORK_NS
from augury.costs.collective_costs import Costs
from augury.costs.transfer_times import TransferCost

_NETWORK = (ResourceKind.COMMUNICATION, ResourceKind.LINK_OUT, ResourceKind.LINK_IN)

Changed = tuple[Graph, Costs]
"""The changed graph, and what communication costs in it: what the next change starts from."""


def change_bandwidth(graph: Graph, costs: Costs, factor: float) -> Changed:
    """Every link ``factor`` times as fast."""
    return with_costs(graph, costs, lambda _kind, cost: cost.changed(wire=1 / factor))


def change_latency(graph: Graph, costs: Costs, *, factor: float = 1.0, more_ns: int = 0) -> Changed:
    """The part of every collective that does not grow with its size, scaled, and ``more_ns``
    added for each of its rounds."""
    rounds = 2 * max(1, graph.num_ranks - 1)
    return with_costs(
        graph,
        costs,
        lambda kind, cost: cost.changed(
            rest=factor, more_ns=more_ns * (1 if kind == OpKind.SEND else rounds)
        ),
    )


def with_costs(
    graph: Graph, costs: Costs, change: Callable[[OpKind, TransferCost], TransferCost]
) -> Changed:
    """Every collective takes the share of its time that its changed cost has of the former one, so
    that the spread of its times stays."""
    ops = graph.ops
    work_ns = ops.work_ns.astype(np.float64)
    changed = {kind: change(kind, cost) for kind, cost in costs.items()}
    for kind, cost in costs.items():
        for size in np.unique(ops.size_bytes[ops.kind == kind]).tolist():
            where = (ops.kind == kind) & (ops.size_bytes == size)
            before_ns, now_ns = cost.time_ns(size), changed[kind].time_ns(size)
            work_ns[where] *= now_ns / before_ns if before_ns else 1.0
    # Beyond what a graph may hold it is refused there; it must only fit the column.
    columns = dict(ops.columns()) | {"work_ns": np.minimum(np.rint(work_ns), 2 * MAX_WORK_NS)}
    return keep_processor_time(graph, graph.evolve(ops=type(ops)(**columns))), changed


def keep_processor_time(old: Graph, new: Graph) -> Graph:
    """What communication takes from compute beside it is processor time for the same bytes:
    spread over a longer time it slows compute less, and more where it goes faster."""
    rules = new.interference
    rate = rules.rate.copy()
    on_network = np.isin(new.resources.kind, _NETWORK)
    for row, aggressor in enumerate(rules.aggressor.tolist()):
        before_ns, now_ns = _time_on(old, aggressor), _time_on(new, aggressor)
        if on_network[aggressor] and before_ns and now_ns:
            taken = (RATE_ONE - int(rate[row])) * before_ns / now_ns
            rate[row] = min(RATE_ONE, max(RATE_ONE // 10, round(RATE_ONE - taken)))
    return new.evolve(
        interference=Interference(victim=rules.victim, aggressor=rules.aggressor, rate=rate)
    )


def _time_on(graph: Graph, resource: int) -> int:
    return int(graph.ops.work_ns[graph.ops.resource == resource].sum())
