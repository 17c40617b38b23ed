"""Pass for gradients in buckets of other capacities."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from augury.build.problem.step_parts import NO_GRADIENTS, NO_GRADIENTS_REMEDY
from augury.core.columns import I4
from augury.core.enums import OpKind
from augury.core.errors import InputError
from augury.core.graph.graph import Graph
from augury.passes.graph_edit import GraphEdit
from augury.passes.processor_time import charge_collectives
from augury.passes.protocol import Changed, ErrorModel, Scene, changed
from augury.schedule.order_parts import fill_buckets


@dataclass(frozen=True, slots=True)
class BucketCaps:
    """Capacities of buckets: of the first, the second, and so on; the last holds for the rest."""

    caps_bytes: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Buckets:
    """Replaces the recorded buckets of gradients by buckets of other capacities."""

    name = "buckets"
    plan_section = "communication"
    advice = ""

    def applies(self, scene: Scene) -> list[str]:
        return [] if len(scene.graph.gradients) else [NO_GRADIENTS]

    def apply(self, scene: Scene, parameters: BucketCaps) -> Changed:
        for reason in self.applies(scene):
            raise InputError(reason, remedy=NO_GRADIENTS_REMEDY)
        rebucketing = _Rebucketing(scene, parameters.caps_bytes)
        graph = charge_collectives(
            scene.graph, rebucketing.graph(), costs=scene.costs, calibration=scene.calibration
        )
        return changed(scene, replace(scene, graph=graph), rebucketing.new_op_of())

    def error_model(self, _parameters: BucketCaps) -> ErrorModel:
        return ErrorModel(0.015)


BUCKETS = Buckets()


class _Rebucketing:
    def __init__(self, scene: Scene, caps_bytes: Sequence[int]) -> None:
        graph = self._graph = scene.graph
        self._costs, self._caps = scene.costs, caps_bytes
        self._edit = GraphEdit(graph)
        rows: dict[int, dict[int, list[int]]] = defaultdict(lambda: defaultdict(list))
        for row in range(len(graph.gradients)):
            rows[int(graph.gradients.step[row])][int(graph.gradients.rank[row])].append(row)
        self._rows = rows

    def graph(self) -> Graph:
        for of_rank in self._rows.values():
            self._rebucket_step(of_rank)
        return self._edit.graph()

    def new_op_of(self) -> I4:
        return self._edit.new_op_of()

    def _rebucket_step(self, of_rank: dict[int, list[int]]) -> None:
        graph, gradients, ops = self._graph, self._graph.gradients, self._graph.ops
        sizes = {rank: gradients.size_bytes[rows].tolist() for rank, rows in of_rank.items()}
        first = next(iter(sizes.values()))
        if any(other != first for other in sizes.values()):
            raise InputError(
                "ranks make their gradients in different orders",
                remedy="buckets cannot be predicted for such a job",
            )
        residual = self._residual(of_rank)
        buckets = fill_buckets(first, self._caps)
        gangs = [self._edit.gang() for _ in buckets]
        for rank, rows in of_rank.items():
            made_by = gradients.made_by[rows].tolist()
            carried = list(dict.fromkeys(gradients.carried_by[rows].tolist()))
            copies = sorted(set(gradients.used_by[rows].tolist()))
            copy_ns = self._copy_cost(rows)
            stream = int(ops.resource[carried[0]])
            kind = OpKind(int(ops.kind[carried[0]]))
            name = graph.op_name(carried[0])
            thread = int(ops.resource[made_by].max())
            before, after = self._take_out(copies, carried)
            latest = -1
            for bucket, gang in zip(buckets, gangs, strict=True):
                latest = max(latest, *bucket)
                size_bytes = sum(first[i] for i in bucket)
                time_ns = self._time_ns(kind, size_bytes, among=len(buckets))
                sent = self._edit.op(
                    name,
                    kind=kind,
                    rank=rank,
                    resource=stream,
                    work_ns=max(1, round(time_ns * residual)),
                    step=int(gradients.step[rows[0]]),
                    size_bytes=size_bytes,
                    gang=gang,
                    after=[made_by[latest]],
                )
                work_ns = round(sum(copy_ns[i] for i in bucket))
                copied = self._edit.op(
                    "copy bucket to gradients",
                    kind=OpKind.COPY,
                    rank=rank,
                    resource=thread if work_ns else -1,
                    work_ns=work_ns,
                    step=int(gradients.step[rows[0]]),
                    size_bytes=size_bytes,
                    after=[sent, *before],
                )
                before = [copied]
                for i in bucket:
                    self._edit.gradient(
                        (
                            rank,
                            int(gradients.step[rows[0]]),
                            int(gradients.name[rows[i]]),
                            first[i],
                            made_by[i],
                            sent,
                            copied,
                        )
                    )
            for op in after:
                self._edit.edge(before[0], op)

    def _residual(self, of_rank: dict[int, list[int]]) -> float:
        """Returns the ratio of recorded to modelled time of one step's collectives."""
        ops, gradients = self._graph.ops, self._graph.gradients
        rows = next(iter(of_rank.values()))
        carried = list(dict.fromkeys(gradients.carried_by[rows].tolist()))
        real = sum(int(ops.work_ns[op]) for op in carried)
        kind = OpKind(int(ops.kind[carried[0]]))
        said = sum(
            self._time_ns(kind, int(ops.size_bytes[op]), among=len(carried)) for op in carried
        )
        return real / said if said else 1.0

    def _time_ns(self, kind: OpKind, size_bytes: int, *, among: int) -> float:
        """Returns the modelled time of a bucket. One that follows others is no faster per byte than
        a large one: a burst that a rate limiter lets through after a pause does not recur."""
        cost = self._costs[kind]
        least_ns = cost.ns_per_byte * size_bytes if among > 1 else 0.0
        return max(cost.time_ns(size_bytes), least_ns)

    def _copy_cost(self, rows: list[int]) -> list[float]:
        """Returns each gradient's share of the time of its bucket's copy."""
        gradients, ops = self._graph.gradients, self._graph.ops
        held: dict[int, int] = defaultdict(int)
        for row in rows:
            held[int(gradients.used_by[row])] += int(gradients.size_bytes[row])
        return [
            int(ops.work_ns[gradients.used_by[row]])
            * int(gradients.size_bytes[row])
            / max(1, held[int(gradients.used_by[row])])
            for row in rows
        ]

    def _take_out(self, copies: list[int], carried: list[int]) -> tuple[list[int], list[int]]:
        """Removes the recorded buckets of a rank's step. Returns the operations before and after
        their copies on the thread; operations between the copies follow the one before."""
        graph, edit = self._graph, self._edit
        gone = {*copies, *carried}
        for op in gone:
            edit.remove(op)
        # Ids on a thread rise in its order.
        inner = [op for copy in copies for op in graph.predecessors.of(copy).tolist()]
        before = [op for op in inner if op not in gone]
        after = [op for copy in copies for op in graph.edges.of(copy).tolist() if op not in gone]
        chain = sorted({*before, *after} - {max(after, default=-1)})
        for src, dst in pairwise(chain):
            if dst in after:
                edit.edge(src, dst)
        return chain[-1:], [max(after)] if after else []
