"""One step's gradients under a Plan: put in, sent, waited for, applied, given back.

Parameters are updated in units, one for each module that owns some: numbered in the order in which
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
from augury.runtime.torch.pieces.updates import Updates, undisturbed
from augury.runtime.torch.program.aliases import has_aliases
from augury.runtime.torch.ranks.groups import ControlGroup, PieceGroup

_OWN_REFERENCES = 3
"""To a gradient that nothing but an exchange holds: its list, a local name, an argument."""
BATCH_BYTES = 1 << 17
"""Updates of less than this are done in one go with others that can be done: what an optimizer
takes for each call would be most of it."""


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
        """``group`` carries pieces, some of them issued by threads of gloo's; ``control`` carries
        what the main thread alone sends."""
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
        self._means: dict[int, Any] = {}
        self._used_before: set[int] = set()
        self._filled: set[int] = set()
        """Gradients that were taken for unused on this rank."""
        self._used: Any = None
        """Which gradients any rank has made, where not all need to be."""
        self._agreed: Any = None
        self.is_partly_updated = False
        """Some parameters are of the next step, others are not."""
        self.left: set[int] = set()
        """Units that are not up to date."""
        self._num_members = [len(unit.members) for unit in self.units]
        self._num_missing: list[int] = []
        self._ready: list[int] = []
        """Units of which everything has arrived, the one that is needed first first."""

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
        self._means = {}
        self._filled = set()
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

    def was_filled(self, parameter: Any) -> bool:
        """Since the last forward."""
        return bool(self._filled) and self.number_of.get(id(parameter)) in self._filled

    def forget_filled(self) -> None:
        self._filled.clear()

    def note_used(self, parameter: Any) -> None:
        """A pass without an exchange has made a gradient, which is for the next exchange."""
        self._used_before.add(self.number_of[id(parameter)])

    def end_part(self) -> None:
        """A backward is over that has not made all gradients, and another one may make the rest.
        The program may change gradients meanwhile: those that are there are laid down now."""
        with undisturbed():
            self.sender.lay_down(
                [number for number, (given, _) in enumerate(self._given) if given is not None]
            )

    def was_edited(self) -> bool:
        """Whether the program has changed or replaced a gradient since backward made it."""
        with undisturbed():
            pairs = zip(self.parameters, self._given, strict=True)
            return any(p.grad is not given or given._version != v for p, (given, v) in pairs)

    def has_aliases(self) -> bool:
        """Whether gradients share memory with other tensors."""
        return has_aliases(given for given, _ in self._given if given is not None)

    def spoil(self, reason: str) -> None:
        """Backward failed: what is left to send is no gradient, and every rank that gets it is to
        fail too."""
        self._group.note_failure(reason)
        with undisturbed():
            self._is_laid_down = [True] * len(self.parameters)
            self._buffers.spoil(self.sender.unsent)
            for number in sorted(self.sender.waiting_for):
                self.sender.put(number)
            self.sender.advance(True)

    def gradients(self) -> dict[int, int]:
        """Units by the ``id`` of gradients as backward made them."""
        pairs = zip(self._given, self._unit_of, strict=True)
        found = {id(given): unit for (given, _), unit in pairs}
        found.pop(id(None), None)
        return found

    def watched(self, gradients: dict[int, int], *, parameters: bool) -> dict[int, int]:
        """What must not be looked at now: units by the ``id`` of tensors."""
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
                parameter = self.parameters[number]
                if parameter.grad is None:
                    self._made_up.add(number)
                    parameter.grad = torch.zeros_like(parameter)
                # As DDP does it: a gradient of an earlier step counts again.
                gradient = own_gradient(parameter, self._model.gradient_as_bucket_view)
                self._given[number] = gradient, gradient._version
                self.sender.put(number)
            # From now on the program may zero gradients, whether they have left or not.
            self.sender.lay_down_rest()
            self._take_as_given()
            self.sender.advance(True)
            if agree:
                # A gradient of this backward may still come for none of them.
                self._filled.update(missing)
                self._used = torch.ones(len(self.parameters), dtype=torch.int32)
                self._used[[number for number in missing if number not in self._used_before]] = 0
                self._agreed = self._control.all_reduce(self._used)
            self._used_before.clear()

    def _take_as_given(self) -> None:
        """Gradients as they are when the last of them was made: only what the program does to them
        from now on counts as an edit. Those that share memory share a count of changes."""
        for number, parameter in enumerate(self.parameters):
            if parameter.grad is None:
                parameter.grad = torch.zeros_like(parameter)
            self._given[number] = parameter.grad, parameter.grad._version

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

    def _on_arrival(self, piece: Any, gradients: Iterable[int]) -> None:
        first = piece[0].item()
        if first != first:  # noqa: PLR0124 - not a number: a loss of the program's, or spoiled
            self.require_sound()
        for number in gradients:
            unit = self._unit_of[number]
            self._num_missing[unit] -= 1
            if not self._num_missing[unit]:
                insort(self._ready, unit)

    def require_sound(self) -> None:
        """No rank has given up this step."""
        reason = self._group.failure()
        if reason is not None:
            raise RuntimeError(
                f"another rank could not complete this step ({reason}): as with stock DDP, "
                "training cannot go on"
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
        """The same tensor whenever it is asked for: optimizers may change gradients."""
        found = self._means.get(number)
        if found is None:
            found = self._means[number] = self._buffers.reduced(number)
        return found

    def swap_in(self) -> list[Any]:
        """Give every parameter its reduced gradient; return what they had."""
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
        """As after DDP's reduction, gradients are the means: unless they were changed since
        backward made them. Also those that the program has kept and taken from the parameters."""
        if self._has_given is None:
            self._has_given = any(map(self._is_held, range(len(self.parameters))))
        if not self._has_given:
            return  # as is usual: programs zero gradients by setting them to None
        members = [number for unit in units for number in self.units[unit].members]
        # All are looked at before any is written: gradients may share memory.
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
        """Whether a gradient is still the parameter's, or the program has kept it."""
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
    """Its gradient; ``is_in_bucket``: apart from DDP's buckets, whose memory is not the
    program's. Other views are, and stay."""
    gradient = parameter.grad
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
