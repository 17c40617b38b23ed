"""Lets a program follow a plan that knows nothing of it: ``augury run --plan``.

Runs before the program's first line, and only waits for torch to come. A program that it cannot
help it leaves alone, and says why.
"""

from __future__ import annotations

import functools
import os
import weakref
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from augury.core.after_import import after_import
from augury.core.plan import Mode
from augury.runtime.say import say

if TYPE_CHECKING:
    from augury.core.plan import Plan
    from augury.runtime.torch_scheduled import Scheduled

VARIABLE = "AUGURY_PLAN"
"""Where the launcher tells its processes of the plan's file."""


def arrange(path: str | None = None) -> None:
    """For the plan in that file, or the one that the launcher told of, if any."""
    path = path or os.environ.get(VARIABLE)
    if path:
        follower = Follower(Path(path))
        after_import("torch.nn.parallel.distributed", follower.on_ddp)
        after_import("torch.optim.optimizer", follower.on_optimizers)


class Follower:
    def __init__(self, path: Path) -> None:
        self._path = path
        self._plan: Plan | None = None
        self._is_read = False
        self._models: list[weakref.ref[Any]] = []
        self._hook: Any = None
        self.scheduled: Scheduled | None = None

    def on_ddp(self, module: ModuleType) -> None:
        """Models are known by their making; planned buckets must be given to them then."""
        kind = module.DistributedDataParallel
        was = kind.__init__

        @functools.wraps(was)
        def init(model: Any, wrapped: Any, *args: Any, **options: Any) -> None:
            was(model, wrapped, *args, **self._with_buckets(wrapped, options))
            self._models.append(weakref.ref(model))

        kind.__init__ = init

    def on_optimizers(self, module: ModuleType) -> None:
        self._hook = module.register_optimizer_step_pre_hook(self._before_first_step)

    def _with_buckets(self, wrapped: Any, options: dict[str, Any]) -> dict[str, Any]:
        try:
            self._read_together()
            if self._plan is None or self._plan.mode is not Mode.DDP_BUCKETS:
                return options
            from augury.runtime.torch_ddp_buckets import planned_options  # noqa: PLC0415

            return planned_options(self._plan, wrapped, options)
        except Exception as error:
            say(f"the plan is not followed: {error}")
            return options

    def _read_together(self) -> None:
        """All ranks make their models together: a plan that one of them cannot read, or reads
        otherwise, is none for all."""
        if self._is_read:
            return
        self._is_read = True
        from augury.core.plan_file import load_plan  # noqa: PLC0415
        from augury.runtime.torch_agree import agree  # noqa: PLC0415

        plan, reason = None, None
        try:
            plan = load_plan(self._path)
        except Exception as error:
            reason = str(error)
        reason = agree(reason, plan)
        if reason is None:
            self._plan = plan
        else:
            self._say_why(reason)

    def _before_first_step(self, optimizer: Any, _args: Any, _options: Any) -> None:
        """By then the program is what it is going to be, and all ranks are at the same place."""
        models = [model for one in self._models if (model := one()) is not None]
        parameters = {id(p) for group in optimizer.param_groups for p in group["params"]}
        trained = [m for m in models if any(id(p) in parameters for p in m.parameters())]
        if models and not trained:
            return  # another optimizer's step may come
        self._hook.remove()
        try:
            self._follow(trained, optimizer)
        except Exception as error:
            say(f"the plan is not followed: {error}")

    def _follow(self, models: list[Any], optimizer: Any) -> None:
        plan = self._plan
        if len(models) != 1:
            number = "several models are" if models else "no model is"
            self._say_why(f"{number} trained by DistributedDataParallel")
        elif plan is not None and plan.mode is Mode.PIECES:
            if plan.foretold is not None and plan.foretold.gain_pct <= 0:
                self._say_why("it foretells no gain")
                return
            from augury.runtime.torch_scheduled import schedule_training  # noqa: PLC0415

            self.scheduled = schedule_training(models[0], optimizer, plan)
            if self.scheduled.reason is None and _is_first():
                pieces = len(plan.order.pieces)
                say(f"follows the plan: {plan.order.policy}, {pieces} pieces a step")

    def _say_why(self, reason: str) -> None:
        if _is_first():
            say(f"the plan is not followed: {reason}")


def _is_first() -> bool:
    from torch import distributed  # noqa: PLC0415

    return not distributed.is_initialized() or distributed.get_rank() == 0
