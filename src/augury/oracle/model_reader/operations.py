"""Kind, window, FLOPs and shapes of one ATen operation."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import torch
from torch import Tensor
from torch.utils.flop_counter import flop_registry

from augury.core.model import LayerKind

Shape = tuple[int, ...]

_LINEAR = ("mm", "addmm", "linear")
# They give out memory and write nothing.
_ALLOCATE = ("empty", "empty_like", "empty_strided", "new_empty", "new_empty_strided")


@dataclass(frozen=True, slots=True, kw_only=True)
class SlidingWindow:
    """Window of inputs of one output per spatial extent; includes holes of a dilated kernel."""

    kernel: Shape = ()
    stride: Shape = ()
    padding: Shape = ()
    groups: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class TracedOperation:
    name: str
    kind: LayerKind
    window: SlidingWindow
    flops: int
    inputs: list[Tensor]
    outputs: list[Tensor]
    moves_data: bool
    """False for views and allocations."""

    @property
    def weight(self) -> int:
        """Rank of the kind; the heaviest operation of a layer determines the layer's kind."""
        if self.kind is LayerKind.OTHER:
            return _WEIGHTS.index(LayerKind.LINEAR) - 1 if self.flops else 0
        return _WEIGHTS.index(self.kind)


_WEIGHTS = (
    LayerKind.OTHER,
    LayerKind.ELEMENTWISE,
    LayerKind.POOLING,
    LayerKind.NORMALISATION,
    # here stands what multiplies matrices and has no name
    LayerKind.OTHER,
    LayerKind.LINEAR,
    LayerKind.CONVOLUTION,
)
ELEMENTWISE = _WEIGHTS.index(LayerKind.ELEMENTWISE)


def operation(
    func: Any, args: Sequence[Any], kwargs: dict[str, Any], result: Any
) -> TracedOperation:
    name = func.overloadpacket.__name__
    kind, window = _kind(func, name, args)
    return TracedOperation(
        name=name.strip("_"),
        kind=kind,
        window=window,
        flops=_flops(func, args, kwargs, result),
        inputs=[*tensors((args, kwargs))],
        outputs=[*tensors(result)],
        moves_data=not func.is_view and name not in _ALLOCATE,
    )


def tensors(tree: Any) -> Iterator[Tensor]:
    if isinstance(tree, Tensor):
        yield tree
    elif isinstance(tree, list | tuple):
        for branch in tree:
            yield from tensors(branch)
    elif isinstance(tree, dict):
        for branch in tree.values():
            yield from tensors(branch)


def sample_shape(tensor: Tensor, batch: int) -> Shape:
    """Shape without the batch, which may be folded into the first extent."""
    first, *rest = tensor.shape or (1,)
    if first % batch:
        return (tensor.numel() // batch,)
    return (first // batch, *rest) if first != batch else tuple(rest)


def features_first(tensor: Tensor, batch: int) -> Shape:
    """Shape of an input or output of a linear layer, where features come last."""
    features = tensor.shape[-1]
    others = tensor.numel() // batch // max(1, features)
    return (features, others) if others > 1 else (features,)


def _flops(func: Any, args: Sequence[Any], kwargs: dict[str, Any], result: Any) -> int:
    """FLOPs as torch counts them, except for the weight gradient of grouped convolutions, of which
    torch counts too many."""
    if func is torch.ops.aten.convolution_backward.default:
        output, x, weight, transposed, wanted = args[0], args[1], args[2], args[7], args[10]
        applied = int(x.numel() if transposed else output.numel())
        return 2 * applied * int(prod(weight.shape[1:])) * int(sum(wanted[:2]))
    count = flop_registry.get(func.overloadpacket)
    return int(count(*args, **kwargs, out_val=result)) if count is not None else 0


def _kind(func: Any, name: str, args: Sequence[Any]) -> tuple[LayerKind, SlidingWindow]:
    if name.endswith("convolution"):
        return LayerKind.CONVOLUTION, _convolution(args)
    if name in _LINEAR:
        return LayerKind.LINEAR, SlidingWindow()
    if "pool" in name and "backward" not in name:
        return LayerKind.POOLING, _pooling(name, args)
    if name == "mean" and (window := _global_pooling(args)) is not None:
        return LayerKind.POOLING, window
    if "norm" in name and "backward" not in name and isinstance(args[0], Tensor):
        return LayerKind.NORMALISATION, SlidingWindow()
    if torch.Tag.pointwise in func.tags:
        return LayerKind.ELEMENTWISE, SlidingWindow()
    return LayerKind.OTHER, SlidingWindow()


def _convolution(args: Sequence[Any]) -> SlidingWindow:
    weight, stride, padding, dilation, groups = args[1], args[3], args[4], args[5], args[8]
    extents = tuple(weight.shape[2:])
    spread = _each(dilation, len(extents))
    return SlidingWindow(
        kernel=tuple(d * (k - 1) + 1 for k, d in zip(extents, spread, strict=True)),
        stride=_each(stride, len(extents)),
        padding=_each(padding, len(extents)),
        groups=groups,
    )


def _pooling(name: str, args: Sequence[Any]) -> SlidingWindow:
    extents = 3 if "3d" in name else 2
    if "adaptive" in name:
        sizes, wanted = args[0].shape[-extents:], _each(args[1], extents)
        return SlidingWindow(
            kernel=tuple(-(-size // out) for size, out in zip(sizes, wanted, strict=True)),
            stride=tuple(size // out for size, out in zip(sizes, wanted, strict=True)),
            padding=(0,) * extents,
        )
    kernel = _each(args[1], extents)
    return SlidingWindow(
        kernel=kernel,
        stride=_each(args[2], extents) if len(args) > 2 and args[2] else kernel,
        padding=_each(args[3], extents) if len(args) > 3 else (0,) * extents,
    )


def _global_pooling(args: Sequence[Any]) -> SlidingWindow | None:
    """Window of a mean over all spatial extents, which is global pooling."""
    sizes, dims = args[0].shape, args[1] if len(args) > 1 else None
    if not isinstance(dims, list | tuple) or len(sizes) < 3:
        return None
    if sorted(dim % len(sizes) for dim in dims) != [*range(2, len(sizes))] or not prod(sizes):
        return None
    return SlidingWindow(
        kernel=tuple(sizes[2:]), stride=tuple(sizes[2:]), padding=(0,) * (len(sizes) - 2)
    )


def _each(value: Any, extents: int) -> Shape:
    values = tuple(value) if isinstance(value, list | tuple) else (value,)
    return values if len(values) == extents else (values[0],) * extents
