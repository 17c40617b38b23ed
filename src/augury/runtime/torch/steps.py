"""Reacts to the program's gradients, backward passes, optimizer steps and forwards under a plan.

Backward ends with gradients in flight. ``step`` makes updates due. Until the next forward of the
model begins, an access to a parameter or a gradient waits for everything; in forward, it waits for
the accessed parameter only. When forward ends nothing is in flight.
"""

from __future__ import annotations

import functools
import threading
import time
from collections.abc import Callable
from typing import Any

import torch

from augury.runtime.torch.exchange_driver import ExchangeDriver
from augury.runtime.torch.pieces.exchange import GradientExchange, own_gradient
from augury.runtime.torch.pieces.updates import Updates, without_program_modes
from augury.runtime.torch.program.access_guard import AccessPattern
from augury.runtime.torch.program.aliases import Aliases
from augury.runtime.torch.program.compatibility import (
    has_global_step_hooks,
    has_step_hooks,
    is_plain_step,
)
from augury.runtime.torch.program.hooks import GradientHooks, ModuleHooks
from augury.runtime.torch.ranks.exchange_counter import (
    ExchangeCounter,
    HeldFlag,
    announces_exchange,
    hold_flags,
    restore_flags,
)
from augury.runtime.torch.step_states import (
    BEFORE_STEP,
    COMPUTED,
    FLUSHABLE,
    IN_FLIGHT,
    LOST,
    ExchangePhase,
    ProgramState,
)


