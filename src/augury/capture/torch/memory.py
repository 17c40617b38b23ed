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
    """Returns the memory held at the end of a step, while gradients still exist. A sharded tensor
    counts with its local part."""
    held: list[RecordedMemory] = []
    for optimizer in optimizers:
        parameters = [p for group in optimizer.param_groups for p in group["params"]]
        for number, parameter in enumerate(parameters):
            state = optimizer.state.get(parameter, {})
            sizes_bytes = {
                "parameter": local_bytes(parameter),
                "gradient": local_bytes(parameter.grad),
                "optimizer": sum(local_bytes(value) for value in state.values()),
            }
            layer = name_of.get(id(parameter), f"#{number}")
            held += [
                RecordedMemory(kind=kind, layer=layer, size_bytes=size_bytes)
                for kind, size_bytes in sizes_bytes.items()
                if size_bytes
            ]
    return held


def local_bytes(value: Any) -> int:
    return tensor_bytes(getattr(value, "_local_tensor", value))


class SavedActivations:
    """Bytes that autograd saves for backward, by module. Each storage counts once, parameters do
    not count; with several micro-batches per step, the largest amount held at a time."""

    def __init__(self, ranges: ModuleRanges) -> None:
        self._ranges = ranges
        self._parameters: set[int] = set()
        self._kept: dict[int, _Storage] = {}
        self._now: Counter[str] = Counter()
        self._most: Counter[str] = Counter()
        self._hooks: Any = None

    def start(self, trained: TrainedModules) -> None:
        import torch

        # Hooks of the program may end before ours, and code that was compiled without hooks would
        # be compiled again.
        if _has_saved_tensor_hooks() or trained.compiled or _has_compiled():
            return
        for module in trained.modules.values():
            for parameter in module.parameters(recurse=False):
                with suppress(Exception):  # a distributed tensor has only a local storage
                    self._parameters.add(parameter.untyped_storage().data_ptr())
        self._hooks = torch.autograd.graph.saved_tensors_hooks(self._pack, _unpack)
        self._hooks.__enter__()

    def stop(self) -> None:
        hooks, self._hooks = self._hooks, None
        if hooks is not None:
            hooks.__exit__(None, None, None)

    def by_layer(self) -> dict[str, int]:
        return dict(self._most)

    def _pack(self, tensor: Tensor) -> _Saved:
        saved = _Saved(tensor)
        with suppress(Exception):
            base = tensor if tensor._base is None else tensor._base
            address = tensor.untyped_storage().data_ptr()
            if not (base.is_leaf and base.requires_grad) and address not in self._parameters:
                self._keep(address, tensor.untyped_storage().nbytes())
                saved.on_release = lambda: self._release(address)
        return saved

    def _keep(self, address: int, size_bytes: int) -> None:
        storage = self._kept.get(address)
        if storage is None:
            layer = self._ranges.current()
            storage = self._kept[address] = _Storage(layer, size_bytes)
            self._now[layer] += size_bytes
            self._most[layer] = max(self._most[layer], self._now[layer])
        storage.num_savers += 1

    def _release(self, address: int) -> None:
        storage = self._kept[address]
        storage.num_savers -= 1
        if storage.num_savers == 0:
            del self._kept[address]
            self._now[storage.layer] -= storage.size_bytes


@dataclass(slots=True)
class _Storage:
    layer: str
    size_bytes: int
    num_savers: int = 0


class _Saved:
    """A tensor that autograd saved; deleted with the autograd graph that needs it."""

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
        return True  # unknown: no hooks are safer


def _has_compiled() -> bool:
    utils = sys.modules.get("torch._dynamo.utils")
    return utils is not None and bool(utils.counters.get("frames"))
