"""A step in which a device goes through all layers, forward and backward, and tells others
something on the way."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from augury.core.columns import F8
from augury.core.enums import OpKind
from augury.core.graph.graph import NONE
from augury.oracle.graphs.memory_buffers import Moments, Shares, buffers_of
from augury.oracle.graphs.program import DEVICE, Fellows, Program
from augury.oracle.strategy import Mask, StrategyCase, waiting_s

_SOON, _LATER = 0, 1
"""Priorities on a link: what compute waits for goes before gradients."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerMessage:
    name: str
    kind: OpKind
    time_s: float
    size_bytes: float
    link: str
    fellows: Fellows = Fellows.ALL


@dataclass(frozen=True, kw_only=True)
class LayeredStep:
    """Messages by the place of their layer. Forward and backward wait for all of them but those
    of gradients, which may travel beside what is left of backward."""

    case: StrategyCase
    share: float
    """Of what the layers take for one sample: samples of a device, constants, splitting."""
    shares: Shares
    update_share: float = 1.0
    launch_s: dict[int, float] = field(default_factory=dict)
    before_forward: dict[int, LayerMessage] = field(default_factory=dict)
    after_forward: dict[int, LayerMessage] = field(default_factory=dict)
    before_backward: dict[int, LayerMessage] = field(default_factory=dict)
    parameters: dict[int, LayerMessage] = field(default_factory=dict)
    """Gathered before each use of a layer; those of the next may come while a layer is at work."""
    gradients: dict[int, list[LayerMessage]] = field(default_factory=dict)
    after_update: dict[int, LayerMessage] = field(default_factory=dict)

    def program(self) -> Program:
        return _Writer(self).written()


class _Writer:
    def __init__(self, step: LayeredStep) -> None:
        self.step, self.work = step, step.case.work
        self.program = Program()
        self.names = [layer.name for layer in self.work.model.layers]
        self.last = self.program.op("begin", OpKind.MARK, 0.0)
        self.at_work = self.last
        """With which the layer whose parameters were gathered last began."""
        self.moments = Moments()

    def written(self) -> Program:
        step, num = self.step, len(self.names)
        freely = _share_done(self.work.forward_s, step.case.options.overlap)
        for place in range(num):
            self.serial(step.before_forward, place)
            gathered = self.use(place, is_free=bool(freely[place]))
            self.compute("forward", OpKind.FORWARD, self.work.forward_s, place)
            self.moments.forward.append(self.last)
            self.used(place, gathered)
            if place in step.launch_s:
                self.on_device("launch", OpKind.LAUNCH, step.launch_s[place], place)
            self.serial(step.after_forward, place)
        freely = _share_done(self.work.backward_s[::-1], step.case.options.overlap)[::-1]
        waiting: list[int] = []
        arrived: list[int] = []
        for place in reversed(range(num)):
            self.serial(step.before_backward, place)
            gathered = self.use(place, is_free=bool(freely[place]))
            if step.case.options.recompute:
                self.compute("recompute", OpKind.RECOMPUTE, self.work.forward_s, place)
            self.compute("backward", OpKind.BACKWARD, self.work.backward_s, place)
            self.moments.backward[place] = self.last
            self.used(place, gathered)
            waiting.append(place)
            # Gradients made before any may leave do so together.
            if freely[place] or place == 0:
                arrived += self.gradients(waiting)
                waiting = []
        self.update(arrived)
        self.moments.last = self.last
        self.program.buffers += buffers_of(step.case, step.shares, self.moments)
        return self.program

    def update(self, arrived: list[int]) -> None:
        step = self.step
        if arrived:
            self.last = self.program.op(
                "gradients are there", OpKind.MARK, 0.0, after=[self.last, *arrived]
            )
        for place in range(len(self.names)):
            seconds = float(self.work.update_s[place]) * step.update_share
            if seconds:
                self.on_device("update", OpKind.UPDATE, seconds, place)
        for place in step.after_update:
            self.serial(step.after_update, place)
        slowest_s = float(waiting_s(step.case)[0])
        self.last = self.program.op("waiting", OpKind.DELAY, slowest_s, after=[self.last])

    def compute(self, name: str, kind: OpKind, per_sample_s: F8, place: int) -> None:
        self.on_device(name, kind, float(per_sample_s[place]) * self.step.share, place)

    def on_device(self, name: str, kind: OpKind, seconds: float, place: int) -> None:
        self.last = self.program.op(
            name, kind, seconds, on=DEVICE, after=[self.last], layer=self.names[place]
        )

    def serial(self, messages: dict[int, LayerMessage], place: int) -> None:
        if place in messages:
            self.last = self.send(messages[place], place, [self.last], _SOON)

    def used(self, place: int, gathered: int) -> None:
        if gathered != NONE:
            self.moments.gathered.append((place, gathered, self.last))

    def use(self, place: int, *, is_free: bool) -> int:
        """A layer begins once its parameters are whole; those of two layers are at a time."""
        message = self.step.parameters.get(place)
        if message is None:
            return NONE
        gathered = self.send(message, place, [self.at_work if is_free else self.last], _SOON)
        self.last = self.at_work = self.program.op(
            "parameters are there", OpKind.MARK, 0.0, after=[self.last, gathered]
        )
        return gathered

    def gradients(self, places: list[int]) -> list[int]:
        """Of layers whose gradients leave together: all inside groups, then all between them."""
        stages = [self.step.gradients.get(place, []) for place in places]
        arrived: list[int] = []
        before = self.last
        for stage in range(max(map(len, stages))):
            if arrived:
                before = self.program.op("gradients are summed", OpKind.MARK, 0.0, after=arrived)
            arrived = [
                self.send(messages[stage], place, [before], _LATER)
                for place, messages in zip(places, stages, strict=True)
                if stage < len(messages)
            ]
        return arrived

    def send(self, message: LayerMessage, place: int, after: list[int], priority: int) -> int:
        return self.program.op(
            message.name,
            message.kind,
            message.time_s,
            on=message.link,
            after=after,
            layer=self.names[place],
            size_bytes=message.size_bytes,
            priority=priority,
            fellows=message.fellows,
        )


def _share_done(seconds: F8, overlap: float) -> Mask:
    """Beside which layers communication may run: those behind all but a share of the time."""
    if not overlap:
        return np.zeros(len(seconds), bool)
    upto = np.cumsum(seconds)
    free: Mask = upto >= (1 - overlap) * upto[-1] * (1 - 1e-12)
    return free
