"""The C++ engine: the reference's semantics at the hardware's speed."""

from __future__ import annotations

import numpy as np

from augury import _native
from augury.core.graph import Graph
from augury.replay.schedule import Schedule


def simulate(graph: Graph) -> Schedule:
    ops, resources, rules = graph.ops, graph.resources, graph.interference
    schedule = Schedule(
        np.empty(graph.num_ops, np.int64),
        np.empty(graph.num_ops, np.int64),
        np.empty(graph.num_ops, np.int32),
    )
    _native.simulate(
        work_ns=ops.work_ns,
        resource=ops.resource,
        priority=ops.priority,
        gang=ops.gang,
        num_gangs=graph.num_gangs,
        first=graph.edges.first,
        dst=graph.edges.dst,
        width=resources.width,
        capacity=resources.capacity,
        is_fifo=resources.discipline,
        victim=rules.victim,
        aggressor=rules.aggressor,
        rate=rules.rate,
        rated=not graph.is_exclusive,
        start_ns=schedule.start_ns,
        end_ns=schedule.end_ns,
        cause=schedule.cause,
    )
    return schedule
