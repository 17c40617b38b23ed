"""Data and filter parallelism: filters are split within pairs, the batch between pairs."""

from __future__ import annotations

from benchmarks.testbed.strategies.cnns import Cnn
from benchmarks.testbed.strategies.filter import filter_layers
from benchmarks.testbed.strategies.groups import Mesh
from benchmarks.testbed.strategies.program import Program, own_samples


def data_filter(cnn: Cnn, mesh: Mesh) -> Program:
    layers, parts = filter_layers(cnn.build(), mesh.pair)
    inputs, targets = cnn.samples()
    return Program(
        name="data_filter",
        layers=layers,
        inputs=own_samples(inputs, mesh.across),
        targets=own_samples(targets, mesh.across),
        share=1 / cnn.batch,
        parts=parts,
        summed_over=(mesh.across,),
        first_sample=mesh.across.rank * (cnn.batch // mesh.across.size),
    )
