"""Stages, micro-batches that follow each other, and what stages send: every device of its own."""

from __future__ import annotations

from itertools import pairwise

import numpy as np

from augury.core.builder import GraphBuilder
from augury.core.graph import Graph
from augury.core.kinds import Discipline, MemoryKind, OpKind, ResourceKind
from augury.oracle.cluster import F8
from augury.oracle.graphs.pipeline_order import Task, tasks_of
from augury.oracle.graphs.program import DEVICE, check_size, whole_ns
from augury.oracle.graphs.reading import Reading
from augury.oracle.layers_cost import WEIGHT_BYTES
from augury.oracle.strategies.pipeline import micro_batches
from augury.oracle.strategies.stages import first_layers
from augury.oracle.strategy import Case, waiting_s

Works = list[tuple[int, str, OpKind, int]]
"""Layer, name, kind and nanoseconds of operations that follow each other."""


def pipeline_graph(case: Case, meta: dict[str, str]) -> Graph:
    return _Pipeline(case, meta).built()


class _Pipeline:
    """Where nothing overlaps, a device sends before it goes on; else its links send by themselves.
    A link goes from a device to one neighbour, at the lowest level that holds both."""

    def __init__(self, case: Case, meta: dict[str, str]) -> None:
        self.case, self.work = case, case.work
        self.devices = int(case.devices[0])
        self.micro_batches = int(micro_batches(case)[0])
        self.chunks = self._chunks()
        self.samples = float(case.batch[0]) / self.micro_batches
        firsts = first_layers(self.work, self.devices * self.chunks).tolist()
        self.layers = [
            range(low, high)
            for low, high in zip(firsts, [*firsts[1:], len(self.work.forward_s)], strict=True)
        ]
        self.works = [(self._works(some, True), self._works(some, False)) for some in self.layers]
        self.builder = GraphBuilder(meta=meta)
        self.first: dict[tuple[bool, int, int], int] = {}
        """Operations with which tasks begin, by direction, chunk of all and micro-batch."""
        self.arrival: dict[tuple[bool, int, int], int] = {}
        """What those behind wait for."""
        self.last: dict[tuple[bool, int, int], int] = {}

    def _chunks(self) -> int:
        """Of a device: as many as there are layers for."""
        options = self.case.options
        if options.schedule != "interleaved" or self.devices == 1:
            return 1
        return max(1, min(options.chunks, len(self.work.forward_s) // self.devices))

    def built(self) -> Graph:
        of_tasks = sum(len(forward) + len(backward) + 2 for forward, backward in self.works)
        check_size(self.micro_batches * of_tasks)
        reading = Reading(self.builder, self.case)
        for device in range(self.devices):
            self._device(device, reading)
        for task, first in self.first.items():
            is_forward, chunk, micro_batch = task
            before = (is_forward, chunk - 1 if is_forward else chunk + 1, micro_batch)
            if before in self.arrival:
                self.builder.edge(self.arrival[before], first)
        reading.end_step()
        return self.builder.build()

    def _device(self, device: int, reading: Reading) -> None:
        builder, case = self.builder, self.case
        rank = builder.rank(host=f"node {device // case.machine.devices_per_node}")
        compute = builder.resource(DEVICE, rank=rank)
        links = {
            is_forward: builder.resource(
                name,
                rank=rank,
                kind=ResourceKind.COMMUNICATION,
                discipline=Discipline.FIFO,
            )
            for is_forward, name in ((True, "link on"), (False, "link back"))
        }
        last = begin = builder.op("begin", kind=OpKind.MARK, rank=rank, work_ns=0)
        tasks = tasks_of(
            case.options.schedule,
            device=device,
            devices=self.devices,
            micro_batches=self.micro_batches,
            chunks=self.chunks,
        )
        for task in tasks:
            last = self._task(task, device, rank, compute, links[task.is_forward], last)
        self._memory(device, rank)
        for chunk in range(device, len(self.layers), self.devices):
            for work in self._updates(self.layers[chunk]):
                last = self._op(work, rank, compute, last)
        slowest_ns = whole_ns(float(waiting_s(case)[0]))
        last = builder.op("waiting", kind=OpKind.DELAY, rank=rank, work_ns=slowest_ns, after=[last])
        reading.of_rank(rank, first=begin, last=last)

    def _task(self, task: Task, device: int, rank: int, compute: int, link: int, last: int) -> int:
        """What the device waits for before it goes on."""
        chunk = task.chunk * self.devices + device
        key = task.is_forward, chunk, task.micro_batch
        works = self.works[chunk][0 if task.is_forward else 1]
        for place, work in enumerate(works):
            last = self._op(work, rank, compute, last)
            if place == 0:
                self.first[key] = last
        self.last[key] = self.arrival[key] = last
        to = chunk + 1 if task.is_forward else chunk - 1
        if not 0 <= to < len(self.layers) or self.devices == 1:
            return last
        size_bytes = self._boundary_bytes(chunk, to)
        self.arrival[key] = self.builder.op(
            "outputs" if task.is_forward else "gradients",
            kind=OpKind.SEND,
            rank=rank,
            resource=link,
            work_ns=whole_ns(self._send_s(device, to % self.devices, size_bytes)),
            size_bytes=round(size_bytes),
            after=[last],
        )
        return last if self.case.options.overlap else self.arrival[key]

    def _op(self, work: tuple[int, str, OpKind, int], rank: int, compute: int, last: int) -> int:
        place, name, kind, work_ns = work
        return self.builder.op(
            name,
            kind=kind,
            rank=rank,
            resource=compute,
            work_ns=work_ns,
            layer=self.work.model.layers[place].name,
            after=[last],
        )

    def _memory(self, device: int, rank: int) -> None:
        """A stage keeps what it saves of a micro-batch from its forward to its backward."""
        case, work, options = self.case, self.work, self.case.options
        mine = range(device, len(self.layers), self.devices)
        places = [place for chunk in mine for place in self.layers[chunk]]
        item_bytes = work.precision.item_bytes
        kept_bytes = case.constants.memory_reuse * item_bytes * self.samples
        weight_bytes = WEIGHT_BYTES * float(work.parameters[places].sum())
        touched = work.input_items[places] + work.output_items[places]
        held = {MemoryKind.PARAMETER: weight_bytes, MemoryKind.GRADIENT: weight_bytes}
        if options.is_bare:
            whole = self.micro_batches * float(touched.sum())
            held[MemoryKind.ACTIVATION] = 2 * kept_bytes * whole
        else:
            held[MemoryKind.OPTIMIZER] = options.optimizer_copies * weight_bytes
            held[MemoryKind.WORKSPACE] = self.samples * item_bytes * float(touched.max())
        for kind, size_bytes in held.items():
            if round(size_bytes):
                self.builder.buffer(round(size_bytes), rank=rank, kind=kind)
        for chunk in () if options.is_bare else mine:
            items = float(work.saved_items[list(self.layers[chunk])].sum())
            if options.recompute:
                starts = float(work.input_items[self.layers[chunk][0]])
                items = starts + items / self.devices
            if not round(kept_bytes * items):
                continue
            for micro_batch in range(self.micro_batches):
                self.builder.buffer(
                    round(kept_bytes * items),
                    rank=rank,
                    kind=MemoryKind.ACTIVATION,
                    taken_by=self.first[True, chunk, micro_batch],
                    given_by=self.last[False, chunk, micro_batch],
                    layer=work.model.layers[self.layers[chunk][0]].name,
                )

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

    def _updates(self, layers: range) -> Works:
        ends = np.cumsum([0.0, *self.work.update_s[layers.start : layers.stop]])
        return [
            (place, "update", OpKind.UPDATE, work_ns)
            for place, work_ns in zip(layers, _whole(ends), strict=True)
            if work_ns
        ]

    def _boundary_bytes(self, chunk: int, to: int) -> float:
        """Outputs of the earlier of two stages, or their gradients."""
        behind = self.layers[min(chunk, to)][-1]
        items = float(self.work.output_items[behind])
        return self.samples * items * self.work.precision.item_bytes

    def _send_s(self, device: int, to: int, size_bytes: float) -> float:
        machine = self.case.machine
        level = np.array([machine.level_between(device, to)])
        alpha, beta = machine.latency_s(level), machine.seconds_per_byte(level)
        return float(alpha[0] + size_bytes * beta[0])


def _whole(ends_s: F8) -> list[int]:
    """So that operations in a row take what they take together."""
    ends_ns = [whole_ns(end_s) for end_s in ends_s.tolist()]
    return [until - since for since, until in pairwise(ends_ns)]
