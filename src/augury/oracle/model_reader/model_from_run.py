"""Measured times of a recorded run in a Model, or a Model from a run alone."""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import replace
from pathlib import Path

import numpy as np

from augury.core.enums import MemoryKind
from augury.core.errors import InputError, UsageError
from augury.core.model import LayerKind, Model, ModelLayer
from augury.core.trace.trace import Trace
from augury.ingest.open_run import open_run
from augury.oracle.model_reader.layer_times import LayerTimes, layer_times

_KINDS = (
    (LayerKind.CONVOLUTION, ("conv",)),
    (LayerKind.LINEAR, ("addmm", "linear", "aten::mm")),
    (LayerKind.NORMALISATION, ("norm",)),
    (LayerKind.POOLING, ("pool",)),
)


def with_times(model: Model, run: Path | None, batch: int | None) -> Model:
    """Returns the model with the times of a run; unchanged if no run is named."""
    if run is None and batch is None:
        return model
    if run is None or batch is None:
        raise UsageError(
            "the times of a run and its batch are needed together",
            remedy="give --times RUN and --times-batch N, the samples of one rank in one step",
        )
    return model_from_run(open_run(run), batch, model=model)


def model_from_run(
    trace: Trace, batch: int, *, model: Model | None = None, item_bytes: int = 4
) -> Model:
    """``batch`` is the samples of one rank in one step. Without ``model``, shapes and FLOPs stay
    unknown, so that only strategies that need neither can be predicted."""
    if batch < 1:
        raise InputError(f"a batch of {batch}", remedy="give the samples of one rank in one step")
    times = layer_times(trace)
    if model is None:
        model = _as_recorded(trace, times, batch, item_bytes)
    return _with_times(model, times, batch)


def _as_recorded(trace: Trace, times: LayerTimes, batch: int, item_bytes: int) -> Model:
    kept = _held_bytes(trace, MemoryKind.ACTIVATION)
    parameters: Counter[str] = Counter()
    for name, size_bytes in _held_bytes(trace, MemoryKind.PARAMETER).items():
        parameters[name.rpartition(".")[0]] += size_bytes
    layers = [
        ModelLayer(
            name=name,
            kind=_kind(times.operations[name]),
            input_shape=(),
            output_shape=(),
            num_parameters=parameters[name] // item_bytes,
            saved_items=kept.get(name, 0) // (item_bytes * batch),
        )
        for name in times.forward_ns
    ]
    return Model(name="recorded", layers=tuple(layers), input_shape=())


def _with_times(model: Model, times: LayerTimes, batch: int) -> Model:
    """A module that is called twice, or computes between its children, is several layers of the
    model and one of the run: they share its time in proportion to the items they move."""
    sharing: dict[str, list[ModelLayer]] = defaultdict(list)
    for layer in model.layers:
        sharing[_module(layer.name)].append(layer)
    if not sharing.keys() & times.forward_ns.keys():
        raise InputError(
            f"no layer of the run is one of {model.name}",
            remedy="give the model that was recorded",
        )
    num_parameters = max(1, model.num_parameters)
    layers = []
    for layer in model.layers:
        module = _module(layer.name)
        forward, backward = (
            float(count) / max(1.0, total)
            for count, total in (
                _part(layer.forward_items, [one.forward_items for one in sharing[module]]),
                _part(layer.backward_items, [one.backward_items for one in sharing[module]]),
            )
        )
        layers.append(
            replace(
                layer,
                forward_s=times.forward_ns.get(module, 0.0) * forward / batch / 1e9,
                backward_s=times.backward_ns.get(module, 0.0) * backward / batch / 1e9,
                update_s=times.update_ns * layer.num_parameters / num_parameters / 1e9,
            )
        )
    return replace(model, layers=tuple(layers))


def _part(own: int, all_of_them: list[int]) -> tuple[float, float]:
    """Share of one layer; equal shares where no items were counted."""
    total = sum(all_of_them)
    return (float(own), float(total)) if total else (1.0, float(len(all_of_them)))


def _module(name: str) -> str:
    """Module of a layer named ``module``, ``module#2`` or ``module:operation``."""
    return name.partition("#")[0].partition(":")[0]


def _kind(operations: list[str]) -> LayerKind:
    for kind, words in _KINDS:
        if any(word in operation for operation in operations for word in words):
            return kind
    return LayerKind.ELEMENTWISE


def _held_bytes(trace: Trace, kind: MemoryKind) -> dict[str, int]:
    """Bytes by name, of the first rank that recorded them."""
    memory = trace.memory
    rows = np.flatnonzero(memory.kind == kind)
    rows = rows[memory.rank[rows] == (memory.rank[rows].min() if len(rows) else 0)]
    return {
        trace.strings[int(memory.layer[row])]: int(memory.size_bytes[row]) for row in rows.tolist()
    }
