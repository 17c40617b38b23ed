"""Faster or slower compute, and ranks that are all as fast as the fastest."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from augury.core.columns import I8
from augury.core.enums import ResourceKind, are_communication
from augury.core.graph.graph import RATE_ONE, Graph, Interference


def scale_compute(graph: Graph, factor: float, ranks: Iterable[int] | None = None) -> Graph:
    """Compute of these ranks (all, if none are named) takes ``factor`` times as long, and
    communication takes that much more of its processors."""
    chosen = np.zeros(len(graph.ranks), dtype=bool)
    chosen[list(ranks) if ranks is not None else slice(None)] = True
    return _with_work(
        graph,
        np.where(chosen[graph.ops.rank] & ~are_communication(graph.ops.kind), factor, 1.0),
        np.where(chosen, factor, 1.0),
    )


def without_stragglers(graph: Graph) -> Graph:
    """In every step every rank computes as long as the fastest one typically does."""
    ops = graph.ops
    compute = ~are_communication(graph.ops.kind) & (ops.step >= 0)
    steps, step = np.unique(ops.step, return_inverse=True)
    total = np.zeros((len(graph.ranks), len(steps)))
    np.add.at(total, (ops.rank[compute], step[compute]), ops.work_ns[compute])
    typical = np.array([np.median(row[row > 0]) if (row > 0).any() else 0.0 for row in total])
    fastest = min(typical[typical > 0], default=0.0)
    factor = np.ones(graph.num_ops)
    own = total[ops.rank, step]
    busy = compute & (own > 0)
    factor[busy] = fastest / own[busy]
    return _with_work(graph, factor, np.ones(len(graph.ranks)))


def _with_work(
    graph: Graph,
    of_op: np.ndarray[tuple[int], np.dtype[np.float64]],
    of_rank: np.ndarray[tuple[int], np.dtype[np.float64]],
) -> Graph:
    ops, rules, resources = graph.ops, graph.interference, graph.resources
    work_ns: I8 = np.rint(ops.work_ns * of_op).astype(np.int64)
    rate = rules.rate.copy()
    for row in range(len(rules)):
        victim = int(rules.victim[row])
        rank = int(resources.rank[victim])
        if resources.kind[victim] == ResourceKind.COMPUTE and rank >= 0:
            taken = (RATE_ONE - int(rate[row])) * of_rank[rank]
            rate[row] = min(RATE_ONE, max(RATE_ONE // 10, round(RATE_ONE - taken)))
    # A zero-work operation that held a place would take a round of its own.
    resource = np.where((work_ns == 0) & (ops.gang < 0), -1, ops.resource)
    columns = dict(ops.columns()) | {"work_ns": work_ns, "resource": resource}
    return graph.evolve(
        ops=type(ops)(**columns),
        interference=Interference(victim=rules.victim, aggressor=rules.aggressor, rate=rate),
    )
