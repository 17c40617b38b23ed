"""Any strategy as a Graph."""

from __future__ import annotations

from dataclasses import replace

from augury.core.errors import InputError
from augury.core.graph.graph import Graph
from augury.oracle.graphs.data import data_step, zero_step
from augury.oracle.graphs.layered import LayeredStep
from augury.oracle.graphs.pipeline import pipeline_graph
from augury.oracle.graphs.split import alone_step, grouped_step
from augury.oracle.strategies.alone import Alone
from augury.oracle.strategies.data import Data
from augury.oracle.strategies.grouped import Grouped
from augury.oracle.strategies.pipeline import Pipeline
from augury.oracle.strategies.zero import Zero
from augury.oracle.strategy import Strategy, StrategyCase
from augury.replay.run import replay

MAX_WHOLE = 64
"""Devices that are all written out, where one could stand for all."""


def graph_of(
    strategy: Strategy, case: StrategyCase, index: int = 0, *, whole: bool = False
) -> Graph:
    """One configuration of ``case``. Devices that do the same are one rank, which is exact, unless
    the ``whole`` is asked for and there are few; those of a pipeline are always all there."""
    one = replace(
        case, devices=case.devices[index : index + 1], batch=case.batch[index : index + 1]
    )
    devices = int(one.devices[0])
    meta = {
        "oracle": strategy.name,
        "model": case.work.model.name,
        "cluster": case.cluster.name,
        "devices": str(devices),
        "global_batch": str(int(one.batch[0])),
    }
    if isinstance(strategy, Pipeline):
        return pipeline_graph(one, meta)
    num_ranks = devices if whole and devices <= MAX_WHOLE else 1
    group = case.group if isinstance(strategy, Grouped) else devices
    program = _layered(strategy, one).program()
    if num_ranks > 1:
        alone = replay(program.graph(one, meta, num_ranks=1, group=group))
        program.keep_order(alone.start_ns[: len(program.operations)].tolist())
    return program.graph(one, meta, num_ranks=num_ranks, group=group)


def _layered(strategy: Strategy, case: StrategyCase) -> LayeredStep:
    match strategy:
        case Data():
            return data_step(case)
        case Zero():
            return zero_step(case, strategy.stage)
        case Alone():
            return alone_step(strategy, case)
        case Grouped():
            return grouped_step(strategy, case)
    raise InputError(f"{strategy.name} is not known as a graph", remedy="ask for its closed form")
