"""VGG16 (Simonyan and Zisserman 2014), configuration D."""

from __future__ import annotations

from collections import OrderedDict

from torch import nn

from augury.oracle.models.registry import Shape

_STAGES = ((64, 2), (128, 2), (256, 3), (512, 3), (512, 3))
"""Filters and number of convolutions of each stage, after which extents are halved."""
_LAST_EXTENT = 7


def vgg16(input_shape: Shape) -> nn.Module:
    features: list[nn.Module] = []
    channels = input_shape[0]
    for filters, depth in _STAGES:
        for _ in range(depth):
            features += [nn.Conv2d(channels, filters, 3, padding=1), nn.ReLU(inplace=True)]
            channels = filters
        features.append(nn.MaxPool2d(2))
    return nn.Sequential(
        OrderedDict(
            features=nn.Sequential(*features),
            avgpool=nn.AdaptiveAvgPool2d(_LAST_EXTENT),
            flatten=nn.Flatten(),
            classifier=nn.Sequential(
                nn.Linear(channels * _LAST_EXTENT**2, 4096),
                nn.ReLU(inplace=True),
                nn.Dropout(),
                nn.Linear(4096, 4096),
                nn.ReLU(inplace=True),
                nn.Dropout(),
                nn.Linear(4096, 1000),
            ),
        )
    )
