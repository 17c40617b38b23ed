"""Facts of the job that torch knows: process groups, DDP's buckets, modules, memory."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from augury.capture.torch.activations import SavedActivations
from augury.capture.torch.ddp_buckets import ddp_facts
from augury.capture.torch.memory import held_memory
from augury.capture.torch.module_ranges import ModuleRanges
from augury.capture.torch.modules import find_modules
from augury.core.plan.plan_board import board
from augury.core.plan.plan_status import MAX_REASON_CHARS

MAX_REFUSALS = 100

if TYPE_CHECKING:
    from torch.optim import Optimizer


def job_facts(optimizers: Sequence[Optimizer]) -> dict[str, Any]:
    """What cannot be found out is left out."""
    trained = find_modules(optimizers)
    names = trained.name_of_parameter
    asked: dict[str, Callable[[], Any]] = {
        "groups": group_facts,
        "modules": lambda: trained.class_names,
        "ddp": lambda: [ddp_facts(model, names) for model in trained.ddp],
        "memory": lambda: held_memory(optimizers, names),
        "refusals": lambda: _refusals(trained.ddp, optimizers),
    }
    facts: dict[str, Any] = {}
    for name, ask in asked.items():
        with suppress(Exception):
            facts[name] = ask()
    return facts


def _refusals(models: Sequence[Any], optimizers: Sequence[Optimizer]) -> list[str]:
    """Why no plan would be followed here, as far as the runtime is at hand."""
    asked = board.refusals(models, optimizers) if board.refusals is not None else []
    return [reason[:MAX_REASON_CHARS] for reason in asked[:MAX_REFUSALS]]


def group_facts() -> list[dict[str, Any]]:
    from torch import distributed

    if not (distributed.is_available() and distributed.is_initialized()):
        return []
    return [
        {
            "name": name,
            "ranks": distributed.get_process_group_ranks(group),
            "backend": distributed.get_backend(group),
        }
        for group, name in distributed.distributed_c10d._world.pg_names.items()
    ]


class DetailProbes:
    """What the detailed window looks at besides the profiler: module ranges, and in its first
    step what autograd saves."""

    def __init__(self) -> None:
        self._ranges = ModuleRanges()
        self._activations = SavedActivations(self._ranges)

    def start(self, optimizers: Sequence[Optimizer]) -> None:
        trained = find_modules(optimizers)
        self._ranges.start(trained)
        self._activations.start(trained)

    def end_first_step(self) -> None:
        self._activations.stop()

    def stop(self) -> None:
        self._activations.stop()
        self._ranges.stop()

    def memory(self) -> list[dict[str, Any]]:
        return [
            {"kind": "activation", "layer": layer, "size_bytes": size_bytes}
            for layer, size_bytes in self._activations.by_layer().items()
        ]
