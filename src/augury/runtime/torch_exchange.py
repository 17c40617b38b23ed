"""One step's gradients under a Plan: put in, sent, waited for, applied, given back.

Parameters are updated in units, one for each module that owns some: numbered in the order in which
the next forward needs them.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import torch
from torch import distributed

from augury.core.plan import Plan, is_swapped
from augury.runtime.meter import Meter
from augury.runtime.torch_buffers import Buffers
from augury.runtime.torch_pieces import Sender
from augury.runtime.torch_updates import Updates, undisturbed

BATCH_BYTES = 1 << 17
"""Updates of less than this are done in one go with others that can be done: what an optimizer
takes for each call would be most of it."""


@dataclass(slots=True)
class Unit:
    members: list[int]
    size_bytes: int


class Exchange:
    def __init__(
        self,
        plan: Plan,
        model: Any,
        parameters: list[Any],
        updates: Updates,
        group: Any,
        *,
        epoch: int,
    ) -> None:
        self.plan = plan
        self.parameters = parameters
        self.meter = Meter(num_pieces=len(plan.order.pieces), num_gradients=len(parameters))
        self._model = model
        self._updates = updates
        self._group = group
        self._buffers = Buffers(
            plan.problem,
            plan.order,
            parameters,
            group.size(),
            apart=is_swapped(plan.order, group.size()),
        )
        self.sender = Sender(
            *(plan, self._buffers, group, self.meter),
            on_issue=self._lay_down,
            on_arrival=self._on_arrival,
            epoch=epoch,
        )
        self._can_ask = self.sender.tells
        self.units = _units(model, parameters)
        self.unit_of = {
            id(parameters[n]): unit for unit, one in enumerate(self.units) for n in one.members
        }
        self._unit_of = [self.unit_of[id(parameter)] for parameter in parameters]
        self.number_of = {id(parameter): n for n, parameter in enumerate(parameters)}
        self._given: list[tuple[Any, int]] = []
        """Each parameter's ``grad`` when it was put, and its version."""
        self._is_laid_down: list[bool] = []
        """Gradients whose shares are in the buffers."""
        self._has_given: bool | None = None
        """Whether parameters have their ``grad`` still: None until somebody asks."""
        self._made_up: set[int] = set()
        """Gradients that this rank has none of, and holds a place for."""
        self._used: Any = None
        """Which gradients any rank has made, where not all need to be."""
        self._agreed: Any = None
        self.left: set[int] = set()
        """Units that are not up to date."""
        self._num_members = [len(unit.members) for unit in self.units]
        self._num_missing: list[int] = []
        self._ready: list[int] = []
        """Units of which everything has arrived, the one that is needed first first."""

    @property
    def has_agreed(self) -> bool:
        return self._used is not None

    def begin(self, start_ns: int) -> None:
        """A backward brings its first gradient; it started then."""
        self.meter.begin(start_ns)
        self.meter.own(self._begin, start_ns)

    def _begin(self, start_ns: int) -> None:
        self.sender.begin(start_ns)
        self._given = [(None, 0)] * len(self.parameters)
        self._is_laid_down = [False] * len(self.parameters)
        self._has_given = None
        self._made_up = set()
        self._used = None
        self.left = set(range(len(self.units)))
        self._num_missing = [*self._num_members]
        self._ready = []

    def put(self, number: int, gradient: Any) -> None:
        """Backward has made a gradient. Little is done between its layers, whose data is what
        caches hold: shares are laid down when they are sent."""
        self._given[number] = gradient, gradient._version
        if self.meter.is_on:
            self.meter.note_release(number)
        self.sender.put(number)

    def _lay_down(self, gradients: Iterable[int]) -> None:
        for number in gradients:
            if not self._is_laid_down[number]:
                self._is_laid_down[number] = True
                gradient = self._given[number][0]
                self._buffers.put(number, gradient.detach() if gradient.requires_grad else gradient)

    def watched(self, *, parameters: bool) -> dict[int, int]:
        """What must not be looked at now: units by the ``id`` of tensors."""
        pairs = zip(self._given, self._unit_of, strict=True)
        gradients = {id(given): unit for (given, _), unit in pairs}
        gradients.pop(id(None), None)
        found = {**self.unit_of, **gradients} if parameters else gradients
        if not parameters or len(self.left) == len(self.units):
            return found
        return {one: unit for one, unit in found.items() if unit in self.left}

    def fill(self, *, agree: bool) -> None:
        """Backward is over: what it did not make counts as nothing; ``agree``: on what no rank
        has made."""
        with undisturbed():
            missing = sorted(self.sender.waiting_for)
            for number in missing:
                self._buffers.put_nothing(number)
                self._is_laid_down[number] = True
                parameter = self.parameters[number]
                if agree:
                    if parameter.grad is None:
                        self._made_up.add(number)
                        parameter.grad = torch.zeros_like(parameter)
                    self._given[number] = parameter.grad, parameter.grad._version
                self.sender.put(number)
            self.sender.advance(at_once=True)
            if agree:
                self._used = torch.ones(len(self.parameters), dtype=torch.int32)
                self._used[missing] = 0
                self._agreed = distributed.all_reduce(self._used, group=self._group, async_op=True)

    def drop(self) -> None:
        """Waits until nothing is under way, for nothing."""
        while not self.sender.is_done:
            self.sender.wait_next()
        self.sender.finish()
        self.left = set()

    def wait_units(self, units: Iterable[int]) -> None:
        """Until their parameters are up to date; updates others while it waits."""
        with undisturbed():
            for unit in units:
                while unit in self.left:
                    if self._num_missing[unit]:
                        self._use_time()
                    else:
                        self._update(unit)

    def wait_all(self, in_turn: bool) -> None:
        """Until everything is up to date; ``in_turn``: updates are done as they arrive."""
        with undisturbed():
            while in_turn and self.left and not self.sender.is_done:
                self._use_time()
            while not self.sender.is_done:
                self.sender.wait_next()
            if not in_turn:
                self.sender.finish()
            self._apply(sorted(self.left))

    def _use_time(self) -> None:
        """The updates that can be done; with none, waits."""
        if self._can_ask:
            self.sender.poll()
        if self._ready:
            # All at once: whatever comes meanwhile, there is no less to do.
            units, self._ready = self._ready, []
            self._apply(units)
        else:
            self.sender.wait_next()

    def _on_arrival(self, gradients: Iterable[int]) -> None:
        for number in gradients:
            unit = self._unit_of[number]
            self._num_missing[unit] -= 1
            if not self._num_missing[unit]:
                insort(self._ready, unit)

    def _update(self, unit: int) -> None:
        self._ready.remove(unit)
        units, size_bytes = [unit], self.units[unit].size_bytes
        while self._ready and size_bytes < BATCH_BYTES:
            units.append(self._ready.pop(0))
            size_bytes += self.units[units[-1]].size_bytes
        self._apply(units)

    def _apply(self, units: list[int]) -> None:
        numbers = [n for unit in units for n in self.units[unit].members]
        self.left.difference_update(units)
        self.meter.work(self._apply_to, numbers)
        if self._has_given is not False:
            self._give_back(units)

    def _apply_to(self, numbers: list[int]) -> None:
        gradients = [self._to_apply(n) for n in numbers]
        self._updates.apply([self.parameters[n] for n in numbers], gradients)

    def _to_apply(self, number: int) -> Any:
        if self._is_used(number):
            return self._buffers.reduced(number)
        return None if number in self._made_up else self._given[number][0]

    def swap_in(self) -> list[Any]:
        """Gives every parameter its reduced gradient; returns what they had."""
        kept = [parameter.grad for parameter in self.parameters]
        for number, parameter in enumerate(self.parameters):
            parameter.grad = self._to_apply(number)
        self.left = set()
        return kept

    def swap_out(self, kept: list[Any]) -> None:
        for parameter, gradient in zip(self.parameters, kept, strict=True):
            parameter.grad = gradient

    def give_back_all(self) -> None:
        with undisturbed():
            self._give_back(range(len(self.units)))

    def _give_back(self, units: Iterable[int]) -> None:
        """As after DDP's reduction, ``grad`` is the mean: unless it was zeroed or replaced since
        backward made it."""
        if self._has_given is None:
            pairs = zip(self.parameters, self._given, strict=True)
            self._has_given = any(parameter.grad is given for parameter, (given, _) in pairs)
        if not self._has_given:
            return  # as is usual: programs zero gradients by setting them to None
        for unit in units:
            for number in self.units[unit].members:
                given, version = self._given[number]
                self._given[number] = None, 0
                parameter = self.parameters[number]
                if given is None or parameter.grad is not given or given._version != version:
                    continue
                if self._is_used(number):
                    self.meter.work(given.detach().copy_, self._buffers.reduced(number))
                elif number in self._made_up:
                    parameter.grad = None

    def _is_used(self, number: int) -> bool:
        if self._used is None:
            return True
        if self._agreed is not None:
            self._agreed.wait()
            self._agreed = None
        return bool(self._used[number])


def _units(model: Any, parameters: list[Any]) -> list[Unit]:
    number_of = {id(parameter): n for n, parameter in enumerate(parameters)}
    units: list[Unit] = []
    for module in model.module.modules():
        members = [number_of.pop(id(p)) for p in module._parameters.values() if id(p) in number_of]
        if members:
            size_bytes = sum(parameters[number].nbytes for number in members)
            units.append(Unit(sorted(members), size_bytes))
    return sorted(units, key=lambda unit: unit.members[0])
