"""Places and ways in which parameters are used."""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional

from tests.runtime.trainings import (
    STEPS,
    Net,
    Small,
    Training,
    assert_same,
    bits,
    both,
    checksum,
    compare,
    follow,
    train,
)


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
    compare(train, net=Tied)


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
    compare(train, net=Attentive)


def channels_last_and_views_of_buckets() -> None:
    compare(
        train,
        net=lambda: Net().to(memory_format=torch.channels_last),
        ddp={"gradient_as_bucket_view": True},
        plan={"slice_bytes": 304},
    )


def half_precision_parameters() -> None:
    def steps(training: Training) -> None:
        for _ in range(STEPS):
            inputs, targets = next(training.data)
            training.optimizer.zero_grad()
            output = training.model(inputs.bfloat16())
            functional.cross_entropy(output.float(), targets).backward()
            training.optimizer.step()

    compare(steps, net=lambda: Small().bfloat16())


def autocast() -> None:
    def steps(training: Training) -> None:
        for _ in range(STEPS):
            inputs, targets = next(training.data)
            training.optimizer.zero_grad()
            with torch.autocast("cpu", dtype=torch.bfloat16):
                loss = functional.cross_entropy(training.model(inputs), targets)
            loss.backward()
            training.optimizer.step()

    compare(steps)
    compare(
        steps,
        make_optimizer=lambda m: torch.optim.Muon([p for p in m.parameters() if p.ndim == 2]),
        net=Small,
    )


def parameters_seen_through_views() -> None:
    """Views and arrays that were taken before the plan, and others while it is followed."""
    results = []
    for training in both():
        plan = None
        if training.scheduled is not None:
            plan = training.scheduled._decision.plan
            training.scheduled.close()
        model = training.model
        views = [p.detach() for p in model.parameters()][::2]
        if plan is not None:
            training.scheduled = follow(model, training.optimizer, plan)
        for n in range(2 * STEPS):
            training.step()
            training.notes.append([checksum(view) for view in views])
            if n == STEPS:
                views = [model.module.head.weight.view(-1)]
        array = model.module.head.weight.detach().numpy()
        training.step()
        training.notes.append(float(array.sum()))
        results.append((bits(training), training.notes))
    assert_same(*results)


def parameters_zeroed_after_the_step() -> None:
    """Zeros stay: the update came before them."""

    def steps(training: Training) -> None:
        for n in range(2 * STEPS):
            training.step()
            with torch.no_grad():
                if n % 3 == 0:
                    training.model.module.head.bias.zero_()
                elif n % 3 == 1:
                    nn.init.zeros_(training.model.module.body[0].bias)
                else:
                    torch._foreach_zero_([training.model.module.scale])

    compare(steps)
