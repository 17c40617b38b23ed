"""The scheduling problem of a recorded run: releases in backward, network, needs in forward."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import gcd

import numpy as np

from augury.build.problem.step_parts import StepParts, parts_of
from augury.core.enums import OpKind
from augury.core.errors import InputError
from augury.core.graph.graph import Graph
from augury.core.ledger import Ledger, Severity
from augury.core.plan.plan import Order, Piece, Slice
from augury.core.plan.problem import Gradient, Problem
from augury.core.timeline import Timeline
from augury.costs.collective_costs import Costs
from augury.costs.link_fit import fit_link
from augury.costs.p2p_exchange import PeerCosts
from augury.costs.piece_costs import compute_rate_during_communication
from augury.costs.transfer_times import TransferCost

LARGEST_ITEM_BYTES = 16
"""Largest size of a tensor's element. Slices consist of whole elements of any size up to it."""

_SIGMA_OF_MAD = 1.4826


def recorded_problem(
    timeline: Timeline,
    costs: Costs,
    *,
    needs: Mapping[str, float],
    during_compute: TransferCost | None = None,
    p2p: PeerCosts | None = None,
    ledger: Ledger,
) -> Problem:
    """Returns the problem of a run from the replay of its graph. Backward is assumed to overlap
    with communication throughout, which is the aim of scheduling; forward to run alone, which no
    order can improve on. ``costs`` and ``during_compute`` are the costs of pieces as collectives;
    with ``p2p`` two ranks exchange them by messages. ``needs`` is, by parameter, the share of
    forward that passes before it is needed; missing ones are guessed, with a warning."""
    graph = timeline.graph
    parts = parts_of(graph)
    seen = [
        StepTimes(timeline, own, parts.get((own.rank, own.next_step))) for own in parts.values()
    ]
    sizes = seen[0].sizes
    if any(one.sizes != sizes for one in seen):
        raise InputError(
            "ranks or steps differ in their gradients",
            remedy="orders cannot be predicted for such a job",
        )
    shares = _shares(list(sizes), needs, ledger)
    total_bytes = sum(sizes.values())
    carried = int(graph.gradients.carried_by[0])
    kind, stream = OpKind(int(graph.ops.kind[carried])), int(graph.ops.resource[carried])
    cost = _as_recorded(graph, costs[kind])
    alone_ns = _middle([one.backward_ns for one in seen])
    rate = (
        p2p.compute_rate if p2p and p2p.compute_rate else compute_rate_during_communication(graph)
    )
    slower = min(1 / rate, 1 + (1 - rate) * cost.ns_per_byte * total_bytes / max(1, alone_ns))
    backward_ns, forward_ns = round(alone_ns * slower), _middle([one.forward_ns for one in seen])
    after_ns = _middle([one.update_ns + one.copy_ns for one in seen])
    # Of parameters needed at the same time, the one whose gradient is released last goes first.
    made = {name: place for place, name in enumerate(sizes)}
    gradients = tuple(
        Gradient(
            name=name,
            size_bytes=sizes[name],
            item_bytes=gcd(sizes[name], LARGEST_ITEM_BYTES),
            release_ns=min(
                round(_middle([one.release_ns[name] for one in seen]) * slower), backward_ns
            ),
            spread_ns=_spread([one.seen_release_ns[name] for one in seen]),
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
        network=p2p.network
        if p2p
        else fit_link(
            cost,
            total_bytes=total_bytes,
            slowdown=_slowdown_on(timeline, stream),
            during_compute=during_compute,
            compute_ns=backward_ns + forward_ns,
        ),
    )


def recorded_order(graph: Graph, problem: Problem) -> Order:
    """Returns the recorded buckets as an order."""
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


class StepTimes:
    """Durations of the parts of one rank's step in a replayed run. Backward counts with its work,
    without interference; all other parts with their replayed durations."""

    def __init__(self, timeline: Timeline, own: StepParts, following: StepParts | None) -> None:
        graph, start_ns, end_ns = timeline.graph, timeline.start_ns, timeline.end_ns

        def took_ns(ops: Sequence[int]) -> int:
            return int((end_ns[list(ops)] - start_ns[list(ops)]).sum())

        rows, gradients = own.rows, graph.gradients
        names = [graph.strings[int(name)] for name in gradients.name[rows].tolist()]
        self.sizes = dict(zip(names, gradients.size_bytes[rows].tolist(), strict=True))
        """Bytes by name of the gradient, in the order of release."""
        made_by = gradients.made_by[rows].tolist()
        worked = np.cumsum(graph.ops.work_ns[own.backward])
        place = {op: i for i, op in enumerate(own.backward)}
        self.backward_ns = int(worked[-1])
        self.release_ns = {
            name: int(worked[place[op]]) for name, op in zip(names, made_by, strict=True)
        }
        began_ns = int(start_ns[own.backward[0]])
        self.seen_release_ns = {
            name: int(end_ns[op]) - began_ns for name, op in zip(names, made_by, strict=True)
        }
        self.forward_ns = (
            int(end_ns[own.forward[-1]] - start_ns[own.forward[0]]) if own.forward else 0
        )
        # At the end of a window, the beginning of this step stands for that of the next one.
        self.between_ns = took_ns(own.rest) + took_ns((following or own).before)
        self.copy_ns, self.update_ns = took_ns(own.copies), took_ns(own.updates)


def _shares(names: list[str], needs: Mapping[str, float], ledger: Ledger) -> dict[str, float]:
    """Returns the share of forward before each parameter is needed. Without recorded modules,
    forward is assumed to be backward reversed."""
    unknown = [name for name in names if name not in needs]
    ledger.note(
        "needs-guessed",
        "no detailed step shows when forward needs a parameter: needs are assumed in the reverse"
        " order of gradients, evenly spread",
        severity=Severity.WARNING,
        count=len(unknown),
        remedy="record with `augury run`, and let the job go on for some steps after the windows",
        example=unknown[0] if unknown else "",
    )
    if unknown:
        count = len(names)
        return {name: 1 - (place + 1) / count for place, name in enumerate(names)}
    return {name: needs[name] for name in names}


def _as_recorded(graph: Graph, cost: TransferCost) -> TransferCost:
    """Scales a cost so that it gives the recorded total time of the run's own gradients. The fit
    over all collectives weighs small and large ones alike."""
    carried = np.unique(graph.gradients.carried_by)
    real_ns = float(graph.ops.work_ns[carried].sum())
    modelled_ns = sum(cost.time_ns(int(size)) for size in graph.ops.size_bytes[carried])
    factor = real_ns / modelled_ns if modelled_ns and real_ns else 1.0
    return cost.changed(wire=factor, rest=factor)


def _slowdown_on(timeline: Timeline, stream: int) -> float:
    """Returns the factor by which interference lengthened the collectives of a stream."""
    ops = timeline.graph.ops
    work_ns = int(ops.work_ns[ops.resource == stream].sum())
    return max(1.0, int(timeline.utilization.busy_ns[stream]) / max(1, work_ns))


def _middle(values: Sequence[int]) -> int:
    return round(float(np.median(values)))


def _spread(values: Sequence[int]) -> int:
    middle = float(np.median(values))
    return round(_SIGMA_OF_MAD * float(np.median(np.abs(np.array(values) - middle))))
