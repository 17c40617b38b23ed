"""Costs of a model on a device: seconds and items of each layer, and their sums."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np

from augury.core.cluster.device import Device, Precision
from augury.core.columns import F8
from augury.core.model import LayerKind, Model, ModelLayer

WEIGHT_BYTES = 4
"""Bytes of one weight, gradient or state item, for any precision of activations."""


@dataclass(frozen=True, kw_only=True, eq=False)
class LayerWork:
    """Arrays with one entry per layer; times and items are per sample, updates per step."""

    model: Model
    device: Device
    precision: Precision
    forward_s: F8
    backward_s: F8
    update_s: F8
    parameters: F8
    input_items: F8
    output_items: F8
    saved_items: F8
    remembered: dict[object, object] = field(default_factory=dict)
    """Cache of what strategies derived from the layers, by a key of each."""

    @classmethod
    def of(
        cls,
        model: Model,
        device: Device,
        precision: Precision = Precision.FP32,
        *,
        optimizer_copies: int = 1,
    ) -> LayerWork:
        layers = model.layers
        item_bytes = precision.item_bytes
        flops, bandwidth = (
            device.reached_flops_per_s(precision),
            device.reached_bandwidth_bytes_per_s,
        )

        def seconds(counted: int, moved: int, measured: float | None) -> float:
            if measured is not None:
                return measured
            return max(counted / flops, moved * item_bytes / bandwidth)

        # Weight and gradient are read and the weight is written; so is each copy of state.
        update = WEIGHT_BYTES * (3 + 2 * optimizer_copies) / bandwidth
        return cls(
            model=model,
            device=device,
            precision=precision,
            forward_s=_column(
                seconds(x.forward_flops, x.forward_items, x.forward_s) for x in layers
            ),
            backward_s=_column(
                seconds(x.backward_flops, x.backward_items, x.backward_s) for x in layers
            ),
            update_s=_column(
                x.update_s if x.update_s is not None else update * x.num_parameters for x in layers
            ),
            parameters=_column(x.num_parameters for x in layers),
            input_items=_column(np.prod(x.input_shape, dtype=float) for x in layers),
            output_items=_column(np.prod(x.output_shape, dtype=float) for x in layers),
            saved_items=_column(x.saved_items for x in layers),
        )

    def anchored(self, sample_s: float) -> LayerWork:
        """Returns the costs with all layers scaled so that a sample takes its measured time."""
        ratio = sample_s / self.sample_s
        return replace(
            self,
            forward_s=self.forward_s * ratio,
            backward_s=self.backward_s * ratio,
            remembered={},
        )

    @cached_property
    def sample_s(self) -> float:
        return self.total_forward_s + self.total_backward_s

    @cached_property
    def shares_by_kind(self) -> dict[str, float]:
        """Shares of the compute of a sample, by kind of layer."""
        shares: dict[str, float] = {}
        for layer, seconds in zip(
            self.model.layers, (self.forward_s + self.backward_s).tolist(), strict=True
        ):
            shares[layer.kind.value] = shares.get(layer.kind.value, 0.0) + seconds / self.sample_s
        return shares

    @cached_property
    def is_timed(self) -> bool:
        """Whether all layers have measured times, so that no efficiency is assumed."""
        layers = self.model.layers
        return all(x.forward_s is not None and x.backward_s is not None for x in layers)

    @cached_property
    def total_forward_s(self) -> float:
        return float(self.forward_s.sum())

    @cached_property
    def total_backward_s(self) -> float:
        return float(self.backward_s.sum())

    @cached_property
    def total_update_s(self) -> float:
        return float(self.update_s.sum())

    @cached_property
    def weight_bytes(self) -> float:
        return WEIGHT_BYTES * float(self.parameters.sum())

    @cached_property
    def touched_items(self) -> float:
        """Inputs and outputs of all layers, which the published table counts as memory."""
        return float(self.input_items.sum() + self.output_items.sum())

    @cached_property
    def sample_items(self) -> float:
        """Items of the model's own input, per sample."""
        return float(np.prod(self.model.input_shape, dtype=float))

    @cached_property
    def weighted_places(self) -> tuple[int, ...]:
        """Indices of the layers whose filters and channels can be split."""
        kinds = (LayerKind.CONVOLUTION, LayerKind.LINEAR)
        layers = enumerate(self.model.layers)
        return tuple(i for i, x in layers if x.kind in kinds and x.num_parameters)

    @cached_property
    def weighted(self) -> tuple[ModelLayer, ...]:
        return tuple(self.model.layers[place] for place in self.weighted_places)

    @cached_property
    def num_weighted(self) -> int:
        return max(1, len(self.weighted))

    @cached_property
    def exchanged_items(self) -> float:
        """Output items of all weighted layers but the last: gathered or summed layer by layer."""
        return float(sum(np.prod(x.output_shape, dtype=float) for x in self.weighted[:-1]))

    @cached_property
    def min_filters(self) -> int:
        return min((x.filters for x in self.weighted[:-1]), default=1)

    @cached_property
    def min_channels(self) -> int:
        """Fewest channels of all layers but the first: an image has three, and stays whole."""
        return min((x.channels for x in self.weighted[1:]), default=1)


def _column(values: object) -> F8:
    return np.fromiter(values, float)  # type: ignore[call-overload, no-any-return]
