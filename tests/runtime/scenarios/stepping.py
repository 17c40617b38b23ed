"""Wrappers and hooks around ``optimizer.step``, and use of the optimizer's state."""

from __future__ import annotations

import functools
from collections import defaultdict
from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.optim.optimizer import (
    register_optimizer_step_post_hook,
    register_optimizer_step_pre_hook,
)

from augury.runtime.torch.program.compatibility import why_never
from augury.runtime.torch.training import schedule_training
from tests.runtime.trainings import (
    STEPS,
    Small,
    Training,
    assert_same,
    bits,
    both,
    checksum,
    compare,
    plan_of,
    train,
)


def _wrap(training: Training) -> None:
    step, parameters = training.optimizer.step, list(training.model.parameters())

    def wrapped(*args: Any, **options: Any) -> Any:
        result = step(*args, **options)
        training.notes.append([checksum(p) for p in parameters])
        with torch.no_grad():
            for parameter in parameters:
                parameter.clamp_(-0.2, 0.2)
        return result

    training.optimizer.step = wrapped


def a_step_that_the_program_has_wrapped() -> None:
    """Before the plan, and while it is followed."""
    results = []
    for training in both():
        scheduled = training.scheduled
        plan = None
        if scheduled is not None:
            plan = scheduled.plan or plan_of(training.model)
            scheduled.close()
        _wrap(training)
        if plan is not None:
            training.scheduled = schedule_training(
                training.model, training.optimizer, plan, replan=False
            )
        train(training)
        _wrap(training)
        train(training)
        results.append((bits(training), training.notes))
    assert_same(*results)


def hooks_of_all_optimizers() -> None:
    """They read and change gradients and parameters in some steps."""

    def steps(training: Training) -> None:
        count = 0

        def before(optimizer: Any, _args: Any, _options: Any) -> None:
            nonlocal count
            count += 1
            if optimizer is training.optimizer and count % 3 == 1:
                training.notes.append([checksum(p.grad) for p in training.model.parameters()])
            if optimizer is training.optimizer and count % 3 == 2:
                for parameter in training.model.module.head.parameters():
                    parameter.grad = None

        def after(optimizer: Any, _args: Any, _options: Any) -> None:
            if optimizer is training.optimizer and count % 2:
                training.notes.append([checksum(p) for p in training.model.parameters()])

        hooks = [
            register_optimizer_step_pre_hook(before),
            register_optimizer_step_post_hook(after),
        ]
        try:
            for _ in range(3 * STEPS):
                training.step()
        finally:
            for hook in hooks:
                hook.remove()

    compare(steps)
    compare(steps, plan={"has_barrier": True})


def hooks_of_all_optimizers_that_keep_gradients() -> None:
    """Steps that create state, steps behind a barrier, and steps with a closure."""

    def steps(training: Training, change: Callable[[Any], None], *, has_closure: bool) -> None:
        def hook(optimizer: Any, _args: Any, _options: Any) -> None:
            if optimizer is training.optimizer:
                change(training)

        def closure() -> torch.Tensor:
            loss = training.loss()
            loss.backward()
            return loss

        for register in (register_optimizer_step_pre_hook, register_optimizer_step_post_hook):
            handle = register(hook)
            try:
                for _ in range(STEPS):
                    if has_closure:
                        training.optimizer.step(closure)
                    else:
                        closure()
                        training.optimizer.step()
                    training.notes.append([checksum(p.grad) for p in training.model.parameters()])
            finally:
                handle.remove()
                training.optimizer.zero_grad()

    def zero(training: Training) -> None:
        training.optimizer.zero_grad()

    def halve(training: Training) -> None:
        for parameter in training.model.parameters():
            if parameter.grad is not None:
                parameter.grad = parameter.grad * 0.5

    def keep(training: Training) -> None:
        given = [p.grad for p in training.model.parameters()]
        training.notes.append(given)

    for change in (zero, halve, keep):
        for has_closure in (False, True):
            for barrier in ({}, {"has_barrier": True}):
                compare(
                    functools.partial(steps, change=change, has_closure=has_closure),
                    make_optimizer=_with_adam,
                    net=Small,
                    plan=barrier,
                )


