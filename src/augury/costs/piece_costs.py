"""What a piece costs that others precede and follow: not what a collective takes alone.

Stock DDP's buckets are under way two at a time, so what a collective takes beyond its bytes is
partly hidden behind its neighbours; the pieces of a plan go one at a time. And where ranks have
few processors to themselves, communication that runs beside compute waits for them, round by
round: that is measured (``--calibrate``), and charged to pieces only while their rank computes.
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
"""Of a collective among a few hosts over TCP. A run whose buckets are all of one size cannot tell
what a small piece costs; taken to cost nothing, the smallest would always be best."""

SHOWN = 2 / 3
"""What is left of a small collective's time where another one is under way beside it."""


def piece_costs(
    costs: Costs, calibration: Sequence[Calibration], ledger: Ledger, *, at_once: int = 1
) -> Costs:
    """How long pieces hold the link while no rank computes, so many ``at_once``. No more bytes in
    a second than large ones have, whatever a rate limit lets through after a rest. Where nobody
    measured what small ones cost, something is assumed."""
    if calibration:
        shown = SHOWN if at_once > 1 else 1.0
        return {kind: _at_least(cost, shown=shown) for kind, cost in costs.items()}
    cheap = [kind for kind, cost in costs.items() if min(cost.times_ns) < ASSUMED_OVERHEAD_NS]
    ledger.note(
        "overhead-assumed",
        "the run does not tell what a small piece costs: 0.3 ms are assumed for each",
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
    """What a piece takes longer while its rank computes, beyond what the graph's interference says
    of long transfers. ``costs`` are those of pieces."""
    cost = costs.get(OpKind.ALL_REDUCE)
    found: dict[int, float] = {}
    for row in calibration:
        is_beside = row.concurrent == 1 and row.beside_compute and bool(row.durations_ns)
        if cost is not None and is_beside and row.collective.upper() == OpKind.ALL_REDUCE.name:
            took_ns = float(np.median(row.durations_ns))
            known_ns = cost.time_ns(row.size_bytes) / _rate_beside(graph)
            found[row.size_bytes] = max(0.0, took_ns - known_ns)
    if not any(found.values()):
        return None
    sizes = sorted(found)
    # What is hidden behind many bytes is not there again behind more of them.
    times = np.minimum.accumulate([found[size] for size in sizes])
    return TransferCost(
        sizes_bytes=tuple(sizes), times_ns=tuple(times.tolist()), ns_per_byte=0.0, residual=0.0
    )


def _rate_beside(graph: Graph) -> float:
    """At which collectives progress while their rank computes."""
    rules, kinds = graph.interference, graph.resources.kind
    slowed = (kinds[rules.victim] == ResourceKind.COMMUNICATION) & (
        kinds[rules.aggressor] == ResourceKind.COMPUTE
    )
    return float(np.median(rules.rate[slowed])) / RATE_ONE if slowed.any() else 1.0


def compute_rate_during_communication(graph: Graph) -> float:
    """At which compute goes on with communication beside it."""
    rules, kinds = graph.interference, graph.resources.kind
    slowed = (kinds[rules.victim] == ResourceKind.COMPUTE) & (
        kinds[rules.aggressor] == ResourceKind.COMMUNICATION
    )
    return float(np.median(rules.rate[slowed])) / RATE_ONE if slowed.any() else 1.0
