"""A lower bound on the replayed step of a recorded run under any order of its gradients.

A replayed order (``communication_order.py``) keeps the recorded work of each rank's main thread and
sends gradients by collectives or by point-to-point messages. From the start of one backward to the
start of the next, each step therefore obeys a scheduling problem whose quantities are lower bounds:

- Compute runs at full rate: interference only slows it. Releases, forward and updates are sums of
  recorded work of this rank and this step. The overhead of the runtime is left out.
- Messages of an exchange occupy the connection for exactly their cost, one after the other.
- A collective of s bytes costs at least a + b s, times this step's residual. Collectives may share
  the link, so that the fixed cost of one overlaps with the bytes of another. The bytes of any set
  of gradients, and one fixed cost, still pass the link after the first of them is released. So the
  fixed cost is the latency of the bound, and its overhead per message is zero.

``lower_bound`` of that problem holds for the step. The step of a replay is the median over steps,
of the slowest rank; so is the bound. The first step of a window follows no other step and only has
its own compute. Replay cuts steps at their ends, the bound at the start of backward: where recorded
steps differ much, the two medians may differ by that.
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
from augury.costs.p2p_exchange import P2PExchange
from augury.costs.transfer_times import TransferCost
from augury.passes.communication_order import FEW_STEPS
from augury.passes.pieces.piece_exchange import carried_by, recorded_over_model
from augury.schedule.lower_bound import lower_bound

ROUNDING = 1e-3
"""Largest share of a message's time that rounding to nanoseconds may remove."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ways:
    """Costs of all the ways in which orders of one case are replayed."""

    costs: tuple[Costs, ...]
    during_compute: TransferCost | None
    p2p: P2PExchange | None


def replay_bound(graph: Graph, problem: Problem, ways: Ways) -> int:
    """Returns the lower bound on the replayed step. ``problem`` gives the order in which gradients
    are needed."""
    of_rank: dict[int, list[StepParts]] = defaultdict(list)
    for parts in parts_of(graph).values():
        of_rank[parts.rank].append(parts)
    return int(max(_of_rank(graph, problem, ways, steps) for steps in of_rank.values()))


def _of_rank(graph: Graph, problem: Problem, ways: Ways, steps: Sequence[StepParts]) -> float:
    if graph.num_steps < FEW_STEPS:  # the window is joined to itself
        pairs = zip(steps, [*steps[1:], steps[0]], strict=True)
        return fmean(_of_step(graph, problem, ways, one, after) for one, after in pairs)
    by_step = {parts.step: parts for parts in steps}
    pairs_inside = [
        (parts, by_step[parts.next_step]) for parts in steps if parts.next_step in by_step
    ]
    first = steps[0]
    compute = [*first.before, *first.forward, *first.backward, *first.rest]
    found = [float(_work_ns(graph, compute))]
    found += [_of_step(graph, problem, ways, one, after) for one, after in pairs_inside]
    return median(found)


def _of_step(graph: Graph, problem: Problem, ways: Ways, own: StepParts, after: StepParts) -> float:
    """Returns the bound from the start of one backward to the start of the next."""
    alone = _without_interference(graph, problem, own, after)
    networks = [_collectives(graph, own, costs, ways.during_compute) for costs in ways.costs]
    if ways.p2p is not None:
        networks.append(ways.p2p.network)
    return min(lower_bound(replace(alone, network=network)) for network in networks)


def _without_interference(
    graph: Graph, problem: Problem, own: StepParts, after: StepParts
) -> Problem:
    work_ns, gradients = graph.ops.work_ns, graph.gradients
    released_ns: dict[int, int] = {}
    worked_ns = 0
    for op in own.backward:
        worked_ns += int(work_ns[op])
        released_ns[op] = worked_ns
    made_by = {
        graph.strings[int(gradients.name[row])]: int(gradients.made_by[row]) for row in own.rows
    }
    forward_ns = _work_ns(graph, after.forward)
    update_ns, copy_ns = _work_ns(graph, own.updates), copy_ns_of(graph, own)
    return replace(
        problem,
        backward_ns=worked_ns,
        between_ns=_work_ns(graph, [*own.rest, *after.before]),
        forward_ns=forward_ns,
        gradients=tuple(
            replace(
                gradient,
                release_ns=released_ns[made_by[gradient.name]],
                need_ns=round(forward_ns * gradient.need_ns / max(1, problem.forward_ns)),
                update_ns=int(
                    update_ns * gradient.size_bytes / problem.size_bytes + copy_ns[gradient.name]
                ),
            )
            for gradient in problem.gradients
        ),
    )


def _collectives(
    graph: Graph, own: StepParts, costs: Costs, during_compute: TransferCost | None
) -> Network:
    """Returns a line a + b s below the cost, which is piecewise linear: ``b`` is its least slope,
    ``a`` the largest constant for which the line is nowhere above the cost."""
    carried = carried_by(graph, own)
    cost = costs[OpKind(int(graph.ops.kind[carried[0]]))]
    factor = recorded_over_model(graph, carried, cost, during_compute) * (1 - ROUNDING)
    known = list(zip(cost.sizes_bytes, cost.times_ns, strict=True))
    slope = min([cost.ns_per_byte, *(time_ns / size for size, time_ns in known if size)])
    fixed_ns = min(time_ns - slope * size for size, time_ns in known)
    return Network(ns_per_byte=slope * factor, latency_ns=int(max(0.0, fixed_ns) * factor))


def _work_ns(graph: Graph, ops: Sequence[int]) -> int:
    return int(graph.ops.work_ns[[op for op in ops if op != NONE]].sum())
