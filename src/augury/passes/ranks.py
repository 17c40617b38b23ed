"""Pass for more or fewer ranks of a data-parallel job, each with the same batch."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, replace
from math import gcd

import numpy as np
from numpy.typing import NDArray

from augury.build.problem.step_parts import are_on_threads
from augury.core.columns import I4
from augury.core.enums import OpKind, Role
from augury.core.errors import InputError, UsageError
from augury.core.graph.graph import NONE, Graph
from augury.costs.transfer_times import TransferCost
from augury.passes.graph_edit import GraphEdit
from augury.passes.protocol import Changed, ErrorModel, Scene, changed, unchanged
from augury.passes.removals.fast_host import has_host_threads
from augury.passes.scale_collectives import with_costs

_DATA_PARALLEL = "change the ranks of purely data-parallel jobs only"
MAX_OPS = 1 << 24
"""Largest number of operations of a graph with more ranks: some gigabytes."""


@dataclass(frozen=True, slots=True)
class NumRanks:
    """Number of ranks of a changed job."""

    num_ranks: int


@dataclass(frozen=True, slots=True)
class ChangeRanks:
    """Adds or removes ranks of a data-parallel job; the batch of a rank stays. A new rank repeats
    other steps of a recorded one, so that its times vary on their own; on devices the same steps.
    """

    name = "ranks"
    plan_section = None
    advice = "Start the job with this number of ranks."

    def applies(self, scene: Scene) -> list[str]:
        return [error.cause for error in _refusals(scene.graph)]

    def apply(self, scene: Scene, parameters: NumRanks) -> Changed:
        graph, was, num_ranks = scene.graph, scene.graph.num_ranks, parameters.num_ranks
        if num_ranks < 1:
            raise UsageError(f"there cannot be {num_ranks} ranks", remedy="name 1 or more")
        has_servers = (graph.ranks.role != Role.WORKER).any()
        if num_ranks == was and not has_servers:
            return unchanged(scene)
        if graph.num_ops * num_ranks > MAX_OPS * was and not has_servers:
            raise UsageError(
                f"{num_ranks:,} ranks have too many operations", remedy="name fewer, or record less"
            )
        for error in _refusals(graph):
            raise error
        costs = {
            kind: _changed_cost(kind, cost, was, num_ranks) for kind, cost in scene.costs.items()
        }
        scaled = with_costs(graph, scene.costs, costs)
        new_graph, new_op_of = (
            _fewer(scaled, num_ranks) if num_ranks < was else _More(scaled, num_ranks).grown()
        )
        return changed(
            scene,
            replace(
                scene,
                graph=new_graph,
                costs=costs,
                links=scene.links and scene.links.grown(num_ranks),
                recorded_links=scene.recorded_links and scene.recorded_links.grown(num_ranks),
            ),
            new_op_of,
        )

    def error_model(self, _parameters: NumRanks) -> ErrorModel:
        return ErrorModel(0.025)


CHANGE_RANKS = ChangeRanks()


def _refusals(graph: Graph) -> Iterator[InputError]:
    """Yields why the ranks of this graph cannot be changed."""
    if (graph.ranks.role != Role.WORKER).any():
        yield InputError("the graph has servers", remedy="change the ranks of all-reduce jobs only")
        return
    if graph.num_ranks == 1:
        yield InputError(
            "a run of one rank does not show the cost of communication",
            remedy="record at least 2 ranks",
        )
        return
    sizes = np.diff(graph.gang_members.first)
    rank = graph.ops.rank
    links = (
        (graph.edges.sources(), graph.edges.dst),
        (graph.carries.src, graph.carries.dst),
    )
    if (sizes != graph.num_ranks).any():
        cause = "some collectives are among a part of the ranks only"
    elif any((rank[src] != rank[dst]).any() for src, dst in links):
        yield InputError(
            "ranks send each other single messages, as two do under a plan",
            remedy=f"{_DATA_PARALLEL}; of this job, of a run that was recorded without its plan",
        )
        return
    elif (graph.ops.step[_in_steps(graph)] < 0).any() or not _steps_agree(graph):
        cause = "some operations belong to no step, or to others than their peers"
    else:
        return
    yield InputError(cause, remedy=_DATA_PARALLEL)


def _in_steps(graph: Graph) -> NDArray[np.bool_]:
    """Marks operations that need a step: on devices, delays before the first step have none."""
    if not has_host_threads(graph):
        return np.ones(graph.num_ops, dtype=bool)
    return np.asarray(graph.ops.kind != OpKind.DELAY)


def _steps_agree(graph: Graph) -> bool:
    members = graph.gang_members
    first = members.dst[members.first[:-1]]
    return bool((graph.ops.step[first[members.sources()]] == graph.ops.step[members.dst]).all())


def _changed_cost(kind: OpKind, cost: TransferCost, was: int, now: int) -> TransferCost:
    """Scales the constant part of a cost with the rounds of a ring or the levels of a tree, and its
    bandwidth part with the bytes that one rank sends."""
    if now == 1:
        return cost.changed(rest=0, wire=0)
    if kind in (OpKind.SEND, OpKind.RECV):
        return cost
    if kind in (OpKind.BROADCAST, OpKind.REDUCE):
        return cost.changed(rest=(now - 1).bit_length() / (was - 1).bit_length())
    rounds = (now - 1) / (was - 1)
    return cost.changed(rest=rounds, wire=rounds * was / now)


def _fewer(graph: Graph, num_ranks: int) -> tuple[Graph, I4]:
    edit = GraphEdit(graph)
    for op in np.flatnonzero(graph.ops.rank >= num_ranks).tolist():
        edit.remove(op)
    smaller = edit.graph(num_ranks=num_ranks)
    if num_ranks == 1:
        columns = dict(smaller.ops.columns()) | {"gang": np.full(smaller.num_ops, NONE)}
        smaller = smaller.evolve(ops=type(smaller.ops)(**columns))
    return smaller, edit.new_op_of()


class _More:
    def __init__(self, graph: Graph, num_ranks: int) -> None:
        self._graph, self._num_ranks = graph, num_ranks
        self._edit = GraphEdit(graph)
        self._steps = sorted(set(graph.ops.step[graph.ops.step >= 0].tolist()))
        self._gangs = self._gangs_of_steps()
        self._is_on_thread = are_on_threads(graph)

    def _gangs_of_steps(self) -> dict[int, list[int]]:
        """Returns the gangs of each step in their order on the first rank."""
        ops = self._graph.ops
        found: dict[int, list[int]] = defaultdict(list)
        for op in np.flatnonzero((ops.rank == 0) & (ops.gang != NONE)).tolist():
            found[int(ops.step[op])].append(int(ops.gang[op]))
        return found

    def grown(self) -> tuple[Graph, I4]:
        was = self._graph.num_ranks
        # The steps of a steady state are all alike and joined by carries.
        away = 0 if len(self._graph.carries) else _stride(len(self._steps))
        is_on_devices = has_host_threads(self._graph)
        for new in range(was, self._num_ranks):
            if is_on_devices:
                self._copy_whole_rank(new % was)
            else:
                self._copy_rank(new % was, shift=(new // was) * away)
        return self._edit.graph(), self._edit.new_op_of()

    def _source_step(self, step: int, shift: int) -> int:
        """Returns another step with the same collectives; the step itself if there is none."""
        steps = self._steps
        other = steps[(steps.index(step) + shift) % len(steps)]
        return other if self._collectives_of(other) == self._collectives_of(step) else step

    def _collectives_of(self, step: int) -> list[tuple[int, int]]:
        ops = self._graph.ops
        members = self._graph.gang_members
        first = [int(members.of(gang)[0]) for gang in self._gangs[step]]
        return [(int(ops.kind[op]), int(ops.size_bytes[op])) for op in first]

    def _copy_rank(self, source: int, *, shift: int) -> None:
        graph, edit = self._graph, self._edit
        rank = edit.rank((Role.WORKER, int(graph.ranks.host[source])))
        resources = self._copy_resources(source, rank)
        rows = [values for _, values in graph.ops.columns()]
        own = np.flatnonzero(graph.ops.rank == source)
        of_step: dict[int, list[int]] = defaultdict(list)
        for op in own.tolist():
            of_step[int(graph.ops.step[op])].append(op)
        last: int | None = None
        copies: dict[int, int] = {}
        for step in self._steps:
            there = self._source_step(step, shift)
            copy_of: dict[int, int] = {}
            gangs = dict(zip(self._gangs[there], self._gangs[step], strict=True))
            for op in of_step[there]:
                row = [int(values[op]) for values in rows]
                row[1] = rank
                row[2] = resources.get(row[2], row[2])
                if row[6] != NONE:
                    # All members of a gang have the same work.
                    row[6] = gangs[row[6]]
                    row[3] = int(graph.ops.work_ns[graph.gang_members.of(row[6])[0]])
                row[8] = step
                copy_of[op] = edit.copy_op(tuple(row[:9]), row[9])
            inside = set(of_step[there])
            for op in of_step[there]:
                for after in graph.edges.of(op).tolist():
                    if after in inside:
                        edit.edge(copy_of[op], copy_of[after])
            # The main thread continues from step to step.
            if shift and last is not None:
                for op in of_step[there]:
                    if not inside.intersection(graph.predecessors.of(op).tolist()):
                        edit.edge(last, copy_of[op])
            last = copy_of.get(self._thread_end(of_step[there]), last)
            self._copy_tables(source, rank, there, step, copy_of)
            copies |= copy_of
        if not shift:
            self._join_as_they_were(copies)

    def _copy_whole_rank(self, source: int) -> None:
        """Copies a rank with all of its steps as they were: streams and threads go on from step to
        step in many places."""
        graph, edit = self._graph, self._edit
        rank = edit.rank((Role.WORKER, int(graph.ranks.host[source])))
        resources = self._copy_resources(source, rank)
        rows = [values for _, values in graph.ops.columns()]
        copies: dict[int, int] = {}
        for op in np.flatnonzero(graph.ops.rank == source).tolist():
            row = [int(values[op]) for values in rows]
            row[1], row[2] = rank, resources.get(row[2], row[2])
            copies[op] = edit.copy_op(tuple(row[:9]), row[9])
        self._join_as_they_were(copies)
        self._copy_tables(source, rank, self._steps[0], self._steps[0], copies, is_whole=True)

    def _join_as_they_were(self, copies: dict[int, int]) -> None:
        carries = self._graph.carries
        for op, copy in copies.items():
            for after in self._graph.edges.of(op).tolist():
                self._edit.edge(copy, copies[after])
        for src, dst in zip(carries.src.tolist(), carries.dst.tolist(), strict=True):
            if src in copies:
                self._edit.carry(copies[src], copies[dst])

    def _thread_end(self, ops: list[int]) -> int:
        return max((op for op in ops if self._is_on_thread[op]), default=NONE)

    def _copy_resources(self, source: int, rank: int) -> dict[int, int]:
        graph = self._graph
        rows = [values for _, values in graph.resources.columns()]
        copies: dict[int, int] = {}
        for resource in np.flatnonzero(graph.resources.rank == source).tolist():
            row = [int(values[resource]) for values in rows]
            row[1] = rank
            copies[resource] = self._edit.resource(tuple(row))
        rules = graph.interference
        for victim, aggressor, rate in zip(
            rules.victim.tolist(), rules.aggressor.tolist(), rules.rate.tolist(), strict=True
        ):
            if victim in copies and aggressor in copies:
                self._edit.interfere((copies[victim], copies[aggressor], rate))
        return copies

    def _copy_tables(
        self,
        source: int,
        rank: int,
        there: int,
        step: int,
        copy_of: dict[int, int],
        *,
        is_whole: bool = False,
    ) -> None:
        """``is_whole``: all operations of the source are copied, with buffers that it holds from
        before the recording or beyond its end."""
        gradients, buffers = self._graph.gradients, self._graph.buffers
        for row in np.flatnonzero((gradients.rank == source) & (gradients.step == there)).tolist():
            made, carried, used = (
                copy_of[int(getattr(gradients, name)[row])]
                for name in ("made_by", "carried_by", "used_by")
            )
            name, size = int(gradients.name[row]), int(gradients.size_bytes[row])
            self._edit.gradient((rank, step, name, size, made, carried, used))
        for row in np.flatnonzero(buffers.rank == source).tolist():
            taken, given = int(buffers.taken_by[row]), int(buffers.given_by[row])
            is_held = taken == NONE and given == NONE and step == self._steps[0]
            has_ends = taken in copy_of and given in copy_of
            is_open = is_whole and {taken, given} - {NONE} <= copy_of.keys()
            if is_held or has_ends or is_open:
                self._edit.buffer(
                    (
                        rank,
                        int(buffers.size_bytes[row]),
                        int(buffers.kind[row]),
                        copy_of.get(taken, NONE),
                        copy_of.get(given, NONE),
                        int(buffers.later[row]),
                        int(buffers.layer[row]),
                    )
                )


def _stride(num_steps: int) -> int:
    """Returns a stride that visits all steps and is longer than disturbances of a few steps."""
    return next(stride for stride in range(7, 8 + num_steps) if gcd(stride, num_steps) == 1)
