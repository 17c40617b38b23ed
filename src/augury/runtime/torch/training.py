"""A Plan inside the training of one model by one optimizer.

DistributedDataParallel stays what the program uses. Under the plan's pieces its reduction is off:
hooks send gradients as the plan says, ``optimizer.step()`` says that updates are due, and they are
done as gradients arrive, at the latest when the next forward needs them. Modes change before a
forward that announces an exchange of gradients, at the same exchange on all ranks.
"""

from __future__ import annotations

import time
from contextlib import suppress
from typing import Any

import msgspec
import torch
from torch import distributed

from augury.core.errors import InputError
from augury.core.plan.plan import CommunicationSection, Mode, Plan, communication_of
from augury.core.plan.plan_board import board
from augury.core.plan.plan_file import decode_plan, encode_plan, plan_digest
from augury.core.plan.plan_status import PlanStatus, Replan, TrainingMode, TrialResult, mode_of
from augury.runtime.at_exit import AtExit
from augury.runtime.meter import Meter, StepLog
from augury.runtime.replan import Replanner
from augury.runtime.say import say
from augury.runtime.torch.backward import TellOfBackward
from augury.runtime.torch.compatibility import GOVERNED, planned_parameters, why_never, why_not
from augury.runtime.torch.consensus import agree
from augury.runtime.torch.control import Control
from augury.runtime.torch.ddp_buckets import LiveBuckets, shown, why_no_buckets
from augury.runtime.torch.exchange import GradientExchange
from augury.runtime.torch.exchange_counter import Turns, announces_exchange, restore_sync
from augury.runtime.torch.groups import ControlGroup, PieceGroup
from augury.runtime.torch.hooks import GradientHooks, Hook, ModuleHooks, Replaced
from augury.runtime.torch.profilers import BeforeProfilersStop
from augury.runtime.torch.step_states import LOST, ExchangePhase
from augury.runtime.torch.steps import PlannedSteps
from augury.runtime.torch.updates import Updates
from augury.runtime.trial import Trial, TrialRules


