"""Orders to choose from for our own policy. The search's model of a step is a simple one, so it is
asked under several assumptions; a replay, or a trial in the job, decides between its answers."""

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
"""How many times as much a piece might cost as the model says: fewer and larger ones then."""
LEAST_OVERHEAD_NS = 100_000
FORWARD_TIMES = (1.0, 1.6)
"""How many times as long forward may take as it does alone: communication takes processors too,
and the earlier forward can begin the better."""
LANES = (1, 2)
"""Two in flight hide what one waits for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CandidateOrder:
    family: str
    """The assumptions that it was made under."""
    order: Order


def piece_candidates(
    problem: Problem, num_ranks: int, ours: Policy | None = None
) -> Iterator[CandidateOrder]:
    """Orders of pieces, which the runtime follows without DDP's reduction."""
    ours = ours or Augury()
    for forward in FORWARD_TIMES:
        for cost in PIECE_COSTS:
            order = ours.compile(_assuming(problem, cost, forward))
            for lanes in (1,) if is_swapped(order, num_ranks) else LANES:
                family = f"pieces, cost x{cost}, forward x{forward:g}, lanes {lanes}"
                yield CandidateOrder(family=family, order=replace(order, lanes=lanes))


def stock_candidates(problem: Problem, ours: Policy | None = None) -> Iterator[CandidateOrder]:
    """What stock DDP can do, under our policy's name."""
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
