"""Applies a plan to an unchanged program: ``augury run --plan``.

It runs before the program's first line and waits until torch is imported. Where a plan cannot be
followed, the program stays unchanged and the reason is printed.
"""

from __future__ import annotations

import functools
import os
import weakref
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from augury.core.import_hook import after_import
from augury.core.plan.plan_board import board
from augury.core.plan.plan_status import PlanStatus
from augury.runtime.say import say

if TYPE_CHECKING:
    from augury.core.plan.plan import Plan, PlanSection
    from augury.runtime.torch.ranks.exchange_counter import ExchangeCounter
    from augury.runtime.torch.ranks.readiness import ReadinessVote
    from augury.runtime.torch.sections.loader import LoaderWorkers
    from augury.runtime.torch.training import Scheduled

VARIABLE = "AUGURY_PLAN"
"""Environment variable with the path of the plan."""
TRIAL_VARIABLE = "AUGURY_PLAN_TRIAL"
"""Environment variable; ``0``: the plan is followed without a trial."""


def arrange(path: str | None = None) -> None:
    """Prepares to follow the plan in that file, or the one that the launcher set, if any."""
    path = path or os.environ.get(VARIABLE)
    if path:
        has_trial = os.environ.get(TRIAL_VARIABLE) != "0"
        follower = Follower(Path(path), has_trial=has_trial)
        after_import("torch.nn.parallel.distributed", follower.on_ddp)
        after_import("torch.optim.optimizer", follower.on_optimizers)


class Follower:
    def __init__(self, path: Path, *, has_trial: bool) -> None:
        self._path = path
        self._has_trial = has_trial
        self._plan: Plan | None = None
        self._is_read = False
        self._models: list[weakref.ref[Any]] = []
        self._readiness: ReadinessVote | None = None
        self._optimizer: Any = None
        """The model's optimizer, kept because the program may replace it before all ranks are
        ready."""
        self._is_decided = False
        """Whether this rank has seen the first step of the model's optimizer."""
        self._is_without_model = False
        """Whether optimizers have stepped before the program wrapped a model."""
        self._why_no_communication: str | None = None
        """Why this rank cannot exchange gradients in the plan's way, with this optimizer."""
        self._reason: str | None = None
        """Why this rank cannot follow the plan."""
        self._refused: dict[PlanSection, str] = {}
        """Sections that no rank applies, with reasons."""
        self._loader: LoaderWorkers | None = None
        self.scheduled: Scheduled | None = None
        board.status = PlanStatus(has_trial=has_trial)
        board.is_trial_due = True

    def on_ddp(self, module: ModuleType) -> None:
        """Ranks wrap their models together, so they can agree at this point."""
        kind = module.DistributedDataParallel
        was = kind.__init__

        @functools.wraps(was)
        def init(model: Any, *args: Any, **options: Any) -> None:
            was(model, *args, **options)
            self._models.append(weakref.ref(model))
            try:
                self._on_model(model)
            except Exception as error:
                self._refuse(str(error))

        kind.__init__ = init

    def on_optimizers(self, module: ModuleType) -> None:
        # It stays: torch iterates over the hooks while they run.
        module.register_optimizer_step_pre_hook(self._before_step)

    def _on_model(self, model: Any) -> None:
        from augury.core.plan.plan import PlanSection  # noqa: PLC0415
        from augury.core.plan.plan_file import load_plan, plan_digest  # noqa: PLC0415
        from augury.runtime.plan_reports import note_refusal  # noqa: PLC0415
        from augury.runtime.torch.program.compatibility import why_no_model, why_not  # noqa: PLC0415
        from augury.runtime.torch.ranks.consensus import agree_in_time  # noqa: PLC0415
        from augury.runtime.torch.ranks.control import Control  # noqa: PLC0415
        from augury.runtime.torch.ranks.groups import ControlGroup  # noqa: PLC0415
        from augury.runtime.torch.ranks.readiness import ReadinessVote  # noqa: PLC0415
        from augury.runtime.torch.sections.loader import LoaderWorkers  # noqa: PLC0415
        from augury.runtime.torch.sections.refusals import (  # noqa: PLC0415
            refused_sections,
            why_nothing,
        )

        if self._is_read:
            return  # which of several models is trained is known later
        reason = why_no_model(model)
        if reason is not None and not model_of_all(model):
            self._refuse(reason)  # ranks outside of its group do not take part
            return
        self._is_read = True
        try:
            self._plan = load_plan(self._path)
            reason = reason or why_not(model, self._plan) or no_gain(self._plan)
            if reason is None:
                self._refused = refused_sections(model, self._plan)
                reason = why_nothing(self._plan, self._refused)
        except Exception as error:
            reason = str(error)
        agreed = agree_in_time("plan", reason, self._plan, self._refused)
        reason, self._refused = agreed.reason, agreed.refused
        if self._plan is not None:
            reason = reason or why_nothing(self._plan, self._refused)
        if reason is not None or self._plan is None:
            self._refuse(reason or "the plan could not be read")
            return
        board.status = PlanStatus(has_trial=self._has_trial, digest=plan_digest(self._plan))
        board.is_trial_due = True
        if self._is_without_model and _rank() == 0:
            say("the program wraps a model now: the plan may be followed")
        for section, why in self._refused.items():
            note_refusal(section, why, is_said=_rank() == 0)
        if self._plan.loader is not None and PlanSection.LOADER not in self._refused:
            self._loader = LoaderWorkers(self._plan.loader, rank=_rank())
        self._readiness = ReadinessVote(
            model,
            Control(ControlGroup(model)),
            on_ready=functools.partial(self._follow, weakref.ref(model)),
            on_refusal=self._refuse,
        )

    def _before_step(self, optimizer: Any, _args: Any, _options: Any) -> None:
        """At the first optimizer step the program is set up completely."""
        if self._is_decided:
            return
        models = [model for one in self._models if (model := one()) is not None]
        if not models and self._readiness is None:
            self._go_without_model(optimizer)
            return
        parameters = {id(p) for group in optimizer.param_groups for p in group["params"]}
        trained = [m for m in models if any(id(p) in parameters for p in m.parameters())]
        if models and not trained:
            return  # the step of another optimizer may follow
        self._is_decided = True
        if self._readiness is None:
            return
        try:
            reason, why_no_communication = self._why_not(trained, optimizer)
        except Exception as error:
            reason, why_no_communication = str(error), None
        if reason is not None:
            self._reason = reason
            say(f"the plan is not followed: {reason}", rank=_rank())
            self._refuse(reason)
            self._readiness.refuse()
        else:
            self._optimizer = optimizer
            self._why_no_communication = why_no_communication
            self._readiness.be_ready(has_communication=why_no_communication is None)

    def _go_without_model(self, optimizer: Any) -> None:
        """Publishes once that there is no model. The program may still wrap one, such as after
        steps that warm it up; ranks that never do are not recorded as on trial."""
        from augury.runtime.torch.program.compatibility import why_no_ddp  # noqa: PLC0415

        if not self._is_without_model:
            self._is_without_model = True
            self._refuse(why_no_ddp([optimizer]))

    def _why_not(self, trained: list[Any], optimizer: Any) -> tuple[str | None, str | None]:
        """Returns why this rank cannot follow the plan, and why it cannot follow its communication
        section where there are others."""
        from augury.core.plan.plan import PlanSection  # noqa: PLC0415
        from augury.runtime.torch.program.compatibility import why_no_model, why_not  # noqa: PLC0415
        from augury.runtime.torch.sections.refusals import (  # noqa: PLC0415
            refused_sections,
            why_nothing,
        )

        if len(trained) != 1 or self._models[0]() is not trained[0]:
            return "several models are trained by DistributedDataParallel", None
        assert self._plan is not None
        model = trained[0]
        reason = why_no_model(model) or why_not(model, self._plan)
        if reason is not None:
            return reason, None
        refused = refused_sections(model, self._plan, optimizer=optimizer)
        reason = refused.get(PlanSection.COMMUNICATION)
        return why_nothing(self._plan, {**refused, **self._refused}), reason

    def _follow(
        self, model: weakref.ref[Any], counter: ExchangeCounter, has_communication: bool
    ) -> None:
        """Takes the plan: all ranks are at the same exchange of gradients."""
        from augury.core.plan.plan import PlanSection  # noqa: PLC0415
        from augury.runtime.plan_reports import say_refusal  # noqa: PLC0415
        from augury.runtime.torch.sections.refusals import why_nothing  # noqa: PLC0415
        from augury.runtime.torch.training import Scheduled  # noqa: PLC0415
        from augury.runtime.trial import TrialRules  # noqa: PLC0415

        assert self._readiness is not None
        assert self._plan is not None
        wrapped, optimizer = model(), self._optimizer
        assert wrapped is not None
        assert optimizer is not None
        if not has_communication:
            others = "another rank cannot follow the plan"
            reason = self._why_no_communication or others
            self._refused.setdefault(PlanSection.COMMUNICATION, reason)
            if (nothing := why_nothing(self._plan, self._refused)) is not None:
                self._refuse(nothing)
                return
            if _rank() == 0 and self._plan.communication is not None:
                say_refusal(PlanSection.COMMUNICATION, reason)
        self.scheduled = Scheduled(
            wrapped,
            optimizer,
            trial=TrialRules() if self._has_trial else None,
            counter=counter,
            control=self._readiness.control,
            refused=self._refused,
            loader=self._loader,
        )
        self.scheduled.adopt(self._plan)

    def _refuse(self, reason: str) -> None:
        from augury.runtime.plan_reports import refuse_plan  # noqa: PLC0415

        if self._loader is not None:
            self._loader.close()
        # All ranks learn of a refusal; the rank that refused has printed its own reason.
        refuse_plan(self._reason or reason, is_said=self._reason is None and _rank() == 0)


