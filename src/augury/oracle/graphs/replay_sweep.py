"""A sweep whose steps are replayed rather than added up."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from augury.core.enums import OpKind, are_communication
from augury.core.errors import DeadlockError, DefectError, LimitError
from augury.core.graph.graph import Graph
from augury.core.units import NS_PER_S
from augury.oracle.feasibility import Judged, reading_s
from augury.oracle.graphs.registry import graph_of
from augury.oracle.strategies.pipeline import Pipeline
from augury.oracle.strategy import Strategy
from augury.replay.run import replay


def replay_each(
    judged: Sequence[Judged], strategies: Sequence[Strategy]
) -> tuple[list[Judged], list[str]]:
    """All that can be, and in words what could not be replayed: that stays as it was."""
    found, notes = [], []
    for one, strategy in zip(judged, strategies, strict=True):
        again, refused = _replayed(one, strategy)
        found.append(again)
        notes += refused
    return found, notes


def _replayed(judged: Judged, strategy: Strategy) -> tuple[Judged, list[str]]:
    case = judged.case
    read_s = reading_s(case)
    # Reading goes on beside a step and is held against it below, as in the closed form.
    alone = replace(case, cluster=replace(case.cluster, input_bandwidth_bytes_per_s=None))
    step_s, compute_s = judged.step_s.copy(), judged.compute_s.copy()
    exposed_s = judged.exposed_comm_s.copy()
    is_replayed = np.zeros(len(step_s), bool)
    notes: list[str] = []
    for index in np.flatnonzero(judged.feasible).tolist():
        try:
            graph = graph_of(strategy, alone, index)
        except LimitError as error:
            notes.append(
                f"{strategy.name} on {int(case.devices[index])} devices is not replayed: {error}"
            )
            continue
        taken_s = _step_s(graph)
        if isinstance(strategy, Pipeline):
            # Bubbles are compute that waits for compute: what remains when sending is for nothing.
            compute_s[index] = min(taken_s, _step_s(_silent(graph)))
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


def _silent(graph: Graph) -> Graph:
    """With communication that takes no time."""
    kind = graph.ops.kind
    work_ns = np.where(are_communication(kind) | (kind == OpKind.DELAY), 0, graph.ops.work_ns)
    columns = dict(graph.ops.columns())
    return graph.evolve(ops=type(graph.ops)(**{**columns, "work_ns": work_ns}))
