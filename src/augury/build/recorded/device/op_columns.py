"""Operations of one thread or stream as columns, on their way into the graph's builder."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import ArrayLike

from augury.core.columns import I8
from augury.core.enums import OpKind
from augury.core.graph.builder import GraphBuilder
from augury.core.graph.graph import NONE
from augury.core.trace.trace import Trace


@dataclass
class GraphStrings:
    """Numbers of a trace's strings in the strings of a graph."""

    trace: Trace
    builder: GraphBuilder
    _numbers: I8 = field(init=False, repr=False)

    def __post_init__(self) -> None:
        self._numbers = np.full(len(self.trace.strings) + 1, NONE - 1, dtype=np.int64)
        self._numbers[NONE] = NONE

    def of(self, strings: ArrayLike) -> I8:
        """Returns the graph's number of each of the trace's; NONE stays NONE."""
        wanted = np.asarray(strings)
        for number in np.unique(wanted[self._numbers[wanted] < NONE]).tolist():
            self._numbers[number] = self.builder.string(self.trace.strings[number])
        found: I8 = self._numbers[wanted]
        return found


def own_kind(kind: ArrayLike) -> I8:
    """Returns the kinds of events without those of calls, which are the kinds of the calls alone:
    time around a call, or a kernel that a driver named so, is other work."""
    kinds = np.asarray(kind, dtype=np.int64)
    is_call = (kinds == OpKind.LAUNCH) | (kinds == OpKind.SYNC)
    return np.where(is_call, int(OpKind.OTHER), kinds)
