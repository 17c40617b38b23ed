"""Failures: training ends as under stock DDP, on all ranks, and without a hang."""

from __future__ import annotations

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from tests.runtime.trainings import STEPS, Small, assert_same, bits, both, follow, plan_of, variant


class Trap(torch.autograd.Function):
    @staticmethod
    def forward(ctx, value, error):
        ctx.error = error
        return value.clone()

    @staticmethod
    def backward(ctx, _gradient):
        raise ctx.error("sprung")


class Trapped(nn.Module):
    """Fails where ``at`` says."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(12, 24), nn.Linear(24, 5)
        self.at = ""
        self.error = ValueError

    def forward(self, inputs):
        hidden = self.first(inputs.flatten(1)[:, :12]).relu()
        if self.at == "middle":
            hidden = Trap.apply(hidden, self.error)
        output = self.last(hidden)
        if self.at == "start":
            output = Trap.apply(output, self.error)
        if self.at == "forward":
            raise ValueError("sprung")
        return output


def failures_before_the_first_gradient() -> None:
    """On all ranks: training goes on."""
    results = []
    for training in both(net=Trapped):
        for at in ("start", "forward", "start"):
            training.step()
            training.model.module.at = at
            with pytest.raises(ValueError, match="sprung"):
                training.loss().backward()
            training.model.module.at = ""
            training.step()
        results.append(bits(training))
    assert_same(*results)


class TrappedNorm(Trapped):
    """Has buffers that differ between ranks until stock DDP broadcasts them."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.BatchNorm1d(12, affine=False)

    def forward(self, inputs):
        return super().forward(self.norm(inputs.flatten(1)[:, :12]))


def buffers_after_a_failed_forward() -> None:
    """After an evaluation stock DDP broadcasts no buffers, until a forward has ended."""
    results = []
    for training in both(net=TrappedNorm):
        module = training.model.module
        training.step()
        with torch.no_grad():
            training.loss()
        module.at = "forward"
        with pytest.raises(ValueError, match="sprung"):
            training.loss()
        module.at = ""
        for _ in range(STEPS):
            training.notes.append(module.norm.running_mean.clone())
            training.step()
        results.append((bits(training), training.notes))
    assert_same(*results)


def _fail_in_the_middle(rank: int, error: type[BaseException]) -> None:
    """One rank's backward fails when others may have its first gradients already; the program
    skips the batch. Under stock DDP its next forward fails, and the others wait for ever."""
    model = DistributedDataParallel(Trapped())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    scheduled = follow(model, optimizer, plan_of(model, kind="urgent"))
    scheduled.switch(plan_of(model, kind="release"))
    for _ in range(STEPS):
        optimizer.zero_grad()
        model(torch.randn(4, 12)).sum().backward()
        optimizer.step()
    is_failing = dist.get_rank() == rank
    model.module.error = error
    model.module.at = "middle" if is_failing else ""
    before = None
    if is_failing:
        with pytest.raises(error, match="sprung"):
            model(torch.randn(4, 12)).sum().backward()
        before = [p.detach().clone() for p in model.parameters()]
        model.module.at = ""

    def go_on() -> None:
        for _ in range(3):
            optimizer.zero_grad()
            model(torch.randn(4, 12)).sum().backward()
            optimizer.step()

    try:
        with pytest.raises(RuntimeError, match=r"finished reduction|could not complete"):
            go_on()
    finally:
        dist.barrier()
    if before is not None:
        for was, parameter in zip(before, model.parameters(), strict=True):
            assert torch.equal(was, parameter)
    scheduled.close()


def backward_fails_on_one_rank() -> None:
    if not variant.has_trial:
        _fail_in_the_middle(0, ValueError)
        _fail_in_the_middle(dist.get_world_size() - 1, ValueError)


def backward_is_interrupted_on_one_rank() -> None:
    if not variant.has_trial:
        _fail_in_the_middle(1, KeyboardInterrupt)


def a_gradient_that_comes_twice() -> None:
    model = DistributedDataParallel(Small())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    scheduled = follow(model, optimizer, plan_of(model))
    output = model(torch.randn(4, 3, 8, 8))
    output.sum().backward(retain_graph=True)
    output.sum().backward()  # as with stock DDP it stays on this rank
    scheduled.close()
