"""Reading of input samples ahead of time, where the cluster states its bandwidth."""

from __future__ import annotations

from augury.core.enums import OpKind, ResourceKind
from augury.core.graph.builder import GraphBuilder
from augury.core.units import NS_PER_S
from augury.oracle.feasibility import reading_s
from augury.oracle.strategy import StrategyCase


class InputReading:
    """Adds the reading of samples: a step starts when the previous one has ended on all ranks and
    its samples are read."""

    def __init__(self, builder: GraphBuilder, case: StrategyCase) -> None:
        self.builder = builder
        read_s = reading_s(case)
        self.work_ns = 0 if read_s is None else round(float(read_s[0]) * NS_PER_S)
        self.firsts: list[int] = []
        self.lasts: list[int] = []

    def add_rank(self, rank: int, *, first: int, last: int) -> None:
        self.firsts.append(first)
        self.lasts.append(last)
        if not self.work_ns:
            return
        read = self.builder.op(
            "samples of the next step",
            kind=OpKind.DATA,
            rank=rank,
            resource=self.builder.resource("input", rank=rank, kind=ResourceKind.HOST),
            work_ns=self.work_ns,
        )
        self.builder.carry(read, first)

    def end_step(self) -> None:
        if not self.work_ns:
            return
        end = self.builder.op("end", kind=OpKind.MARK, rank=0, work_ns=0, after=self.lasts)
        for first in self.firsts:
            self.builder.carry(end, first)
