"""The bed as the oracle's Cluster: latency and bandwidth fitted to each strategy's communications,
timed in isolation. Gloo's collectives differ from the model: its reduce-scatter moves as much as an
all-reduce, and halos are small."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

import numpy as np
from scipy.optimize import nnls

from augury.build.pipeline_order import PipelineSchedule
from augury.core.cluster.cluster import Cluster, NetworkLevel
from augury.core.model import LayerKind
from augury.oracle.fitting.corrections import BARE
from augury.oracle.layer_costs import WEIGHT_BYTES, LayerWork
from augury.oracle.strategy import LimitReason, Options, Strategy, StrategyCase
from benchmarks.validate.oracle_layers import PAIR, device, model_of
from benchmarks.validate.oracle_record import Record

MOST_BYTES_PER_S = 10**13


@dataclass(frozen=True)
class Line:
    """Cost model of a message: m bytes take ``alpha`` + m ``beta``."""

    alpha: float
    beta: float

    @classmethod
    def through(cls, rows: Iterable[tuple[float, float, float]]) -> Line:
        """Fits rows of (messages, total bytes, seconds) by non-negative least squares. A single
        size determines the bandwidth."""
        matrix = np.array(list(rows))
        if len(matrix) == 1:
            return cls(0.0, matrix[0, 2] / matrix[0, 1])
        scale = np.maximum(matrix[:, :2].max(axis=0), 1e-30)
        found, _ = nnls(matrix[:, :2] / scale, matrix[:, 2])
        alpha, beta = (found / scale).tolist()
        return cls(alpha, beta)


def machine_of(record: Record, strategy: Strategy, work: LayerWork) -> Cluster:
    """Returns one level of all hosts; pairs of a hybrid strategy get their own level."""
    num, name = record.num_ranks, strategy.name
    match name:
        case "data":
            return _machine((num, _all_reduce(record, "world", num)))
        case "filter" | "channel":
            return _machine((num, _layerwise(record, work, "world", num)))
        case "zero3":
            return _machine((num, _sharded(record, work)))
        case "pipeline":
            return _machine((num, _sends(record, work)))
        case "data_filter":
            between = _all_reduce(record, "across", num // PAIR)
            return _machine((PAIR, _layerwise(record, work, "pair", PAIR)), (num, between))
        case "spatial":
            plain = _machine((num, _all_reduce(record, "world", num)))
            return _with_borders(record, strategy, work, plain)
        case "data_spatial":
            between = _all_reduce(record, "across", num // PAIR)
            plain = _machine((PAIR, _all_reduce(record, "pair", PAIR)), (num, between))
            return _with_borders(record, strategy, work, plain)
    raise ValueError(name)


def one_network(record: Record) -> Cluster:
    """Fits one latency and one bandwidth for all communication, as a user calibrates them: on
    all-reduces of all ranks, with relative errors, so that small sizes count as much as large ones.
    """
    num = record.num_ranks
    times = 2.0 * (num - 1)
    sizes = record.sizes("all_reduce", "world")
    seconds = [record.link_s("all_reduce", "world", m) for m in sizes]
    line = Line.through(
        (times / s, times / num * m / s, 1.0) for m, s in zip(sizes, seconds, strict=True)
    )
    return _machine((num, line))


def case_of(record: Record, work: LayerWork, cluster: Cluster) -> StrategyCase:
    return StrategyCase(
        work=work,
        cluster=cluster,
        constants=BARE,
        options=Options(
            group=PAIR, micro_batches=record.cnn.micro_batches, schedule=PipelineSchedule.GPIPE
        ),
        devices=np.array([record.num_ranks], float),
        batch=np.array([record.cnn.batch], float),
    )


def _all_reduce(record: Record, group: str, num: int) -> Line:
    """Fit over all-reduces of all gradients, or of large parts of them."""
    whole = WEIGHT_BYTES * model_of(record.cnn.name).num_parameters
    large = {whole // part for part in (1, 2, 4)} & set(record.sizes("all_reduce", group))
    times = 2.0 * (num - 1)
    return Line.through(
        (times, times / num * m, record.link_s("all_reduce", group, m)) for m in large
    )


def _layerwise(record: Record, work: LayerWork, group: str, num: int) -> Line:
    """Fit over gathering a layer's outputs and summing their gradients, or the reverse."""
    batch = record.cnn.batch * num // record.num_ranks
    times = 3.0 * (num - 1)
    rows = []
    for layer in work.weighted[:-1]:
        size = 4 * batch * int(np.prod(layer.output_shape))
        seconds = sum(record.link_s(kind, group, size) for kind in ("all_gather", "all_reduce"))
        rows.append((times, times / num * size, seconds))
    return Line.through(rows)


