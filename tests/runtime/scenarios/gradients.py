"""Changes of gradients between backward and the next forward."""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any

import torch
from torch import nn
from torch.nn import functional

from augury.core.plan.plan_status import TrainingMode
from tests.runtime.trainings import (
    STEPS,
    Training,
    checksum,
    compare,
    train,
    variant,
)


def accumulation_without_exchange() -> None:
    def steps(training: Training) -> None:
        for _ in range(STEPS):
            training.optimizer.zero_grad()
            for is_last in (False, False, True):
                with nullcontext() if is_last else training.model.no_sync():
                    training.loss().backward()
                if not is_last:
                    training.notes.append(checksum(training.model.module.conv.weight.grad))
            training.optimizer.step()

    compare(steps)


def several_exchanges_before_a_step() -> None:
    def steps(training: Training) -> None:
        for _ in range(STEPS):
            training.optimizer.zero_grad()
            training.loss().backward()
            training.loss().backward()
            training.optimizer.step()

    compare(steps)
    compare(steps, plan={"has_barrier": True})


def a_backward_in_two_parts() -> None:
    def steps(training: Training) -> None:
        for _ in range(STEPS):
            training.optimizer.zero_grad()
            inputs, targets = next(training.data)
            output = training.model(inputs)
            middle = output.detach().requires_grad_()
            functional.cross_entropy(middle, targets).backward()
            output.backward(middle.grad)
            training.optimizer.step()

    compare(steps)


def zeroed_while_under_way() -> None:
    def steps(training: Training) -> None:
        for _ in range(STEPS):
            training.loss().backward()
            training.optimizer.step()
            training.optimizer.zero_grad(set_to_none=False)
            grads = [p.grad for p in training.model.parameters()]
            training.loss()  # forward only: what arrives must not fill what was zeroed
            training.notes.append([checksum(grad) for grad in grads])
            training.model.zero_grad()

    compare(steps)


def zeroed_between_forward_and_backward() -> None:
    def steps(training: Training) -> None:
        for n in range(2 * STEPS):
            loss = training.loss()
            training.notes.append([checksum(p.grad) for p in training.model.parameters()])
            training.optimizer.zero_grad(set_to_none=bool(n % 2))
            loss.backward()
            training.optimizer.step()

    compare(steps)
    compare(steps, plan={"has_barrier": True})


def never_zeroed() -> None:
    def steps(training: Training) -> None:
        for _ in range(STEPS):
            training.loss().backward()
            training.optimizer.step()

    compare(steps)
    compare(steps, plan={"has_barrier": True})


def skipped_steps() -> None:
    def steps(training: Training) -> None:
        for n in range(2 * STEPS):
            training.optimizer.zero_grad()
            training.loss().backward()
            if n % 3:
                training.optimizer.step()

    compare(steps)


def two_steps_of_one_gradient() -> None:
    def steps(training: Training) -> None:
        for _ in range(STEPS):
            training.step()
            training.optimizer.step()

    compare(steps)


def clipped_gradients() -> None:
    def steps(training: Training) -> None:
        for _ in range(2 * STEPS):
            training.optimizer.zero_grad()
            training.loss().backward()
            norm = nn.utils.clip_grad_norm_(training.model.parameters(), 0.5)
            training.notes.append(norm.item())
            training.optimizer.step()

    compare(steps)
    compare(steps, plan={"has_barrier": True})


def a_scaler() -> None:
    def steps(training: Training) -> None:
        scaler = torch.amp.GradScaler("cpu", init_scale=1024.0, growth_interval=3)
        for n in range(2 * STEPS):
            training.optimizer.zero_grad()
            loss = training.loss()
            if n == 3:
                loss = loss * float("inf")
            scaler.scale(loss).backward()
            scaler.step(training.optimizer)
            scaler.update()
            training.notes.append(scaler.get_scale())

    compare(steps)


def a_moving_average_of_parameters() -> None:
    def steps(training: Training) -> None:
        averaged = torch.optim.swa_utils.AveragedModel(training.model.module)
        for _ in range(2 * STEPS):
            training.step()
            averaged.update_parameters(training.model.module)
            training.notes.append([checksum(p) for p in averaged.parameters()])

    compare(steps)


def gradients_are_read_after_the_step() -> None:
    def steps(training: Training) -> None:
        for n in range(2 * STEPS):
            training.step()
            if n % 3 == 0:
                training.notes.append([checksum(p.grad) for p in training.model.parameters()])

    compare(steps)
    compare(steps, plan={"has_barrier": True})


def a_step_with_a_closure() -> None:
    def steps(training: Training) -> None:
        for _ in range(STEPS):
            training.optimizer.zero_grad()

            def closure():
                loss = training.loss()
                loss.backward()
                return loss

            training.notes.append(training.optimizer.step(closure).item())

    compare(steps)


