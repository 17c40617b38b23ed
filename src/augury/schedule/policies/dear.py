"""The policy `dear`: decoupled all-reduce (DeAR)."""

from __future__ import annotations

from dataclasses import dataclass

from augury.core.enums import OpKind
from augury.core.plan.plan import Order, Piece
from augury.core.plan.problem import Problem, Scheme
from augury.schedule.order_parts import MEBIBYTE, buckets_as_released, completed


@dataclass(frozen=True, slots=True, kw_only=True)
class Dear:
    """Published: an all-reduce is a reduce-scatter, sent behind backward in groups of 25 MB as
    they come, and an all-gather, sent behind the next forward in the order in which forward
    needs the groups; forward waits group by group.

    Assumed: groups are filled as DDP's buckets are, all of one size; the first all-gather leaves
    behind the last reduce-scatter; with a parameter server pushes and pulls take their places.
    """

    name: str = "dear"
    group_bytes: int = 25 * MEBIBYTE

    def compile(self, problem: Problem) -> Order:
        serves = problem.network.scheme is Scheme.PARAMETER_SERVER
        first_op, last_op = (
            (OpKind.PUSH, OpKind.PULL) if serves else (OpKind.REDUCE_SCATTER, OpKind.ALL_GATHER)
        )
        groups = buckets_as_released(problem, (self.group_bytes,))
        as_needed = sorted(
            range(len(groups)), key=lambda nth: min(part.gradient for part in groups[nth])
        )
        first = tuple(Piece(op=first_op, slices=group) for group in groups)
        return Order(
            policy=self.name,
            pieces=first + completed(first, as_needed, last_op),
            has_barrier=False,
        )