class ControlMessage(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What rank 0 tells all ranks."""

    verdict: TrialResult | None = None
    plan: str = ""
    """Another one, as in its file; empty where a search found no better one."""
    reason: str = ""
    """Why there was a search."""


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
    """Called by all ranks, between steps. With ``trial``, the plan is compared with stock DDP
    first. Where the plan cannot be followed, all ranks stay with stock DDP, and it is said why.
    ``searches_here``: another plan is searched for by the training thread."""
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
    """``plan`` is None while stock DDP runs, and ``reason`` why, unless that was asked for or a
    trial decided it."""

    def __init__(
        self,
        model: Any,
        optimizer: Any,
        *,
        replan: bool = True,
        trial: TrialRules | None = None,
        log_every: int = 4,
        searches_here: bool = False,
        turns: Turns | None = None,
        control: Control | None = None,
    ) -> None:
        self.reason: str | None = None
        self._model, self._optimizer = model, optimizer
        self._may_replan, self._rules, self._log_every = replan, trial, log_every
        self._searches_here = searches_here
        self._rank = distributed.get_rank() if distributed.is_initialized() else 0
        self._turns = turns or Turns(model, self)
        self._turns.owner = self
        self._control = control
        self._updates = Updates(optimizer)
        self._steps = PlannedSteps(model, optimizer, self._updates, self._turns, self._rank)
        self._meter = Meter(num_pieces=0, num_gradients=0)
        self._groups: dict[int, PieceGroup] = {}
        """By how many pieces they may have in flight at once."""
        self._given: Plan | None = None
        """The plan that is followed or on trial, whatever the mode is now."""
        self._parameters: list[Any] = []
        """In the order of the plan's gradients."""
        self._caps_bytes: tuple[int, ...] = ()
        self._mode = TrainingMode.STOCK
        self._target = TrainingMode.STOCK
        """The mode from the next exchange on, unless a trial says otherwise."""
        self._trial: Trial | None = None
        self._exchange: GradientExchange | None = None
        self._replanner: Replanner | None = None
        self._buckets: LiveBuckets | None = None
        self._outbox = b""
        self._epoch = 0
        self._hooks: list[Any] = []
        self._planned_hooks: list[Any] = []

    @property
    def plan(self) -> Plan | None:
        return None if self._mode is TrainingMode.STOCK else self._given

    @property
    def mode(self) -> TrainingMode:
        return self._mode

    @property
    def is_on_trial(self) -> bool:
        return self._trial is not None

    @property
    def log(self) -> list[StepLog]:
        """The last steps that were looked at: every ``log_every``-th."""
        return self._meter.log

    @property
    def own_share(self) -> float | None:
        """What following a plan takes itself, of the CPU time of the main thread and as a share of
        the step; None where ``log_every`` is 0 or 1, or few steps have been done."""
        return self._meter.own_share

    def flush(self) -> None:
        """Waits for what is in flight and applies what is due: parameters and gradients are then
        as stock DDP would have left them."""
        self._steps.flush()

    def quiesce(self) -> None:
        """Waits until nothing of the runtime's own is in flight on this rank. A rank that has
        failed before has nothing that can be waited for."""
        with suppress(Exception):
            self.flush()
            if self._control is not None:
                self._control.settle()

    # --- called by all ranks together

    def switch(self, plan: Plan | None) -> None:
        """To another plan, or to stock DDP: by all ranks, between steps."""
        self.flush()
        self._trial, self._target = None, TrainingMode.STOCK
        self._enter(TrainingMode.STOCK)
        if plan is None:
            return
        for attempt in (self._fit, self._adopt):
            reason = None
            try:
                attempt(plan)
            except Exception as error:
                reason = str(error)
            reason = agree(reason, plan)
            if reason is not None:
                self.refuse(reason)
                return
        self.reason = None
        if self._trial is None:
            self._enter(self._target)

    def adopt(self, plan: Plan) -> None:
        """The same where all ranks have agreed already."""
        self._adopt(plan)

    def refuse(self, reason: str) -> None:
        self.reason, self._given = reason, None
        self._trial, self._target = None, TrainingMode.STOCK
        refuse_plan(reason, is_said=self._rank == 0)

    def close(self) -> None:
        """Stock DDP from now on; nothing of this is left."""
        try:
            self.flush()
        finally:
            with suppress(Exception):
                self._enter(TrainingMode.STOCK)
            self._turns.watch_stock(False)
            if self._buckets is not None:
                self._buckets.close()
                self._buckets = None
            if self._replanner is not None:
                self._replanner.close()
            for hook in self._hooks:
                hook.remove()
            self._hooks.clear()
            vars(self._optimizer).pop(GOVERNED, None)
            restore_sync(self._model)
            is_lost = self._steps.phase in LOST
            if self._control is not None:
                self._control.close(is_lost=is_lost)
            for group in self._groups.values():
                group.close(is_lost=is_lost)
            self._groups.clear()
            self._trial = self._given = self._control = self._exchange = None

    def _fit(self, plan: Plan) -> None:
        reason = None
        if not self._hooks:
            reason = why_never(self._model, self._optimizer)
        reason = reason or why_not(self._model, plan)
        if plan.communication is not None and plan.communication.mode is Mode.DDP_BUCKETS:
            reason = reason or why_no_buckets(self._model)
        if reason is not None:
            raise InputError(reason, remedy="make a plan for this training")

    def _adopt(self, plan: Plan) -> None:
        """From the next step on. Makes all that ranks have to make together."""
        self._control = self._control or Control(ControlGroup(self._model))
        section = communication_of(plan)
        lanes = section.order.lanes
        if section.mode is Mode.PIECES and lanes not in self._groups:
            self._groups[lanes] = PieceGroup(self._model, lanes)
        if self._buckets is None and why_no_buckets(self._model) is None:
            self._buckets = LiveBuckets(self._model)
        if not self._hooks:
            setattr(self._optimizer, GOVERNED, True)
            self._hooks = [
                self._model.register_forward_pre_hook(Hook(self._before_forward), prepend=True),
                self._model.register_forward_hook(Hook(self._after_forward), always_call=True),
                AtExit(self),
                BeforeProfilersStop(self.quiesce),
            ]
            self._turns.watch_stock(True)
        self._parameters = planned_parameters(self._model, plan)
        self._take(plan, from_step=self._turns.step + 1)

    # --- plans, modes and trials

    def _take(self, plan: Plan, *, from_step: int) -> None:
        self._given, self._exchange = plan, None
        self._caps_bytes = ()
        if self._buckets is not None:
            self._caps_bytes = communication_of(plan).bucket_caps_bytes or best_caps(plan)
        best = mode_of(plan)
        is_pieces = best is TrainingMode.PLANNED
        status = board.status or PlanStatus()
        if not status.digest:
            status = msgspec.structs.replace(status, digest=plan_digest(plan))
        if self._rules is None:
            self._trial, self._target = None, best
            self._publish(status, is_followed=True, from_step=from_step, has_trial=False)
            self._say_followed()
            self._observe()
            return
        modes = [TrainingMode.STOCK]
        modes += [TrainingMode.PLANNED] if is_pieces else []
        modes += [TrainingMode.BUCKETS] if self._caps_bytes else []
        self._trial = Trial(modes, from_step, self._rules, plan_digest(plan))
        self._target = TrainingMode.STOCK
        self._publish(status, is_followed=False, is_on_trial=True, has_trial=True)

    def _observe(self) -> None:
        """From now on, on rank 0: whether conditions are still those of the plan."""
        if self._may_replan and self._rank == 0 and self._target is TrainingMode.PLANNED:
            assert self._given is not None
            self._replanner = self._replanner or Replanner(is_here=self._searches_here)
            self._replanner.watch(self._given)

    def _say_followed(self) -> None:
        plan = self._given
        if self._rank or plan is None:
            return
        if self._target is TrainingMode.BUCKETS:
            say(f"follows the plan: {shown(self._caps_bytes)}")
        else:
            order = communication_of(plan).order
            say(f"follows the plan: {order.policy}, {len(order.pieces)} pieces a step")

    def _publish(self, status: PlanStatus, *, reason: str | None = None, **changes: Any) -> None:
        board.status = msgspec.structs.replace(status, mode=self._target, reason=reason, **changes)
        board.is_trial_due = self._trial is not None

    def _enter(self, mode: TrainingMode) -> None:
        """Local, between steps."""
        if mode is self._mode and (mode is not TrainingMode.PLANNED or self._exchange is not None):
            return
        self._steps.flush()
        is_announced = self._turns.is_expected or self._steps.is_expected
        if self._turns.is_expected and self._buckets is not None:
            # The reducer waits for gradients of a forward without a backward.
            caps = self._caps_bytes if self._mode is TrainingMode.BUCKETS else None
            self._buckets.use(caps, is_renewed=True)
        for hook in self._planned_hooks:
            hook.remove()
        self._planned_hooks.clear()
        self._steps.follow(None)
        if mode is TrainingMode.PLANNED:
            self._follow()
        elif self._buckets is not None:
            # A reducer notes which parameters are used while it is not, and asks for all of them.
            is_misled = mode is not self._mode and self._model.find_unused_parameters
            caps = self._caps_bytes if mode is TrainingMode.BUCKETS else None
            self._buckets.use(caps, is_renewed=is_misled)
        if self._hooks:
            self._turns.watch_stock(mode is not TrainingMode.PLANNED)
        self._mode = mode
        if is_announced:
            self._announce()
        if board.status is not None:
            board.status = msgspec.structs.replace(board.status, mode=mode)

    def _announce(self) -> None:
        """A forward before the change of mode announced an exchange. Stock DDP reduces the
        gradients of the next backward then, even under ``no_sync``. Where parameters may be
        unused, only that forward's output could tell which."""
        if self._mode is TrainingMode.PLANNED:
            self._steps.expect()
        elif not self._model.find_unused_parameters:
            self._model.reducer.prepare_for_backward([])
            self._turns.after_forward()

    def _follow(self) -> None:
        plan, control = self._given, self._control
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
            exchange.meter.expected_ns = _expected_ns(section)
            exchange.meter.carry_on(self._meter)
            self._exchange, self._meter = exchange, exchange.meter
        self._steps.follow(self._exchange)
        self._planned_hooks = self._hook(parameters)

    def _hook(self, parameters: list[Any]) -> list[Any]:
        model, optimizer, steps = self._model, self._optimizer, self._steps
        steps.gradient_hooks = GradientHooks(parameters, steps.on_gradient)
        hooks: list[Any] = [steps.gradient_hooks]
        ids = {id(parameter) for parameter in parameters}
        owned = [
            (module, [id(p) for p in module._parameters.values() if id(p) in ids])
            for module in model.module.modules()
        ]
        given = [(module, own) for module, own in owned if own or module is model.module]
        steps.module_hooks = ModuleHooks(given, steps.before_module)
        hooks.append(steps.module_hooks)
        for whole in (model, model.module):
            hooks.append(whole.register_state_dict_pre_hook(Hook(_whole, steps)))
        return [
            *hooks,
            optimizer.register_state_dict_pre_hook(lambda _: steps.require_whole()),
            optimizer.register_load_state_dict_pre_hook(lambda *_: steps.flush()),
            Replaced(optimizer, "step", steps.on_step),
            Replaced(optimizer, "zero_grad", steps.on_zero_grad),
            TellOfBackward(steps),
        ]

    def _before_forward(self, model: Any, inputs: Any) -> None:
        restore_sync(model)
        # The first one of a step: passes without an exchange are part of it, and what they use.
        if torch.is_grad_enabled() and not (
            self._steps.phase in (*LOST, ExchangePhase.FILLING) or model._join_config.enable
        ):
            trial = self._trial
            step = self._turns.step + 1
            self._enter(self._target if trial is None else trial.mode_of(step))
        if self._mode is TrainingMode.PLANNED:
            self._steps.before_forward(model, inputs)

    def _after_forward(self, model: Any, inputs: Any, output: Any) -> None:
        if self._mode is TrainingMode.PLANNED:
            self._steps.after_forward(model, inputs, output)
        elif output is not None and announces_exchange(model):
            self._turns.after_forward()

    # --- once per exchange, on all ranks

    def end_step(self, step: int) -> None:
        control = self._control
        if control is None:
            return
        if self._rank == 0:
            self._decide(step)
        if control.is_due(step):
            control.send(self._outbox)
            self._outbox = b""
        if self._buckets is not None and self._mode is not TrainingMode.PLANNED:
            self._buckets.arrange()

    def begin_step(self, step: int) -> None:
        content = self._control.receive() if self._control is not None else b""
        if content:
            self._heed(msgspec.json.decode(content, type=ControlMessage), from_step=step + 1)

    def _decide(self, step: int) -> None:
        """On rank 0; what it decides waits for the next word."""
        if self._trial is not None:
            self._trial.note_end(step, time.perf_counter_ns())
            verdict = self._trial.verdict(step)
            if verdict is not None:
                self._outbox = msgspec.json.encode(ControlMessage(verdict=verdict))
        elif self._replanner is not None and not self._outbox and not board.is_recording:
            found = self._replanner.look(self._meter)
            if found is not None:
                content = "" if found.plan is None else encode_plan(found.plan).decode()
                self._outbox = msgspec.json.encode(
                    ControlMessage(plan=content, reason=found.reason)
                )

    def _heed(self, message: ControlMessage, *, from_step: int) -> None:
        status = board.status or PlanStatus()
        if message.verdict is not None:
            self._trial, self._target = None, message.verdict.winner
            is_followed = self._given is not None and self._target is mode_of(self._given)
            self._publish(
                status,
                is_followed=is_followed,
                from_step=from_step if is_followed else None,
                is_on_trial=False,
                trials=[*status.trials, message.verdict],
                reason=None if is_followed else _why_dropped(message.verdict),
            )
            if self._rank == 0:
                say(told(message.verdict))
            self._observe()
        elif not message.plan:
            in_vain = Replan(step=from_step, reason=message.reason)
            board.status = msgspec.structs.replace(status, replans=[*status.replans, in_vain])
        else:
            plan = decode_plan(message.plan.encode())
            unfit = why_not(self._model, plan)
            if unfit is not None:  # the search knows nothing of types; all ranks find the same
                if self._rank == 0:
                    say(f"the new plan is not followed: {unfit}")
                return
            replans = [
                *status.replans,
                Replan(step=from_step, reason=message.reason, digest=plan_digest(plan)),
            ]
            board.status = msgspec.structs.replace(status, replans=replans)
            self._take(plan, from_step=from_step)


def _why_dropped(verdict: TrialResult) -> str:
    if verdict.winner is TrainingMode.BUCKETS:
        return "the trial in the job chose other bucket sizes of stock DDP, which were faster"
    reason = "it is slower than stock DDP" if verdict.is_decided else "a tie"
    return f"the trial in the job kept stock DDP: {reason}"


def told(verdict: TrialResult) -> str:
    """One line."""
    stock, *others = verdict.times
    compared = "; ".join(
        f"{one.mode.value} {one.step_ns / 1e6:.4g} ms, {one.gain_pct:+.1f} % "
        f"({one.interval_pct[0]:+.1f} to {one.interval_pct[1]:+.1f})"
        for one in others
    )
    steps = verdict.last_step - verdict.first_step + 1
    kept = {TrainingMode.STOCK: "stock DDP stays", TrainingMode.PLANNED: "the plan is followed"}
    outcome = kept.get(verdict.winner, "stock DDP with the plan's buckets is used")
    if not verdict.is_decided:
        outcome = f"no difference could be told: {outcome}"
    return f"trial of {steps} steps: stock {stock.step_ns / 1e6:.4g} ms; {compared}. {outcome}"


def refuse_plan(reason: str, *, is_said: bool) -> None:
    status = board.status or PlanStatus()
    board.status = msgspec.structs.replace(
        status,
        mode=TrainingMode.STOCK,
        is_followed=False,
        from_step=None,
        is_on_trial=False,
        reason=reason,
    )
    board.is_trial_due = False
    if is_said:
        say(f"the plan is not followed: {reason}")


def best_caps(plan: Plan) -> tuple[int, ...]:
    """The best list of bucket sizes for stock DDP; none where that is what it has by default."""
    from augury.schedule.policies.bucket_list import BucketList, bucket_caps  # noqa: PLC0415
    from augury.schedule.policies.registry import find_policy  # noqa: PLC0415

    with suppress(Exception):
        problem = communication_of(plan).problem
        best = BucketList().compile(problem)
        if best.pieces != find_policy("ddp").compile(problem).pieces:
            return bucket_caps(problem, best) or ()
    return ()


def _whole(steps: PlannedSteps, *_: Any) -> None:
    steps.require_whole()


def _expected_ns(section: CommunicationSection) -> tuple[int, ...]:
    """When pieces should have arrived, for the log alone."""
    with suppress(Exception):
        from augury.schedule.evaluate import evaluate  # noqa: PLC0415

        return tuple(int(ns) for ns in evaluate(section.problem, section.order).arrive_ns)
    return ()
