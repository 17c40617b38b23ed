"""What single pieces cost on the network, as the two figures that policies reckon with."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from augury.core.ledger import Ledger, Severity
from augury.core.problem import Network
from augury.core.trace import Calibration
from augury.costs.transfers import TransferCost
from augury.rewrite.network import Costs

SMALLEST_BYTES = 1 << 16
SPAN = 32
"""From the smallest pieces that matter to the largest."""

ASSUMED_OVERHEAD_NS = 300_000
"""Of a collective among a few hosts over TCP. A run whose buckets are all of one size cannot tell
what a small piece costs; taken to cost nothing, the smallest would always be best."""

_SIGMA_OF_MEDIAN = 1.4826


def piece_costs(costs: Costs, calibration: Sequence[Calibration], ledger: Ledger) -> Costs:
    """What pieces cost that follow each other without a pause: no more bytes in a second than large
    ones have, whatever a rate limit lets through after a rest. Where nobody measured what small
    ones cost, something is assumed."""
    is_guess = not calibration and any(
        min(cost.times_ns) < ASSUMED_OVERHEAD_NS for cost in costs.values()
    )
    if is_guess:
        ledger.note(
            "overhead-assumed",
            "the run does not tell what a small piece costs: 0.3 ms are assumed for each",
            severity=Severity.WARNING,
            remedy="record with --calibrate",
        )
    least_ns = ASSUMED_OVERHEAD_NS if is_guess else 0
    return {
        kind: replace(
            cost,
            times_ns=tuple(
                max(time_ns, cost.ns_per_byte * size_bytes, least_ns)
                for size_bytes, time_ns in zip(cost.sizes_bytes, cost.times_ns, strict=True)
            ),
        )
        for kind, cost in costs.items()
    }


def fit_link(cost: TransferCost, *, largest_bytes: int, slowed: float = 1.0) -> Network:
    """``slowed``: how many times as long everything takes beside compute. All of what a piece
    costs is taken to hold its link: two at once, of the sizes that matter, take as long as one
    after the other."""
    overhead_ns, ns_per_byte = _line(cost, largest_bytes)
    return Network(
        overhead_ns=round(overhead_ns * slowed),
        ns_per_byte=ns_per_byte * slowed,
        spread=_SIGMA_OF_MEDIAN * cost.residual,
    )


def _line(cost: TransferCost, largest_bytes: int) -> tuple[float, float]:
    """Through the cost at the sizes that matter; errors count relative to it. Pieces that cost more
    for being one than for their bytes are no good choice, nor are those beside which that is
    nothing."""
    least = cost.time_ns(0) / max(cost.ns_per_byte, 1e-9)
    first = min(max(least, SMALLEST_BYTES), max(largest_bytes / SPAN, SMALLEST_BYTES))
    sizes = np.geomspace(first, max(min(SPAN * first, largest_bytes), 2 * first), 24)
    times = np.array([max(1.0, cost.time_ns(int(size))) for size in sizes])
    design = np.column_stack([1 / times, sizes / times])
    (overhead_ns, ns_per_byte), *_ = np.linalg.lstsq(design, np.ones(len(sizes)), rcond=None)
    if overhead_ns >= 0:
        return float(overhead_ns), max(0.0, float(ns_per_byte))
    through = design[:, 1]
    return 0.0, float(through.sum() / (through @ through))
