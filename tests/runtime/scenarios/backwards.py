"""Backwards in several parts, repeated, checkpointed and interrupted forwards."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

from tests.runtime.trainings import (
    STEPS,
    Training,
    assert_same,
    bits,
    both,
    checksum,
    compare,
    train,
)


class TwoHeaded(nn.Module):
    """Two networks that share no parameter."""

    def __init__(self) -> None:
        super().__init__()
        self.actor = nn.Sequential(nn.Linear(12, 24), nn.ReLU(), nn.Linear(24, 5))
        self.critic = nn.Sequential(nn.Linear(12, 24), nn.ReLU(), nn.Linear(24, 1))

    def forward(self, inputs):
        inputs = inputs.flatten(1)[:, :12]
        return self.actor(inputs), self.critic(inputs)


def _two_backwards(between: Callable[[Training], None]) -> Callable[[Training], None]:
    def steps(training: Training) -> None:
        for _ in range(2 * STEPS):
            training.optimizer.zero_grad()
            inputs, targets = next(training.data)
            choice, value = training.model(inputs)
            functional.cross_entropy(choice, targets).backward()
            between(training)
            value.square().mean().backward()
            training.notes.append([checksum(p.grad) for p in training.model.parameters()])
            training.optimizer.step()

    return steps


def backwards_of_two_outputs() -> None:
    compare(_two_backwards(lambda _: None), net=TwoHeaded)
    compare(_two_backwards(lambda _: None), net=TwoHeaded, plan={"has_barrier": True})


def backwards_of_two_outputs_with_gradients_zeroed_between() -> None:
    """The exchange already has the first gradients."""

    def zero(training: Training) -> None:
        for parameter in training.model.parameters():
            if parameter.grad is not None:
                parameter.grad.zero_()

    compare(_two_backwards(zero), net=TwoHeaded)


class Checkpointed(nn.Module):
    """The first gradient lies inside a reentrant checkpoint; others lie outside."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(12, 24)
        self.body = nn.Sequential(nn.Linear(24, 24), nn.ReLU(), nn.Linear(24, 5))

    def forward(self, inputs):
        hidden = self.first(inputs.flatten(1)[:, :12])
        return checkpoint(self.body, hidden, use_reentrant=True)


def a_reentrant_checkpoint() -> None:
    compare(train, net=Checkpointed)


def a_second_backward_over_the_same_parameters() -> None:
    """It adds to the means."""

    def steps(training: Training) -> None:
        for n in range(2 * STEPS):
            training.optimizer.zero_grad()
            loss = training.loss()
            loss.backward()
            penalty = sum(p.square().sum() for p in training.model.parameters())
            (0.01 * penalty).backward()
            if n % 2:
                training.notes.append([checksum(p.grad) for p in training.model.parameters()])
            training.optimizer.step()

    compare(steps)
    compare(steps, plan={"has_barrier": True})


def a_backward_while_updates_are_due() -> None:
    def steps(training: Training) -> None:
        for _ in range(STEPS):
            training.step()
            sum(p.square().sum() for p in training.model.parameters()).backward()
            training.notes.append([checksum(p.grad) for p in training.model.parameters()])

    compare(steps)


def _halve(parameter: nn.Parameter) -> None:
    parameter.grad.mul_(0.5)


def a_hook_that_is_registered_between_forward_and_backward() -> None:
    """It changes gradients before they are reduced."""

    def steps(training: Training) -> None:
        for _ in range(STEPS):
            training.optimizer.zero_grad()
            loss = training.loss()
            hooks = [
                p.register_post_accumulate_grad_hook(_halve) for p in training.model.parameters()
            ]
            loss.backward()
            training.optimizer.step()
            for hook in hooks:
                hook.remove()

    compare(steps)


class Interrupted(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(12, 24), nn.Linear(24, 5)
        self.is_due = False

    def forward(self, inputs):
        hidden = self.first(inputs.flatten(1)[:, :12]).relu()
        if self.is_due:
            raise KeyboardInterrupt
        return self.last(hidden)


def an_interrupted_forward() -> None:
    """On all ranks, also while gradients accumulate: training goes on, and exchanges gradients."""
    results = []
    for training in both(net=Interrupted):
        model = training.model
        for is_accumulating in (False, True, False):
            train(training)
            model.module.is_due = True
            with (
                pytest.raises(KeyboardInterrupt),
                model.no_sync() if is_accumulating else nullcontext(),
            ):
                training.loss()
            model.module.is_due = False
            for is_last in (False, True):
                if is_last:
                    training.step()
                else:
                    with model.no_sync():
                        training.loss().backward()
        results.append(bits(training))
        _same_on_all_ranks(model)
    assert_same(*results)


def _same_on_all_ranks(model: nn.Module) -> None:
    for parameter in model.parameters():
        first = parameter.detach().clone()
        dist.broadcast(first, 0)
        assert torch.equal(first, parameter)


def one_rank_evaluates_with_gradients_after_every_step() -> None:
    """Rank 0 runs the wrapped model alone while the others wait: no forward of its own may need
    the other ranks, also where bucket sizes were changed just before."""
    results = []
    for training in both(net=TwoHeaded, ddp={"broadcast_buffers": False}):
        for n in range(12):
            training.optimizer.zero_grad()
            choice, value = training.model(next(training.data)[0])
            (choice.square().mean() + value.square().mean()).backward()
            training.optimizer.step()
            # Not after the first, when stock DDP arranges its buckets in the next forward.
            if n > 1 and dist.get_rank() == 0:
                training.model(torch.ones(4, 3, 8, 8))
            dist.barrier()
        results.append(bits(training))
    assert_same(*results)
