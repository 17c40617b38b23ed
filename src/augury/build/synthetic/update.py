"""Gradient reduction and parameter update of a synthetic step."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from augury.build.collectives.scheme import CollectiveCall
from augury.build.synthetic.stage import LayerBucket, PerReplica, Stage
from augury.build.synthetic.world import World
from augury.core.enums import MemoryKind, OpKind


class Update:
    """Update of one stage: reduces buckets as backward fills them, then updates layer by layer."""

    def __init__(self, world: World, stage: Stage, step: int) -> None:
        self.world = world
        self.stage = stage
        self.step = step
        self._reduced: list[tuple[LayerBucket, list[int]]] = []

    def reduce(self, bucket: LayerBucket, after: Sequence[int]) -> None:
        call = CollectiveCall(
            builder=self.world.builder,
            ports=self.stage.ports,
            size_bytes=bucket.size_bytes,
            after=after,
            name=f"gradients.{bucket.layers.start}-{bucket.layers[-1]}",
            step=self.step,
            priority=bucket.priority,
        )
        self._reduced.append((bucket, bucket.collective(call)))

    def emit(
        self, gradients: Mapping[int, Sequence[int]], last: Sequence[int]
    ) -> dict[int, list[int]]:
        """Returns the operations after which each replica has the new parameters, by layer.
        ``gradients`` are the operations that first wrote each layer's gradient, ``last`` the last
        compute operation of each replica."""
        job = self.world.job
        updated = self._pulled() if job.uses_servers else self._computed(last)
        for i, ops in updated.items():
            layer = job.layers[i]
            self.stage.hold(
                self.world.builder,
                layer,
                MemoryKind.GRADIENT,
                layer.parameter_bytes,
                taken_by=gradients[i],
                given_by=ops,
            )
        return updated

    def _pulled(self) -> dict[int, list[int]]:
        """Returns the pulls: parameters that servers send back are already updated."""
        return {i: results for bucket, results in self._reduced for i in bucket.layers}

    def _computed(self, last: Sequence[int]) -> dict[int, list[int]]:
        """Adds updates. With a barrier the first update comes after backward, in program order, and
        waits for all results; each other waits for the previous one."""
        has_barrier = self.world.job.has_barrier
        updated: dict[int, list[int]] = {}
        waits = [list(ops) for ops in zip(last, *(ops for _, ops in self._reduced), strict=True)]
        for bucket, results in self._reduced:
            for i in bucket.layers:
                layer = self.world.job.layers[i]
                updated[i] = self.world.compute(
                    self.stage,
                    layer,
                    OpKind.UPDATE,
                    name=f"{layer.name}.update",
                    work_ns=layer.update_ns,
                    waits=waits if has_barrier else [[op] for op in results],
                    step=self.step,
                )
                waits = [[op] for op in updated[i]]
        return updated


def awaited_by_next(world: World, updated: Mapping[int, Sequence[int]]) -> list[PerReplica]:
    """Returns the operations that the first forward of the next step waits for, by layer and
    replica."""
    job = world.job
    awaited: list[PerReplica] = [[[] for _ in range(job.num_replicas)] for _ in job.layers]
    for stage in world.stages:
        for waiting, i in _hand_over(world, stage):
            for ops, op in zip(awaited[waiting], updated[i], strict=True):
                ops.append(op)
    return awaited


def _hand_over(world: World, stage: Stage) -> list[tuple[int, int]]:
    """Pairs of a layer whose forward waits and the layer whose update it waits for."""
    if not world.job.has_barrier:
        return [(i, i) for i in stage.layers]
    first = stage.layers[0]
    if world.job.uses_servers:
        return [(first, i) for i in stage.layers]
    # With a barrier updates are a chain, so waiting for the last one suffices.
    return [(first, stage.buckets[-1].layers[-1])]
