"""Replay of one window: as recorded, or in the steady state if steps depend on the step before."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np

from augury.core.enums import OpKind
from augury.core.graph.graph import Graph
from augury.core.ledger import Ledger
from augury.core.measured_step import median_ns, over_ranks
from augury.core.timeline import CriticalPath, PeakMemory
from augury.replay.critical_path import critical_path
from augury.replay.engine import Engine
from augury.replay.op_times import OpTimes
from augury.replay.peak_memory import peak_memory
from augury.replay.steady_state import SteadyState, find_steady_state
from augury.replay.utilization import rank_steps, step_durations_ns


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ReplayWindow:
    """Outcome of replaying one window of a graph, whose ranks may have been folded."""

    op_times: OpTimes
    path: CriticalPath
    peaks: tuple[PeakMemory, ...]
    step_ns: int
    rank_step_ns: tuple[int, ...]
    horizon_ns: int
    """The time over which resources are counted as busy or idle."""
    num_simulated_ops: int
    ledger: Ledger = field(default_factory=Ledger)


def replay_window(graph: Graph, simulate: Engine) -> ReplayWindow:
    return _in_steady_state(graph, simulate) if len(graph.carries) else _once(graph, simulate)


def predicted_step_ns(graph: Graph, simulate: Engine) -> int:
    """Returns the step of ``replay_window`` without critical path, memory and utilization."""
    if len(graph.carries):
        return _steady_step_ns(graph, find_steady_state(graph, simulate))
    op_times = simulate(graph)
    return _recorded_step_ns(graph, op_times, _median_steps_ns(graph, op_times))


def _once(graph: Graph, simulate: Engine) -> ReplayWindow:
    op_times = simulate(graph)
    makespan_ns = int(op_times.end_ns.max())
    rank_step_ns = _median_steps_ns(graph, op_times)
    return ReplayWindow(
        op_times=op_times,
        path=critical_path(graph, op_times),
        peaks=peak_memory(graph, op_times),
        step_ns=_recorded_step_ns(graph, op_times, rank_step_ns),
        rank_step_ns=rank_step_ns,
        horizon_ns=makespan_ns,
        num_simulated_ops=graph.num_ops,
    )


def _recorded_step_ns(graph: Graph, op_times: OpTimes, rank_step_ns: tuple[int, ...]) -> int:
    """Returns the step of a recorded window. Where ends of steps were recorded, it is that of the
    measured step: the median over steps of their mean over ranks."""
    if (graph.ops.kind == OpKind.STEP_END).any():
        steps = rank_steps(graph, op_times)
        of_ranks = [steps.of_rank(rank) for rank in range(len(graph.ranks))]
        dur_ns = np.concatenate([step_durations_ns(own) for own in of_ranks])
        found = median_ns(over_ranks(steps.rank, steps.step, dur_ns)[1])
        if found is not None:
            return found
    return max(rank_step_ns) if graph.num_steps > 1 else int(op_times.end_ns.max())


def _median_steps_ns(graph: Graph, op_times: OpTimes) -> tuple[int, ...]:
    """Returns the median step of each rank: one disturbed step does not represent the others."""
    steps = rank_steps(graph, op_times)
    return tuple(
        median_ns(step_durations_ns(steps.of_rank(rank))) or 0 for rank in range(len(graph.ranks))
    )


def _steady_step_ns(graph: Graph, steady: SteadyState) -> int:
    return round(steady.period_ns / max(graph.num_steps, 1))


def _in_steady_state(graph: Graph, simulate: Engine) -> ReplayWindow:
    """Returns the last of several windows in a row. Time zero is the end of the window before, or
    the first start in this one, whichever is earlier."""
    steady = find_steady_state(graph, simulate)
    num_ops, op_times = graph.num_ops, steady.op_times
    last = slice((steady.num_windows - 1) * num_ops, steady.num_windows * num_ops)
    since_ns = int(steady.window_end_ns[-2].max())
    origin_ns = min(int(op_times.start_ns[last].min()), since_ns)
    path = critical_path(graph, op_times, last_op=steady.last_op, since_ns=since_ns)
    num_steps = max(graph.num_steps, 1)
    ledger = Ledger()
    if not steady.has_settled:
        ledger.note(
            "no-steady-period",
            f"step ends did not settle into a pattern within {steady.num_windows} windows:"
            " the predicted step is the mean over the later half, or the work on the busiest"
            " resource if that is longer",
            remedy="read the predicted step as an average, not as a period",
        )
    return ReplayWindow(
        op_times=OpTimes(
            op_times.start_ns[last] - origin_ns,
            op_times.end_ns[last] - origin_ns,
            op_times.cause[last],
        ),
        path=CriticalPath(
            op=path.op % num_ops,
            start_ns=path.start_ns - origin_ns,
            dur_ns=path.dur_ns,
            reason=path.reason,
        ),
        peaks=tuple(
            replace(peak, at_ns=max(0, peak.at_ns - origin_ns))
            for peak in peak_memory(graph, op_times)
        ),
        step_ns=_steady_step_ns(graph, steady),
        rank_step_ns=tuple(round(period / num_steps) for period in steady.rank_period_ns()),
        horizon_ns=round(steady.period_ns),
        num_simulated_ops=steady.num_windows * num_ops,
        ledger=ledger,
    )
