"""A Plan inside the training of one model by one optimizer.

DistributedDataParallel stays what the program uses, with its reduction off. Hooks send gradients
as the plan says; ``optimizer.step()`` says that updates are due; they are done as gradients
arrive, at the latest when the next forward needs them.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Any

from torch import distributed

from augury.core.errors import InputError
from augury.core.plan import Plan
from augury.runtime.ending import AtExit
from augury.runtime.meter import Meter, StepLog
from augury.runtime.replan import Replanner
from augury.runtime.say import say
from augury.runtime.torch_agree import agree
from augury.runtime.torch_backward import TellOfBackward
from augury.runtime.torch_control import Control
from augury.runtime.torch_exchange import Exchange
from augury.runtime.torch_fit import planned_parameters, why_never, why_not
from augury.runtime.torch_group import own_group
from augury.runtime.torch_hooks import Hook, Replaced
from augury.runtime.torch_steps import Steps
from augury.runtime.torch_updates import Updates


def schedule_training(
    model: Any, optimizer: Any, plan: Plan, *, replan: bool = True, log_every: int = 4
) -> Scheduled:
    """To be called by all ranks, between steps. Where the plan cannot be followed, all ranks stay
    with stock DDP, and it is said why."""
    scheduled = Scheduled(model, optimizer, replan=replan, log_every=log_every)
    scheduled.switch(plan)
    return scheduled


class Scheduled:
    """``plan`` is None while stock DDP runs, and ``reason`` why, unless that was asked for."""

    def __init__(self, model: Any, optimizer: Any, *, replan: bool, log_every: int) -> None:
        self.plan: Plan | None = None
        self.reason: str | None = None
        self._model, self._optimizer = model, optimizer
        self._replan, self._log_every = replan, log_every
        self._rank = distributed.get_rank() if distributed.is_initialized() else 0
        self._updates = Updates(optimizer)
        self._steps = Steps(model, optimizer, self._updates, self._rank, self._follow)
        self._meter = Meter(num_pieces=0, num_gradients=0)
        self._groups: dict[int, Any] = {}
        """By how many pieces they have under way at once."""
        self._epoch = 0
        self._hooks: list[Any] = []

    @property
    def log(self) -> list[StepLog]:
        """The last steps that were looked at: every ``log_every``-th."""
        return self._meter.log

    @property
    def own_share(self) -> float | None:
        """What following a plan takes itself, of the CPU time of the main thread and as a share of
        the step; None where ``log_every`` is 0 or 1, or few steps have been done."""
        return self._meter.own_share

    def switch(self, plan: Plan | None) -> None:
        """To another plan, or to stock DDP: by all ranks, between steps."""
        self.flush()
        self.plan = None
        self._steps.follow(None, None)
        if plan is None:
            return
        for attempt in (self._fit, self._follow):
            reason = None
            try:
                attempt(plan)
            except Exception as error:
                reason = str(error)
            self.reason = agree(reason, plan)
            if self.reason is not None:
                self.plan = None
                self._steps.follow(None, None)
                if self._rank == 0:
                    say(f"the plan is not followed: {self.reason}")
                return

    def _fit(self, plan: Plan) -> None:
        reason = None
        if not self._hooks:
            reason = why_never(self._model, self._optimizer)
        reason = reason or why_not(self._model, plan)
        if reason is not None:
            raise InputError(reason, remedy="make a plan for this training")

    def flush(self) -> None:
        """Waits for what is under way and applies what is due: parameters and gradients are then
        as stock DDP would have left them."""
        self._steps.flush()

    def close(self) -> None:
        """Stock DDP from now on; nothing of this is left."""
        try:
            self.flush()
        finally:
            self.plan = None
            self._steps.follow(None, None)
            for hook in self._hooks:
                hook.remove()
            self._hooks.clear()
            if distributed.is_initialized():
                for group in self._groups.values():
                    distributed.destroy_process_group(group)
            self._groups.clear()

    def _follow(self, plan: Plan) -> None:
        self._epoch += 1
        lanes = plan.order.lanes
        group = self._groups.get(lanes)
        if group is None:
            group = self._groups[lanes] = own_group(self._model, lanes)
        parameters = planned_parameters(self._model, plan)
        exchange = Exchange(plan, self._model, parameters, self._updates, group, epoch=self._epoch)
        exchange.meter.every = self._log_every
        exchange.meter.expected_ns = _expected_ns(plan)
        exchange.meter.carry_on(self._meter)
        self._meter = exchange.meter
        control = None
        if self._replan:
            replanner = Replanner(plan, exchange.meter) if self._rank == 0 else None
            control = Control(replanner, group, exchange.meter)
        self.plan = plan
        self._steps.follow(exchange, control)
        if not self._hooks:
            self._hook(parameters)

    def _hook(self, parameters: list[Any]) -> None:
        model, optimizer, steps = self._model, self._optimizer, self._steps
        for parameter in parameters:
            self._hooks.append(parameter.register_post_accumulate_grad_hook(steps.on_gradient))
        ids = {id(parameter) for parameter in parameters}
        for module in model.module.modules():
            own = [id(p) for p in module._parameters.values() if id(p) in ids]
            if own:
                hook = Hook(steps.before_module, own)
                self._hooks.append(module.register_forward_pre_hook(hook, prepend=True))
        self._hooks += [
            model.register_forward_pre_hook(Hook(steps.before_forward), prepend=True),
            model.register_forward_hook(Hook(steps.after_forward), always_call=True),
            optimizer.register_state_dict_pre_hook(lambda _: steps.flush()),
            optimizer.register_load_state_dict_pre_hook(lambda *_: steps.flush()),
            Replaced(optimizer, "step", steps.on_step),
            Replaced(optimizer, "zero_grad", steps.on_zero_grad),
            TellOfBackward(steps),
            AtExit(self),
        ]


def _expected_ns(plan: Plan) -> tuple[int, ...]:
    """When pieces should have arrived, for the log alone."""
    with suppress(Exception):
        from augury.schedule.evaluate import evaluate  # noqa: PLC0415

        return tuple(int(ns) for ns in evaluate(plan.problem, plan.order).arrive_ns)
    return ()
