"""All built-in ways to communicate, by name."""

from __future__ import annotations

from dataclasses import dataclass

from augury.build import gang, pairwise, ring, tree, two_level
from augury.build.collective import Collective
from augury.build.gang import Gang
from augury.core.errors import UsageError
from augury.core.kinds import OpKind


@dataclass(frozen=True, kw_only=True)
class Algorithm:
    """``name`` says how, ``kind`` what; ``is_gang``: as one operation per rank, with the
    closed-form time of the algorithm that the name ends in."""

    name: str
    kind: OpKind
    collective: Collective
    is_gang: bool = False


ALGORITHMS: tuple[Algorithm, ...] = (
    Algorithm(
        name="gang",
        kind=OpKind.ALL_REDUCE,
        collective=Gang(OpKind.ALL_REDUCE, gang.ring_ns),
        is_gang=True,
    ),
    Algorithm(
        name="gang-tree",
        kind=OpKind.ALL_REDUCE,
        collective=Gang(OpKind.ALL_REDUCE, gang.tree_ns),
        is_gang=True,
    ),
    Algorithm(
        name="gang-two-level",
        kind=OpKind.ALL_REDUCE,
        collective=Gang(OpKind.ALL_REDUCE, gang.two_level_ns),
        is_gang=True,
    ),
    Algorithm(name="ring", kind=OpKind.ALL_REDUCE, collective=ring.all_reduce),
    Algorithm(name="tree", kind=OpKind.ALL_REDUCE, collective=tree.all_reduce),
    Algorithm(name="two-level", kind=OpKind.ALL_REDUCE, collective=two_level.all_reduce),
    Algorithm(
        name="gang",
        kind=OpKind.REDUCE_SCATTER,
        collective=Gang(OpKind.REDUCE_SCATTER, gang.reduce_scatter_ns),
        is_gang=True,
    ),
    Algorithm(name="ring", kind=OpKind.REDUCE_SCATTER, collective=ring.reduce_scatter),
    Algorithm(
        name="gang",
        kind=OpKind.ALL_GATHER,
        collective=Gang(OpKind.ALL_GATHER, gang.all_gather_ns),
        is_gang=True,
    ),
    Algorithm(name="ring", kind=OpKind.ALL_GATHER, collective=ring.all_gather),
    Algorithm(
        name="gang",
        kind=OpKind.ALL_TO_ALL,
        collective=Gang(OpKind.ALL_TO_ALL, gang.all_to_all_ns),
        is_gang=True,
    ),
    Algorithm(name="pairwise", kind=OpKind.ALL_TO_ALL, collective=pairwise.all_to_all),
    Algorithm(name="gang", kind=OpKind.BROADCAST, collective=gang.broadcast),
    Algorithm(name="ring", kind=OpKind.BROADCAST, collective=ring.broadcast),
    Algorithm(name="tree", kind=OpKind.BROADCAST, collective=tree.broadcast),
)


def find_algorithm(kind: OpKind, name: str) -> Algorithm:
    for algorithm in ALGORITHMS:
        if algorithm.kind is kind and algorithm.name == name:
            return algorithm
    known = ", ".join(a.name for a in ALGORITHMS if a.kind is kind)
    raise UsageError(
        f"no algorithm {name!r} for {kind.label}", remedy=f"take one of: {known or 'none'}"
    )
