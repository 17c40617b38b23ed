"""Overhead and time per byte of pieces, fitted to their costs for use by policies."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from augury.core.plan.problem import Network
from augury.costs.transfer_times import TransferCost

SMALLEST_BYTES = 1 << 16
SPAN = 32
"""Ratio of the largest to the smallest piece that the fit covers."""

_SIGMA_OF_MEDIAN = 1.4826

Floats = NDArray[np.float64]


def fit_link(
    cost: TransferCost,
    *,
    total_bytes: int,
    slowed: float = 1.0,
    during_compute: TransferCost | None = None,
    compute_ns: int = 0,
) -> Network:
    """Returns the network as a line through the costs of pieces. ``slowed`` is the factor of
    interference on all times; ``during_compute`` the extra time of a piece during compute, which
    lasts for ``compute_ns``."""

    def time_ns(size_bytes: float) -> float:
        alone_ns = max(1.0, cost.time_ns(int(size_bytes)))
        extra_ns = during_compute.time_ns(int(size_bytes)) if during_compute else 0.0
        # Pieces that leave after compute take no extra time.
        whole_ns = (alone_ns + extra_ns) * total_bytes / max(1.0, size_bytes)
        return alone_ns + extra_ns * min(1.0, compute_ns / whole_ns)

    # Policies choose neither pieces dominated by overhead nor pieces with negligible overhead.
    least_bytes = time_ns(SMALLEST_BYTES) / max(cost.ns_per_byte, 1e-9)
    first = min(max(least_bytes, SMALLEST_BYTES), max(total_bytes / SPAN, SMALLEST_BYTES))
    sizes = np.geomspace(first, max(min(SPAN * first, total_bytes), 2 * first), 24)
    overhead_ns, ns_per_byte = _line(sizes, np.array([time_ns(size) for size in sizes]))
    return Network(
        overhead_ns=round(overhead_ns * slowed),
        ns_per_byte=ns_per_byte * slowed,
        spread=_SIGMA_OF_MEDIAN * cost.residual,
    )


def _line(sizes: Floats, times: Floats) -> tuple[float, float]:
    """Fits a line by relative least squares, with neither figure negative."""
    design = np.column_stack([1 / times, sizes / times])
    (overhead_ns, ns_per_byte), *_ = np.linalg.lstsq(design, np.ones(len(sizes)), rcond=None)
    if overhead_ns >= 0:
        return float(overhead_ns), max(0.0, float(ns_per_byte))
    through = design[:, 1]
    return 0.0, float(through.sum() / (through @ through))
