"""Pickles objects of a training program, classes of its main script included, without tensors."""

from __future__ import annotations

import io
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import cloudpickle
import torch

from augury.capture.torch.module_times.described import CannotDescribeError

if TYPE_CHECKING:
    from torch import Tensor

MAX_PICKLED_BYTES = 64 << 20
"""Longest pickle: a module that refers to a dataset is not stored."""


class ModulePickler(cloudpickle.Pickler):  # type: ignore[misc]
    """Stores classes and functions of the main script by value: another process cannot import it.
    Tensors become numbers, in the order in which ``on_tensor`` is called with them."""

    def __init__(self, on_tensor: Callable[[Tensor], None]) -> None:
        self._buffer = _Limited()
        super().__init__(self._buffer)
        self._on_tensor = on_tensor
        self._numbers: dict[int, int] = {}

    def pickled(self, thing: Any) -> bytes:
        self.dump(thing)
        return self._buffer.getvalue()

    def persistent_id(self, thing: Any) -> int | None:
        if not issubclass(type(thing), torch.Tensor):
            return None
        number = self._numbers.get(id(thing))
        if number is None:
            self._on_tensor(thing)
            number = self._numbers[id(thing)] = len(self._numbers)
        return number


class _Limited(io.BytesIO):
    def write(self, data: Any, /) -> int:
        if self.tell() + len(data) > MAX_PICKLED_BYTES:
            raise CannotDescribeError("it refers to more than 64 MiB of data besides tensors")
        return super().write(data)
