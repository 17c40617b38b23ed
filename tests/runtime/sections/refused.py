"""Sections that a training cannot have: the others are applied, and the reason is stated."""

from __future__ import annotations

import torch
import torch.distributed as dist
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from augury.core.plan.plan import PlanSection
from augury.core.plan.plan_board import board
from augury.core.plan.sections import AccumulateSection, FusionSection, RecomputeSection
from augury.runtime.torch.training import schedule_training
from tests.runtime.sections.jobs import Stack, assert_bits, plan_with, train

FUSION, RECOMPUTE, PRECISION = PlanSection.FUSION, PlanSection.RECOMPUTE, PlanSection.PRECISION
THREADS = PlanSection.THREADS


def _refused(name: PlanSection, plan, **options) -> str:
    """Returns the reason; the section THREADS of the plan is applied all the same."""
    stock = train(None, **options)
    trained = train(plan, **options)
    assert_bits(stock, trained)
    assert not trained.section(name).is_applied
    assert trained.section(THREADS).is_applied
    assert trained.status is not None
    assert trained.status.is_followed
    return trained.section(name).reason or ""


def batch_norm_is_not_recomputed() -> None:
    plan = plan_with(THREADS, recompute=RecomputeSection(modules=("norm",)))
    assert "module norm has BatchNorm" in _refused(RECOMPUTE, plan)


def modules_that_forward_changes_are_not_recomputed() -> None:
    class Counting(Stack):
        def __init__(self) -> None:
            super().__init__()
            self.blocks.register_buffer("num_calls", torch.zeros(()))
            self.blocks.forward = self._counted

        def _counted(self, inputs):
            self.blocks.num_calls += 1
            return nn.Sequential.forward(self.blocks, inputs)

    plan = plan_with(THREADS, recompute=RecomputeSection(modules=("blocks",)))
    assert "changes its buffers" in _refused(RECOMPUTE, plan, net=Counting)


def modules_with_hooks_are_not_compiled() -> None:
    class Hooked(Stack):
        def __init__(self) -> None:
            super().__init__()
            self.blocks[0].linear.register_forward_hook(lambda *_: None)

    assert "blocks.0 has hooks" in _refused(FUSION, plan_with(FUSION, THREADS), net=Hooked)


def modules_that_cannot_be_compiled_run_as_they_are() -> None:
    class Odd(Stack):
        def __init__(self) -> None:
            super().__init__()
            self.odd = _Odd()

        def forward(self, inputs):
            return self.odd(super().forward(inputs))

    plan = plan_with(THREADS, fusion=FusionSection(modules=("odd",)))
    assert "module odd" in _refused(FUSION, plan, net=Odd)


class _Odd(nn.Module):
    """Computes something else where it is compiled."""

    def forward(self, inputs):
        return inputs * (2 if torch.compiler.is_compiling() else 1)


def modules_that_are_not_called_are_refused() -> None:
    class Idle(Stack):
        def __init__(self) -> None:
            super().__init__()
            self.idle = nn.Dropout()

    plan = plan_with(THREADS, fusion=FusionSection(modules=("idle",)))
    assert _refused(FUSION, plan, net=Idle) == "module idle was not called"


def unknown_modules_are_refused() -> None:
    plan = plan_with(THREADS, fusion=FusionSection(modules=("blocks.7",)))
    assert _refused(FUSION, plan) == "the model has no module 'blocks.7'"


def unused_parameters_and_compiled_modules_exclude_each_other() -> None:
    reason = _refused(FUSION, plan_with(FUSION, THREADS), find_unused_parameters=True)
    assert "find_unused_parameters" in reason


def second_derivatives_are_not_compiled() -> None:
    """Although the program needs them every few steps only."""
    num_calls = [0]

    def loss_of(output, targets):
        num_calls[0] += 1
        loss = nn.functional.cross_entropy(output, targets)
        if num_calls[0] % 16:
            return loss
        (slope,) = torch.autograd.grad(loss, output, create_graph=True)
        return loss + slope.square().sum()

    def again():
        num_calls[0] = 0
        return Stack()

    reason = _refused(FUSION, plan_with(FUSION, THREADS), loss_of=loss_of, net=again)
    assert reason == "the program uses create_graph=True"


def models_that_communicate_in_forward_are_not_rehearsed() -> None:
    class Joined(Stack):
        def forward(self, inputs):
            total = inputs.sum()
            dist.all_reduce(total)
            return super().forward(inputs + 0.001 * total)

    reason = _refused(RECOMPUTE, plan_with(RECOMPUTE, THREADS), net=Joined)
    assert reason == "the model communicates in its forward"


def autocast_of_the_program_is_kept() -> None:
    def loss_of(output, targets):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return nn.functional.cross_entropy(output, targets)

    plan = plan_with(PRECISION, THREADS)
    assert _refused(PRECISION, plan, loss_of=loss_of) == "the program uses autocast"


def a_scaler_of_the_program_is_kept() -> None:
    scaler = torch.amp.GradScaler("cpu")
    assert _refused(PRECISION, plan_with(PRECISION, THREADS)) == "the program has a GradScaler"
    del scaler


def advice_is_left_to_the_program() -> None:
    plan = plan_with(THREADS, accumulate=AccumulateSection(num_micro_batches=4))
    assert "advice" in _refused(PlanSection.ACCUMULATE, plan)


def a_section_that_one_rank_cannot_apply_is_applied_by_none() -> None:
    def loss_of(output, targets):
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=dist.get_rank() == 1):
            return nn.functional.cross_entropy(output, targets)

    reason = _refused(PRECISION, plan_with(PRECISION, THREADS), loss_of=loss_of)
    by_rank = ["another rank cannot apply it", "the program uses autocast"]
    assert reason == by_rank[dist.get_rank() == 1]


def a_plan_of_which_nothing_is_left_is_refused() -> None:
    trained = train(plan_with(fusion=FusionSection(modules=("blocks.7",))))
    assert trained.status is not None
    assert not trained.status.is_followed
    assert trained.status.reason == "the model has no module 'blocks.7'"


def loaders_that_draw_random_numbers_keep_their_own_process() -> None:
    class Noisy(TensorDataset):
        def __getitem__(self, index):
            inputs, targets = super().__getitem__(index)
            return (inputs + torch.rand(1) if index % 5 == 0 else inputs), targets

    results = []
    for is_planned in (False, True):
        torch.manual_seed(2)
        data = Noisy(torch.randn(160, 16), torch.randint(5, (160,)))
        model = nn.parallel.DistributedDataParallel(Stack())
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        loader = DataLoader(data, batch_size=8, shuffle=True)
        scheduled = None
        if is_planned:
            plan = plan_with(PlanSection.LOADER, THREADS)
            scheduled = schedule_training(model, optimizer, plan)
        for inputs, targets in loader:
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(inputs), targets).backward()
            optimizer.step()
        results.append([*model.state_dict().values(), torch.get_rng_state()])
        if scheduled is not None:
            assert board.status is not None
            (status,) = (one for one in board.status.sections if one.section is PlanSection.LOADER)
            assert not status.is_applied
            assert status.reason == "a fetch uses the random state of torch"
            scheduled.close()
    for one, other in zip(*results, strict=True):
        assert torch.equal(one, other)
