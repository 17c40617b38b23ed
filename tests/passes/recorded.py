"""Graphs of recorded runs, to be changed."""

from __future__ import annotations

from typing import Any

import numpy as np

from augury.build.recorded.recorded_graph import build_recorded
from augury.core.enums import OpKind
from augury.core.graph.graph import Graph
from augury.costs.collective_costs import Costs, fit_network
from tests.build.recorded_runs import ddp_run


def recorded(**options: Any) -> tuple[Graph, Costs]:
    graph = build_recorded(ddp_run(**options).trace())
    return graph, fit_network(graph)


def is_communication(graph: Graph) -> np.ndarray:
    return (graph.ops.kind >= OpKind.ALL_REDUCE) & (graph.ops.kind <= OpKind.PULL)


def reduced_ns(graph: Graph) -> np.ndarray:
    return graph.ops.work_ns[graph.ops.kind == OpKind.ALL_REDUCE]
