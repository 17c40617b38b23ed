"""Changes between plans and stock DDP, and plans that do not fit."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import allreduce_hook
from torch.nn.parallel import DistributedDataParallel

from augury.core.plan.plan import PlanSection
from augury.core.plan.sections import FusionSection
from augury.runtime.torch.training import schedule_training
from tests.runtime.trainings import (
    Net,
    Small,
    assert_same,
    bits,
    both,
    plan_of,
)


def switched_back_and_forth() -> None:
    results = []
    for training in both():
        scheduled = training.scheduled
        model = training.model
        for n in range(6):
            if scheduled is not None:
                kind = [None, "urgent", "halves", "buckets", "release", "urgent"][n]
                scheduled.switch(
                    None if kind is None else plan_of(model, kind=kind, has_barrier=n == 4)
                )
                assert (scheduled.plan is None and not scheduled.is_on_trial) == (kind is None)
            training.step()
            training.step()
        if scheduled is not None:
            scheduled.close()
            assert "step" not in vars(training.optimizer)
            assert not model._forward_hooks
            assert not model.module.head._forward_pre_hooks
        training.step()
        results.append(bits(training))
    assert_same(*results)


def plans_that_do_not_fit() -> None:
    def reason(model: Any, optimizer: Any, plan: Any) -> str:
        scheduled = schedule_training(model, optimizer, plan)
        assert scheduled.plan is None
        optimizer.zero_grad()
        for _ in range(2):
            try:
                model(torch.randn(4, 3, 8, 8)).sum().backward()
            except RuntimeError:
                break
        scheduled.flush()
        scheduled.close()
        return str(scheduled.reason)

    model = DistributedDataParallel(Small())
    plan = plan_of(model)
    parameters = list(model.parameters())
    sgd = torch.optim.SGD(parameters, lr=0.1)
    other = DistributedDataParallel(Net())
    other_sgd = torch.optim.SGD(other.parameters(), lr=0.1)
    assert "gradients are not the model's" in reason(other, other_sgd, plan)

    class Own(torch.optim.SGD):
        pass

    del other_sgd
    own = Own(other.parameters(), lr=0.1)
    assert "not one of torch's" in reason(other, own, plan)
    del own
    lbfgs = torch.optim.LBFGS(other.parameters())
    assert "LBFGS" in reason(other, lbfgs, plan)
    del lbfgs
    second = torch.optim.Adam(parameters[:1])
    assert "several optimizers" in reason(model, sgd, plan)
    del second
    handle = sgd.register_step_post_hook(lambda *_: None)
    assert "step hooks" in reason(model, sgd, plan)
    handle.remove()
    assert "ranks" in reason(model, sgd, replace(plan, num_ranks=5))
    assert "is for jax" in reason(model, sgd, replace(plan, framework="jax"))
    unknown = FusionSection(modules=("first.none",))
    assert "the model has no module 'first.none'" in reason(
        model,
        sgd,
        replace(plan, communication=None, fusion=unknown, applied=(PlanSection.FUSION,)),
    )
    assert "the plan has no section" in reason(model, sgd, replace(plan, communication=None))
    assert "parameters of other sizes" in reason(
        model, sgd, replace(plan, parameters_digest="0" * 64)
    )
    assert "different plans" in reason(
        model, sgd, plan_of(model, kind="urgent", slice_bytes=4096 >> dist.get_rank())
    )
    assert "plain DistributedDataParallel" in reason(model.module, sgd, plan)
    sparse = DistributedDataParallel(nn.Sequential(nn.Embedding(9, 4, sparse=True)))
    sparse_sgd = torch.optim.SGD(sparse.parameters(), lr=0.1)
    scheduled = schedule_training(sparse, sparse_sgd, plan_of(sparse))
    assert scheduled.reason is not None
    assert "sparse" in scheduled.reason
    hooked = DistributedDataParallel(Small())
    hooked.register_comm_hook(None, allreduce_hook)
    hooked_sgd = torch.optim.SGD(hooked.parameters(), lr=0.1)
    assert "communication hook" in reason(hooked, hooked_sgd, plan)
    compiled = torch.compile(model)
    assert "compiled" in reason(model, sgd, plan)
    del compiled


def announced_before_a_switch() -> None:
    """A forward that builds a graph and has no backward: stock DDP reduces the gradients of the
    next backward, even under ``no_sync``, and so does the mode that follows."""
    results = []
    for training in both():
        scheduled = training.scheduled
        model = training.model
        training.step()
        for kind in (None, "release", None):
            training.loss()
            if scheduled is not None:
                scheduled.switch(None if kind is None else plan_of(model, kind=kind))
            training.optimizer.zero_grad()
            for _ in range(2):
                with model.no_sync():
                    training.loss().backward()
            training.loss().backward()
            training.optimizer.step()
        results.append(bits(training))
    assert_same(*results)
