"""Graph of a synthetic training job."""

from __future__ import annotations

from augury.build.synthetic.job import NOMINAL_CLUSTER, PARAMETER_SERVER, SCHEMES, SyntheticJob
from augury.build.synthetic.stage import PerReplica
from augury.build.synthetic.step import StepEmitter
from augury.build.synthetic.update import awaited_by_next
from augury.build.synthetic.world import World
from augury.core.graph.graph import Graph

__all__ = ["NOMINAL_CLUSTER", "PARAMETER_SERVER", "SCHEMES", "SyntheticJob", "synthesize"]


def synthesize(job: SyntheticJob) -> Graph:
    """Returns the graph of a job, deterministically; without jitter, ranks with the same role have
    the same operations in the same order."""
    world = World(job)
    awaited: list[PerReplica] = [[[] for _ in range(job.num_replicas)] for _ in job.layers]
    steps = []
    for number in range(job.num_steps):
        emitter = StepEmitter(world, number, awaited)
        emitter.emit()
        awaited = awaited_by_next(world, emitter.updated)
        steps.append(emitter)
    for i, replicas in enumerate(awaited):
        for sources, first in zip(replicas, steps[0].first_forward[i], strict=True):
            for src in sources:
                world.builder.carry(src, first)
    return world.builder.build()
