"""The scheduling problem that a recorded run poses: what its backward releases when, what its
network carries how fast, what its forward needs when."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from math import gcd

import numpy as np

from augury.core.errors import InputError
from augury.core.graph import Graph
from augury.core.kinds import OpKind
from augury.core.ledger import Ledger, Severity
from augury.core.plan import Order, Piece, Slice
from augury.core.problem import Gradient, Network, Problem
from augury.core.timeline import Timeline
from augury.costs.transfers import TransferCost
from augury.rewrite.link_fit import fit_link
from augury.rewrite.network import Costs
from augury.rewrite.step_parts import StepParts, parts_of

LARGEST_ITEM_BYTES = 16
"""Of the numbers that tensors are made of: a slice is whole items, whatever they are."""

_SIGMA_OF_MAD = 1.4826


def recorded_problem(
    timeline: Timeline,
    costs: Costs,
    *,
    needs: Mapping[str, float],
    beside: TransferCost | None = None,
    ledger: Ledger,
) -> Problem:
    """``timeline`` is the replay of the recorded graph: times as they were, compute and
    communication slowing each other. ``costs`` and ``beside`` are what pieces cost. ``needs``: by
    name of the parameter, the share of forward that goes by before it is needed; what is missing
    is guessed, and noted."""
    graph = timeline.graph
    parts = parts_of(graph)
    seen = [_Seen(timeline, own, parts.get((own.rank, own.next_step))) for own in parts.values()]
    backward_ns = _middle([one.backward_ns for one in seen])
    forward_ns = _middle([one.forward_ns for one in seen])
    releases: dict[str, list[int]] = defaultdict(list)
    for one in seen:
        for name, release_ns in one.release_ns.items():
            releases[name].append(release_ns)
    sizes = seen[0].sizes
    if any(one.sizes != sizes for one in seen):
        raise InputError(
            "ranks or steps differ in their gradients",
            remedy="no order can be foretold for such a job",
        )
    shares = _shares(list(sizes), needs, ledger)
    total_bytes = sum(sizes.values())
    after_ns = _middle([one.update_ns + one.copy_ns for one in seen])
    # Of parameters that are needed together, the one whose gradient comes last is the first.
    made = {name: place for place, name in enumerate(sizes)}
    gradients = tuple(
        Gradient(
            name=name,
            size_bytes=sizes[name],
            item_bytes=gcd(sizes[name], LARGEST_ITEM_BYTES),
            release_ns=min(max(0, _middle(releases[name])), backward_ns),
            spread_ns=_spread(releases[name]),
            need_ns=round(shares[name] * forward_ns),
            update_ns=round(after_ns * sizes[name] / total_bytes),
        )
        for name in sorted(sizes, key=lambda name: (shares[name], -made[name]))
    )
    between_ns = _middle([one.between_ns for one in seen])
    return Problem(
        gradients=gradients,
        backward_ns=backward_ns,
        between_ns=between_ns,
        forward_ns=forward_ns,
        network=_network(
            timeline,
            costs,
            beside,
            next(iter(parts.values())),
            beside_ns=backward_ns,
        ),
    )


def recorded_order(graph: Graph, problem: Problem) -> Order:
    """The buckets as they were recorded."""
    gradients = graph.gradients
    parts = next(iter(parts_of(graph).values()))
    place_of = {gradient.name: i for i, gradient in enumerate(problem.gradients)}
    buckets: dict[int, list[Slice]] = {}
    for row in parts.rows:
        place = place_of[graph.strings[int(gradients.name[row])]]
        size_bytes = problem.gradients[place].size_bytes
        buckets.setdefault(int(gradients.carried_by[row]), []).append(
            Slice(gradient=place, offset_bytes=0, size_bytes=size_bytes)
        )
    pieces = [
        Piece(op=OpKind.ALL_REDUCE, slices=tuple(bucket)) for _, bucket in sorted(buckets.items())
    ]
    return Order(policy="recorded", pieces=tuple(pieces), has_barrier=True)


class _Seen:
    """What one rank's step showed."""

    def __init__(self, timeline: Timeline, own: StepParts, following: StepParts | None) -> None:
        graph, start_ns, end_ns = timeline.graph, timeline.start_ns, timeline.end_ns

        def took_ns(ops: Sequence[int]) -> int:
            return int((end_ns[list(ops)] - start_ns[list(ops)]).sum())

        began_ns = int(start_ns[own.backward[0]])
        rows, gradients = own.rows, graph.gradients
        names = [graph.strings[int(name)] for name in gradients.name[rows].tolist()]
        self.sizes = dict(zip(names, gradients.size_bytes[rows].tolist(), strict=True))
        made_ns = (end_ns[gradients.made_by[rows]] - began_ns).tolist()
        self.release_ns = dict(zip(names, made_ns, strict=True))
        self.backward_ns = int(end_ns[own.backward[-1]]) - began_ns
        self.forward_ns = (
            int(end_ns[own.forward[-1]] - start_ns[own.forward[0]]) if own.forward else 0
        )
        # Where recording goes on elsewhere, what this step began with stands for the next one's.
        self.between_ns = took_ns(own.rest) + took_ns((following or own).before)
        self.copy_ns, self.update_ns = took_ns(own.copies), took_ns(own.updates)


def _shares(names: list[str], needs: Mapping[str, float], ledger: Ledger) -> dict[str, float]:
    """Where nobody saw the modules, forward is taken for backward the other way round."""
    unknown = [name for name in names if name not in needs]
    ledger.note(
        "needs-guessed",
        "no detailed step tells when forward needs a parameter: it is taken to need them in the"
        " order opposite to that of their gradients, evenly spread",
        severity=Severity.WARNING,
        count=len(unknown),
        remedy="record with `augury run`, and let the job go on for some steps after the windows",
        example=unknown[0] if unknown else "",
    )
    if unknown:
        count = len(names)
        return {name: 1 - (place + 1) / count for place, name in enumerate(names)}
    return {name: needs[name] for name in names}


def _network(
    timeline: Timeline,
    costs: Costs,
    beside: TransferCost | None,
    own: StepParts,
    *,
    beside_ns: int,
) -> Network:
    """As it runs beside compute, in the mixture that was recorded."""
    graph = timeline.graph
    carried = int(graph.gradients.carried_by[own.rows[0]])
    kind, stream = OpKind(int(graph.ops.kind[carried])), int(graph.ops.resource[carried])
    work_ns = int(graph.ops.work_ns[graph.ops.resource == stream].sum())
    slowed = max(1.0, int(timeline.use.busy_ns[stream]) / max(1, work_ns))
    return fit_link(
        costs[kind],
        total_bytes=int(graph.gradients.size_bytes[own.rows].sum()),
        slowed=slowed,
        beside=beside,
        beside_ns=beside_ns,
    )


def _middle(values: Sequence[int]) -> int:
    return round(float(np.median(values)))


def _spread(values: Sequence[int]) -> int:
    middle = float(np.median(values))
    return round(_SIGMA_OF_MAD * float(np.median(np.abs(np.array(values) - middle))))
