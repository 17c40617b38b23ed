"""``augury.apply``: a plan followed by a program that asks for it, in two lines."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from augury.core.plan.plan import Plan
from augury.core.plan.plan_file import load_plan

if TYPE_CHECKING:
    from augury.runtime.torch.training import Scheduled


def apply(
    model: Any,
    optimizer: Any,
    plan: Plan | str | os.PathLike[str],
    *,
    replan: bool = True,
    trial: bool = True,
) -> Scheduled:
    """Train ``model``, a DistributedDataParallel, as the plan says: called by all ranks, once the
    optimizer is made. With ``trial``, blocks of stock and planned steps alternate first, and the
    faster mode stays. Where the plan does not fit, training goes on as it is, and ``reason`` of
    what is returned says why."""
    from augury.runtime.torch.training import schedule_training  # noqa: PLC0415
    from augury.runtime.trial import TrialRules  # noqa: PLC0415

    plan = plan if isinstance(plan, Plan) else load_plan(Path(plan))
    rules = TrialRules() if trial else None
    return schedule_training(model, optimizer, plan, replan=replan, trial=rules)
