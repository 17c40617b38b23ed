"""What trainings do, each done with stock DDP and under a plan: the bits must be the same.

Every function here runs on two ranks at once (``tests.runtime.ranks``).
"""

from __future__ import annotations

import copy
import io
import pickle
from contextlib import nullcontext
from dataclasses import replace
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import allreduce_hook
from torch.nn import functional
from torch.nn.parallel import DistributedDataParallel
from torch.overrides import TorchFunctionMode

import augury
from augury.core.plan import Mode, Plan
from augury.core.problem import Network
from augury.runtime.monitor import MUCH
from augury.runtime.torch_scheduled import schedule_training
from augury.schedule.policies import find_policy
from tests.runtime.trainings import (
    Net,
    Training,
    assert_same,
    bits,
    both,
    compare,
    plan_of,
    problem_of,
)

STEPS = 3


def _train(training: Training) -> None:
    for _ in range(STEPS):
        training.step()


# --- orders


def urgent_slices() -> None:
    compare(_train)


def urgent_slices_behind_a_barrier() -> None:
    compare(_train, plan={"has_barrier": True})


def whole_gradients() -> None:
    compare(_train, plan={"kind": "release"})


def whole_gradients_behind_a_barrier() -> None:
    compare(_train, plan={"kind": "release", "has_barrier": True})


def halves() -> None:
    compare(_train, plan={"kind": "halves"})


def halves_behind_a_barrier() -> None:
    compare(_train, plan={"kind": "halves", "has_barrier": True})


def slices_of_odd_sizes() -> None:
    compare(_train, plan={"slice_bytes": 100})


def bytes_of_one_slice() -> None:
    compare(_train, plan={"slice_bytes": 1 << 20})


# --- optimizers

OPTIMIZERS: dict[str, tuple[str, dict[str, Any]]] = {
    "Adadelta": ("Adadelta", {"lr": 0.5}),
    "Adafactor": ("Adafactor", {"lr": 0.01}),
    "Adagrad": ("Adagrad", {"lr": 0.05}),
    "Adagrad_fused": ("Adagrad", {"lr": 0.05, "fused": True}),
    "Adam": ("Adam", {"lr": 0.01}),
    "Adam_amsgrad_foreach": ("Adam", {"lr": 0.01, "amsgrad": True, "foreach": True}),
    "Adam_fused": ("Adam", {"lr": 0.01, "fused": True}),
    "Adam_tensor_lr": ("Adam", {"lr": torch.tensor(0.01)}),
    "Adamax": ("Adamax", {"lr": 0.01}),
    "AdamW": ("AdamW", {"lr": 0.01, "weight_decay": 0.1}),
    "AdamW_fused": ("AdamW", {"lr": 0.01, "fused": True}),
    "ASGD": ("ASGD", {"lr": 0.05}),
    "ASGD_foreach": ("ASGD", {"lr": 0.05, "foreach": True}),
    "NAdam": ("NAdam", {"lr": 0.01}),
    "RAdam": ("RAdam", {"lr": 0.01}),
    "RMSprop": ("RMSprop", {"lr": 0.01, "momentum": 0.9, "centered": True}),
    "Rprop": ("Rprop", {"lr": 0.01}),
    "Rprop_foreach": ("Rprop", {"lr": 0.01, "foreach": True}),
    "SGD": ("SGD", {"lr": 0.1}),
    "SGD_foreach": ("SGD", {"lr": 0.1, "momentum": 0.9, "nesterov": True, "foreach": True}),
    "SGD_fused": ("SGD", {"lr": 0.1, "momentum": 0.9, "weight_decay": 0.01, "fused": True}),
    "SGD_maximize": ("SGD", {"lr": 0.01, "maximize": True}),
}


