"""Section ``recompute``: drops activations of the chosen modules and computes them again.

Results are the same bits: random states are kept, and modules that a second forward would change,
or that give other bits, are refused.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any

import torch
from torch.nn.modules.batchnorm import _NormBase
from torch.utils.checkpoint import checkpoint

from augury.runtime.torch.sections.module_calls import Call, ModuleCalls, has_own_hooks
from augury.runtime.torch.sections.rehearsal import (
    changed_generator,
    random_states,
    rehearse,
    state_versions,
)


def why_not(modules: Mapping[str, Any], fused: Mapping[str, Any]) -> str | None:
    """``fused``: the modules that the plan compiles."""
    inside = {id(below) for module in fused.values() for below in module.modules()}
    inside -= {id(module) for module in fused.values()}
    for path, module in modules.items():
        if id(module) in inside:
            return f"module {path} lies within a module that is compiled"
        if has_own_hooks(module):
            return f"module {path} has hooks of the program"
        if any(isinstance(one, _NormBase) and one.track_running_stats for one in module.modules()):
            return f"module {path} has BatchNorm, whose statistics each forward updates"
    return None


class RecomputedModules:
    """The recomputed modules of one model. ``trouble`` states why the section cannot be applied."""

    def __init__(self, modules: Mapping[str, Any], calls: ModuleCalls) -> None:
        self.is_on = self.is_rehearsing = False
        self.trouble: str | None = None
        self._calls = calls
        self._parts = [_RecomputedModule(self, path, module) for path, module in modules.items()]
        for part in self._parts:
            calls.add(part.module, part)

    def why_not(self) -> str | None:
        """Returns why the section cannot be applied, after the rehearsal."""
        missing = [part.path for part in self._parts if not part.rehearsed]
        return self.trouble or (f"module {missing[0]} was not called" if missing else None)

    def use(self, is_on: bool) -> None:
        self.is_on = is_on

    def rehearse(self, is_on: bool) -> None:
        self.is_rehearsing = is_on

    def close(self) -> None:
        self.is_on = self.is_rehearsing = False
        self._calls.remove_layers({id(part) for part in self._parts})


class _RecomputedModule:
    is_compiled = False

    def __init__(self, owner: RecomputedModules, path: str, module: Any) -> None:
        self._owner, self.path, self.module = owner, path, module
        self.rehearsed: set[bool] = set()
        """Whether autocast was on in the calls that were rehearsed."""

    def run(self, call: Call, args: tuple[Any, ...], options: dict[str, Any]) -> Any:
        owner = self._owner
        is_cast = torch.is_autocast_enabled("cpu")
        if owner.is_rehearsing and owner.trouble is None and is_cast not in self.rehearsed:
            self.rehearsed.add(is_cast)
            return self._watched(call, args, options)
        if not owner.is_on:
            return call(*args, **options)
        return _recomputed(call, *args, **options)

    def _watched(self, call: Call, args: tuple[Any, ...], options: dict[str, Any]) -> Any:
        """Compares both forms in a rehearsal, then calls the module for the training and checks
        that this changes nothing but its output."""
        try:
            plain = rehearse(self.module, call, args, options)
            again = rehearse(self.module, functools.partial(_recomputed, call), args, options)
            if not _same_bits(plain, again):
                self._owner.trouble = f"module {self.path} computes other bits the second time"
        except Exception as error:
            first = (str(error).strip() or type(error).__name__).splitlines()[0]
            self._owner.trouble = f"module {self.path} cannot be recomputed: {first[:200]}"
        states, before = random_states(), state_versions(self.module)
        buffers = [(buffer, buffer.clone()) for buffer in self.module.buffers()]
        result = call(*args, **options)
        generator = changed_generator((torch.get_rng_state(), *states[1:]))
        if generator is not None:  # checkpoint keeps torch's own
            self._owner.trouble = f"module {self.path} uses the random state of {generator}"
        is_kept = all(torch.equal(buffer, content) for buffer, content in buffers)
        if not is_kept or state_versions(self.module) != before:
            self._owner.trouble = f"a forward of module {self.path} changes its buffers or state"
        return result


def _recomputed(call: Call, *args: Any, **options: Any) -> Any:
    return checkpoint(functools.partial(call, **options), *args, use_reentrant=False)


def _same_bits(ones: list[Any], others: list[Any]) -> bool:
    return len(ones) == len(others) and all(
        (one is None and other is None)
        or (one is not None and other is not None and torch.equal(one, other))
        for one, other in zip(ones, others, strict=True)
    )
