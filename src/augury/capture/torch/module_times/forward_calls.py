"""Notes how the modules of a training are called: arguments, autocast and time, in one step."""

from __future__ import annotations

import time
import weakref
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

from augury.capture.torch.module_ranges import visible_modules
from augury.capture.torch.module_times.described import Described, describe
from augury.capture.torch.modules import TrainedModules, is_compiled_wrapper

if TYPE_CHECKING:
    from torch.nn import Module


@dataclass(slots=True, kw_only=True)
class NotedCalls:
    """The calls of one module within the step, of which the first one's arguments are noted."""

    module: weakref.ref[Module]
    arguments: Described | None = None
    """Positional and keyword arguments, as a pair; other than floating-point tensors are referred
    to."""
    autocast: dict[str, Any] = field(default_factory=dict)
    """Type of autocast by kind of device, where it was on."""
    elapsed_ns: int = 0
    """Time in forward, of all calls."""
    refusal: str | None = None
    """Reason why the module cannot be timed."""


class ForwardCalls:
    """Between ``start`` and ``stop``, notes the calls that gradients are computed for."""

    def __init__(self) -> None:
        self.noted: dict[str, NotedCalls] = {}
        """By path of the module."""
        self._hooks: list[Any] = []

    def start(self, trained: TrainedModules) -> None:
        self.noted.clear()
        for path, module in visible_modules(trained):
            self._watch(module, path)

    def stop(self) -> None:
        for hook in self._hooks:
            hook.remove()
        self._hooks.clear()

    def take(self) -> dict[str, NotedCalls]:
        """Returns what was noted, and keeps nothing of it."""
        noted, self.noted = self.noted, {}
        return noted

    def _watch(self, module: Module, path: str) -> None:
        noted = self.noted[path] = NotedCalls(module=weakref.ref(module))
        if is_compiled_wrapper(module) or getattr(module, "_compiled_call_impl", None) is not None:
            noted.refusal = "the program has compiled it"
            return
        begun_ns: list[int] = []

        def enter(_module: Module, arguments: tuple[Any, ...], options: dict[str, Any]) -> None:
            if noted.arguments is None and noted.refusal is None:
                _note(noted, (arguments, options))
            begun_ns.append(time.perf_counter_ns())

        def leave(_module: Module, _arguments: Any, _output: Any) -> None:
            noted.elapsed_ns += time.perf_counter_ns() - begun_ns.pop()

        with suppress(Exception):  # scripted modules take no hooks
            self._hooks += [
                module.register_forward_pre_hook(
                    partial(_call, enter), prepend=True, with_kwargs=True
                ),
                module.register_forward_hook(partial(_call, leave), always_call=True),
            ]


def _call(action: Callable[..., None], *values: Any) -> None:
    from torch import is_grad_enabled
    from torch.compiler import is_compiling

    if is_compiling() or not is_grad_enabled():
        return
    with suppress(Exception):
        action(*values)


def _note(noted: NotedCalls, arguments: Any) -> None:
    try:
        noted.autocast = _autocast()
        noted.arguments = describe(arguments, with_values=False)
    except Exception as error:
        noted.refusal = f"its arguments cannot be stored: {error}"


def _autocast() -> dict[str, Any]:
    import torch

    kinds = {"cpu", torch._C._get_accelerator().type}
    return {
        kind: torch.get_autocast_dtype(kind) for kind in kinds if torch.is_autocast_enabled(kind)
    }
