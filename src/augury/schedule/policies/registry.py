"""The registry of all policies."""

from __future__ import annotations

from augury.core.errors import UsageError
from augury.schedule.policies.augury import Augury
from augury.schedule.policies.baselines import RIVALS
from augury.schedule.policies.policy import Policy

POLICIES: tuple[Policy, ...] = (*RIVALS, Augury())


def find_policy(name: str) -> Policy:
    for policy in POLICIES:
        if policy.name == name:
            return policy
    raise UsageError(
        f"unknown policy {name!r}",
        remedy=f"choose one of {', '.join(policy.name for policy in POLICIES)}",
    )
