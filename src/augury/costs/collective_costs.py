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

_SHARED = (OpKind.REDUCE_SCATTER, OpKind.ALL_GATHER, OpKind.ALL_TO_ALL)
_RATED = (OpKind.ALL_REDUCE, *_SHARED, OpKind.BROADCAST, OpKind.SEND)
"""Kinds whose times show the bandwidth of links; the first one where all move equally much."""
_SMALLEST_BYTES = 1 << 10
"""Smaller ones, such as norms and counts, say nothing about bandwidth."""


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


def bus_factor(kind: OpKind, num_ranks: int) -> float:
    """Bytes that pass the link of each rank, over the bytes of the tensor."""
    share = (num_ranks - 1) / max(1, num_ranks)
    if kind is OpKind.ALL_REDUCE:
        return 2 * share
    return share if kind in _SHARED else 1.0


def link_rate(graph: Graph, costs: Costs) -> float:
    """Returns the bytes per second that one rank sends during the collectives that move most of
    the graph's bytes."""
    kind = _kind_of_most_bytes(graph)
    cost = costs.get(kind)
    unknown = "the bandwidth of the graph's links is unknown"
    if cost is not None and cost.sizes_bytes[-1] < _SMALLEST_BYTES:
        unknown += ": no size of at least 1 KiB was recorded"
    elif cost is not None and cost.ns_per_byte > 0 and graph.num_ranks > 1:
        on_link = _bytes_on_link(graph, kind)
        if on_link > 0:  # a group of one rank sends nothing
            return on_link / cost.ns_per_byte * 1e9
    raise InputError(unknown, remedy="give the bandwidth as a factor on the present one: 0.5x")


def _kind_of_most_bytes(graph: Graph) -> OpKind:
    moved = {kind: float(graph.ops.size_bytes[graph.ops.kind == kind].sum()) for kind in _RATED}
    return max(moved, key=moved.__getitem__)


def _bytes_on_link(graph: Graph, kind: OpKind) -> float:
    """Returns the bytes that pass the link of a rank, for a byte of a tensor: the mean over the
    collectives of this kind, by their bytes."""
    ops = graph.ops
    rows = np.flatnonzero(ops.kind == kind)
    if kind is OpKind.SEND or not ops.size_bytes[rows].any():
        return bus_factor(kind, graph.num_ranks)
    num_members = np.diff(graph.gang_members.first)
    gang = ops.gang[rows]
    size = np.where(gang == NONE, graph.num_ranks, num_members[gang] if len(num_members) else 0)
    factor = [bus_factor(kind, int(members)) for members in size]
    return float(np.average(factor, weights=ops.size_bytes[rows]))
