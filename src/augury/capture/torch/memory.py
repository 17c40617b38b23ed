"""Bytes that training holds from step to step: parameters, gradients, optimizer state."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from augury.capture.torch.distributed_calls import tensor_bytes

if TYPE_CHECKING:
    from torch.optim import Optimizer


def held_memory(optimizers: Sequence[Optimizer], name_of: dict[int, str]) -> list[dict[str, Any]]:
    """At the end of a step, while gradients are still there. Of a sharded tensor, the own part."""
    held: list[dict[str, Any]] = []
    for optimizer in optimizers:
        parameters = [p for group in optimizer.param_groups for p in group["params"]]
        for number, parameter in enumerate(parameters):
            state = optimizer.state.get(parameter, {})
            sizes_bytes = {
                "parameter": local_bytes(parameter),
                "gradient": local_bytes(parameter.grad),
                "optimizer": sum(local_bytes(value) for value in state.values()),
            }
            layer = name_of.get(id(parameter), f"#{number}")
            held += [
                {"kind": kind, "layer": layer, "size_bytes": size_bytes}
                for kind, size_bytes in sizes_bytes.items()
                if size_bytes
            ]
    return held


def local_bytes(value: Any) -> int:
    return tensor_bytes(getattr(value, "_local_tensor", value))
