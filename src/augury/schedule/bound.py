"""A step that no order of pieces can beat, whatever it slices, merges or splits."""

from __future__ import annotations

from math import floor

import numpy as np

from augury.core.problem import Problem, Scheme
from augury.schedule.least_makespan import Floats, least_makespan


def lower_bound(problem: Problem) -> int:
    """The largest of these, each of which holds for every order:

    - All compute is done by one thread.
    - What is released at r or later arrives no earlier than one message after r; after that its
      updates are still to be done, and forward from the first of its needs on.
    - A gradient has a head, its release, and a tail: from its arrival on its update, and forward
      from its need on, are still to come. Those with a tail of at least q (for every q) have to
      be carried whatever becomes of the others; no schedule has done that before the least
      makespan of their heads (see there), and q is still to come. Likewise those that are
      released at r or later, by the least makespan of their tails. Messages carry other bytes
      too, and start later than they could: neither makes them faster.

    An all-reduce as two halves bounds no worse. Against heads, let each first half grow by its
    second half's time, and what lies between shift by that: no head is violated, and the end is
    the same. Against tails, the other way round.

    With a parameter server the two links are the push's and the pull's. Windows, barriers and
    marks only take orders away. Times of messages are rounded up, so sums are not below these.
    """
    network = problem.network
    gradients = problem.gradients
    is_served = network.scheme is Scheme.PARAMETER_SERVER
    num_ways = 2 if is_served else 1
    head_ns = np.array([gradient.release_ns for gradient in gradients], np.float64)
    work_ns = network.ns_per_byte * np.array([gradient.size_bytes for gradient in gradients])
    update_ns = np.array([gradient.update_ns for gradient in gradients], np.float64)
    forward_ns = problem.forward_ns - np.array([gradient.need_ns for gradient in gradients])
    tail_ns = update_ns + forward_ns
    under_way_ns = float(num_ways * network.latency_ns)
    message_ns = under_way_ns + num_ways * network.overhead_ns

    latest_first = np.argsort(-head_ns, kind="stable")
    updates_ns = np.cumsum(update_ns[latest_first])
    longest_ns = np.maximum.accumulate(forward_ns[latest_first])
    best_ns = max(
        float(problem.compute_ns),
        float((head_ns[latest_first] + message_ns + updates_ns + longest_ns).max()),
    )
    for heads, tails in ((head_ns, tail_ns), (tail_ns, head_ns)):
        best_ns = _over_thresholds(
            heads, tails, work_ns, network.overhead_ns, is_served, under_way_ns, best_ns
        )
    return floor(best_ns * (1 - 1e-12))


def _over_thresholds(
    head_ns: Floats,
    tail_ns: Floats,
    work_ns: Floats,
    overhead_ns: float,
    is_pipelined: bool,
    under_way_ns: float,
    best_ns: float,
) -> float:
    order = np.argsort(head_ns, kind="stable")
    head_ns, tail_ns, work_ns = head_ns[order], tail_ns[order], work_ns[order]
    for threshold_ns in np.unique(tail_ns).tolist():
        is_in = tail_ns >= threshold_ns
        beside_ns = threshold_ns + under_way_ns
        makespan_ns = least_makespan(
            head_ns[is_in],
            work_ns[is_in],
            overhead_ns,
            is_pipelined=is_pipelined,
            at_least_ns=best_ns - beside_ns,
        )
        best_ns = max(best_ns, makespan_ns + beside_ns)
    return best_ns
