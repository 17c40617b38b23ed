"""Layers of a pipeline cut into stages, and what each stage does and sends for a micro-batch."""

from __future__ import annotations

from itertools import pairwise

import numpy as np

from augury.core.columns import F8
from augury.core.enums import OpKind
from augury.costs.closed_forms import point_to_point_s
from augury.oracle.graphs.program import whole_ns
from augury.oracle.strategies.pipeline import micro_batches
from augury.oracle.strategies.stages import first_layers
from augury.oracle.strategy import StrategyCase

Works = list[tuple[int, str, OpKind, int]]
"""Layer, name, kind and nanoseconds of operations that follow each other."""


class StageCut:
    """Stages are dealt out to devices in turn; each has as many as an interleaved schedule wants
    and there are layers for."""

    def __init__(self, case: StrategyCase) -> None:
        self.case, self.work = case, case.work
        self.devices = int(case.devices[0])
        self.micro_batches = int(micro_batches(case)[0])
        self.samples = float(case.batch[0]) / self.micro_batches
        self.chunks = self._chunks()
        firsts = first_layers(self.work, self.devices * self.chunks).tolist()
        self.layers = [
            range(low, high) for low, high in pairwise([*firsts, len(self.work.forward_s)])
        ]
        self.forward = [self._works(some, True) for some in self.layers]
        self.backward = [self._works(some, False) for some in self.layers]

    def _chunks(self) -> int:
        options = self.case.options
        if options.schedule != "interleaved" or self.devices == 1:
            return 1
        return max(1, min(options.chunks, len(self.work.forward_s) // self.devices))

    def _works(self, layers: range, is_forward: bool) -> Works:
        work, each = self.work, list(layers)
        named = [(place, "forward", OpKind.FORWARD, work.forward_s) for place in each]
        if not is_forward:
            again = self.case.options.recompute
            named = [
                *((p, "recompute", OpKind.RECOMPUTE, work.forward_s) for p in each if again),
                *((p, "backward", OpKind.BACKWARD, work.backward_s) for p in reversed(each)),
            ]
        share = self.samples * self.case.constants.compute_ratio
        ends = np.cumsum([0.0, *(share * float(seconds[place]) for place, _, _, seconds in named)])
        return [
            (place, name, kind, work_ns)
            for (place, name, kind, _), work_ns in zip(named, _whole(ends), strict=True)
        ]

    def updates(self, layers: range) -> Works:
        ends = np.cumsum([0.0, *self.work.update_s[layers.start : layers.stop]])
        return [
            (place, "update", OpKind.UPDATE, work_ns)
            for place, work_ns in zip(layers, _whole(ends), strict=True)
            if work_ns
        ]

    def boundary_bytes(self, chunk: int, to: int) -> float:
        """Outputs of the earlier of two stages, or their gradients."""
        behind = self.layers[min(chunk, to)][-1]
        items = float(self.work.output_items[behind])
        return self.samples * items * self.work.precision.item_bytes

    def send_s(self, device: int, to: int, size_bytes: float) -> float:
        cluster = self.case.cluster
        level = np.array([cluster.level_between(device, to)])
        alpha, beta = cluster.latency_s(level), cluster.seconds_per_byte(level)
        return float(point_to_point_s(size_bytes, alpha, beta)[0])


def _whole(ends_s: F8) -> list[int]:
    """So that operations in a row take what they take together."""
    ends_ns = [whole_ns(end_s) for end_s in ends_s.tolist()]
    return [until - since for since, until in pairwise(ends_ns)]
