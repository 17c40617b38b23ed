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

from augury.core.errors import InputError
from augury.core.plan.plan import Mode, Plan, PlanSection, communication_of
from augury.core.plan.plan_board import board
from augury.core.plan.plan_status import TrainingMode
from augury.runtime.meter import Meter, StepLog, expected_arrivals_ns
from augury.runtime.plan_decision import PlanDecision
from augury.runtime.say import say
from augury.runtime.torch.pieces.exchange import GradientExchange
from augury.runtime.torch.pieces.updates import Updates
from augury.runtime.torch.program.compatibility import (
    GOVERNED,
    planned_parameters,
    why_no_communication,
    why_no_model,
    why_not,
)
from augury.runtime.torch.program.ddp_buckets import LiveBuckets, why_no_buckets
from augury.runtime.torch.program.hooks import Hook
from augury.runtime.torch.program.quiesce_hooks import AtExit, BeforeProfilersStop
from augury.runtime.torch.ranks.consensus import agree
from augury.runtime.torch.ranks.control import Control
from augury.runtime.torch.ranks.exchange_counter import (
    ExchangeCounter,
    announces_exchange,
    restore_flags,
)
from augury.runtime.torch.ranks.groups import ControlGroup, PieceGroup
from augury.runtime.torch.sections.loader import LoaderWorkers
from augury.runtime.torch.sections.plan_sections import PlanSections, Preparation
from augury.runtime.torch.sections.refusals import refused_sections, why_nothing
from augury.runtime.torch.step_hooks import attach_step_hooks
from augury.runtime.torch.step_states import LOST, ExchangePhase
from augury.runtime.torch.steps import PlannedSteps
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
        self._log_every = log_every
        self._rank = distributed.get_rank() if distributed.is_initialized() else 0
        self._counter = counter or ExchangeCounter(model, self)
        self._counter.owner = self
        self._control = control
        self._updates = Updates(optimizer)
        self._steps = PlannedSteps(model, optimizer, self._updates, self._counter, self._rank)
        self._meter = Meter(num_pieces=0, num_gradients=0)
        self._groups: dict[int, PieceGroup] = {}
        """Process groups by number of lanes."""
        self._decision = PlanDecision(self._rank, trial, replan=replan, searches_here=searches_here)
        self._parameters: list[Any] = []
        """The parameters in the order of the plan's gradients."""
        self._mode = STOCK
        self._refused = {**(refused or {})}
        self._loader = loader
        self._sections: PlanSections | None = None
        self._preparation: Preparation | None = None
        self._exchange: GradientExchange | None = None
        self._buckets: LiveBuckets | None = None
        self._epoch = 0
        self._hooks: list[Any] = []
        self._planned_hooks: list[Any] = []

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
        return self._decision.trial is not None or self._preparation is not None

    @property
    def log(self) -> list[StepLog]:
        """The last logged steps: every ``log_every``-th step is logged."""
        return self._meter.log

    @property
    def own_share(self) -> float | None:
        """CPU time of the runtime itself on the main thread, as a share of the step; None where
        ``log_every`` is 0 or 1, or after few steps."""
        return self._meter.own_share

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
            if self._buckets is not None:
                self._buckets.close()
                self._buckets = None
            self._decision.close()
            for hook in self._hooks:
                hook.remove()
            self._hooks.clear()
            vars(self._optimizer).pop(GOVERNED, None)
            restore_flags(self._model)
            is_lost = self._steps.phase in LOST
            if self._control is not None:
                self._control.close(is_lost=is_lost)
            for group in self._groups.values():
                group.close(is_lost=is_lost)
            self._groups.clear()
            self._control = self._exchange = None

    def _close_sections(self) -> None:
        self._preparation = None
        if self._sections is not None:
            self._sections.close()
            self._sections = None

    def _fit(self, plan: Plan) -> None:
        is_attached = bool(self._hooks)
        reason = None if is_attached else why_no_model(self._model)
        reason = reason or why_not(self._model, plan)
        if reason is not None:
            raise InputError(reason, remedy="make a plan for this training")
        self._refused = refused_sections(
            self._model, plan, optimizer=self._optimizer, is_attached=is_attached
        )

    def _adopt(self, plan: Plan) -> None:
        """Takes a plan from the next step on. Creates all that ranks must create together."""
        self._control = self._control or Control(ControlGroup(self._model))
        applied = [one for one in plan.applied if one not in self._refused]
        has_exchange = PlanSection.COMMUNICATION in applied
        if has_exchange:
            section = communication_of(plan)
            lanes = section.order.lanes
            if section.mode is Mode.PIECES and lanes not in self._groups:
                self._groups[lanes] = PieceGroup(self._model, lanes)
        is_exchanged = has_exchange or PlanSection.COMPRESSION in applied
        if is_exchanged and self._buckets is None and why_no_buckets(self._model) is None:
            self._buckets = LiveBuckets(self._model)
        if not self._hooks:
            setattr(self._optimizer, GOVERNED, True)
            self._hooks = [
                self._model.register_forward_pre_hook(Hook(self._before_forward), prepend=True),
                self._model.register_forward_hook(Hook(self._after_forward), always_call=True),
                AtExit(self),
                BeforeProfilersStop(self.quiesce),
            ]
            self._counter.watch_stock(True)
        self._parameters = planned_parameters(self._model, plan) if has_exchange else []
        if applied == [PlanSection.COMMUNICATION]:
            self._take(plan, from_step=self._counter.step + 1)
            return
        self._sections = PlanSections(
            *(self._model, plan, self._refused, self._loader), rank=self._rank
        )
        self._preparation = Preparation(self._sections, self._control)
        self._decision.prepare(plan, self._refused)

    def _settle(self, refused: Mapping[PlanSection, str], *, from_step: int) -> None:
        """All ranks know which sections they can apply."""
        plan = self._decision.plan
        self._preparation = None
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
        self._exchange = None
        can_change = self._buckets is not None
        self._decision.take(
            plan, from_step=from_step, can_change_buckets=can_change, refused=self._refused
        )

    def _enter(self, mode: StepMode) -> None:
        """Changes the mode of this rank, between steps."""
        is_current = mode.exchange is not TrainingMode.PLANNED or self._exchange is not None
        if mode == self._mode and is_current:
            return
        if self._sections is not None:
            self._sections.use(mode.sections)
        was, self._mode = self._mode, mode
        if (self._reducer_of(mode), mode.exchange) != (self._reducer_of(was), was.exchange) or (
            not is_current
        ):
            self._change_exchange(was)
        if board.status is not None:
            board.status = msgspec.structs.replace(board.status, mode=mode.exchange)

    def _reducer_of(self, mode: StepMode) -> tuple[Any, Any]:
        """Returns bucket sizes and compression of stock DDP in that mode; None: the program's."""
        plan = self._decision.plan
        is_compressed = plan is not None and PlanSection.COMPRESSION in mode.sections
        return (
            self._decision.caps_bytes if mode.exchange is TrainingMode.BUCKETS else None,
            plan.compression if plan is not None and is_compressed else None,
        )

    def _change_exchange(self, was: StepMode) -> None:
        mode = self._mode
        self._steps.flush()
        is_announced = self._counter.is_expected or self._steps.is_expected
        if self._counter.is_expected and self._buckets is not None:
            # The reducer still expects the gradients of a forward that had no backward.
            self._buckets.use(*self._reducer_of(was), is_renewed=True)
        for hook in self._planned_hooks:
            hook.remove()
        self._planned_hooks.clear()
        self._steps.follow(None)
        if mode.exchange is TrainingMode.PLANNED:
            self._follow()
        elif self._buckets is not None:
            # A reducer that was not in use has a wrong record of used parameters.
            is_misled = mode != was and self._model.find_unused_parameters
            self._buckets.use(*self._reducer_of(mode), is_renewed=is_misled)
        if self._hooks:
            self._counter.watch_stock(mode.exchange is not TrainingMode.PLANNED)
        if is_announced:
            self._announce()

    def _announce(self) -> None:
        """Announces an exchange again in the new mode. Stock DDP then reduces the gradients of the
        next backward, even under ``no_sync``. Where parameters may be unused, only the output of
        that forward shows which."""
        if self._mode.exchange is TrainingMode.PLANNED:
            self._steps.expect()
        elif not self._model.find_unused_parameters:
            self._model.reducer.prepare_for_backward([])
            self._counter.after_forward()

    def _follow(self) -> None:
        plan, control = self._decision.plan, self._control
        assert plan is not None
        assert control is not None
        parameters = self._parameters
        if self._exchange is None:
            self._epoch += 1
            section = communication_of(plan)
            group = self._groups[section.order.lanes]
            exchange = GradientExchange(
                *(section, self._model, parameters, self._updates, group, control.group),
                epoch=self._epoch,
            )
            exchange.meter.every = self._log_every
            exchange.meter.expected_ns = expected_arrivals_ns(section)
            exchange.meter.carry_on(self._meter)
            self._exchange, self._meter = exchange, exchange.meter
        self._steps.follow(self._exchange)
        self._planned_hooks = attach_step_hooks(
            self._steps, self._model, self._optimizer, parameters
        )

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
            if self._preparation is not None and self._sections is not None:
                self._sections.rehearse(True)
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
            self._sections.rehearse(False)
        if self._mode.exchange is TrainingMode.PLANNED:
            self._steps.after_forward(model, inputs, output)
        elif output is not None and announces_exchange(model):
            self._counter.after_forward()

    # --- once per exchange, on all ranks

    def end_step(self, step: int) -> None:
        control = self._control
        if control is None:
            return
        if self._preparation is not None:
            self._preparation.end_step()
        self._decision.decide(step, self._meter)
        if control.is_due(step):
            control.send(self._decision.next_message())
        if self._buckets is not None and self._mode.exchange is not TrainingMode.PLANNED:
            self._buckets.arrange()

    def begin_step(self, step: int) -> None:
        refused = self._preparation.begin_step() if self._preparation is not None else None
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
