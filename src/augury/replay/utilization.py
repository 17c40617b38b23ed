"""Utilization of resources, and the times of steps on each rank."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from augury.core.columns import I4, I8
from augury.core.enums import OpKind
from augury.core.graph.graph import NONE, Graph
from augury.core.timeline import RankSteps, ResourceUtilization
from augury.replay.op_times import OpTimes

Some = I8 | slice
"""Selected rows of columns; a slice for all rows, which copies nothing."""


def rows_where(mask: NDArray[np.bool_]) -> Some:
    return slice(None) if mask.all() else np.flatnonzero(mask)


def progress_start_ns(graph: Graph, op_times: OpTimes) -> I8:
    """Returns the time at which each operation began to progress: for members of a gang, the
    start of the last one."""
    member = graph.ops.gang != NONE
    if not member.any():
        return op_times.start_ns
    gang = graph.ops.gang[member]
    begin = np.zeros(graph.num_gangs, dtype=np.int64)
    np.maximum.at(begin, gang, op_times.start_ns[member])
    start_ns = op_times.start_ns.copy()
    start_ns[member] = begin[gang]
    return start_ns


def resource_utilization(
    graph: Graph, op_times: OpTimes, *, horizon_ns: int
) -> ResourceUtilization:
    """Returns the utilization over ``horizon_ns``: the makespan or the steady period."""
    count = len(graph.resources)
    placed = rows_where(graph.ops.resource != NONE)
    resource = graph.ops.resource[placed]
    end_ns = op_times.end_ns[placed]
    began_ns = progress_start_ns(graph, op_times)
    held = busy = _covered_ns(graph, resource, op_times.start_ns[placed], end_ns)
    if began_ns is not op_times.start_ns:
        busy = _covered_ns(graph, resource, began_ns[placed], end_ns)
    held, busy = np.minimum(held, horizon_ns), np.minimum(busy, horizon_ns)
    return ResourceUtilization(
        busy_ns=busy,
        waiting_ns=held - busy,
        idle_ns=horizon_ns - held,
        num_ops=np.bincount(resource, minlength=count),
    )


def _covered_ns(graph: Graph, resource: I4, start_ns: I8, end_ns: I8) -> I8:
    """Returns the time during which at least one interval of each resource is open."""
    count = len(graph.resources)
    covered = np.zeros(count, dtype=np.int64)
    is_single = graph.resources.width == 1
    np.add.at(covered, resource, end_ns - start_ns)
    if is_single.all():
        return covered
    covered[~is_single] = 0
    several = np.flatnonzero(~is_single[resource])
    resource, start_ns, end_ns = resource[several], start_ns[several], end_ns[several]
    order = np.lexsort((start_ns, resource))
    resource = resource[order]
    # The intervals of each resource are shifted after those of the one before, so that one running
    # maximum serves all. Times are numbered first: shifted ones would not fit 64 bits.
    times, number = np.unique(np.concatenate([start_ns, end_ns]), return_inverse=True)
    start, end = number[: len(order)][order], number[len(order) :][order]
    shift = resource.astype(np.int64) * len(times)
    reach = np.maximum.accumulate(np.concatenate([[0], end + shift]))[:-1] - shift
    np.add.at(covered, resource, times[np.maximum(end, reach)] - times[np.maximum(start, reach)])
    return covered


def step_durations_ns(steps: RankSteps) -> I8:
    """Returns the time from the end of one step to the end of the next, on the last rank that
    ends it; the first step counts from its own start."""
    if not len(steps):
        return np.empty(0, dtype=np.int64)
    number = np.unique(steps.step, return_inverse=True)[1]
    end_ns = np.zeros(int(number.max()) + 1, dtype=np.int64)
    np.maximum.at(end_ns, number, steps.end_ns)
    end_ns = np.maximum.accumulate(end_ns)
    return np.diff(end_ns, prepend=steps.start_ns[number == 0].min())


def rank_steps(graph: Graph, op_times: OpTimes) -> RankSteps:
    """Returns the first start and the last end of each step on each rank. A step that has a
    STEP_END ends with it, although kernels that it launched may still run."""
    inside = rows_where(graph.ops.step != NONE)
    rank, step = graph.ops.rank[inside], graph.ops.step[inside]
    num_steps = max(int(step.max(initial=NONE)) + 1, 1)
    group = rank * np.int64(num_steps) + step
    num_groups = len(graph.ranks) * num_steps
    if num_groups <= 2 * graph.num_ops:
        present = np.arange(num_groups)
    else:
        present, group = np.unique(group, return_inverse=True)
    never_ns = np.iinfo(np.int64).max
    start_ns = np.full(len(present), never_ns)
    end_ns = np.zeros(len(present), dtype=np.int64)
    np.minimum.at(start_ns, group, op_times.start_ns[inside])
    np.maximum.at(end_ns, group, op_times.end_ns[inside])
    is_end = graph.ops.kind[inside] == OpKind.STEP_END
    if is_end.any():
        end_ns[group[is_end]] = op_times.end_ns[inside][is_end]
    there = np.flatnonzero(start_ns != never_ns)
    rank, step = (column.astype(np.int32) for column in np.divmod(present[there], num_steps))
    return RankSteps(
        rank=rank,
        step=step,
        start_ns=start_ns[there],
        end_ns=end_ns[there],
    )