def tell_refusals() -> None:
    """Lets the recorder of this process ask why no plan would be followed. Imports no framework
    before the recorder asks."""
    board.refusals = _refusals


def _refusals(models: Sequence[Any], optimizers: Sequence[Any]) -> list[str]:
    """Returns the reasons why no plan of pieces would be followed; ``models``: those wrapped by
    DistributedDataParallel."""
    from augury.runtime.torch.program.compatibility import why_never, why_no_ddp  # noqa: PLC0415

    if not models:
        return [why_no_ddp(optimizers)]
    if len(models) > 1:
        return ["several models are trained by DistributedDataParallel"]
    model = models[0]
    own = {id(parameter) for parameter in model.parameters()}
    training = [
        optimizer
        for optimizer in optimizers
        if any(id(p) in own for group in optimizer.param_groups for p in group["params"])
    ]
    found = [why_never(model, optimizer) for optimizer in training[:1]]
    return [reason for reason in found if reason is not None]


def model_of_all(model: Any) -> bool:
    from torch import distributed  # noqa: PLC0415

    return bool(model.process_group.size() == distributed.get_world_size())


def no_gain(plan: Plan) -> str | None:
    is_for_speed = plan.memory_limit_bytes is None
    is_useless = plan.prediction is not None and plan.prediction.gain_pct <= 0 and is_for_speed
    return "the plan predicts no gain" if is_useless else None


def _rank() -> int:
    from torch import distributed  # noqa: PLC0415

    return distributed.get_rank() if distributed.is_initialized() else 0
