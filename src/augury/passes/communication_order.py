"""Pass that sends gradients as the pieces of an order."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np

from augury.build.problem.step_parts import (
    NO_GRADIENTS,
    NO_GRADIENTS_REMEDY,
    StepParts,
    copy_ns_of,
    parts_of,
)
from augury.core.columns import I4
from augury.core.enums import OpKind, are_communication
from augury.core.errors import InputError
from augury.core.graph.graph import NONE, Graph, Interference, Ops, Resources
from augury.core.plan.plan import LAST_OPS, Order
from augury.core.plan.plan_spec import verify_order
from augury.core.plan.problem import Scheme
from augury.costs.runtime_overhead import NO_OVERHEAD
from augury.passes.graph_edit import GraphEdit
from augury.passes.pieces.moved_updates import MovedUpdates
from augury.passes.pieces.piece_exchange import OrderedPieces, PieceExchange, carried_by
from augury.passes.pieces.split_forward import by_op, forward_cuts, work_of_parts
from augury.passes.processor_time import charge_collectives
from augury.passes.protocol import Changed, ErrorModel, Scene, changed

FEW_STEPS = 3
"""Number of steps below which a window is joined to itself: it contains no steady step."""

Place = tuple[int, int]
"""Rank and step."""


@dataclass(frozen=True, slots=True)
class CommunicationOrder:
    """Replaces the recorded collectives of gradients by the pieces of an order.

    Pieces leave strictly in their order; each starts when the piece ``concurrent`` places before it
    has arrived. With a barrier the optimizer runs when all pieces have arrived. Without one, each
    gradient is applied separately in the next step: when forward needs it, or earlier if the thread
    is idle. A step then ends with its backward, and pieces in flight count with the next step.
    Everything else stays as recorded."""

    name = "communication-order"
    plan_section = "communication"
    advice = ""

    def applies(self, scene: Scene) -> list[str]:
        if scene.is_expanded:
            return ["collectives are expanded already"]
        return [] if len(scene.graph.gradients) else [NO_GRADIENTS]

    def apply(self, scene: Scene, parameters: OrderedPieces) -> Changed:
        verify_order(parameters.order, parameters.problem)
        if parameters.problem.network.scheme is not Scheme.ALL_REDUCE:
            raise InputError(
                "recorded ranks reduce gradients among themselves, and the order is for servers",
                remedy="make the order from the run",
            )
        for reason in self.applies(scene):
            raise InputError(reason, remedy=NO_GRADIENTS_REMEDY)
        graph = scene.graph
        if parameters.overhead is not NO_OVERHEAD:
            graph = _with_separate_streams(graph)
        scheduling = _Scheduling(graph, parameters)
        ordered = charge_collectives(
            graph, scheduling.graph(), costs=scene.costs, calibration=scene.calibration
        )
        return changed(scene, replace(scene, graph=ordered), scheduling.new_op_of())

    def error_model(self, parameters: OrderedPieces) -> ErrorModel:
        return order_error(parameters.order)


COMMUNICATION_ORDER = CommunicationOrder()


def order_error(order: Order) -> ErrorModel:
    """Returns the error of a prediction of an order."""
    return ErrorModel(0.02 if order.has_barrier else 0.03)


class _Scheduling:
    def __init__(self, graph: Graph, pieces: OrderedPieces) -> None:
        problem, order = pieces.problem, pieces.order
        self._problem, self._order = problem, order
        self._old, self._parts = graph, parts_of(graph)
        self._following = self._find_following()
        self._cuts = {
            place: forward_cuts(graph, self._parts[place], problem)
            for place in self._following.values()
        }
        self._edit = GraphEdit(self._with_less_work())
        self._exchange = PieceExchange(graph, self._edit, pieces)
        self._updates = MovedUpdates(graph, self._edit, pieces)
        self._work_ns = pieces.overhead.per_gradient_ns * len(problem.gradients)
        """Overhead of the runtime in backward, added at its end."""

    def graph(self) -> Graph:
        of_step: dict[int, list[StepParts]] = defaultdict(list)
        for parts in self._parts.values():
            of_step[parts.step].append(parts)
        for same in of_step.values():
            made_by = {parts.rank: self._made_by(parts) for parts in same}
            step_of = {parts.rank: self._step_of(parts) for parts in same}
            arrived = self._exchange.exchange(same, made_by, step_of)
            for parts in same:
                self._rewrite(parts, made_by[parts.rank], arrived[parts.rank])
        return self._edit.graph()

    def new_op_of(self) -> I4:
        return self._edit.new_op_of()

    def _made_by(self, parts: StepParts) -> dict[int, int]:
        made_by = self._old.gradients.made_by
        return {place: int(made_by[row]) for place, row in self._rows_by_place(parts).items()}

    def _step_of(self, parts: StepParts) -> int:
        """Returns the step that the pieces of a step count with."""
        following = self._following.get((parts.rank, parts.step))
        return max(parts.step, following[1]) if following else parts.step

    def _find_following(self) -> dict[Place, Place]:
        """Returns the next step of each step whose updates move there."""
        if self._order.has_barrier:
            return {}
        is_joined = self._old.num_steps < FEW_STEPS
        found: dict[Place, Place] = {}
        for place, parts in self._parts.items():
            after = parts.rank, parts.next_step
            if is_joined and parts.next_step == NONE:
                after = min(other for other in self._parts if other[0] == parts.rank)
            if after in self._parts:
                found[place] = after
        return found

    def _with_less_work(self) -> Graph:
        """Returns the graph without the work of moved updates; split operations keep the work of
        their last part."""
        ops = self._old.ops
        work_ns, resource = ops.work_ns.copy(), ops.resource.copy()
        for parts in self._parts.values():
            if not self._order.has_barrier:
                work_ns[parts.updates] = 0
        for cuts in self._cuts.values():
            for op, own in by_op(cuts).items():
                work_ns[op] = work_of_parts(own, int(ops.work_ns[op]))[-1]
        # Operations without work occupy no resource.
        resource[(work_ns == 0) & (ops.gang == NONE)] = NONE
        columns = dict(ops.columns()) | {"work_ns": work_ns, "resource": resource}
        return self._old.evolve(ops=type(ops)(**columns))

    def _rewrite(
        self, parts: StepParts, made_by: Mapping[int, int], arrived: Sequence[int]
    ) -> None:
        edit, gradients = self._edit, self._old.gradients
        following = self._following.get((parts.rank, parts.step))
        for op in (*parts.copies, *carried_by(self._old, parts)):
            edit.remove(op)
        gone = set(parts.copies)
        kept = [op for op in parts.chain if op not in gone]
        if self._work_ns:
            kept.insert(kept.index(parts.backward[-1]) + 1, self._follow(parts))
        for before, after in pairwise([*kept, *([parts.next_op] if parts.next_op != NONE else [])]):
            edit.edge(before, after)
        if following:
            used_by = self._updates.move(
                parts,
                self._parts[following],
                last=kept[-1],
                arrived=arrived,
                cuts=self._cuts[following],
            )
        elif self._order.has_barrier:
            used_by = self._copy_back(parts, arrived)
        else:
            return  # the window ends before the gradients are used
        last_piece = {
            part.gradient: number
            for number, piece in enumerate(self._order.pieces)
            if piece.op in LAST_OPS
            for part in piece.slices
        }
        for place, row in self._rows_by_place(parts).items():
            edit.gradient(
                (
                    parts.rank,
                    parts.step,
                    int(gradients.name[row]),
                    int(gradients.size_bytes[row]),
                    made_by[place],
                    arrived[last_piece[place]],
                    used_by[place],
                )
            )

    def _follow(self, parts: StepParts) -> int:
        return self._edit.op(
            "follow the plan",
            kind=OpKind.LAUNCH,
            rank=parts.rank,
            resource=parts.thread,
            work_ns=self._work_ns,
            step=parts.step,
        )

    def _rows_by_place(self, parts: StepParts) -> dict[int, int]:
        """Returns the rows of the graph's gradients by their index in the problem."""
        place_of = {gradient.name: i for i, gradient in enumerate(self._problem.gradients)}
        names = self._old.gradients.name[parts.rows].tolist()
        row_of = {
            place_of.get(self._old.strings[int(name)], NONE): row
            for name, row in zip(names, parts.rows, strict=True)
        }
        if row_of.keys() != set(range(len(self._problem.gradients))):
            raise InputError(
                "the order is for other gradients than the graph has",
                remedy="make the order from this run",
            )
        return row_of

    def _copy_back(self, parts: StepParts, arrived: Sequence[int]) -> dict[int, int]:
        """Adds the copies of pieces after backward, each when its piece has arrived. The optimizer
        and the next step follow. Returns the copy of each gradient."""
        copy_ns, gradients = copy_ns_of(self._old, parts), self._problem.gradients
        before = parts.backward[-1]
        used_by: dict[int, int] = {}
        for number, piece in enumerate(self._order.pieces):
            if piece.op not in LAST_OPS:
                continue
            own = [(gradients[part.gradient], part.size_bytes) for part in piece.slices]
            work_ns = round(sum(copy_ns[g.name] * size / g.size_bytes for g, size in own))
            before = self._edit.op(
                "copy pieces to gradients",
                kind=OpKind.COPY,
                rank=parts.rank,
                resource=parts.thread if work_ns else NONE,
                work_ns=work_ns,
                step=parts.step,
                size_bytes=piece.size_bytes,
                after=[arrived[number], before],
            )
            used_by |= dict.fromkeys((part.gradient for part in piece.slices), before)
        after = min([*parts.updates, *parts.rest], default=parts.next_op)
        if after != NONE:
            self._edit.edge(before, after)
        return used_by