def _sharded(record: Record, work: LayerWork) -> Line:
    """Fit over gathering a layer's parameters twice and scattering its gradients."""
    num = record.num_ranks
    times = 3.0 * (num - 1)
    rows = []
    for layer in work.weighted:
        size = WEIGHT_BYTES * layer.num_parameters
        gather_s = record.link_s("all_gather_single", "world", size)
        scatter_s = record.link_s("reduce_scatter_single", "world", size)
        rows.append((times, times / num * size, 2 * gather_s + scatter_s))
    return Line.through(rows)


def _sends(record: Record, work: LayerWork) -> Line:
    """Fit over the micro-batch messages between stages, which are layers here."""
    samples = record.cnn.batch // record.cnn.micro_batches
    sizes = [4 * samples * int(items) for items in work.output_items[:-1]]
    return Line.through((1.0, m, record.link_s("send", "world", m)) for m in sizes)


def _with_borders(record: Record, strategy: Strategy, work: LayerWork, plain: Cluster) -> Cluster:
    """Chooses the latency of the lowest level such that halos take their measured time: halos are
    small, and the closed form assumes two neighbours where there is one. Gradients are unchanged.
    """

    def lowest_at(latency_ns: int) -> Cluster:
        lowest, *others = plain.levels
        return replace(plain, levels=(replace(lowest, latency_ns=latency_ns), *others))

    def predicted_s(cluster: Cluster, *reasons: LimitReason) -> float:
        found = strategy.evaluate(case_of(record, work, cluster))
        return sum(float(part.time_s[0]) for part in found.parts if part.reason in reasons)

    wanted_s = _borders_s(record, work, is_cut_twice=strategy.name == "spatial")
    wanted_s += predicted_s(plain, LimitReason.GRADIENT)
    unit_ns = 10**6
    at_once_s, slower_s = (
        predicted_s(lowest_at(latency_ns), LimitReason.HALO, LimitReason.GRADIENT)
        for latency_ns in (0, unit_ns)
    )
    return lowest_at(round(unit_ns * max(0.0, wanted_s - at_once_s) / (slower_s - at_once_s)))


def _borders_s(record: Record, work: LayerWork, *, is_cut_twice: bool) -> float:
    """Measured seconds of the halos of all convolution inputs and of their gradients, except those
    of the images."""
    is_halved = record.num_ranks > PAIR
    groups = ("pair", "across") if is_halved and is_cut_twice else ("pair",)
    total = 0.0
    convolutions = [x for x in work.model.layers if x.kind is LayerKind.CONVOLUTION]
    for place, layer in enumerate(convolutions):
        channels, extent, _ = layer.input_shape
        size = 4 * record.cnn.batch * channels * extent // (2 if is_halved else 1)
        once_s = sum(record.link_s("swap", group, size) for group in groups)
        total += once_s * (2 if place else 1)
    return total


def _machine(*levels: tuple[int, Line]) -> Cluster:
    """Builds a cluster in which every host has a link of its own."""
    return Cluster(
        name="bed",
        device=device(),
        levels=tuple(
            NetworkLevel(
                name=f"{num} hosts",
                devices=num,
                latency_ns=round(line.alpha * 1e9),
                bandwidth_bytes_per_s=min(MOST_BYTES_PER_S, round(1 / max(line.beta, 1e-13))),
                links=num,
            )
            for num, line in levels
        ),
    )
