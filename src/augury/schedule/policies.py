"""All policies there are."""

from __future__ import annotations

from augury.core.errors import UsageError
from augury.schedule.augury import Augury
from augury.schedule.policy import Policy
from augury.schedule.rivals import RIVALS

POLICIES: tuple[Policy, ...] = (*RIVALS, Augury())


def find_policy(name: str) -> Policy:
    for policy in POLICIES:
        if policy.name == name:
            return policy
    raise UsageError(
        f"there is no policy {name!r}",
        remedy=f"choose one of {', '.join(policy.name for policy in POLICIES)}",
    )
