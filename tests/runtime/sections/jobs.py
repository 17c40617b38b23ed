"""Trainings of all ranks that follow the sections of a plan, compared with stock DDP."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from augury.core.plan.plan import Plan, PlanSection
from augury.core.plan.plan_board import board
from augury.core.plan.plan_status import PlanStatus, SectionStatus
from augury.core.plan.sections import (
    CompressionSection,
    FusionSection,
    LoaderSection,
    PrecisionSection,
    RecomputeSection,
    ThreadsSection,
)
from augury.runtime.torch.training import Scheduled, schedule_training
from augury.runtime.trial import TrialRules

STEPS = 28
SHORT_TRIAL = TrialRules(
    warm_up_steps=1, block_steps=3, settling_steps=0, least_rounds=1, most_steps=12
)


class Block(nn.Module):
    """A residual block with dropout, and without buffers."""

    def __init__(self) -> None:
        super().__init__()
        self.norm, self.linear, self.drop = nn.LayerNorm(24), nn.Linear(24, 24), nn.Dropout(0.3)

    def forward(self, inputs):
        return inputs + self.drop(self.linear(self.norm(inputs)).relu())


class Stack(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(16, 24)
        self.blocks = nn.Sequential(Block(), Block(), Block())
        self.norm = nn.BatchNorm1d(24)
        self.last = nn.Linear(24, 5)

    def forward(self, inputs):
        return self.last(self.norm(self.blocks(self.first(inputs))))


SECTIONS: dict[PlanSection, Any] = {
    PlanSection.FUSION: FusionSection(modules=("blocks.0", "blocks.1")),
    PlanSection.RECOMPUTE: RecomputeSection(modules=("blocks.2",)),
    PlanSection.PRECISION: PrecisionSection(),
    PlanSection.COMPRESSION: CompressionSection(),
    PlanSection.LOADER: LoaderSection(num_workers=1),
    PlanSection.THREADS: ThreadsSection(num_threads=1),
}


def plan_with(*names: PlanSection, **changed: Any) -> Plan:
    """A plan with these sections of SECTIONS, or with those given, and without communication."""
    contents = {name.value: SECTIONS[name] for name in names} | changed
    applied = tuple(PlanSection(name) for name in contents)
    return Plan(
        num_ranks=dist.get_world_size(), parameters_digest="0" * 64, applied=applied, **contents
    )


@dataclass
class Trained:
    """How a training went."""

    model: DistributedDataParallel
    losses: list[float]
    status: PlanStatus | None
    sections: tuple[PlanSection, ...]
    bits: dict[str, Any]

    def section(self, name: PlanSection) -> SectionStatus:
        assert self.status is not None
        (found,) = (one for one in self.status.sections if one.section is name)
        return found


def train(
    plan: Plan | None,
    *,
    net: Callable[[], nn.Module] = Stack,
    num_steps: int = STEPS,
    trial: TrialRules | None = None,
    each_step: Callable[[DistributedDataParallel], None] = lambda _: None,
    loss_of: Callable[[Any, Any], Any] = nn.functional.cross_entropy,
    **options: Any,
) -> Trained:
    """A few steps of the same training in every call; ``plan`` None: under stock DDP."""
    torch.manual_seed(11)
    model = DistributedDataParallel(net(), **options)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    data = torch.Generator().manual_seed(dist.get_rank())
    board.status = None
    scheduled: Scheduled | None = None
    if plan is not None:
        scheduled = schedule_training(model, optimizer, plan, trial=trial)
    losses = []
    for _ in range(num_steps):
        inputs = torch.randn(8, 16, generator=data)
        targets = torch.randint(5, (8,), generator=data)
        optimizer.zero_grad()
        loss = loss_of(model(inputs), targets)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
        each_step(model)
    status, sections = board.status, scheduled.sections if scheduled is not None else ()
    if scheduled is not None:
        scheduled.close()
    bits = {name: value.clone() for name, value in model.state_dict().items()}
    return Trained(model, losses, status, sections, bits | {"random": torch.get_rng_state()})


def assert_bits(stock: Trained, planned: Trained) -> None:
    assert stock.losses == planned.losses
    assert stock.bits.keys() == planned.bits.keys()
    for name, value in stock.bits.items():
        assert torch.equal(value, planned.bits[name]), name


def assert_close(stock: Trained, planned: Trained, tolerance: float) -> None:
    assert stock.bits.keys() == planned.bits.keys()
    apart = [abs(one - other) for one, other in zip(stock.losses, planned.losses, strict=True)]
    assert max(apart) <= tolerance, max(apart)
