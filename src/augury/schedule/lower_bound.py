"""Lower bound on the step of every order of pieces, however it slices, merges or splits."""

from __future__ import annotations

from math import ceil

import numpy as np

from augury.core.plan.problem import Problem, Scheme
from augury.schedule.least_step import Floats, least_step

MAX_THRESHOLDS = 48


def lower_bound(problem: Problem) -> int:
    """Returns the largest of these bounds, each of which holds for every order:

    - All compute is done by one thread.
    - Gradients released at r or later arrive no earlier than one message after r; their updates
      and forward from the first of their needs on follow.
    - The bytes of a gradient are jobs: its release is their head; their tail is its update, and
      forward from its need on. Jobs with a tail of at least some threshold, and jobs with a head
      of at least some threshold, must be carried in every order: see ``least_step``.

    With a parameter server the two links in a row are the push's and the pull's. An all-reduce in
    two halves is two messages, each with half the overhead: with that both heads and tails are
    considered. With the whole overhead only one of them is, the other being the same for all:
    then halves gain nothing. Against heads, let each first half grow by its second half's time, and
    what lies between the two shift by that: no head is violated, and the end is the same. Against
    tails, the other way round.

    Windows, barriers and marks only take orders away. Messages carry other bytes too, which does
    not make them faster. Times of messages are rounded up, so their sums are not below these.
    """
    network, gradients = problem.network, problem.gradients
    is_served = network.scheme is Scheme.PARAMETER_SERVER
    num_ways = 2 if is_served else 1
    head_ns = np.array([gradient.release_ns for gradient in gradients], np.float64)
    work_ns = network.ns_per_byte * np.array([gradient.size_bytes for gradient in gradients])
    update_ns = np.array([gradient.update_ns for gradient in gradients], np.float64)
    forward_ns = problem.forward_ns - np.array([gradient.need_ns for gradient in gradients])
    latencies_ns = float(num_ways * network.latency_ns)
    message_ns = latencies_ns + num_ways * network.overhead_ns

    latest_first = np.argsort(-head_ns, kind="stable")
    updates_ns = np.cumsum(update_ns[latest_first])
    longest_ns = np.maximum.accumulate(forward_ns[latest_first])
    best_ns = max(
        float(problem.compute_ns),
        float((head_ns[latest_first] + message_ns + updates_ns + longest_ns).max()),
    )
    best_ns -= latencies_ns
    for heads, tails in ((head_ns, forward_ns + update_ns), (forward_ns + update_ns, head_ns)):
        best_ns = _over_thresholds(heads, tails, work_ns, network.overhead_ns, is_served, best_ns)
    # A step is a whole number, and none below this is possible.
    return ceil((best_ns + latencies_ns) * (1 - 1e-12) - 1e-3)


def _over_thresholds(
    head_ns: Floats,
    tail_ns: Floats,
    work_ns: Floats,
    overhead_ns: float,
    is_served: bool,
    best_ns: float,
) -> float:
    order = np.argsort(head_ns, kind="stable")
    head_ns, tail_ns, work_ns = head_ns[order], tail_ns[order], work_ns[order]
    thresholds = np.unique(tail_ns)
    if len(thresholds) > MAX_THRESHOLDS:
        chosen = np.linspace(0, len(thresholds) - 1, MAX_THRESHOLDS)
        thresholds = thresholds[np.unique(chosen.astype(np.int64))]
    for threshold_ns in thresholds.tolist():
        is_in = tail_ns >= threshold_ns
        heads, works = head_ns[is_in], work_ns[is_in]
        if is_served:
            looks = [(tail_ns[is_in], overhead_ns)]
        else:
            looks = [
                (np.full(len(heads), threshold_ns), overhead_ns),
                (tail_ns[is_in], overhead_ns / 2),
            ]
        for tails, each_ns in looks:
            best_ns = least_step(
                heads, tails, works, each_ns, is_pipelined=is_served, at_least_ns=best_ns
            )
    return best_ns
