"""A network with the layer times of one process, as each strategy splits them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from itertools import pairwise

import numpy as np

from augury.core.cluster.cluster_file import find_cluster
from augury.core.cluster.device import Device
from augury.core.model import Model, ModelLayer
from augury.oracle.layer_costs import LayerWork
from augury.oracle.model_reader.read_model import read_module
from benchmarks.testbed.strategies.cnns import CNNS
from benchmarks.validate.oracle_record import F8, Record, means

SPLIT_WEIGHTS = {"filter", "channel", "zero3"}
SYNCHRONISED_ONCE = {"data", "zero3"}
"""Strategies whose ranks wait for each other only after backward. The layers of FSDP2 cannot be
timed one by one; they get the shares that they have with data parallelism."""
PAIR = 2


def work_of(record: Record, strategy: str) -> LayerWork:
    """Multiplies times by the divisors of the closed form, so that a split layer takes its measured
    split time, not a share of the time of the whole layer."""
    model, num, batch = model_of(record.cnn.name), record.num_ranks, record.cnn.batch
    if strategy == "pipeline":
        return _work(_stages(model, record))
    times = record.layers("data" if strategy in SYNCHRONISED_ONCE else strategy)
    update_s = float(record.slowest(record.layers(strategy).update))
    shares = num if strategy in SPLIT_WEIGHTS else PAIR if strategy == "data_filter" else 1
    timed = _timed(
        model,
        record.slowest(times.forward) * num / batch,
        record.slowest(times.backward) * num / batch,
        update_s * shares,
    )
    work = _work(timed)
    if strategy in SYNCHRONISED_ONCE:
        own = record.layers(strategy)
        total = own.forward.sum(axis=2) + own.backward.sum(axis=2)
        work = work.anchored(float(record.slowest(total)) * num / batch)
    return work


def serial_work(record: Record, strategy: str) -> LayerWork:
    """Returns work from the times of whole layers in one process, which the closed form divides as
    it does for a user. Ranks that share a core alternate on it."""
    model = model_of(record.cnn.name)
    if strategy == "pipeline":
        return _work(_stages(model, record))
    return _work(_whole(model, record, times=-(-record.num_ranks // record.cores)))


@cache
def model_of(cnn: str) -> Model:
    known = CNNS[cnn]
    return read_module(known.build(), [known.input_shape], name=cnn)


@cache
def device() -> Device:
    return find_cluster("cpu").described_device


def _work(model: Model) -> LayerWork:
    return LayerWork.of(model, device())


def _timed(model: Model, forward_s: F8, backward_s: F8, update_s: float) -> Model:
    layers = []
    for layer, forward, backward in zip(model.layers, forward_s, backward_s, strict=True):
        share = layer.num_parameters / model.num_parameters
        layers.append(
            replace(
                layer,
                forward_s=float(forward),
                backward_s=float(backward),
                update_s=update_s * share,
            )
        )
    return replace(model, layers=tuple(layers))


def _stages(model: Model, record: Record) -> Model:
    """Returns a model with one layer per stage, as the job cut them, with times on an unshared
    core, since stages alternate."""
    timed = _whole(model, record)
    edges = [*record.first_layers, len(model.layers)]
    stages = [timed.layers[a:b] for a, b in pairwise(edges)]
    return replace(timed, layers=tuple(_joined(stage) for stage in stages))


def _whole(model: Model, record: Record, *, times: int = 1) -> Model:
    """Returns layers with the times of one process that had a core to itself, multiplied by
    ``times``."""
    own = record.layers("pipeline")
    samples = record.cnn.batch / record.cnn.micro_batches
    return _timed(
        model,
        times * _of_any(own.forward) / samples,
        times * _of_any(own.backward) / samples,
        times * float(_of_any(own.update)),
    )


def _joined(layers: Sequence[ModelLayer]) -> ModelLayer:
    return replace(
        layers[-1],
        input_shape=layers[0].input_shape,
        num_parameters=sum(layer.num_parameters for layer in layers),
        forward_s=sum(layer.forward_s or 0.0 for layer in layers),
        backward_s=sum(layer.backward_s or 0.0 for layer in layers),
        update_s=sum(layer.update_s or 0.0 for layer in layers),
    )


def _of_any(seconds: F8) -> F8:
    """Mean over ranks and repetitions."""
    return means(np.concatenate(list(seconds)))
