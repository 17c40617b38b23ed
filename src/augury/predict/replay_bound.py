"""A lower bound on the replayed step of a recorded run under any order of its gradients.

A replayed order (``communication_order.py``) keeps the recorded work of each rank's main thread and
sends gradients by collectives or by point-to-point messages. From the start of one backward to the
start of the next, each step therefore obeys a scheduling problem with these lower bounds:

- Compute runs at full rate, because interference only slows it. Release times of gradients, and
  the durations of forward and updates, are sums of the recorded work of this rank and this step.
  The overhead of the runtime is left out.
- Point-to-point messages occupy the connection for exactly their cost, one after the other.
- A collective of s bytes costs at least a + b s, times this step's residual. Collectives may share
  the link, so that the fixed cost a of one overlaps with the bytes of another. For any set of
  gradients, all of their bytes and one fixed cost still follow the first release. The bound
  therefore takes the fixed cost as latency and no overhead per message.

``lower_bound`` of that problem holds for the step. The replayed step is the median over the steps
of the slowest rank. The bound is likewise the median over the bounds of steps, of the rank where it
is largest. The first step of a window follows no other step, so its bound is its own compute.
Replay divides a run at the ends of steps, the bound at the starts of backward: if recorded steps
differ much, the two medians may differ as well.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from statistics import fmean, median

from augury.build.problem.step_parts import StepParts, copy_ns_of, parts_of
from augury.core.enums import OpKind
from augury.core.graph.graph import NONE, Graph
from augury.core.plan.problem import Network, Problem
from augury.costs.collective_costs import Costs
from augury.costs.p2p_exchange import PeerCosts
from augury.costs.transfer_times import TransferCost
from augury.passes.communication_order import FEW_STEPS
from augury.passes.pieces.piece_exchange import carried_by, recorded_over_model
from augury.schedule.lower_bound import lower_bound

ROUNDING = 1e-3
"""Largest share of a message's time that rounding to nanoseconds may remove."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExchangeCosts:
    """Costs of all ways in which a replay may exchange gradients."""

    collectives: tuple[Costs, ...]
    """Costs of collectives that run one at a time, and of collectives that share the link."""
    during_compute: TransferCost | None
    """Additional time of a collective that starts during backward."""
    p2p: PeerCosts | None


def replay_bound(graph: Graph, problem: Problem, costs: ExchangeCosts) -> int:
    """Returns the lower bound on the replayed step. ``problem`` gives the order in which gradients
    are needed."""
    steps_of_rank: dict[int, list[StepParts]] = defaultdict(list)
    for parts in parts_of(graph).values():
        steps_of_rank[parts.rank].append(parts)
    bounds = [_bound_of_rank(graph, problem, costs, steps) for steps in steps_of_rank.values()]
    return int(max(bounds))


def _bound_of_rank(
    graph: Graph, problem: Problem, costs: ExchangeCosts, steps: Sequence[StepParts]
) -> float:
    if graph.num_steps < FEW_STEPS:
        # The window is joined to itself: its first step follows its last.
        pairs = zip(steps, [*steps[1:], steps[0]], strict=True)
        return fmean(_bound_of_step(graph, problem, costs, own, after) for own, after in pairs)
    by_step = {parts.step: parts for parts in steps}
    pairs_inside = [
        (parts, by_step[parts.next_step]) for parts in steps if parts.next_step in by_step
    ]
    first = steps[0]
    compute = [*first.before, *first.forward, *first.backward, *first.rest]
    bounds = [float(_work_ns(graph, compute))]
    bounds += [_bound_of_step(graph, problem, costs, own, after) for own, after in pairs_inside]
    return median(bounds)


def _bound_of_step(
    graph: Graph, problem: Problem, costs: ExchangeCosts, own: StepParts, after: StepParts
) -> float:
    """Returns the bound from the start of backward in step ``own`` to that in the next step,
    ``after``."""
    undisturbed = _undisturbed_step(graph, problem, own, after)
    networks = [
        _collective_network(graph, own, collectives, costs.during_compute)
        for collectives in costs.collectives
    ]
    if costs.p2p is not None:
        networks.append(costs.p2p.network)
    return min(lower_bound(replace(undisturbed, network=network)) for network in networks)


def _undisturbed_step(graph: Graph, problem: Problem, own: StepParts, after: StepParts) -> Problem:
    """Returns the scheduling problem of one step, with compute at full rate. Times at which
    gradients are needed are scaled to the forward of the next step, ``after``."""
    work_ns, gradients = graph.ops.work_ns, graph.gradients
    release_ns: dict[int, int] = {}
    backward_ns = 0
    for op in own.backward:
        backward_ns += int(work_ns[op])
        release_ns[op] = backward_ns
    made_by = {
        graph.strings[int(gradients.name[row])]: int(gradients.made_by[row]) for row in own.rows
    }
    forward_ns = _work_ns(graph, after.forward)
    update_ns, copy_ns = _work_ns(graph, own.updates), copy_ns_of(graph, own)
    return replace(
        problem,
        backward_ns=backward_ns,
        between_ns=_work_ns(graph, [*own.rest, *after.before]),
        forward_ns=forward_ns,
        gradients=tuple(
            replace(
                gradient,
                release_ns=release_ns[made_by[gradient.name]],
                need_ns=round(forward_ns * gradient.need_ns / max(1, problem.forward_ns)),
                update_ns=int(
                    update_ns * gradient.size_bytes / problem.size_bytes + copy_ns[gradient.name]
                ),
            )
            for gradient in problem.gradients
        ),
    )


def _collective_network(
    graph: Graph, own: StepParts, costs: Costs, during_compute: TransferCost | None
) -> Network:
    """Returns a network with a cost a + b s that is nowhere above the cost of collectives.

    That cost is piecewise linear. ``b`` is the slope beyond the largest known size or, if smaller,
    the least time per byte at a known size, so that ``a`` is not negative. ``a`` is the largest
    constant for which the line is nowhere above the cost."""
    carried = carried_by(graph, own)
    cost = costs[OpKind(int(graph.ops.kind[carried[0]]))]
    factor = recorded_over_model(graph, carried, cost, during_compute) * (1 - ROUNDING)
    known = list(zip(cost.sizes_bytes, cost.times_ns, strict=True))
    slope = min([cost.ns_per_byte, *(time_ns / size for size, time_ns in known if size)])
    fixed_ns = min(time_ns - slope * size for size, time_ns in known)
    return Network(ns_per_byte=slope * factor, latency_ns=int(max(0.0, fixed_ns) * factor))


def _work_ns(graph: Graph, ops: Sequence[int]) -> int:
    return int(graph.ops.work_ns[[op for op in ops if op != NONE]].sum())
