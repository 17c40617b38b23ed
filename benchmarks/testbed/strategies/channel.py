"""Channel parallelism: each rank has a share of every layer's input channels. Partial outputs are
summed; backward gathers the gradients of inputs."""

# mypy: disable-error-code="misc"

from __future__ import annotations

from torch import Tensor, nn

from benchmarks.testbed.strategies.cnns import Cnn
from benchmarks.testbed.strategies.exchanges import Piece, Summed
from benchmarks.testbed.strategies.groups import Group, Mesh
from benchmarks.testbed.strategies.layers import Weighted
from benchmarks.testbed.strategies.program import Part, Program

CHANNELS_DIM = 1


class ChannelSplit(nn.Module):
    """Takes this rank's channels and returns those that this rank needs in the next layer; the last
    layer returns all."""

    def __init__(self, whole: Weighted, group: Group) -> None:
        super().__init__()
        self._group, self._whole = (
            group,
            [whole],
        )  # in a list, so that it is not registered as a submodule
        self.weight_part = _stretch(whole.weight.shape[1], group)
        weight = whole.weight.detach().narrow(1, *self.weight_part).clone()
        self.weight = nn.Parameter(weight)
        self.bias_part = (0, len(whole.bias)) if whole.is_last else _stretch(len(whole.bias), group)
        self.bias = nn.Parameter(whole.bias.detach().narrow(0, *self.bias_part).clone())

    def forward(self, inputs: Tensor) -> Tensor:
        (whole,) = self._whole
        outputs = Summed.apply(whole.product(inputs, self.weight, None), self._group, 1)
        if not whole.is_last:
            outputs = Piece.apply(outputs, self._group, CHANNELS_DIM)
        return whole.rectified(whole.biased(outputs, self.bias))


def channel_parallel(cnn: Cnn, mesh: Mesh) -> Program:
    layers: list[nn.Module] = []
    parts: list[tuple[Part, nn.Parameter]] = []
    for index, layer in enumerate(cnn.build()):
        if isinstance(layer, Weighted):
            split = ChannelSplit(layer, mesh.world)
            parts += [
                (Part(f"{index}.weight", 1, *split.weight_part), split.weight),
                (Part(f"{index}.bias", 0, *split.bias_part), split.bias),
            ]
            layers.append(split)
        else:
            layers.append(layer)
    inputs, targets = cnn.samples()
    return Program(
        name="channel",
        layers=layers,
        inputs=inputs.narrow(1, *_stretch(inputs.shape[1], mesh.world)).contiguous(),
        targets=targets,
        share=1 / cnn.batch,
        parts=parts,
    )


def _stretch(total: int, group: Group) -> tuple[int, int]:
    length = total // group.size
    return group.rank * length, length
