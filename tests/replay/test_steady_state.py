"""The steady state on windows small enough to unroll by hand."""

from __future__ import annotations

import pytest

from augury.core.enums import MemoryKind, Role
from augury.core.graph.builder import GraphBuilder
from augury.core.graph.graph import NONE, Graph
from augury.core.timeline import Reason
from augury.replay import kernel, reference, steady_state
from augury.replay.engine import EngineName
from augury.replay.run import replay
from augury.replay.steady_state import find_steady_state

from .path_truth import assert_steady_path_is_true, assert_tiles

every_engine = pytest.mark.parametrize("engine", ["native", "reference"])


# -- one step after the other --------------------------------------------------------------

F1, F2, B2, B1, C2A, C1, C2B, C2C = range(8)


def _two_layers(*, has_barrier: bool) -> Graph:
    """Layer 2's gradient goes in three pieces, layer 1's in one that is more urgent. Alone:

    compute  F1 [0, 10)  F2 [10, 20)  B2 [20, 40)  B1 [40, 60)
    link                                C2A [40, 60)  C1 [60, 65)  C2B [65, 85)  C2C [85, 105)
    """
    b = GraphBuilder()
    rank = b.rank()
    compute, link = b.resource("compute", rank=rank), b.resource("link", rank=rank)
    previous: list[int] = []
    for name, work_ns in (("F1", 10), ("F2", 10), ("B2", 20), ("B1", 20)):
        previous = [b.op(name, rank=rank, resource=compute, work_ns=work_ns, after=previous)]
    for name, work_ns, priority, after in (
        ("C2A", 20, 1, B2),
        ("C1", 5, 0, B1),
        ("C2B", 20, 1, B2),
        ("C2C", 20, 1, B2),
    ):
        b.op(name, rank=rank, resource=link, work_ns=work_ns, priority=priority, after=[after])
    if has_barrier:
        for last in (C1, C2A, C2B, C2C):
            b.carry(last, F1)
    else:
        b.carry(C1, F1)
        for piece in (C2A, C2B, C2C):
            b.carry(piece, F2)
    return b.build()


@every_engine
def test_with_a_barrier_the_period_is_the_makespan(engine: EngineName):
    timeline = replay(_two_layers(has_barrier=True), engine=engine)
    assert timeline.step_ns == timeline.makespan_ns == 105
    assert timeline.rank_step_ns == (105,)
    assert timeline.start_ns.tolist() == [0, 10, 20, 40, 40, 60, 65, 85]
    assert not timeline.ledger
    assert_steady_path_is_true(timeline)
    assert timeline.critical_path.op.tolist() == [F1, F2, B2, B1, C1, C2B, C2C]


@every_engine
def test_without_a_barrier_what_overlaps_the_window_before_is_free(engine: EngineName):
    # Layer 1 arrives at 65: F1 runs in [65, 75), at the same time as C2B; F2 has to wait for C2C
    # until 105. From there it continues as the first window from 10: every further window takes
    # 95.
    timeline = replay(_two_layers(has_barrier=False), engine=engine)
    assert timeline.step_ns == 95
    assert timeline.rank_step_ns == (95,)
    # Time zero is when F1 starts, 40 before the window before ends.
    assert timeline.start_ns.tolist() == [0, 40, 50, 70, 70, 90, 95, 115]
    assert timeline.makespan_ns == 135
    assert_steady_path_is_true(timeline)
    path = timeline.critical_path
    assert path.op.tolist() == [F2, B2, B1, C1, C2B, C2C]
    assert path.start_ns.tolist() == [40, 50, 70, 90, 95, 115]
    reasons = [*[Reason.DATA] * 4, *[Reason.RESOURCE] * 2]
    assert path.reason.tolist() == reasons
    # Of 95 ns compute works 60, the link 65.
    assert timeline.utilization.busy_ns.tolist() == [60, 65]
    assert timeline.utilization.idle_ns.tolist() == [35, 30]


@every_engine
def test_a_window_of_two_steps(engine: EngineName):
    b = GraphBuilder()
    rank = b.rank()
    first = b.op("first", rank=rank, work_ns=10, step=0)
    second = b.op("second", rank=rank, work_ns=15, step=1, after=[first])
    b.carry(second, first)
    timeline = replay(b.build(), engine=engine)
    assert timeline.step_ns == 12  # 25 / 2, to the even one
    assert timeline.rank_step_ns == (12,)
    assert_tiles(timeline.critical_path, 0, 25)


