"""Pass for slow ranks that take as long as a typical rank for the same work."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from augury.core.enums import OpKind, ResourceKind, are_communication
from augury.core.graph.graph import NONE, Graph
from augury.passes.compute_scale import Floats, with_scaled_work
from augury.passes.protocol import Changed, ErrorModel, Scene, changed

Table = np.ndarray[tuple[int, int], np.dtype[np.float64]]
"""By rank and step."""

WORK_GROUPS: dict[str, tuple[OpKind, ...]] = {
    "input": (OpKind.DATA,),
    "host": (OpKind.OTHER, OpKind.UNEXPLAINED),
    "compute": (
        OpKind.FORWARD, OpKind.BACKWARD, OpKind.RECOMPUTE, OpKind.UPDATE, OpKind.COPY,
        OpKind.LAUNCH, OpKind.SYNC,
    ),
}  # fmt: skip
"""Kinds of work whose times are compared between ranks, by the name of their group."""


@dataclass(frozen=True, slots=True)
class SlowRanks:
    """The ranks to level, and the groups of work (WORK_GROUPS) in which they are slow; None means
    all ranks, and all groups."""

    ranks: tuple[int, ...] | None = None
    groups: tuple[str, ...] | None = None
    known: tuple[int, ...] = ()
    """Of all ranks, those that are known to be slow and do not count as typical."""
    slow_processors: tuple[int, ...] = ()
    """Ranks that are slow because they lack processor time. Calibration measures interference on
    the slowest rank; with the processor of a typical rank it is smaller on all ranks."""


@dataclass(frozen=True, slots=True)
class LevelRanks:
    """Scales the work of slow ranks so that its median over the steps is that of a typical rank.
    Work of ranks that are faster, and variation from step to step, stay."""

    name = "level-ranks"
    plan_section = None
    advice = "Find out why the rank is slow: its host, other load, or a larger batch."

    def applies(self, scene: Scene) -> list[str]:
        return [] if scene.graph.num_ranks > 1 else ["there is one rank"]

    def apply(self, scene: Scene, parameters: SlowRanks | None = None) -> Changed:
        return changed(
            scene, replace(scene, graph=_levelled(scene.graph, parameters or SlowRanks()))
        )

    def error_model(self, _parameters: SlowRanks | None = None) -> ErrorModel:
        return ErrorModel(0.01)


LEVEL_RANKS = LevelRanks()


def work_per_step(graph: Graph, group: str, *, on_host: bool | None = None) -> Table:
    """Returns the work of a group by rank and step. ``on_host`` chooses between host threads and
    all other resources; None takes both."""
    chosen = _in_group(graph, group)
    if on_host is not None:
        chosen &= _is_on_host(graph) == on_host
    rows = np.flatnonzero(chosen)
    steps = np.unique(graph.ops.step)
    place = np.searchsorted(steps, graph.ops.step[rows])
    total = np.zeros((len(graph.ranks), len(steps)))
    np.add.at(total, (graph.ops.rank[rows], place), graph.ops.work_ns[rows])
    return total[:, steps >= 0]


def typical_work(total: Table) -> Floats:
    """Returns the median over the steps of each rank."""
    return np.asarray(np.median(total, axis=1)) if total.shape[1] else np.zeros(len(total))


def reference_work(typical: Floats, slow: tuple[int, ...] | None = None) -> float:
    """Returns the work of a typical rank: the median over the ranks that are not ``slow``; of two
    middle ones, the faster."""
    others = np.delete(typical, list(slow)) if slow is not None else typical
    ordered = np.sort(others if len(others) else typical)
    return float(ordered[(len(ordered) - 1) // 2])


def _levelled(graph: Graph, slow: SlowRanks) -> Graph:
    workers = np.arange(graph.num_ranks)
    factor = np.ones(graph.num_ops)
    rank_factors = np.ones(len(graph.ranks))
    is_on_host = _is_on_host(graph)
    for group in WORK_GROUPS if slow.groups is None else slow.groups:
        for on_host in (False, True):
            total = work_per_step(graph, group, on_host=on_host)[: len(workers)]
            typical = typical_work(total)
            reference = reference_work(typical, slow.known if slow.ranks is None else slow.ranks)
            for rank in workers if slow.ranks is None else slow.ranks:
                if typical[rank] <= reference or typical[rank] <= 0:
                    continue
                own = _in_group(graph, group) & (is_on_host == on_host) & (graph.ops.rank == rank)
                factor[own] = reference / typical[rank]
                if group == "compute" and not on_host:
                    rank_factors[rank] = reference / typical[rank]
    lacking = min((float(rank_factors[rank]) for rank in slow.slow_processors), default=1.0)
    for rank in workers.tolist() if lacking < 1 else ():
        if any(_slowdowns(graph, rank) == _slowdowns(graph, one) for one in slow.slow_processors):
            rank_factors[rank] = lacking
    return with_scaled_work(graph, factor, rank_factors, transfer_factor=lacking)


def _slowdowns(graph: Graph, rank: int) -> list[int]:
    """Returns the rates at which the rank computes during communication, rising: equal on two ranks
    if they are those of a calibration."""
    rules, resources = graph.interference, graph.resources
    own = (resources.rank[rules.victim] == rank) & (
        resources.kind[rules.victim] == ResourceKind.COMPUTE
    )
    return sorted(rules.rate[own].tolist())


def _in_group(graph: Graph, group: str) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    ops = graph.ops
    found = np.isin(ops.kind, WORK_GROUPS[group]) & (ops.step >= 0)
    return np.asarray(found & ~are_communication(ops.kind))


def _is_on_host(graph: Graph) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    resource = graph.ops.resource
    kinds = np.append(graph.resources.kind, ResourceKind.OTHER)
    return np.asarray((resource != NONE) & (kinds[resource] == ResourceKind.HOST))