class Small(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(12, 24), nn.Linear(24, 24)
        self.last = nn.Linear(24, 5)

    def forward(self, inputs):
        return self.last(self.second(self.first(inputs[:, 0, 0:3, 0:4].flatten(1)).tanh()).relu())


def _optimizer(name: str) -> None:
    kind, options = OPTIMIZERS[name]
    compare(
        _train,
        make_optimizer=lambda m: getattr(torch.optim, kind)(m.parameters(), **options),
        net=Small,
        plan={"slice_bytes": 600},
    )


for _name in OPTIMIZERS:
    globals()[f"optimizer_{_name}"] = lambda name=_name: _optimizer(name)


def optimizer_Muon() -> None:  # noqa: N802
    """It takes matrices only: the rest of the model is another's, or nobody's."""
    compare(
        _train,
        make_optimizer=lambda m: torch.optim.Muon([p for p in m.parameters() if p.ndim == 2]),
        net=Small,
    )


# --- parameter groups, learning rates


def parameter_groups_and_schedulers() -> None:
    def train(training: Training) -> None:
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

    compare(train, make_optimizer=groups)


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
    def train(training: Training) -> None:
        for n in range(2 * STEPS):
            training.step()
            training.optimizer.param_groups[0]["lr"] = 0.1 / (n + 1)

    compare(train)


def a_parameter_group_that_is_added_later() -> None:
    def some(model: nn.Module) -> Any:
        return torch.optim.SGD([p for p in model.parameters() if p.ndim > 1], lr=0.1)

    def train(training: Training) -> None:
        _train(training)
        others = [p for p in training.model.parameters() if p.ndim <= 1]
        training.optimizer.add_param_group({"params": others, "lr": 0.05})
        training.model.zero_grad()
        _train(training)

    compare(train, make_optimizer=some)


# --- where parameters are used


class Tied(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.encode = nn.Linear(20, 30, bias=False)
        self.middle = nn.Linear(30, 30)
        self.decode = nn.Linear(30, 20, bias=False)
        self.again = nn.Linear(20, 30, bias=False)
        self.again.weight = self.encode.weight
        self.last = nn.Linear(30, 5)

    def forward(self, inputs):
        hidden = self.middle(self.encode(inputs.flatten(1)[:, :20])).relu()
        # Used by a module that it does not belong to.
        decoded = functional.linear(hidden, self.encode.weight.t())
        return self.last(self.again(decoded + self.decode(hidden)).relu())


def tied_parameters_and_functional_use() -> None:
    compare(_train, net=Tied)


class Attentive(nn.Module):
    """Torch's own attention and recurrent modules use parameters of their children."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Linear(8, 16)
        self.layer = nn.TransformerEncoderLayer(16, 2, 32, dropout=0.0, batch_first=True)
        self.recurrent = nn.LSTM(16, 12, batch_first=True)
        self.normed = nn.utils.parametrizations.weight_norm(nn.Linear(12, 12))
        self.last = nn.Linear(12, 5)

    def forward(self, inputs):
        hidden = self.layer(self.embed(inputs[:, 0]))
        return self.last(self.normed(self.recurrent(hidden)[0].mean(1)))


def attention_recurrence_and_parametrizations() -> None:
    compare(_train, net=Attentive)


def channels_last_and_views_of_buckets() -> None:
    compare(
        _train,
        net=lambda: Net().to(memory_format=torch.channels_last),
        ddp={"gradient_as_bucket_view": True},
        plan={"slice_bytes": 300},
    )


def half_precision_parameters() -> None:
    def train(training: Training) -> None:
        for _ in range(STEPS):
            inputs, targets = next(training.data)
            training.optimizer.zero_grad()
            output = training.model(inputs.bfloat16())
            functional.cross_entropy(output.float(), targets).backward()
            training.optimizer.step()

    compare(train, net=lambda: Small().bfloat16())


def autocast() -> None:
    def train(training: Training) -> None:
        for _ in range(STEPS):
            inputs, targets = next(training.data)
            training.optimizer.zero_grad()
            with torch.autocast("cpu", dtype=torch.bfloat16):
                loss = functional.cross_entropy(training.model(inputs), targets)
            loss.backward()
            training.optimizer.step()

    compare(train)
    compare(
        train,
        make_optimizer=lambda m: torch.optim.Muon([p for p in m.parameters() if p.ndim == 2]),
        net=Small,
    )


# --- parameters that are not used


class Choosy(nn.Module):
    """One part is used by no rank, one by rank 1 only in every other step."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.idle = nn.Linear(12, 24), nn.Linear(3, 3)
        self.rare, self.last = nn.Linear(24, 24), nn.Linear(24, 5)
        self.count = 0

    def forward(self, inputs):
        hidden = self.first(inputs.flatten(1)[:, :12])
        self.count += 1
        if dist.get_rank() == 1 and self.count % 2:
            hidden = self.rare(hidden)
        return self.last(hidden)


def unused_parameters() -> None:
    def train(training: Training) -> None:
        for n in range(2 * STEPS):
            training.optimizer.zero_grad(set_to_none=n < STEPS)
            training.loss().backward()
            training.notes.append([_sum(p.grad) for p in training.model.parameters()])
            training.optimizer.step()

    compare(train, net=Choosy, ddp={"find_unused_parameters": True})


def unused_parameters_unwatched() -> None:
    for barrier in (False, True):
        compare(
            _train,
            net=Choosy,
            ddp={"find_unused_parameters": True},
            plan={"kind": "release", "has_barrier": barrier},
        )


def _sum(tensor: torch.Tensor | None) -> str | None:
    return None if tensor is None else tensor.double().sum().item().hex()


class Forgetful(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.idle, self.last = nn.Linear(12, 5), nn.Linear(3, 3), nn.Linear(5, 5)

    def forward(self, inputs):
        return self.last(self.first(inputs.flatten(1)[:, :12]))


def unused_parameters_that_were_not_announced() -> None:
    for training in both(net=Forgetful):
        with pytest.raises(RuntimeError, match="find_unused_parameters=True") as raised:
            _train(training)
        if training.scheduled is not None:
            assert "idle.weight" in str(raised.value)


# --- between backward and the next forward


def accumulation_without_exchange() -> None:
    def train(training: Training) -> None:
        for _ in range(STEPS):
            training.optimizer.zero_grad()
            for is_last in (False, False, True):
                with nullcontext() if is_last else training.model.no_sync():
                    training.loss().backward()
                if not is_last:
                    training.notes.append(_sum(training.model.module.conv.weight.grad))
            training.optimizer.step()

    compare(train)


def several_exchanges_before_a_step() -> None:
    def train(training: Training) -> None:
        for _ in range(STEPS):
            training.optimizer.zero_grad()
            training.loss().backward()
            training.loss().backward()
            training.optimizer.step()

    compare(train)
    compare(train, plan={"has_barrier": True})


def a_backward_in_two_parts() -> None:
    def train(training: Training) -> None:
        for _ in range(STEPS):
            training.optimizer.zero_grad()
            inputs, targets = next(training.data)
            output = training.model(inputs)
            middle = output.detach().requires_grad_()
            functional.cross_entropy(middle, targets).backward()
            output.backward(middle.grad)
            training.optimizer.step()

    compare(train)


def zeroed_while_under_way() -> None:
    def train(training: Training) -> None:
        for _ in range(STEPS):
            training.loss().backward()
            training.optimizer.step()
            training.optimizer.zero_grad(set_to_none=False)
            grads = [p.grad for p in training.model.parameters()]
            training.loss()  # forward only: what arrives must not fill what was zeroed
            training.notes.append([_sum(grad) for grad in grads])
            training.model.zero_grad()

    compare(train)


def zeroed_between_forward_and_backward() -> None:
    def train(training: Training) -> None:
        for n in range(2 * STEPS):
            loss = training.loss()
            training.notes.append([_sum(p.grad) for p in training.model.parameters()])
            training.optimizer.zero_grad(set_to_none=bool(n % 2))
            loss.backward()
            training.optimizer.step()

    compare(train)
    compare(train, plan={"has_barrier": True})


def never_zeroed() -> None:
    def train(training: Training) -> None:
        for _ in range(STEPS):
            training.loss().backward()
            training.optimizer.step()

    compare(train)
    compare(train, plan={"has_barrier": True})


def skipped_steps() -> None:
    def train(training: Training) -> None:
        for n in range(2 * STEPS):
            training.optimizer.zero_grad()
            training.loss().backward()
            if n % 3:
                training.optimizer.step()

    compare(train)


def two_steps_of_one_gradient() -> None:
    def train(training: Training) -> None:
        for _ in range(STEPS):
            training.step()
            training.optimizer.step()

    compare(train)


def clipped_gradients() -> None:
    def train(training: Training) -> None:
        for _ in range(2 * STEPS):
            training.optimizer.zero_grad()
            training.loss().backward()
            norm = nn.utils.clip_grad_norm_(training.model.parameters(), 0.5)
            training.notes.append(norm.item().hex())
            training.optimizer.step()

    compare(train)
    compare(train, plan={"has_barrier": True})


def a_scaler() -> None:
    def train(training: Training) -> None:
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

    compare(train)


def a_moving_average_of_parameters() -> None:
    def train(training: Training) -> None:
        averaged = torch.optim.swa_utils.AveragedModel(training.model.module)
        for _ in range(2 * STEPS):
            training.step()
            averaged.update_parameters(training.model.module)
            training.notes.append([_sum(p) for p in averaged.parameters()])

    compare(train)


def gradients_are_read_after_the_step() -> None:
    def train(training: Training) -> None:
        for n in range(2 * STEPS):
            training.step()
            if n % 3 == 0:
                training.notes.append([_sum(p.grad) for p in training.model.parameters()])

    compare(train)
    compare(train, plan={"has_barrier": True})


def a_step_with_a_closure() -> None:
    def train(training: Training) -> None:
        for _ in range(STEPS):
            training.optimizer.zero_grad()

            def closure():
                loss = training.loss()
                loss.backward()
                return loss

            training.notes.append(training.optimizer.step(closure).item().hex())

    compare(train)


# --- states, evaluation, copies


def saved_and_resumed() -> None:
    results = []
    for training in both(make_optimizer=lambda m: torch.optim.Adam(m.parameters(), lr=0.01)):
        _train(training)
        saved = io.BytesIO()
        torch.save(
            {"model": training.model.state_dict(), "optimizer": training.optimizer.state_dict()},
            saved,
        )
        _train(training)
        after = bits(training)
        saved.seek(0)
        states = torch.load(saved)
        training.step()  # something must be under way
        training.model.load_state_dict(states["model"])
        training.optimizer.load_state_dict(states["optimizer"])
        training.step()
        results.append({**after, **{f"resumed {k}": v for k, v in bits(training).items()}})
    assert_same(*results)


def evaluation_between_steps() -> None:
    def train(training: Training) -> None:
        inputs, _ = next(training.data)
        for n in range(2 * STEPS):
            training.step()
            training.model.eval()
            how = [torch.no_grad, torch.inference_mode, torch.enable_grad][n % 3]
            through = [training.model, training.model.module][n % 2]
            with how():
                training.notes.append(_sum(through(inputs).detach()))
            training.model.train()

    compare(train, make_optimizer=lambda m: torch.optim.Adam(m.parameters(), lr=0.01))


def copies_and_pickles() -> None:
    def train(training: Training) -> None:
        for _ in range(STEPS):
            training.step()
            twin = copy.deepcopy(training.model.module)
            again = pickle.loads(pickle.dumps(training.model.module))
            training.notes.append([_sum(p) for p in (*twin.parameters(), *again.parameters())])
            inputs, _ = next(training.data)
            training.notes.append(_sum(twin(inputs).detach()))

    compare(train)


def parameters_as_arrays() -> None:
    def train(training: Training) -> None:
        for _ in range(STEPS):
            training.step()
            training.notes.append(training.model.module.head.bias.data.numpy().sum().item())
            training.notes.append(repr(training.model.module.norm.weight))

    compare(train)


class Counting(TorchFunctionMode):
    count = 0

    def __torch_function__(self, func, _types, args=(), kwargs=None):
        self.count += 1
        return func(*args, **(kwargs or {}))


def modes_of_the_program() -> None:
    """Contexts that are entered before backward and left after it, and the other way round."""
    before = torch._C._len_torch_function_stack()

    def train(training: Training) -> None:
        for n in range(2 * STEPS):
            own = Counting()
            training.optimizer.zero_grad()
            with torch.device("cpu") if n % 2 else own:
                loss = training.loss()
            with own, torch.device("cpu"):
                loss.backward()
            with own:
                training.optimizer.step()
                count = own.count
                torch.zeros(1).add_(1)
                assert own.count > count
                loss = training.loss()
            loss.backward()
            count = own.count
            training.optimizer.step()
            assert own.count == count

    compare(train)
    torch.set_default_device("cpu")
    compare(_train)
    torch.set_default_device(None)
    assert torch._C._len_torch_function_stack() == before


# --- what fails


class Trap(torch.autograd.Function):
    @staticmethod
    def forward(_ctx, value):
        return value.clone()

    @staticmethod
    def backward(_ctx, _gradient):
        raise ValueError("sprung")


class Trapped(nn.Module):
    """Backward fails where ``at`` says."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(12, 24), nn.Linear(24, 5)
        self.at = ""

    def forward(self, inputs):
        hidden = self.first(inputs.flatten(1)[:, :12]).relu()
        if self.at == "middle":
            hidden = Trap.apply(hidden)
        output = self.last(hidden)
        if self.at == "start":
            output = Trap.apply(output)
        if self.at == "forward":
            raise ValueError("sprung")
        return output


def failures_on_one_rank_or_all() -> None:
    """Whoever fails sends its pieces all the same; the run goes on, and nobody hangs."""
    model = DistributedDataParallel(Trapped())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    scheduled = schedule_training(model, optimizer, plan_of(model), replan=False)
    for at in ("middle", "start"):
        for who in ({0, 1}, {0}, {1}):
            for n in range(3):
                model.module.at = at if n == 1 and dist.get_rank() in who else ""
                optimizer.zero_grad()
                try:
                    model(torch.randn(4, 12)).sum().backward()
                except ValueError:
                    assert model.module.at
                else:
                    assert not model.module.at
                optimizer.step()
    scheduled.flush()
    model.module.at = "forward"
    for _ in range(2):
        with pytest.raises(ValueError, match="sprung"):
            model(torch.randn(4, 12))
    model.module.at = ""
    # After a fresh start all ranks are of one mind again.
    model.load_state_dict({k: torch.ones_like(v) for k, v in model.state_dict().items()})
    for _ in range(2):
        optimizer.zero_grad()
        model(torch.randn(4, 12)).sum().backward()
        optimizer.step()
    total = torch.stack([p.sum() for p in model.parameters()])
    others = [torch.empty_like(total) for _ in range(dist.get_world_size())]
    dist.all_gather(others, total)
    assert all(torch.equal(other, total) for other in others)
    scheduled.close()


def a_gradient_that_comes_twice() -> None:
    model = DistributedDataParallel(Small())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    scheduled = schedule_training(model, optimizer, plan_of(model), replan=False)
    output = model(torch.randn(4, 3, 8, 8))
    output.sum().backward(retain_graph=True)
    output.sum().backward()  # as with stock DDP it stays on this rank
    scheduled.close()


# --- changing one's mind


def switched_back_and_forth() -> None:
    results = []
    for training in both():
        scheduled = training.scheduled
        model = training.model
        for n in range(6):
            if scheduled is not None:
                kind = [None, "urgent", "halves", None, "release", "urgent"][n]
                scheduled.switch(
                    None if kind is None else plan_of(model, kind=kind, has_barrier=n == 4)
                )
                assert (scheduled.plan is None) == (kind is None)
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
    assert "ranks" in reason(model, sgd, replace(plan, num_ranks=3))
    assert "different plans" in reason(
        model, sgd, plan_of(model, slice_bytes=4096 >> dist.get_rank())
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


# --- what is seen of the network


def planned_anew_when_the_network_is_another() -> None:
    """It is said to be a million times as slow as it is: all ranks agree on another plan."""
    results = []
    for training in both():
        if training.scheduled is not None:
            training.scheduled.close()
            model = training.model
            problem = replace(problem_of(model), network=Network(ns_per_byte=1e5, overhead_ns=10))
            order = find_policy("p3").compile(problem)
            plan = Plan(mode=Mode.PIECES, num_ranks=2, problem=problem, order=order)
            training.scheduled = augury.apply(model, training.optimizer, plan)
            assert training.scheduled.plan is plan
        for _ in range(24):
            training.step()
        if training.scheduled is not None:
            new = training.scheduled.plan
            assert new is not None
            assert new.problem.network.ns_per_byte < 1e5 / MUCH
            _check_log(training.scheduled)
        results.append(bits(training))
    assert_same(*results)


def _check_log(scheduled: Any) -> None:
    """Every fourth step, each piece and gradient in it."""
    assert [log.step for log in scheduled.log] == list(range(4, 24 + 1, 4))
    for log in scheduled.log[:-1]:
        assert len(log.arrived_ns) == len(log.expected_ns)
        for issued, arrived in zip(log.issued_ns, log.arrived_ns, strict=True):
            assert 0 <= issued < log.step_ns
            assert 0 <= arrived < log.step_ns
        assert all(0 <= released <= log.backward_ns for released in log.released_ns)
        assert log.backward_ns < log.step_ns
    assert 0 < scheduled.own_share < 1


def another_policy_that_is_not_there() -> None:
    """A plan that cannot be made anew is followed as it is."""
    model = DistributedDataParallel(Small())
    sgd = torch.optim.SGD(model.parameters(), lr=0.1)
    plan = plan_of(model)
    plan = replace(plan, problem=replace(plan.problem, network=Network(ns_per_byte=1e6)))
    scheduled = schedule_training(model, sgd, plan, log_every=1)
    for _ in range(17):
        sgd.zero_grad()
        model(torch.randn(4, 3, 8, 8)).sum().backward()
        sgd.step()
    scheduled.flush()
    assert scheduled.plan is plan
    scheduled.close()


_KEPT: list[Training] = []


def left_under_way() -> None:
    """The last one: its process group is destroyed, and its process ends, while gradients are on
    their way."""
    model = DistributedDataParallel(Net())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    scheduled = schedule_training(model, optimizer, plan_of(model), replan=False)
    training = Training(model, optimizer, scheduled)
    _train(training)
    _KEPT.append(training)
