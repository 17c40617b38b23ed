"""Finds tensors that share memory with others: views, arrays, ``detach()`` and ``data``.

An access through an alias cannot be detected, so nothing that has an alias may be in flight. The
reference count of a storage is cheap to read and shows aliases of every kind.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch

_holders = torch._C._storage_Use_Count


class Aliases:
    """Checks the same tensors repeatedly."""

    def __init__(self, tensors: Iterable[Any] = ()) -> None:
        self._tensors = [*tensors]
        self._storages: list[Any] = []
        self._addresses: list[int] = []
        self._find_storages()

    def _find_storages(self) -> None:
        with torch._C.DisableTorchFunction():  # no values are read
            self._storages = [one.untyped_storage() for one in self._tensors]
        self._addresses = [storage._cdata for storage in self._storages]

    def are_there(self) -> bool:
        """Whether a storage is held by more than its tensor and this object."""
        if all(_holders(one) == 2 for one in self._addresses):
            return False
        self._find_storages()  # a tensor may have new memory
        return any(_holders(one) != 2 for one in self._addresses)


def has_aliases(tensors: Iterable[Any]) -> bool:
    with torch._C.DisableTorchFunction():
        return any(_holders(one.untyped_storage()._cdata) != 2 for one in tensors)
