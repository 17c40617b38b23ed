"""What programs do to gradients between backward and the optimizer's step."""

from __future__ import annotations

from typing import Any

import torch

from tests.runtime.fuzz.program import Act


def edit_gradients(training: Any, edit: Act) -> None:
    parameters = [p for p in training.model.parameters() if p.grad is not None]
    # Every third or so, or all.
    chosen = parameters[edit.number % 3 :: 1 + edit.number % 4] or parameters
    if edit.name in ("foreach_zero_", "foreach_mul_"):
        gradients = [p.grad for p in chosen]
        if not gradients:
            return
        if edit.name == "foreach_zero_":
            torch._foreach_zero_(gradients)
        else:
            torch._foreach_mul_(gradients, 0.5)
        return
    if edit.name == "all_none":
        # A scaler wants one gradient at least.
        kept = [] if training.scaler is None else parameters[:1]
        for parameter in parameters[len(kept) :]:
            parameter.grad = None
        return
    if edit.name in ("none", "rank0_none"):
        if edit.name == "rank0_none" and training.rank:
            return
        for parameter in chosen if training.scaler is None else chosen[1:]:
            parameter.grad = None
        return
    for parameter in chosen:
        _edit(parameter, edit.name)


def _edit(parameter: Any, name: str) -> None:
    if name == "zero_":
        parameter.grad.zero_()
    elif name == "replace":
        parameter.grad = torch.full_like(parameter, 0.01)
    elif name == "mul_":
        parameter.grad.mul_(0.5)
    elif name == "add_":
        with torch.no_grad():
            parameter.grad.add_(parameter, alpha=0.01)
    elif name == "data":
        parameter.grad.data.clamp_(-0.1, 0.1)
    elif name == "copy_":
        parameter.grad.copy_(torch.full_like(parameter, 0.02))
    elif name == "clone":
        parameter.grad = parameter.grad.clone()
    else:
        parameter.grad = parameter.grad.detach() * 2
