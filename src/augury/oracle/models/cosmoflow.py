"""CosmoFlow (Mathuriya et al. 2018), a 3D convolutional network with the sizes of MLPerf HPC.

That benchmark uses cubes of 128; a larger cube gets further blocks of the widest kind until its
extents are as small.
"""

from __future__ import annotations

from collections import OrderedDict
from math import prod

from torch import nn

from augury.core.errors import InputError
from augury.oracle.models.registry import Shape

_FIRST_FILTERS = 32
_MOST_FILTERS = 512
_NUM_BLOCKS = 5
_LAST_EXTENT = 4


def cosmoflow(input_shape: Shape) -> nn.Module:
    if len(input_shape) != 4 or min(input_shape[1:]) < 2**_NUM_BLOCKS:
        raise InputError(
            f"cosmoflow cannot take inputs of {'x'.join(map(str, input_shape))}",
            remedy=f"give channels and three extents of at least {2**_NUM_BLOCKS}: 4x128x128x128",
        )
    blocks: list[nn.Module] = []
    channels, extents, filters = input_shape[0], list(input_shape[1:]), _FIRST_FILTERS
    while len(blocks) < _NUM_BLOCKS or min(extents) > _LAST_EXTENT:
        blocks.append(
            nn.Sequential(
                OrderedDict(
                    conv=nn.Conv3d(channels, filters, 3, padding=1),
                    act=nn.LeakyReLU(0.3, inplace=True),
                    pool=nn.MaxPool3d(2),
                )
            )
        )
        channels, extents = filters, [extent // 2 for extent in extents]
        filters = min(2 * filters, _MOST_FILTERS)
    return nn.Sequential(
        OrderedDict(
            blocks=nn.Sequential(*blocks),
            flatten=nn.Flatten(),
            fc1=nn.Linear(channels * prod(extents), 128),
            act1=nn.LeakyReLU(0.3, inplace=True),
            drop1=nn.Dropout(),
            fc2=nn.Linear(128, 64),
            act2=nn.LeakyReLU(0.3, inplace=True),
            drop2=nn.Dropout(),
            out=nn.Linear(64, 4),
            tanh=nn.Tanh(),
        )
    )
