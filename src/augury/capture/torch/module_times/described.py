"""Pickles modules and arguments with descriptions in place of their tensors, and loads them again.

The time of an operation depends on shapes, types and layout, hardly on values. So floating-point
tensors are stored as a description, and made anew with random values. Other tensors hold indices
and masks, whose values matter: they are stored themselves.
"""

from __future__ import annotations

import io
import math
import pickle
import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch
    from torch import Tensor

MAX_KEPT_ELEMENTS = 1 << 14
"""Largest floating-point buffer that keeps its values."""
SAMPLE = 1 << 16
"""Number of elements that mean and deviation are computed from."""


class CannotDescribeError(ValueError):
    """An object that cannot be stored with descriptions of its tensors."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TensorDescription:
    """Everything about a floating-point tensor but its values."""

    shape: tuple[int, ...]
    stride: tuple[int, ...]
    dtype: torch.dtype
    device: str
    requires_grad: bool
    is_parameter: bool
    mean: float = 0.0
    deviation: float = 1.0
    is_positive: bool = False
    """Whether no value is negative, such as in a variance."""

    def make(self) -> Tensor:
        """Returns a leaf tensor with random values."""
        import torch

        made = self._empty()
        with torch.no_grad():
            made.copy_(torch.randn(self.shape, device=self.device).mul_(self.deviation))
            made.add_(self.mean)
            if self.is_positive:
                made.abs_()
        if self.is_parameter:
            return torch.nn.Parameter(made, requires_grad=self.requires_grad)
        return made.requires_grad_(self.requires_grad)

    def _empty(self) -> Tensor:
        import torch

        if 0 in self.stride:  # a dimension that repeats one element
            return torch.empty(self.shape, dtype=self.dtype, device=self.device)
        return torch.empty_strided(self.shape, self.stride, dtype=self.dtype, device=self.device)


@dataclass(frozen=True, slots=True, kw_only=True)
class Described:
    """A pickled object, and its tensors in the order of their first occurrence."""

    content: bytes
    tensors: list[TensorDescription | Tensor]

    def with_copies(self) -> Described:
        """Copies the tensors that are referred to."""
        copied = [
            one if isinstance(one, TensorDescription) else one.detach().clone()
            for one in self.tensors
        ]
        return replace(self, tensors=copied)


def describe(thing: Any, *, with_values: bool) -> Described:
    """``with_values`` also states mean and deviation of tensors, and keeps the values of small
    buffers; it runs operations of torch. Without it other tensors are referred to, not copied."""
    from augury.capture.torch.module_times.module_pickler import ModulePickler

    found: list[TensorDescription | Tensor] = []
    describe_tensor = _tensor_with_values if with_values else _described_tensor
    pickler = ModulePickler(lambda tensor: found.append(describe_tensor(tensor)))
    return Described(content=pickler.pickled(thing), tensors=found)


def load(described: Described, tensor_at: Callable[[int], Tensor] | None = None) -> Any:
    """``tensor_at`` returns the tensor with this number; by default each is made or stored."""

    def make(number: int) -> Tensor:
        tensor = described.tensors[number]
        return tensor.make() if isinstance(tensor, TensorDescription) else tensor

    return _Unpickler(io.BytesIO(described.content), tensor_at or make).load()


class _Unpickler(pickle.Unpickler):
    def __init__(self, file: io.BytesIO, tensor_at: Callable[[int], Tensor]) -> None:
        super().__init__(file)
        self._tensor_at = tensor_at
        self._made: dict[int, Tensor] = {}

    def find_class(self, module: str, name: str) -> Any:
        found = super().find_class(module, name)
        is_maker = module.startswith("cloudpickle") and name == "_make_function"
        return partial(_make_in_main, found) if is_maker else found

    def persistent_load(self, number: int) -> Tensor:
        if number not in self._made:
            self._made[number] = self._tensor_at(number)
        return self._made[number]


def _make_in_main(make: Callable[..., Any], code: Any, names: dict[str, Any], *rest: Any) -> Any:
    """Makes a function of the main script one of this process's main module: torch.compile looks
    there for the global names that it uses."""
    if names.get("__name__") == "__main__":
        names = vars(sys.modules["__main__"])
    return make(code, names, *rest)


def _described_tensor(tensor: Tensor) -> TensorDescription | Tensor:
    import torch

    if type(tensor) not in (torch.Tensor, torch.nn.Parameter):
        raise CannotDescribeError(f"it has tensors of the type {type(tensor).__name__}")
    if tensor.layout is not torch.strided or tensor.is_quantized:
        raise CannotDescribeError("it has sparse or quantized tensors")
    if not (tensor.is_floating_point() or tensor.is_complex()):
        return tensor
    return TensorDescription(
        shape=tuple(tensor.shape),
        stride=tensor.stride(),
        dtype=tensor.dtype,
        device=str(tensor.device),
        requires_grad=tensor.requires_grad,
        is_parameter=type(tensor) is torch.nn.Parameter,
    )


def _tensor_with_values(tensor: Tensor) -> TensorDescription | Tensor:
    import torch

    described = _described_tensor(tensor)
    if not isinstance(described, TensorDescription):
        return tensor.detach().clone()
    with torch.no_grad():
        if tensor.numel() and not tensor.untyped_storage().nbytes():
            raise CannotDescribeError("its parameters are sharded: they have no memory")
        is_buffer = not (tensor.requires_grad or described.is_parameter)
        if is_buffer and tensor.numel() <= MAX_KEPT_ELEMENTS:
            return tensor.detach().clone()
        if not tensor.numel() or tensor.is_complex():
            return described
        sample = tensor.detach().flatten()[:SAMPLE].float()
        deviation, mean = (float(value) for value in torch.std_mean(sample, correction=0))
        if not (math.isfinite(deviation) and math.isfinite(mean)):
            return described
        return replace(
            described, mean=mean, deviation=deviation, is_positive=bool(sample.min() >= 0)
        )