class PlannedSteps:
    """The steps of one training under one plan at a time."""

    def __init__(
        self, model: Any, optimizer: Any, updates: Updates, counter: ExchangeCounter, rank: int
    ) -> None:
        self._model, self._optimizer = model, optimizer
        self._updates = updates
        self._driver = ExchangeDriver(model, counter, rank, self._on_access)
        self._states, self._guard = self._driver.states, self._driver.guard
        self._aliases = Aliases()
        self._began_ns = 0
        self._task = -1
        """Id of the backward at whose end ``_end_backward`` is called."""
        self._asked_to_sync = True
        self._accesses = AccessPattern(rank)
        self.gradient_hooks: GradientHooks | None = None
        self.module_hooks: ModuleHooks | None = None

    @property
    def phase(self) -> ExchangePhase:
        return self._states.phase

    def flush(self) -> None:
        """Waits for everything in flight and applies due updates: see ExchangeDriver."""
        self._driver.flush()

    def require_whole(self) -> None:
        """Brings all parameters to the same step. Raises where that is impossible."""
        self._driver.require_whole()

    @property
    def is_expected(self) -> bool:
        """Whether a forward has announced an exchange that is not complete."""
        return self._states.is_announced

    def expect(self) -> None:
        """The gradients of the next backward are exchanged."""
        self._states.enter(ProgramState.ANNOUNCED)
        if self.gradient_hooks is not None:
            self.gradient_hooks.keep_last()

    def follow(self, exchange: GradientExchange | None) -> None:
        """Uses an exchange from now on; None: stock DDP. Nothing may be in flight."""
        self._driver.exchange = exchange
        self._states.leave(ProgramState.ANNOUNCED | ProgramState.FORWARD)
        self._guard.stop()
        if exchange is not None:
            _ = self._guard.call_ns  # measured while nothing is in flight
            self._aliases = Aliases(exchange.parameters)

    # --- backward

    def on_gradient(self, parameter: Any) -> None:
        exchange = self._driver.exchange
        if exchange is None:
            return
        if not self._states.is_announced:
            self._refuse_late(exchange, parameter)
            exchange.note_used(parameter)
            return
        if self.phase is ExchangePhase.IDLE:
            self._queue_end()
            is_seen = self._states.is_in_backward
            self._driver.begin(exchange, self._began_ns if is_seen else None)
        # Between layers the caches hold the layers' data, so every call here is slow.
        if exchange.meter.is_counting:
            exchange.meter.own(self._put, exchange, parameter)
        else:
            self._put(exchange, parameter)
        if not exchange.sender.waiting_for and self._task != torch._C._current_graph_task_id():
            self._queue_end()  # the first gradient came from another backward, or a nested one

    def _refuse_late(self, exchange: GradientExchange, parameter: Any) -> None:
        """Raises where a second backward computes a gradient that counted as unused, as stock DDP
        does."""
        if exchange.was_filled(parameter):
            raise RuntimeError(
                "a parameter got its gradient after the exchange of this step: run one backward "
                "for each forward, or train without find_unused_parameters"
            )

    def _queue_end(self) -> None:
        """Calls ``_end_backward`` when the running backward has ended."""
        self._task = torch._C._current_graph_task_id()
        torch.autograd.Variable._execution_engine.queue_callback(self._end_backward)

    def _put(self, exchange: GradientExchange, parameter: Any) -> None:
        number = exchange.number_of[id(parameter)]
        if number not in exchange.sender.waiting_for:
            name = exchange.section.problem.gradients[number].name
            raise RuntimeError(
                f"Expected to mark a variable ready only once: {name} got its gradient a second "
                "time since the last forward of the model"
            )
        exchange.put(number, own_gradient(parameter, self._model.gradient_as_bucket_view))

    def _end_backward(self) -> None:
        """Autograd has finished a backward."""
        exchange = self._driver.exchange
        if exchange is None or self.phase is not ExchangePhase.FILLING:
            return
        exchange.meter.end_backward()
        is_seen = self._states.is_in_backward
        if exchange.sender.waiting_for and (is_seen or not self._model.find_unused_parameters):
            return
        self._driver.fill(exchange)
        if not is_seen:
            self._driver.flush()  # accesses cannot be observed from here

    def before_backward(self) -> None:
        if self.phase in FLUSHABLE:
            self._driver.flush()  # backward may add to gradients that are not averaged yet
        if self._states.is_announced and self.gradient_hooks is not None:
            self.gradient_hooks.keep_last()
        self._states.enter(ProgramState.BACKWARD)
        self._began_ns = time.perf_counter_ns()

    def failed_backward(self) -> None:
        """Gives the exchange up if it has begun: other ranks wait for the missing gradients."""
        self._states.leave(ProgramState.BACKWARD)
        exchange = self._driver.exchange
        if exchange is not None and self.phase is ExchangePhase.FILLING:
            self._driver.give_up(exchange, "backward failed")

    def after_backward(self) -> None:
        self._states.leave(ProgramState.BACKWARD)
        exchange = self._driver.exchange
        if exchange is None or self.phase not in BEFORE_STEP:
            return
        if exchange.sender.waiting_for:
            if not self._model.find_unused_parameters:
                exchange.end_part()  # another backward may compute the others
                return
            # All ranks together decide whether an unused parameter has a gradient.
            self._driver.fill(exchange)
            self._driver.flush()
            return
        if self.phase is ExchangePhase.FILLING:
            self._driver.fill(exchange)  # this backward was the last of several
        if self._accesses.barrier == "backward" or exchange.has_aliases():
            self._driver.flush()
        else:
            exchange.meter.own(self._driver.watch, exchange)

    # --- between backward and forward

    def _on_access(self, unit: int) -> bool:
        exchange = self._driver.exchange
        if exchange is None:
            return True
        if self._states.is_in_forward:
            self._driver.wait(exchange.wait_units, (unit,))
            if not exchange.left:
                self._guard.stop()
            return True
        if torch._C._current_graph_task_id() != -1:
            return False  # an access of backward itself
        self._accesses.note("step" if self.phase is ExchangePhase.DUE else "backward")
        self._driver.flush()
        return True

    def on_step(
        self, previous: Callable[..., Any], args: tuple[Any, ...], options: dict[str, Any]
    ) -> Any:
        # Trainers pass their closure on, also where there is none.
        given = [value for value in (*args, *options.values()) if value is not None]
        is_plain = not has_step_hooks(self._optimizer) and is_plain_step(self._optimizer, previous)
        if not given:
            return self._step(previous, is_plain=is_plain)
        is_plain = is_plain and not has_global_step_hooks()  # they run before the closure
        if is_plain and len(given) == 1 and callable(given[0]) and self._driver.exchange:
            # Torch's optimizers call a closure once, before they update anything.
            with torch.enable_grad():
                result = given[0]()
            self._step(previous, is_plain=is_plain)
            return result
        return self._step(functools.partial(previous, *args, **options), is_plain=False)

    def _step(self, previous: Callable[..., Any], *, is_plain: bool) -> Any:
        """Makes updates due, or steps at once. Without ``is_plain`` the step runs other code of the
        program, too."""
        exchange = self._driver.exchange
        if exchange is None or self.phase not in IN_FLIGHT:
            self._guard.stop()
            return previous()
        if self.phase is ExchangePhase.FILLING:
            # As with stock DDP, gradients stay on this rank, and the next forward fails.
            self._driver.give_up(exchange, "backward did not compute all gradients")
            return previous()
        if (
            self.phase is ExchangePhase.DUE
            or not is_plain
            or exchange.meter.own(exchange.was_edited)
        ):
            self._driver.flush()
            return previous()
        if (
            exchange.section.order.has_barrier
            or self._accesses.barrier is not None
            or exchange.meter.own(self._updates.creates_state, exchange.number_of)
            or exchange.meter.own(self._aliases.are_there)
        ):
            if has_global_step_hooks():  # they may keep, replace or zero gradients
                self._driver.flush()
                return previous()
            return exchange.meter.own(self._step_now, exchange, previous)
        exchange.meter.own(self._step_later, exchange)
        return None

    def _step_now(self, exchange: GradientExchange, previous: Callable[..., Any]) -> Any:
        self._driver.wait(exchange.drop)
        self._guard.stop()
        with without_program_modes():
            kept = exchange.swap_in()
        self._states.begin_stepping()
        try:
            result = exchange.meter.work(previous)
        finally:
            self._states.end_stepping()
            with without_program_modes():
                exchange.swap_out(kept)
        self._states.make_due()
        # Parameters are up to date; gradients are set to the means when they are read.
        self._driver.watch(exchange, parameters=False)
        return result

    def _step_later(self, exchange: GradientExchange) -> None:
        with self._updates.as_program_step():
            # Hooks of the program may have read or changed gradients.
            if self.phase is not ExchangePhase.SENT or exchange.was_edited():
                self._driver.flush()
                self._updates.step_all()
                return
            with without_program_modes():
                self._updates.snapshot()
                others = self._updates.not_exchanged(exchange.number_of)
                if others:
                    self._updates.apply(others, [parameter.grad for parameter in others])
                self._guard.watched.update(self._updates.unit_of_state(exchange.unit_of))
            self._states.make_due()

    def before_unseen_call(self) -> None:
        """The program may access tensors in flight where the guard does not see it."""
        is_ours = threading.get_ident() == self._driver.thread
        if not is_ours or self.phase not in FLUSHABLE or torch._C._current_graph_task_id() != -1:
            return
        if not self._states.is_in_forward:
            self._accesses.note("step" if self.phase is ExchangePhase.DUE else "backward")
        self._driver.flush()

    def before_modules_are_read(self) -> None:
        """Torch scripts or traces modules, which may have no hooks of the runtime then."""
        self.before_unseen_call()
        if self.module_hooks is not None and not self._states.is_in_forward:
            self.module_hooks.remove()

    def on_zero_grad(
        self, previous: Callable[..., Any], args: tuple[Any, ...], options: dict[str, Any]
    ) -> Any:
        """Calls ``zero_grad`` without the guard: it reads every ``grad``, which is harmless."""
        with torch._C.DisableTorchFunction():
            return previous(*args, **options)

    # --- forward

    def before_forward(self, model: Any, _inputs: Any) -> None:
        self._states.leave(ProgramState.FORWARD)
        exchange = self._driver.exchange
        if exchange is None or model._join_config.enable:
            return
        exchange.forget_filled()
        if not torch.is_grad_enabled():
            self._step_aside()
            return
        if self.module_hooks is not None:
            self.module_hooks.attach()
        is_wanted = announces_exchange(model)
        if self.phase is ExchangePhase.FILLING and is_wanted:
            self._driver.give_up(exchange, "backward did not compute all gradients")
        if self.phase is ExchangePhase.PARTLY_UPDATED or (is_wanted and self.phase in LOST):
            raise self._driver.lost_error()
        if self.phase is ExchangePhase.SENT:
            self._driver.flush()
        if self.phase is ExchangePhase.DUE:
            if not exchange.left:
                exchange.give_back_all()
                self._driver.finish()
            elif not self._guard.watched:
                exchange.meter.own(self._driver.watch, exchange)
        self._accesses.end_step()
        self._states.enter(ProgramState.FORWARD)
        self._asked_to_sync = bool(model.require_backward_grad_sync)
        hold_flags(model)

    def before_module(self, parameter_ids: list[int], _module: Any, _inputs: Any) -> None:
        exchange = self._driver.exchange
        if exchange is None:
            return
        if not (self._states.is_in_forward or torch.is_grad_enabled()):
            self._step_aside()
            return
        if self.phase not in COMPUTED:
            return
        if not self._states.is_in_forward:
            if self.phase is ExchangePhase.DUE and not exchange.left:
                return
            self._accesses.note("step" if self.phase is ExchangePhase.DUE else "backward")
            self._driver.flush()
            return
        if exchange.left:
            exchange.meter.own(self._wait_for, exchange, parameter_ids)

    def _step_aside(self) -> None:
        """Removes hooks for an evaluation, which runs as without a plan. The next training forward
        attaches them again."""
        if self.phase is ExchangePhase.PARTLY_UPDATED:
            raise self._driver.lost_error()
        if self.phase in COMPUTED:
            self._accesses.note("step" if self.phase is ExchangePhase.DUE else "backward")
            self._driver.flush()
        self._guard.stop()  # torch re-enters a mode after its own callback
        if self.module_hooks is not None:
            self.module_hooks.remove()

    def _wait_for(self, exchange: GradientExchange, parameter_ids: list[int]) -> None:
        unit_of, watched = exchange.unit_of, self._guard.watched
        units = {unit_of[one] for one in parameter_ids}
        if not units.isdisjoint(exchange.left):
            self._driver.wait(exchange.wait_units, units)
            if not exchange.left:
                self._guard.stop()
        for one in parameter_ids:
            watched.pop(one, None)

    def after_forward(self, model: Any, _inputs: Any, output: Any) -> None:
        if not self._states.is_in_forward:
            return
        self._states.leave(ProgramState.FORWARD)
        is_wanted = self._asked_to_sync and torch.is_grad_enabled()
        has_failed = isinstance(model.require_forward_param_sync, HeldFlag)
        restore_flags(model)
        if not has_failed:  # DDP sets the flag at the end of a forward, as if under no_sync
            model.require_forward_param_sync = is_wanted
        exchange = self._driver.exchange
        if exchange is not None and self.phase is ExchangePhase.DUE:
            exchange.meter.own(self._driver.wait, exchange.wait_all, True)
            self._driver.finish()
        if is_wanted and output is not None:
            self.expect()
