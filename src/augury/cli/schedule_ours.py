"""Our policy where there is a run to replay: the search's model is a simple one, so what it finds
for several costs of a piece, one and two under way at once, is replayed beside what stock DDP can
do, and the best is taken."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from augury.cli.schedule_case import Case
    from augury.core.plan import Order
    from augury.core.problem import Problem
    from augury.schedule.policy import Policy

DEARER = (1, 2, 5)
"""How many times as much a piece might cost as the model says: fewer and larger ones then."""
LEAST_OVERHEAD_NS = 100_000
SLOWER = (1.0, 1.6)
"""How many times as long forward may take as it does by itself: communication beside it wants
processors too, and the earlier it can begin the better."""
LANES = (1, 2)
"""Two at once where the link is short, and what a piece waits for would leave it idle."""


def orders_to_try(case: Case, ours: Policy) -> Iterator[Order]:
    """All of them named as ours."""
    from augury.core.plan import is_swapped
    from augury.schedule.bucket_list import BucketList
    from augury.schedule.policies import find_policy

    for slower in SLOWER:
        for times in DEARER:
            order = ours.compile(_otherwise(case.problem, times, slower))
            lanes = (1,) if is_swapped(order, case.num_ranks) else LANES
            yield from (replace(order, lanes=number) for number in lanes)
    for stock in (BucketList(), find_policy("ddp-best"), find_policy("ddp")):
        yield replace(stock.compile(case.stock), policy=ours.name)


def _otherwise(problem: Problem, times: int, slower: float) -> Problem:
    """Pieces cost ``times`` as much, and forward takes ``slower`` times as long."""
    network = problem.network
    least_ns = LEAST_OVERHEAD_NS if times > 1 else 0
    return replace(
        problem,
        network=replace(network, overhead_ns=times * max(network.overhead_ns, least_ns)),
        forward_ns=round(slower * problem.forward_ns),
        gradients=tuple(
            replace(
                gradient,
                need_ns=round(slower * gradient.need_ns),
                update_ns=round(slower * gradient.update_ns),
            )
            for gradient in problem.gradients
        ),
    )
