"""Graph of a pipeline: stages, micro-batches and sends of each device."""

from __future__ import annotations

from itertools import pairwise

import numpy as np

from augury.build.pipeline_order import StageTask, stage_tasks
from augury.core.columns import F8
from augury.core.enums import Discipline, MemoryKind, OpKind, ResourceKind
from augury.core.graph.builder import GraphBuilder
from augury.core.graph.graph import Graph
from augury.costs.closed_forms import point_to_point_s
from augury.oracle.graphs.input_reading import InputReading
from augury.oracle.graphs.program import DEVICE, check_size, rounded_ns
from augury.oracle.layer_costs import WEIGHT_BYTES
from augury.oracle.strategies.pipeline_stages import first_layers, micro_batches
from augury.oracle.strategy import StrategyCase, waiting_s

StageWork = list[tuple[int, str, OpKind, int]]
"""Consecutive operations: layer, name, kind and nanoseconds."""


class StageCut:
    """Stages of a pipeline, assigned to devices in turn, with the work and sends of each.

    Each device has as many chunks as the interleaved schedule states and layers allow.
    """

    def __init__(self, case: StrategyCase) -> None:
        self.case, self.work = case, case.work
        self.devices = int(case.devices[0])
        self.micro_batches = int(micro_batches(case)[0])
        self.samples = float(case.batch[0]) / self.micro_batches
        self.chunks = self._chunks()
        firsts = first_layers(self.work, self.devices * self.chunks).tolist()
        self.layers = [
            range(low, high) for low, high in pairwise([*firsts, len(self.work.forward_s)])
        ]
        self.forward = [self._stage_work(some, True) for some in self.layers]
        self.backward = [self._stage_work(some, False) for some in self.layers]

    def _chunks(self) -> int:
        options = self.case.options
        if options.schedule != "interleaved" or self.devices == 1:
            return 1
        return max(1, min(options.chunks, len(self.work.forward_s) // self.devices))

    def _stage_work(self, layers: range, is_forward: bool) -> StageWork:
        work, each = self.work, list(layers)
        named = [(place, "forward", OpKind.FORWARD, work.forward_s) for place in each]
        if not is_forward:
            again = self.case.options.recompute
            named = [
                *((p, "recompute", OpKind.RECOMPUTE, work.forward_s) for p in each if again),
                *((p, "backward", OpKind.BACKWARD, work.backward_s) for p in reversed(each)),
            ]
        share = self.samples * self.case.constants.compute_ratio
        ends = np.cumsum([0.0, *(share * float(seconds[layer]) for layer, _, _, seconds in named)])
        return [
            (place, name, kind, work_ns)
            for (place, name, kind, _), work_ns in zip(named, _rounded_durations(ends), strict=True)
        ]

    def updates(self, layers: range) -> StageWork:
        ends = np.cumsum([0.0, *self.work.update_s[layers.start : layers.stop]])
        return [
            (place, "update", OpKind.UPDATE, work_ns)
            for place, work_ns in zip(layers, _rounded_durations(ends), strict=True)
            if work_ns
        ]

    def boundary_bytes(self, chunk: int, to: int) -> float:
        """Size of the outputs of the earlier of two stages, or of their gradients."""
        behind = self.layers[min(chunk, to)][-1]
        items = float(self.work.output_items[behind])
        return self.samples * items * self.work.precision.item_bytes

    def send_s(self, device: int, to: int, size_bytes: float) -> float:
        cluster = self.case.cluster
        level = np.array([cluster.level_between(device, to)])
        alpha, beta = cluster.latency_s(level), cluster.seconds_per_byte(level)
        return float(point_to_point_s(size_bytes, alpha, beta)[0])


def _rounded_durations(ends_s: F8) -> list[int]:
    """Rounds durations so that consecutive operations add up to their total."""
    ends_ns = [rounded_ns(end_s) for end_s in ends_s.tolist()]
    return [until - since for since, until in pairwise(ends_ns)]


def pipeline_graph(case: StrategyCase, meta: dict[str, str]) -> Graph:
    return _PipelineBuilder(case, meta).build()


class _PipelineBuilder:
    """Without overlap a device sends before it continues; otherwise its links send concurrently.
    A link connects a device to one neighbour, at the lowest level that holds both."""

    def __init__(self, case: StrategyCase, meta: dict[str, str]) -> None:
        self.case, self.work = case, case.work
        self.cut = StageCut(case)
        self.builder = GraphBuilder(meta=meta)
        self.first: dict[tuple[bool, int, int], int] = {}
        """First operation of each task, by direction, global chunk and micro-batch."""
        self.arrival: dict[tuple[bool, int, int], int] = {}
        """Operation that the next stage waits for, by task."""
        self.last: dict[tuple[bool, int, int], int] = {}

    def build(self) -> Graph:
        ops_per_micro_batch = sum(
            1 + len(works) for works in (*self.cut.forward, *self.cut.backward)
        )
        check_size(self.cut.micro_batches * ops_per_micro_batch)
        reading = InputReading(self.builder, self.case)
        for device in range(self.cut.devices):
            self._device(device, reading)
        for task, first in self.first.items():
            is_forward, chunk, micro_batch = task
            before = (is_forward, chunk - 1 if is_forward else chunk + 1, micro_batch)
            if before in self.arrival:
                self.builder.edge(self.arrival[before], first)
        reading.end_step()
        return self.builder.build()

    def _device(self, device: int, reading: InputReading) -> None:
        builder, case = self.builder, self.case
        rank = builder.rank(host=f"node {device // case.cluster.devices_per_host}")
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
        tasks = stage_tasks(
            case.options.schedule,
            stage=device,
            num_stages=self.cut.devices,
            num_micro_batches=self.cut.micro_batches,
            num_chunks=self.cut.chunks,
        )
        for task in tasks:
            last = self._task(task, device, rank, compute, links[task.is_forward], last)
        self._memory(device, rank)
        for chunk in range(device, len(self.cut.layers), self.cut.devices):
            for work in self.cut.updates(self.cut.layers[chunk]):
                last = self._op(work, rank, compute, last)
        slowest_ns = rounded_ns(float(waiting_s(case)[0]))
        last = builder.op("waiting", kind=OpKind.DELAY, rank=rank, work_ns=slowest_ns, after=[last])
        reading.add_rank(rank, first=begin, last=last)

    def _task(
        self, task: StageTask, device: int, rank: int, compute: int, link: int, last: int
    ) -> int:
        """Adds a task. Returns the operation that the device waits for before it continues."""
        chunk = task.chunk * self.cut.devices + device
        key = task.is_forward, chunk, task.micro_batch
        works = (self.cut.forward if task.is_forward else self.cut.backward)[chunk]
        for place, work in enumerate(works):
            last = self._op(work, rank, compute, last)
            if place == 0:
                self.first[key] = last
        self.last[key] = self.arrival[key] = last
        to = chunk + 1 if task.is_forward else chunk - 1
        if not 0 <= to < len(self.cut.layers) or self.cut.devices == 1:
            return last
        size_bytes = self.cut.boundary_bytes(chunk, to)
        self.arrival[key] = self.builder.op(
            "outputs" if task.is_forward else "gradients",
            kind=OpKind.SEND,
            rank=rank,
            resource=link,
            work_ns=rounded_ns(self.cut.send_s(device, to % self.cut.devices, size_bytes)),
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
        """Adds memory: a stage holds the saved activations of a micro-batch from its forward to its
        backward."""
        case, work, options = self.case, self.work, self.case.options
        mine = range(device, len(self.cut.layers), self.cut.devices)
        places = [place for chunk in mine for place in self.cut.layers[chunk]]
        item_bytes = work.precision.item_bytes
        kept_bytes = case.constants.memory_reuse * item_bytes * self.cut.samples
        weight_bytes = WEIGHT_BYTES * float(work.parameters[places].sum())
        touched = work.input_items[places] + work.output_items[places]
        held = {MemoryKind.PARAMETER: weight_bytes, MemoryKind.GRADIENT: weight_bytes}
        if options.is_bare:
            whole = self.cut.micro_batches * float(touched.sum())
            held[MemoryKind.ACTIVATION] = 2 * kept_bytes * whole
        else:
            held[MemoryKind.OPTIMIZER] = options.optimizer_copies * weight_bytes
            held[MemoryKind.WORKSPACE] = self.cut.samples * item_bytes * float(touched.max())
        for kind, size_bytes in held.items():
            if round(size_bytes):
                self.builder.buffer(round(size_bytes), rank=rank, kind=kind)
        for chunk in () if options.is_bare else mine:
            items = float(work.saved_items[list(self.cut.layers[chunk])].sum())
            if options.recompute:
                starts = float(work.input_items[self.cut.layers[chunk][0]])
                items = starts + items / self.cut.devices
            if not round(kept_bytes * items):
                continue
            for micro_batch in range(self.cut.micro_batches):
                self.builder.buffer(
                    round(kept_bytes * items),
                    rank=rank,
                    kind=MemoryKind.ACTIVATION,
                    taken_by=self.first[True, chunk, micro_batch],
                    given_by=self.last[False, chunk, micro_batch],
                    layer=work.model.layers[self.cut.layers[chunk][0]].name,
                )
