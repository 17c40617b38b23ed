"""The hooks through which PlannedSteps sees gradients, backward, forward and optimizer steps."""

from __future__ import annotations

import functools
from typing import Any, Protocol

import torch

from augury.runtime.torch.program.hooks import GradientHooks, Hook, ModuleHooks, ReplacedMethod
from augury.runtime.torch.steps import PlannedSteps

_PLACES = ((torch.Tensor, "backward"), (torch.autograd, "backward"))


class BackwardListener(Protocol):
    def before_backward(self) -> None: ...

    def after_backward(self) -> None: ...

    def failed_backward(self) -> None: ...


class BackwardHook:
    """Of the outermost calls only: recomputation has some of its own."""

    def __init__(self, told: BackwardListener) -> None:
        self._told = told
        self._is_on = True
        self._is_inside = False
        self._replaced: list[tuple[Any, str, Any, Any]] = []
        for owner, name in _PLACES:
            was = getattr(owner, name)
            new = self._telling(was)
            setattr(owner, name, new)
            self._replaced.append((owner, name, was, new))

    def _telling(self, was: Any) -> Any:
        @functools.wraps(was)
        def backward(*args: Any, **options: Any) -> Any:
            if not self._is_on or self._is_inside or torch._C._current_graph_task_id() != -1:
                return was(*args, **options)
            self._is_inside = True
            self._told.before_backward()
            try:
                result = was(*args, **options)
            except BaseException:  # an interrupt as well
                self._told.failed_backward()
                raise
            finally:
                self._is_inside = False
            self._told.after_backward()
            return result

        return backward

    def remove(self) -> None:
        """Where somebody else has wrapped them since, they only tell nothing any more."""
        self._is_on = False
        for owner, name, was, new in self._replaced:
            if getattr(owner, name) is new:
                setattr(owner, name, was)


def attach_step_hooks(
    steps: PlannedSteps, model: Any, optimizer: Any, parameters: list[Any]
) -> list[Any]:
    """Attaches the hooks of a training that follows a plan. Returns objects with ``remove``."""
    steps.gradient_hooks = GradientHooks(parameters, steps.on_gradient)
    hooks: list[Any] = [steps.gradient_hooks]
    ids = {id(parameter) for parameter in parameters}
    owned = [
        (module, [id(p) for p in module._parameters.values() if id(p) in ids])
        for module in model.module.modules()
    ]
    given = [(module, own) for module, own in owned if own or module is model.module]
    steps.module_hooks = ModuleHooks(given, steps.before_module)
    hooks.append(steps.module_hooks)
    for whole in (model, model.module):
        hooks.append(whole.register_state_dict_pre_hook(Hook(_require_whole, steps)))
    return [
        *hooks,
        optimizer.register_state_dict_pre_hook(lambda _: steps.require_whole()),
        optimizer.register_load_state_dict_pre_hook(lambda *_: steps.flush()),
        ReplacedMethod(optimizer, "step", steps.on_step),
        ReplacedMethod(optimizer, "zero_grad", steps.on_zero_grad),
        BackwardHook(steps),
    ]


def _require_whole(steps: PlannedSteps, *_: Any) -> None:
    steps.require_whole()
