"""Filter parallelism: each rank has a share of every layer's filters. Outputs are gathered;
backward sums the gradients of inputs."""

# mypy: disable-error-code="misc"

from __future__ import annotations

from torch import Tensor, nn

from benchmarks.testbed.strategies.cnns import Cnn
from benchmarks.testbed.strategies.exchanges import Copied, Gathered
from benchmarks.testbed.strategies.groups import Group, Mesh
from benchmarks.testbed.strategies.layers import Weighted
from benchmarks.testbed.strategies.program import Part, Program

CHANNELS_DIM = 1


class FilterSplit(nn.Module):
    def __init__(self, whole: Weighted, group: Group) -> None:
        super().__init__()
        self._group, self._whole = (
            group,
            [whole],
        )  # in a list, so that it is not registered as a submodule
        length = len(whole.weight) // group.size
        self.part = (group.rank * length, length)
        self.weight = nn.Parameter(whole.weight.detach().narrow(0, *self.part).clone())
        self.bias = nn.Parameter(whole.bias.detach().narrow(0, *self.part).clone())

    def forward(self, inputs: Tensor) -> Tensor:
        (whole,) = self._whole
        outputs = whole.product(Copied.apply(inputs, self._group), self.weight, self.bias)
        return Gathered.apply(whole.rectified(outputs), self._group, CHANNELS_DIM)


def filter_layers(
    model: nn.Sequential, group: Group
) -> tuple[list[nn.Module], list[tuple[Part, nn.Parameter]]]:
    layers: list[nn.Module] = []
    parts: list[tuple[Part, nn.Parameter]] = []
    for index, layer in enumerate(model):
        if isinstance(layer, Weighted):
            split = FilterSplit(layer, group)
            parts += [
                (Part(f"{index}.weight", 0, *split.part), split.weight),
                (Part(f"{index}.bias", 0, *split.part), split.bias),
            ]
            layers.append(split)
        else:
            layers.append(layer)
    return layers, parts


def filter_parallel(cnn: Cnn, mesh: Mesh) -> Program:
    layers, parts = filter_layers(cnn.build(), mesh.world)
    inputs, targets = cnn.samples()
    return Program(
        name="filter",
        layers=layers,
        inputs=inputs,
        targets=targets,
        share=1 / cnn.batch,
        parts=parts,
    )
