"""``replay``: simulates a Graph and returns its Timeline."""

from __future__ import annotations

from dataclasses import replace

from augury.core.errors import DeadlockError
from augury.core.graph.graph import Graph
from augury.core.timeline import PeakMemory, Timeline
from augury.replay.deadlock import explain_deadlock
from augury.replay.engine import Engine, EngineName, find_engine
from augury.replay.fold import FoldedGraph, may_pay, unfold_path
from augury.replay.fold import fold as fold_ranks
from augury.replay.op_times import OpTimes
from augury.replay.unroll import unroll
from augury.replay.utilization import rank_steps, resource_utilization
from augury.replay.window import replay_window


def replay(graph: Graph, *, engine: EngineName = "auto", fold: bool = True) -> Timeline:
    """Replays the window; in the steady state if its steps depend on the step before
    (``graph.carries``). ``fold`` simulates identical ranks once where that may pay: exact, and
    faster."""
    simulate = refusing_deadlocks(find_engine(engine), num_ops=graph.num_ops)
    folded = fold_ranks(graph) if fold and may_pay(graph) else None
    try:
        return replay_folded(graph, folded, simulate)
    except DeadlockError:
        if folded is None:
            raise
        return replay(graph, engine=engine, fold=False)  # the same cycle with its own names


def replay_folded(graph: Graph, folded: FoldedGraph | None, simulate: Engine) -> Timeline:
    """Replays ``folded``, or ``graph`` itself without it, and returns the Timeline of ``graph``."""
    window = replay_window(graph if folded is None else folded.graph, simulate)
    op_times, path, peaks = window.op_times, window.path, window.peaks
    rank_step_ns = window.rank_step_ns
    if folded is not None:
        op_times = folded.expand(op_times)
        path = unfold_path(graph, folded, path)
        classes = folded.class_of_rank.tolist()
        peaks = _for_every_rank(peaks, classes)
        rank_step_ns = tuple(rank_step_ns[rank_class] for rank_class in classes)
    return Timeline(
        graph=graph,
        start_ns=op_times.start_ns,
        end_ns=op_times.end_ns,
        step_ns=window.step_ns,
        rank_step_ns=rank_step_ns,
        rank_steps=rank_steps(graph, op_times),
        critical_path=path,
        utilization=resource_utilization(graph, op_times, horizon_ns=window.horizon_ns),
        peak_memory=peaks,
        num_simulated_ops=window.num_simulated_ops,
        ledger=window.ledger,
    )


def refusing_deadlocks(engine: Engine, *, num_ops: int) -> Engine:
    """Returns an engine that raises DeadlockError where ``engine`` cannot finish."""

    def simulate(graph: Graph, num_windows: int = 1) -> OpTimes:
        op_times = engine(graph, num_windows)
        if not op_times.is_complete:
            raise explain_deadlock(unroll(graph, num_windows), op_times, num_ops=num_ops)
        return op_times

    return simulate


def _for_every_rank(peaks: tuple[PeakMemory, ...], classes: list[int]) -> tuple[PeakMemory, ...]:
    of_class = {peak.rank: peak for peak in peaks}
    return tuple(
        replace(of_class[rank_class], rank=rank)
        for rank, rank_class in enumerate(classes)
        if rank_class in of_class
    )
