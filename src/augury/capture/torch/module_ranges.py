"""Profiler ranges around the forward calls of modules, in the detailed window.

Hooks are set on each module rather than globally, because compiled modules warn about global hooks.
The insides of compiled modules get no hooks, because these would be compiled too.
"""

from __future__ import annotations

import threading
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from augury.capture.torch.modules import TrainedModules, unwrapped

if TYPE_CHECKING:
    from torch.nn import Module

MODULE_RANGE = "augury.module: "


class ModuleRanges:
    """Between ``start`` and ``stop``, every forward call is a range named after its module."""

    def __init__(self) -> None:
        self._hooks: list[Any] = []
        # Recomputation calls modules from autograd's own threads.
        self._local = threading.local()

    def start(self, trained: TrainedModules) -> None:
        inside = {id(inner) for outer in trained.compiled for inner in outer._orig_mod.modules()}
        for module in trained.modules.values():
            if getattr(module, "_compiled_call_impl", None) is not None:
                inside.update(id(inner) for inner in module.modules())
        wrapper = {id(unwrapped(outer)): outer for outer in trained.compiled}
        for path, module in trained.modules.items():
            seen_from_outside = wrapper.get(id(module), module)
            if id(seen_from_outside) not in inside:
                with suppress(Exception):  # scripted modules take no hooks
                    self._watch(seen_from_outside, path)

    def stop(self) -> None:
        for hook in self._hooks:
            hook.remove()
        self._hooks.clear()

    def current(self) -> str:
        """Returns the path of the innermost module that runs on this thread; empty if none."""
        ranges = self._ranges()
        return ranges[-1][0] if ranges else ""

    def _ranges(self) -> list[tuple[str, Any]]:
        if not hasattr(self._local, "ranges"):
            self._local.ranges = []
        ranges: list[tuple[str, Any]] = self._local.ranges
        return ranges

    def _watch(self, module: Module, path: str) -> None:
        from torch.autograd.profiler import record_function
        from torch.compiler import is_compiling

        def enter(_module: Module, _inputs: Any) -> None:
            if is_compiling():
                return  # otherwise it would be compiled into the module
            with suppress(Exception):
                opened = record_function(MODULE_RANGE + path)
                opened.__enter__()
                self._ranges().append((path, opened))

        def leave(_module: Module, _inputs: Any, _output: Any) -> None:
            if is_compiling():
                return
            with suppress(Exception):
                ranges = self._ranges()
                # A call that failed may have left its range open.
                while any(name == path for name, _ in ranges):
                    name, opened = ranges.pop()
                    opened.__exit__(None, None, None)
                    if name == path:
                        break

        self._hooks += [
            module.register_forward_pre_hook(enter),
            module.register_forward_hook(leave, always_call=True),
        ]
