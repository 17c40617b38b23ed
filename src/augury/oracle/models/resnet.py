"""ResNet-50 and ResNet-152 (He et al. 2015), v1.5: the stride is in the 3 x 3 convolution."""

from __future__ import annotations

from collections import OrderedDict
from itertools import pairwise

from torch import Tensor, nn

from augury.oracle.models.registry import Shape

_WIDTHS = (64, 128, 256, 512)
_EXPANSION = 4


class Bottleneck(nn.Module):  # type: ignore[misc]
    def __init__(self, in_channels: int, width: int, stride: int) -> None:
        super().__init__()
        out_channels = width * _EXPANSION
        self.conv1 = nn.Conv2d(in_channels, width, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        self.conv2 = nn.Conv2d(width, width, 3, stride=stride, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(width)
        self.conv3 = nn.Conv2d(width, out_channels, 1, bias=False)
        self.bn3 = nn.BatchNorm2d(out_channels)
        self.relu = nn.ReLU(inplace=True)
        self.downsample: nn.Module | None = None
        if stride != 1 or in_channels != out_channels:
            self.downsample = nn.Sequential(
                nn.Conv2d(in_channels, out_channels, 1, stride=stride, bias=False),
                nn.BatchNorm2d(out_channels),
            )

    def forward(self, x: Tensor) -> Tensor:
        out = self.relu(self.bn1(self.conv1(x)))
        out = self.relu(self.bn2(self.conv2(out)))
        out = self.bn3(self.conv3(out))
        out += x if self.downsample is None else self.downsample(x)
        return self.relu(out)


def resnet50(input_shape: Shape) -> nn.Module:
    return _resnet(input_shape, (3, 4, 6, 3))


def resnet152(input_shape: Shape) -> nn.Module:
    return _resnet(input_shape, (3, 8, 36, 3))


def _resnet(input_shape: Shape, depths: tuple[int, ...]) -> nn.Module:
    channels = [_WIDTHS[0], *(width * _EXPANSION for width in _WIDTHS)]
    stages = [
        nn.Sequential(
            *(
                Bottleneck(before if i == 0 else after, width, stride=2 if i == 0 < stage else 1)
                for i in range(depth)
            )
        )
        for stage, ((before, after), width, depth) in enumerate(
            zip(pairwise(channels), _WIDTHS, depths, strict=True)
        )
    ]
    return nn.Sequential(
        OrderedDict(
            conv1=nn.Conv2d(input_shape[0], channels[0], 7, stride=2, padding=3, bias=False),
            bn1=nn.BatchNorm2d(channels[0]),
            relu=nn.ReLU(inplace=True),
            maxpool=nn.MaxPool2d(3, stride=2, padding=1),
            **{f"layer{number}": stage for number, stage in enumerate(stages, 1)},
            avgpool=nn.AdaptiveAvgPool2d(1),
            flatten=nn.Flatten(),
            fc=nn.Linear(channels[-1], 1000),
        )
    )
