"""Cuts the bytes left after backward into as few messages as a step allows, by priority.

For a given step every gradient has a deadline. Each message is as long as the deadline of the first
gradient that it completes allows: any other choice leaves less time or more bytes to later ones.
Bisection finds the least step for which all deadlines hold.
"""

from __future__ import annotations

from bisect import bisect_right
from math import inf

import numpy as np

from augury.schedule.search.search_inputs import Floats, Terms

_PRECISION = 1e-4
_EPSILON_NS = 1e-3


def cut_rest(
    terms: Terms,
    rest_ns: Floats,
    tail_ns: Floats,
    *,
    begin_ns: float,
    between_ns: tuple[float, float],
    most_ns: float = inf,
) -> list[float] | None:
    """Returns the sizes of messages, as the time of their bytes, none above ``most_ns``, for the
    least step within ``between_ns``; None if there is none."""
    places = np.flatnonzero(rest_ns > 0)
    ends_ns = np.cumsum(rest_ns[places]).tolist()
    late_ns = (tail_ns[places] + terms.latency_ns).tolist()
    low_ns, high_ns = between_ns
    found = _sizes(terms, ends_ns, late_ns, begin_ns, high_ns, most_ns)
    while found is not None and high_ns - low_ns > _PRECISION * high_ns:
        step_ns = (low_ns + high_ns) / 2
        sizes = _sizes(terms, ends_ns, late_ns, begin_ns, step_ns, most_ns)
        if sizes is None:
            low_ns = step_ns
        else:
            found, high_ns = sizes, step_ns
    return found


def _sizes(
    terms: Terms,
    ends_ns: list[float],
    late_ns: list[float],
    begin_ns: float,
    step_ns: float,
    most_ns: float,
) -> list[float] | None:
    overhead_ns, latency_ns = terms.overhead_ns, terms.latency_ns
    total_ns = ends_ns[-1]
    sizes: list[float] = []
    sent_ns = 0.0
    free_ns = back_ns = begin_ns
    while sent_ns < total_ns - _EPSILON_NS:
        nth = bisect_right(ends_ns, sent_ns + _EPSILON_NS)
        due_ns = step_ns - late_ns[nth]
        if terms.is_served:
            size_ns = min(
                due_ns - back_ns - overhead_ns,
                (due_ns - free_ns - latency_ns - 2 * overhead_ns) / (2 + terms.server_share),
            )
        else:
            size_ns = due_ns - free_ns - overhead_ns
        size_ns = min(size_ns, most_ns, total_ns - sent_ns)
        completes = size_ns >= ends_ns[nth] - sent_ns - _EPSILON_NS
        if size_ns <= 0 or not (completes or size_ns == most_ns):
            return None
        sizes.append(size_ns)
        sent_ns += size_ns
        free_ns += overhead_ns + size_ns
        there_ns = free_ns + latency_ns + terms.server_share * size_ns
        back_ns = max(back_ns, there_ns) + overhead_ns + size_ns
    return sizes
