"""Spatial parallelism: each rank has a tile of every image; neighbours exchange halos before each
convolution. Layers after the images are replicated."""

# mypy: disable-error-code="misc"

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor, nn

from benchmarks.testbed.strategies.cnns import Cnn
from benchmarks.testbed.strategies.exchanges import Bordered, Summed
from benchmarks.testbed.strategies.groups import Group, Mesh
from benchmarks.testbed.strategies.layers import KERNEL, Convolution, Pool
from benchmarks.testbed.strategies.program import Part, Program, whole_parts


@dataclass(frozen=True)
class Tiles:
    """Neighbours along height and width; all tiles together share a sample."""

    along: dict[int, Group]
    all_tiles: Group

    def of(self, images: Tensor) -> Tensor:
        for dim, group in self.along.items():
            length = images.shape[dim] // group.size
            images = images.narrow(dim, group.rank * length, length)
        return images.contiguous()


class TileConvolution(nn.Module):
    def __init__(self, whole: Convolution, tiles: Tiles) -> None:
        super().__init__()
        self._tiles = tiles
        # Along the split dimensions, the halo exchange provides the zeros at an edge.
        padding = (0 if 2 in tiles.along else 1, 0 if 3 in tiles.along else 1)
        self.own = Convolution(
            whole.weight.detach(), whole.bias.detach(), stride=whole.stride, padding=padding
        )
        self._before = KERNEL // 2
        self._after = max(0, KERNEL // 2 - (whole.stride - 1))

    def forward(self, tile: Tensor) -> Tensor:
        for dim, group in self._tiles.along.items():
            tile = Bordered.apply(tile, group, dim, self._before, self._after)
        return self.own(tile)


class TilePool(nn.Module):
    """Pools a tile and sums the results over tiles."""

    def __init__(self, tiles: Tiles) -> None:
        super().__init__()
        self._group = tiles.all_tiles

    def forward(self, tile: Tensor) -> Tensor:
        size = self._group.size
        return Summed.apply(tile.mean((2, 3)) / size, self._group, size)


def tile_layers(model: nn.Sequential, tiles: Tiles) -> nn.Sequential:
    layers: list[nn.Module] = []
    for layer in model:
        if isinstance(layer, Convolution):
            layers.append(TileConvolution(layer, tiles))
        else:
            layers.append(TilePool(tiles) if isinstance(layer, Pool) else layer)
    return nn.Sequential(*layers)


def spatial(cnn: Cnn, mesh: Mesh) -> Program:
    """Two ranks split the width, four also the height."""
    along = {3: mesh.pair} if mesh.world.size == 2 else {3: mesh.pair, 2: mesh.across}
    tiles = Tiles(along, mesh.world)
    model = tile_layers(cnn.build(), tiles)
    inputs, targets = cnn.samples()
    return Program(
        name="spatial",
        layers=list(model),
        inputs=tiles.of(inputs),
        targets=targets,
        # Each rank counts its share of the same loss, so that sums over tiles are right for all
        # layers.
        share=1 / (cnn.batch * mesh.world.size),
        parts=named_parts(model),
        summed_over=(mesh.world,),
    )


def named_parts(model: nn.Sequential) -> list[tuple[Part, nn.Parameter]]:
    """Parameters by their names in the whole model."""
    return [
        (Part(part.name.replace(".own.", ".")), parameter) for part, parameter in whole_parts(model)
    ]
