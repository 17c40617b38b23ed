"""``augury.apply``: lets a program apply a plan to its own training."""

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
    """Applies a plan to ``model``, a DistributedDataParallel. All ranks call this, after the
    optimizer is created and before a data loader is iterated. With ``trial``, blocks of stock and
    planned steps alternate first, and the faster mode stays; a plan that was made for a memory
    limit is followed without a trial. Sections that the training cannot
    have are left out. Where nothing is left, stock DDP stays, and ``reason`` of the returned
    object states why."""
    from augury.runtime.torch.training import schedule_training  # noqa: PLC0415
    from augury.runtime.trial import TrialRules  # noqa: PLC0415

    plan = plan if isinstance(plan, Plan) else load_plan(Path(plan))
    rules = TrialRules() if trial else None
    return schedule_training(model, optimizer, plan, replan=replan, trial=rules)
