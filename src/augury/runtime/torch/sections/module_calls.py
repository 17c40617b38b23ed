"""Stands in for the calls of modules, so that sections of a plan can change them.

Torch calls ``_compiled_call_impl`` of a module where there is one, and leaves it out of copies and
files: names of parameters, ``state_dict`` and pickled models stay as they are.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, Protocol

import torch

Call = Callable[..., Any]


class CallLayer(Protocol):
    """What one section does around the call of one module."""

    @property
    def is_compiled(self) -> bool:
        """Whether it runs compiled code now: the insides of the module then have no hooks."""

    def run(self, call: Call, args: tuple[Any, ...], options: dict[str, Any]) -> Any:
        """Calls the module; only forwards that build a graph come here."""


class ModuleCall:
    """The call of one module with the layers of sections around it, innermost first."""

    def __init__(self, module: Any) -> None:
        self.module = module
        self.layers: list[CallLayer] = []
        module._compiled_call_impl = self

    @property
    def is_compiled(self) -> bool:
        return any(layer.is_compiled for layer in self.layers)

    def __call__(self, *args: Any, **options: Any) -> Any:
        call: Call = self.module._call_impl
        if torch.is_grad_enabled() and not torch.compiler.is_compiling():
            for layer in self.layers:
                call = functools.partial(_through, layer, call)
        return call(*args, **options)

    def remove(self) -> None:
        if self.module._compiled_call_impl is self:
            del self.module._compiled_call_impl


def _through(layer: CallLayer, call: Call, *args: Any, **options: Any) -> Any:
    return layer.run(call, args, options)


class ModuleCalls:
    """The stand-ins of one model."""

    def __init__(self) -> None:
        self._calls: dict[int, ModuleCall] = {}

    def add(self, module: Any, layer: CallLayer) -> None:
        """Puts a layer around those that the module has."""
        if id(module) not in self._calls:
            self._calls[id(module)] = ModuleCall(module)
        self._calls[id(module)].layers.append(layer)

    def remove_layers(self, layers: set[int]) -> None:
        """Takes layers away, given by ``id``."""
        for key, call in [*self._calls.items()]:
            call.layers = [layer for layer in call.layers if id(layer) not in layers]
            if not call.layers:
                call.remove()
                del self._calls[key]


def has_own_hooks(module: Any) -> bool:
    """Whether the program has hooks on the module or below. Those of Augury only observe."""
    return any(
        not str(getattr(hook, "__module__", "")).startswith("augury.")
        for inner in module.modules()
        for hooks in (
            inner._forward_pre_hooks,
            inner._forward_hooks,
            inner._backward_pre_hooks,
            inner._backward_hooks,
        )
        for hook in hooks.values()
    )
