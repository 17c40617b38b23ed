"""The steps of a training that follows a plan.

Backward ends with gradients in flight. ``step`` says that updates are due. Until the next forward
of the model begins, a read of a parameter or a gradient waits for everything; in forward, it waits
for what is read. When forward ends nothing is in flight.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress
from enum import Enum, auto
from typing import Any

import torch

from augury.runtime.access_pattern import Habits
from augury.runtime.say import say
from augury.runtime.torch.access_guard import Watch
from augury.runtime.torch.aliases import Aliases
from augury.runtime.torch.compatibility import has_step_hooks, is_plain_step
from augury.runtime.torch.exchange import GradientExchange, own_gradient
from augury.runtime.torch.exchange_counter import NoSync, Turns, announces_exchange
from augury.runtime.torch.hooks import GradientHooks, ModuleHooks
from augury.runtime.torch.updates import Updates, undisturbed


class ExchangePhase(Enum):
    """Where an exchange of gradients is."""

    IDLE = auto()
    """Nothing is in flight."""
    FILLING = auto()
    """Backward makes gradients, and pieces leave."""
    SENT = auto()
    """All gradients were made; the optimizer has not stepped."""
    DUE = auto()
    """The optimizer has stepped; parameters are updated as their gradients arrive."""
    INCOMPLETE = auto()
    """Backward failed on this rank, or did not make all gradients: as with stock DDP, training
    cannot go on."""
    BROKEN = auto()
    """Waiting failed: another rank has failed or died."""


LOST = (ExchangePhase.INCOMPLETE, ExchangePhase.BROKEN)
IN_FLIGHT = (ExchangePhase.FILLING, ExchangePhase.SENT, ExchangePhase.DUE)


class PlannedSteps:
    """One training under one plan at a time: ``exchange`` is None while stock DDP runs."""

    def __init__(
        self, model: Any, optimizer: Any, updates: Updates, turns: Turns, rank: int
    ) -> None:
        self._model, self._optimizer = model, optimizer
        self._updates, self._turns = updates, turns
        self._rank = rank
        self._watch = Watch(self._on_touch)
        self._exchange: GradientExchange | None = None
        self._aliases = Aliases()
        self.phase = ExchangePhase.IDLE
        self._why_lost = ""
        self._is_expected = False
        self._is_backward_seen = False
        """The running backward was called by a function that tells when it has ended."""
        self._began_ns = 0
        self._task = -1
        """The backward at whose end ``_end_backward`` is called."""
        self._is_in_forward = False
        self._asked_to_sync = True
        self._is_stepping = False
        self._is_partly_updated = False
        self._habits = Habits(rank)
        self.gradient_hooks: GradientHooks | None = None
        self.module_hooks: ModuleHooks | None = None

    @property
    def is_filling(self) -> bool:
        return self.phase is ExchangePhase.FILLING

    @property
    def is_expected(self) -> bool:
        """A forward has announced an exchange that has not begun."""
        return self._is_expected

    def expect(self) -> None:
        """The gradients of the next backward are exchanged."""
        self._is_expected = True
        if self.gradient_hooks is not None:
            self.gradient_hooks.keep_last()

    def follow(self, exchange: GradientExchange | None) -> None:
        """From now on; nothing may be in flight."""
        self._exchange = exchange
        self._is_expected = self._is_in_forward = False
        self._watch.stop()
        if exchange is not None:
            _ = self._watch.call_ns  # measured now
            self._aliases = Aliases(exchange.parameters)

    # --- backward

    def on_gradient(self, parameter: Any) -> None:
        exchange = self._exchange
        if exchange is None:
            return
        if not self._is_expected:
            self._refuse_late(exchange, parameter)
            exchange.note_used(parameter)
            return
        if self.phase is ExchangePhase.IDLE:
            self._queue_end()
            self._begin(exchange)
        # Between layers, whose data is what caches hold, every call of ours is a slow one.
        if exchange.meter.is_counting:
            exchange.meter.own(self._put, exchange, parameter)
        else:
            self._put(exchange, parameter)
        if not exchange.sender.waiting_for and self._task != torch._C._current_graph_task_id():
            self._queue_end()  # the first gradient was another backward's, or of one inside it

    def _refuse_late(self, exchange: GradientExchange, parameter: Any) -> None:
        """A second backward of one forward brings a gradient that was taken for unused: stock DDP
        fails as well."""
        if exchange.was_filled(parameter):
            raise RuntimeError(
                "a parameter got its gradient after the exchange of this step: run one backward "
                "for each forward, or train without find_unused_parameters"
            )

    def _queue_end(self) -> None:
        """``_end_backward`` is called when the backward that runs now has ended."""
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

    def _begin(self, exchange: GradientExchange) -> None:
        self._wait(self._turns.begin)
        self.phase = ExchangePhase.FILLING
        exchange.begin(self._began_ns if self._is_backward_seen else time.perf_counter_ns())

    def _end_backward(self) -> None:
        """Autograd has done everything that it could do."""
        exchange = self._exchange
        if exchange is None or self.phase is not ExchangePhase.FILLING:
            return
        exchange.meter.end_backward()
        is_seen = self._is_backward_seen
        if exchange.sender.waiting_for and (is_seen or not self._model.find_unused_parameters):
            return
        self._fill(exchange)
        if not is_seen:
            self.flush()  # nothing can be watched from here

    def before_backward(self) -> None:
        if self.phase in (ExchangePhase.SENT, ExchangePhase.DUE):
            self.flush()  # it may add to gradients that are not the means yet
        if self._is_expected and self.gradient_hooks is not None:
            self.gradient_hooks.keep_last()
        self._is_backward_seen = True
        self._began_ns = time.perf_counter_ns()

    def failed_backward(self) -> None:
        """Without a gradient nothing has happened. With some, other ranks count on the rest."""
        self._is_backward_seen = False
        exchange = self._exchange
        if exchange is not None and self.phase is ExchangePhase.FILLING:
            self._give_up(exchange, "backward failed")

    def after_backward(self) -> None:
        self._is_backward_seen = False
        exchange = self._exchange
        if exchange is None or self.phase not in (ExchangePhase.FILLING, ExchangePhase.SENT):
            return
        if exchange.sender.waiting_for:
            if not self._model.find_unused_parameters:
                exchange.end_part()  # another backward may bring the others
                return
            # Whether an unused parameter has a gradient is for all ranks to say.
            self._fill(exchange)
            self.flush()
            return
        if self.phase is ExchangePhase.FILLING:
            self._fill(exchange)  # this backward was the last of several
        if self._habits.barrier == "backward" or exchange.has_aliases():
            self.flush()
        else:
            exchange.meter.own(self._look_out, exchange)

    def _fill(self, exchange: GradientExchange) -> None:
        """Every rank sends its whole list."""
        self._is_expected = False
        exchange.fill(agree=self._model.find_unused_parameters)
        exchange.meter.own(exchange.sender.advance, True)
        self.phase = ExchangePhase.SENT
        self._turns.end()

    def _give_up(self, exchange: GradientExchange, why: str) -> None:
        """No rank can take this step, and none waits for this one."""
        self._is_expected = False
        self.phase = ExchangePhase.INCOMPLETE
        self._watch.stop()
        missing = [exchange.section.problem.gradients[n].name for n in exchange.sender.waiting_for]
        names = f"{', '.join(sorted(missing)[:8])}{', ...' if len(missing) > 8 else ''}"
        self._why_lost = f"{why}; no gradient of {names}" if missing else why
        say(f"{why}: this step cannot be completed on any rank", rank=self._rank)
        with suppress(Exception):  # the program is to see what failed first
            exchange.spoil(self._why_lost)

    def _lost(self) -> RuntimeError:
        if self.phase is ExchangePhase.INCOMPLETE:
            return RuntimeError(
                "Expected to have finished reduction in the prior iteration before starting a new "
                f"one: {self._why_lost}. If parameters are meant to be unused, pass "
                "find_unused_parameters=True to DistributedDataParallel"
            )
        return RuntimeError(f"an exchange of gradients has failed before: {self._why_lost}")

    # --- between backward and forward

    def _look_out(self, exchange: GradientExchange, parameters: bool = True) -> None:
        gradients = exchange.gradients()
        self._watch.may_be_zeroed = gradients.keys()
        self._watch.watched = exchange.watched(gradients, parameters=parameters)
        self._watch.start()
        self._meter_watch(exchange)

    def _meter_watch(self, exchange: GradientExchange) -> None:
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
        self._habits.note("step" if self.phase is ExchangePhase.DUE else "backward")
        self.flush()
        return True

    def on_step(
        self, previous: Callable[..., Any], args: tuple[Any, ...], options: dict[str, Any]
    ) -> Any:
        exchange = self._exchange
        if exchange is None or self.phase not in IN_FLIGHT:
            self._watch.stop()
            return previous(*args, **options)
        if self.phase is ExchangePhase.FILLING:
            # As with stock DDP, gradients stay on this rank, and the next forward fails.
            self._give_up(exchange, "backward did not make all gradients")
            return previous(*args, **options)
        if (
            self.phase is ExchangePhase.DUE
            or args
            or options
            or has_step_hooks(self._optimizer)
            or not is_plain_step(self._optimizer, previous)
            or exchange.meter.own(exchange.was_edited)
        ):
            self.flush()
            return previous(*args, **options)
        if (
            exchange.section.order.has_barrier
            or self._habits.barrier is not None
            or not self._updates.has_state
            or exchange.meter.own(self._aliases.are_there)
        ):
            return exchange.meter.own(self._step_now, exchange, previous)
        exchange.meter.own(self._step_later, exchange)
        return None

    def _step_now(self, exchange: GradientExchange, previous: Callable[..., Any]) -> Any:
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
        self.phase = ExchangePhase.DUE
        # Parameters are up to date; gradients are given their means when they are read.
        self._look_out(exchange, parameters=False)
        return result

    def _step_later(self, exchange: GradientExchange) -> None:
        with self._updates.announced():
            # Hooks of the program may have looked at gradients, or changed them.
            if self.phase is not ExchangePhase.SENT or exchange.was_edited():
                self.flush()
                self._updates.step_whole()
                return
            with undisturbed():
                self._updates.snapshot()
                others = self._updates.others(exchange.number_of)
                if others:
                    self._updates.apply(others, [parameter.grad for parameter in others])
                self._watch.watched.update(self._updates.states(exchange.unit_of))
            self.phase = ExchangePhase.DUE

    def on_zero_grad(
        self, previous: Callable[..., Any], args: tuple[Any, ...], options: dict[str, Any]
    ) -> Any:
        """Asks for every ``grad``, which does no harm: spared the watching."""
        with torch._C.DisableTorchFunction():
            return previous(*args, **options)

    def flush(self) -> None:
        """Waits for what is in flight and applies what is due: parameters and gradients are then
        as stock DDP would have left them."""
        exchange = self._exchange
        if (
            exchange is None
            or self._is_stepping
            or self.phase not in (ExchangePhase.SENT, ExchangePhase.DUE)
        ):
            return
        if self.phase is ExchangePhase.DUE:
            self._wait(exchange.wait_all, False)
        else:
            self._wait(exchange.drop)
        exchange.give_back_all()
        self._rest()

    def require_whole(self) -> None:
        """Parameters may be read: all of them are of one step."""
        if self.phase is ExchangePhase.BROKEN and self._is_partly_updated:
            raise RuntimeError(
                f"parameters are only partly updated: {self._why_lost}. Resume from a checkpoint"
            )
        self.flush()

    # --- forward

    def before_forward(self, model: Any, _inputs: Any) -> None:
        self._is_in_forward = False
        exchange = self._exchange
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
            self._give_up(exchange, "backward did not make all gradients")
        if self.phase in LOST and (is_wanted or self._is_partly_updated):
            raise self._lost()
        if self.phase is ExchangePhase.SENT:
            self.flush()
        if self.phase is ExchangePhase.DUE:
            if not exchange.left:
                exchange.give_back_all()
                self._rest()
            elif not self._watch.watched:
                exchange.meter.own(self._look_out, exchange)
        self._habits.end_step()
        self._is_in_forward = True
        self._asked_to_sync = model.require_backward_grad_sync
        model.require_backward_grad_sync = NoSync(self._asked_to_sync)

    def before_module(self, parameter_ids: list[int], _module: Any, _inputs: Any) -> None:
        exchange = self._exchange
        if exchange is None:
            return
        if not (self._is_in_forward or torch.is_grad_enabled()):
            self._step_aside()
            return
        if self.phase not in (ExchangePhase.SENT, ExchangePhase.DUE):
            return
        if not self._is_in_forward:
            if self.phase is ExchangePhase.DUE and not exchange.left:
                return
            self._habits.note("step" if self.phase is ExchangePhase.DUE else "backward")
            self.flush()
            return
        if exchange.left:
            exchange.meter.own(self._wait_for, exchange, parameter_ids)

    def _step_aside(self) -> None:
        """An evaluation: it is to be computed as without a plan. The next training forward takes
        it up again."""
        if self._is_partly_updated:
            raise self._lost()
        if self.phase in (ExchangePhase.SENT, ExchangePhase.DUE):
            self._habits.note("step" if self.phase is ExchangePhase.DUE else "backward")
            self.flush()
        self._watch.stop()  # a mode that noticed something itself is put on again behind that
        if self.module_hooks is not None:
            self.module_hooks.remove()

    def _wait_for(self, exchange: GradientExchange, parameter_ids: list[int]) -> None:
        unit_of, watched = exchange.unit_of, self._watch.watched
        units = {unit_of[one] for one in parameter_ids}
        if not units.isdisjoint(exchange.left):
            self._wait(exchange.wait_units, units)
            if not exchange.left:
                self._watch.stop()
        for one in parameter_ids:
            watched.pop(one, None)

    def after_forward(self, model: Any, _inputs: Any, output: Any) -> None:
        if not self._is_in_forward:
            return
        self._is_in_forward = False
        is_wanted = self._asked_to_sync and torch.is_grad_enabled()
        model.require_backward_grad_sync = self._asked_to_sync
        model.require_forward_param_sync = is_wanted
        exchange = self._exchange
        if exchange is not None and self.phase is ExchangePhase.DUE:
            exchange.meter.own(self._wait, exchange.wait_all, True)
            self._rest()
        if is_wanted and output is not None:
            self.expect()

    # ---

    def _wait(self, action: Callable[..., None], *args: Any) -> None:
        """What cannot be waited for now never can: a rank has died, or was interrupted."""
        exchange = self._exchange
        try:
            action(*args)
        except BaseException as error:
            self._is_partly_updated = exchange is not None and exchange.is_partly_updated
            self._why_lost = str(error) or type(error).__name__
            self.phase = ExchangePhase.BROKEN
            self._watch.stop()
            if exchange is not None and isinstance(error, Exception):
                exchange.require_sound()  # a connection that ends is not the cause
            raise

    def _rest(self) -> None:
        if self._exchange is not None:
            self._meter_watch(self._exchange)
        self.phase = ExchangePhase.IDLE
        self._watch.stop()
