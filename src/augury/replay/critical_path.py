"""The critical path: walks back from the last end along the causes of starts."""

from __future__ import annotations

import numpy as np

from augury.core.graph.graph import NONE, Graph
from augury.core.timeline import CriticalPath, Reason
from augury.replay.engine import is_native_built
from augury.replay.op_times import NO_CAUSE, OpTimes


def last_to_end(op_times: OpTimes) -> int:
    return int(op_times.end_ns.argmax())


def critical_path(
    graph: Graph, op_times: OpTimes, *, last_op: int | None = None, since_ns: int = 0
) -> CriticalPath:
    """Returns the path that ends with ``last_op`` (by default the last to end), back to
    ``since_ns``. ``op_times`` cover one window of the graph, or several in a row."""
    end = last_to_end(op_times) if last_op is None else last_op
    if is_native_built():
        from augury._native import walk_back  # noqa: PLC0415
        from augury.replay.kernel import native_graph  # noqa: PLC0415

        op, start_ns, dur_ns, reason = walk_back(
            native_graph(graph, len(op_times.end_ns) // graph.num_ops),
            op_times.start_ns,
            op_times.end_ns,
            op_times.cause,
            end,
            since_ns,
        )
        return CriticalPath(op=op, start_ns=start_ns, dur_ns=dur_ns, reason=reason)
    return walk_back_in_python(graph, op_times, end, since_ns)


def walk_back_in_python(
    graph: Graph, op_times: OpTimes, last_op: int, since_ns: int
) -> CriticalPath:
    rows: list[tuple[int, int, int, Reason]] = []
    op = last_op
    while True:
        end_ns = int(op_times.end_ns[op])
        arrived = _last_to_arrive(graph, op_times, op)
        begin_ns = int(op_times.start_ns[arrived])
        full_speed_ns = begin_ns + int(graph.ops.work_ns[op % graph.num_ops])
        if full_speed_ns < end_ns:
            rows.append((op, full_speed_ns, end_ns - full_speed_ns, Reason.SLOWED))
        work_ns = min(full_speed_ns, end_ns) - begin_ns
        reason, before = _reason(int(op_times.cause[arrived]))
        if arrived == op:
            rows.append((op, begin_ns, work_ns, reason))
        else:
            rows.append((op, begin_ns, work_ns, Reason.GANG))
            rows.append((arrived, begin_ns, 0, reason))
        if before == NONE or begin_ns <= since_ns:
            break
        op = before
    return _clipped(rows, since_ns)


def _last_to_arrive(graph: Graph, op_times: OpTimes, op: int) -> int:
    """Returns the member of the operation's gang that arrived last; without a gang, itself."""
    window, own = divmod(op, graph.num_ops)
    gang = int(graph.ops.gang[own])
    if gang == NONE:
        return op
    members = graph.gang_members.of(gang) + window * graph.num_ops
    return int(members[op_times.start_ns[members].argmax()])


def _reason(cause: int) -> tuple[Reason, int]:
    if cause == NO_CAUSE:
        return Reason.START, NONE
    return (Reason.DATA, cause) if cause >= 0 else (Reason.RESOURCE, -2 - cause)


def _clipped(rows: list[tuple[int, int, int, Reason]], since_ns: int) -> CriticalPath:
    """Returns the path earliest first, without the time before ``since_ns``."""
    rows.reverse()
    op, start_ns, dur_ns, reason = np.array(rows, np.int64).T
    end_ns = start_ns + dur_ns
    start_ns = np.maximum(start_ns, since_ns)
    kept = end_ns >= start_ns
    return CriticalPath(
        op=op[kept].astype(np.int32),
        start_ns=start_ns[kept],
        dur_ns=(end_ns - start_ns)[kept],
        reason=reason[kept].astype(np.uint8),
    )
