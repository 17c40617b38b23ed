"""Pass for perfect overlap, where no compute waits for communication."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from augury.core.columns import I4
from augury.core.enums import OpKind, are_communication
from augury.core.graph.graph import NONE, Edges, Graph
from augury.passes.protocol import Changed, ErrorModel, Scene, changed
from augury.passes.removals.fast_host import has_host_threads

_STARTS = (OpKind.LAUNCH, OpKind.UNEXPLAINED)
"""Without a resource, the start of a device's kernel: its latency, or a wait without a cause."""


@dataclass(frozen=True, slots=True)
class PerfectOverlap:
    """Makes compute wait for what was sent, and no longer for communication. Communication still
    takes its time, so that a step lasts as long as the longer of the two."""

    name = "perfect-overlap"
    plan_section = None
    advice = "An upper bound on the gain from scheduling communication: augury schedule."

    def applies(self, _scene: Scene) -> list[str]:
        return []

    def apply(self, scene: Scene, _parameters: None = None) -> Changed:
        return changed(scene, replace(scene, graph=_without_waits(scene.graph)))

    def error_model(self, _parameters: None = None) -> ErrorModel:
        return ErrorModel(0.01)


def _without_waits(graph: Graph) -> Graph:
    is_communication = are_communication(graph.ops.kind)
    src, dst = graph.edges.sources(), graph.edges.dst
    is_removed = is_communication[src] & ~is_communication[dst]
    added = np.empty((2, 0), dtype=np.int32)
    if has_host_threads(graph):
        is_removed &= ~_are_in_stream_order(graph, src, dst)
        added = _waits_for_compute(graph, src[is_removed], dst[is_removed])
    elif np.all(src < dst):
        added = _order_of_starts(graph)
    keep = ~is_removed
    carries = graph.carries
    stays = ~(is_communication[carries.src] & ~is_communication[carries.dst])
    pairs = np.concatenate([np.stack([src[keep], dst[keep]]), added], axis=1)
    if added.size:
        pairs = np.unique(pairs, axis=1)
    return graph.evolve(
        edges=Edges.from_pairs(pairs[0], pairs[1], num_ops=graph.num_ops),
        carries=type(carries)(src=carries.src[stays], dst=carries.dst[stays]),
        gradients=graph.gradients.empty() if np.any(~keep) else graph.gradients,
    )


def _waits_for_compute(graph: Graph, src: I4, dst: I4) -> I4:
    """Returns edges, as rows of sources and targets, for those that are removed: whatever waited
    for communication still waits for the compute whose results were sent. A host that waits for
    its device by a collective would otherwise end its steps before the device has computed."""
    last_compute = _last_compute(graph, np.unique(src))
    resource = graph.ops.resource
    edges = [
        (compute, target)
        for sent, target in zip(src.tolist(), dst.tolist(), strict=True)
        for on, compute in last_compute[sent].items()
        if on != resource[target]  # in order on one resource
    ]
    return np.array(edges, dtype=np.int32).reshape(-1, 2).T


def _last_compute(graph: Graph, wanted: I4) -> dict[int, dict[int, int]]:
    """Returns the last compute before each wanted communication on its rank, by resource."""
    ops = graph.ops
    is_communication = are_communication(ops.kind)
    # Starts and delays lie between compute and communication.
    is_passed = is_communication | ((ops.resource == NONE) & (ops.work_ns > 0))
    before = _predecessors(graph)
    found: dict[int, dict[int, int]] = {}
    waiting = wanted.tolist()
    while waiting:
        op = waiting[-1]
        own = before(op)
        missing = [one for one in own if is_passed[one] and one not in found]
        if missing and op not in found:
            waiting += missing
            continue
        waiting.pop()
        last: dict[int, int] = {}
        for one in own:
            known = found[one] if is_passed[one] else {int(ops.resource[one]): one}
            for on, compute in known.items():
                last[on] = max(compute, last.get(on, NONE))
        last.pop(NONE, None)
        found[op] = last
    return found


def _predecessors(graph: Graph) -> Callable[[int], list[int]]:
    src, dst = graph.edges.sources(), graph.edges.dst
    order = np.argsort(dst, kind="stable")
    before, first = src[order], np.searchsorted(dst[order], np.arange(graph.num_ops + 1))
    return lambda op: before[first[op] : first[op + 1]].tolist()


def _are_in_stream_order(graph: Graph, src: I4, dst: I4) -> NDArray[np.bool_]:
    """Marks edges to a device's kernels, or to their starts, that communicate, or that run on the
    stream of the communication before them. Ranks that ran the collectives of a stream in different
    orders would wait for each other for ever."""
    ops = graph.ops
    is_start = np.isin(ops.kind, _STARTS) & (ops.resource == NONE)
    started = np.where(is_start, NONE, np.arange(graph.num_ops))
    started[src[is_start[src]]] = dst[is_start[src]]
    kernel = started[dst]
    is_ordered: NDArray[np.bool_] = are_communication(ops.kind)[kernel]
    is_ordered |= (ops.resource[kernel] == ops.resource[src]) & (ops.resource[src] != NONE)
    is_ordered &= kernel != NONE
    return is_ordered


def _order_of_starts(graph: Graph) -> I4:
    """Returns edges, as rows of sources and targets, that make all ranks start the collectives of a
    step on one stream in the same order: none is ready before a delayed earlier one. Before the
    change, compute that waited for communication ensured that order."""
    ops = graph.ops
    src, dst = graph.edges.sources(), graph.edges.dst
    is_member = are_communication(ops.kind) & (ops.gang != NONE) & (ops.resource != NONE)
    is_late = (ops.kind[src] == OpKind.DELAY) & is_member[dst]
    delays_of: dict[int, list[int]] = defaultdict(list)
    for delay, member in zip(src[is_late].tolist(), dst[is_late].tolist(), strict=True):
        delays_of[member].append(delay)
    earlier: dict[tuple[int, int], list[int]] = defaultdict(list)
    edges: list[tuple[int, int]] = []
    for member in np.flatnonzero(is_member).tolist():
        place = int(ops.resource[member]), int(ops.step[member])
        edges += [(delay, member) for delay in earlier[place] if delay < member]
        earlier[place] += delays_of[member]
    return np.array(edges, dtype=np.int32).reshape(-1, 2).T


PERFECT_OVERLAP = PerfectOverlap()
