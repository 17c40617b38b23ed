"""The policy `bytescheduler`: partitions and credit, both tuned."""

from __future__ import annotations

from dataclasses import dataclass

from augury.core.plan.plan import Order
from augury.core.plan.problem import Problem, Scheme
from augury.schedule.evaluate import step_ns
from augury.schedule.order_parts import MEGABYTE, Message, by_priority, cut

_PARAMETERS = 4 * MEGABYTE
"""A million of them, four bytes each, as the published constants count."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ByteScheduler:
    """Published: tensors of more than a million parameters are cut into partitions of that size,
    a queue by priority sends while it has credit (4 million parameters; it may go below zero and
    comes back as partitions arrive), no barrier; Bayesian search tunes both in 15 trials
    (partitions of 2 to 32 million parameters; credit of 1 to 16 million with a parameter server,
    of 4 to 64 million with all-reduce).

    Assumed: the search finds the best of 15 points of a grid over those ranges, the published
    constants among them, by predicted step; four bytes to a parameter; the server's answers go by
    the same queue with the same credit.
    """

    name: str = "bytescheduler"
    partitions_bytes: tuple[int, ...] = tuple(_PARAMETERS * n for n in (1, 2, 4, 8, 32))
    push_credits_bytes: tuple[int, ...] = tuple(_PARAMETERS * n for n in (1, 4, 16))
    reduce_credits_bytes: tuple[int, ...] = tuple(_PARAMETERS * n for n in (4, 16, 64))

    def compile(self, problem: Problem) -> Order:
        serves = problem.network.scheme is Scheme.PARAMETER_SERVER
        credits_bytes = self.push_credits_bytes if serves else self.reduce_credits_bytes
        if not problem.network.latency_ns:
            credits_bytes = credits_bytes[:1]  # sent pieces have arrived: credit never runs out
        largest = max(gradient.size_bytes for gradient in problem.gradients)
        # Partition sizes that cut nothing are tried once.
        partitions = [size for size in self.partitions_bytes if size < largest]
        partitions += self.partitions_bytes[len(partitions) : len(partitions) + 1]
        trials = (
            Order(
                policy=self.name,
                pieces=by_priority(problem, messages, window_bytes=credit_bytes),
                has_barrier=False,
                window_bytes=credit_bytes,
            )
            for messages in (_partitions(problem, size_bytes) for size_bytes in partitions)
            for credit_bytes in credits_bytes
        )
        return min(trials, key=lambda order: step_ns(problem, order))


def _partitions(problem: Problem, size_bytes: int) -> list[Message]:
    return [
        (part,)
        for place in range(len(problem.gradients))
        for part in cut(problem, place, size_bytes)
    ]
