"""Bytes that training holds from step to step: parameters, gradients, optimizer state."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from augury.capture.torch_calls import tensor_bytes

if TYPE_CHECKING:
    from torch.optim import Optimizer


def held_memory(optimizer: Optimizer, name_of: dict[int, str]) -> list[dict[str, Any]]:
    """At the end of a step, while gradients are still there. Of a sharded tensor, the own part."""
    held: list[dict[str, Any]] = []

    def hold(kind: str, layer: str, size_bytes: int) -> None:
        if size_bytes:
            held.append({"kind": kind, "layer": layer, "size_bytes": size_bytes})

    number = 0
    for group in optimizer.param_groups:
        for parameter in group["params"]:
            layer = name_of.get(id(parameter), f"#{number}")
            number += 1
            hold("parameter", layer, local_bytes(parameter))
            hold("gradient", layer, local_bytes(parameter.grad))
            state = optimizer.state.get(parameter, {})
            hold("optimizer", layer, sum(local_bytes(value) for value in state.values()))
    return held


def local_bytes(value: Any) -> int:
    return tensor_bytes(getattr(value, "_local_tensor", value))