def updates_are_deferred_under_closures() -> None:
    """Lightning passes closures, accelerate passes its closure on even where it is None."""

    def steps(training: Training, *, is_none: bool) -> None:
        def closure():
            training.optimizer.zero_grad()
            loss = training.loss()
            loss.backward()
            return loss

        for n in range(2 * STEPS):
            if is_none:
                closure()
            training.optimizer.step(closure=None if is_none else closure)
            scheduled = training.scheduled
            is_planned = scheduled is not None and scheduled.mode is TrainingMode.PLANNED
            # The first step under a plan creates the optimizer's state and waits. A new plan that
            # was received in this step has no exchange yet.
            if (
                n
                and is_planned
                and not variant.has_trial
                and scheduled._exchange.pieces is not None
            ):
                assert scheduled._exchange.pieces.left

    compare(lambda training: steps(training, is_none=False))
    compare(lambda training: steps(training, is_none=True))


# --- edits that stock DDP takes as they are


def _edited(change: Any, **options: Any) -> None:
    """``change`` is done to some gradients between backward and every other step."""

    def steps(training: Training) -> None:
        for n in range(2 * STEPS):
            training.optimizer.zero_grad()
            training.loss().backward()
            if n % 2:
                change([*training.model.parameters()][:: 1 + n % 3])
            training.optimizer.step()

    compare(steps, **options)
    compare(steps, plan={"has_barrier": True}, **options)


def gradients_set_to_none() -> None:
    def change(parameters: list[nn.Parameter]) -> None:
        for parameter in parameters:
            parameter.grad = None

    _edited(change)


def gradients_zeroed_in_place() -> None:
    def change(parameters: list[nn.Parameter]) -> None:
        for parameter in parameters:
            parameter.grad.zero_()

    _edited(change)


def gradients_zeroed_together() -> None:
    _edited(lambda parameters: torch._foreach_zero_([p.grad for p in parameters]))


def gradients_replaced() -> None:
    def change(parameters: list[nn.Parameter]) -> None:
        for parameter in parameters:
            parameter.grad = torch.full_like(parameter, 0.01)

    _edited(change)


def gradients_seen_through_views() -> None:
    """Which were made before this step, of memory that is used again."""

    def steps(training: Training) -> None:
        views: list[torch.Tensor] = []
        for _ in range(2 * STEPS):
            training.optimizer.zero_grad(set_to_none=False)
            training.loss().backward()
            training.notes.append([checksum(view) for view in views])
            training.optimizer.step()
            views = [p.grad.detach().view(-1) for p in training.model.parameters()]

    compare(steps)


def _halve(parameter: nn.Parameter) -> None:
    parameter.grad.mul_(0.5)


def a_hook_that_is_registered_later() -> None:
    """It changes gradients before they are reduced, as under stock DDP."""

    def steps(training: Training) -> None:
        train(training)
        for parameter in training.model.parameters():
            parameter.register_post_accumulate_grad_hook(_halve)
        train(training)

    compare(steps)


def gradients_kept_past_zero_grad() -> None:
    """Tensors that the program holds are given the means, as under stock DDP."""

    def steps(training: Training) -> None:
        for _ in range(STEPS):
            parameters = list(training.model.parameters())
            training.optimizer.zero_grad()
            training.loss().backward()
            first = [p.grad for p in parameters]
            training.optimizer.zero_grad()
            training.loss().backward()
            second = [p.grad for p in parameters]
            for parameter, one, other in zip(parameters, first, second, strict=True):
                parameter.grad = (one + other) / 2
            training.optimizer.step()

    compare(steps)


def gradients_kept_past_a_step() -> None:
    def steps(training: Training) -> None:
        for _ in range(STEPS):
            training.loss().backward()
            kept = [p.grad for p in training.model.parameters()]
            training.optimizer.step()
            training.optimizer.zero_grad()
            training.notes.append([checksum(one) for one in kept])
            training.loss()
            training.notes.append([checksum(one) for one in kept])

    compare(steps)


def gradients_in_a_buffer_of_the_program() -> None:
    """Each is a view of one tensor, through which the program zeroes and clips them."""

    def steps(training: Training) -> None:
        parameters = list(training.model.parameters())
        flat = torch.zeros(sum(p.numel() for p in parameters), dtype=parameters[0].dtype)
        start = 0
        for parameter in parameters:
            parameter.grad = flat[start : start + parameter.numel()].view_as(parameter)
            start += parameter.numel()
        for _ in range(2 * STEPS):
            flat.zero_()
            training.loss().backward()
            flat.clamp_(-0.01, 0.01)
            training.notes.append(checksum(flat))
            training.optimizer.step()

    compare(steps)
