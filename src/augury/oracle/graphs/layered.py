"""Step in which a device runs all layers forward and backward and communicates in between."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from augury.core.columns import F8
from augury.core.enums import OpKind
from augury.core.graph.graph import NONE
from augury.oracle.graphs.memory_buffers import DeviceShares, LayerOperations, step_buffers
from augury.oracle.graphs.program import DEVICE, Participants, Program
from augury.oracle.strategy import Mask, StrategyCase, waiting_s

_AWAITED, _DEFERRED = 0, 1
"""Priorities on a link: communication that compute waits for goes before gradients."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerMessage:
    name: str
    kind: OpKind
    time_s: float
    size_bytes: float
    link: str
    participants: Participants = Participants.ALL


@dataclass(frozen=True, kw_only=True)
class LayeredStep:
    """Messages by the index of their layer. Forward and backward wait for all of them except
    gradients, which may overlap with the rest of backward."""

    case: StrategyCase
    compute_factor: float
    """Factor on the time of each layer for one sample: samples of a device, constants, split."""
    shares: DeviceShares
    update_share: float = 1.0
    launch_s: dict[int, float] = field(default_factory=dict)
    before_forward: dict[int, LayerMessage] = field(default_factory=dict)
    after_forward: dict[int, LayerMessage] = field(default_factory=dict)
    before_backward: dict[int, LayerMessage] = field(default_factory=dict)
    parameters: dict[int, LayerMessage] = field(default_factory=dict)
    """Gathered before each use of a layer; those of the next layer may arrive while one runs."""
    gradients: dict[int, list[LayerMessage]] = field(default_factory=dict)
    after_update: dict[int, LayerMessage] = field(default_factory=dict)

    def program(self) -> Program:
        return _ProgramWriter(self).write()


class _ProgramWriter:
    def __init__(self, step: LayeredStep) -> None:
        self.step, self.work = step, step.case.work
        self.program = Program()
        self.names = [layer.name for layer in self.work.model.layers]
        self.last = self.program.op("begin", OpKind.MARK, 0.0)
        self.layer_start = self.last
        """Operation at which the layer whose parameters were gathered last started."""
        self.operations = LayerOperations()

    def write(self) -> Program:
        step, num = self.step, len(self.names)
        overlaps = _overlapping_layers(self.work.forward_s, step.case.options.overlap)
        for layer in range(num):
            self.serial(step.before_forward, layer)
            gathered = self.gather_parameters(layer, overlaps=bool(overlaps[layer]))
            self.compute("forward", OpKind.FORWARD, self.work.forward_s, layer)
            self.operations.forward.append(self.last)
            self.release_parameters(layer, gathered)
            if layer in step.launch_s:
                self.on_device("launch", OpKind.LAUNCH, step.launch_s[layer], layer)
            self.serial(step.after_forward, layer)
        overlaps = _overlapping_layers(self.work.backward_s[::-1], step.case.options.overlap)[::-1]
        held_back: list[int] = []
        arrived: list[int] = []
        for layer in reversed(range(num)):
            self.serial(step.before_backward, layer)
            gathered = self.gather_parameters(layer, overlaps=bool(overlaps[layer]))
            if step.case.options.recompute:
                self.compute("recompute", OpKind.RECOMPUTE, self.work.forward_s, layer)
            self.compute("backward", OpKind.BACKWARD, self.work.backward_s, layer)
            self.operations.backward[layer] = self.last
            self.release_parameters(layer, gathered)
            held_back.append(layer)
            # Gradients computed before overlap is allowed leave together.
            if overlaps[layer] or layer == 0:
                arrived += self.gradients(held_back)
                held_back = []
        self.update(arrived)
        self.operations.last = self.last
        self.program.buffers += step_buffers(step.case, step.shares, self.operations)
        return self.program

    def update(self, arrived: list[int]) -> None:
        step = self.step
        if arrived:
            self.last = self.program.op(
                "gradients are there", OpKind.MARK, 0.0, after=[self.last, *arrived]
            )
        for layer in range(len(self.names)):
            seconds = float(self.work.update_s[layer]) * step.update_share
            if seconds:
                self.on_device("update", OpKind.UPDATE, seconds, layer)
        for layer in step.after_update:
            self.serial(step.after_update, layer)
        slowest_s = float(waiting_s(step.case)[0])
        self.last = self.program.op("waiting", OpKind.DELAY, slowest_s, after=[self.last])

    def compute(self, name: str, kind: OpKind, per_sample_s: F8, layer: int) -> None:
        self.on_device(name, kind, float(per_sample_s[layer]) * self.step.compute_factor, layer)

    def on_device(self, name: str, kind: OpKind, seconds: float, layer: int) -> None:
        self.last = self.program.op(
            name, kind, seconds, on=DEVICE, after=[self.last], layer=self.names[layer]
        )

    def serial(self, messages: dict[int, LayerMessage], layer: int) -> None:
        if layer in messages:
            self.last = self.send(messages[layer], layer, [self.last], _AWAITED)

    def gather_parameters(self, layer: int, *, overlaps: bool) -> int:
        """A layer starts once its parameters are whole; those of two layers are held at a time."""
        message = self.step.parameters.get(layer)
        if message is None:
            return NONE
        gathered = self.send(
            message, layer, [self.layer_start if overlaps else self.last], _AWAITED
        )
        self.last = self.layer_start = self.program.op(
            "parameters are there", OpKind.MARK, 0.0, after=[self.last, gathered]
        )
        return gathered

    def release_parameters(self, layer: int, gathered: int) -> None:
        if gathered != NONE:
            self.operations.gathered.append((layer, gathered, self.last))

    def gradients(self, layers: list[int]) -> list[int]:
        """Sends the gradients of layers that leave together: all of one stage (inside groups),
        then all of the next (between groups)."""
        stages = [self.step.gradients.get(layer, []) for layer in layers]
        arrived: list[int] = []
        before = self.last
        for stage in range(max(map(len, stages))):
            if arrived:
                before = self.program.op("gradients are summed", OpKind.MARK, 0.0, after=arrived)
            arrived = [
                self.send(messages[stage], layer, [before], _DEFERRED)
                for layer, messages in zip(layers, stages, strict=True)
                if stage < len(messages)
            ]
        return arrived

    def send(self, message: LayerMessage, layer: int, after: list[int], priority: int) -> int:
        return self.program.op(
            message.name,
            message.kind,
            message.time_s,
            on=message.link,
            after=after,
            layer=self.names[layer],
            size_bytes=message.size_bytes,
            priority=priority,
            participants=message.participants,
        )


def _overlapping_layers(seconds: F8, overlap: float) -> Mask:
    """Layers with which communication may overlap: those in the last ``overlap`` of the time."""
    if not overlap:
        return np.zeros(len(seconds), bool)
    upto = np.cumsum(seconds)
    free: Mask = upto >= (1 - overlap) * upto[-1] * (1 - 1e-12)
    return free
