"""Parameter groups and learning rates."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from augury.runtime.torch.training import schedule_training
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


def parameter_groups_and_schedulers() -> None:
    def steps(training: Training) -> None:
        optimizer = training.optimizer
        schedulers = [
            torch.optim.lr_scheduler.StepLR(optimizer, 2, 0.5),
            torch.optim.lr_scheduler.OneCycleLR(optimizer, [0.1, 0.2], total_steps=20),
        ]
        for _ in range(2 * STEPS):
            training.step()
            for scheduler in schedulers:
                scheduler.step()
            training.notes.append(schedulers[0].get_last_lr())

    def groups(model: nn.Module) -> Any:
        matrices = [p for p in model.parameters() if p.ndim > 1]
        others = [p for p in model.parameters() if p.ndim <= 1]
        return torch.optim.AdamW(
            [{"params": matrices, "weight_decay": 0.1}, {"params": others, "lr": 0.02}], lr=0.01
        )

    compare(steps, make_optimizer=groups)


def scheduler_made_before_the_plan() -> None:
    results = []
    for training in both():
        scheduled, optimizer = training.scheduled, training.optimizer
        plan = None
        if scheduled is not None:
            plan = scheduled.plan
            scheduled.close()
        scheduler = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.7)
        if plan is not None:
            training.scheduled = schedule_training(training.model, optimizer, plan, replan=False)
        for _ in range(STEPS):
            training.step()
            scheduler.step()
        results.append(bits(training))
    assert_same(*results)


def learning_rates_set_by_hand_right_after_a_step() -> None:
    def steps(training: Training) -> None:
        for n in range(2 * STEPS):
            training.step()
            training.optimizer.param_groups[0]["lr"] = 0.1 / (n + 1)

    compare(steps)


def a_parameter_group_that_is_added_later() -> None:
    def some(model: nn.Module) -> Any:
        return torch.optim.SGD([p for p in model.parameters() if p.ndim > 1], lr=0.1)

    def steps(training: Training) -> None:
        train(training)
        others = [p for p in training.model.parameters() if p.ndim <= 1]
        training.optimizer.add_param_group({"params": others, "lr": 0.05})
        training.model.zero_grad()
        train(training)

    compare(steps, make_optimizer=some)


def parameters_that_change_groups() -> None:
    """Lengths of groups stay; parameters are swapped between them, or replaced by others."""

    def groups(model: nn.Module) -> Any:
        matrices = [p for p in model.parameters() if p.ndim > 1]
        others = [p for p in model.parameters() if p.ndim <= 1]
        return torch.optim.SGD(
            [{"params": matrices[1:]}, {"params": others, "lr": 0.02}], lr=0.1, momentum=0.9
        )

    def steps(training: Training) -> None:
        train(training)
        first, second = training.optimizer.param_groups
        first["params"][0], second["params"][0] = second["params"][0], first["params"][0]
        train(training)
        free = next(p for p in training.model.parameters() if p.ndim > 1)
        replaced = first["params"][1]
        training.notes.append(checksum(replaced))
        first["params"][1] = free
        del training.optimizer.state[replaced]
        train(training)

    compare(steps, make_optimizer=groups)
