"""Stages, micro-batches that follow each other, and what stages send: every device of its own."""

from __future__ import annotations

from augury.build.pipeline_order import StageTask, stage_tasks
from augury.core.enums import Discipline, MemoryKind, OpKind, ResourceKind
from augury.core.graph.builder import GraphBuilder
from augury.core.graph.graph import Graph
from augury.oracle.graphs.input_reading import Reading
from augury.oracle.graphs.pipeline_cut import StageCut
from augury.oracle.graphs.program import DEVICE, check_size, whole_ns
from augury.oracle.layer_costs import WEIGHT_BYTES
from augury.oracle.strategy import StrategyCase, waiting_s


def pipeline_graph(case: StrategyCase, meta: dict[str, str]) -> Graph:
    return _Pipeline(case, meta).built()


class _Pipeline:
    """Where nothing overlaps, a device sends before it goes on; else its links send by themselves.
    A link goes from a device to one neighbour, at the lowest level that holds both."""

    def __init__(self, case: StrategyCase, meta: dict[str, str]) -> None:
        self.case, self.work = case, case.work
        self.cut = StageCut(case)
        self.builder = GraphBuilder(meta=meta)
        self.first: dict[tuple[bool, int, int], int] = {}
        """Operations with which tasks begin, by direction, chunk of all and micro-batch."""
        self.arrival: dict[tuple[bool, int, int], int] = {}
        """What those behind wait for."""
        self.last: dict[tuple[bool, int, int], int] = {}

    def built(self) -> Graph:
        of_a_micro_batch = sum(1 + len(works) for works in (*self.cut.forward, *self.cut.backward))
        check_size(self.cut.micro_batches * of_a_micro_batch)
        reading = Reading(self.builder, self.case)
        for device in range(self.cut.devices):
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
        slowest_ns = whole_ns(float(waiting_s(case)[0]))
        last = builder.op("waiting", kind=OpKind.DELAY, rank=rank, work_ns=slowest_ns, after=[last])
        reading.of_rank(rank, first=begin, last=last)

    def _task(
        self, task: StageTask, device: int, rank: int, compute: int, link: int, last: int
    ) -> int:
        """What the device waits for before it goes on."""
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
            work_ns=whole_ns(self.cut.send_s(device, to % self.cut.devices, size_bytes)),
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
