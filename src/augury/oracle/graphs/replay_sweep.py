"""Replay of the configurations of a sweep, in place of their closed forms."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from augury.core.enums import OpKind, are_communication
from augury.core.errors import DeadlockError, DefectError, LimitError
from augury.core.graph.graph import Graph
from augury.core.units import NS_PER_S
from augury.oracle.feasibility import Judged, reading_s
from augury.oracle.graphs.strategy_graph import strategy_graph
from augury.oracle.strategy import Strategy
from augury.replay.run import replay


def replay_each(
    judged: Sequence[Judged], strategies: Sequence[Strategy]
) -> tuple[list[Judged], list[str]]:
    """Replays all feasible configurations. Returns them, and notes about those that could not be
    replayed and keep their closed form."""
    found, notes = [], []
    for one, strategy in zip(judged, strategies, strict=True):
        again, refused = _replayed(one, strategy)
        found.append(again)
        notes += refused
    return found, notes


def _replayed(judged: Judged, strategy: Strategy) -> tuple[Judged, list[str]]:
    case = judged.case
    read_s = reading_s(case)
    # Reading overlaps with the step and is compared with it below, as in the closed form.
    alone = replace(case, cluster=replace(case.cluster, input_bandwidth_bytes_per_s=None))
    step_s, compute_s = judged.step_s.copy(), judged.compute_s.copy()
    exposed_s = judged.exposed_comm_s.copy()
    is_replayed = np.zeros(len(step_s), bool)
    notes: list[str] = []
    for index in np.flatnonzero(judged.feasible).tolist():
        try:
            graph = strategy_graph(strategy, alone, index)
        except LimitError as error:
            notes.append(
                f"{strategy.name} on {int(case.devices[index])} devices is not replayed: {error}"
            )
            continue
        taken_s = _step_s(graph)
        if strategy.has_bubbles:
            # Bubbles, in which compute waits for compute, remain when sending takes no time.
            compute_s[index] = min(taken_s, _step_s(_without_communication(graph)))
        exposed_s[index] = max(0.0, taken_s - compute_s[index])
        step_s[index] = taken_s if read_s is None else max(taken_s, float(read_s[index]))
        is_replayed[index] = True
    again = replace(
        judged,
        step_s=step_s,
        compute_s=compute_s,
        exposed_comm_s=exposed_s,
        is_replayed=is_replayed,
    )
    return again, notes


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
