"""Peak memory of a training step of a Model on one device, by kind.

Backward frees saved activations and allocates gradients as it proceeds, so the peak may be
anywhere: forward and backward of each layer, and the update, are all evaluated.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from math import prod

import numpy as np

from augury.core.columns import I8
from augury.core.enums import Phase
from augury.core.errors import InputError
from augury.core.model import Model, ModelLayer


class Optimizer(StrEnum):
    SGD = "sgd"
    MOMENTUM = "momentum"
    ADAM = "adam"

    @property
    def state_items(self) -> int:
        """Items of state per parameter, held from step to step."""
        return {Optimizer.SGD: 0, Optimizer.MOMENTUM: 1, Optimizer.ADAM: 2}[self]

    @property
    def update_items(self) -> int:
        """Temporary items per parameter of the layer that is being updated."""
        return {Optimizer.SGD: 0, Optimizer.MOMENTUM: 0, Optimizer.ADAM: 2}[self]


@dataclass(frozen=True, slots=True, kw_only=True)
class StepMemory:
    """Memory at the peak of a step; the parts add up to ``peak_bytes``."""

    phase: Phase
    layer: str
    parameter_bytes: int
    gradient_bytes: int
    optimizer_bytes: int
    input_bytes: int
    activation_bytes: int
    """Activations saved for backward."""
    transient_bytes: int
    """Outputs, gradients of outputs and temporaries that are not saved."""

    @property
    def peak_bytes(self) -> int:
        return (
            self.parameter_bytes
            + self.gradient_bytes
            + self.optimizer_bytes
            + self.input_bytes
            + self.activation_bytes
            + self.transient_bytes
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldItems:
    """Items held at each layer, in the order of forward; per sample except ``gradient``."""

    kept: I8
    """Items saved by this layer and those before it."""
    forward_transient: I8
    backward_transient: I8
    gradient: I8
    """Gradient items that exist once backward has run this layer."""

    @classmethod
    def of(cls, model: Model) -> HeldItems:
        parameters = _column([layer.num_parameters for layer in model.layers])
        return cls(
            kept=np.cumsum(_column([layer.saved_items for layer in model.layers])),
            forward_transient=_column([forward_transient(layer) for layer in model.layers]),
            backward_transient=_column([backward_transient(layer) for layer in model.layers]),
            gradient=np.cumsum(parameters[::-1])[::-1],
        )


def step_memory(
    model: Model,
    *,
    batch: int,
    optimizer: Optimizer = Optimizer.MOMENTUM,
    item_bytes: int = 4,
    keeps_gradients: bool = False,
) -> StepMemory:
    """Returns the peak. With ``keeps_gradients`` they are zeroed between steps, not freed."""
    if batch < 1:
        raise InputError(f"a batch of {batch}", remedy="give at least one sample")
    held = HeldItems.of(model)
    largest = max(layer.num_parameters for layer in model.layers)
    gradients = np.full_like(held.gradient, model.num_parameters)
    nothing = np.zeros_like(held.gradient)
    parts = {
        Phase.FORWARD: (
            gradients if keeps_gradients else nothing,
            batch * held.kept,
            batch * held.forward_transient,
        ),
        Phase.BACKWARD: (
            gradients if keeps_gradients else held.gradient,
            batch * held.kept,
            batch * held.backward_transient,
        ),
        Phase.UPDATE: (gradients, nothing, nothing + optimizer.update_items * largest),
    }
    held_items = {phase: np.sum(part, axis=0) for phase, part in parts.items()}
    phase = max(held_items, key=lambda phase: int(held_items[phase].max()))
    at = int(np.argmax(held_items[phase]))
    gradient, activation, transient = (int(part[at]) * item_bytes for part in parts[phase])
    return StepMemory(
        phase=phase,
        layer=model.layers[at].name,
        parameter_bytes=model.num_parameters * item_bytes,
        gradient_bytes=gradient,
        optimizer_bytes=model.num_parameters * optimizer.state_items * item_bytes,
        input_bytes=batch * prod(model.input_shape) * item_bytes,
        activation_bytes=activation,
        transient_bytes=transient,
    )


def forward_transient(layer: ModelLayer) -> int:
    """Transient items of forward; where not traced, those of the output."""
    if layer.forward_transient_items is not None:
        return layer.forward_transient_items
    return prod(layer.output_shape)


def backward_transient(layer: ModelLayer) -> int:
    if layer.backward_transient_items is not None:
        return layer.backward_transient_items
    return prod(layer.output_shape) + prod(layer.input_shape)


def _column(values: list[int]) -> I8:
    return np.array(values, dtype=np.int64)
