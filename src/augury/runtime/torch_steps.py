"""What happens when, in a training that follows a plan.

Backward ends with gradients under way. ``step`` says that updates are due. Until the next forward
of the model begins, whoever looks at a parameter or a gradient makes everything be waited for; in
forward, only what is looked at. When forward ends nothing is under way.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import torch

from augury.core.plan import Plan
from augury.runtime.habits import Habits
from augury.runtime.say import say
from augury.runtime.torch_control import Control
from augury.runtime.torch_exchange import Exchange
from augury.runtime.torch_fit import has_step_hooks
from augury.runtime.torch_updates import Updates, undisturbed
from augury.runtime.torch_watch import Watch


class Steps:
    def __init__(
        self,
        model: Any,
        optimizer: Any,
        updates: Updates,
        rank: int,
        on_new_plan: Callable[[Plan], None],
    ) -> None:
        self._model, self._optimizer = model, optimizer
        self._updates = updates
        self._rank = rank
        self._on_new_plan = on_new_plan
        self._watch = Watch(self._on_touch)
        self._exchange: Exchange | None = None
        self._control: Control | None = None
        self._is_expected = False
        """A forward has announced a backward whose gradients are to be exchanged."""
        self._is_running = False
        """A backward is, or it has failed."""
        self._is_told = False
        """The running backward will tell when it is over."""
        self._began_ns = 0
        self._is_flying = False
        self._is_due = False
        self._is_in_forward = False
        self._is_broken = False
        self._asked_to_sync = True
        self._is_stepping = False
        self._habits = Habits(rank)

    def follow(self, exchange: Exchange | None, control: Control | None) -> None:
        """From now on; nothing may be under way."""
        if self._control is not None and not self._is_broken:
            self._control.wait()
        self._exchange, self._control = exchange, control
        self._is_expected = False
        self._watch.stop()
        if exchange is not None:
            _ = self._watch.call_ns  # measured now

    # --- backward

    def on_gradient(self, parameter: Any) -> None:
        exchange = self._exchange
        if exchange is None or not self._is_expected:
            return
        if not self._is_running:
            self._is_running = True
            torch.autograd.Variable._execution_engine.queue_callback(self._end_backward)
            self._begin(exchange)
        # Between layers, whose data is what caches hold, every call of ours is a slow one.
        if exchange.meter.is_counting:
            exchange.meter.own(self._put, exchange, parameter)
        else:
            self._put(exchange, parameter)

    def _put(self, exchange: Exchange, parameter: Any) -> None:
        number = exchange.number_of[id(parameter)]
        if number not in exchange.sender.waiting_for:
            name = exchange.plan.problem.gradients[number].name
            raise RuntimeError(
                f"Expected to mark a variable ready only once: {name} got its gradient a second "
                "time since the last forward of the model"
            )
        exchange.put(number, parameter.grad)

    def _begin(self, exchange: Exchange) -> None:
        if not self._is_flying:
            self._is_flying = True
            exchange.begin(self._began_ns if self._is_told else time.perf_counter_ns())

    def _end_backward(self) -> None:
        """Autograd has done everything that it could do."""
        exchange = self._exchange
        self._is_running = False
        if exchange is None or not self._is_flying:
            return
        exchange.meter.end_backward()
        if not (exchange.sender.waiting_for or self._model.find_unused_parameters):
            self._is_expected = False
            exchange.meter.own(self._all_put, exchange)

        if not self._is_told and not exchange.sender.waiting_for:
            self.flush()  # nothing can be watched from here

    def before_backward(self) -> None:
        self._is_told = True
        self._began_ns = time.perf_counter_ns()

    def failed_backward(self) -> None:
        """The other ranks count on this one's pieces, be they worth nothing."""
        self._is_told = False
        exchange = self._exchange
        if exchange is None or not self._is_expected or self._is_broken:
            return
        self._is_running = True
        self._begin(exchange)
        with suppress(Exception):  # the program is to see what failed first
            self._complete(exchange)

    def after_backward(self) -> None:
        self._is_told = False
        exchange = self._exchange
        if exchange is None or not self._is_flying or self._is_due:
            return
        if exchange.sender.waiting_for and not self._model.find_unused_parameters:
            return  # another backward may bring them; whoever needs them will say so
        if self._habits.barrier == "backward":
            self.flush()
        else:
            exchange.meter.own(self._look_out, exchange)

    def _all_put(self, exchange: Exchange) -> None:
        exchange.sender.advance(at_once=True)
        if self._control is not None:
            self._control.send()

    def _complete(self, exchange: Exchange) -> bool:
        """Every rank sends its whole list, come what may. False: there is nothing to apply."""
        self._is_expected = False
        has_failed, self._is_running = self._is_running, False
        missing = sorted(exchange.sender.waiting_for)
        if has_failed or (missing and not self._model.find_unused_parameters):
            if has_failed:
                say("backward failed: what it has sent counts for nothing here", rank=self._rank)
            exchange.fill(agree=self._model.find_unused_parameters)
            self._all_put(exchange)
            self._wait(exchange.drop)
            self._rest()
            if has_failed:
                return False
            names = [exchange.plan.problem.gradients[number].name for number in missing]
            raise RuntimeError(
                "Expected to have finished reduction in the prior iteration before starting a new "
                "one: parameters that were not used in producing the loss got no gradient, "
                f"{', '.join(names[:8])}{', ...' if len(names) > 8 else ''}. Pass "
                "find_unused_parameters=True to DistributedDataParallel if that is meant"
            )
        if self._model.find_unused_parameters and not exchange.has_agreed:
            exchange.fill(agree=True)
            self._all_put(exchange)
        return True

    # --- between backward and forward

    def _look_out(self, exchange: Exchange, parameters: bool = True) -> None:
        self._watch.watched = exchange.watched(parameters=parameters)
        self._watch.start()
        self._meter_watch(exchange)

    def _meter_watch(self, exchange: Exchange) -> None:
        """What watching has cost since this was called last."""
        num_calls, self._watch.num_calls = self._watch.num_calls, 0
        if exchange.meter.is_counting:
            exchange.meter.note_own(num_calls * self._watch.call_ns)

    def _on_touch(self, unit: int) -> bool:
        exchange = self._exchange
        if exchange is None:
            return True
        if self._is_in_forward:
            self._wait(exchange.wait_units, (unit,))
            if not exchange.left:
                self._watch.stop()
            return True
        if torch._C._current_graph_task_id() != -1:
            return False  # backward itself may
        self._habits.note("step" if self._is_due else "backward")
        self.flush()
        return True

    def on_step(
        self, previous: Callable[..., Any], args: tuple[Any, ...], options: dict[str, Any]
    ) -> Any:
        exchange = self._exchange
        if exchange is None or not self._is_flying:
            return previous(*args, **options)
        if self._is_due or args or options or has_step_hooks(self._optimizer):
            self.flush()
            return previous(*args, **options)
        if not self._complete(exchange):
            return previous(*args, **options)
        if exchange.plan.order.has_barrier or self._habits.barrier is not None:
            return exchange.meter.own(self._step_now, exchange, previous)
        exchange.meter.own(self._step_later, exchange)
        return None

    def _step_now(self, exchange: Exchange, previous: Callable[..., Any]) -> Any:
        self._wait(exchange.drop)
        self._watch.stop()
        with undisturbed():
            kept = exchange.swap_in()
        self._is_stepping = True
        try:
            result = exchange.meter.work(previous)
        finally:
            self._is_stepping = False
            with undisturbed():
                exchange.swap_out(kept)
        self._is_due = True
        # Parameters are up to date; their gradients only once somebody looks.
        self._look_out(exchange, parameters=False)
        return result

    def _step_later(self, exchange: Exchange) -> None:
        with self._updates.announced():
            with undisturbed():
                self._updates.snapshot()
                others = self._updates.others(exchange.number_of)
                if others:
                    self._updates.apply(others, [parameter.grad for parameter in others])
            self._is_due = True

    def on_zero_grad(
        self, previous: Callable[..., Any], args: tuple[Any, ...], options: dict[str, Any]
    ) -> Any:
        """Asks for every ``grad``, to which there is no harm: spared the watching."""
        with torch._C.DisableTorchFunction():
            return previous(*args, **options)

    def flush(self) -> None:
        """Waits for what is under way and applies what is due: parameters and gradients are then
        as stock DDP would have left them."""
        exchange = self._exchange
        if exchange is None or not self._is_flying or self._is_broken or self._is_stepping:
            return
        if not self._complete(exchange):
            return
        if self._is_due:
            self._wait(exchange.wait_all, False)
        else:
            self._wait(exchange.drop)
        exchange.give_back_all()
        self._rest()
        if self._control is not None:
            self._wait(self._control.wait)

    # --- forward

    def before_forward(self, _model: Any, _inputs: Any) -> None:
        exchange = self._exchange
        if exchange is None or self._model._join_config.enable:
            self._is_in_forward = False
            return
        if self._is_broken:
            raise RuntimeError("an exchange of gradients has failed before: parameters are stale")
        if self._is_flying and not self._is_due:
            self.flush()
        if self._is_flying:
            if not exchange.left:
                exchange.give_back_all()
                self._rest()
            elif not self._watch.watched:
                exchange.meter.own(self._look_out, exchange)
        self._habits.end_step()
        self._is_in_forward = True
        self._asked_to_sync = self._model.require_backward_grad_sync
        self._model.require_backward_grad_sync = False

    def before_module(self, parameter_ids: list[int], _module: Any, _inputs: Any) -> None:
        exchange = self._exchange
        if exchange is None or not self._is_flying or self._is_broken:
            return
        if not self._is_in_forward:
            if self._is_due and not exchange.left:
                return
            self._habits.note("step" if self._is_due else "backward")
            self.flush()
            return
        if exchange.left:
            exchange.meter.own(self._wait_for, exchange, parameter_ids)

    def _wait_for(self, exchange: Exchange, parameter_ids: list[int]) -> None:
        unit_of, watched = exchange.unit_of, self._watch.watched
        units = {unit_of[one] for one in parameter_ids}
        if not units.isdisjoint(exchange.left):
            self._wait(exchange.wait_units, units)
            if not exchange.left:
                self._watch.stop()
        for one in parameter_ids:
            watched.pop(one, None)

    def after_forward(self, _model: Any, _inputs: Any, output: Any) -> None:
        if not self._is_in_forward:
            return
        self._is_in_forward = False
        model, is_wanted = self._model, self._asked_to_sync and torch.is_grad_enabled()
        model.require_backward_grad_sync = self._asked_to_sync
        model.require_forward_param_sync = is_wanted
        exchange = self._exchange
        if exchange is not None and self._is_flying and not self._is_broken:
            exchange.meter.own(self._wait, exchange.wait_all, True)
            self._rest()
        if self._control is not None and not self._is_broken:
            new = self._control.receive()
            if new is not None:
                self._on_new_plan(new)
        if is_wanted and output is not None:
            self._is_expected = True

    # ---

    def _wait(self, action: Callable[..., None], *args: Any) -> None:
        """What cannot be waited for now never can."""
        try:
            action(*args)
        except Exception:
            self._is_broken = True
            self._rest()
            raise

    def _rest(self) -> None:
        if self._exchange is not None:
            self._meter_watch(self._exchange)
        self._is_flying = self._is_due = self._is_running = False
        self._watch.stop()
