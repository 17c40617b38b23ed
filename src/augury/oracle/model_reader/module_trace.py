"""Trace of a module's forward and backward without data, with the layer of each operation.

Modules without children are layers. Computation of a module between its children becomes layers
of its own, named ``module:operation``. A backward operation belongs to the layer whose
forward made its autograd node: autograd numbers its nodes as forward makes them.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

from augury.core.errors import InputError
from augury.core.model import ModelLayer
from augury.oracle.model_reader.operations import ELEMENTWISE, TracedOperation, operation, tensors
from augury.oracle.model_reader.saved_tensors import LiveStorages, storage_of
from augury.oracle.model_reader.shortcuts import SHORTCUTS
from augury.oracle.model_reader.traced_layers import LayerDraft

_NO_NUMBER = (1 << 64) - 1
"""Number of nodes that accumulate gradients: they belong to the node that made the gradient."""


@dataclass(slots=True)
class _Frame:
    """Call of a module that has not returned."""

    path: str
    is_leaf: bool
    layer: LayerDraft | None = None


class LayerTrace(TorchDispatchMode):  # type: ignore[misc]
    def __init__(self, module: nn.Module, inputs: Sequence[Tensor], *, name: str) -> None:
        super().__init__()
        self._module, self._inputs, self._name = module, inputs, name
        self._root = type(module).__name__
        self._batch = int(inputs[0].shape[0])
        # Shared parameters are one object: the layer that first uses it has it.
        self._unclaimed = {
            id(storage_of(parameter)): parameter.numel() for parameter in module.parameters()
        }
        already_there = [*inputs, *module.parameters(), *module.buffers()]
        own = [one.element_size() for one in already_there if one.is_floating_point()]
        self._item_bytes = int(own[0]) if own else 4
        self._storages = LiveStorages(self._batch, already_there)
        self._layers: list[LayerDraft] = []
        self._calls: Counter[str] = Counter()
        self._frames: list[_Frame] = []
        self._in_backward = False
        self._current: LayerDraft | None = None
        self._ends: list[int] = []
        self._makers: list[LayerDraft | None] = []

    @property
    def where(self) -> str:
        """Name of the module or phase that was running when something failed."""
        if self._in_backward:
            return f"backward of {self._current.name}" if self._current else "backward"
        return self._frames[-1].path or self._name if self._frames else self._name

    def run(self) -> list[ModelLayer]:
        with self._watched_modules(), self:
            with torch.autograd.graph.saved_tensors_hooks(self._keep, lambda kept: kept):
                outputs = self._module(*self._inputs)
            trained = [one for one in tensors(outputs) if one.requires_grad]
            for place, size_bytes in self._storages.kept():
                layer = self._maker(place)
                if layer is not None:
                    layer.kept_bytes += size_bytes
            self._in_backward = True
            if trained:
                torch.autograd.backward(trained, [torch.empty_like(one) for one in trained])
        return self._finished(self._item_bytes) if trained else []

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        # Skipping it would import torch's compiler, which takes longer than reading a model.
        return False

    def __torch_dispatch__(
        self,
        func: Any,
        types: Any,
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        # Real tensors, which forward may create, must be computed.
        has_shapes_only = all(tensor.is_meta for tensor in tensors(args))
        compute = SHORTCUTS.get(func, func) if has_shapes_only else func
        result = compute(*args, **(kwargs or {}))
        done = operation(func, args, kwargs or {}, result)
        for tensor in done.outputs:
            self._storages.see(tensor)
        if self._in_backward:
            self._note_backward(done)
        else:
            self._note_forward(done)
        return result

    def _note_forward(self, done: TracedOperation) -> None:
        layer = self._layer_of(done)
        number = torch.autograd._get_sequence_nr()
        if not self._ends or number > self._ends[-1]:
            self._ends.append(number)
            self._makers.append(layer)
        if layer is None:
            return
        layer.add_forward(done, self._storages.held, self._batch)
        # A view of a parameter is not its use.
        for tensor in done.inputs if done.moves_data else ():
            layer.num_parameters += self._unclaimed.pop(id(storage_of(tensor)), 0)

    def _layer_of(self, done: TracedOperation) -> LayerDraft | None:
        if not self._frames:
            return None
        frame = self._frames[-1]
        if frame.is_leaf or not done.moves_data:
            return frame.layer
        if frame.layer is None or done.weight > ELEMENTWISE:
            frame.layer = self._new_layer(f"{frame.path or self._root}:{done.name}")
        return frame.layer

    def _new_layer(self, name: str) -> LayerDraft:
        self._calls[name] += 1
        layer = LayerDraft(name if self._calls[name] == 1 else f"{name}#{self._calls[name]}")
        self._layers.append(layer)
        return layer

    def _note_backward(self, done: TracedOperation) -> None:
        node = torch._C._current_autograd_node()
        number = node._sequence_nr() if node is not None else _NO_NUMBER
        if number < _NO_NUMBER:
            self._current = self._maker(number)
        if self._current is not None:
            self._current.backward.add(done, self._storages.held, self._batch)

    def _maker(self, number: int) -> LayerDraft | None:
        place = bisect_right(self._ends, number)
        return self._makers[place] if place < len(self._makers) else None

    def _keep(self, tensor: Tensor) -> Tensor:
        # The node that keeps it has just been numbered.
        self._storages.keep(tensor, torch.autograd._get_sequence_nr() - 1)
        return tensor

    @contextmanager
    def _watched_modules(self) -> Iterator[None]:
        handles = []
        for path, module in self._module.named_modules():
            is_leaf = next(module.children(), None) is None
            handles += [
                module.register_forward_pre_hook(self._entering(path, is_leaf), prepend=True),
                module.register_forward_hook(self._leaving),
            ]
        try:
            yield
        finally:
            for handle in handles:
                handle.remove()

    def _entering(self, path: str, is_leaf: bool) -> Any:
        def enter(_module: nn.Module, _args: Any) -> None:
            if self._in_backward:  # recomputed there
                return
            if self._frames and not self._frames[-1].is_leaf:
                self._frames[-1].layer = None
            frame = _Frame(path, is_leaf)
            if is_leaf:
                frame.layer = self._new_layer(path or self._root)
            self._frames.append(frame)

        return enter

    def _leaving(self, _module: nn.Module, _args: Any, _output: Any) -> None:
        if not self._in_backward and self._frames:
            self._frames.pop()

    def _finished(self, item_bytes: int) -> list[ModelLayer]:
        self._refuse_single_samples()
        finished, kept_bytes = [], 0
        for layer in self._layers:
            if not layer.is_empty:
                finished.append(
                    layer.finish(
                        batch=self._batch, item_bytes=item_bytes, kept_before_bytes=kept_bytes
                    )
                )
                kept_bytes += layer.kept_bytes
        return finished

    def _refuse_single_samples(self) -> None:
        """Refuses models that call a layer once per sample, on data that does not grow with the
        batch."""
        single = Counter(
            layer.name.partition("#")[0]
            for layer in self._layers
            if layer.forward.flops and not layer.forward.moved_bytes
        )
        for name, num_calls in single.items():
            if num_calls >= self._batch:
                raise InputError(
                    f"{self._name} calls {name} for each sample of a batch by itself",
                    remedy="let forward treat the samples of a batch together",
                )
