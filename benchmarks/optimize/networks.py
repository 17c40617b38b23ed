"""Layers of published networks as kernels, with their times on a V100, alone and compiled.

Assumed, beyond the architectures in ``benchmarks/schedule/models.py``:

- A kernel takes as long as its arithmetic or its memory traffic, at the rates that large layers
  reach on the device (``core/cluster/presets/v100.toml``), in fp32, and leaves the device idle for
  ``GAP_NS`` before it.
- Normalization is a reduction and an element-wise kernel; ReLU follows it, and the sum with the
  shortcut at the end of a bottleneck. Linear layers add their bias in a kernel of its own. BERT's
  published GELU consists of eight element-wise kernels; dropout and the residual sum follow its
  output layers, and scale, mask, softmax and dropout lie between the two products of attention.
- Backward of a matrix product is two products; of other kernels, one kernel that also reads the
  gradient.
- A compiled module is entered in ``ENTRY_NS``. Inside of it the gap is ``COMPILED_GAP_NS``, and
  neighbouring element-wise kernels become one, which writes and reads no tensor between them.
  Nothing is merged across a matrix product or a reduction. All of the module's gradients are
  released when its backward ends.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from functools import cache
from itertools import accumulate

from augury.core.cluster.cluster_file import find_cluster
from augury.core.cluster.device import Device, Precision
from benchmarks.schedule.models import BYTES, MODELS, Layer

GAP_NS = 6_000
COMPILED_GAP_NS = 2_000
ENTRY_NS = 12_000
_NS = 1e9
_TOKENS, _HEADS, _WIDTH = 128, 12, 768
_GELU_KERNELS = 8


class Work(Enum):
    """What a kernel does, as far as compilers treat it differently."""

    MATRIX = "matrix"
    REDUCTION = "reduction"
    ELEMENTWISE = "elementwise"


@dataclass(frozen=True, slots=True, kw_only=True)
class Kernel:
    """One kernel. Arithmetic and items are those of one image or sequence."""

    work: Work
    multiply_adds: float = 0.0
    items: float
    """Elements that it reads and writes."""
    output_items: float = 0.0
    """Elements of the tensor that it writes."""
    weights: int = 0
    """Elements that it reads once for the whole batch."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TimedLayer:
    """One layer with the time of its own kernels."""

    path: str
    tensors_bytes: tuple[int, ...]
    kernels: tuple[Kernel, ...]
    forward_ns: int
    backward_ns: int
    saved_bytes: int
    """Outputs that backward needs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Network:
    """A network on one device."""

    name: str
    batch: int
    layers: tuple[TimedLayer, ...]
    """In the order of forward."""

    @property
    def size_bytes(self) -> int:
        return sum(sum(layer.tensors_bytes) for layer in self.layers)

    def modules(self) -> dict[str, range]:
        """Returns the places of the layers of each module, by its path: layers and all modules
        around them, in the order of forward."""
        found: dict[str, range] = {}
        for place, layer in enumerate(self.layers):
            parts = layer.path.split(".")
            for path in accumulate(parts, lambda outer, part: f"{outer}.{part}"):
                first = found[path].start if path in found else place
                found[path] = range(first, place + 1)
        return found

    def compiled_ns(self, places: Sequence[int]) -> tuple[int, int]:
        """Returns forward and backward of consecutive layers that are compiled as one module."""
        kernels = [kernel for place in places for kernel in self.layers[place].kernels]
        return self._compiled_ns(kernels), self._compiled_ns(backward_of(kernels))

    def _compiled_ns(self, kernels: Sequence[Kernel]) -> int:
        return ENTRY_NS + sum(
            COMPILED_GAP_NS + _kernel_ns(kernel, self.batch) for kernel in _merged(kernels)
        )


@cache
def network(name: str, *, batch: int = 32) -> Network:
    """Returns one of the networks of ``MODELS``."""
    layers = list(MODELS[name]())
    kernels_of = _of_bert if name.startswith("bert") else _of_cnn
    found = []
    for place, layer in enumerate(layers):
        kernels = kernels_of(layers, place)
        if name.startswith("resnet") and layer.name.endswith(".3.bn"):
            items = kernels[-1].output_items
            kernels = (*kernels[:-1], elementwise(items, tensors=3), kernels[-1])
        found.append((layer.name, layer.tensors, kernels))
    return network_of(name, found, batch=batch)


def network_of(
    name: str,
    layers: Sequence[tuple[str, tuple[int, ...], tuple[Kernel, ...]]],
    *,
    batch: int,
) -> Network:
    """Returns a network of layers given by path, sizes of tensors, and kernels."""
    return Network(
        name=name,
        batch=batch,
        layers=tuple(
            TimedLayer(
                path=path,
                tensors_bytes=tuple(BYTES * size for size in tensors),
                kernels=kernels,
                forward_ns=sum(alone_ns(one, batch) for one in kernels),
                backward_ns=sum(alone_ns(one, batch) for one in backward_of(kernels)),
                saved_bytes=round(BYTES * batch * sum(one.output_items for one in kernels)),
            )
            for path, tensors, kernels in layers
        ),
    )


def backward_of(kernels: Sequence[Kernel]) -> list[Kernel]:
    found = []
    for kernel in reversed(kernels):
        if kernel.work is Work.MATRIX:
            found += [kernel, kernel]
        elif kernel.work is Work.REDUCTION:
            found.append(replace(kernel, items=2 * kernel.items))
        else:
            found.append(replace(kernel, items=1.5 * kernel.items))
    return found


def update_ns(size_bytes: int) -> int:
    """Returns the time of SGD with momentum, which reads three tensors and writes two."""
    return round(5 * size_bytes / _device().reached_bandwidth_bytes_per_s * _NS)


def elementwise(items: float, *, tensors: float = 2.0) -> Kernel:
    """Returns a kernel that reads and writes this number of tensors of ``items`` elements."""
    return Kernel(work=Work.ELEMENTWISE, items=tensors * items, output_items=items)


def matrix(multiply_adds: float, items: float, weights: int = 0) -> Kernel:
    """Returns a product whose input is as large as its output of ``items`` elements."""
    return Kernel(
        work=Work.MATRIX,
        multiply_adds=multiply_adds,
        items=2 * items,
        output_items=items,
        weights=weights,
    )


def normalization(items: float) -> tuple[Kernel, ...]:
    return Kernel(work=Work.REDUCTION, items=items), elementwise(items)


def _of_cnn(layers: Sequence[Layer], place: int) -> tuple[Kernel, ...]:
    layer = layers[place]
    if layer.name.endswith(".bn"):
        items = layer.work / 20
        rectifies = () if layer.name.endswith(".down.bn") else (elementwise(items),)
        return *normalization(items), *rectifies
    weights, width = layer.tensors[0], layer.tensors[-1]
    if len(layer.tensors) == 1:
        return (matrix(layer.work, layers[place + 1].work / 20, weights),)
    items = width * layer.work / weights
    rectifies = () if layer.name.startswith("fc") else (elementwise(items),)
    return matrix(layer.work, items, weights), elementwise(items), *rectifies


def _of_bert(layers: Sequence[Layer], place: int) -> tuple[Kernel, ...]:
    layer = layers[place]
    part = layer.name.rpartition(".")[2]
    items = float(_TOKENS * layer.tensors[-1])
    if len(layer.tensors) == 1:
        return (elementwise(_TOKENS * _WIDTH),)
    if part in ("embeddings", "norm1", "norm2"):
        return normalization(items)
    weights = layer.tensors[0]
    tokens = 1 if part == "pooler" else _TOKENS
    items = float(tokens * layer.tensors[-1])
    product = matrix(float(weights * tokens), items, weights)
    linear = (product, elementwise(items))
    if part == "up":
        return *linear, *(elementwise(items) for _ in range(_GELU_KERNELS))
    if part in ("o", "down"):
        ended = *linear, elementwise(items), elementwise(items, tensors=3)
        return (*_attention(), *ended) if part == "o" else ended
    return linear


def _attention() -> tuple[Kernel, ...]:
    scores = float(_HEADS * _TOKENS * _TOKENS)
    product = matrix(float(_TOKENS * _TOKENS * _WIDTH), scores)
    softmax = Kernel(work=Work.REDUCTION, items=scores), elementwise(scores)
    between = (elementwise(scores), elementwise(scores), *softmax, elementwise(scores))
    return product, *between, product


def _merged(kernels: Sequence[Kernel]) -> Iterator[Kernel]:
    """Yields kernels with neighbouring element-wise ones as one."""
    held: Kernel | None = None
    for kernel in kernels:
        if kernel.work is not Work.ELEMENTWISE:
            yield from [held] if held else []
            yield kernel
            held = None
        elif held is None:
            held = kernel
        else:
            between = 2 * min(held.output_items, kernel.output_items)
            held = replace(
                kernel, items=max(held.items + kernel.items - between, 2 * kernel.output_items)
            )
    yield from [held] if held else []


def alone_ns(kernel: Kernel, batch: int) -> int:
    """Returns the time of a kernel that is not part of a compiled module."""
    return GAP_NS + _kernel_ns(kernel, batch)


def _kernel_ns(kernel: Kernel, batch: int) -> int:
    device = _device()
    arithmetic_s = 2 * batch * kernel.multiply_adds / device.reached_flops_per_s(Precision.FP32)
    moved_bytes = BYTES * (batch * kernel.items + kernel.weights)
    return round(_NS * max(arithmetic_s, moved_bytes / device.reached_bandwidth_bytes_per_s))


@cache
def _device() -> Device:
    device = find_cluster("v100").device
    assert device is not None
    return device
