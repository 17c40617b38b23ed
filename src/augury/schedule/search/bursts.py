"""Finds bursts of gradients in their release times.

Bursts come from bulk execution, a compiled backward graph, buckets or units of FSDP.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from augury.core.plan.problem import Problem
from augury.schedule.order_parts import release_order

LEAST_GAP_NS = 1_000
"""Shorter gaps cannot be measured and count as equal."""
LEAST_SHARE = 0.8
"""Share of the variance of gaps, on a logarithmic scale, that two kinds of gaps must explain. The
best cut through one normal distribution explains 0.64 of it, through a uniform one 0.75."""
LEAST_RATIO = 5.0
"""Least ratio of the geometric means of the two kinds."""
LEAST_JUMP = 4.0
LEAST_BELOW = 0.3
"""Where bursts are few, their gaps explain little variance. Then the two kinds must differ by this
factor, with no gap in between, and at least this share of gaps must lie within bursts."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Burst:
    gradients: tuple[int, ...]
    """Indices of the gradients in the Problem, in the order of release."""
    begin_ns: int
    end_ns: int


def find_bursts(problem: Problem) -> tuple[Burst, ...]:
    """Returns the bursts: cut at gaps of the longer of two kinds; every gradient by itself where
    all gaps are of one kind. Unlike a multiple of the mean gap, this is robust to one very long gap
    and to bursts of many gradients."""
    coming = release_order(problem)
    release_ns = [problem.gradients[place].release_ns for place in coming]
    spread_ns = [problem.gradients[place].spread_ns for place in coming]
    gaps_ns = np.diff(np.array(release_ns, np.float64))
    longest_within_ns = _longest_within(gaps_ns, noise_ns=float(np.median(spread_ns)))
    edges = [0, *(np.flatnonzero(gaps_ns > longest_within_ns) + 1).tolist(), len(coming)]
    return tuple(
        Burst(
            gradients=tuple(coming[begin:end]),
            begin_ns=release_ns[begin],
            end_ns=release_ns[end - 1],
        )
        for begin, end in pairwise(edges)
    )


def _longest_within(gaps_ns: NDArray[np.float64], *, noise_ns: float) -> float:
    """Returns the cut through the logarithms of gaps that explains most of their variance."""
    floor_ns = max(LEAST_GAP_NS, noise_ns)
    logs = np.sort(np.log(np.maximum(gaps_ns, floor_ns)))
    number = len(logs)
    if number < 2 or logs[0] == logs[-1]:
        return 0.0
    below = np.arange(1, number)
    sums = np.cumsum(logs)
    low = sums[:-1] / below
    high = (sums[-1] - sums[:-1]) / (number - below)
    explained = below * (number - below) * (high - low) ** 2 / number
    cut = int(explained.argmax())
    share = explained[cut] / ((logs - logs.mean()) ** 2).sum()
    if share < LEAST_SHARE or high[cut] - low[cut] < np.log(LEAST_RATIO):
        is_wide = (np.diff(logs) >= np.log(LEAST_JUMP)) & (below >= LEAST_BELOW * number)
        if not is_wide.any():
            return 0.0
        cut = int(is_wide.argmax())
    return float(np.exp((logs[cut] + logs[cut + 1]) / 2))
