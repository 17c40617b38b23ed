"""Runs a program on this rank, under stock DDP or under its plans, and tells how it ended."""

from __future__ import annotations

import traceback
import warnings
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.distributed as dist
from torch.nn import functional

from tests.runtime.fuzz.acts import do_act
from tests.runtime.fuzz.edits import edit_gradients
from tests.runtime.fuzz.program import Program, Step
from tests.runtime.fuzz.training import Training

ENDS = "middle"
"""Fails in the middle of backward: stock DDP cannot go on after that."""


@dataclass
class Outcome:
    tensors: dict[str, Any] = field(default_factory=dict)
    notes: list[Any] = field(default_factory=list)
    error: str = ""
    """Class and text of the exception that ended the program."""
    trace: str = ""
    error_step: int = -1
    num_followed: int = 0
    num_steps: int = 0
    num_replans: int = 0
    num_switches: int = 0
    reasons: list[str] = field(default_factory=list)


def run_program(
    program: Program,
    *,
    is_planned: bool,
    beat: Callable[[int], None],
    changes_last_bits: bool = False,
) -> Outcome:
    """``beat`` is called at every step."""
    training = Training(program, is_planned=is_planned, changes_last_bits=changes_last_bits)
    outcome = Outcome(notes=training.notes)
    number = -1
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            training.start()
            for number, step in enumerate(program.steps):
                beat(number)
                training.switch(step.switch)
                training.number = number
                outcome.num_followed += training.is_followed
                outcome.num_steps += 1
                _train(training, step)
            outcome.tensors = training.state(with_gradients=program.steps[-1].fails != ENDS)
    except Exception as error:
        outcome.error = f"{type(error).__name__}: {error}"
        outcome.trace = traceback.format_exc()
        outcome.error_step = number
    finally:
        outcome.num_replans = training.num_replans
        outcome.num_switches = training.num_switches
        outcome.reasons = training.reasons
        training.close()
    return outcome


def _train(training: Training, step: Step) -> None:
    """The body of the program's loop."""
    if step.zero == "start":
        training.zero(step)
    try:
        if step.how == "closure":
            training.note("loss", training.optimizer.step(lambda: _backward(training, step)))
        else:
            training.note("loss", _backward(training, step))
    except (ValueError, KeyboardInterrupt) as error:
        if not step.fails:
            raise
        training.note("caught", type(error).__name__)
        return
    _update(training, step)
    if training.scheduler is not None:
        training.step_scheduler()
    if step.zero == "end":
        training.zero(step)
    for act in step.acts:
        do_act(training, act)


def _backward(training: Training, step: Step) -> Any:
    """All passes of a step; returns the last loss, detached."""
    loss = None
    for micro_batch in range(step.micro_batches):
        is_last = micro_batch == step.micro_batches - 1
        with nullcontext() if is_last else training.model.no_sync():
            if step.fails == "local" and micro_batch == 0:
                _fail_alone(training, step)
                continue
            fails = step.fails if step.fails != "local" else ""
            loss = _loss(training, step, micro_batch, fails=fails)
            if is_last and step.zero == "after_forward":
                training.zero(step)
            if step.evaluates_between:
                with torch.no_grad():
                    training.note("between", training.predict(training.model, key=(91, 0)))
            other = training.other_loss() if is_last and not step.fails else None
            if other is not None and training.joins_other:
                loss = loss + other
            scaled = loss if training.scaler is None else training.scaler.scale(loss)
            scaled.backward()
            if other is not None:
                training.step_other(other)
    assert loss is not None
    return loss.detach()


def _fail_alone(training: Training, step: Step) -> None:
    """On one rank, in a pass whose gradients are not exchanged."""
    is_failing = dist.get_rank() == training.program.seed % dist.get_world_size()
    try:
        _loss(training, step, 0, fails="middle" if is_failing else "").backward()
    except ValueError:
        assert is_failing


def _loss(training: Training, step: Step, micro_batch: int, *, fails: str) -> Any:
    program = training.program
    total: Any = 0.0
    casts = torch.autocast("cpu", dtype=torch.bfloat16) if program.autocasts else nullcontext()
    with casts:
        for forward in range(step.num_forwards):
            key = (training.number, 10 * micro_batch + forward)
            output = training.predict(training.model, key=key, fails=fails)
            target, classes = training.targets(key)
            if program.loss == "mse":
                total = total + functional.mse_loss(output.to(target.dtype), target)
            else:
                total = total + functional.cross_entropy(output.to(target.dtype), classes)
            if program.other_model == "teacher":
                with torch.no_grad():
                    wanted = training.predict(training.other, key=key)
                total = total + functional.mse_loss(output, wanted)
    if dist.get_rank() == program.seed % dist.get_world_size():
        total = total * step.loss_factor
    return total


def _update(training: Training, step: Step) -> None:
    scaler, optimizer = training.scaler, training.optimizer
    if step.how == "closure":
        return
    if scaler is not None and step.how != "skip" and (step.edits or step.clip):
        scaler.unscale_(optimizer)
    for edit in step.edits:
        edit_gradients(training, edit)
    parameters = [p for p in training.model.parameters() if p.grad is not None]
    if not parameters:
        pass
    elif step.clip == "norm":
        training.note("norm", torch.nn.utils.clip_grad_norm_(parameters, 0.5))
    elif step.clip == "value":
        torch.nn.utils.clip_grad_value_(parameters, 0.01)
    if step.how == "skip":
        return
    if scaler is not None:
        scaler.step(optimizer)
        scaler.update()
        training.note("scale", scaler.get_scale())
        return
    optimizer.step()
    if step.how == "twice":
        optimizer.step()
