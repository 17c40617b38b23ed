"""Conditions that change while a plan is followed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from augury.core.plan.plan import (
    CommunicationSection,
    Mode,
    Plan,
    communication_of,
    communication_plan,
)
from augury.core.plan.problem import Network
from augury.runtime.monitor import MUCH
from augury.runtime.replan import PAUSE_STEPS
from augury.runtime.torch.training import Scheduled, schedule_training
from tests.runtime.trainings import (
    Small,
    Training,
    assert_same,
    bits,
    both,
    order_of,
    plan_of,
    problem_of,
)

WRONG = Network(ns_per_byte=1e5, overhead_ns=10_000)
"""Ten thousand times as slow as any network here."""


def _apply(training: Training, *, log_every: int = 4) -> tuple[Scheduled, Plan]:
    model = training.model
    problem = replace(problem_of(model), network=WRONG)
    order = order_of(problem, kind="urgent")
    late = tuple(replace(piece, not_before_ns=50_000_000) for piece in order.pieces)
    order = replace(order, pieces=late)  # the evaluator knows a better one
    num_ranks = dist.get_world_size()
    section = CommunicationSection(mode=Mode.PIECES, problem=problem, order=order)
    plan = communication_plan(section, num_ranks=num_ranks)
    scheduled = schedule_training(
        model, training.optimizer, plan, log_every=log_every, searches_here=True
    )
    assert scheduled.plan is plan
    return scheduled, plan


def _until_planned_anew(step: Callable[[Training], None], **options: Any) -> None:
    """Trains until the plan is for the network as it is, then ends as stock DDP does."""
    trainings = both(**options)
    stock, planned = next(trainings), next(trainings)
    assert planned.scheduled is not None
    planned.scheduled.close()
    planned.scheduled, _ = _apply(planned, log_every=1)
    num_steps = 0
    # A search that finds nothing, on a busy machine, is followed by a pause.
    while not _is_for_this_network(planned.scheduled) and num_steps < 4 * PAUSE_STEPS:
        step(planned)
        num_steps += 1
    assert _is_for_this_network(planned.scheduled)
    for training in (stock, planned):
        for _ in range(5 + (num_steps if training is stock else 0)):
            step(training)
    assert_same(bits(stock), bits(planned))
    planned.scheduled.close()


def _is_for_this_network(scheduled: Scheduled) -> bool:
    assert scheduled.plan is not None
    return communication_of(scheduled.plan).problem.network.ns_per_byte < WRONG.ns_per_byte / MUCH


def planned_anew_when_the_network_is_another() -> None:
    """All ranks agree on another plan."""
    _until_planned_anew(Training.step)


def every_fourth_step_is_logged() -> None:
    """Pieces and gradients of logged steps have times within their step."""
    model = DistributedDataParallel(Small())
    sgd = torch.optim.SGD(model.parameters(), lr=0.1)
    plan = plan_of(model, kind="urgent")
    scheduled = schedule_training(model, sgd, plan, replan=False, log_every=4)
    for _ in range(25):
        sgd.zero_grad()
        model(torch.randn(4, 3, 8, 8)).sum().backward()
        sgd.step()
    scheduled.flush()
    assert [log.step for log in scheduled.log] == [4, 8, 12, 16, 20, 24]
    for log in scheduled.log:
        assert len(log.issued_ns) == len(log.arrived_ns) == len(log.expected_ns)
        assert len(log.issued_ns) == len(communication_of(plan).order.pieces)
        for issued, arrived in zip(log.issued_ns, log.arrived_ns, strict=True):
            assert 0 <= issued < log.step_ns
            assert 0 <= arrived < log.step_ns
        assert all(0 <= released <= log.backward_ns for released in log.released_ns)
        assert log.backward_ns < log.step_ns
    assert scheduled.own_share is not None
    assert 0 < scheduled.own_share < 1
    scheduled.close()


def planned_anew_while_one_rank_evaluates() -> None:
    """Rank 0 evaluates alone while the others wait for it: no plan is received then."""
    steps: dict[int, int] = {}

    def step(training: Training) -> None:
        training.step()
        done = steps[id(training)] = steps.get(id(training), 0) + 1
        # Not at first, when stock DDP arranges its buckets in the next forward.
        if done > 2 and dist.get_rank() == 0:
            inputs, _ = next(training.data)
            training.model.eval()
            for how in (torch.no_grad, torch.enable_grad):
                with how():
                    training.model(inputs)
            training.model.train()
        dist.barrier()

    _until_planned_anew(step, net=Small)


def another_policy_that_is_not_there() -> None:
    """A plan that cannot be made anew is followed as it is."""
    model = DistributedDataParallel(Small())
    sgd = torch.optim.SGD(model.parameters(), lr=0.1)
    plan = plan_of(model, kind="urgent")
    section = communication_of(plan)
    problem = replace(section.problem, network=WRONG)
    order = replace(section.order, policy="unknown")
    plan = replace(plan, communication=replace(section, problem=problem, order=order))
    scheduled = schedule_training(model, sgd, plan, log_every=1, searches_here=True)
    for _ in range(17):
        sgd.zero_grad()
        model(torch.randn(4, 3, 8, 8)).sum().backward()
        sgd.step()
    scheduled.flush()
    assert scheduled.plan is plan
    scheduled.close()
