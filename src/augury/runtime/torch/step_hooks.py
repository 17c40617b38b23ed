"""The hooks through which PlannedSteps sees gradients, backward, forward and optimizer steps."""

from __future__ import annotations

import functools
from typing import Any, Protocol

import torch

from augury.runtime.torch.program.hooks import GradientHooks, Hook, ModuleHooks, ReplacedMethod
from augury.runtime.torch.program.unseen_calls import UnseenCalls
from augury.runtime.torch.steps import PlannedSteps

_PLACES = ((torch.Tensor, "backward"), (torch.autograd, "backward"))


class BackwardListener(Protocol):
    def before_backward(self) -> None: ...

    def after_backward(self) -> None: ...

    def failed_backward(self) -> None: ...


class BackwardHook:
    """Reports the start, end and failure of every backward that the program calls.

    Only outermost calls are reported: recomputation calls backward too. Autograd's own callbacks
    come too early to enter a torch function mode, since it restores the thread's state after them,
    and do not come at all when backward fails. So both functions that programs call are replaced:
    where the program has a mode of its own, ``Tensor.backward`` is called without that mode."""

    def __init__(self, listener: BackwardListener) -> None:
        self._listener = listener
        self._is_on = True
        self._is_inside = False
        self._replaced: list[tuple[Any, str, Any, Any]] = []
        for owner, name in _PLACES:
            was = getattr(owner, name)
            new = self._reporting(was)
            setattr(owner, name, new)
            self._replaced.append((owner, name, was, new))

    def _reporting(self, was: Any) -> Any:
        @functools.wraps(was)
        def backward(*args: Any, **options: Any) -> Any:
            if not self._is_on or self._is_inside or torch._C._current_graph_task_id() != -1:
                return was(*args, **options)
            self._is_inside = True
            self._listener.before_backward()
            try:
                result = was(*args, **options)
            except BaseException:  # also an interrupt
                self._listener.failed_backward()
                raise
            finally:
                self._is_inside = False
            self._listener.after_backward()
            return result

        return backward

    def remove(self) -> None:
        """Restores the functions. Where another wrapper was put around one, it stays without
        effect."""
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
        UnseenCalls(steps),
    ]


def _require_whole(steps: PlannedSteps, *_: Any) -> None:
    steps.require_whole()
