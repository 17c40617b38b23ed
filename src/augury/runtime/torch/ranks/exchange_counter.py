"""Counts exchanges of gradients: the steps of a training that all ranks take together.

A rank may run any number of forwards and skip updates, but DistributedDataParallel reduces
gradients on all ranks or hangs. So ranks can agree on a change only at the first and at the last
gradient of such a backward, under stock DDP as under a plan.
"""

from __future__ import annotations

from typing import Any, Protocol

import torch


class ExchangeListener(Protocol):
    """Steps are exchanges, numbered from 1."""

    def begin_step(self, step: int) -> None:
        """The first gradient of the step was computed."""

    def end_step(self, step: int) -> None:
        """All gradients of the step were computed."""


class ExchangeCounter:
    """Numbers exchanges from 1 and reports their first and last gradient to its owner."""

    def __init__(self, model: Any, owner: ExchangeListener) -> None:
        self._model = model
        self.owner = owner
        self.step = 0
        """Number of the last exchange that began."""
        self._is_open = False
        self.is_expected = False
        """Whether, under stock DDP, a forward has announced an exchange that has not begun."""
        self._hooks: list[Any] = []

    def begin(self) -> None:
        self.step += 1
        self._is_open = True
        self.owner.begin_step(self.step)

    def end(self) -> None:
        if self._is_open:
            self._is_open = False
            self.owner.end_step(self.step)

    # --- under stock DDP

    def watch_stock(self, is_on: bool) -> None:
        """Counts the exchanges of stock DDP. The gradient of one parameter marks each exchange,
        unless parameters may be unused."""
        for hook in self._hooks:
            hook.remove()
        self._hooks.clear()
        self.is_expected = False
        if not is_on:
            return
        parameters = [p for p in self._model._module_parameters if p.requires_grad]
        if not self._model.find_unused_parameters:
            parameters = parameters[-1:]
        self._hooks = [p.register_post_accumulate_grad_hook(self._on_gradient) for p in parameters]

    def after_forward(self) -> None:
        """A forward of the model under stock DDP has announced an exchange."""
        self.is_expected = True

    def _on_gradient(self, _parameter: Any) -> None:
        if self.is_expected:
            self.is_expected = False
            self.begin()
            torch.autograd.Variable._execution_engine.queue_callback(self.end)


SYNC_FLAGS = ("require_backward_grad_sync", "require_forward_param_sync")
"""Flags of DDP: whether backward reduces gradients, and whether forward broadcasts buffers."""


class HeldFlag:
    """A value for a flag of DDP while a forward runs under a plan. It keeps the program's own
    value, because a forward that fails or is interrupted leaves it there."""

    def __init__(self, asked: bool, *, shown: bool) -> None:
        self.asked = asked
        self._shown = shown

    def __bool__(self) -> bool:
        return self._shown

    def __reduce__(self) -> tuple[Any, ...]:
        return bool, (self.asked,)


def hold_flags(model: Any) -> None:
    """Keeps DDP from preparing its own reduction in the forward that begins."""
    gradients, buffers = (bool(getattr(model, name)) for name in SYNC_FLAGS)
    model.require_backward_grad_sync = HeldFlag(gradients, shown=False)
    model.require_forward_param_sync = HeldFlag(buffers, shown=buffers)


def restore_flags(model: Any) -> None:
    """Restores the program's own values, where a forward has not reached its end."""
    for name in SYNC_FLAGS:
        flag = getattr(model, name, None)
        if isinstance(flag, HeldFlag):
            setattr(model, name, flag.asked)


def announces_exchange(model: Any) -> bool:
    """Whether DDP will reduce the gradients of a forward that runs now."""
    return bool(
        torch.is_grad_enabled()
        and model.require_backward_grad_sync
        and not model._join_config.enable
    )
