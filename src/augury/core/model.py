"""The Model: the layers of a neural network as data, for any batch size and precision.

Counts are per sample and in elements.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from augury.core.errors import InputError

MAX_LAYERS = 1 << 17
MAX_COUNT = 1 << 62


class LayerKind(StrEnum):
    CONVOLUTION = "convolution"
    LINEAR = "linear"
    NORMALISATION = "normalisation"
    POOLING = "pooling"
    ELEMENTWISE = "elementwise"
    OTHER = "other"


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelLayer:
    """One layer. Shapes are channels first, then the spatial extents, without the
    batch; ``kernel``, ``stride``, ``padding`` have one entry per spatial extent, or none."""

    name: str
    kind: LayerKind
    input_shape: tuple[int, ...]
    output_shape: tuple[int, ...]
    kernel: tuple[int, ...] = ()
    stride: tuple[int, ...] = ()
    padding: tuple[int, ...] = ()
    groups: int = 1
    num_parameters: int = 0
    forward_flops: int = 0
    backward_flops: int = 0
    forward_items: int = 0
    """Elements that forward reads and writes; they bound layers with little compute."""
    backward_items: int = 0
    saved_items: int = 0
    """Elements saved by forward for backward. Each tensor is counted with the layer that saved it
    first; inputs of the model are not counted."""
    forward_transient_items: int | None = None
    """Peak of elements while forward runs the layer, beyond those that are saved until then."""
    backward_transient_items: int | None = None
    """Peak of elements while backward runs the layer, beyond those that are still saved: gradients
    of outputs and inputs."""
    forward_s: float | None = None
    """Measured time per sample, in float seconds as in the oracle's closed forms."""
    backward_s: float | None = None
    update_s: float | None = None
    """Measured time per step, not per sample."""

    def __post_init__(self) -> None:
        counts = (
            self.num_parameters, self.forward_flops, self.backward_flops, self.forward_items,
            self.backward_items, self.saved_items, self.forward_transient_items or 0,
            self.backward_transient_items or 0, *self.input_shape, *self.output_shape,
            *self.kernel, *self.stride, *self.padding, self.groups,
        )  # fmt: skip
        if not all(0 <= count <= MAX_COUNT for count in counts):
            raise InputError(
                f"layer {self.name!r} has negative or excessive counts",
                remedy="check the source of the model",
            )
        for measured in (self.forward_s, self.backward_s, self.update_s):
            if measured is not None and not 0 <= measured < 1e9:
                raise InputError(
                    f"layer {self.name!r} takes {measured} s", remedy="check what was measured"
                )

    @property
    def channels(self) -> int:
        return self.input_shape[0] if self.input_shape else 1

    @property
    def filters(self) -> int:
        return self.output_shape[0] if self.output_shape else 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Model:
    name: str
    layers: tuple[ModelLayer, ...]
    input_shape: tuple[int, ...]

    def __post_init__(self) -> None:
        if not 1 <= len(self.layers) <= MAX_LAYERS:
            raise InputError(
                f"a model of {len(self.layers)} layers", remedy=f"give 1 to {MAX_LAYERS:,}"
            )

    @property
    def num_parameters(self) -> int:
        return sum(layer.num_parameters for layer in self.layers)
