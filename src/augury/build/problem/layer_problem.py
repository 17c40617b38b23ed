"""The scheduling problem of a graph with layers, such as a synthetic one: a gradient per layer."""

from __future__ import annotations

from collections import defaultdict
from math import gcd

import numpy as np

from augury.build.problem.recorded_problem import LARGEST_ITEM_BYTES
from augury.core.enums import MemoryKind, OpKind, Role
from augury.core.errors import InputError
from augury.core.graph.graph import Graph
from augury.core.plan.problem import Gradient, Network, Problem, Scheme
from augury.costs.collective_costs import fit_network
from augury.costs.link_fit import fit_link
from augury.costs.transfer_times import fit_transfers

_REMEDY = "make one with augury synth, all-reduce by gangs or parameter servers, or record a run"


def layer_problem(graph: Graph) -> Problem:
    """Returns the problem with medians over ranks and steps. Work counts, without interference."""
    sizes = _sizes(graph)
    steps = [
        _LayerStep(graph, rank, step)
        for rank in np.flatnonzero(graph.ranks.role == Role.WORKER).tolist()
        for step in sorted({*graph.ops.step.tolist()} - {-1})
    ]
    steps = [one for one in steps if one.release_ns.keys() >= sizes.keys() <= one.need_ns.keys()]
    if not steps:
        raise InputError("no rank runs every layer forward and backward", remedy=_REMEDY)
    backward_ns = _middle([one.backward_ns for one in steps])
    forward_ns = _middle([one.forward_ns for one in steps])
    needs = {name: _middle([one.need_ns[name] for one in steps]) for name in sizes}
    releases = {name: [one.release_ns[name] for one in steps] for name in sizes}
    return Problem(
        gradients=tuple(
            Gradient(
                name=name,
                size_bytes=sizes[name],
                item_bytes=gcd(sizes[name], LARGEST_ITEM_BYTES),
                release_ns=min(_middle(releases[name]), backward_ns),
                spread_ns=round(float(np.std(releases[name]))),
                need_ns=min(needs[name], forward_ns),
                update_ns=_middle([one.update_ns[name] for one in steps]),
            )
            for name in sorted(sizes, key=lambda name: (needs[name], -_middle(releases[name])))
        ),
        backward_ns=backward_ns,
        forward_ns=forward_ns,
        network=_network(graph, sum(sizes.values())),
    )


class _LayerStep:
    """One rank's compute in one step, in sequence. With micro-batches, the last backward releases
    the gradients, and everything before it counts as forward."""

    def __init__(self, graph: Graph, rank: int, step: int) -> None:
        ops = graph.ops
        mine = (ops.rank == rank) & (ops.step == step)
        rows = np.flatnonzero(mine & np.isin(ops.kind, (OpKind.FORWARD, OpKind.BACKWARD))).tolist()
        layers = [graph.strings[int(ops.layer[op])] for op in rows]
        works = [int(ops.work_ns[op]) for op in rows]
        is_forward = [ops.kind[op] == OpKind.FORWARD for op in rows]
        last_forward = max((i for i, forward in enumerate(is_forward) if forward), default=-1)
        self.forward_ns = sum(works[: last_forward + 1])
        self.backward_ns = sum(works[last_forward + 1 :])
        self.need_ns: dict[str, int] = {}
        self.release_ns: dict[str, int] = {}
        at_ns = 0
        for i, (layer, work_ns) in enumerate(zip(layers, works, strict=True)):
            if is_forward[i]:
                self.need_ns.setdefault(layer, at_ns)
            at_ns += work_ns
            if i > last_forward:
                self.release_ns[layer] = at_ns - self.forward_ns
        self.update_ns: dict[str, int] = defaultdict(int)
        for op in np.flatnonzero(mine & (ops.kind == OpKind.UPDATE)).tolist():
            self.update_ns[graph.strings[int(ops.layer[op])]] += int(ops.work_ns[op])


def _sizes(graph: Graph) -> dict[str, int]:
    """Returns the bytes of parameters by layer, of the first rank that has any."""
    buffers = graph.buffers
    rows = np.flatnonzero(buffers.kind == MemoryKind.PARAMETER)
    rows = rows[buffers.rank[rows] == (buffers.rank[rows].min() if len(rows) else 0)]
    sizes = {
        graph.strings[int(buffers.layer[row])]: int(buffers.size_bytes[row])
        for row in rows.tolist()
    }
    if not any(sizes.values()):
        raise InputError("the graph does not state the parameters of its layers", remedy=_REMEDY)
    return {name: size for name, size in sizes.items() if size}


def _network(graph: Graph, total_bytes: int) -> Network:
    ops = graph.ops
    if (ops.kind == OpKind.PUSH).any():
        return _of_servers(graph, total_bytes)
    cost = fit_network(graph).get(OpKind.ALL_REDUCE)
    if cost is None:
        raise InputError("the graph's ranks do not reduce gradients as a whole", remedy=_REMEDY)
    return fit_link(cost, total_bytes=total_bytes)


def _of_servers(graph: Graph, total_bytes: int) -> Network:
    """Returns the network of parameter servers. All workers share the link of a server: with more
    workers than servers it is the bottleneck."""
    ops = graph.ops
    pushes = np.flatnonzero(ops.kind == OpKind.PUSH).tolist()
    cost = fit_transfers([(int(ops.size_bytes[op]), float(ops.work_ns[op])) for op in pushes])
    if cost is None:
        raise InputError("the graph's pushes take no time", remedy=_REMEDY)
    num_servers = int((graph.ranks.role == Role.SERVER).sum())
    crowd = max(1.0, graph.num_ranks / max(1, num_servers))
    link = fit_link(cost, total_bytes=total_bytes)
    pulls = ops.work_ns[ops.kind == OpKind.PULL]
    served = _ns_per_byte(graph, OpKind.SERVER_SUM) + _ns_per_byte(graph, OpKind.SERVER_UPDATE)
    return Network(
        scheme=Scheme.PARAMETER_SERVER,
        overhead_ns=link.overhead_ns,
        ns_per_byte=link.ns_per_byte * crowd,
        # The receiver's part of a transfer; with fair ports it occupies the link as long.
        latency_ns=0 if (ops.gang[pushes] >= 0).any() else int(np.median(pulls)),
        server_ns_per_byte=served,
    )


def _ns_per_byte(graph: Graph, kind: OpKind) -> float:
    ops = graph.ops
    own = (ops.kind == kind) & (ops.size_bytes > 0)
    return float(np.median(ops.work_ns[own] / ops.size_bytes[own])) if own.any() else 0.0


def _middle(values: list[int]) -> int:
    return round(float(np.median(values)))
