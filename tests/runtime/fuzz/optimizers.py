"""Random optimizers, and how a program makes its own."""

from __future__ import annotations

from random import Random
from typing import Any

import torch

from tests.runtime.fuzz.program import OptimizerChoice, Program

FUSED = ("SGD", "Adam", "AdamW", "Adagrad")
KINDS = ("SGD", "SGD", "SGD", "Adam", "AdamW", "RMSprop", "Adagrad", "Adadelta", "NAdam", "RAdam")
OTHERS = ("Adamax", "ASGD", "Rprop", "Adafactor", "Muon")
"""Some of them depend on signs, or round: only where sums have the same bits."""
RATES = {"SGD": 0.05, "Adadelta": 0.5, "Adagrad": 0.05, "ASGD": 0.05}


def random_optimizer(random: Random, program: Program) -> OptimizerChoice:
    kinds = KINDS + OTHERS if program.num_ranks == 2 else KINDS
    kind = random.choice(kinds)
    options: dict[str, object] = {"lr": RATES.get(kind, 0.01)}
    if random.random() < 0.4:
        options["weight_decay"] = 0.01
    if kind == "SGD":
        _momentum(random, options)
    elif kind == "RMSprop":
        options["momentum"] = random.choice((0.0, 0.9))
        options["centered"] = random.random() < 0.3
    elif kind in ("Adam", "AdamW"):
        options["amsgrad"] = random.random() < 0.3
    elif kind == "Adagrad":
        options["eps"] = 1e-6  # its own lets rounding errors of tiny gradients grow
    if kind not in ("Adafactor", "Muon"):
        options["foreach"] = random.choice((None, True, False))
        options["maximize"] = random.random() < 0.1
    elif kind == "Adafactor":
        options["foreach"] = random.choice((True, False))
    if kind in FUSED and random.random() < 0.3:
        options["fused"] = True
        for name in ("momentum", "nesterov", "dampening"):
            options.pop(name, None)  # torch's fused SGD begins with memory as it happens to be
        options.pop("foreach")
    if kind == "Rprop":
        options.pop("weight_decay", None)
    return OptimizerChoice(
        kind=kind,
        options=tuple(options.items()),
        num_groups=random.choice((1, 1, 2, 3)),
        num_omitted=random.choice((0, 0, 0, 0, 1, 2)),
    )


def _momentum(random: Random, options: dict[str, object]) -> None:
    if random.random() < 0.6:
        options["momentum"] = 0.9
        options["nesterov"] = random.random() < 0.4
        if not options["nesterov"]:
            options["dampening"] = random.choice((0.0, 0.1))


def make_optimizer(choice: OptimizerChoice, model: Any) -> Any:
    parameters = [p for p in model.parameters() if choice.kind != "Muon" or p.ndim == 2]
    kept = parameters[: max(1, len(parameters) - choice.num_omitted)]
    options = dict(choice.options)
    groups = []
    for number in range(min(choice.num_groups, len(kept))):
        rate = options["lr"] / (number + 1)
        groups.append({"params": kept[number :: choice.num_groups], "lr": rate})
    return getattr(torch.optim, choice.kind)(groups, **options)


def make_scheduler(kind: str, optimizer: Any) -> Any:
    made = torch.optim.lr_scheduler
    if kind == "StepLR":
        return made.StepLR(optimizer, 2, 0.5)
    if kind == "ExponentialLR":
        return made.ExponentialLR(optimizer, 0.8)
    if kind == "OneCycleLR":
        rates = [group["lr"] for group in optimizer.param_groups]
        group = optimizer.param_groups[0]
        has_momentum = "momentum" in group and not group.get("fused")  # as in random_optimizer
        cycles = has_momentum or "betas" in group
        return made.OneCycleLR(optimizer, rates, total_steps=100, cycle_momentum=cycles)
    if kind == "CosineAnnealingLR":
        return made.CosineAnnealingLR(optimizer, 6)
    if kind == "LambdaLR":
        return made.LambdaLR(optimizer, lambda step: 1.0 / (1 + step))
    if kind == "CyclicLR":
        return made.CyclicLR(optimizer, 0.001, 0.02, step_size_up=2, cycle_momentum=False)
    if kind == "ReduceLROnPlateau":
        return made.ReduceLROnPlateau(optimizer, patience=0, factor=0.5)
    return made.LinearLR(optimizer, 0.3, total_iters=4)
