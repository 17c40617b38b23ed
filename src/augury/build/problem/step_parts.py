"""Parts of a rank's step: before forward, forward, backward, copies, updates, and the rest."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from augury.core.enums import OpKind, are_communication
from augury.core.errors import InputError
from augury.core.graph.graph import NONE, Graph

NO_GRADIENTS = "the graph does not say which gradient travels in which bucket"
NO_GRADIENTS_REMEDY = "record a job that uses DistributedDataParallel with `augury run`"

_AFTER_BACKWARD = (OpKind.COPY, OpKind.UPDATE)


@dataclass(frozen=True, slots=True, kw_only=True)
class StepParts:
    """Operations of one rank in one step, each part in the thread's order."""

    rank: int
    step: int
    rows: list[int]
    """Rows of the graph's gradients, in the order of release."""
    before: list[int]
    """Operations before forward: loading data, clearing gradients."""
    forward: list[int]
    """Operations from the first forward to the backward whose gradients are communicated; with
    micro-batches that is the last backward."""
    backward: list[int]
    copies: list[int]
    """Copies of gradients out of their buckets."""
    updates: list[int]
    rest: list[int]
    """Operations after backward that are neither copies nor updates."""
    thread: int
    """Resource of the main thread."""
    next_step: int
    next_op: int
    """The next step and its first operation; both NONE if this is the last step."""

    @property
    def chain(self) -> list[int]:
        """All operations of the thread, in its order."""
        after = sorted([*self.copies, *self.updates, *self.rest])
        return [*self.before, *self.forward, *self.backward, *after]


def parts_of(graph: Graph) -> dict[tuple[int, int], StepParts]:
    """Returns the parts by rank and step, of the steps with known gradients, in order."""
    if not len(graph.gradients):
        raise InputError(NO_GRADIENTS, remedy=NO_GRADIENTS_REMEDY)
    rows: dict[tuple[int, int], list[int]] = defaultdict(list)
    gradients = graph.gradients
    for row, place in enumerate(zip(gradients.rank.tolist(), gradients.step.tolist(), strict=True)):
        rows[place].append(row)
    ops = graph.ops
    on_thread = np.flatnonzero(are_on_threads(graph))
    own: dict[tuple[int, int], list[int]] = defaultdict(list)
    # Ids on a thread rise in its order.
    for op in on_thread.tolist():
        own[int(ops.rank[op]), int(ops.step[op])].append(op)
    following = {a: b for a, b in pairwise(sorted(own)) if a[0] == b[0]}
    found = {}
    for place in sorted(rows):
        after = following.get(place)
        found[place] = _parts(
            graph,
            place,
            rows[place],
            own[place],
            next_step=NONE if after is None else after[1],
            next_op=NONE if after is None else own[after][0],
        )
    return found


def are_on_threads(graph: Graph) -> NDArray[np.bool_]:
    """Tells which operations run on a thread: all but collectives and the operations that delay or
    order them."""
    kind = graph.ops.kind
    found: NDArray[np.bool_] = ~are_communication(kind) & (kind != OpKind.DELAY)
    return found


def _parts(
    graph: Graph,
    place: tuple[int, int],
    rows: list[int],
    chain: list[int],
    *,
    next_step: int,
    next_op: int,
) -> StepParts:
    kind = graph.ops.kind[chain]
    made_by = graph.gradients.made_by[rows].tolist()
    last_made = chain.index(max(made_by))
    forwards = np.flatnonzero(kind[:last_made] == OpKind.FORWARD).tolist()
    backwards = np.flatnonzero(kind[: last_made + 1] == OpKind.BACKWARD).tolist()
    first_backward = min(
        (i for i in backwards if not forwards or i > forwards[-1]),
        default=chain.index(min(made_by)),
    )
    if chain.index(min(made_by)) < first_backward:
        raise InputError(
            "gradients of one step are computed in several backwards, with forward in between",
            remedy="orders cannot be predicted for such a job",
        )
    first_forward = min(forwards[0], first_backward) if forwards else 0
    later = np.flatnonzero(np.isin(kind[last_made + 1 :], _AFTER_BACKWARD))
    end = last_made + 1 + (int(later[0]) if len(later) else 0)
    after = chain[end:]
    is_update = (kind[end:] == OpKind.UPDATE).tolist()
    copies = set(graph.gradients.used_by[rows].tolist())
    updates = [op for op, updates_it in zip(after, is_update, strict=True) if updates_it]
    return StepParts(
        rank=place[0],
        step=place[1],
        rows=rows,
        before=chain[:first_forward],
        forward=chain[first_forward:first_backward],
        backward=chain[first_backward:end],
        copies=[op for op in after if op in copies],
        updates=updates,
        rest=[
            op
            for op, updates_it in zip(after, is_update, strict=True)
            if op not in copies and not updates_it
        ],
        thread=int(graph.ops.resource[made_by].max()),
        next_step=next_step,
        next_op=next_op,
    )


def copy_ns_of(graph: Graph, parts: StepParts) -> dict[str, float]:
    """Returns each gradient's share of the time of bucket copies, by name."""
    gradients, work_ns = graph.gradients, graph.ops.work_ns
    held: dict[int, int] = defaultdict(int)
    for row in parts.rows:
        held[int(gradients.used_by[row])] += int(gradients.size_bytes[row])
    return {
        graph.strings[int(gradients.name[row])]: int(work_ns[gradients.used_by[row]])
        * int(gradients.size_bytes[row])
        / max(1, held[int(gradients.used_by[row])])
        for row in parts.rows
    }
