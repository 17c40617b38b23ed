"""Reading of the next step's samples during a step, if the cluster states an input bandwidth."""

from __future__ import annotations

from augury.core.enums import OpKind, ResourceKind
from augury.core.graph.builder import GraphBuilder
from augury.core.units import NS_PER_S
from augury.oracle.feasibility import reading_s
from augury.oracle.strategy import StrategyCase


class InputReading:
    """Adds the reading of samples to the graph of a step that repeats. The next step starts on a
    rank when this step has ended on all ranks and the rank has read the samples of the next step.
    Without an input bandwidth, nothing is added."""

    def __init__(self, builder: GraphBuilder, case: StrategyCase) -> None:
        self.builder = builder
        read_s = reading_s(case)
        self.work_ns = 0 if read_s is None else round(float(read_s[0]) * NS_PER_S)
        self.first_ops: list[int] = []
        self.last_ops: list[int] = []

    def add_rank(self, rank: int, *, first: int, last: int) -> None:
        """Adds the reading on a rank, with the first and the last operation of the rank's step."""
        self.first_ops.append(first)
        self.last_ops.append(last)
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
        """Lets the next step of all ranks start only after this step has ended on all ranks. Called
        once, after all ranks were added."""
        if not self.work_ns:
            return
        end = self.builder.op("end", kind=OpKind.MARK, rank=0, work_ns=0, after=self.last_ops)
        for first in self.first_ops:
            self.builder.carry(end, first)
