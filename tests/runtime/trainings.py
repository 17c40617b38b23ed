"""Trainings that run twice, with stock DDP and under a plan, and must end with the same bits."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from augury.core.enums import OpKind
from augury.core.plan.plan import (
    CommunicationSection,
    Mode,
    Order,
    Piece,
    Plan,
    Slice,
    communication_plan,
)
from augury.core.plan.problem import Gradient, Network, Problem
from augury.runtime.torch.program.parameter_names import trained_parameters
from augury.runtime.torch.training import Scheduled, schedule_training
from augury.runtime.trial import TrialRules

STEPS = 3


def problem_of(model: DistributedDataParallel) -> Problem:
    """Parameters are needed in the order of registration and released in reverse."""
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


@dataclass(frozen=True, kw_only=True)
class Variant:
    """Default way to follow plans in scenarios: ``kind`` as in ``order_of``, or ``buckets``."""

    kind: str = "urgent"
    lanes: int = 1
    has_trial: bool = False


VARIANTS = {
    "pieces": Variant(),
    "halves": Variant(kind="halves"),
    "lanes": Variant(kind="release", lanes=2),
    "buckets": Variant(kind="buckets"),
    "trial": Variant(has_trial=True),
}
variant = Variant()
"""Variant of this process: set before scenarios run."""
SHORT_TRIAL = TrialRules(
    warm_up_steps=0, block_steps=1, settling_steps=0, least_rounds=1, most_steps=4
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
    return Order(
        policy="augury", pieces=tuple(pieces), has_barrier=has_barrier, lanes=variant.lanes
    )


def plan_of(model: DistributedDataParallel, **options: Any) -> Plan:
    problem = problem_of(model)
    kind = options.pop("kind", variant.kind)
    has_buckets = kind == "buckets"
    order = order_of(problem, kind="release" if has_buckets else kind, **options)
    section = CommunicationSection(
        mode=Mode.DDP_BUCKETS if has_buckets else Mode.PIECES,
        problem=problem,
        order=order,
        bucket_caps_bytes=(1000, 20_000) if has_buckets else (),
    )
    return communication_plan(section, num_ranks=dist.get_world_size())


def follow(model: DistributedDataParallel, optimizer: Any, plan: Plan) -> Scheduled:
    """Applies the plan with re-planning on."""
    return schedule_training(
        model,
        optimizer,
        plan,
        trial=SHORT_TRIAL if variant.has_trial else None,
        log_every=1,
        searches_here=True,
    )


class Net(nn.Module):
    """Convolution, normalisation with buffers, and layers of several sizes."""

    def __init__(self) -> None:
        super().__init__()
        # Normalisation takes a bias out again: its gradient would be rounding errors.
        self.conv = nn.Conv2d(3, 8, 3, bias=False)
        self.norm = nn.BatchNorm2d(8)
        self.body = nn.Sequential(nn.Linear(8 * 36, 64), nn.ReLU(), nn.Linear(64, 64))
        self.scale = nn.Parameter(torch.ones(64))
        self.head = nn.Linear(64, 5)

    def forward(self, inputs):
        hidden = self.norm(self.conv(inputs)).relu().flatten(1)
        return self.head(self.body(hidden) * self.scale)


class Small(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(12, 24), nn.Linear(24, 24)
        self.last = nn.Linear(24, 5)

    def forward(self, inputs):
        return self.last(self.second(self.first(inputs[:, 0, 0:3, 0:4].flatten(1)).tanh()).relu())


def batches(seed: int = 0) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    """Yields this rank's own batches."""
    generator = torch.Generator().manual_seed(100 * seed + dist.get_rank())
    while True:
        inputs = torch.randn(4, 3, 8, 8, generator=generator)
        yield inputs, torch.randint(5, (4,), generator=generator)


@dataclass
class Training:
    """One of the two trainings. ``step`` is the whole loop body of a program."""

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
    """Returns the stock training first, then the one under a plan."""
    torch.manual_seed(7)
    template = net()
    for is_planned in (False, True):
        model = DistributedDataParallel(copy.deepcopy(template), **(ddp or {}))
        training = Training(model, make_optimizer(model))
        if is_planned:
            training.scheduled = follow(model, training.optimizer, plan_of(model, **(plan or {})))
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


def assert_same(stock: Any, planned: Any, where: str = "") -> None:
    """Compares bit by bit with two ranks; with more ranks, sums have another order."""
    if isinstance(stock, dict):
        assert stock.keys() == planned.keys(), where
        for name, value in stock.items():
            assert_same(value, planned[name], f"{where} {name}")
    elif isinstance(stock, list | tuple):
        assert len(stock) == len(planned), where
        for number, (one, other) in enumerate(zip(stock, planned, strict=True)):
            assert_same(one, other, f"{where} {number}")
    elif torch.is_tensor(stock) and dist.get_world_size() == 2:
        assert torch.equal(stock, planned), (where, (stock - planned).abs().max().item())
    elif torch.is_tensor(stock):
        assert stock.dtype == planned.dtype, where
        largest = stock.abs().max().item() if stock.numel() else 0.0
        off = (stock - planned).abs().max().item() if stock.numel() else 0.0
        assert off <= max(1e-9 * largest, 1e-14), (where, off)
    elif isinstance(stock, float) and dist.get_world_size() > 2:
        assert abs(stock - planned) <= 1e-9 * max(1.0, abs(stock)), where
    else:
        assert stock == planned, where


def compare(train: Callable[[Training], None], **options: Any) -> None:
    """Runs ``train`` twice; both must leave the same bits and the same notes."""
    results = []
    for training in both(**options):
        train(training)
        results.append((bits(training), training.notes))
    assert_same(*results)


def train(training: Training) -> None:
    """A few ordinary steps."""
    for _ in range(STEPS):
        training.step()


def checksum(tensor: torch.Tensor | None) -> float | None:
    return None if tensor is None else tensor.double().sum().item()
