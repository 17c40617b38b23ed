"""Fits a Network, with an overhead and a time per byte, to the costs of pieces, for policies."""

from __future__ import annotations

from collections.abc import Sequence

from augury.core.plan.problem import Network
from augury.costs.relative_line import relative_line, relative_slope
from augury.costs.transfer_times import TransferCost

SMALLEST_BYTES = 1 << 16
"""Lower limit of the smallest piece that the fit covers."""
SPAN = 32
"""Ratio of the largest to the smallest piece that the fit covers."""
NUM_SIZES = 24
"""Number of sizes between them that the line is fitted to."""

_SIGMA_PER_MEDIAN_DEVIATION = 1.4826
"""Standard deviation of a normal distribution, divided by its median absolute deviation."""


def fit_link(
    cost: TransferCost,
    *,
    total_bytes: int,
    slowdown: float = 1.0,
    during_compute: TransferCost | None = None,
    compute_ns: int = 0,
) -> Network:
    """Returns the Network that approximates the costs of pieces by a line over their size.

    Interference multiplies all times by ``slowdown``. A piece that is sent during compute takes the
    extra time ``during_compute``; a step computes for ``compute_ns`` and sends ``total_bytes``."""

    def time_ns(size_bytes: float) -> float:
        alone_ns = max(1.0, cost.time_ns(int(size_bytes)))
        extra_ns = during_compute.time_ns(int(size_bytes)) if during_compute else 0.0
        # Only pieces that are sent during compute take the extra time: it counts for their share.
        all_pieces_ns = (alone_ns + extra_ns) * total_bytes / max(1.0, size_bytes)
        return alone_ns + extra_ns * min(1.0, compute_ns / all_pieces_ns)

    # The fit covers the sizes that policies choose. They avoid pieces that are mostly overhead, and
    # pieces so large that overhead is negligible.
    balanced_bytes = time_ns(SMALLEST_BYTES) / max(cost.ns_per_byte, 1e-9)
    first_bytes = max(SMALLEST_BYTES, min(balanced_bytes, total_bytes / SPAN))
    last_bytes = max(min(SPAN * first_bytes, total_bytes), 2 * first_bytes)
    ratio = last_bytes / first_bytes
    sizes = [first_bytes * ratio ** (nth / (NUM_SIZES - 1)) for nth in range(NUM_SIZES)]
    overhead_ns, ns_per_byte = _fit_line(sizes, [time_ns(size) for size in sizes])
    return Network(
        overhead_ns=round(overhead_ns * slowdown),
        ns_per_byte=ns_per_byte * slowdown,
        spread=_SIGMA_PER_MEDIAN_DEVIATION * cost.residual,
    )


def _fit_line(sizes: Sequence[float], times: Sequence[float]) -> tuple[float, float]:
    """Returns the overhead and the time per byte of the line with the least squared relative
    errors. Neither is negative."""
    overhead_ns, ns_per_byte = relative_line(sizes, times)
    if overhead_ns < 0:
        return 0.0, relative_slope(sizes, times)
    # Where all pieces take equally long, the slope is an error of rounding.
    is_flat = ns_per_byte * sizes[-1] < 1
    return overhead_ns, 0.0 if is_flat else ns_per_byte
