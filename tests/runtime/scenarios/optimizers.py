"""Torch's optimizers."""

from __future__ import annotations

from typing import Any

import torch

from tests.runtime.trainings import (
    Small,
    compare,
    train,
)

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


def _optimizer(name: str) -> None:
    kind, options = OPTIMIZERS[name]
    compare(
        train,
        make_optimizer=lambda m: getattr(torch.optim, kind)(m.parameters(), **options),
        net=Small,
        plan={"slice_bytes": 600},
    )


for _name in OPTIMIZERS:
    globals()[f"optimizer_{_name}"] = lambda name=_name: _optimizer(name)


def optimizer_Muon() -> None:  # noqa: N802
    """It takes matrices only: the other parameters belong to another optimizer, or to none."""
    compare(
        train,
        make_optimizer=lambda m: torch.optim.Muon([p for p in m.parameters() if p.ndim == 2]),
        net=Small,
    )
