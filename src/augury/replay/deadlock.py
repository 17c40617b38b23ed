"""Describes the cycle of operations that wait for each other in a deadlock."""

from __future__ import annotations

from itertools import pairwise

from augury.core.errors import DeadlockError
from augury.core.graph.graph import NONE, Graph
from augury.replay.op_times import PENDING, OpTimes


def explain_deadlock(graph: Graph, op_times: OpTimes, *, num_ops: int) -> DeadlockError:
    """Follows operations that did not end, each of which waits for another one, until one recurs.
    ``num_ops`` is the number of operations in one window; the graph may be several in a row."""
    seen: dict[int, str] = {}
    op = int((op_times.end_ns == PENDING).argmax())
    while op not in seen:
        seen[op], after = _waits_for(graph, op_times, op)
        op = after
    ops = list(seen)
    circle = ops[ops.index(op) :]
    labels = [_label(graph, member, num_ops) for member in [*circle, circle[0]]]
    cycle = tuple(
        f"{label} {seen[member]} {awaited}"
        for member, (label, awaited) in zip(circle, pairwise(labels), strict=True)
    )
    shown = "; ".join(cycle[:8]) + (f"; and {len(cycle) - 8} more" if len(cycle) > 8 else "")
    return DeadlockError(
        f"the replay deadlocks: {shown}",
        cycle=cycle,
        remedy="make all ranks issue their collectives in the same order",
    )


def _label(graph: Graph, op: int, num_ops: int) -> str:
    window, number = divmod(op, num_ops)
    return graph.op_label(number) + (f" in window {window + 1}" if window else "")


def _waits_for(graph: Graph, op_times: OpTimes, op: int) -> tuple[str, int]:
    if op_times.start_ns[op] != PENDING:
        # Started but never ended: a member of a gang whose peers did not all start.
        for peer in graph.gang_members.of(int(graph.ops.gang[op])):
            if op_times.start_ns[peer] == PENDING:
                return "holds its place and waits for its peer", int(peer)
        raise AssertionError("a complete gang must end")
    for before in graph.predecessors.of(op):
        if op_times.end_ns[before] == PENDING:
            return "waits for the result of", int(before)
    resource = int(graph.ops.resource[op])
    assert resource != NONE, "a ready operation without a resource must start"
    holders = (
        (graph.ops.resource == resource)
        & (op_times.start_ns != PENDING)
        & (op_times.end_ns == PENDING)
    )
    return f"waits for a place on {graph.resource_name(resource)!r}, held by", int(holders.argmax())
