"""One training step: forward, backward, gradients' way, update; in stages and micro-batches."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

from augury.build.chunks import even_chunks
from augury.build.pipeline import Task, stage_tasks
from augury.build.synthetic_stage import Bucket, Stage
from augury.build.synthetic_world import World
from augury.build.transfer import Move, Wire
from augury.core.kinds import MemoryKind, OpKind

PerReplica = list[list[int]]
"""For every replica of a layer, operations of it."""


class StepEmitter:
    """``awaited``: for every layer and replica, what its first forward waits for from the step
    before."""

    def __init__(self, world: World, step: int, awaited: Sequence[PerReplica]) -> None:
        self.world = world
        self.builder = world.builder
        self.job = world.job
        self.step = step
        self.awaited = awaited
        self.first_forward: dict[int, list[int]] = {}
        self.updated: dict[int, list[int]] = {}
        self._last: list[list[int] | None] = [None] * len(world.stages)
        """What each replica of a stage did last."""
        self._arrived: dict[tuple[int, Task], list[int]] = {}
        self._forward: dict[tuple[int, int], list[int]] = {}
        self._gradient: dict[int, list[int]] = {}

    def emit(self) -> None:
        """Stages take turns, each as far as what has arrived allows: so that operations are
        numbered in an order in which they could run."""
        job = self.job
        queues = [
            deque(
                stage_tasks(
                    job.schedule,
                    stage=number,
                    num_stages=job.num_stages,
                    num_micro_batches=job.num_micro_batches,
                )
            )
            for number in range(job.num_stages)
        ]
        while any(queues):
            for number, queue in enumerate(queues):
                while queue and self._can_run(number, queue[0]):
                    task = queue.popleft()
                    if task.is_forward:
                        self._run_forward(number, task)
                    else:
                        self._run_backward(number, task, is_last=not queue)

    def _can_run(self, number: int, task: Task) -> bool:
        from_outside = number > 0 if task.is_forward else number < self.job.num_stages - 1
        return not from_outside or (number, task) in self._arrived

    def _run_forward(self, number: int, task: Task) -> None:
        stage = self.world.stages[number]
        incoming = self._arrived.pop((number, task), None)
        for i in stage.layers:
            waits = self._waits(number, incoming)
            is_first = i not in self.first_forward
            if is_first:
                waits = [[*ops, *more] for ops, more in zip(waits, self.awaited[i], strict=True)]
            layer = self.job.layers[i]
            ops = self._compute(
                stage,
                i,
                OpKind.FORWARD,
                name=self._name(f"{layer.name}.forward", task),
                work_ns=self._share(layer.forward_ns, task),
                waits=waits,
            )
            if is_first:
                self.first_forward[i] = ops
            self._forward[i, task.micro_batch] = ops
            self._last[number], incoming = ops, None
        if number + 1 < self.job.num_stages:
            self._send(number, number + 1, task, stage.layers[-1])

    def _run_backward(self, number: int, task: Task, *, is_last: bool) -> None:
        stage = self.world.stages[number]
        incoming = self._arrived.pop((number, task), None)
        closing = {bucket.layers.start: bucket for bucket in stage.buckets} if is_last else {}
        reduced: list[tuple[Bucket, list[int]]] = []
        for i in reversed(stage.layers):
            layer = self.job.layers[i]
            ops = self._compute(
                stage,
                i,
                OpKind.BACKWARD,
                name=self._name(f"{layer.name}.backward", task),
                work_ns=self._share(layer.backward_ns, task),
                waits=self._waits(number, incoming),
            )
            self._gradient.setdefault(i, ops)
            stage.hold(
                self.builder,
                layer,
                MemoryKind.ACTIVATION,
                self._share(layer.saved_bytes, task),
                taken_by=self._forward.pop((i, task.micro_batch)),
                given_by=ops,
            )
            self._last[number], incoming = ops, None
            if i in closing:
                reduced.append((closing[i], self._reduce(stage, closing[i], ops)))
        if number > 0:
            self._send(number, number - 1, task, stage.layers[0] - 1)
        if is_last:
            self._update(stage, reduced)

    def _waits(self, number: int, incoming: Sequence[int] | None) -> PerReplica:
        waits: PerReplica = [[] for _ in range(self.job.num_replicas)]
        for source in (self._last[number], incoming):
            if source is not None:
                waits = [[*ops, op] for ops, op in zip(waits, source, strict=True)]
        return waits

    def _share(self, whole: int, task: Task) -> int:
        """Of a step's bytes or time, what one micro-batch has."""
        return even_chunks(whole, self.job.num_micro_batches)[task.micro_batch]

    def _name(self, what: str, task: Task) -> str:
        return f"{what}.{task.micro_batch}" if self.job.num_micro_batches > 1 else what

    def _compute(
        self, stage: Stage, i: int, kind: OpKind, *, name: str, work_ns: int, waits: PerReplica
    ) -> list[int]:
        return [
            self.builder.op(
                name,
                kind=kind,
                rank=port.rank,
                resource=stream,
                work_ns=self.world.work_ns(port.rank, work_ns),
                after=after,
                layer=self.job.layers[i].name,
                step=self.step,
            )
            for port, stream, after in zip(stage.ports.members, stage.streams, waits, strict=True)
        ]

    def _send(self, src: int, dst: int, task: Task, boundary: int) -> None:
        """The output of layer ``boundary`` goes forward, its gradient backward; eagerly."""
        what = "activation" if task.is_forward else "gradient"
        layer = self.job.layers[boundary]
        size_bytes = self._share(layer.output_bytes, task)
        here, there = self.world.stages[src].ports, self.world.stages[dst].ports
        name = self._name(f"{layer.name}.{what}", task)
        wire = Wire(builder=self.builder, ports=here, name=name, step=self.step)
        last = self._last[src]
        assert last is not None
        moves = [
            Move(a, b, size_bytes, (op,))
            for a, b, op in zip(here.members, there.members, last, strict=True)
        ]
        self._arrived[dst, task] = wire.move(moves)

    def _reduce(self, stage: Stage, bucket: Bucket, after: Sequence[int]) -> list[int]:
        return bucket.collective(
            self.builder,
            stage.ports,
            size_bytes=bucket.size_bytes,
            after=after,
            name=f"gradients.{bucket.layers.start}-{bucket.layers[-1]}",
            step=self.step,
            priority=bucket.priority,
        )

    def _update(self, stage: Stage, reduced: Sequence[tuple[Bucket, list[int]]]) -> None:
        """Servers have updated what comes back from them."""
        job = self.job
        everything = [list(ops) for ops in zip(*(ops for _, ops in reduced), strict=True)]
        for bucket, results in reduced:
            for i in bucket.layers:
                if job.uses_servers:
                    self.updated[i] = results
                else:
                    waits = everything if job.has_barrier else [[op] for op in results]
                    self.updated[i] = self._compute(
                        stage,
                        i,
                        OpKind.UPDATE,
                        name=f"{job.layers[i].name}.update",
                        work_ns=job.layers[i].update_ns,
                        waits=waits,
                    )
                    if job.has_barrier:
                        everything = [[op] for op in self.updated[i]]
                stage.hold(
                    self.builder,
                    job.layers[i],
                    MemoryKind.GRADIENT,
                    job.layers[i].parameter_bytes,
                    taken_by=self._gradient[i],
                    given_by=self.updated[i],
                )

    def awaited_next(self) -> list[PerReplica]:
        """What the next step's first forward of every layer waits for."""
        job = self.job
        awaited: list[PerReplica] = [
            [[] for _ in range(job.num_replicas)] for _ in job.layers
        ]
        for stage in self.world.stages:
            first = stage.layers[0]
            for i in stage.layers:
                at = first if job.has_barrier else i
                for ops, op in zip(awaited[at], self.updated[i], strict=True):
                    if op not in ops:
                        ops.append(op)
        return awaited
