"""Cuts of a recorded forward at which it may wait for updated parameters."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from augury.build.problem.step_parts import StepParts
from augury.core.graph.graph import Graph
from augury.core.plan.problem import Problem


@dataclass(frozen=True, slots=True, kw_only=True)
class ForwardCut:
    """A point in the work of ``op`` that these gradients must be applied before."""

    op: int
    offset_ns: int
    gradients: tuple[int, ...]


def forward_cuts(graph: Graph, parts: StepParts, problem: Problem) -> list[ForwardCut]:
    """Returns the cuts in the order of forward. Needs are shares of the problem's forward, which
    may be faster or slower than this one. Gradients needed at the end of forward are needed by
    backward."""
    together: dict[int, list[int]] = defaultdict(list)
    for place, gradient in enumerate(problem.gradients):
        together[gradient.need_ns].append(place)
    work_ns = graph.ops.work_ns
    whole_ns = int(work_ns[parts.forward].sum())
    ahead = [(op, int(work_ns[op])) for op in parts.forward if work_ns[op]]
    cuts: list[ForwardCut] = []
    passed_ns = 0
    for need_ns, gradients in sorted(together.items()):
        at_ns = round(whole_ns * need_ns / max(1, problem.forward_ns))
        while ahead and at_ns >= passed_ns + ahead[0][1]:
            passed_ns += ahead.pop(0)[1]
        op, offset_ns = (ahead[0][0], at_ns - passed_ns) if ahead else (parts.backward[0], 0)
        is_same = bool(cuts) and (cuts[-1].op, cuts[-1].offset_ns) == (op, offset_ns)
        earlier = cuts.pop().gradients if is_same else ()
        cuts.append(ForwardCut(op=op, offset_ns=offset_ns, gradients=(*earlier, *gradients)))
    return cuts


def by_op(cuts: Sequence[ForwardCut]) -> dict[int, list[ForwardCut]]:
    """Groups cuts by their operation."""
    found: dict[int, list[ForwardCut]] = defaultdict(list)
    for cut in cuts:
        found[cut.op].append(cut)
    return found


def work_of_parts(cuts: Sequence[ForwardCut], work_ns: int) -> list[int]:
    """Returns the work of an operation before each of its cuts and after the last."""
    offsets = [0, *(cut.offset_ns for cut in cuts), work_ns]
    return [after - before for before, after in pairwise(offsets)]
