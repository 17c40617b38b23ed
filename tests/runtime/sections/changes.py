"""Every section of a plan, alone and together: the training ends as under stock DDP."""

from __future__ import annotations

import copy
import pickle
from dataclasses import replace

import torch
from torch import nn

from augury.core.plan.plan import Plan, PlanSection
from augury.core.plan.sections import FusionSection, RecomputeSection
from augury.runtime.torch.sections.module_calls import ModuleCall
from tests.runtime.sections.jobs import (
    SHORT_TRIAL,
    Stack,
    Trained,
    assert_bits,
    assert_close,
    plan_with,
    train,
)
from tests.runtime.trainings import plan_of

FUSION, RECOMPUTE, PRECISION = PlanSection.FUSION, PlanSection.RECOMPUTE, PlanSection.PRECISION
COMPRESSION, THREADS = PlanSection.COMPRESSION, PlanSection.THREADS


def _applied(plan: Plan, **options) -> Trained:
    trained = train(plan, **options)
    assert trained.status is not None
    assert trained.status.is_followed, trained.status
    assert {one.section for one in trained.status.sections if one.is_applied} == {*plan.applied}
    assert {*trained.sections} == {*plan.applied} - {PlanSection.COMMUNICATION}
    return trained


def recomputed_modules_keep_the_bits() -> None:
    """With dropout in the recomputed module."""
    assert_bits(train(None), _applied(plan_with(RECOMPUTE)))


def recomputed_modules_call_no_forward_twice_for_the_program() -> None:
    """The program sees as many outputs of a module as under stock DDP."""
    calls = []

    def count(model) -> None:
        calls.append(len(model.module.blocks))

    _applied(plan_with(RECOMPUTE), each_step=count)
    assert len(calls) == 28


def threads_keep_the_bits() -> None:
    before = torch.get_num_threads()
    assert_bits(train(None), _applied(plan_with(THREADS)))
    assert torch.get_num_threads() == before


def fused_modules_stay_close() -> None:
    """Dropout in compiled modules draws the random numbers of stock training."""
    stock, planned = train(None), _applied(plan_with(FUSION))
    assert_close(stock, planned, 1e-4)
    assert stock.losses != planned.losses


def fused_modules_allow_a_graph_that_is_kept() -> None:
    def kept(output, targets):
        loss = nn.functional.cross_entropy(output, targets)
        torch.autograd.grad(loss, output, retain_graph=True)
        return loss

    assert_close(train(None, loss_of=kept), _applied(plan_with(FUSION), loss_of=kept), 1e-4)


def half_precision_stays_close() -> None:
    stock = train(None)
    seen = []
    planned = _applied(
        plan_with(PRECISION),
        loss_of=lambda output, targets: (
            seen.append(output.dtype) or nn.functional.cross_entropy(output, targets)
        ),
    )
    assert {*seen} == {torch.float32}
    assert stock.losses != planned.losses
    assert_close(stock, planned, 0.1)


def compressed_gradients_stay_close() -> None:
    stock, planned = train(None), _applied(plan_with(COMPRESSION))
    assert stock.losses != planned.losses
    assert_close(stock, planned, 0.1)


def everything_together_stays_close() -> None:
    plan = plan_with(FUSION, RECOMPUTE, PRECISION, COMPRESSION, THREADS)
    assert_close(train(None), _applied(plan), 0.2)


def recomputation_goes_with_pieces_and_buckets() -> None:
    """Ordered pieces keep the bits of two ranks; modules are recomputed in their backward."""
    stock = train(None)
    for kind in ("urgent", "buckets"):
        torch.manual_seed(11)
        communication = plan_of(nn.parallel.DistributedDataParallel(Stack()), kind=kind)
        plan = replace(
            communication,
            recompute=RecomputeSection(modules=("blocks.2",)),
            threads=plan_with(THREADS).threads,
            applied=(PlanSection.COMMUNICATION, RECOMPUTE, THREADS),
        )
        assert_bits(stock, _applied(plan))


def compression_goes_with_buckets() -> None:
    communication = plan_of(nn.parallel.DistributedDataParallel(Stack()), kind="buckets")
    plan = replace(
        communication,
        compression=plan_with(COMPRESSION).compression,
        applied=(PlanSection.COMMUNICATION, COMPRESSION),
    )
    assert_close(train(None), _applied(plan), 0.1)


