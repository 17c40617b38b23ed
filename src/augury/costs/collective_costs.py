"""Costs of collectives by kind and size, fitted from a graph and from calibration."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from augury.core.enums import OpKind
from augury.core.errors import InputError
from augury.core.graph.graph import NONE, Graph
from augury.core.trace.trace import Calibration
from augury.costs.transfer_times import Sample, TransferCost, fit_transfers

Costs = dict[OpKind, TransferCost]
"""Cost of a collective, by kind."""


def fit_network(graph: Graph, calibration: Sequence[Calibration] = ()) -> Costs:
    """Fits costs to the collectives of a graph and to calibration."""
    ops = graph.ops
    costs: Costs = {}
    alone = _calibrated(calibration)
    for kind in sorted({*ops.kind.tolist(), *alone}):
        if not OpKind(kind).is_communication:
            continue
        # One member represents its gang.
        rows = np.flatnonzero(ops.kind == kind)
        first = np.unique(np.where(ops.gang[rows] == NONE, -1 - rows, ops.gang[rows]), True)[1]
        own: list[Sample] = [
            (int(ops.size_bytes[row]), float(ops.work_ns[row])) for row in rows[first].tolist()
        ]
        fitted = fit_transfers(own, alone.get(OpKind(kind), []))
        if fitted:
            costs[OpKind(kind)] = fitted
    return costs


def calibrated_costs(calibration: Sequence[Calibration]) -> Costs:
    """Returns the costs of collectives alone on the recorded network, by calibration only."""
    fitted = {kind: fit_transfers([], rows) for kind, rows in _calibrated(calibration).items()}
    return {kind: cost for kind, cost in fitted.items() if cost is not None}


def _calibrated(calibration: Sequence[Calibration]) -> dict[OpKind, list[Sample]]:
    found: dict[OpKind, list[Sample]] = {}
    for row in calibration:
        kind = OpKind.__members__.get(row.collective.upper())
        if kind is not None and row.concurrent == 1 and not row.beside_compute:
            found.setdefault(kind, []).extend(
                (row.size_bytes, float(ns)) for ns in row.durations_ns
            )
    return found


def link_rate(graph: Graph, costs: Costs) -> float:
    """Returns the bytes per second that one rank sends during an all-reduce."""
    num_ranks = graph.num_ranks
    exchanged = costs.get(OpKind.SEND) if num_ranks == 2 else None
    cost = costs.get(OpKind.ALL_REDUCE, exchanged)
    if cost is None or cost.ns_per_byte <= 0 or num_ranks < 2:
        raise InputError(
            "the bandwidth of the graph's links is unknown",
            remedy="give the bandwidth as a factor on the present one: 0.5x",
        )
    return 2 * (num_ranks - 1) / num_ranks / cost.ns_per_byte * 1e9
