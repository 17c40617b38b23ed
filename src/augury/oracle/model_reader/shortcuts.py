"""Output shapes of common operations, computed directly.

Torch would run dozens of smaller operations for them, or import its compiler, which takes longer
than reading a model.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

aten = torch.ops.aten


def _convolution(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    stride: list[int],
    padding: list[int],
    dilation: list[int],
    transposed: bool,
    output_padding: list[int],
    groups: int,
) -> Tensor:
    extents = weight.dim() - 2
    windows = zip(x.shape[2:], weight.shape[2:], stride, padding, dilation, strict=False)
    sizes = [(size + 2 * p - d * (k - 1) - 1) // s + 1 for size, k, s, p, d in windows]
    if (
        transposed
        or x.dim() != weight.dim()
        or len(sizes) < extents
        or min(sizes) < 1
        or x.shape[1] != weight.shape[1] * groups
    ):
        # Torch determines the result or reports the error.
        return aten.convolution.default(
            x, weight, bias, stride, padding, dilation, transposed, output_padding, groups
        )
    return x.new_empty((x.shape[0], weight.shape[0], *sizes))


def _convolution_backward(
    _gradient: Tensor, x: Tensor, weight: Tensor, bias_sizes: list[int] | None, *args: Any
) -> tuple[Tensor | None, ...]:
    wants_input, wants_weight, wants_bias = args[-1]
    return (
        _like(x) if wants_input else None,
        _like(weight) if wants_weight else None,
        x.new_empty(bias_sizes) if wants_bias else None,
    )


def _addmm(_bias: Tensor, left: Tensor, right: Tensor, **_options: Any) -> Tensor:
    return _mm(left, right)


def _mm(left: Tensor, right: Tensor) -> Tensor:
    if left.dim() != 2 or right.dim() != 2 or left.shape[1] != right.shape[0]:
        return aten.mm.default(left, right)
    return left.new_empty((left.shape[0], right.shape[1]))


def _mean(x: Tensor, dims: list[int] | None, keepdim: bool = False, **options: Any) -> Tensor:
    if not dims or options:
        return aten.mean.dim(x, dims, keepdim, **options)
    gone = {dim % x.dim() for dim in dims}
    sizes = [1 if dim in gone else size for dim, size in enumerate(x.shape)]
    return x.new_empty(
        sizes if keepdim else [size for dim, size in enumerate(sizes) if dim not in gone]
    )


def _batch_norm(x: Tensor, *_args: Any, **_kwargs: Any) -> tuple[Tensor, Tensor, Tensor]:
    return _like(x), x.new_empty(x.shape[1:2]), x.new_empty(x.shape[1:2])


def _batch_norm_backward(
    _gradient: Tensor, x: Tensor, *args: Any, **_kwargs: Any
) -> tuple[Tensor | None, ...]:
    wants_input, wants_weight, wants_bias = args[-1]
    channels = x.shape[1:2]
    return (
        _like(x) if wants_input else None,
        x.new_empty(channels) if wants_weight else None,
        x.new_empty(channels) if wants_bias else None,
    )


def _threshold_backward(_gradient: Tensor, x: Tensor, _threshold: float) -> Tensor:
    return _like(x)


def _divided(x: Tensor, by: float) -> Tensor:
    return _like(x) if x.is_floating_point() else aten.div.Scalar(x, by)


def _added(x: Any, y: Any, **options: Any) -> Tensor:
    """Sum, as autograd accumulates gradients of tensors that are used twice."""
    alike = isinstance(x, Tensor) and isinstance(y, Tensor) and x.shape == y.shape
    if not alike or x.dtype != y.dtype:
        return aten.add.Tensor(x, y, **options)
    return _like(x)


def _like(x: Tensor) -> Tensor:
    return x.new_empty(x.shape)


SHORTCUTS: dict[Any, Callable[..., Any]] = {
    aten.convolution.default: _convolution,
    aten.convolution_backward.default: _convolution_backward,
    aten.addmm.default: _addmm,
    aten.mm.default: _mm,
    aten.mean.dim: _mean,
    aten.add.Tensor: _added,
    aten.div.Scalar: _divided,
    aten.native_batch_norm.default: _batch_norm,
    aten.native_batch_norm_backward.default: _batch_norm_backward,
    aten.threshold_backward.default: _threshold_backward,
}
