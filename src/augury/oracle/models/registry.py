"""Registry of built-in networks; torch is imported when one is made."""

from __future__ import annotations

from dataclasses import dataclass
from importlib import import_module
from typing import Any

Shape = tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class BuiltIn:
    """Built-in network; ``factory`` takes the input shape, on which the last layers may depend."""

    name: str
    input_shape: Shape
    factory: str
    about: str

    def make(self, input_shape: Shape | None = None) -> Any:
        """Returns an ``nn.Module``, with weights unless inside ``torch.device("meta")``."""
        where, _, name = self.factory.partition(":")
        return getattr(import_module(where), name)(input_shape or self.input_shape)


# ParaDL measured 226 x 226, where most others take 224 x 224.
_IMAGENET = (3, 226, 226)

BUILT_IN = (
    BuiltIn(
        name="resnet50",
        input_shape=_IMAGENET,
        factory="augury.oracle.models.resnet:resnet50",
        about="ResNet-50 v1.5, ImageNet",
    ),
    BuiltIn(
        name="resnet152",
        input_shape=_IMAGENET,
        factory="augury.oracle.models.resnet:resnet152",
        about="ResNet-152 v1.5, ImageNet",
    ),
    BuiltIn(
        name="vgg16",
        input_shape=_IMAGENET,
        factory="augury.oracle.models.vgg:vgg16",
        about="VGG16 without normalisation, ImageNet",
    ),
    BuiltIn(
        name="cosmoflow",
        input_shape=(4, 512, 512, 512),
        factory="augury.oracle.models.cosmoflow:cosmoflow",
        about="CosmoFlow as in MLPerf HPC, four redshifts of 512^3",
    ),
)


def built_in(name: str) -> BuiltIn | None:
    return next((model for model in BUILT_IN if model.name == name), None)
