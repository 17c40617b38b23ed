"""Trainings that are done twice, with stock DDP and under a plan, to end with the same bits."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from augury.core.kinds import OpKind
from augury.core.plan import Mode, Order, Piece, Plan, Slice
from augury.core.problem import Gradient, Network, Problem
from augury.runtime.torch_names import trained_parameters
from augury.runtime.torch_scheduled import Scheduled, schedule_training


def problem_of(model: DistributedDataParallel) -> Problem:
    """Needed in the order of registration, released in the opposite one."""
    parameters = trained_parameters(model)
    last = len(parameters)
    return Problem(
        gradients=tuple(
            Gradient(
                name=name,
                size_bytes=p.nbytes,
                item_bytes=p.element_size(),
                release_ns=1_000_000 * (last - n),
                need_ns=500_000 * n,
            )
            for n, (name, p) in enumerate(parameters.items())
        ),
        backward_ns=1_000_000 * last,
        forward_ns=500_000 * last,
        network=Network(ns_per_byte=10.0, overhead_ns=100_000),
    )


def order_of(
    problem: Problem, *, kind: str = "urgent", has_barrier: bool = False, slice_bytes: int = 4096
) -> Order:
    """``urgent``: what is released last leaves first among what is left, in slices, two by two;
    ``release``: whole gradients as they come; ``halves``: as DeAR does it."""
    numbers = range(len(problem.gradients))
    pieces: list[Piece] = []
    if kind == "urgent":
        slices = []
        for number in reversed(numbers):
            size = problem.gradients[number].size_bytes
            for offset in range(0, size, slice_bytes):
                slices.append(
                    Slice(
                        gradient=number,
                        offset_bytes=offset,
                        size_bytes=min(slice_bytes, size - offset),
                    )
                )
        head = len(slices) // 3
        rest = sorted(slices[head:], key=lambda part: (part.gradient, part.offset_bytes))
        slices = slices[:head] + rest
        for n in range(0, len(slices), 2):
            pieces.append(Piece(op=OpKind.ALL_REDUCE, slices=tuple(slices[n : n + 2])))
    else:
        whole = [
            Slice(gradient=n, offset_bytes=0, size_bytes=problem.gradients[n].size_bytes)
            for n in reversed(numbers)
        ]
        groups = [tuple(whole[n : n + 3]) for n in range(0, len(whole), 3)]
        if kind == "release":
            pieces = [Piece(op=OpKind.ALL_REDUCE, slices=group) for group in groups]
        else:
            pieces = [Piece(op=OpKind.REDUCE_SCATTER, slices=group) for group in groups]
            pieces += [
                Piece(op=OpKind.ALL_GATHER, slices=groups[n], after=n)
                for n in reversed(range(len(groups)))
            ]
    return Order(policy=kind, pieces=tuple(pieces), has_barrier=has_barrier)


def plan_of(model: DistributedDataParallel, **options: Any) -> Plan:
    problem = problem_of(model)
    order = order_of(problem, **options)
    return Plan(mode=Mode.PIECES, num_ranks=dist.get_world_size(), problem=problem, order=order)


class Net(nn.Module):
    """Convolution, normalisation with buffers, and layers of several sizes."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 8, 3)
        self.norm = nn.BatchNorm2d(8)
        self.body = nn.Sequential(nn.Linear(8 * 36, 64), nn.ReLU(), nn.Linear(64, 64))
        self.scale = nn.Parameter(torch.ones(64))
        self.head = nn.Linear(64, 5)

    def forward(self, inputs):
        hidden = self.norm(self.conv(inputs)).relu().flatten(1)
        return self.head(self.body(hidden) * self.scale)


def batches(seed: int = 0) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    """This rank's own."""
    generator = torch.Generator().manual_seed(100 * seed + dist.get_rank())
    while True:
        inputs = torch.randn(4, 3, 8, 8, generator=generator)
        yield inputs, torch.randint(5, (4,), generator=generator)


@dataclass
class Training:
    """One of the two. ``step`` is the whole loop body of a program."""

    model: DistributedDataParallel
    optimizer: Any
    scheduled: Scheduled | None = None
    data: Iterator[Any] = field(default_factory=batches)
    notes: list[Any] = field(default_factory=list)

    def loss(self) -> torch.Tensor:
        inputs, targets = next(self.data)
        return nn.functional.cross_entropy(self.model(inputs), targets)

    def step(self) -> None:
        self.optimizer.zero_grad()
        self.loss().backward()
        self.optimizer.step()


def both(
    make_optimizer: Callable[[nn.Module], Any] = lambda m: torch.optim.SGD(
        m.parameters(), lr=0.1, momentum=0.9
    ),
    *,
    net: Callable[[], nn.Module] = Net,
    ddp: dict[str, Any] | None = None,
    plan: dict[str, Any] | None = None,
) -> Iterator[Training]:
    """Stock first, then the same under a plan."""
    torch.manual_seed(7)
    template = net()
    for is_planned in (False, True):
        model = DistributedDataParallel(copy.deepcopy(template), **(ddp or {}))
        training = Training(model, make_optimizer(model))
        if is_planned:
            training.scheduled = schedule_training(
                model, training.optimizer, plan_of(model, **(plan or {})), replan=False
            )
            assert training.scheduled.reason is None, training.scheduled.reason
        yield training
        if training.scheduled is not None:
            training.scheduled.close()


def bits(training: Training) -> dict[str, Any]:
    """Everything that must be equal: parameters, buffers, the optimizer's state."""
    found = {name: value.clone() for name, value in training.model.state_dict().items()}
    for number, state in training.optimizer.state_dict()["state"].items():
        for name, value in state.items():
            found[f"{number}.{name}"] = value.clone() if torch.is_tensor(value) else value
    return found


def assert_same(stock: dict[str, Any], planned: dict[str, Any]) -> None:
    assert stock.keys() == planned.keys()
    for name, value in stock.items():
        if torch.is_tensor(value):
            assert torch.equal(value, planned[name]), (
                name,
                (value - planned[name]).abs().max().item(),
            )
        else:
            assert value == planned[name], name


def compare(train: Callable[[Training], None], **options: Any) -> None:
    """``train`` is done twice and must leave the same bits and the same notes."""
    results = []
    for training in both(**options):
        train(training)
        results.append((bits(training), training.notes))
    assert_same(results[0][0], results[1][0])
    assert repr(results[0][1]) == repr(results[1][1])
