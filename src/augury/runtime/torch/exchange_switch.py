"""Switches how gradients are exchanged: by stock DDP with one of its reducers, or by the pieces of
a plan."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from augury.core.plan.plan import Mode, Plan, PlanSection, communication_of
from augury.core.plan.plan_status import TrainingMode
from augury.core.plan.sections import CompressionSection
from augury.runtime.meter import Meter, expected_arrivals_ns
from augury.runtime.torch.pieces.exchange import GradientExchange
from augury.runtime.torch.pieces.updates import Updates
from augury.runtime.torch.program.compatibility import planned_parameters
from augury.runtime.torch.program.ddp_buckets import LiveBuckets, why_no_buckets
from augury.runtime.torch.ranks.control import Control
from augury.runtime.torch.ranks.exchange_counter import ExchangeCounter
from augury.runtime.torch.ranks.groups import PieceGroup
from augury.runtime.torch.step_hooks import attach_step_hooks
from augury.runtime.torch.steps import PlannedSteps


class ExchangeSwitch:
    """``log_every``: steps under pieces are logged at that distance."""

    def __init__(
        self, model: Any, optimizer: Any, counter: ExchangeCounter, rank: int, log_every: int
    ) -> None:
        self._model, self._optimizer = model, optimizer
        self._counter, self._log_every = counter, log_every
        self._updates = Updates(optimizer)
        self.steps = PlannedSteps(model, optimizer, self._updates, counter, rank)
        self.meter = Meter(num_pieces=0, num_gradients=0)
        self.mode = TrainingMode.STOCK
        self.buckets: LiveBuckets | None = None
        self._reducer: tuple[tuple[int, ...] | None, CompressionSection | None] = (None, None)
        """Bucket sizes and compression of stock DDP; None: those of the program."""
        self.pieces: GradientExchange | None = None
        """The exchange of the plan's pieces, once they were sent."""
        self._groups: dict[int, PieceGroup] = {}
        """Process groups by number of lanes."""
        self._parameters: list[Any] = []
        """The parameters in the order of the plan's gradients."""
        self._epoch = 0
        self._planned_hooks: list[Any] = []

    def prepare(self, plan: Plan, applied: Collection[PlanSection]) -> None:
        """Creates all that these sections of the plan need and ranks create together."""
        has_exchange = PlanSection.COMMUNICATION in applied
        if has_exchange:
            section = communication_of(plan)
            lanes = section.order.lanes
            if section.mode is Mode.PIECES and lanes not in self._groups:
                self._groups[lanes] = PieceGroup(self._model, lanes)
        is_changed = has_exchange or PlanSection.COMPRESSION in applied
        if is_changed and self.buckets is None and why_no_buckets(self._model) is None:
            self.buckets = LiveBuckets(self._model)
        self._parameters = planned_parameters(self._model, plan) if has_exchange else []

    def forget(self) -> None:
        """The pieces of another plan are sent from the next change on."""
        self.pieces = None

    def change(
        self,
        mode: TrainingMode,
        plan: Plan | None,
        control: Control | None,
        *,
        caps_bytes: tuple[int, ...] | None,
        compression: CompressionSection | None,
        is_attached: bool,
    ) -> None:
        """Exchanges gradients in that mode from the next step on. ``is_attached``: exchanges are
        counted."""
        reducer = (caps_bytes if mode is TrainingMode.BUCKETS else None, compression)
        is_pieces = mode is TrainingMode.PLANNED
        is_same = mode is self.mode and (is_pieces or reducer == self._reducer)
        if is_same and (not is_pieces or self.pieces is not None):
            return
        self.steps.flush()
        is_announced = self._counter.is_expected or self.steps.is_expected
        if self._counter.is_expected and self.buckets is not None:
            # The reducer still expects the gradients of a forward that had no backward.
            self.buckets.use(*self._reducer, is_renewed=True)
        for hook in self._planned_hooks:
            hook.remove()
        self._planned_hooks.clear()
        self.steps.follow(None)
        if is_pieces:
            assert plan is not None
            assert control is not None
            self._follow(plan, control)
        elif self.buckets is not None:
            # A reducer that was not in use has a wrong record of used parameters.
            is_misled = not is_same and self._model.find_unused_parameters
            self.buckets.use(*reducer, is_renewed=is_misled)
            self._reducer = reducer
        if is_attached:
            self._counter.watch_stock(not is_pieces)
        self.mode = mode
        if is_announced:
            self._announce()

    def _announce(self) -> None:
        """Announces an exchange again in the new mode. Stock DDP then reduces the gradients of the
        next backward, even under ``no_sync``. Where parameters may be unused, only the output of
        that forward shows which."""
        if self.mode is TrainingMode.PLANNED:
            self.steps.expect()
        elif not self._model.find_unused_parameters:
            self._model.reducer.prepare_for_backward([])
            self._counter.after_forward()

    def _follow(self, plan: Plan, control: Control) -> None:
        parameters = self._parameters
        if self.pieces is None:
            self._epoch += 1
            section = communication_of(plan)
            group = self._groups[section.order.lanes]
            exchange = GradientExchange(
                *(section, self._model, parameters, self._updates, group, control.group),
                epoch=self._epoch,
            )
            exchange.meter.every = self._log_every
            exchange.meter.expected_ns = expected_arrivals_ns(section)
            exchange.meter.carry_on(self.meter)
            self.pieces, self.meter = exchange, exchange.meter
        self.steps.follow(self.pieces)
        self._planned_hooks = attach_step_hooks(
            self.steps, self._model, self._optimizer, parameters
        )

    def arrange(self) -> None:
        """All gradients of a step were computed."""
        if self.buckets is not None and self.mode is not TrainingMode.PLANNED:
            self.buckets.arrange()

    def close_buckets(self) -> None:
        if self.buckets is not None:
            self.buckets.close()
            self.buckets = None

    def close_groups(self, *, is_lost: bool) -> None:
        for group in self._groups.values():
            group.close(is_lost=is_lost)
        self._groups.clear()
        self.pieces = None
