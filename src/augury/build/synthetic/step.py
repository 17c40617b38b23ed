"""One synthetic training step: forward, backward, gradient reduction and update."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

from augury.build.collectives.chunks import even_chunks
from augury.build.collectives.transfer import Move, NetworkPath
from augury.build.pipeline_order import StageTask, stage_tasks
from augury.build.synthetic.stage import PerReplica
from augury.build.synthetic.update import Update
from augury.build.synthetic.world import World
from augury.core.enums import MemoryKind, OpKind


class StepEmitter:
    """Adds one step. ``awaited`` has, for each layer and replica, the operations of the previous
    step that its first forward waits for."""

    def __init__(self, world: World, step: int, awaited: Sequence[PerReplica]) -> None:
        self.world = world
        self.builder = world.builder
        self.job = world.job
        self.step = step
        self.awaited = awaited
        self.first_forward: dict[int, list[int]] = {}
        self.updated: dict[int, list[int]] = {}
        """Operations after which each replica has the parameters of the next step, by layer."""
        self._last: list[list[int] | None] = [None] * len(world.stages)
        """Last compute operation of each replica, by stage."""
        self._arrived: dict[tuple[int, StageTask], list[int]] = {}
        self._forward: dict[tuple[int, int], list[int]] = {}
        self._gradient: dict[int, list[int]] = {}

    def emit(self) -> None:
        """Adds the tasks of the stages in turn, as far as arrivals allow, so that operations are
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

    def _can_run(self, number: int, task: StageTask) -> bool:
        from_outside = number > 0 if task.is_forward else number < self.job.num_stages - 1
        return not from_outside or (number, task) in self._arrived

    def _run_forward(self, number: int, task: StageTask) -> None:
        stage = self.world.stages[number]
        incoming = self._arrived.pop((number, task), None)
        for i in stage.layers:
            waits = self._waits(number, incoming)
            is_first = i not in self.first_forward
            if is_first:
                waits = [[*ops, *more] for ops, more in zip(waits, self.awaited[i], strict=True)]
            ops = self._compute(number, task, i, waits)
            if is_first:
                self.first_forward[i] = ops
            self._forward[i, task.micro_batch] = ops
            incoming = None
        if number + 1 < self.job.num_stages:
            self._send(number, number + 1, task, stage.layers[-1])

    def _run_backward(self, number: int, task: StageTask, *, is_last: bool) -> None:
        stage = self.world.stages[number]
        incoming = self._arrived.pop((number, task), None)
        closing = {bucket.layers.start: bucket for bucket in stage.buckets} if is_last else {}
        update = Update(self.world, stage, self.step)
        for i in reversed(stage.layers):
            layer = self.job.layers[i]
            ops = self._compute(number, task, i, self._waits(number, incoming))
            self._gradient.setdefault(i, ops)
            stage.hold(
                self.builder,
                layer,
                MemoryKind.ACTIVATION,
                self._share(layer.saved_bytes, task),
                taken_by=self._forward.pop((i, task.micro_batch)),
                given_by=ops,
            )
            incoming = None
            if i in closing:
                update.reduce(closing[i], ops)
        if number > 0:
            self._send(number, number - 1, task, stage.layers[0] - 1)
        if is_last:
            last = self._last[number]
            assert last is not None
            self.updated |= update.emit(self._gradient, last)

    def _compute(self, number: int, task: StageTask, i: int, waits: PerReplica) -> list[int]:
        """Adds layer ``i`` on each replica of the stage."""
        layer = self.job.layers[i]
        kind, whole_ns = OpKind.BACKWARD, layer.backward_ns
        if task.is_forward:
            kind, whole_ns = OpKind.FORWARD, layer.forward_ns
        ops = self.world.compute(
            self.world.stages[number],
            layer,
            kind,
            name=self._name(f"{layer.name}.{kind.label}", task),
            work_ns=self._share(whole_ns, task),
            waits=waits,
            step=self.step,
        )
        self._last[number] = ops
        return ops

    def _waits(self, number: int, incoming: Sequence[int] | None) -> PerReplica:
        waits: PerReplica = [[] for _ in range(self.job.num_replicas)]
        for source in (self._last[number], incoming):
            if source is not None:
                waits = [[*ops, op] for ops, op in zip(waits, source, strict=True)]
        return waits

    def _share(self, whole: int, task: StageTask) -> int:
        """Share of one micro-batch in the bytes or time of a step."""
        return even_chunks(whole, self.job.num_micro_batches)[task.micro_batch]

    def _name(self, what: str, task: StageTask) -> str:
        return f"{what}.{task.micro_batch}" if self.job.num_micro_batches > 1 else what

    def _send(self, src: int, dst: int, task: StageTask, boundary: int) -> None:
        """Sends the output of layer ``boundary`` forward, or its gradient backward, eagerly."""
        what = "activation" if task.is_forward else "gradient"
        layer = self.job.layers[boundary]
        size_bytes = self._share(layer.output_bytes, task)
        here, there = self.world.stages[src].ports, self.world.stages[dst].ports
        name = self._name(f"{layer.name}.{what}", task)
        wire = NetworkPath(builder=self.builder, ports=here, name=name, step=self.step)
        last = self._last[src]
        assert last is not None
        moves = [
            Move(a, b, size_bytes, (op,))
            for a, b, op in zip(here.members, there.members, last, strict=True)
        ]
        self._arrived[dst, task] = wire.move(moves)