def pieces_give_way_to_fusion() -> None:
    communication = plan_of(nn.parallel.DistributedDataParallel(Stack()), kind="urgent")
    plan = replace(
        communication,
        fusion=plan_with(FUSION).fusion,
        applied=(PlanSection.COMMUNICATION, FUSION),
    )
    trained = train(plan)
    assert trained.section(FUSION).is_applied
    refused = trained.section(PlanSection.COMMUNICATION)
    assert refused.reason == "ordered pieces do not go with section fusion"


def copies_and_names_are_those_of_the_program() -> None:
    """A copy of a model under a plan, and a pickled one, know nothing of it."""

    def check(model) -> None:
        for other in (copy.deepcopy(model.module), pickle.loads(pickle.dumps(model.module))):
            assert not any(
                isinstance(module._compiled_call_impl, ModuleCall) for module in other.modules()
            )
            assert other.state_dict().keys() == Stack().state_dict().keys()

    trained = _applied(plan_with(FUSION, RECOMPUTE, PRECISION), each_step=check)
    assert not any("_compiled_call_impl" in vars(one) for one in trained.model.modules())


def evaluation_runs_as_without_a_plan() -> None:
    inputs = torch.randn(3, 16, generator=torch.Generator().manual_seed(5))
    seen = {}

    def evaluate(model) -> None:
        model.eval()
        with torch.no_grad():
            output = model.module(inputs)
            reference = copy.deepcopy(model.module)(inputs)
        model.train()
        seen[output.dtype] = torch.equal(output, reference)

    _applied(plan_with(FUSION, PRECISION, RECOMPUTE), each_step=evaluate)
    assert seen == {torch.float32: True}


def another_batch_size_runs_without_compiled_code() -> None:
    """Shapes that were not seen in the first steps are computed as without a plan."""

    class Growing(Stack):
        num_calls = 0

        def forward(self, inputs):
            self.num_calls += 1
            small = inputs[:5] if self.num_calls % 3 == 0 and self.num_calls > 60 else inputs
            output = super().forward(small)
            return nn.functional.pad(output, (0, 0, 0, len(inputs) - len(small)))

    options = {"net": Growing, "num_steps": 40}
    assert_close(train(None, **options), _applied(plan_with(FUSION), **options), 1e-3)


def a_trial_judges_the_plan_and_its_parts() -> None:
    plan = plan_with(RECOMPUTE, THREADS)
    trained = train(plan, num_steps=60, trial=SHORT_TRIAL)
    assert_bits(train(None, num_steps=60), trained)
    assert trained.status is not None
    (trial, *_) = trained.status.trials
    assert [{*one.sections} for one in trial.times] == [
        set(),
        {RECOMPUTE, THREADS},
        {THREADS},
        {RECOMPUTE},
    ]
    assert {*trained.sections} == {*trial.sections}
    applied = {one.section for one in trained.status.sections if one.is_applied}
    assert applied == {*trial.sections}


def a_plan_for_a_memory_limit_has_no_trial() -> None:
    """As ``augury.apply`` starts it by default."""
    plan = replace(plan_with(RECOMPUTE), memory_limit_bytes=10**9)
    trained = train(plan, trial=SHORT_TRIAL)
    assert_bits(train(None), trained)
    assert trained.status is not None
    assert trained.status.why_no_trial == "it was made for a memory limit of 1 GB"
    assert not trained.status.trials
    assert trained.status.is_followed
    assert trained.sections == (RECOMPUTE,)


def a_program_that_switches_plans_ends_as_under_stock_ddp() -> None:
    from augury.runtime.torch.training import schedule_training

    def both(is_planned: bool):
        torch.manual_seed(3)
        model = nn.parallel.DistributedDataParallel(Stack())
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        scheduled = None
        for step in range(30):
            if is_planned and step == 2:
                scheduled = schedule_training(model, optimizer, plan_with(RECOMPUTE))
            if scheduled is not None and step in (12, 22):
                scheduled.switch(plan_with(THREADS) if step == 12 else None)
            optimizer.zero_grad()
            model(torch.ones(8, 16) * step).square().mean().backward()
            optimizer.step()
        if scheduled is not None:
            scheduled.close()
        return [parameter.detach().clone() for parameter in model.parameters()]

    for one, other in zip(both(False), both(True), strict=True):
        assert torch.equal(one, other)


def a_module_within_a_larger_one_is_found() -> None:
    """A run in which the model was part of another one has longer paths."""
    plan = plan_with(fusion=FusionSection(modules=("system.model.blocks.1",)))
    assert_close(train(None), _applied(plan), 1e-4)
