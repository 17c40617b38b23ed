"""Candidate orders of the policy `augury`, shared by `augury schedule` and the re-plan in the job.

The search uses a simple model of a step, so it runs under several assumptions. A replay, or a trial
in the job, chooses among the candidates.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from augury.core.plan.plan import Order, is_swapped
from augury.core.plan.problem import Problem
from augury.schedule.policies.augury import Augury
from augury.schedule.policies.bucket_list import BucketList
from augury.schedule.policies.policy import Policy
from augury.schedule.policies.registry import find_policy

PIECE_COSTS = (1, 2, 5)
"""Factors on the overhead of a piece: a larger one gives fewer and larger pieces."""
LEAST_OVERHEAD_NS = 100_000
FORWARD_TIMES = (1.0, 1.6)
"""Factors on the time of forward: communication uses processors too, so forward may be slower."""
LANES = (1, 2)
"""With two pieces in flight, one hides the latency of the other."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CandidateOrder:
    family: str
    """The assumptions that the order was made under."""
    order: Order


def piece_candidates(
    problem: Problem, num_ranks: int, ours: Policy | None = None
) -> Iterator[CandidateOrder]:
    """Yields orders of pieces, which the runtime follows without DDP's reduction."""
    ours = ours or Augury()
    for forward in FORWARD_TIMES:
        for cost in PIECE_COSTS:
            order = ours.compile(_assuming(problem, cost, forward))
            for lanes in (1,) if is_swapped(order, num_ranks) else LANES:
                family = f"pieces, cost x{cost}, forward x{forward:g}, lanes {lanes}"
                yield CandidateOrder(family=family, order=replace(order, lanes=lanes))


def stock_candidates(problem: Problem, ours: Policy | None = None) -> Iterator[CandidateOrder]:
    """Yields orders that stock DDP can follow, under the name of our policy."""
    name = (ours or Augury()).name
    for stock in (BucketList(), find_policy("ddp-best"), find_policy("ddp")):
        order = replace(stock.compile(problem), policy=name)
        yield CandidateOrder(family=stock.name, order=order)


def _assuming(problem: Problem, cost: int, forward: float) -> Problem:
    network = problem.network
    least_ns = LEAST_OVERHEAD_NS if cost > 1 else 0
    return replace(
        problem,
        network=replace(network, overhead_ns=cost * max(network.overhead_ns, least_ns)),
        forward_ns=round(forward * problem.forward_ns),
        gradients=tuple(
            replace(
                gradient,
                need_ns=round(forward * gradient.need_ns),
                update_ns=round(forward * gradient.update_ns),
            )
            for gradient in problem.gradients
        ),
    )
