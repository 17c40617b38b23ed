"""Live storages, and those that autograd saves for backward, each counted once."""

from __future__ import annotations

import weakref
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import Tensor, UntypedStorage


@dataclass(slots=True)
class Held:
    """Bytes that grow with the batch, and others."""

    with_batch_bytes: int = 0
    fixed_bytes: int = 0


class LiveStorages:
    """Storages that operations allocated and that still exist; earlier ones are left out."""

    def __init__(self, batch: int, already_there: Iterable[Tensor]) -> None:
        self._batch = batch
        self._before = {id(storage): storage for storage in map(storage_of, already_there)}
        self._alive: dict[int, weakref.ref[UntypedStorage]] = {}
        self._kept: dict[int, tuple[int, int]] = {}
        self.held = Held()

    def see(self, tensor: Tensor) -> None:
        storage = storage_of(tensor)
        key = id(storage)
        if key in self._before or key in self._alive:
            return
        size_bytes = storage.nbytes()
        self._count(size_bytes)
        self._alive[key] = weakref.ref(storage, lambda _: self._drop(key, size_bytes))

    def keep(self, tensor: Tensor, place: int) -> None:
        """Notes that autograd saves a tensor; ``place`` is the first node that does."""
        self.see(tensor)
        key = id(storage_of(tensor))
        if key not in self._before:
            self._kept.setdefault(key, (place, storage_of(tensor).nbytes()))

    def kept(self) -> list[tuple[int, int]]:
        """Node and bytes of each saved storage that grows with the batch."""
        return [one for one in self._kept.values() if self._grows(one[1])]

    def _grows(self, size_bytes: int) -> bool:
        return size_bytes % self._batch == 0

    def _count(self, size_bytes: int) -> None:
        if self._grows(size_bytes):
            self.held.with_batch_bytes += size_bytes
        else:
            self.held.fixed_bytes += size_bytes

    def _drop(self, key: int, size_bytes: int) -> None:
        self._alive.pop(key, None)
        self._kept.pop(key, None)
        self._count(-size_bytes)


def storage_of(tensor: Tensor) -> UntypedStorage:
    """Storage of a tensor: one object for as long as the storage exists."""
    return tensor.untyped_storage()