def _with_separate_streams(graph: Graph) -> Graph:
    """Moves collectives that carry no gradients, such as broadcasts of buffers, to streams of their
    own: pieces of a plan have a process group of their own and do not queue with them. The new
    streams interfere with compute as the streams of gradients do."""
    ops, resources, rules = graph.ops, graph.resources, graph.interference
    carrying = np.zeros(graph.num_ops, dtype=bool)
    carrying[graph.gradients.carried_by] = True
    others = are_communication(ops.kind) & ~carrying
    others &= np.isin(ops.resource, ops.resource[carrying])
    streams = np.unique(ops.resource[others])
    if not len(streams):
        return graph
    number = np.arange(len(resources))
    number[streams] = len(resources) + np.arange(len(streams))
    resource = ops.resource.copy()
    resource[others] = number[resource[others]]
    copied = np.isin(rules.victim, streams) | np.isin(rules.aggressor, streams)
    return graph.evolve(
        ops=Ops(**(dict(ops.columns()) | {"resource": resource})),
        resources=Resources(
            **{
                name: np.concatenate([values, values[streams]])
                for name, values in resources.columns()
            }
        ),
        interference=Interference(
            victim=np.concatenate([rules.victim, number[rules.victim[copied]]]),
            aggressor=np.concatenate([rules.aggressor, number[rules.aggressor[copied]]]),
            rate=np.concatenate([rules.rate, rules.rate[copied]]),
        ),
    )
