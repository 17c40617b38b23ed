"""Cost of a piece in a sequence of pieces, as opposed to a collective alone.

Two buckets of stock DDP are in flight at a time, so that part of the constant cost of a collective
is hidden behind its neighbour; pieces of a plan go one at a time. Where ranks have few processors,
each round of communication during compute waits for a core. That is measured (``--calibrate``) and
charged to pieces only while their rank computes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from augury.core.enums import OpKind, ResourceKind
from augury.core.graph.graph import RATE_ONE, Graph
from augury.core.ledger import Ledger, Severity
from augury.core.trace.trace import Calibration
from augury.costs.collective_costs import Costs
from augury.costs.transfer_times import TransferCost

ASSUMED_OVERHEAD_NS = 300_000
"""Constant cost of a collective over TCP between a few hosts. A run with buckets of one size does
not show it; without it the smallest pieces would always be best."""

VISIBLE_SHARE = 2 / 3
"""Share of a small collective's time that is not hidden while another one is in flight."""


def piece_costs(
    costs: Costs, calibration: Sequence[Calibration], ledger: Ledger, *, at_once: int = 1
) -> Costs:
    """Returns the time that a piece occupies the link while no rank computes, with ``at_once`` in
    flight. Small pieces are no faster per byte than large ones: a burst that a rate limiter lets
    through after a pause does not recur. Without calibration a constant cost is assumed."""
    if calibration:
        shown = VISIBLE_SHARE if at_once > 1 else 1.0
        return {kind: _at_least(cost, shown=shown) for kind, cost in costs.items()}
    cheap = [kind for kind, cost in costs.items() if min(cost.times_ns) < ASSUMED_OVERHEAD_NS]
    ledger.note(
        "overhead-assumed",
        "the run does not show the cost of a small piece: 0.3 ms are assumed for each",
        severity=Severity.WARNING,
        count=min(1, len(cheap)),
        remedy="record with --calibrate",
    )
    return {kind: _at_least(cost, least_ns=ASSUMED_OVERHEAD_NS) for kind, cost in costs.items()}


def _at_least(cost: TransferCost, *, shown: float = 1.0, least_ns: float = 0.0) -> TransferCost:
    times_ns = tuple(
        max(time_ns * shown, cost.ns_per_byte * size_bytes, least_ns)
        for size_bytes, time_ns in zip(cost.sizes_bytes, cost.times_ns, strict=True)
    )
    return replace(cost, times_ns=times_ns)


def extra_during_compute(
    graph: Graph, costs: Costs, calibration: Sequence[Calibration]
) -> TransferCost | None:
    """Returns the extra time of a piece while its rank computes, beyond the interference in the
    graph, which holds for long transfers. ``costs`` are those of pieces."""
    cost = costs.get(OpKind.ALL_REDUCE)
    found: dict[int, float] = {}
    for row in calibration:
        is_during_compute = row.concurrent == 1 and row.beside_compute and bool(row.durations_ns)
        if (
            cost is not None
            and is_during_compute
            and row.collective.upper() == OpKind.ALL_REDUCE.name
        ):
            took_ns = float(np.median(row.durations_ns))
            known_ns = cost.time_ns(row.size_bytes) / _transfer_rate_during_compute(graph)
            found[row.size_bytes] = max(0.0, took_ns - known_ns)
    if not any(found.values()):
        return None
    sizes = sorted(found)
    # The extra time does not grow with size.
    times = np.minimum.accumulate([found[size] for size in sizes])
    return TransferCost(
        sizes_bytes=tuple(sizes), times_ns=tuple(times.tolist()), ns_per_byte=0.0, residual=0.0
    )


def _transfer_rate_during_compute(graph: Graph) -> float:
    """Returns the rate of collectives while their rank computes."""
    rules, kinds = graph.interference, graph.resources.kind
    slowed = (kinds[rules.victim] == ResourceKind.COMMUNICATION) & (
        kinds[rules.aggressor] == ResourceKind.COMPUTE
    )
    return float(np.median(rules.rate[slowed])) / RATE_ONE if slowed.any() else 1.0


def compute_rate_during_communication(graph: Graph) -> float:
    """Returns the rate of compute while its rank communicates."""
    rules, kinds = graph.interference, graph.resources.kind
    slowed = (kinds[rules.victim] == ResourceKind.COMPUTE) & (
        kinds[rules.aggressor] == ResourceKind.COMMUNICATION
    )
    return float(np.median(rules.rate[slowed])) / RATE_ONE if slowed.any() else 1.0
