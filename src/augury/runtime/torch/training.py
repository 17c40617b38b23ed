"""Applies a Plan to the training of one model by one optimizer, and switches modes.

The program keeps using DistributedDataParallel. Under the plan's pieces DDP's reduction is off:
hooks send gradients in the order of the plan, ``optimizer.step()`` makes updates due, and they are
applied as gradients arrive, at the latest when the next forward needs them. Sections besides
communication are prepared in the first steps, which are stock. Modes change before a forward that
announces an exchange of gradients, at the same exchange on all ranks.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from typing import Any

import msgspec
import torch
from torch import distributed

from augury.core.plan.plan import Plan, PlanSection, communication_of
from augury.core.plan.plan_board import board
from augury.core.plan.plan_status import TrainingMode
from augury.runtime.meter import StepLog
from augury.runtime.plan_decision import PlanDecision
from augury.runtime.plan_reports import say_refusal
from augury.runtime.say import say
from augury.runtime.torch.exchange_switch import ExchangeSwitch
from augury.runtime.torch.program.compatibility import (
    GOVERNED,
    why_no_communication,
    why_not,
)
from augury.runtime.torch.program.hooks import Hook
from augury.runtime.torch.program.quiesce_hooks import AtExit, BeforeProfilersStop
from augury.runtime.torch.ranks.consensus import agree
from augury.runtime.torch.ranks.control import Control
from augury.runtime.torch.ranks.exchange_counter import (
    ExchangeCounter,
    announces_exchange,
    restore_flags,
)
from augury.runtime.torch.ranks.groups import ControlGroup
from augury.runtime.torch.sections.loader import LoaderWorkers
from augury.runtime.torch.sections.plan_sections import PlanSections
from augury.runtime.torch.sections.refusals import fit, why_nothing
from augury.runtime.torch.step_states import LOST, ExchangePhase
from augury.runtime.trial import TrialRules
from augury.runtime.trial_modes import STOCK, StepMode


def schedule_training(
    model: Any,
    optimizer: Any,
    plan: Plan,
    *,
    replan: bool = True,
    trial: TrialRules | None = None,
    log_every: int = 4,
    searches_here: bool = False,
) -> Scheduled:
    """Applies a plan; all ranks call this between steps. With ``trial``, the plan is compared with
    stock DDP first. Where the plan cannot be followed, all ranks keep stock DDP and rank 0 prints
    why. ``searches_here``: the training thread itself searches for new plans."""
    scheduled = Scheduled(
        model,
        optimizer,
        replan=replan,
        trial=trial,
        log_every=log_every,
        searches_here=searches_here,
    )
    scheduled.switch(plan)
    return scheduled


class Scheduled:
    """A training under a plan. ``plan`` is None while stock DDP runs; ``reason`` states why the
    plan was refused, if it was."""

    def __init__(
        self,
        model: Any,
        optimizer: Any,
        *,
        replan: bool = True,
        trial: TrialRules | None = None,
        log_every: int = 4,
        searches_here: bool = False,
        counter: ExchangeCounter | None = None,
        control: Control | None = None,
        refused: Mapping[PlanSection, str] | None = None,
        loader: LoaderWorkers | None = None,
    ) -> None:
        """``refused``: sections that the ranks have agreed not to apply. ``loader``: workers that
        have begun before."""
        self.reason: str | None = None
        self._model, self._optimizer = model, optimizer
        self._rank = distributed.get_rank() if distributed.is_initialized() else 0
        self._counter = counter or ExchangeCounter(model, self)
        self._counter.owner = self
        self._control = control
        self._exchange = ExchangeSwitch(model, optimizer, self._counter, self._rank, log_every)
        self._steps = self._exchange.steps
        self._decision = PlanDecision(self._rank, trial, replan=replan, searches_here=searches_here)
        self._mode = STOCK
        self._refused = {**(refused or {})}
        self._loader = loader
        self._sections: PlanSections | None = None
        self._hooks: list[Any] = []

    @property
    def plan(self) -> Plan | None:
        return None if self._mode == STOCK else self._decision.plan

    @property
    def mode(self) -> TrainingMode:
        return self._mode.exchange

    @property
    def sections(self) -> tuple[PlanSection, ...]:
        """The sections, besides communication, that are on in this step."""
        return self._mode.sections

    @property
    def is_on_trial(self) -> bool:
        is_preparing = self._sections is not None and self._sections.is_preparing
        return self._decision.trial is not None or is_preparing

    @property
    def log(self) -> list[StepLog]:
        """The last logged steps: every ``log_every``-th step is logged."""
        return self._exchange.meter.log

    @property
    def own_share(self) -> float | None:
        """CPU time of the runtime itself on the main thread, as a share of the step; None where
        ``log_every`` is 0 or 1, or after few steps."""
        return self._exchange.meter.own_share

    def flush(self) -> None:
        """Waits for everything in flight and applies due updates. Parameters and gradients are then
        as stock DDP would have left them."""
        self._steps.flush()

    def quiesce(self) -> None:
        """Waits until nothing of the runtime is in flight on this rank. After a failure there is
        nothing to wait for."""
        with suppress(Exception):
            self.flush()
            if self._control is not None:
                self._control.settle()

    # --- called by all ranks together

    def switch(self, plan: Plan | None) -> None:
        """Switches to a plan, or with None to stock DDP. All ranks call this between steps."""
        self.flush()
        self._decision.choose_stock()
        self._enter(STOCK)
        self._close_sections()
        if plan is None:
            return
        for attempt in (self._fit, self._adopt):
            reason = None
            try:
                attempt(plan)
            except Exception as error:
                reason = str(error)
            agreed = agree(reason, plan, self._refused)
            self._refused = agreed.refused
            reason = agreed.reason or why_nothing(plan, agreed.refused)
            if reason is not None:
                self._close_sections()
                self.refuse(reason)
                return
        self.reason = None
        for section, why in self._refused.items():
            if self._rank == 0:
                say_refusal(section, why)
        if self._decision.trial is None:
            self._enter(self._decision.target)

    def adopt(self, plan: Plan) -> None:
        """Takes a plan that all ranks have agreed on."""
        self._adopt(plan)

    def refuse(self, reason: str) -> None:
        self.reason = reason
        self._decision.refuse(reason)

    def close(self) -> None:
        """Returns to stock DDP and removes all hooks."""
        try:
            self.flush()
        finally:
            with suppress(Exception):
                self._enter(STOCK)
            self._close_sections()
            self._counter.watch_stock(False)
            self._exchange.close_buckets()
            self._decision.close()
            for hook in self._hooks:
                hook.remove()
            self._hooks.clear()
            vars(self._optimizer).pop(GOVERNED, None)
            restore_flags(self._model)
            is_lost = self._steps.phase in LOST
            if self._control is not None:
                self._control.close(is_lost=is_lost)
            self._exchange.close_groups(is_lost=is_lost)
            self._control = None

    def _close_sections(self) -> None:
        if self._sections is not None:
            self._sections.close()
            self._sections = None

    def _fit(self, plan: Plan) -> None:
        attached = bool(self._hooks)
        self._refused = fit(self._model, plan, self._optimizer, is_attached=attached)

    def _adopt(self, plan: Plan) -> None:
        """Takes a plan from the next step on. Creates all that ranks must create together."""
        self._control = self._control or Control(ControlGroup(self._model))
        applied = [one for one in plan.applied if one not in self._refused]
        self._exchange.prepare(plan, applied)
        if not self._hooks:
            setattr(self._optimizer, GOVERNED, True)
            self._hooks = [
                self._model.register_forward_pre_hook(Hook(self._before_forward), prepend=True),
                self._model.register_forward_hook(Hook(self._after_forward), always_call=True),
                AtExit(self),
                BeforeProfilersStop(self.quiesce),
            ]
            self._counter.watch_stock(True)
        if applied == [PlanSection.COMMUNICATION]:
            self._take(plan, from_step=self._counter.step + 1)
            return
        loader, self._loader = self._loader, None
        self._sections = PlanSections(self._model, plan, self._refused, loader, self._control)
        self._decision.prepare(plan, self._refused)

    def _settle(self, refused: Mapping[PlanSection, str], *, from_step: int) -> None:
        """All ranks know which sections they can apply."""
        plan = self._decision.plan
        if plan is None or self._sections is None:
            return
        self._refused |= refused
        reason = why_nothing(plan, self._refused)
        self._sections.drop(refused)
        if reason is not None:
            self.refuse(reason)
            return
        self._refused |= self._sections.idle_loader()
        self._take(plan, from_step=from_step)

    # --- plans, modes and trials

    def _take(self, plan: Plan, *, from_step: int) -> None:
        self._exchange.forget()
        can_change = self._exchange.buckets is not None
        self._decision.take(
            plan, from_step=from_step, can_change_buckets=can_change, refused=self._refused
        )

    def _enter(self, mode: StepMode) -> None:
        """Changes the mode of this rank, between steps."""
        if self._sections is not None:
            self._sections.use(mode.sections)
        plan, decision = self._decision.plan, self._decision
        is_compressed = plan is not None and PlanSection.COMPRESSION in mode.sections
        self._exchange.change(
            *(mode.exchange, plan, self._control),
            caps_bytes=decision.caps_bytes,
            compression=plan.compression if plan is not None and is_compressed else None,
            is_attached=bool(self._hooks),
        )
        if mode != self._mode and board.status is not None:
            board.status = msgspec.structs.replace(board.status, mode=mode.exchange)
        self._mode = mode

    def _before_forward(self, model: Any, inputs: Any) -> None:
        restore_flags(model)
        # The first forward of a step: passes without an exchange belong to that step too.
        if torch.is_grad_enabled() and not (
            self._steps.phase in (*LOST, ExchangePhase.FILLING) or model._join_config.enable
        ):
            if model._comm_hooks:
                self._leave_to_hook(model)
                return
            self._enter(self._decision.mode_at(self._counter.step + 1))
            if self._sections is not None:
                self._sections.before_forward()
        if self._mode.exchange is TrainingMode.PLANNED:
            self._steps.before_forward(model, inputs)

    def _leave_to_hook(self, model: Any) -> None:
        """The program has registered a communication hook: stock DDP stays from now on."""
        had = model.reducer
        self.refuse("the program has registered a communication hook")
        self.close()
        if model.reducer is not had:
            for hook, state in model._comm_hooks:
                distributed._register_comm_hook(model.reducer, state, hook)

    def _after_forward(self, model: Any, inputs: Any, output: Any) -> None:
        if self._sections is not None:
            self._sections.after_forward()
        if self._mode.exchange is TrainingMode.PLANNED:
            self._steps.after_forward(model, inputs, output)
        elif output is not None and announces_exchange(model):
            self._counter.after_forward()

    # --- once per exchange, on all ranks

    def end_step(self, step: int) -> None:
        control = self._control
        if control is None:
            return
        if self._sections is not None:
            self._sections.end_step()
        self._decision.decide(step, self._exchange.meter)
        if control.is_due(step):
            control.send(self._decision.next_message())
        self._exchange.arrange()

    def begin_step(self, step: int) -> None:
        refused = self._sections.begin_step() if self._sections is not None else None
        if refused is not None:
            self._settle(refused, from_step=step + 1)
        content = self._control.receive() if self._control is not None else b""
        found = self._decision.receive(content, from_step=step + 1) if content else None
        if found is None:
            return
        plan, reason = found
        unfit = why_not(self._model, plan) or why_no_communication(
            self._model, communication_of(plan), plan.parameters_digest
        )
        if unfit is None:
            self._decision.note_new(plan, reason, from_step=step + 1)
            self._take(plan, from_step=step + 1)
        elif self._rank == 0:  # the search knows no types; all ranks decide alike
            say(f"the new plan is not followed: {unfit}")
