"""Data and spatial parallelism: images are halved within pairs, the batch is split between pairs;
gradients are summed within a pair, then between pairs."""

from __future__ import annotations

from benchmarks.testbed.strategies.cnns import Cnn
from benchmarks.testbed.strategies.groups import Mesh
from benchmarks.testbed.strategies.program import Program, own_samples
from benchmarks.testbed.strategies.spatial import Tiles, named_parts, tile_layers


def data_spatial(cnn: Cnn, mesh: Mesh) -> Program:
    tiles = Tiles({3: mesh.pair}, mesh.pair)
    model = tile_layers(cnn.build(), tiles)
    inputs, targets = cnn.samples()
    return Program(
        name="data_spatial",
        layers=list(model),
        inputs=tiles.of(own_samples(inputs, mesh.across)),
        targets=own_samples(targets, mesh.across),
        share=1 / (cnn.batch * mesh.pair.size),
        parts=named_parts(model),
        summed_over=(mesh.pair, mesh.across),
        first_sample=mesh.across.rank * (cnn.batch // mesh.across.size),
    )
