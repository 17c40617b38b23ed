"""Lets a recorder ask whether the runtime could follow a plan in the training that it records."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from augury.core.plan.plan_board import board


def tell_refusals() -> None:
    """To the recorder of this process, when it asks; imports no framework before."""
    board.refusals = _refusals


def _refusals(models: Sequence[Any], optimizers: Sequence[Any]) -> list[str]:
    """Why no plan of pieces would be followed, each as the end of a sentence; ``models``: those
    that DistributedDataParallel wraps."""
    from augury.runtime.torch.compatibility import why_never  # noqa: PLC0415

    if len(models) != 1:
        number = "several models are" if models else "no model is"
        return [f"{number} trained by DistributedDataParallel"]
    model = models[0]
    own = {id(parameter) for parameter in model.parameters()}
    training = [
        optimizer
        for optimizer in optimizers
        if any(id(p) in own for group in optimizer.param_groups for p in group["params"])
    ]
    found = [why_never(model, optimizer) for optimizer in training[:1]]
    return [reason for reason in found if reason is not None]
