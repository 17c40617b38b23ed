"""Deferred updates of some parameters of an optimizer, after its ``step`` was called.

An optimizer of the same class does them. It shares the state of the program's optimizer and has
only the parameters to update, with the learning rates at the time of ``step``, since schedulers
change them right after it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from copy import copy
from typing import Any

import torch
from torch.autograd.profiler import record_function
from torch.optim import optimizer as torch_optimizer

_HOOKS = (
    "_optimizer_step_pre_hooks",
    "_optimizer_step_post_hooks",
    "_optimizer_state_dict_pre_hooks",
    "_optimizer_state_dict_post_hooks",
    "_optimizer_load_state_dict_pre_hooks",
    "_optimizer_load_state_dict_post_hooks",
)

_UNSEEN = nullcontext()

PART_OF = "_augury_part_of"
"""Marks such an optimizer, as opposed to those of the program."""


def undisturbed() -> AbstractContextManager[Any]:
    """Returns a context for work of the runtime within the program's forward, without the modes
    that are active there."""
    if not (torch.is_inference_mode_enabled() or torch.is_autocast_enabled("cpu")):
        plain: AbstractContextManager[Any] = torch._C.DisableTorchFunction()
        return plain
    stack = ExitStack()
    stack.enter_context(torch._C.DisableTorchFunction())
    stack.enter_context(torch.inference_mode(False))
    stack.enter_context(torch.autocast("cpu", enabled=False))
    return stack


class Updates:
    def __init__(self, optimizer: Any) -> None:
        self._optimizer = optimizer
        kind = type(optimizer)
        # Without torch's wrapper: its hooks are for the program's calls of ``step``.
        self._step = getattr(kind.step, "__wrapped__", kind.step)
        self.range_name = f"Optimizer.step#{kind.__name__}.step"
        self._part = object.__new__(kind)
        self._state: Any = {}
        """The state of the optimizer when ``step`` was called."""
        self._groups: list[dict[str, Any]] = []
        self._group_of: dict[int, int] = {}

    @contextmanager
    def announced(self) -> Iterator[None]:
        """Runs the hooks of all optimizers and marks the step for profilers and schedulers."""
        optimizer = self._optimizer
        optimizer._opt_called = True  # learning-rate schedulers check it
        with self._seen():
            for hook in [*torch_optimizer._global_optimizer_pre_hooks.values()]:
                hook(optimizer, (optimizer,), {})
            yield
            for hook in [*torch_optimizer._global_optimizer_post_hooks.values()]:
                hook(optimizer, (optimizer,), {})

    def _seen(self) -> AbstractContextManager[Any]:
        """Returns a context that makes the step visible to torch's profiler, if one is active."""
        return record_function(self.range_name) if torch.autograd._profiler_enabled() else _UNSEEN

    @property
    def has_state(self) -> bool:
        """Whether the optimizer has stepped before: its first step creates its state."""
        return bool(self._optimizer.state) or self._is_stateless()

    def _is_stateless(self) -> bool:
        return type(self._optimizer) is torch.optim.SGD and not any(
            group["momentum"] for group in self._optimizer.param_groups
        )

    def states(self, unit_of: Mapping[int, int]) -> dict[int, int]:
        """Returns units by the ``id`` of the state tensors of their parameters."""
        return {
            id(value): unit_of[id(parameter)]
            for parameter, kept in self._state.items()
            if id(parameter) in unit_of
            for value in kept.values()
            if isinstance(value, torch.Tensor)
        }

    def step_whole(self) -> None:
        """Steps with the gradients as they are, without the hooks around ``step``."""
        with torch._C.DisableTorchFunction():
            self._step(self._optimizer)

    def snapshot(self) -> None:
        """Keeps the settings and the state at the time of ``step``: the program may change, clear
        or replace them before the updates are done."""
        groups = self._optimizer.param_groups
        self._groups = [
            {
                name: value.clone() if isinstance(value, torch.Tensor) else value
                for name, value in group.items()
                if name not in ("params", "param_names")
            }
            for group in groups
        ]
        self._part.__dict__.update(self._optimizer.__dict__)
        for name in ("step", "zero_grad"):
            self._part.__dict__.pop(name, None)
        self._part.__dict__[PART_OF] = self._optimizer
        for name in _HOOKS:
            self._part.__dict__[name] = {}
        self._state = copy(self._optimizer.state)
        self._group_of = {id(p): n for n, group in enumerate(groups) for p in group["params"]}

    def others(self, known: Mapping[int, int]) -> list[Any]:
        """Returns parameters with a gradient whose ids are not in ``known``."""
        if self._group_of.keys() <= known.keys():
            return []
        return [
            parameter
            for group in self._optimizer.param_groups
            for parameter in group["params"]
            if id(parameter) not in known and parameter.grad is not None
        ]

    def apply(self, parameters: Sequence[Any], gradients: Sequence[Any]) -> None:
        """Updates parameters with these gradients. Their own ``grad`` stays as it is."""
        chosen: dict[int, list[Any]] = {}
        for parameter in parameters:
            group = self._group_of.get(id(parameter))
            if group is not None:
                chosen.setdefault(group, []).append(parameter)
        if not chosen:
            return
        self._part.state = self._state
        new = [parameter for parameter in parameters if parameter not in self._state]
        self._part.param_groups = [
            {**self._groups[group], "params": chosen[group]} for group in sorted(chosen)
        ]
        kept = [parameter.grad for parameter in parameters]
        for parameter, gradient in zip(parameters, gradients, strict=True):
            parameter.grad = gradient
        try:
            with self._seen():
                self._step(self._part)
        finally:
            for parameter, gradient in zip(parameters, kept, strict=True):
                parameter.grad = gradient
            for parameter in new:
                if parameter in self._state:
                    self._optimizer.state[parameter] = self._state[parameter]
