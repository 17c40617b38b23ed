"""Layers of synthetic models, with sizes and times shaped like those of real ones."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from itertools import pairwise

import numpy as np

from augury.core.errors import UsageError

Weights = Sequence[float]


@dataclass(frozen=True, kw_only=True)
class Layer:
    """One layer; times and activations are those of one rank's whole batch at full speed."""

    name: str
    parameter_bytes: int
    saved_bytes: int
    """Activations that backward needs, held from forward until then."""
    output_bytes: int
    """Size of the input of the next layer, or of the next stage of a pipeline."""
    forward_ns: int
    backward_ns: int
    update_ns: int


@dataclass(frozen=True, kw_only=True)
class ModelSize:
    """Totals over the layers of a synthetic model."""

    num_layers: int = 16
    parameter_bytes: int = 100_000_000
    saved_bytes: int = 1_000_000_000
    output_bytes: int = 20_000_000
    """Size of the largest output."""
    forward_ns: int = 30_000_000
    backward_ns: int = 60_000_000
    update_ns: int = 2_000_000

    def __post_init__(self) -> None:
        if self.num_layers < 1:
            raise UsageError("the model has no layers", remedy="give at least one")
        for name, value in asdict(self).items():
            if value < 0:
                raise UsageError(f"a model's {name} is {value}", remedy="make it 0 or more")


def uniform_layers(size: ModelSize, *, seed: int = 0) -> tuple[Layer, ...]:  # noqa: ARG001
    """Returns identical layers, as textbooks assume."""
    same = [1.0] * size.num_layers
    names = [f"layer{i}" for i in range(size.num_layers)]
    return _scaled(size, names, parameters=same, activations=same, times=same)


def conv_layers(size: ModelSize, *, seed: int = 0) -> tuple[Layer, ...]:
    """Returns layers like those of an image model: parameters grow and activations shrink with
    depth, each about sixteenfold; the time varies from layer to layer without a trend."""
    rng = np.random.default_rng(seed)
    depth = np.linspace(0.0, 4.0, size.num_layers)
    parameters = 2.0**depth * rng.uniform(0.5, 1.5, size.num_layers)
    activations = 2.0**-depth * rng.uniform(0.8, 1.2, size.num_layers)
    times = rng.uniform(0.5, 1.5, size.num_layers)
    names = [f"conv{i}" for i in range(size.num_layers)]
    return _scaled(
        size,
        names,
        parameters=parameters.tolist(),
        activations=activations.tolist(),
        times=times.tolist(),
    )


def transformer_layers(size: ModelSize, *, seed: int = 0) -> tuple[Layer, ...]:
    """Returns layers like those of a language model: an embedding with many parameters and little
    work, then attention (four square matrices) and MLP (eight) in turn, a few per cent apart."""
    rng = np.random.default_rng(seed)
    inner = [f"block{i // 2}.{('attention', 'mlp')[i % 2]}" for i in range(size.num_layers - 1)]
    shape = [(4.0, 10.0, 5.0) if name.endswith("attention") else (8.0, 8.0, 8.0) for name in inner]
    shape.insert(0, (24.0, 1.0, 0.5))
    columns = np.array(shape) * rng.uniform(0.97, 1.03, (size.num_layers, 3))
    parameters, activations, times = columns.T.tolist()
    return _scaled(
        size,
        ["embedding", *inner],
        parameters=parameters,
        activations=activations,
        times=times,
        outputs=[1.0] * size.num_layers,
    )


MODELS: dict[str, Callable[..., tuple[Layer, ...]]] = {
    "uniform": uniform_layers,
    "conv": conv_layers,
    "transformer": transformer_layers,
}


def _scaled(
    size: ModelSize,
    names: Sequence[str],
    *,
    parameters: Weights,
    activations: Weights,
    times: Weights,
    outputs: Weights | None = None,
) -> tuple[Layer, ...]:
    parameter_bytes = _shares(size.parameter_bytes, parameters)
    outputs = activations if outputs is None else outputs
    largest = max(outputs)
    columns = zip(
        names,
        parameter_bytes,
        _shares(size.saved_bytes, activations),
        [round(size.output_bytes * weight / largest) for weight in outputs],
        _shares(size.forward_ns, times),
        _shares(size.backward_ns, times),
        _shares(size.update_ns, parameters),
        strict=True,
    )
    return tuple(
        Layer(
            name=name,
            parameter_bytes=parameter,
            saved_bytes=saved,
            output_bytes=output,
            forward_ns=forward,
            backward_ns=backward,
            update_ns=update,
        )
        for name, parameter, saved, output, forward, backward, update in columns
    )


def _shares(total: int, weights: Weights) -> list[int]:
    """Divides ``total`` in proportion to ``weights``; the shares add up to it exactly."""
    ends = np.cumsum(weights)
    bounds = [0, *(round(total * float(end / ends[-1])) for end in ends)]
    return [high - low for low, high in pairwise(bounds)]
