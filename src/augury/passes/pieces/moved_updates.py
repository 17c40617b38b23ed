"""Updates of an order without a barrier: each gradient is applied within the next forward."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence

from augury.build.problem.step_parts import StepParts, copy_ns_of
from augury.core.enums import OpKind
from augury.core.graph.graph import NONE, Graph
from augury.core.plan.plan import LAST_OPS
from augury.passes.graph_edit import GraphEdit
from augury.passes.pieces.piece_exchange import OrderedPieces
from augury.passes.pieces.split_forward import ForwardCut, by_op, work_of_parts


class MovedUpdates:
    """Adds the updates of an order without a barrier to an edit of the recorded graph."""

    def __init__(self, graph: Graph, edit: GraphEdit, pieces: OrderedPieces) -> None:
        self._graph, self._edit, self._problem = graph, edit, pieces.problem
        self._pieces = pieces.order.pieces
        self._per_piece_ns = pieces.overhead.per_piece_ns

    def move(
        self,
        parts: StepParts,
        following: StepParts,
        *,
        last: int,
        arrived: Sequence[int],
        cuts: Sequence[ForwardCut],
    ) -> dict[int, int]:
        """Moves the updates of one step into the following one and returns the update of each
        gradient. ``last`` is the last operation of the thread in this step; ``cuts`` are the cuts
        of the following forward. Edges into the next window are carries."""
        edit = self._edit
        is_carried = following.step <= parts.step
        join = edit.carry if is_carried else edit.edge
        if is_carried:
            edit.carry(last, following.chain[0])
        updates = self._add_updates(parts, following, last, arrived, join)
        for op, own in by_op(cuts).items():
            self._cut(following, op, own, updates, last=NONE if is_carried else last)
        return updates

    def _add_updates(
        self,
        parts: StepParts,
        following: StepParts,
        last: int,
        arrived: Sequence[int],
        join: Callable[[int, int], None],
    ) -> dict[int, int]:
        problem = self._problem
        update_ns = int(self._graph.ops.work_ns[parts.updates].sum())
        copy_ns = copy_ns_of(self._graph, parts)
        came_by: dict[int, set[int]] = defaultdict(set)
        own_ns: dict[int, int] = defaultdict(int)
        for number, piece in enumerate(self._pieces):
            if piece.op in LAST_OPS:
                own_ns[piece.slices[0].gradient] += self._per_piece_ns
                for part in piece.slices:
                    came_by[part.gradient].add(arrived[number])
        updates: dict[int, int] = {}
        for place, gradient in enumerate(problem.gradients):
            share_ns = update_ns * gradient.size_bytes / problem.size_bytes
            work_ns = round(share_ns + copy_ns[gradient.name]) + own_ns[place]
            updates[place] = self._edit.op(
                "update",
                kind=OpKind.UPDATE,
                rank=parts.rank,
                resource=parts.thread if work_ns else NONE,
                work_ns=work_ns,
                step=following.step,
                size_bytes=gradient.size_bytes,
                # Recorded operations go first, then the update that forward needs first.
                priority=1 + place,
                after=following.before[-1:],
            )
            if not following.before:
                join(last, updates[place])
            for piece_there in sorted(came_by[place]):
                join(piece_there, updates[place])
        return updates

    def _cut(
        self,
        following: StepParts,
        op: int,
        cuts: Sequence[ForwardCut],
        updates: Mapping[int, int],
        *,
        last: int,
    ) -> None:
        """Splits an operation of forward where it needs gradients. The operation stays as the last
        part and keeps its successors; the first part takes over its predecessors."""
        ops, edit = self._graph.ops, self._edit
        works = work_of_parts(cuts, int(ops.work_ns[op]))
        after = self._graph.predecessors.of(op).tolist()
        if op == following.chain[0] and last != NONE:
            after.append(last)
        for work_ns, cut in zip(works, cuts, strict=False):
            if work_ns:
                part = edit.op(
                    self._graph.op_name(op),
                    kind=OpKind(int(ops.kind[op])),
                    rank=following.rank,
                    resource=following.thread,
                    work_ns=work_ns,
                    step=following.step,
                    after=after,
                )
                after = [part]
            after += [updates[place] for place in cut.gradients]
        for before in after:
            edit.edge(before, op)
