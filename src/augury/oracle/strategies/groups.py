"""What hybrids share: devices in groups, groups side by side."""

from __future__ import annotations

import numpy as np

from augury.oracle.cluster import F8
from augury.oracle.strategy import Case, Mask, must_divide


def between_groups(case: Case) -> F8:
    """How many groups there are, at least one."""
    return np.maximum(1.0, np.floor(case.devices / case.group))


def group_refusals(case: Case, limit: int, what: str) -> list[tuple[Mask, str]]:
    group = np.full_like(case.devices, case.group)
    return [
        must_divide(case.devices, group, f"the devices do not divide into groups of {case.group}"),
        (group > limit, f"a group of {case.group} is more than the {limit} {what}"),
        must_divide(
            case.batch,
            between_groups(case),
            f"the batch does not divide by the groups of {case.group}",
        ),
    ]
