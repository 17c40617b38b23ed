"""Drives one exchange of gradients through its phases: begin, fill, flush, give up or fail."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from augury.runtime.say import say
from augury.runtime.torch.pieces.exchange import GradientExchange
from augury.runtime.torch.program.access_guard import AccessGuard
from augury.runtime.torch.ranks.exchange_counter import ExchangeCounter
from augury.runtime.torch.step_states import FLUSHABLE, ExchangePhase, ProgramState, StepStates

MOST_NAMES = 8
"""Parameters that an error message lists."""


class ExchangeDriver:
    """``exchange`` is None while stock DDP runs. ``on_access`` is called when the program accesses
    a watched tensor."""

    def __init__(
        self, model: Any, counter: ExchangeCounter, rank: int, on_access: Callable[[int], bool]
    ) -> None:
        self._model, self._counter, self._rank = model, counter, rank
        self.exchange: GradientExchange | None = None
        self.thread = -1
        """The thread that trains."""
        self.states = StepStates()
        self.guard = AccessGuard(on_access)

    def begin(self, exchange: GradientExchange, start_ns: int | None) -> None:
        """Backward, which started at ``start_ns``, has computed the first gradient; None: its
        start was not seen."""
        self.thread = threading.get_ident()
        self.wait(self._counter.begin)
        self.states.begin_filling()
        exchange.begin(time.perf_counter_ns() if start_ns is None else start_ns)

    def fill(self, exchange: GradientExchange) -> None:
        """Backward is over: every rank sends its whole list of pieces."""
        self.states.leave(ProgramState.ANNOUNCED)
        exchange.fill(agree=self._model.find_unused_parameters)
        exchange.meter.own(exchange.sender.advance, True)
        self.states.finish_filling()
        self._counter.end()

    def flush(self) -> None:
        """Waits for everything in flight and applies due updates. Parameters and gradients are
        then as stock DDP would have left them."""
        exchange = self.exchange
        if exchange is None or self.states.phase not in FLUSHABLE:
            return
        if self.states.phase is ExchangePhase.DUE:
            self.wait(exchange.wait_all, False)
        else:
            self.wait(exchange.drop)
        exchange.give_back_all()
        self.finish()

    def finish(self) -> None:
        """Nothing is in flight any more."""
        if self.exchange is not None:
            self.meter_guard(self.exchange)
        self.states.finish()
        self.guard.stop()

    def wait(self, action: Callable[..., None], *args: Any) -> None:
        """Calls an action that waits. A wait that fails cannot be repeated: a rank has died, or
        this one was interrupted."""
        exchange = self.exchange
        try:
            action(*args)
        except BaseException as error:
            is_partly = exchange is not None and exchange.is_partly_updated
            self.states.fail(str(error) or type(error).__name__, is_partly_updated=is_partly)
            self.guard.stop()
            if exchange is not None and isinstance(error, Exception):
                exchange.require_sound()  # a connection that ends is not the cause
            raise

    def watch(self, exchange: GradientExchange, parameters: bool = True) -> None:
        """Reports accesses to gradients in flight and, with ``parameters``, to parameters that are
        not up to date."""
        gradients = exchange.gradients()
        self.guard.may_be_zeroed = gradients.keys()
        self.guard.watched = exchange.watched(gradients, parameters=parameters)
        self.guard.start()
        self.meter_guard(exchange)

    def meter_guard(self, exchange: GradientExchange) -> None:
        """Counts the cost of the guard since the last call as the runtime's own."""
        num_calls, self.guard.num_calls = self.guard.num_calls, 0
        if exchange.meter.is_counting:
            exchange.meter.note_own(num_calls * self.guard.call_ns)

    def give_up(self, exchange: GradientExchange, why: str) -> None:
        """No rank can complete this step. Other ranks are told, so that none waits for this one."""
        gradients = exchange.section.problem.gradients
        missing = sorted(gradients[n].name for n in exchange.sender.waiting_for)
        names = f"{', '.join(missing[:MOST_NAMES])}{', ...' if len(missing) > MOST_NAMES else ''}"
        self.states.give_up(f"{why}; no gradient of {names}" if missing else why)
        self.guard.stop()
        say(f"{why}: this step cannot be completed on any rank", rank=self._rank)
        with suppress(Exception):  # the program is to see the first failure
            exchange.spoil(self.states.why_lost)

    def lost_error(self) -> RuntimeError:
        """Returns the error for a program that continues after a failed exchange."""
        if self.states.phase is ExchangePhase.INCOMPLETE:
            return RuntimeError(
                "Expected to have finished reduction in the prior iteration before starting a new "
                f"one: {self.states.why_lost}. If parameters are meant to be unused, pass "
                "find_unused_parameters=True to DistributedDataParallel"
            )
        return RuntimeError(f"an earlier exchange of gradients failed: {self.states.why_lost}")

    def require_whole(self) -> None:
        """Brings all parameters to the same step. Raises where that is impossible."""
        if self.states.phase is ExchangePhase.PARTLY_UPDATED:
            raise RuntimeError(
                f"parameters are only partly updated: {self.states.why_lost}. "
                "Resume from a checkpoint"
            )
        self.flush()
