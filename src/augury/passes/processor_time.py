"""Processor time that communication takes from compute, after a change of communication."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from augury.build.recorded.interference import calibrated_compute_rate
from augury.core.columns import I8
from augury.core.enums import OpKind, ResourceKind
from augury.core.graph.graph import RATE_ONE, Graph, Interference
from augury.core.trace.trace import Calibration
from augury.costs.collective_costs import Costs, calibrated_costs

NETWORK = (ResourceKind.COMMUNICATION, ResourceKind.LINK_OUT, ResourceKind.LINK_IN)
SLOWEST = RATE_ONE // 10
"""Lower limit of the rate of compute during communication."""


def keep_processor_time(old: Graph, new: Graph, *, of: Sequence[ResourceKind] = NETWORK) -> Graph:
    """Returns ``new`` with interference by communication rescaled. Communication takes the same
    processor time for the same bytes: if it lasts longer it slows concurrent compute less, if it is
    faster it slows compute more. ``of`` are the kinds of the resources that it occupies."""
    return _rescaled(old, new, of, {})


def charge_collectives(
    old: Graph, new: Graph, *, costs: Costs, calibration: Sequence[Calibration]
) -> Graph:
    """The same, where ``new`` carries the bytes in other collectives. Fewer collectives take less
    processor time: it is spent on bytes, with the share that large ones show, and on collectives.
    More of them are not charged: how much more is not measured."""
    rules = old.interference
    charged: dict[int, float] = {}
    large, recorded = calibrated_compute_rate(calibration), calibrated_costs(calibration)
    for victim, aggressor, rate in zip(
        rules.victim.tolist(), rules.aggressor.tolist(), rules.rate.tolist(), strict=True
    ):
        if old.resources.kind[victim] != ResourceKind.COMPUTE:
            continue
        rows, new_rows = _sized(old, aggressor), _sized(new, aggressor)
        share = 1 - rate / RATE_ONE
        taken_ns = share * _work_on(old, aggressor)
        if not len(rows) or not len(new_rows) or taken_ns <= 0:
            continue
        if large is None:
            of_bytes_ns = share * _wire_ns(old, rows, costs)
        else:  # on the recorded network, which the scene's may no longer be
            of_bytes_ns = (1 - large) * _wire_ns(old, rows, recorded)
        of_bytes_ns = min(taken_ns, of_bytes_ns)
        of_each_ns = (taken_ns - of_bytes_ns) / len(rows)
        charged[aggressor] = min(1.0, (of_bytes_ns + of_each_ns * len(new_rows)) / taken_ns)
    return _rescaled(old, new, NETWORK, charged)


def rate_after(graph: Graph, rank: int, rate: int, before_ns: float, now_ns: float) -> int:
    """Returns the rate of compute if the processor time that the rank's communication took in
    ``before_ns`` is taken in ``now_ns``. Where the run recorded the processor time of its
    communication, the error of a calibrated rate does not multiply beyond that."""
    share, used_ns = RATE_ONE - rate, graph.communication_cpu_ns
    taken = share * before_ns / now_ns
    if taken > share and 0 <= rank < len(used_ns):
        taken = min(taken, max(share, RATE_ONE * used_ns[rank] / now_ns))
    return min(RATE_ONE, max(SLOWEST, round(RATE_ONE - taken)))


def _rescaled(
    old: Graph, new: Graph, of: Sequence[ResourceKind], charged: dict[int, float]
) -> Graph:
    rules = new.interference
    rate = rules.rate.copy()
    on_network = np.isin(new.resources.kind, of)
    for row, aggressor in enumerate(rules.aggressor.tolist()):
        before_ns, now_ns = _work_on(old, aggressor), _work_on(new, aggressor)
        if on_network[aggressor] and before_ns and now_ns:
            taken_ns = charged.get(aggressor, 1.0) * before_ns
            rank = int(new.resources.rank[aggressor])
            rate[row] = rate_after(old, rank, int(rate[row]), taken_ns, now_ns)
    return new.evolve(
        interference=Interference(victim=rules.victim, aggressor=rules.aggressor, rate=rate)
    )


def _work_on(graph: Graph, resource: int) -> int:
    """Returns the total work of a resource, in nanoseconds."""
    return int(graph.ops.work_ns[graph.ops.resource == resource].sum())


def _sized(graph: Graph, resource: int) -> I8:
    return np.flatnonzero((graph.ops.resource == resource) & (graph.ops.size_bytes > 0))


def _wire_ns(graph: Graph, rows: I8, costs: Costs) -> float:
    ops = graph.ops
    return sum(
        cost.wire_ns(size)
        for kind, size in zip(ops.kind[rows].tolist(), ops.size_bytes[rows].tolist(), strict=True)
        if (cost := costs.get(OpKind(kind))) is not None
    )
