"""Replay of the configurations of a sweep, in place of their closed forms."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from augury.core.enums import OpKind, are_communication
from augury.core.errors import DeadlockError, DefectError, LimitError
from augury.core.graph.graph import Graph
from augury.core.progress import Progress, silent
from augury.core.units import NS_PER_S
from augury.executor import IN_THIS_PROCESS, Executor
from augury.oracle.feasibility import Judged, reading_s
from augury.oracle.graphs.strategy_graph import strategy_graph
from augury.oracle.strategy import Strategy, StrategyCase
from augury.replay.run import replay


@dataclass(frozen=True)
class _Configuration:
    """One feasible configuration of a sweep, for a worker."""

    strategy: Strategy
    case: StrategyCase
    index: int

    def __str__(self) -> str:
        return f"{self.strategy.name} on {int(self.case.devices[self.index])} devices"


@dataclass(frozen=True)
class _ReplayedStep:
    step_s: float = 0.0
    compute_s: float | None = None
    """Compute with its bubbles; None: as in the closed form."""
    refusal: str | None = None
    """Reason why the configuration was not replayed."""


def replay_each(
    judged: Sequence[Judged],
    strategies: Sequence[Strategy],
    executor: Executor = IN_THIS_PROCESS,
    *,
    progress: Progress = silent,
) -> tuple[list[Judged], list[str]]:
    """Replays all feasible configurations. Returns them, and notes about those that could not be
    replayed and keep their closed form."""
    configurations = [
        _feasible(one, strategy) for one, strategy in zip(judged, strategies, strict=True)
    ]
    steps = executor.run(
        _replayed_step,
        [asked for several in configurations for asked in several],
        work="replaying configurations",
        progress=progress,
    )
    found: list[Judged] = []
    notes: list[str] = []
    for one, several in zip(judged, configurations, strict=True):
        replayed = {asked.index: next(steps) for asked in several}
        found.append(_with_steps(one, replayed))
        notes += [step.refusal for step in replayed.values() if step.refusal is not None]
    return found, notes


def _feasible(judged: Judged, strategy: Strategy) -> list[_Configuration]:
    case = judged.case
    # Reading overlaps with the step and is compared with it at the end, as in the closed form.
    alone = replace(case, cluster=replace(case.cluster, input_bandwidth_bytes_per_s=None))
    feasible = np.flatnonzero(judged.feasible).tolist()
    return [_Configuration(strategy, alone, index) for index in feasible]


def _replayed_step(asked: _Configuration) -> _ReplayedStep:
    try:
        graph = strategy_graph(asked.strategy, asked.case, asked.index)
    except LimitError as error:
        return _ReplayedStep(refusal=f"{asked} is not replayed: {error}")
    step_s = _step_s(graph)
    if not asked.strategy.has_bubbles:
        return _ReplayedStep(step_s)
    # Bubbles, in which compute waits for compute, remain when sending takes no time.
    return _ReplayedStep(step_s, min(step_s, _step_s(_without_communication(graph))))


def _with_steps(judged: Judged, replayed: dict[int, _ReplayedStep]) -> Judged:
    read_s = reading_s(judged.case)
    step_s, compute_s = judged.step_s.copy(), judged.compute_s.copy()
    exposed_s = judged.exposed_comm_s.copy()
    is_replayed = np.zeros(len(step_s), bool)
    for index, found in replayed.items():
        if found.refusal is not None:
            continue
        if found.compute_s is not None:
            compute_s[index] = found.compute_s
        exposed_s[index] = max(0.0, found.step_s - compute_s[index])
        step_s[index] = found.step_s
        if read_s is not None:
            step_s[index] = max(found.step_s, float(read_s[index]))
        is_replayed[index] = True
    return replace(
        judged,
        step_s=step_s,
        compute_s=compute_s,
        exposed_comm_s=exposed_s,
        is_replayed=is_replayed,
    )


def _step_s(graph: Graph) -> float:
    try:
        return replay(graph).step_ns / NS_PER_S
    except DeadlockError as error:
        raise DefectError(
            f"the graph that Augury made of a strategy deadlocks: {error.cause}",
            remedy="this is a defect of Augury: please report it with the command",
        ) from error


def _without_communication(graph: Graph) -> Graph:
    """Returns the graph with communication that takes no time."""
    kind = graph.ops.kind
    work_ns = np.where(are_communication(kind) | (kind == OpKind.DELAY), 0, graph.ops.work_ns)
    columns = dict(graph.ops.columns())
    return graph.evolve(ops=type(graph.ops)(**{**columns, "work_ns": work_ns}))
