"""How soon messages of any sizes can have carried everything: what bounds are made of.

Jobs are bytes: ``work_ns`` is what they hold the link for, each message costs ``overhead_ns``
more, and carries only what is there (``head_ns``) when it starts.

One link. Of any schedule with m messages, let message i start at s_i, and let c_i be the latest
head not after s_i. What comes after c_i is in the m - i messages behind it, which start no
earlier than c_(i+1), and so does everything behind nothing:

    end >= c_(i+1) + overhead (m - i) + work with a head after c_i      for i = 0 .. m - 1

(c_0 being before all heads). The least end for which some chain c_1 <= ... <= c_m, with c_m the
last head, satisfies all of these is therefore a lower bound; and it can be reached, by messages
that start at the c_i and end where the next begins.

Pipelined: every message goes over two links, for the same time on each. Of the n = m - i messages
behind i let k be the longest, and l the one that is first on the second link among k and those
behind k on the first. Whatever is behind l on the first link is behind l on the second too; k is
not behind l on the first, and not before l on the second. So the path over the first link up to l
and over the second from l on has every message at least once, and k twice, and k has at least an
n-th of the work: ``overhead (n + 1) + work (1 + 1 / n)`` instead.

By symmetry in time, all of this holds for tails instead of heads.
"""

from __future__ import annotations

from math import sqrt

import numpy as np
from numpy.typing import NDArray

try:
    from augury._native import least_makespan as _least_makespan
except ImportError:  # no compiler where this was installed
    _least_makespan = None  # type: ignore[assignment]

Floats = NDArray[np.float64]


def least_makespan(
    head_ns: Floats,
    work_ns: Floats,
    overhead_ns: float,
    *,
    is_pipelined: bool = False,
    at_least_ns: float = 0.0,
) -> float:
    """Heads must not fall. ``at_least_ns``, if that is enough: asked for more than one set of
    jobs, only those that need more take time."""
    compute = _least_makespan or in_python
    return compute(head_ns, work_ns, overhead_ns, is_pipelined, at_least_ns)


def in_python(
    head_ns: Floats, work_ns: Floats, overhead_ns: float, is_pipelined: bool, at_least_ns: float
) -> float:
    heads, first = np.unique(head_ns, return_index=True)
    all_ns = float(work_ns.sum())
    after_ns = all_ns - np.cumsum(np.add.reduceat(work_ns, first))
    after_ns[-1] = 0.0
    most_messages = len(heads) + (sqrt(all_ns / max(overhead_ns, 1e-9)) if is_pipelined else 0)

    def time_ns(count: int, carried_ns: Floats | float) -> Floats | float:
        if is_pipelined:
            return overhead_ns * (count + 1) + carried_ns * (1 + 1 / count)
        return overhead_ns * count + carried_ns

    def is_enough(limit_ns: float) -> bool:
        """``can``: from a message that starts there, with ``count`` messages, this one included."""
        can = np.zeros(len(heads), bool)
        can[-1] = True
        for count in range(1, int(most_messages) + 1):
            if heads[can.argmax()] + time_ns(count, all_ns) <= limit_ns:
                return True
            places = np.where(can, np.arange(len(heads)), len(heads))
            following = heads[np.minimum.accumulate(places[::-1])[::-1]]
            can = following + time_ns(count, after_ns) <= limit_ns
            can[-1] = True
        return False

    if is_enough(at_least_ns):
        return at_least_ns
    low, high = at_least_ns, float(heads[-1] + time_ns(1, all_ns))
    while high - low > 0.25 and high - low > 1e-9 * high:
        middle = low + (high - low) / 2
        low, high = (low, middle) if is_enough(middle) else (middle, high)
    return low
