"""Finds the process groups, DDP buckets, modules and memory of a rank."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, TypeVar

from augury.capture.framework import FrameworkFacts
from augury.capture.torch.ddp_buckets import ddp_facts
from augury.capture.torch.gradient_order import GradientOrder
from augury.capture.torch.memory import SavedActivations, held_memory
from augury.capture.torch.module_ranges import ForwardRanges, ModuleRanges
from augury.capture.torch.module_times.forward_calls import ForwardCalls
from augury.capture.torch.modules import find_modules
from augury.core.plan.plan_board import board
from augury.core.plan.plan_status import MAX_REASON_CHARS
from augury.core.trace.rank_record import MAX_REFUSALS, Group, RecordedMemory

if TYPE_CHECKING:
    from torch.optim import Optimizer

_Fact = TypeVar("_Fact")


def find_facts(optimizers: Sequence[Optimizer], order: GradientOrder) -> FrameworkFacts:
    trained = find_modules(optimizers)
    names = trained.name_of_parameter
    return FrameworkFacts(
        groups=_attempt(process_groups),
        modules=_attempt(lambda: trained.class_names),
        ddp=_attempt(lambda: [ddp_facts(model, names, order.of(model)) for model in trained.ddp]),
        memory=_attempt(lambda: held_memory(optimizers, names)),
        num_threads=_attempt(_num_threads),
        refusals=_attempt(lambda: _refusals(trained.ddp, optimizers)),
    )


def _attempt(find: Callable[[], _Fact]) -> _Fact | None:
    with suppress(Exception):
        return find()
    return None


def _num_threads() -> int:
    import torch

    num_threads: int = torch.get_num_threads()
    return num_threads


def _refusals(models: Sequence[Any], optimizers: Sequence[Optimizer]) -> list[str]:
    """Returns why no plan would be followed here; empty where the runtime is not loaded."""
    reasons = board.refusals(models, optimizers) if board.refusals is not None else []
    return [reason[:MAX_REASON_CHARS] for reason in reasons[:MAX_REFUSALS]]


def process_groups() -> list[Group]:
    from torch import distributed

    if not (distributed.is_available() and distributed.is_initialized()):
        return []
    return [
        Group(
            name=name,
            ranks=distributed.get_process_group_ranks(group),
            backend=distributed.get_backend(group),
        )
        for group, name in distributed.distributed_c10d._world.pg_names.items()
    ]


class DetailProbes:
    """Observations of the detailed window besides the profiler: module ranges and, in its first
    step, the activations that autograd saves, the order of gradients and, where modules are to be
    timed, their arguments."""

    def __init__(self, order: GradientOrder, calls: ForwardCalls | None) -> None:
        self._order = order
        self._calls = calls
        self._ranges = ModuleRanges()
        self._activations = SavedActivations(self._ranges)

    def start(self, optimizers: Sequence[Optimizer]) -> None:
        trained = find_modules(optimizers)
        self._ranges.start(trained)
        self._activations.start(trained)
        self._order.start(trained.ddp)
        if self._calls is not None:
            self._calls.start(trained)

    def end_step(self) -> None:
        self._activations.stop()
        self._order.stop()
        if self._calls is not None:
            self._calls.stop()

    def stop(self) -> None:
        self.end_step()
        self._ranges.stop()

    def saved_memory(self) -> list[RecordedMemory]:
        return [
            RecordedMemory(kind="activation", layer=layer, size_bytes=size_bytes)
            for layer, size_bytes in self._activations.by_layer().items()
        ]


class LightProbes:
    """Observations of a light window besides the profiler: the outermost forward calls."""

    def __init__(self, forwards: ForwardRanges) -> None:
        self._forwards = forwards

    def start(self, optimizers: Sequence[Optimizer]) -> None:
        self._forwards.start(optimizers)

    def end_step(self) -> None:
        self._forwards.end_step()

    def stop(self) -> None:
        self._forwards.stop()

    def saved_memory(self) -> list[RecordedMemory]:
        return []