@every_engine
def test_a_pattern_of_two_windows(engine: EngineName):
    # Each rank's work waits for the other's of the window before, so that each end is a sum of
    # 10, 2, 10, 2, ... from either end. The last ends are at 10, 12, 22, 24, 34, 36, ...
    b = GraphBuilder()
    slow = b.op("slow", rank=b.rank(), work_ns=10)
    fast = b.op("fast", rank=b.rank(), work_ns=2)
    b.carry(slow, fast)
    b.carry(fast, slow)
    graph = b.build()
    found = find_steady_state(graph, kernel.simulate)
    assert (found.has_settled, found.pattern, found.num_windows) == (True, 2, 8)
    assert found.window_end_ns.max(axis=1).tolist() == [10, 12, 22, 24, 34, 36, 46, 48]
    timeline = replay(graph, engine=engine)
    assert timeline.step_ns == 6
    assert timeline.rank_step_ns == (6, 6)
    assert not timeline.ledger
    # The last of the two: from 46 to 48.
    assert timeline.critical_path.dur_ns.sum() == 2


# -- ranks ---------------------------------------------------------------------------------


def test_each_rank_has_its_own_period():
    b = GraphBuilder()
    for work_ns in (10, 15):
        op = b.op("op", rank=b.rank(), work_ns=work_ns)
        b.carry(op, op)
    timeline = replay(b.build())
    assert timeline.rank_step_ns == (10, 15)
    assert timeline.step_ns == 15


def test_the_slowest_rank_counts_even_while_another_ends_later():
    # A tail of 1,000 without successors ends last for the first 200 windows.
    b = GraphBuilder()
    fast, slow = b.rank(), b.rank()
    head = b.op("head", rank=fast, work_ns=10)
    b.op("tail", rank=fast, work_ns=1_000, after=[head])
    b.carry(head, head)
    other = b.op("other", rank=slow, work_ns=15)
    b.carry(other, other)
    timeline = replay(b.build())
    assert timeline.rank_step_ns == (10, 15)
    assert timeline.step_ns == 15


def test_servers_serve_but_do_not_make_the_step():
    b = GraphBuilder()
    worker, server = b.rank(), b.rank(role=Role.SERVER)
    work = b.op("work", rank=worker, work_ns=10)
    b.op("log", rank=server, work_ns=7, after=[work])
    b.carry(work, work)
    timeline = replay(b.build())
    assert timeline.step_ns == 10
    assert timeline.rank_step_ns == (10, 0)
    assert timeline.end_ns.tolist() == [10, 17]
    # The path is that of the step, not of concurrent operations outside of it.
    assert timeline.critical_path.op.tolist() == [work]
    assert_tiles(timeline.critical_path, 0, 10)


def test_without_workers_servers_make_the_step():
    b = GraphBuilder()
    op = b.op("serve", rank=b.rank(role=Role.SERVER), work_ns=9, step=NONE)
    b.carry(op, op)
    timeline = replay(b.build())
    assert timeline.step_ns == 9
    assert_tiles(timeline.critical_path, 0, 9)


def test_operations_outside_of_steps_do_not_make_the_step():
    b = GraphBuilder()
    rank = b.rank()
    work = b.op("work", rank=rank, work_ns=10)
    b.op("checkpoint", rank=rank, work_ns=90, step=NONE, after=[work])
    b.carry(work, work)
    timeline = replay(b.build())
    assert timeline.step_ns == 10
    assert_tiles(timeline.critical_path, 0, 10)


# -- no steady state -----------------------------------------------------------------------


def _round_robin(works: list[int]) -> Graph:
    """Each rank waits for the one before it, of the window before."""
    b = GraphBuilder()
    ops = [b.op("op", rank=b.rank(), work_ns=work_ns) for work_ns in works]
    for i, op in enumerate(ops):
        b.carry(op, ops[(i + 1) % len(ops)])
    return b.build()


@every_engine
def test_a_pattern_too_long_to_wait_for_is_noted(engine: EngineName):
    # Every fifth window takes 10,000. The last ends are at 10,000, 10,001, 10,002: three in a row
    # at the same distance, but no rank's own ends are.
    timeline = replay(_round_robin([10_000, 1, 1, 1, 1]), engine=engine)
    assert "no-steady-period" in timeline.ledger
    anomaly = timeline.ledger["no-steady-period"]
    assert "64 windows" in anomaly.meaning
    assert "average" in anomaly.remedy
    # In truth 10,004 / 5; any 32 windows in a row have 6 or 7 of the long ones.
    assert 6 * 10_000 / 32 <= timeline.step_ns <= 7 * 10_004 / 32
    assert_tiles(timeline.critical_path, 9_999, timeline.makespan_ns)


def test_a_pattern_of_four_is_waited_for():
    found = find_steady_state(_round_robin([10_000, 1, 1, 1]), kernel.simulate)
    assert (found.has_settled, found.pattern, found.num_windows) == (True, 4, 16)
    assert found.period_ns == 10_003 / 4
    assert found.rank_period_ns() == [10_003 / 4] * 4


