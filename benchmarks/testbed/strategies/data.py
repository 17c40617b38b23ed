"""Data parallelism: each rank has a share of the batch; gradients are summed after backward."""

from __future__ import annotations

from benchmarks.testbed.strategies.cnns import Cnn
from benchmarks.testbed.strategies.groups import Mesh
from benchmarks.testbed.strategies.program import Program, own_samples, whole_parts


def data(cnn: Cnn, mesh: Mesh) -> Program:
    model = cnn.build()
    inputs, targets = cnn.samples()
    return Program(
        name="data",
        layers=list(model),
        inputs=own_samples(inputs, mesh.world),
        targets=own_samples(targets, mesh.world),
        share=1 / cnn.batch,
        parts=whole_parts(model),
        summed_over=(mesh.world,),
        first_sample=mesh.world.rank * (cnn.batch // mesh.world.size),
    )


def serial(cnn: Cnn, num_samples: int | None = None) -> Program:
    """One process for the whole batch, or for its first samples."""
    model = cnn.build()
    inputs, targets = cnn.samples()
    return Program(
        name="serial",
        layers=list(model),
        inputs=inputs[:num_samples],
        targets=targets[:num_samples],
        share=1 / cnn.batch,
        parts=whole_parts(model),
    )
