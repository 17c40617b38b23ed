"""Two CNNs whose layers divide by four: one with small gradients, and one with a dense head and
large gradients; and a tiny one for tests.

They have no batch normalization, which would make parallel training differ from serial training.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from benchmarks.testbed.strategies.layers import Convolution, Dense, Pool

NUM_CLASSES = 16
CHANNELS = 4
"""Channels of the images, so that the first layer can also be split by channels."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cnn:
    name: str
    layers: Callable[[], list[nn.Module]]
    extent: int
    """Side of the square images."""
    batch: int
    """Samples over all ranks."""
    micro_batches: int = 4

    def build(self) -> nn.Sequential:
        torch.manual_seed(0)
        return nn.Sequential(*self.layers())

    def samples(self) -> tuple[Tensor, Tensor]:
        torch.manual_seed(1)
        inputs = torch.randn(self.batch, CHANNELS, self.extent, self.extent)
        return inputs, torch.randint(NUM_CLASSES, (self.batch,))

    @property
    def input_shape(self) -> str:
        return f"{CHANNELS}x{self.extent}x{self.extent}"


def _pyramid() -> list[nn.Module]:
    return [
        Convolution.make(CHANNELS, 16),
        Convolution.make(16, 64, stride=2),
        Convolution.make(64, 64),
        Convolution.make(64, 128, stride=2),
        Convolution.make(128, 128),
        Convolution.make(128, 256, stride=2),
        Convolution.make(256, 256),
        Pool(),
        Dense.make(256, NUM_CLASSES, is_last=True),
    ]


def _headed() -> list[nn.Module]:
    return [
        Convolution.make(CHANNELS, 32),
        Convolution.make(32, 128, stride=2),
        Convolution.make(128, 128),
        Convolution.make(128, 256, stride=2),
        Convolution.make(256, 256),
        Pool(),
        Dense.make(256, 1536),
        Dense.make(1536, 1536),
        Dense.make(1536, NUM_CLASSES, is_last=True),
    ]


def _tiny() -> list[nn.Module]:
    return [
        Convolution.make(CHANNELS, 8),
        Convolution.make(8, 8, stride=2),
        Convolution.make(8, 16),
        Pool(),
        Dense.make(16, 24),
        Dense.make(24, NUM_CLASSES, is_last=True),
    ]


CNNS = {
    cnn.name: cnn
    for cnn in (
        Cnn(name="pyramid", layers=_pyramid, extent=64, batch=16),
        Cnn(name="headed", layers=_headed, extent=32, batch=16),
        Cnn(name="tiny", layers=_tiny, extent=16, batch=8),
    )
}
