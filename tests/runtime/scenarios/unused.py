"""Parameters that are not used."""

from __future__ import annotations

import pytest
import torch.distributed as dist
from torch import nn

from tests.runtime.trainings import (
    STEPS,
    Training,
    both,
    checksum,
    compare,
    train,
    variant,
)


class Choosy(nn.Module):
    """One part is used by no rank, one by rank 1 only in every other step."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.idle = nn.Linear(12, 24), nn.Linear(3, 3)
        self.rare, self.last = nn.Linear(24, 24), nn.Linear(24, 5)
        self.count = 0

    def forward(self, inputs):
        hidden = self.first(inputs.flatten(1)[:, :12])
        self.count += 1
        if dist.get_rank() == 1 and self.count % 2:
            hidden = self.rare(hidden)
        return self.last(hidden)


def unused_parameters() -> None:
    def steps(training: Training) -> None:
        for n in range(2 * STEPS):
            training.optimizer.zero_grad(set_to_none=n < STEPS)
            training.loss().backward()
            training.notes.append([checksum(p.grad) for p in training.model.parameters()])
            training.optimizer.step()

    compare(steps, net=Choosy, ddp={"find_unused_parameters": True})


def unused_parameters_unwatched() -> None:
    for barrier in (False, True):
        compare(
            train,
            net=Choosy,
            ddp={"find_unused_parameters": True},
            plan={"kind": "release", "has_barrier": barrier},
        )


class Forgetful(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.idle, self.last = nn.Linear(12, 5), nn.Linear(3, 3), nn.Linear(5, 5)

    def forward(self, inputs):
        return self.last(self.first(inputs.flatten(1)[:, :12]))


def unused_parameters_that_were_not_announced() -> None:
    for training in both(net=Forgetful):
        with pytest.raises(RuntimeError, match="find_unused_parameters=True") as raised:
            train(training)
        if training.scheduled is not None and variant.kind != "buckets" and not variant.has_trial:
            assert "idle.weight" in str(raised.value)
