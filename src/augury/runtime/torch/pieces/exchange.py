"""The exchange of one step's gradients: collected, sent, awaited, applied and given back.

Parameters are updated in units, one for each module that owns some, numbered in the order in which
the next forward needs them.
"""

from __future__ import annotations

import sys
from bisect import insort
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import torch

from augury.core.plan.plan import CommunicationSection, is_swapped
from augury.core.plan.plan_board import board
from augury.runtime.meter import Meter
from augury.runtime.torch.pieces.buffers import PieceBuffers
from augury.runtime.torch.pieces.sender import Sender
from augury.runtime.torch.pieces.updates import Updates, without_program_modes
from augury.runtime.torch.program.aliases import has_aliases
from augury.runtime.torch.ranks.groups import ControlGroup, PieceGroup

_OWN_REFERENCES = 3
"""References to a gradient that only an exchange holds: a list, a local name, an argument."""
BATCH_BYTES = 1 << 17
"""Smaller updates are done together with other possible ones, since the fixed cost of an optimizer
call would dominate."""


@dataclass(slots=True)
class Unit:
    members: list[int]
    size_bytes: int


class GradientExchange:
    def __init__(
        self,
        section: CommunicationSection,
        model: Any,
        parameters: list[Any],
        updates: Updates,
        group: PieceGroup,
        control: ControlGroup,
        *,
        epoch: int,
    ) -> None:
        """``group`` carries pieces, some of them issued by gloo's threads; ``control`` carries
        messages of the main thread only."""
        self.section = section
        self.parameters = parameters
        self.meter = Meter(num_pieces=len(section.order.pieces), num_gradients=len(parameters))
        if is_swapped(section.order, group.size):
            self.meter.swapped_bytes = tuple(piece.size_bytes for piece in section.order.pieces)
        with suppress(Exception):  # a recording may do without it
            board.pieces.add_group(group.name)
        self._model = model
        self._updates = updates
        self._group, self._control = group, control
        self._buffers = PieceBuffers(
            section.problem,
            section.order,
            parameters,
            group.size,
            apart=is_swapped(section.order, group.size),
        )
        self.sender = Sender(
            *(section, self._buffers, group, self.meter),
            on_issue=self._lay_down,
            on_arrival=self._on_arrival,
            epoch=epoch,
        )
        self._can_ask = self.sender.can_poll
        self.units = _units(model, parameters)
        self.unit_of = {
            id(parameters[n]): unit for unit, one in enumerate(self.units) for n in one.members
        }
        self._unit_of = [self.unit_of[id(parameter)] for parameter in parameters]
        self.number_of = {id(parameter): n for n, parameter in enumerate(parameters)}
        self._given: list[tuple[Any, int]] = []
        """The ``grad`` of each parameter when it was put, and its version."""
        self._is_laid_down: list[bool] = []
        """Gradients whose shares are in the buffers."""
        self._has_given: bool | None = None
        """Whether any parameter still has its ``grad``; None: not checked yet."""
        self._made_up: set[int] = set()
        """Gradients that this rank did not compute and filled with zeros."""
        self._means: dict[int, Any] = {}
        self._used_before: set[int] = set()
        self._filled: set[int] = set()
        """Gradients that counted as unused on this rank."""
        self._used: Any = None
        """Gradients that any rank has computed, where parameters may be unused."""
        self._agreed: Any = None
        self.is_partly_updated = False
        """Whether some parameters are updated and others are not."""
        self.left: set[int] = set()
        """Units that are not up to date."""
        self._num_members = [len(unit.members) for unit in self.units]
        self._num_missing: list[int] = []
        self._ready: list[int] = []
        """Units whose gradients have all arrived, in the order of need."""

    def begin(self, start_ns: int) -> None:
        """Begins a step whose backward started at ``start_ns``."""
        self.meter.begin(start_ns)
        self.meter.own(self._begin, start_ns)

    def _begin(self, start_ns: int) -> None:
        self.sender.begin(start_ns)
        self._given = [(None, 0)] * len(self.parameters)
        self._is_laid_down = [False] * len(self.parameters)
        self._has_given = None
        self._made_up = set()
        self._means = {}
        self._filled = set()
        self._used = None
        self.left = set(range(len(self.units)))
        self._num_missing = [*self._num_members]
        self._ready = []

    def put(self, number: int, gradient: Any) -> None:
        """Backward has computed a gradient. Shares are stored when they are sent: between layers,
        the caches hold the layers' data."""
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

    def was_filled(self, parameter: Any) -> bool:
        """Whether the gradient counted as unused since the last forward."""
        return bool(self._filled) and self.number_of.get(id(parameter)) in self._filled

    def forget_filled(self) -> None:
        self._filled.clear()

    def note_used(self, parameter: Any) -> None:
        """A pass without an exchange has computed a gradient, which the next exchange sends."""
        self._used_before.add(self.number_of[id(parameter)])

    def end_part(self) -> None:
        """A backward has ended without all gradients, and another one may compute the rest. The
        program may change gradients in between, so their shares are stored now."""
        with without_program_modes():
            self.sender.lay_down(
                [number for number, (given, _) in enumerate(self._given) if given is not None]
            )

    def was_edited(self) -> bool:
        """Whether the program has changed or replaced a gradient since backward computed it."""
        with without_program_modes():
            pairs = zip(self.parameters, self._given, strict=True)
            return any(p.grad is not given or given._version != v for p, (given, v) in pairs)

    def has_aliases(self) -> bool:
        """Whether gradients share memory with other tensors."""
        return has_aliases(given for given, _ in self._given if given is not None)

    def spoil(self, reason: str) -> None:
        """Backward failed: sends NaN instead of the missing gradients, so that every rank that
        receives them fails too."""
        self._group.note_failure(reason)
        with without_program_modes():
            self._is_laid_down = [True] * len(self.parameters)
            self._buffers.spoil(self.sender.unsent)
            for number in sorted(self.sender.waiting_for):
                self.sender.put(number)
            self.sender.advance(True)

    def gradients(self) -> dict[int, int]:
        """Returns units by the ``id`` of the gradients that backward computed."""
        pairs = zip(self._given, self._unit_of, strict=True)
        found = {id(given): unit for (given, _), unit in pairs}
        found.pop(id(None), None)
        return found

    def watched(self, gradients: dict[int, int], *, parameters: bool) -> dict[int, int]:
        """Returns the tensors that must not be accessed now: units by ``id``."""
        found = {**self.unit_of, **gradients} if parameters else gradients
        if not parameters or len(self.left) == len(self.units):
            return found
        return {one: unit for one, unit in found.items() if unit in self.left}

    def fill(self, *, agree: bool) -> None:
        """Backward is over: missing gradients count as zero. ``agree``: ranks agree on the
        gradients that no rank computed."""
        with without_program_modes():
            missing = sorted(self.sender.waiting_for)
            for number in missing:
                parameter = self.parameters[number]
                if parameter.grad is None:
                    self._made_up.add(number)
                    parameter.grad = torch.zeros_like(parameter)
                # As in DDP, a gradient of an earlier step counts again.
                gradient = own_gradient(parameter, self._model.gradient_as_bucket_view)
                self._given[number] = gradient, gradient._version
                self.sender.put(number)
            # From now on the program may zero gradients, whether they were sent or not.
            self.sender.lay_down_rest()
            self._take_as_given()
            self.sender.advance(True)
            if agree:
                # None of them may get a gradient from this backward any more.
                self._filled.update(missing)
                self._used = torch.ones(len(self.parameters), dtype=torch.int32)
                self._used[[number for number in missing if number not in self._used_before]] = 0
                self._agreed = self._control.all_reduce(self._used)
            self._used_before.clear()

    def _take_as_given(self) -> None:
        """Records the gradients as they are when the last one was computed: only later changes by
        the program count as edits. Gradients that share memory share a version counter."""
        for number, parameter in enumerate(self.parameters):
            if parameter.grad is None:
                parameter.grad = torch.zeros_like(parameter)
            self._given[number] = parameter.grad, parameter.grad._version

    def drop(self) -> None:
        """Waits until nothing is in flight, without updates."""
        with without_program_modes():
            while not self.sender.is_done:
                self.sender.wait_next()
            self.sender.finish()
        self.left = set()

    def wait_units(self, units: Iterable[int]) -> None:
        """Waits until the parameters of these units are up to date; updates others meanwhile."""
        with without_program_modes():
            for unit in units:
                while unit in self.left:
                    if self._num_missing[unit]:
                        self._use_time()
                    else:
                        self._update(unit)

    def wait_all(self, in_turn: bool) -> None:
        """Waits until everything is up to date; ``in_turn``: updates as gradients arrive."""
        with without_program_modes():
            while in_turn and self.left and not self.sender.is_done:
                self._use_time()
            while not self.sender.is_done:
                self.sender.wait_next()
            if not in_turn:
                self.sender.finish()
            self._apply(sorted(self.left))

    def _use_time(self) -> None:
        """Does the updates that are possible; waits where there are none."""
        if self._can_ask:
            self.sender.poll()
        if self._ready:
            # All at once: later arrivals do not reduce this work.
            units, self._ready = self._ready, []
            self._apply(units)
        else:
            self.sender.wait_next()

    def _on_arrival(self, piece: Any, gradients: Iterable[int]) -> None:
        first = piece[0].item()
        if first != first:  # noqa: PLR0124 - NaN: from the program's loss, or from a failed rank
            self.require_sound()
        for number in gradients:
            unit = self._unit_of[number]
            self._num_missing[unit] -= 1
            if not self._num_missing[unit]:
                insort(self._ready, unit)

    def require_sound(self) -> None:
        """Raises if a rank has given up this step."""
        reason = self._group.failure()
        if reason is not None:
            raise RuntimeError(
                f"another rank could not complete this step ({reason}): as with stock DDP, "
                "training cannot continue"
            )

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
        self.is_partly_updated = True
        self.meter.work(self._apply_to, numbers)
        self.is_partly_updated = bool(self.left)
        if self._has_given is not False:
            self._give_back(units)

    def _apply_to(self, numbers: list[int]) -> None:
        gradients = [self._to_apply(n) for n in numbers]
        self._updates.apply([self.parameters[n] for n in numbers], gradients)

    def _to_apply(self, number: int) -> Any:
        if self._is_used(number):
            return self._mean(number)
        return None if number in self._made_up else self._given[number][0]

    def _mean(self, number: int) -> Any:
        """Returns the mean of a gradient, always the same tensor: optimizers may change it."""
        found = self._means.get(number)
        if found is None:
            found = self._means[number] = self._buffers.reduced(number)
        return found

    def swap_in(self) -> list[Any]:
        """Gives every parameter its reduced gradient. Returns the previous gradients."""
        kept = [parameter.grad for parameter in self.parameters]
        for number, parameter in enumerate(self.parameters):
            parameter.grad = self._to_apply(number)
        self.left = set()
        return kept

    def swap_out(self, kept: list[Any]) -> None:
        for parameter, gradient in zip(self.parameters, kept, strict=True):
            parameter.grad = gradient

    def give_back_all(self) -> None:
        with without_program_modes():
            self._give_back(range(len(self.units)))

    def _give_back(self, units: Iterable[int]) -> None:
        """Sets gradients to the means, as DDP's reduction does, unless they were changed since
        backward computed them; also gradients that only the program still holds."""
        if self._has_given is None:
            self._has_given = any(map(self._is_held, range(len(self.parameters))))
        if not self._has_given:
            return  # the usual case: programs set gradients to None
        members = [number for unit in units for number in self.units[unit].members]
        # All are checked before any is written: gradients may share memory.
        unchanged = [number for number in members if self._is_held_unchanged(number)]
        for number in unchanged:
            given = self._given[number][0]
            if self._is_used(number):
                self.meter.work(given.detach().copy_, self._mean(number))
            elif number in self._made_up and self.parameters[number].grad is given:
                self.parameters[number].grad = None
        for number in members:
            self._given[number] = None, 0

    def _is_held(self, number: int) -> bool:
        """Whether the parameter or the program still holds the gradient."""
        given = self._given[number][0]
        if given is None:
            return False
        return self.parameters[number].grad is given or sys.getrefcount(given) > _OWN_REFERENCES

    def _is_held_unchanged(self, number: int) -> bool:
        given, version = self._given[number]
        return given is not None and given._version == version and self._is_held(number)

    def _is_used(self, number: int) -> bool:
        if self._used is None:
            return True
        if self._agreed is not None:
            self._agreed.wait()
            self._agreed = None
        return bool(self._used[number])


def own_gradient(parameter: Any, is_in_bucket: bool) -> Any:
    """Returns the gradient of a parameter; ``is_in_bucket``: copied out of DDP's buckets, whose
    memory belongs to DDP. Other views belong to the program and stay."""
    gradient = parameter.grad
    if gradient is None:  # taken by a hook of the program: zero, as with DDP
        gradient = parameter.grad = torch.zeros_like(parameter)
    if is_in_bucket and gradient._is_view():
        gradient = parameter.grad = gradient.detach().clone()
    return gradient


def _units(model: Any, parameters: list[Any]) -> list[Unit]:
    number_of = {id(parameter): n for n, parameter in enumerate(parameters)}
    units: list[Unit] = []
    for module in model.module.modules():
        members = [number_of.pop(id(p)) for p in module._parameters.values() if id(p) in number_of]
        if members:
            size_bytes = sum(parameters[number].nbytes for number in members)
            units.append(Unit(sorted(members), size_bytes))
    return sorted(units, key=lambda unit: unit.members[0])
