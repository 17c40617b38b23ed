"""Updates parameters in parts, as their gradients arrive after the program called ``step``.

A partial optimizer of the same class as the program's optimizer makes the updates. It shares the
state of the program's optimizer and has only the parameters to update. Its learning rates are those
at the time of ``step``, since schedulers change them right after it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from copy import copy
from typing import Any

import torch
from torch._functorch import pyfunctorch
from torch.autograd.profiler import record_function
from torch.optim import optimizer as torch_optimizer
from torch.utils._python_dispatch import _disable_current_modes

_HOOKS = (
    "_optimizer_step_pre_hooks",
    "_optimizer_step_post_hooks",
    "_optimizer_state_dict_pre_hooks",
    "_optimizer_state_dict_post_hooks",
    "_optimizer_load_state_dict_pre_hooks",
    "_optimizer_load_state_dict_post_hooks",
)

_NO_RANGE = nullcontext()

PART_OF = "_augury_part_of"
"""Attribute that partial optimizers have, and optimizers of the program do not."""


def without_program_modes() -> AbstractContextManager[Any]:
    """Returns a context in which the runtime works while modes of the program are active. The
    program's inference mode, autocast, torch functions, dispatch modes and function transforms do
    not apply in it."""
    is_transformed = torch._C._functorch.maybe_current_level() is not None
    is_dispatched = torch._C._len_torch_dispatch_stack() > 0
    if not (
        torch.is_inference_mode_enabled()
        or torch.is_autocast_enabled("cpu")
        or is_transformed
        or is_dispatched
    ):
        plain: AbstractContextManager[Any] = torch._C.DisableTorchFunction()
        return plain
    stack = ExitStack()
    stack.enter_context(torch._C.DisableTorchFunction())
    stack.enter_context(torch.inference_mode(False))
    stack.enter_context(torch.autocast("cpu", enabled=False))
    if is_transformed:
        stack.enter_context(pyfunctorch.temporarily_clear_interpreter_stack())
    if is_dispatched:
        stack.enter_context(_disable_current_modes())
    return stack


class Updates:
    """Updates of the parameters of one optimizer, all at once or in parts."""

    def __init__(self, optimizer: Any) -> None:
        self._optimizer = optimizer
        kind = type(optimizer)
        # The wrapper of torch around ``step`` runs hooks, which are for calls of the program.
        self._step = getattr(kind.step, "__wrapped__", kind.step)
        self.range_name = f"Optimizer.step#{kind.__name__}.step"
        self._partial = object.__new__(kind)
        self._state: Any = {}
        """The state of the optimizer when ``step`` was called."""
        self._groups: list[dict[str, Any]] = []
        """The settings of each parameter group when ``step`` was called."""
        self._group_of: dict[int, int] = {}
        """Index of a parameter's group, by the ``id`` of the parameter."""

    @contextmanager
    def as_program_step(self) -> Iterator[None]:
        """Makes the body look like a ``step`` of the program: runs torch's global optimizer hooks
        around it, and makes it visible to profilers and learning-rate schedulers."""
        optimizer = self._optimizer
        optimizer._opt_called = True  # learning-rate schedulers check it
        with self._profiler_range():
            for hook in [*torch_optimizer._global_optimizer_pre_hooks.values()]:
                hook(optimizer, (optimizer,), {})
            yield
            for hook in [*torch_optimizer._global_optimizer_post_hooks.values()]:
                hook(optimizer, (optimizer,), {})

    def _profiler_range(self) -> AbstractContextManager[Any]:
        """Returns a context that torch's profiler records as a step, if a profiler is active."""
        return record_function(self.range_name) if torch.autograd._profiler_enabled() else _NO_RANGE

    def creates_state(self, exchanged: Mapping[int, int]) -> bool:
        """Whether the next update of an exchanged parameter creates state for it. Updates that the
        program did not ask for must not: it may iterate over the state, or clear it, after
        ``step``. The keys of ``exchanged`` are the ``id`` of parameters."""
        state = self._optimizer.state
        with torch._C.DisableTorchFunction():
            return any(
                id(parameter) in exchanged and not state.get(parameter)
                for group in self._optimizer.param_groups
                if not self._is_stateless(group)
                for parameter in group["params"]
            )

    def _is_stateless(self, group: Mapping[str, Any]) -> bool:
        return type(self._optimizer) is torch.optim.SGD and not group["momentum"]

    def unit_of_state(self, unit_of: Mapping[int, int]) -> dict[int, int]:
        """Returns the unit of each state tensor, by the ``id`` of the tensor. ``unit_of`` is the
        unit of each parameter, by the ``id`` of the parameter."""
        return {
            id(value): unit_of[id(parameter)]
            for parameter, state in self._state.items()
            if id(parameter) in unit_of
            for value in state.values()
            if isinstance(value, torch.Tensor)
        }

    def step_all(self) -> None:
        """Updates all parameters with their current gradients, without the hooks of ``step``."""
        with torch._C.DisableTorchFunction():
            self._step(self._optimizer)

    def snapshot(self) -> None:
        """Keeps the settings and the state at the time of ``step``. The program may change, clear
        or replace them before the last update."""
        groups = self._optimizer.param_groups
        self._groups = [
            {
                name: value.clone() if isinstance(value, torch.Tensor) else value
                for name, value in group.items()
                if name not in ("params", "param_names")
            }
            for group in groups
        ]
        self._partial.__dict__.update(self._optimizer.__dict__)
        for name in ("step", "zero_grad"):
            self._partial.__dict__.pop(name, None)
        self._partial.__dict__[PART_OF] = self._optimizer
        for name in _HOOKS:
            self._partial.__dict__[name] = {}
        self._state = copy(self._optimizer.state)
        self._group_of = {id(p): n for n, group in enumerate(groups) for p in group["params"]}

    def not_exchanged(self, exchanged: Mapping[int, int]) -> list[Any]:
        """Returns the parameters that have a gradient and are not exchanged. The keys of
        ``exchanged`` are the ``id`` of parameters."""
        if self._group_of.keys() <= exchanged.keys():
            return []
        return [
            parameter
            for group in self._optimizer.param_groups
            for parameter in group["params"]
            if id(parameter) not in exchanged and parameter.grad is not None
        ]

    def apply(self, parameters: Sequence[Any], gradients: Sequence[Any]) -> None:
        """Updates parameters with these gradients. The ``grad`` of the parameters is unchanged
        afterwards."""
        chosen: dict[int, list[Any]] = {}
        for parameter in parameters:
            group = self._group_of.get(id(parameter))
            if group is not None:
                chosen.setdefault(group, []).append(parameter)
        if not chosen:
            return
        self._partial.state = self._state
        stateless = [parameter for parameter in parameters if parameter not in self._state]
        self._partial.param_groups = [
            {**self._groups[group], "params": chosen[group]} for group in sorted(chosen)
        ]
        previous = [parameter.grad for parameter in parameters]
        for parameter, gradient in zip(parameters, gradients, strict=True):
            parameter.grad = gradient
        try:
            with self._profiler_range():
                self._step(self._partial)
        finally:
            for parameter, gradient in zip(parameters, previous, strict=True):
                parameter.grad = gradient
            for parameter in stateless:
                if parameter in self._state:
                    self._optimizer.state[parameter] = self._state[parameter]
