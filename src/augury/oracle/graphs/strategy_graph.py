"""Graph of one configuration of a strategy."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import replace

from augury.core.graph.graph import Graph
from augury.oracle.graphs.layered import LayeredStep
from augury.oracle.strategy import Strategy, StrategyCase
from augury.replay.run import replay

MAX_WHOLE = 64
"""Number of devices up to which all are written out where one rank could stand for all."""


class LayeredStrategy(ABC):
    """Base of strategies in which all devices run the same program, layer by layer."""

    @property
    def has_bubbles(self) -> bool:
        return False

    @abstractmethod
    def layered_step(self, case: StrategyCase) -> LayeredStep:
        """Returns the step of the only configuration of ``case``."""

    def devices_per_group(self, case: StrategyCase) -> int:
        """Number of neighbouring devices that exchange with each other layer by layer."""
        return int(case.devices[0])

    def graph(self, case: StrategyCase, meta: dict[str, str], *, whole: bool) -> Graph:
        """Identical devices are one rank, which is exact, unless ``whole`` and there are few."""
        devices = int(case.devices[0])
        num_ranks = devices if whole and devices <= MAX_WHOLE else 1
        group = self.devices_per_group(case)
        program = self.layered_step(case).program()
        if num_ranks > 1:
            alone = replay(program.graph(case, meta, num_ranks=1, group=group))
            program.keep_order(alone.start_ns[: len(program.operations)].tolist())
        return program.graph(case, meta, num_ranks=num_ranks, group=group)


def strategy_graph(
    strategy: Strategy, case: StrategyCase, index: int = 0, *, whole: bool = False
) -> Graph:
    """Returns the graph of configuration ``index`` of ``case``. With ``whole``, up to 64 identical
    devices are written out; the devices of a pipeline always are."""
    one = replace(
        case, devices=case.devices[index : index + 1], batch=case.batch[index : index + 1]
    )
    meta = {
        "oracle": strategy.name,
        "model": case.work.model.name,
        "cluster": case.cluster.name,
        "devices": str(int(one.devices[0])),
        "global_batch": str(int(one.batch[0])),
    }
    return strategy.graph(one, meta, whole=whole)
