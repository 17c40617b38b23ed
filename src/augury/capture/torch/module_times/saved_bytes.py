"""Counts the bytes that a module saves for backward, each storage once, without parameters."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch import Tensor
    from torch.nn import Module


class SavedBytes:
    """Counts what is saved while its hooks are active, or what a graph holds."""

    def __init__(self, module: Module) -> None:
        self._parameters = {one.untyped_storage().data_ptr() for one in module.parameters()}
        self._storages: dict[int, int] = {}
        self._kept: list[Tensor] = []
        """Saved tensors, so that no later one has the same address."""

    @property
    def size_bytes(self) -> int:
        return sum(self._storages.values())

    @contextmanager
    def hooks(self) -> Iterator[None]:
        import torch

        with torch.autograd.graph.saved_tensors_hooks(self._pack, lambda tensor: tensor):
            yield

    def add_graph(self, outputs: Iterable[Tensor]) -> None:
        """Adds what the autograd graph behind these outputs has saved."""
        for node in _nodes(outputs):
            with suppress(Exception):  # not all saved values can be read
                for tensor in _saved_in(node):
                    self._add(tensor)

    def _add(self, tensor: Tensor) -> None:
        with suppress(Exception):  # a tensor without storage
            storage = tensor.untyped_storage()
            if storage.data_ptr() not in self._parameters:
                self._storages[storage.data_ptr()] = storage.nbytes()

    def _pack(self, tensor: Tensor) -> Tensor:
        self._kept.append(tensor.detach())
        self._add(tensor)
        return tensor


def _nodes(outputs: Iterable[Tensor]) -> Iterator[Any]:
    waiting: list[Any] = [output.grad_fn for output in outputs]
    seen: set[Any] = set()
    while waiting:
        node = waiting.pop()
        if node is None or node in seen:
            continue
        seen.add(node)
        waiting += [following for following, _ in node.next_functions]
        yield node


def _saved_in(node: Any) -> Iterator[Tensor]:
    import torch

    values: list[Any] = [*getattr(node, "saved_tensors", ())]
    values += [getattr(node, name) for name in dir(node) if name.startswith("_saved_")]
    for value in values:
        for one in value if isinstance(value, (list, tuple)) else [value]:
            if isinstance(one, torch.Tensor):
                yield one
