"""Memory that training holds, by layer: parameters, gradients, optimizer state, activations."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from augury.capture.torch.distributed_calls import tensor_bytes
from augury.capture.torch.module_ranges import ModuleRanges
from augury.capture.torch.modules import TrainedModules
from augury.core.trace.rank_record import RecordedMemory

if TYPE_CHECKING:
    from torch import Tensor
    from torch.optim import Optimizer


def held_memory(optimizers: Sequence[Optimizer], name_of: dict[int, str]) -> list[RecordedMemory]:
    """Returns the memory of parameters, gradients and optimizer state at the end of a step, while
    gradients still exist. Only the local part of a sharded tensor counts."""
    held: list[RecordedMemory] = []
    for optimizer in optimizers:
        parameters = [p for group in optimizer.param_groups for p in group["params"]]
        for number, parameter in enumerate(parameters):
            state = optimizer.state.get(parameter, {})
            sizes_bytes = {
                "parameter": _local_bytes(parameter),
                "gradient": _local_bytes(parameter.grad),
                "optimizer": sum(_local_bytes(value) for value in state.values()),
            }
            layer = name_of.get(id(parameter), f"#{number}")
            held += [
                RecordedMemory(kind=kind, layer=layer, size_bytes=size_bytes)
                for kind, size_bytes in sizes_bytes.items()
                if size_bytes
            ]
    return held


def _local_bytes(value: Any) -> int:
    return tensor_bytes(getattr(value, "_local_tensor", value))


class SavedActivations:
    """Counts the bytes that autograd saves for backward, by the module that saved them first.

    Each storage counts once, and parameters do not count. The result of a module is the largest
    amount that it held at a time: a step may have several micro-batches."""

    def __init__(self, ranges: ModuleRanges) -> None:
        self._ranges = ranges
        self._parameter_addresses: set[int] = set()
        self._storages: dict[int, _Storage] = {}
        """Saved storages, by address."""
        self._held_bytes: Counter[str] = Counter()
        self._peak_bytes: Counter[str] = Counter()
        self._hooks: Any = None

    def start(self, trained: TrainedModules) -> None:
        import torch

        # Hooks form a stack: if the program has some and removes them first, it would remove ours.
        # Code that was compiled without hooks would be compiled again.
        if _has_saved_tensor_hooks() or trained.compiled or _has_compiled_code():
            return
        for module in trained.modules.values():
            for parameter in module.parameters(recurse=False):
                with suppress(Exception):  # a distributed tensor has no storage of its own
                    self._parameter_addresses.add(parameter.untyped_storage().data_ptr())
        self._hooks = torch.autograd.graph.saved_tensors_hooks(self._pack, _unpack)
        self._hooks.__enter__()

    def stop(self) -> None:
        hooks, self._hooks = self._hooks, None
        if hooks is not None:
            hooks.__exit__(None, None, None)

    def by_layer(self) -> dict[str, int]:
        """Returns the peak of the saved bytes of each layer."""
        return dict(self._peak_bytes)

    def _pack(self, tensor: Tensor) -> _Saved:
        saved = _Saved(tensor)
        with suppress(Exception):
            base = tensor if tensor._base is None else tensor._base
            is_parameter = base.is_leaf and base.requires_grad
            address = tensor.untyped_storage().data_ptr()
            if not is_parameter and address not in self._parameter_addresses:
                self._hold(address, tensor.untyped_storage().nbytes())
                saved.on_release = lambda: self._release(address)
        return saved

    def _hold(self, address: int, size_bytes: int) -> None:
        storage = self._storages.get(address)
        if storage is None:
            layer = self._ranges.current()
            storage = self._storages[address] = _Storage(layer, size_bytes)
            self._held_bytes[layer] += size_bytes
            self._peak_bytes[layer] = max(self._peak_bytes[layer], self._held_bytes[layer])
        storage.num_saved_tensors += 1

    def _release(self, address: int) -> None:
        storage = self._storages[address]
        storage.num_saved_tensors -= 1
        if storage.num_saved_tensors == 0:
            del self._storages[address]
            self._held_bytes[storage.layer] -= storage.size_bytes


@dataclass(slots=True)
class _Storage:
    """Memory of one or more saved tensors, attributed to the layer that saved the first of them."""

    layer: str
    size_bytes: int
    num_saved_tensors: int = 0


class _Saved:
    """A tensor that autograd saved. Python deletes this object with the autograd graph that holds
    it."""

    def __init__(self, tensor: Tensor) -> None:
        self.tensor = tensor
        self.on_release: Callable[[], None] | None = None

    def __del__(self) -> None:
        if self.on_release is not None:
            with suppress(Exception):
                self.on_release()


def _unpack(saved: _Saved) -> Tensor:
    return saved.tensor


def _has_saved_tensor_hooks() -> bool:
    from torch._C import _autograd

    try:
        return _autograd._top_saved_tensors_default_hooks(True) is not None
    except (AttributeError, TypeError):
        return True  # unknown in this version of torch: adding no hooks is the safe choice


def _has_compiled_code() -> bool:
    utils = sys.modules.get("torch._dynamo.utils")
    return utils is not None and bool(utils.counters.get("frames"))