def a_step_of_the_class_that_the_program_has_wrapped() -> None:
    """Before the plan, which is refused, and while it is followed."""
    kind = torch.optim.SGD
    was = kind.step

    @functools.wraps(was)
    def halved(self: Any, *args: Any, **options: Any) -> Any:
        for group in self.param_groups:
            for parameter in group["params"]:
                parameter.grad.mul_(0.5)
        return was(self, *args, **options)

    def steps(training: Training) -> None:
        train(training)
        kind.step = halved
        try:
            train(training)
            if training.scheduled is not None:
                reason = why_never(training.model, training.optimizer)
                assert reason == "the program has replaced SGD.step"
        finally:
            kind.step = was

    compare(steps)


def _with_adam(model: nn.Module) -> Any:
    return torch.optim.Adam(model.parameters(), lr=0.01)


def _reset(change: Callable[[Any], None]) -> None:
    def steps(training: Training) -> None:
        for n in range(3 * STEPS):
            training.step()
            if n % 3 == 1:
                change(training.optimizer)

    compare(steps, make_optimizer=_with_adam)


def state_zeroed_after_a_step() -> None:
    def change(optimizer: Any) -> None:
        for state in optimizer.state.values():
            state["exp_avg"].zero_()

    _reset(change)


def state_cleared_after_a_step() -> None:
    def change(optimizer: Any) -> None:
        optimizer.state.clear()

    _reset(change)


def state_replaced_after_a_step() -> None:
    def change(optimizer: Any) -> None:
        optimizer.state = defaultdict(dict)

    _reset(change)


def state_read_after_every_step() -> None:
    """Also after the first, which makes it."""

    def steps(training: Training) -> None:
        for _ in range(STEPS):
            training.step()
            training.notes.append(
                [
                    checksum(training.optimizer.state[p]["exp_avg"])
                    for p in training.model.parameters()
                ]
            )

    compare(steps, make_optimizer=_with_adam)


def _without_head(model: Any) -> Any:
    head = {id(p) for p in model.module.head.parameters()}
    return torch.optim.Adam([p for p in model.parameters() if id(p) not in head], lr=0.01)


def _after_a_step_that_makes_state(change: Callable[[Any], None]) -> None:
    """Parameters that the optimizer gets late have no state, while the others do."""

    def steps(training: Training) -> None:
        for n in range(2 * STEPS):
            if n == STEPS:
                head = training.model.module.head
                training.optimizer.add_param_group({"params": list(head.parameters())})
            training.step()
            if n == STEPS:
                change(training.optimizer)

    compare(steps, make_optimizer=_without_head)


def state_that_a_step_makes_is_iterated() -> None:
    def change(optimizer: Any) -> None:
        for state in optimizer.state.values():
            state["exp_avg"].zero_()

    _after_a_step_that_makes_state(change)


def state_that_a_step_makes_is_cleared() -> None:
    def change(optimizer: Any) -> None:
        optimizer.state.clear()

    _after_a_step_that_makes_state(change)


def one_optimizer_of_two_models() -> None:
    """Only one of them can follow a plan."""
    models = [DistributedDataParallel(Small()) for _ in range(2)]
    sgd = torch.optim.SGD([p for model in models for p in model.parameters()], lr=0.1)
    plan = plan_of(models[0])
    first = schedule_training(models[0], sgd, plan, replan=False)
    second = schedule_training(models[1], sgd, plan, replan=False)
    assert first.reason is None
    assert second.reason is not None
    assert "also updates another model" in second.reason
    for scheduled in (second, first):
        scheduled.close()
    again = schedule_training(models[1], sgd, plan, replan=False)
    assert again.reason is None
    again.close()
