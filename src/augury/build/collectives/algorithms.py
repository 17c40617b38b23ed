"""Registry of collective algorithms, by operation and name."""

from __future__ import annotations

from dataclasses import dataclass

from augury.build.collectives import gang, pairwise, ring, tree, two_level
from augury.build.collectives.gang import Gang, OverWidestLink, WorkOf
from augury.build.collectives.scheme import Collective
from augury.core.enums import OpKind
from augury.core.errors import UsageError
from augury.costs import closed_forms


@dataclass(frozen=True, kw_only=True)
class CollectiveAlgorithm:
    """Algorithm of one kind of collective. With ``is_gang`` it is one operation per rank, with the
    closed-form time of the algorithm that the name ends in."""

    name: str
    kind: OpKind
    collective: Collective
    is_gang: bool = False


def _gang(name: str, kind: OpKind, work_of: WorkOf) -> CollectiveAlgorithm:
    return CollectiveAlgorithm(name=name, kind=kind, collective=Gang(kind, work_of), is_gang=True)


ALGORITHMS: tuple[CollectiveAlgorithm, ...] = (
    _gang("gang", OpKind.ALL_REDUCE, OverWidestLink(closed_forms.all_reduce_ring_ns)),
    _gang("gang-tree", OpKind.ALL_REDUCE, OverWidestLink(closed_forms.all_reduce_tree_ns)),
    _gang("gang-two-level", OpKind.ALL_REDUCE, gang.two_level_ns),
    CollectiveAlgorithm(name="ring", kind=OpKind.ALL_REDUCE, collective=ring.all_reduce),
    CollectiveAlgorithm(name="tree", kind=OpKind.ALL_REDUCE, collective=tree.all_reduce),
    CollectiveAlgorithm(name="two-level", kind=OpKind.ALL_REDUCE, collective=two_level.all_reduce),
    _gang("gang", OpKind.REDUCE_SCATTER, OverWidestLink(closed_forms.reduce_scatter_ns)),
    CollectiveAlgorithm(name="ring", kind=OpKind.REDUCE_SCATTER, collective=ring.reduce_scatter),
    _gang("gang", OpKind.ALL_GATHER, OverWidestLink(closed_forms.all_gather_ns)),
    CollectiveAlgorithm(name="ring", kind=OpKind.ALL_GATHER, collective=ring.all_gather),
    _gang("gang", OpKind.ALL_TO_ALL, OverWidestLink(closed_forms.all_to_all_ns)),
    CollectiveAlgorithm(name="pairwise", kind=OpKind.ALL_TO_ALL, collective=pairwise.all_to_all),
    CollectiveAlgorithm(name="gang", kind=OpKind.BROADCAST, collective=gang.broadcast),
    CollectiveAlgorithm(name="ring", kind=OpKind.BROADCAST, collective=ring.broadcast),
    CollectiveAlgorithm(name="tree", kind=OpKind.BROADCAST, collective=tree.broadcast),
)


def find_algorithm(kind: OpKind, name: str) -> CollectiveAlgorithm:
    for algorithm in ALGORITHMS:
        if algorithm.kind is kind and algorithm.name == name:
            return algorithm
    known = ", ".join(a.name for a in ALGORITHMS if a.kind is kind)
    raise UsageError(
        f"no algorithm {name!r} for {kind.label}", remedy=f"use one of: {known or 'none'}"
    )
