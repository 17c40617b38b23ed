"""Accesses that no torch function mode sees, and modes and transforms around the runtime's work."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import allreduce_hook

from tests.runtime.trainings import STEPS, Small, Training, checksum, compare


def _example() -> torch.Tensor:
    return torch.randn(4, 3, 8, 8, generator=torch.Generator().manual_seed(1))


def _every_other_step(act: Callable[[Training], Any]) -> None:
    def steps(training: Training) -> None:
        for n in range(2 * STEPS):
            training.step()
            if n % 2:
                training.notes.append(act(training))

    compare(steps, net=Small)


def _sum_of_squares(tensors: Sequence[torch.Tensor]) -> torch.Tensor:
    return sum(tensor.square().sum() for tensor in tensors)


def transforms_of_parameters() -> None:
    """As arguments, and as parameters of modules that are called within."""

    def gradients(training: Training) -> list[float | None]:
        model = training.model.module

        def loss(parameters: dict[str, torch.Tensor]) -> torch.Tensor:
            return torch.func.functional_call(model, parameters, (_example(),)).square().sum()

        found = torch.func.grad(loss)(dict(model.named_parameters()))
        return [checksum(one.detach()) for one in found.values()]

    def rows(training: Training) -> float | None:
        weight = training.model.module.second.weight
        return checksum(torch.vmap(lambda row: row.square().sum())(weight).detach())

    def captured(training: Training) -> float | None:
        model = training.model.module
        outputs = torch.vmap(lambda one: model(one[None]))(_example())
        return checksum(outputs.detach())

    for act in (gradients, rows, captured):
        _every_other_step(act)


def a_transform_of_gradients_in_flight() -> None:
    def steps(training: Training) -> None:
        for _ in range(STEPS):
            training.optimizer.zero_grad()
            training.loss().backward()
            gradient = training.model.module.second.weight.grad
            training.notes.append(checksum(torch.vmap(lambda row: row.square().sum())(gradient)))
            training.optimizer.step()

    compare(steps, net=Small)


def forwards_under_fake_tensors() -> None:
    def act(training: Training) -> tuple[int, ...]:
        with FakeTensorMode(allow_non_fake_inputs=True):
            return tuple(training.model.module(torch.empty(4, 3, 8, 8)).shape)

    _every_other_step(act)


def compiled_functions() -> None:
    """Between step and forward, and between backward and step."""

    def steps(training: Training) -> None:
        torch._dynamo.reset()
        norm = torch.compile(_sum_of_squares, backend="eager")
        parameters = list(training.model.parameters())
        for n in range(3 * STEPS):
            training.optimizer.zero_grad()
            training.loss().backward()
            if n % 3 == 1:
                training.notes.append(checksum(norm([p.grad for p in parameters])))
            training.optimizer.step()
            if n % 3 == 2:
                training.notes.append(checksum(norm(parameters).detach()))

    compare(steps, net=Small)


def scripted_functions() -> None:
    squares = torch.jit.script(_scripted_squares)
    _every_other_step(lambda t: checksum(squares(t.model.module.second.weight).detach()))


def _scripted_squares(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.square().sum()


def modules_scripted_and_traced() -> None:
    def both_ways(training: Training) -> list[float | None]:
        model = training.model.module
        made = torch.jit.script(model.second), torch.jit.trace(model, (_example(),))
        inputs = torch.ones(1, 24), _example()
        return [checksum(one(given).detach()) for one, given in zip(made, inputs, strict=True)]

    _every_other_step(both_ways)


def forked_processes_read_parameters() -> None:
    def total(training: Training) -> tuple[int, bytes]:
        reading, writing = os.pipe()
        child = os.fork()
        if child == 0:
            signal.alarm(20)  # ends the child where it hangs
            found = sum(p.double().sum().item() for p in training.model.parameters())
            os.write(writing, repr(found).encode())
            os._exit(0)
        _, status = os.waitpid(child, 0)
        os.close(writing)
        said = os.read(reading, 100)
        os.close(reading)
        return status, said

    _every_other_step(total)


def _halve(group, bucket):
    """A communication hook. In half precision, sums of three ranks would depend on the buckets."""
    return allreduce_hook(group, bucket).then(lambda done: done.value() / 2)


def a_communication_hook_that_is_registered_later() -> None:
    """Stock DDP stays from then on, with the hook."""

    def steps(training: Training) -> None:
        for n in range(2 * STEPS):
            if n == STEPS:
                training.model.register_comm_hook(None, _halve)
            training.step()
        if training.scheduled is not None:
            assert training.scheduled.plan is None
            assert "communication hook" in (training.scheduled.reason or "")

    compare(steps, net=Small)


def gradients_taken_by_hooks() -> None:
    """DDP counts them as zero."""

    def take(parameter: Any) -> None:
        parameter.grad = None

    def steps(training: Training) -> None:
        weight = training.model.module.second.weight
        weight.register_post_accumulate_grad_hook(take)
        for _ in range(STEPS):
            training.step()
            training.notes.append(checksum(weight.grad))

    compare(steps, net=Small)
