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
    from augury.schedule.policy import Policy

DEARER = (1, 2, 5)
"""How many times as much a piece might cost as the model says: fewer and larger ones then."""
LEAST_OVERHEAD_NS = 100_000
LANES = (1, 2)
"""Two at once where the link is short, and what a piece waits for would leave it idle."""


def orders_to_try(case: Case, ours: Policy) -> Iterator[Order]:
    """All of them named as ours."""
    from augury.schedule.bucket_list import BucketList
    from augury.schedule.policies import find_policy

    problem = case.problem
    network = problem.network
    for times in DEARER:
        overhead_ns = max(network.overhead_ns, LEAST_OVERHEAD_NS if times > 1 else 0) * times
        order = ours.compile(replace(problem, network=replace(network, overhead_ns=overhead_ns)))
        yield from (replace(order, lanes=lanes) for lanes in LANES)
    for stock in (BucketList(), find_policy("ddp-best"), find_policy("ddp")):
        yield replace(stock.compile(problem), policy=ours.name)
