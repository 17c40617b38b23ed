"""Our policy where there is a run to replay: the search's model is a simple one, so what it finds
for several costs of a piece is replayed beside what stock DDP can do, and the best is taken."""

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


def orders_to_try(case: Case, ours: Policy) -> Iterator[Order]:
    """All of them named as ours."""
    from augury.schedule.bucket_list import BucketList
    from augury.schedule.policies import find_policy

    problem = case.problem
    network = problem.network
    for times in DEARER:
        overhead_ns = max(network.overhead_ns, LEAST_OVERHEAD_NS if times > 1 else 0) * times
        yield ours.compile(replace(problem, network=replace(network, overhead_ns=overhead_ns)))
    for stock in (BucketList(), find_policy("ddp-best"), find_policy("ddp")):
        yield replace(stock.compile(problem), policy=ours.name)
