"""Tensors that share memory with others: views, arrays, ``detach()`` and ``data``.

What is read through an alias cannot be noticed, so nothing may be in flight that an alias shows.
Counting who holds a storage is cheap, and finds aliases of every kind.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch

_holders = torch._C._storage_Use_Count


class Aliases:
    """Of these tensors, asked again and again."""

    def __init__(self, tensors: Iterable[Any] = ()) -> None:
        self._tensors = [*tensors]
        self._storages: list[Any] = []
        self._addresses: list[int] = []
        self._find_storages()

    def _find_storages(self) -> None:
        with torch._C.DisableTorchFunction():  # nothing is read
            self._storages = [one.untyped_storage() for one in self._tensors]
        self._addresses = [storage._cdata for storage in self._storages]

    def are_there(self) -> bool:
        """Whether a storage is held by more than its tensor and this object."""
        if all(_holders(one) == 2 for one in self._addresses):
            return False
        self._find_storages()  # a tensor may have got other memory
        return any(_holders(one) != 2 for one in self._addresses)


def has_aliases(tensors: Iterable[Any]) -> bool:
    with torch._C.DisableTorchFunction():
        return any(_holders(one.untyped_storage()._cdata) != 2 for one in tensors)