def test_large_graphs_are_unrolled_no_further(monkeypatch: pytest.MonkeyPatch):
    graph = _round_robin([10_000, 1, 1, 1, 1])
    monkeypatch.setattr(steady_state, "MAX_UNROLLED_OPS", 8 * graph.num_ops)
    found = find_steady_state(graph, kernel.simulate)
    assert (found.has_settled, found.num_windows, found.pattern) == (False, 8, 4)
    assert "8 windows" in replay(graph).ledger["no-steady-period"].meaning


@every_engine
def test_a_backlog_that_grows_for_ever_is_noted(engine: EngineName):
    # The next window's urgent work always precedes the rest of this one, which is done
    # only when no more windows come, 5 after 5. No resource gets 15 ns of work done in less.
    b = GraphBuilder()
    rank = b.rank()
    stream = b.resource("stream", rank=rank)
    urgent = b.op("urgent", rank=rank, resource=stream, work_ns=10)
    b.op("left over", rank=rank, resource=stream, work_ns=5, priority=1, after=[urgent])
    b.carry(urgent, urgent)
    timeline = replay(b.build(), engine=engine)
    assert timeline.step_ns == 15
    assert "no-steady-period" in timeline.ledger


def test_what_starts_at_once_in_every_window_hides_nothing_for_long():
    # "loose" has no predecessor: its end, 40, is the last of the first 20 windows.
    b = GraphBuilder()
    rank = b.rank()
    stream = b.resource("stream", rank=rank)
    b.op("loose", rank=rank, work_ns=40)
    work = b.op("work", rank=rank, resource=stream, work_ns=2)
    b.carry(work, work)
    found = find_steady_state(b.build(), kernel.simulate)
    assert (found.has_settled, found.num_windows, found.period_ns) == (True, 32, 2)


# -- memory --------------------------------------------------------------------------------


def test_memory_that_is_given_back_in_the_next_window_meets_what_that_takes():
    b = GraphBuilder()
    rank = b.rank()
    forward = b.op("forward", rank=rank, work_ns=10)
    backward = b.op("backward", rank=rank, work_ns=20, after=[forward])
    b.carry(backward, forward)
    b.buffer(1_000, rank=rank, kind=MemoryKind.PARAMETER)
    b.buffer(
        100, rank=rank, kind=MemoryKind.ACTIVATION, taken_by=forward, given_by=backward, layer="l"
    )
    b.buffer(
        60, rank=rank, kind=MemoryKind.GRADIENT, taken_by=backward, given_by=forward, later=True
    )
    [peak] = replay(b.build()).peak_memory
    # In backward: parameters, activations, this window's gradients; the last window's went with
    # forward. At 10 of the last window, which starts at 0.
    assert (peak.rank, peak.size_bytes, peak.at_ns) == (rank, 1_160, 10)
    assert [(holder.kind, holder.layer, holder.size_bytes) for holder in peak.holders] == [
        (MemoryKind.PARAMETER, "", 1_000),
        (MemoryKind.ACTIVATION, "l", 100),
        (MemoryKind.GRADIENT, "", 60),
    ]


def test_memory_that_is_never_given_back_adds_up():
    b = GraphBuilder()
    rank = b.rank()
    op = b.op("op", rank=rank, work_ns=10)
    b.carry(op, op)
    b.buffer(5, rank=rank, taken_by=op)
    graph = b.build()
    num_windows = find_steady_state(graph, reference.simulate).num_windows
    [peak] = replay(graph).peak_memory
    assert peak.size_bytes == 5 * num_windows


# -- recorded windows ----------------------------------------------------------------------


def test_a_recorded_window_is_replayed_once_and_its_step_is_the_middle_one():
    b = GraphBuilder()
    ranks = [b.rank(), b.rank(role=Role.SERVER), b.rank()]
    first = b.op("first", rank=ranks[0], work_ns=10, step=0)
    second = b.op("second", rank=ranks[0], work_ns=14, step=2, after=[first])
    b.op("disturbed", rank=ranks[0], work_ns=99, step=3, after=[second])
    b.op("serve", rank=ranks[1], work_ns=3, step=NONE, after=[second])
    b.op("other", rank=ranks[2], work_ns=5, step=2, after=[first])
    timeline = replay(b.build())
    assert timeline.num_simulated_ops == 5
    assert timeline.step_ns == 14  # of 10, 14 and 99
    assert timeline.rank_step_ns == (14, 0, 5)
    steps = zip(*(values.tolist() for _, values in timeline.rank_steps.columns()), strict=True)
    assert list(steps) == [(0, 0, 0, 10), (0, 2, 10, 24), (0, 3, 24, 123), (2, 2, 10, 15)]
    assert_tiles(timeline.critical_path, 0, 123)
