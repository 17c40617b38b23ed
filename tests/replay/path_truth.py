"""Checks each row of a critical path against the graph and its times."""

from __future__ import annotations

import numpy as np

from augury.core.graph.graph import NONE, Graph
from augury.core.timeline import CriticalPath, Reason, Timeline
from augury.replay import kernel
from augury.replay.op_times import OpTimes
from augury.replay.steady_state import find_steady_state


def assert_tiles(path: CriticalPath, begin_ns: int, end_ns: int) -> None:
    """Checks that rows follow each other without a gap."""
    ends = path.start_ns + path.dur_ns
    assert (path.dur_ns >= 0).all()
    assert path.start_ns.tolist() == [begin_ns, *ends[:-1].tolist()]
    assert ends[-1] == end_ns


def assert_path_is_true(graph: Graph, op_times: OpTimes, path: CriticalPath) -> None:
    """Checks a path that goes back to time 0; operations without duration before it are skipped."""
    assert path.start_ns[0] == 0
    assert Reason.START not in path.reason[1:]
    if path.reason[0] == Reason.START:
        assert not len(graph.predecessors.of(int(path.op[0])))
    elif path.reason[0] == Reason.DATA:
        assert not op_times.end_ns[graph.predecessors.of(int(path.op[0]))].any()
    began_ns = _began_ns(graph, op_times)
    for i in range(len(path)):
        op, start_ns = int(path.op[i]), int(path.start_ns[i])
        if path.reason[i] == Reason.SLOWED:
            assert start_ns == began_ns[op] + graph.ops.work_ns[op]
            assert start_ns + path.dur_ns[i] == op_times.end_ns[op]
        else:
            assert start_ns == began_ns[op]
            is_arrival = i + 1 < len(path) and path.reason[i + 1] == Reason.GANG
            assert path.dur_ns[i] == (0 if is_arrival else graph.ops.work_ns[op])
        if i:
            _assert_hop_is_true(graph, op_times, path, i)


def _assert_hop_is_true(graph: Graph, op_times: OpTimes, path: CriticalPath, i: int) -> None:
    op, before, now_ns = int(path.op[i]), int(path.op[i - 1]), int(path.start_ns[i])
    assert_hop_exists(graph, op, before, Reason(int(path.reason[i])))
    waited_for = graph.predecessors.of(op)
    match Reason(int(path.reason[i])):
        case Reason.DATA:
            assert op_times.end_ns[before] == now_ns == op_times.end_ns[waited_for].max()
            assert op_times.start_ns[op] == now_ns
        case Reason.RESOURCE:
            assert op_times.end_ns[before] == now_ns
            assert op_times.start_ns[op] == now_ns
            assert op_times.end_ns[waited_for].max(initial=0) < now_ns
        case Reason.GANG:
            members = graph.gang_members.of(int(graph.ops.gang[op]))
            assert op_times.start_ns[before] == now_ns == op_times.start_ns[members].max()


def assert_hop_exists(
    graph: Graph, op: int, before: int, reason: Reason, *, across_windows: bool = False
) -> None:
    """That there is something by which ``op`` can have waited for ``before``."""
    match reason:
        case Reason.DATA:
            carried = graph.carries.src[graph.carries.dst == op]
            assert before in graph.predecessors.of(op) or (across_windows and before in carried)
        case Reason.RESOURCE:
            assert graph.ops.resource[op] == graph.ops.resource[before] != NONE
            assert across_windows or op != before
        case Reason.GANG:
            assert graph.ops.gang[op] == graph.ops.gang[before] != NONE
            assert op != before
        case Reason.SLOWED:
            assert op == before
        case Reason.START:
            raise AssertionError("nothing comes before the start")


def assert_steady_path_is_true(timeline: Timeline) -> None:
    """Of one window in a run of equal ones: rows tile one period, and each hop exists, within
    the window or from the one before."""
    graph, path, period_ns = timeline.graph, timeline.critical_path, timeline.step_ns
    assert_tiles(path, int(path.start_ns[0]), int(path.start_ns[0]) + period_ns)
    op_times = OpTimes(timeline.start_ns, timeline.end_ns, np.empty(0, np.int32))
    began_ns = _began_ns(graph, op_times)
    for i in range(1, len(path)):
        op, before, reason = int(path.op[i]), int(path.op[i - 1]), Reason(int(path.reason[i]))
        assert_hop_exists(graph, op, before, reason, across_windows=True)
        if reason is not Reason.SLOWED:
            # Operations of an earlier window began that number of periods earlier.
            assert (int(began_ns[op]) - int(path.start_ns[i])) % period_ns == 0


def assert_true_of(timeline: Timeline) -> None:
    """Of any path: against the whole graph, or all windows of it in a row."""
    graph, path = timeline.graph, timeline.critical_path
    if not len(graph.carries):
        assert_tiles(path, 0, timeline.makespan_ns)
        op_times = OpTimes(timeline.start_ns, timeline.end_ns, np.empty(0, np.int32))
        assert_path_is_true(graph, op_times, path)
        return
    steady = find_steady_state(graph, kernel.simulate)
    start_ns, end_ns, began_ns = (
        times.reshape(steady.num_windows, graph.num_ops)
        for times in (
            steady.op_times.start_ns,
            steady.op_times.end_ns,
            _began_ns(steady.unrolled, steady.op_times),
        )
    )
    origin_ns = int(start_ns[-1, 0] - timeline.start_ns[0])
    assert (start_ns[-1] - timeline.start_ns == origin_ns).all()
    assert (end_ns[-1] - timeline.end_ns == origin_ns).all()
    begin, end = (int(steady.window_end_ns[window].max()) - origin_ns for window in (-2, -1))
    assert_tiles(path, begin, end)
    window = steady.num_windows - 1
    assert end_ns[window, path.op[-1]] == end + origin_ns
    for i in range(len(path) - 1, 0, -1):
        op, before, now_ns = int(path.op[i]), int(path.op[i - 1]), path.start_ns[i] + origin_ns
        reason = Reason(int(path.reason[i]))
        assert_hop_exists(graph, op, before, reason, across_windows=True)
        if reason is Reason.SLOWED:
            assert began_ns[window, op] + graph.ops.work_ns[op] == now_ns
            continue
        assert began_ns[window, op] == now_ns
        if reason is Reason.GANG:
            assert start_ns[window, before] == now_ns
        elif reason is Reason.RESOURCE:
            ended = np.flatnonzero(end_ns[:, before] == now_ns)
            window = int(ended[-1])
        elif before not in graph.predecessors.of(op) or end_ns[window, before] != now_ns:
            window -= 1
            assert before in graph.carries.src[graph.carries.dst == op]
            assert end_ns[window, before] == now_ns


def _began_ns(graph: Graph, op_times: OpTimes) -> np.ndarray:
    """When each operation began to progress."""
    began_ns = op_times.start_ns.copy()
    for gang in range(graph.num_gangs):
        members = graph.gang_members.of(gang)
        began_ns[members] = op_times.start_ns[members].max()
    return began_ns
